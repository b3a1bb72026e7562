//! The network interfaces of this host, as far as nodes care.

use crate::address::{device_of, is_loopback, kept};
use crate::links;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Duplicate address detection takes this long at the most: RFC 4862 with the kernel's defaults takes 1 to 2 s.
const DETECTION: Duration = Duration::from_secs(3);
/// `ARPHRD_ETHER`, `ARPHRD_INFINIBAND` and `ARPHRD_LOOPBACK` of linux/if_arp.h.
const ETHERNET: u32 = 1;
const INFINIBAND: u32 = 32;
/// `IFA_F_TENTATIVE` and `IFA_F_DADFAILED` of linux/if_addr.h.
const TENTATIVE: u32 = 0x40;
const DUPLICATE: u32 = 0x08;
/// Names of interfaces that only the containers and virtual machines of one host share: those of Docker, Podman,
/// libvirt, LXC and the usual networks of Kubernetes.
const OF_ONE_HOST: [&str; 12] =
    ["docker", "br-", "virbr", "podman", "cni", "lxcbr", "lxdbr", "incusbr", "flannel", "cali", "vxlan", "kube-"];
/// Names of tunnels.
const TUNNELS: [&str; 8] = ["tun", "tap", "wg", "tailscale", "zt", "sit", "gre", "ip6tnl"];

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The address; an IPv4 one in its mapped form.
    pub address: Ipv6Addr,
    /// Bits of the address that name its subnet, counted in the address's own family.
    pub prefix: u8,
    /// Bytes of the largest packet, IP headers included.
    pub mtu: u32,
    /// The line rate in Mb/s, where the driver knows it.
    pub rate: Option<u32>,
    /// Loopback.
    pub loopback: bool,
    /// Why a job of several hosts does not use it unless it is named: it is a bridge of containers, a tunnel, or its
    /// address is of its link only.
    pub aside: Option<&'static str>,
}

impl Interface {
    /// Do two addresses lie in one subnet? Their prefixes must be equal, too.
    pub fn shares_subnet(&self, other: &Interface) -> bool {
        self.prefix == other.prefix && self.subnet() == other.subnet()
    }

    /// The first address of its subnet; an IPv4 one in its mapped form.
    pub fn subnet(&self) -> Ipv6Addr {
        let ignored = match self.address.to_ipv4_mapped() {
            Some(_) => 32u32.saturating_sub(self.prefix.into()),
            None => 128u32.saturating_sub(self.prefix.into()),
        };
        Ipv6Addr::from_bits(self.address.to_bits() & u128::MAX.checked_shl(ignored).unwrap_or(0))
    }
}

/// The addresses of all interfaces that are up, in the kernel's order. If the kernel still finds out whether an address
/// is a duplicate, it waits for that, for 3 s at the most; such addresses cannot be used before.
pub fn interfaces() -> Vec<Interface> {
    let until = Instant::now() + DETECTION;
    loop {
        let states = states();
        let waits = states.iter().any(|(address, flags)| flags & TENTATIVE != 0 && !is_of_link((*address).into()));
        if !waits || Instant::now() >= until {
            return list(&states);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The MTU of the interface that has an address, in bytes, IP headers included; `None` if no interface has it.
pub fn mtu_of(address: Ipv6Addr) -> Option<u32> {
    links::mtu_of(if_nametoindex(device_of(address)?.as_str()).ok()?)
}

fn list(states: &[(Ipv6Addr, u32)]) -> Vec<Interface> {
    let Ok(each) = getifaddrs() else { return Vec::new() };
    let usable =
        |address: Ipv6Addr| states.iter().all(|(of, flags)| *of != address || flags & (TENTATIVE | DUPLICATE) == 0);
    let one = |one: InterfaceAddress| {
        let ip = ip_of(one.address.as_ref()?)?;
        // The flag "running" comes up to a second late.
        let works = one.flags.contains(InterfaceFlags::IFF_UP) && number(&one.interface_name, "carrier") != Some(0);
        if !works || ip.is_unspecified() || ip.is_multicast() {
            return None;
        }
        let address = *kept(SocketAddr::new(ip, 0)).ip();
        let prefix = match ip_of(one.netmask.as_ref()?)? {
            IpAddr::V4(mask) => mask.to_bits().leading_ones(),
            IpAddr::V6(mask) => mask.to_bits().leading_ones(),
        };
        let loopback = one.flags.contains(InterfaceFlags::IFF_LOOPBACK) || is_loopback(address);
        let number = |file: &str| number(&one.interface_name, file);
        Some(Interface {
            address,
            prefix: prefix as u8,
            mtu: number("mtu").unwrap_or(1_500),
            rate: number("speed").filter(|&rate| rate > 0 && rate < i32::MAX as u32),
            loopback,
            aside: aside(&one.interface_name, number("type"), ip, loopback),
            name: one.interface_name,
        })
    };
    each.filter_map(one).filter(|one| usable(one.address)).collect()
}

/// Why an interface is left aside.
fn aside(name: &str, kind: Option<u32>, ip: IpAddr, loopback: bool) -> Option<&'static str> {
    let begins = |names: &[&str]| names.iter().any(|prefix| name.starts_with(prefix));
    if loopback {
        None
    } else if is_of_link(ip) {
        Some("an address of its link only")
    } else if begins(&OF_ONE_HOST) {
        Some("a bridge of containers or virtual machines")
    } else if begins(&TUNNELS) || kind.is_some_and(|kind| kind != ETHERNET && kind != INFINIBAND) {
        Some("a tunnel")
    } else {
        None
    }
}

fn is_of_link(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn ip_of(address: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

/// A number that the kernel tells of an interface.
fn number(name: &str, file: &str) -> Option<u32> {
    fs::read_to_string(format!("/sys/class/net/{name}/{file}")).ok()?.trim().parse().ok()
}

/// The flags of each IPv6 address: `/proc/net/if_inet6` has address, interface, prefix, scope and flags.
fn states() -> Vec<(Ipv6Addr, u32)> {
    let text = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        Some((Ipv6Addr::from_bits(address), u32::from_str_radix(words.nth(3)?, 16).ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(address: &str, prefix: u8) -> Interface {
        let ip: IpAddr = address.parse().expect("an address");
        let address = *kept(SocketAddr::new(ip, 0)).ip();
        Interface { name: "eth0".into(), address, prefix, mtu: 1_500, rate: None, loopback: false, aside: None }
    }

    #[test]
    fn loopback_is_an_interface_of_every_host() {
        let all = interfaces();
        let loopback = all.iter().find(|one| one.loopback).unwrap_or_else(|| panic!("{all:?}"));
        assert!(loopback.mtu >= 1_280 && is_loopback(loopback.address), "{loopback:?}");
    }

    #[test]
    fn addresses_of_one_subnet_are_known_in_both_families() {
        assert!(with("10.0.1.2", 24).shares_subnet(&with("10.0.1.77", 24)));
        assert!(!with("10.0.1.2", 24).shares_subnet(&with("10.0.2.2", 24)));
        assert!(!with("10.0.1.2", 24).shares_subnet(&with("10.0.1.2", 16)));
        assert!(!with("10.0.1.2", 32).shares_subnet(&with("10.0.1.3", 32)));
        assert!(with("fd00:1::2", 64).shares_subnet(&with("fd00:1::77", 64)));
        assert!(!with("fd00:1::2", 64).shares_subnet(&with("fd00:2::2", 64)));
        assert!(with("10.0.1.2", 0).shares_subnet(&with("1.2.3.4", 0)));
        assert!(!with("::1", 0).shares_subnet(&with("1.2.3.4", 24)));
    }

    #[test]
    fn bridges_of_containers_tunnels_and_addresses_of_links_are_left_aside() {
        let of = |name: &str, kind: u32, ip: &str| aside(name, Some(kind), ip.parse().expect("an address"), false);
        assert_eq!(of("eth0", ETHERNET, "10.0.0.1"), None);
        assert_eq!(of("br0", ETHERNET, "10.0.0.1"), None, "the bridge of a host's own network");
        assert_eq!(of("ib0", INFINIBAND, "10.0.0.1"), None);
        for (name, kind, ip) in [
            ("docker0", ETHERNET, "172.17.0.1"),
            ("br-0123456789ab", ETHERNET, "172.18.0.1"),
            ("tun0", 65_534, "10.8.0.1"),
            ("mine", 65_534, "10.8.0.1"),
            ("eth0", ETHERNET, "169.254.3.4"),
            ("eth0", ETHERNET, "fe80::1"),
        ] {
            assert!(of(name, kind, ip).is_some(), "{name} {ip}");
        }
    }
}

//! Settings of a mover from variables of the environment and the interfaces of the host, for programs whose users give no
//! others. Those that are a node's alone are read by [`strandway_udp::environment`].

use crate::options::{Options, Progress};
use std::collections::HashSet;
use std::net::SocketAddrV6;
use strandway_proto::{Rate, Span};
use strandway_udp::address::{is_ipv4, loopback};
use strandway_udp::environment::Settings;
pub use strandway_udp::environment::{Variables, key};
use strandway_udp::{Config, Interface, interfaces};

/// The largest payload that is taken from an MTU: ours, what loopback and jumbo frames do best with.
const PAYLOAD_MAX: u32 = 4_096;
/// The rate of an interface that does not tell its own, in Mb/s: NCCL's guess for sockets.
const USUAL_RATE: u32 = 10_000;
/// The round trip without queues that congestion control assumes. Ours: a busy host takes this long to wake up, and fewer
/// bytes under way would wait for it.
const BASE_RTT: Span = Span::from_ms(1);
/// An interface that is slower than the fastest by this factor is left out; ours, as process groups do.
const SLOW: u32 = 4;

/// An interface that is to be a plane.
#[derive(Clone, Debug)]
pub struct PlaneInterface {
    /// Its name, such as `eth0`; of one that is not known here its address.
    pub device: String,
    /// Its address, with port 0 unless a variable gives one.
    pub address: SocketAddrV6,
    /// Bytes of the largest packet that it takes.
    pub mtu: u32,
    /// Mb/s, if it says so.
    pub rate: Option<u32>,
}

impl PlaneInterface {
    /// Mb/s: what it says, or the usual rate.
    pub fn mbps(&self) -> u32 {
        self.rate.unwrap_or(USUAL_RATE)
    }
}

/// The interfaces of the planes: those that `STRANDWAY_PLANES` or `STRANDWAY_IFNAME` names, or all that lead to other
/// hosts, or else loopback.
///
/// # Errors
/// If an address or interface that is named is none of this host's.
pub fn planes(get: Variables<'_>) -> Result<Vec<PlaneInterface>, String> {
    planes_among(get, &interfaces())
}

fn planes_among(get: Variables<'_>, all: &[Interface]) -> Result<Vec<PlaneInterface>, String> {
    let plane = |one: &Interface| PlaneInterface {
        device: one.name.clone(),
        address: SocketAddrV6::new(one.address, 0, 0, 0),
        mtu: one.mtu,
        rate: one.rate,
    };
    let mut found: Vec<PlaneInterface> = match (Settings::read(get)?.planes, get("STRANDWAY_IFNAME")) {
        (Some(list), _) => {
            let one = |address: SocketAddrV6| {
                let known = all.iter().find(|one| one.address == *address.ip());
                let device = address.ip().to_canonical().to_string();
                known.map_or(PlaneInterface { device, address, mtu: 1_500, rate: None }, |one| PlaneInterface {
                    address,
                    ..plane(one)
                })
            };
            list.into_iter().map(one).collect()
        }
        (None, Some(names)) => {
            let one = |name: &str| {
                let of: Vec<&Interface> = all.iter().filter(|one| one.name == name.trim()).collect();
                of.first()
                    .map(|_| of.clone())
                    .ok_or_else(|| format!("STRANDWAY_IFNAME has {name}: no such interface is up"))
            };
            let named = names.split(',').map(one).collect::<Result<Vec<_>, _>>()?.concat();
            of_one_family(&named).into_iter().map(plane).collect()
        }
        (None, None) => {
            let usable: Vec<&Interface> = all.iter().filter(|one| !one.loopback && one.aside.is_none()).collect();
            let fastest = usable.iter().filter_map(|one| one.rate).max().unwrap_or(0);
            let fast = |one: &&Interface| one.rate.unwrap_or(USUAL_RATE) >= fastest / SLOW;
            of_one_family(&usable.into_iter().filter(fast).collect::<Vec<_>>()).into_iter().map(plane).collect()
        }
    };
    if found.is_empty() {
        found.push(PlaneInterface {
            device: "lo".into(),
            address: SocketAddrV6::new(loopback(), 0, 0, 0),
            mtu: 65_536,
            rate: None,
        });
    }
    Ok(found)
}

/// One address of each interface: of IPv4 if all have one, otherwise of IPv6.
fn of_one_family<'a>(all: &[&'a Interface]) -> Vec<&'a Interface> {
    let names: HashSet<&str> = all.iter().map(|one| one.name.as_str()).collect();
    let family = |four: bool| {
        let mut seen = HashSet::new();
        let first = |one: &&&'a Interface| is_ipv4(one.address) == four && seen.insert(one.name.as_str());
        all.iter().filter(first).copied().collect::<Vec<_>>()
    };
    let four = family(true);
    if four.len() == names.len() { four } else { family(false) }
}

/// Options with this key on these planes; the rest as the variables of [`Settings`] say, or by default: the rate of the
/// planes, a round trip of 1 ms, and the largest useful payload that fits their MTU.
///
/// # Errors
/// If a variable has no valid value, or the key is too short.
pub fn options(get: Variables<'_>, key: &[u8], planes: &[PlaneInterface]) -> Result<Options, String> {
    let settings = Settings::read(get)?;
    let mut options = Options::new(key);
    options.planes = planes.iter().map(|plane| plane.address).collect();
    options.progress = Progress::Thread;
    let speed: u32 = planes.iter().map(PlaneInterface::mbps).sum();
    let any_known = planes.iter().any(|plane| plane.rate.is_some());
    options.rate = settings.rate.or_else(|| any_known.then(|| mbps(speed.into())));
    options.base_rtt = settings.base_rtt.or(Some(BASE_RTT));
    options.profile = settings.profile.unwrap_or(options.profile);
    options.protection = settings.protection.unwrap_or_default();
    options.payload = Some(match settings.payload {
        Some(payload) => payload,
        None => payload(&options, planes)?,
    });
    Ok(options)
}

fn mbps(mbps: f64) -> Rate {
    Rate::from_gbps(1).scaled(mbps / 1_000.0)
}

/// The largest payload that fits the smallest MTU, and no more than is useful.
fn payload(options: &Options, planes: &[PlaneInterface]) -> Result<u32, String> {
    let mtu = planes.iter().map(|plane| plane.mtu).min().unwrap_or(1_500);
    let config = Config::new(&options.key).and_then(|config| config.profile(&options.profile));
    let config = config.and_then(|config| Config { protection: options.protection, ..config }.mtu(mtu));
    config.map(|config| config.payload.min(PAYLOAD_MAX)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;
    use strandway_udp::address::parse;

    fn interface(name: &str, address: &str, rate: Option<u32>) -> Interface {
        let address: Ipv6Addr = *parse(address, 0).expect("an address").ip();
        Interface { name: name.into(), address, prefix: 24, mtu: 9_000, rate, loopback: name == "lo", aside: None }
    }

    fn chosen(variables: &[(&str, &str)], all: &[Interface]) -> Result<Vec<String>, String> {
        let get = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_string());
        let found = planes_among(&get, all)?;
        Ok(found.iter().map(|plane| format!("{} {}", plane.device, plane.address.ip().to_canonical())).collect())
    }

    #[test]
    fn planes_are_the_fast_interfaces_in_one_family() {
        let all = [
            interface("lo", "127.0.0.1", None),
            interface("eth0", "10.0.0.1", Some(1_000)),
            interface("p0", "10.1.0.1", Some(100_000)),
            interface("p0", "fd00:1::1", Some(100_000)),
            interface("p1", "10.2.0.1", Some(100_000)),
        ];
        assert_eq!(chosen(&[], &all), Ok(vec!["p0 10.1.0.1".into(), "p1 10.2.0.1".into()]));
        assert_eq!(chosen(&[("STRANDWAY_IFNAME", "eth0")], &all), Ok(vec!["eth0 10.0.0.1".into()]));
        assert_eq!(
            chosen(&[("STRANDWAY_PLANES", "10.2.0.1, ::1")], &all),
            Ok(vec!["p1 10.2.0.1".into(), "::1 ::1".into()])
        );
        assert!(chosen(&[("STRANDWAY_IFNAME", "p7")], &all).expect_err("not there").contains("p7"));
        assert!(chosen(&[("STRANDWAY_PLANES", "p0")], &all).expect_err("no address").contains("STRANDWAY_PLANES"));
        assert_eq!(chosen(&[], &all[..1]).expect("loopback").len(), 1);
    }
}

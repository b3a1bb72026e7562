//! The two families of sockets. Everywhere else an IPv4 address has its mapped form; here it becomes what the kernel
//! takes, and each option the one of its family.

use super::GROUP_HOPS;
use crate::address::is_ipv4;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrLike, sendmsg, setsockopt, sockopt};
use nix::{libc, setsockopt_impl, sockopt_impl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt as sockopt_of};
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use strandway_fabric::kernel::{Feature, Without};

sockopt_impl!(
    /// The source of the MTU: with `IPV6_PMTUDISC_PROBE` the kernel uses that of the interface. It ignores ICMPv6
    /// "packet too big", which any host can forge.
    MtuDiscover6,
    SetOnly,
    libc::IPPROTO_IPV6,
    libc::IPV6_MTU_DISCOVER,
    libc::c_int
);

sockopt_impl!(
    /// The source of the MTU for IPv4: the kernel ignores ICMP "fragmentation needed". `IP_PMTUDISC_PROBE` also sets
    /// the bit "don't fragment".
    MtuDiscover4,
    SetOnly,
    libc::IPPROTO_IP,
    libc::IP_MTU_DISCOVER,
    libc::c_int
);

sockopt_impl!(
    /// Does a socket receive datagrams to groups that other sockets of this host have joined?
    MulticastAll6,
    SetOnly,
    libc::IPPROTO_IPV6,
    libc::IPV6_MULTICAST_ALL,
    bool
);

sockopt_impl!(
    /// Does an IPv4 socket receive datagrams to groups that other sockets of this host have joined?
    MulticastAll4,
    SetOnly,
    libc::IPPROTO_IP,
    libc::IP_MULTICAST_ALL,
    bool
);

/// The family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// The family of a socket with this local address.
    pub(crate) const fn of(ip: Ipv6Addr) -> Family {
        if is_ipv4(ip) { Family::V4 } else { Family::V6 }
    }

    /// A UDP socket without an address.
    pub(super) fn socket(self) -> io::Result<OwnedFd> {
        let family = match self {
            Family::V4 => AddressFamily::INET,
            Family::V6 => AddressFamily::INET6,
        };
        Ok(rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
    }

    /// Traffic classes with datagrams, and no fragments.
    pub(super) fn prepare(self, socket: &impl AsFd) -> nix::Result<()> {
        let of_ipv4 = || -> nix::Result<()> {
            setsockopt(socket, sockopt::IpRecvTos, &true)?;
            setsockopt(socket, MtuDiscover4, &libc::IP_PMTUDISC_PROBE)
        };
        match self {
            Family::V4 => of_ipv4(),
            Family::V6 => {
                setsockopt(socket, sockopt::Ipv6RecvTClass, &true)?;
                setsockopt(socket, sockopt::Ipv6DontFrag, &true)?;
                setsockopt(socket, MtuDiscover6, &libc::IPV6_PMTUDISC_PROBE)?;
                // A socket at `::` also serves IPv4. Raw sockets have no such options, and need none.
                let _ = of_ipv4();
                Ok(())
            }
        }
    }

    /// From now on the socket receives datagrams to these groups at this interface. False if it also receives those to
    /// groups that other sockets of this host have joined; then they come with their destination.
    pub(super) fn join(
        self,
        socket: &impl AsFd,
        groups: &[Ipv6Addr],
        device: u32,
        without: Without,
    ) -> io::Result<bool> {
        let mut only_these = true;
        match self {
            Family::V4 => setsockopt(socket, MulticastAll4, &false)?,
            Family::V6 => {
                only_these = !without.has(Feature::MulticastAll) && setsockopt(socket, MulticastAll6, &false).is_ok();
                if !only_these {
                    setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?;
                }
            }
        }
        for group in groups {
            match group.to_ipv4_mapped() {
                Some(group) => {
                    let any = Ipv4Addr::UNSPECIFIED;
                    sockopt_of::set_ip_add_membership_with_ifindex(socket, &group, &any, device)?;
                }
                None => sockopt_of::set_ipv6_add_membership(socket, group, device)?,
            }
        }
        Ok(only_these)
    }

    /// See [`super::Udp::cast_from`].
    pub(super) fn cast_from(self, socket: &impl AsFd, device: u32, looped: bool) -> io::Result<()> {
        match self {
            Family::V4 => {
                let any = Ipv4Addr::UNSPECIFIED;
                sockopt_of::set_ip_multicast_if_with_ifindex(socket, &any, &any, device)?;
                sockopt_of::set_ip_multicast_ttl(socket, GROUP_HOPS)?;
                Ok(sockopt_of::set_ip_multicast_loop(socket, looped)?)
            }
            Family::V6 => {
                sockopt_of::set_ipv6_multicast_if(socket, device)?;
                sockopt_of::set_ipv6_multicast_hops(socket, GROUP_HOPS)?;
                Ok(sockopt_of::set_ipv6_multicast_loop(socket, looped)?)
            }
        }
    }

    /// Sends `bytes` as one datagram, or as datagrams of `segment` bytes each, with this traffic class.
    #[inline]
    pub(super) fn send(
        self,
        fd: RawFd,
        to: SocketAddrV6,
        class: u8,
        bytes: &[u8],
        segment: Option<u16>,
    ) -> nix::Result<()> {
        match (self, to.ip().to_ipv4_mapped()) {
            (Family::V4, Some(ip)) => {
                let to = SockaddrIn::from(SocketAddrV4::new(ip, to.port()));
                transmit(fd, &to, ControlMessage::Ipv4Tos(&class), bytes, segment)
            }
            // The kernel hands such a datagram to IPv4, if the socket is at `::`.
            (Family::V6, Some(_)) => {
                transmit(fd, &SockaddrIn6::from(to), ControlMessage::Ipv4Tos(&class), bytes, segment)
            }
            (Family::V6, None) => {
                let class = i32::from(class);
                transmit(fd, &SockaddrIn6::from(to), ControlMessage::Ipv6TClass(&class), bytes, segment)
            }
            (Family::V4, None) => Err(Errno::EAFNOSUPPORT),
        }
    }
}

#[inline]
fn transmit(
    fd: RawFd,
    to: &impl SockaddrLike,
    class: ControlMessage<'_>,
    bytes: &[u8],
    segment: Option<u16>,
) -> nix::Result<()> {
    let slices = [IoSlice::new(bytes)];
    match &segment {
        Some(segment) => {
            let control = [class, ControlMessage::UdpGsoSegments(segment)];
            sendmsg(fd, &slices, &control, MsgFlags::MSG_DONTWAIT, Some(to))
        }
        None => sendmsg(fd, &slices, &[class], MsgFlags::MSG_DONTWAIT, Some(to)),
    }
    .map(|_| ())
}

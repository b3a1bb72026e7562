//! The state of our own ports in the kernel: rtnetlink reports at once when a port loses its carrier or is taken down.

use crate::address::device_of;
use crate::config::Config;
use crate::error::Error;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// `RTMGRP_LINK` of linux/rtnetlink.h.
const GROUP_LINK: u32 = 1;
/// `RTM_NEWLINK`, `RTM_DELLINK` and `RTM_GETLINK` of linux/rtnetlink.h.
const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
/// `NLM_F_REQUEST | NLM_F_DUMP` of linux/netlink.h.
const REQUEST_ALL: u16 = 0x301;
/// `IFF_UP` and `IFF_LOWER_UP` of linux/if.h: taken up by the administrator, and has a carrier.
const WORKS: u32 = 1 | 0x1_0000;
/// Bytes of a `nlmsghdr`.
const HEADER: usize = 16;
/// Bytes of an `ifinfomsg`, which attributes follow.
const INFO: usize = 16;
/// `IFLA_MTU` of linux/if_link.h.
const MTU: u16 = 4;

/// Bytes of a receiving call.
const BUFFER: usize = 32_768;

/// A subscription to the state of network interfaces.
pub(crate) struct Links {
    socket: OwnedFd,
    /// The interface of each plane, if it is known, and whether it works.
    planes: Vec<Option<(u32, bool)>>,
    buffer: Vec<u8>,
}

/// Checks that the interfaces in a configuration exist.
pub(crate) fn check(config: &Config) -> Result<(), Error> {
    match config.devices.iter().find(|name| if_nametoindex(name.as_str()).is_err()) {
        None => Ok(()),
        Some(name) => Err(Error::Config(format!("there is no interface \"{name}\" here: see `ip link`"))),
    }
}

impl Links {
    /// Watches the interfaces of a node's planes; `None` if the system does not allow it, or knows none of the
    /// interfaces.
    pub(crate) fn watch(config: &Config) -> Option<Links> {
        let planes: Vec<Option<(u32, bool)>> =
            (0..config.planes.len()).map(|plane| index_of(config, plane).map(|index| (index, true))).collect();
        if planes.iter().all(Option::is_none) {
            return None;
        }
        let socket = ask_for_all()?;
        let mut links = Links { socket, planes, buffer: vec![0; BUFFER] };
        links.read();
        Some(links)
    }

    /// Does the port of a plane work, as far as we know?
    pub(crate) fn is_up(&self, plane: usize) -> bool {
        self.planes.get(plane).copied().flatten().is_none_or(|(_, up)| up)
    }

    /// Reads the kernel's messages since the last call.
    pub(crate) fn read(&mut self) {
        loop {
            match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return,
                Ok(length) => take(&self.buffer[..length.min(self.buffer.len())], &mut self.planes),
                // The kernel dropped some messages; the next change of a port is reported again.
                Err(nix::errno::Errno::ENOBUFS) => {}
                Err(_) => return,
            }
        }
    }
}

impl AsFd for Links {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The number of the interface of a plane, if it is known.
pub(crate) fn index_of(config: &Config, plane: usize) -> Option<u32> {
    let name = match config.devices.get(plane) {
        Some(name) => name.clone(),
        None => device_of(*config.planes[plane].ip())?,
    };
    if_nametoindex(name.as_str()).ok()
}

/// The MTU of an interface, by its number, in bytes, IP headers included. Unlike files of /sys, it is always that of the
/// network namespace of this thread.
pub(crate) fn mtu_of(interface: u32) -> Option<u32> {
    let socket = ask_for_all()?;
    let mut buffer = vec![0; BUFFER];
    let mut mtu = None;
    // The answer is there when the request returns; the last of its parts is followed by nothing.
    while let Ok(length @ 1..) = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
        each(buffer.get(..length).unwrap_or_default(), |link| {
            if link.kind == NEW_LINK && link.index == interface {
                mtu = attribute(link.attributes, MTU).or(mtu);
            }
        });
    }
    mtu
}

/// A socket that hears of all changes of interfaces, and has asked for their present state.
fn ask_for_all() -> Option<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute).ok()?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUP_LINK)).ok()?;
    // A header, and the address family "any" with its padding.
    let mut request = [0; 20];
    request[..4].copy_from_slice(&20u32.to_ne_bytes());
    request[4..6].copy_from_slice(&GET_LINK.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST_ALL.to_ne_bytes());
    send(socket.as_raw_fd(), &request, MsgFlags::empty()).ok()?;
    Some(socket)
}

/// A message about an interface.
struct Link<'a> {
    kind: u16,
    index: u32,
    flags: u32,
    attributes: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..).and_then(|b| b.first_chunk()).map(|b| u32::from_ne_bytes(*b))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..).and_then(|b| b.first_chunk()).map(|b| u16::from_ne_bytes(*b))
}

/// Reads the messages of one datagram.
fn each(mut bytes: &[u8], mut handle: impl FnMut(&Link<'_>)) {
    while let Some(length) = word(bytes, 0) {
        let length = (length as usize).max(HEADER);
        let Some(message) = bytes.get(..length) else { return };
        // An `ifinfomsg`: index at 4, flags at 8.
        if let (Some(kind @ (NEW_LINK | DELETE_LINK)), Some(index), Some(flags)) =
            (half(message, 4), word(message, HEADER + 4), word(message, HEADER + 8))
        {
            let attributes = message.get(HEADER + INFO..).unwrap_or_default();
            handle(&Link { kind, index, flags, attributes });
        }
        // Messages begin at multiples of four.
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// The number in an attribute: an `rtattr` is its length, its kind, and its value.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<u32> {
    while let (Some(length @ 4..), Some(kind)) = (half(bytes, 0), half(bytes, 2)) {
        if kind == wanted {
            return word(bytes.get(..length.into())?, 4);
        }
        bytes = bytes.get(usize::from(length).next_multiple_of(4)..)?;
    }
    None
}

/// Notes which planes work, after the messages of one datagram.
fn take(bytes: &[u8], planes: &mut [Option<(u32, bool)>]) {
    each(bytes, |link| {
        for (watched, up) in planes.iter_mut().flatten() {
            if *watched == link.index {
                *up = link.kind == NEW_LINK && link.flags & WORKS == WORKS;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn link(kind: u16, index: u32, flags: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(32u32.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend([0; 4]);
        bytes.extend(index.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn a_lost_carrier_and_a_deleted_interface_are_seen() {
        let mut planes = [Some((7, true)), None, Some((9, true))];
        take(&[link(NEW_LINK, 7, 1), link(NEW_LINK, 8, 0), link(DELETE_LINK, 9, WORKS)].concat(), &mut planes);
        assert_eq!(planes, [Some((7, false)), None, Some((9, false))]);
        take(&link(NEW_LINK, 7, WORKS | 0x40), &mut planes);
        assert_eq!(planes[0], Some((7, true)));
    }

    #[test]
    fn loopback_is_up() {
        for address in ["[::1]:0", "127.0.0.1", "127.0.0.2"] {
            let address = crate::address::parse(address, 0).expect("an address");
            let config = Config::new(&[0; 16]).expect("a key").plane(address);
            let links = Links::watch(&config).expect("rtnetlink needs no privilege");
            assert!(links.is_up(0) && links.planes[0].is_some(), "{address}");
        }
    }

    #[test]
    fn loopback_has_an_mtu_and_an_unknown_interface_has_none() {
        let index = if_nametoindex("lo").expect("every host has it");
        assert!(mtu_of(index).is_some_and(|mtu| mtu >= 1_280));
        assert_eq!(mtu_of(u32::MAX), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut planes = [Some((7, true))];
            take(&bytes, &mut planes);
            let _ = attribute(&bytes, MTU);
        }
    }
}

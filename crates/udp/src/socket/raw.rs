//! A raw socket for IPv6 in IPv6: it writes the outer header, and its caller the inner one.

use super::{Family, Inbox, prepare, receive};
use crate::error::Error;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn6, sendmsg, setsockopt};
use nix::{libc, setsockopt_impl, sockopt_impl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};
use std::io::IoSlice;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use strandway_fabric::kernel::Without;

/// Linux, `IPV6_FLOWINFO_SEND`.
const FLOWINFO_SEND: libc::c_int = 33;

sockopt_impl!(
    /// The flow label of a datagram is that of the address that it is sent to.
    FlowinfoSend,
    SetOnly,
    libc::IPPROTO_IPV6,
    FLOWINFO_SEND,
    bool
);

/// A raw socket of protocol 41 that never blocks, at one address of this host. It receives the datagrams of all senders
/// to that address, and gives them without their outer headers.
pub(crate) struct Raw {
    socket: OwnedFd,
}

impl Raw {
    pub(crate) fn open(address: Ipv6Addr, receive: usize, send: usize, without: Without) -> Result<Raw, Error> {
        let failed = |error: std::io::Error| {
            let remedy = match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "raw sockets need CAP_NET_RAW: run it as root, or `setcap cap_net_raw+ep` the program"
                }
                std::io::ErrorKind::AddrNotAvailable => "no interface of this host has it: see `ip -6 addr`",
                _ => "see `strandway doctor`",
            };
            Error::Config(format!("cannot open a raw socket on {address} for layout mrc: {error}; {remedy}"))
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::INET6, SocketType::RAW, flags, Some(ipproto::IPV6));
        let socket = socket.map_err(|error| failed(error.into()))?;
        let bound = rustix::net::bind(&socket, &SocketAddrV6::new(address, 0, 0, 0));
        bound.map_err(|error| failed(error.into()))?;
        let set = |outcome: nix::Result<()>| outcome.map_err(|errno| failed(errno.into()));
        set(prepare(&socket, Family::V6, receive, send, without))?;
        set(setsockopt(&socket, FlowinfoSend, &true))?;
        Ok(Raw { socket })
    }

    /// Sends an inner datagram behind an outer header with this destination, flow label and traffic class.
    pub(crate) fn send(&self, to: Ipv6Addr, label: u32, class: u8, inner: &[u8]) -> nix::Result<()> {
        // The kernel takes the label in the order of the network.
        let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, label.to_be(), 0));
        let class = i32::from(class);
        let control = [ControlMessage::Ipv6TClass(&class)];
        sendmsg(self.socket.as_raw_fd(), &[IoSlice::new(inner)], &control, MsgFlags::MSG_DONTWAIT, Some(&to))
            .map(|_| ())
    }

    /// Receives one datagram; false if there was none.
    pub(crate) fn receive(&self, inbox: &mut Inbox) -> bool {
        receive(self.socket.as_raw_fd(), inbox, |from: SockaddrIn6| from.into())
    }
}

impl AsFd for Raw {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

//! Datagrams of MRC's layout on their way into a plane: inner datagrams, each behind an outer header with its path.
//!
//! A raw socket has no GSO, so each datagram takes a system call.

use super::{Owner, Plane};
use crate::error::Error;
use crate::socket::{Inbox, Raw};
use nix::errno::Errno;
use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::os::fd::BorrowedFd;
use strandway_fabric::kernel::Without;

/// A plane with this number of waiting datagrams takes no more: ours, as many as one system call sends elsewhere.
const WAITING_MAX: usize = 64;

/// The outer header of a datagram, and the connections that a refusal concerns.
#[derive(Clone, Copy)]
pub(crate) struct OuterPacket {
    /// The path, as an address.
    pub(crate) to: Ipv6Addr,
    /// The flow label.
    pub(crate) label: u32,
    /// The traffic class.
    pub(crate) class: u8,
    pub(crate) owner: Owner,
}

pub(super) struct Tunnel {
    socket: Raw,
    waiting: VecDeque<(OuterPacket, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

impl Tunnel {
    pub(super) fn open(address: Ipv6Addr, receive: usize, send: usize, without: Without) -> Result<Tunnel, Error> {
        Ok(Tunnel { socket: Raw::open(address, receive, send, without)?, waiting: VecDeque::new(), spare: Vec::new() })
    }

    pub(super) fn is_free(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }
}

impl Plane {
    /// An empty buffer for an inner datagram, for [`Plane::push_inner`].
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        self.tunnel.as_mut().and_then(|tunnel| tunnel.spare.pop()).unwrap_or_default()
    }

    /// Adds an inner datagram; it leaves with [`Plane::flush`].
    pub(crate) fn push_inner(&mut self, packet: OuterPacket, inner: Vec<u8>) {
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.waiting.push_back((packet, inner));
        }
    }

    /// The raw socket, if there is one.
    pub(crate) fn tunnel_fd(&self) -> Option<BorrowedFd<'_>> {
        self.tunnel.as_ref().map(|tunnel| std::os::fd::AsFd::as_fd(&tunnel.socket))
    }

    /// Do inner datagrams wait for a full socket?
    pub(crate) fn is_tunnel_blocked(&self) -> bool {
        self.tunnel.as_ref().is_some_and(|tunnel| !tunnel.waiting.is_empty())
    }

    /// Receives an inner datagram; false if there was none.
    pub(crate) fn receive_inner(&mut self, inbox: &mut Inbox) -> bool {
        let Some(tunnel) = &self.tunnel else { return false };
        let any = tunnel.socket.receive(inbox);
        self.count_received(any, inbox)
    }

    pub(super) fn flush_tunnel(&mut self) {
        while let Some(tunnel) = &mut self.tunnel
            && let Some((packet, inner)) = tunnel.waiting.front()
        {
            let (owner, bytes) = (packet.owner, inner.len());
            let outcome = tunnel.socket.send(packet.to, packet.label, packet.class, inner);
            self.counters.send_calls += 1;
            match outcome {
                Ok(()) => {
                    self.counters.sent += 1;
                    self.counters.sent_bytes += bytes as u64;
                    self.dead = false;
                }
                Err(Errno::EAGAIN | Errno::ENOBUFS) => return,
                Err(error) => self.refuse(owner, error, 1),
            }
            if let Some(tunnel) = &mut self.tunnel
                && let Some((_, mut inner)) = tunnel.waiting.pop_front()
                && tunnel.spare.len() < WAITING_MAX
            {
                inner.clear();
                tunnel.spare.push(inner);
            }
        }
    }
}

#[cfg(test)]
impl Plane {
    /// Takes the inner datagrams that wait, with their outer headers.
    pub(crate) fn take_inner(&mut self) -> Vec<(OuterPacket, Vec<u8>)> {
        self.tunnel.as_mut().map_or(Vec::new(), |tunnel| tunnel.waiting.drain(..).collect())
    }
}

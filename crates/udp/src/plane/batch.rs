//! The datagrams that leave by one system call, and where each goes.

use super::BATCH_BYTES;
use std::net::SocketAddrV6;

/// The buffer of a batch.
pub(super) fn new_buffer() -> Vec<u8> {
    vec![0; BATCH_BYTES]
}

/// How switches should treat a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// May be marked.
    Data,
    /// Data of a small message: it may be marked, and the receiver reads it before other data.
    Urgent,
    /// Goes before data, where the fabric has a class for it.
    Control,
}

/// Where a datagram goes.
#[derive(Clone, Copy)]
pub(crate) struct Destination {
    /// The address that the kernel routes by.
    pub(crate) to: SocketAddrV6,
    /// The number of the socket to send from.
    pub(crate) source: u16,
    pub(crate) owner: Owner,
    /// Datagrams for different shards of a port leave by different system calls, since the kernel of the receiver looks
    /// at the first datagram of a call only. The receiver's shard ([`Destination::requested_shard`] for a hello).
    pub(crate) shard: u16,
    /// May it leave behind datagrams that are pushed after it? Then the short ends of messages share system calls.
    pub(crate) late: bool,
}

impl Destination {
    /// The shard of a datagram to the connection of this number.
    pub(crate) const fn shard_of(connection: u64) -> u16 {
        connection as u8 as u16
    }

    /// The shard of a hello whose caller wishes this shard: only the receiver knows which one that is.
    pub(crate) const fn requested_shard(shard: u8) -> u16 {
        256 + shard as u16
    }
}

/// The connections that a refusal of a datagram by the kernel concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// None: it answers a stranger.
    Nobody,
    /// The calls to the node at this address.
    Call(SocketAddrV6),
    /// The connections with the peer at this address.
    Peer(SocketAddrV6),
}

impl Owner {
    /// The owner of a system call that two datagrams share.
    pub(super) fn and(self, other: Owner) -> Owner {
        match self {
            Owner::Peer(_) => self,
            Owner::Call(_) if other == Owner::Nobody => self,
            Owner::Call(_) | Owner::Nobody => other,
        }
    }
}

/// Why the kernel refused datagrams to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// They are larger than the interface takes.
    TooLarge,
    /// There is no route.
    NoRoute,
}

/// Datagrams of equal length (the last may be shorter) to one address: one system call.
pub(super) struct Batch {
    /// The datagrams, and room behind them.
    pub(super) buffer: Vec<u8>,
    /// Bytes of datagrams in it.
    pub(super) used: usize,
    /// The address, and the shard behind it.
    pub(super) to: (SocketAddrV6, u16),
    pub(super) owner: Owner,
    pub(super) class: Class,
    pub(super) segment: usize,
    pub(super) count: usize,
    pub(super) closed: bool,
    /// Bytes of the last datagram, if it is shorter than the others and may leave later than datagrams pushed after it;
    /// or 0.
    pub(super) tail: usize,
}

impl Batch {
    /// Does another datagram of this length fit behind the others?
    pub(super) fn takes(&self, to: (SocketAddrV6, u16), class: Class, length: usize, segments: usize) -> bool {
        !self.closed
            && self.to == to
            && self.class == class
            && self.count < segments
            && length <= self.segment
            && self.used + length <= BATCH_BYTES
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.used]
    }

    /// Adds a datagram that it takes.
    #[inline]
    pub(super) fn add(&mut self, owner: Owner, late: bool, length: usize, write: impl FnOnce(&mut [u8])) {
        if !matches!(self.owner, Owner::Peer(_)) {
            self.owner = self.owner.and(owner);
        }
        write(&mut self.buffer[self.used..self.used + length]);
        self.used += length;
        self.count += 1;
        self.closed = length < self.segment;
        self.tail = if self.closed && late { length } else { 0 };
    }

    /// Would it take another datagram of this length if its short end left with another batch?
    pub(super) fn reopens(&self, to: (SocketAddrV6, u16), class: Class, length: usize, segments: usize) -> bool {
        self.tail > 0
            && self.to == to
            && self.class == class
            && length == self.segment
            && self.count <= segments
            && self.used - self.tail + length <= BATCH_BYTES
    }

    /// Is it one short datagram of control that a longer one may overtake? Then both leave by one system call.
    pub(super) fn yields(&self, to: (SocketAddrV6, u16), length: usize, segments: usize) -> bool {
        self.count == 1
            && segments > 1
            && self.class == Class::Control
            && self.to == to
            && length > self.segment
            && self.used + length <= BATCH_BYTES
    }
}

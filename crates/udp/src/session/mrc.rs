//! A connection in MRC's layout: packets of the engine as WRITEs, SACKs and NACKs between two queue pairs, and the
//! transport acknowledgements above them.
//!
//! | ours | on the wire |
//! |---|---|
//! | the low 24 bits of the number by which a side is addressed | its queue pair |
//! | a write to `start` of the range that a key opens | a WRITE to the address `start` (memory regions begin at address 0) |
//! | a send into the receive of number `n` | a WRITE with immediate to key [`MAILBOX`], address `n` times 4 GiB |
//! | credits, pings, control messages, closes, the handshake | not there: our own datagrams between the same sockets carry them |
//!
//! Nothing here is authenticated: a host that reaches this one and knows or guesses a queue pair, a key and a PSN can
//! write what its peer could write (docs/security.md).

mod arriving;
mod leaving;
mod memory;
#[cfg(test)]
mod tests;

pub(crate) use arriving::Inner;

use super::Session;
use memory::{Claims, Ticks};
use std::collections::BTreeSet;
use strandway_proto::packet::{Header, Psn};
use strandway_proto::{PathId, Time};

/// The key of receives: no memory has it, since a region's key is never zero. Ours.
pub(super) const MAILBOX: u32 = 0;
/// Where in an address of [`MAILBOX`] the number of the receive is; a message has less than 4 GiB.
const RECEIVE: u32 = 32;
/// The unit of SETH's count of received bytes: OCP MRC 1.0, section 7.5.5.4.
const RECEIVED_UNIT: u64 = 256;
/// The most port statuses of one peer whose second answer is suppressed: ours.
const MUTE_MAX: usize = 16;

/// The queue pair of a number that a side chose.
pub(crate) const fn queue_of(id: u64) -> u32 {
    (id & 0xff_ffff) as u32
}

/// Ticks of 128 ns: OCP MRC 1.0, TSETH.
const fn tick(now: Time) -> u16 {
    (now.0 / 128_000) as u16
}

/// The state that the layout needs beside the engine's.
pub(super) struct Mrc {
    /// The UDP port of all NICs.
    port: u16,
    /// The queue pairs of this side and the peer.
    queues: [u32; 2],
    /// May it send: has the peer answered since the handshake?
    pub(super) open: bool,
    /// Bytes that arrived for the first time, at nominal size.
    received: u64,
    /// The highest PSN below which the peer has everything, as its acknowledgements say.
    cumulative: Psn,
    /// Ticks of packets that the peer sent, until they are echoed.
    ticks: Ticks,
    /// Messages of the peer that have begun.
    claims: Claims,
    /// PSNs of ends of messages and of packets that asked for an acknowledgement: when all below has arrived, the
    /// transport acknowledges.
    owed: BTreeSet<u64>,
    /// A transport acknowledgement is due, by this path.
    pub(super) due: Option<PathId>,
    /// Port statuses that another connection to the same peer answers.
    mute: Vec<u16>,
}

impl Mrc {
    pub(super) fn new(port: u16, local: u64, remote: u64, calls: bool, incoming_max: usize) -> Mrc {
        Mrc {
            port,
            queues: [queue_of(local), queue_of(remote)],
            // The side that was called knows from the first datagram that its peer is there.
            open: !calls,
            received: 0,
            cumulative: Psn::new(Psn::MODULUS - 1),
            ticks: Ticks::default(),
            claims: Claims::new(incoming_max),
            owed: BTreeSet::new(),
            due: None,
            mute: Vec::new(),
        }
    }

    /// Is a message of the peer incomplete?
    pub(super) fn is_receiving(&self) -> bool {
        !self.claims.is_empty()
    }

    /// Has the layout a form for this packet? All others travel as datagrams of ours.
    pub(super) const fn carries(header: &Header) -> bool {
        matches!(
            header,
            Header::Data(_)
                | Header::Ack(_)
                | Header::Nack(_)
                | Header::Probe { .. }
                | Header::Operation { .. }
                | Header::Answer(_)
        )
    }
}

impl Session {
    /// Does a transport acknowledgement wait?
    pub(super) fn owes_transport(&self) -> bool {
        self.mrc.as_ref().is_some_and(|mrc| mrc.due.is_some())
    }

    /// Something that only the peer can have sent came, so it has the connection.
    pub(super) fn open_mrc(&mut self) {
        if let Some(mrc) = &mut self.mrc {
            mrc.open = true;
        }
    }
}

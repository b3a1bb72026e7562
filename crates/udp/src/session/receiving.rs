//! The messages of the peer on a connection: receives for its sends, its requests, and what has begun to arrive.

use super::incoming::Incoming;
use super::reads::Asked;
use crate::config::Config;
use crate::error::Reason;
use crate::frame::Descriptor;
use crate::handles::Operation;
use crate::memory::Place;
use std::collections::VecDeque;
use strandway_proto::read::{ReadLimits, Target};

/// A posted receive.
pub(super) struct Receive {
    pub(super) operation: Operation,
    pub(super) place: Place,
}

/// The receiving part of a connection.
pub(super) struct Receiving {
    receives: VecDeque<Receive>,
    /// Number of the first receive that is not filled.
    first: u32,
    /// Receives of which the peer was told.
    told: u32,
    /// The peer's messages that have begun to arrive.
    pub(super) incoming: Incoming<Descriptor>,
    /// The peer's requests.
    pub(super) target: Target<Asked>,
}

impl Receiving {
    pub(super) fn new(config: &Config, reads: ReadLimits) -> Receiving {
        Receiving {
            receives: VecDeque::new(),
            first: 0,
            told: 0,
            incoming: Incoming::new(config.limits.incoming),
            target: Target::new(reads),
        }
    }

    /// Unfinished receives.
    pub(super) fn open(&self) -> usize {
        self.receives.len()
    }

    /// Posts a receive.
    pub(super) fn push(&mut self, operation: Operation, place: Place) {
        self.receives.push_back(Receive { operation, place });
    }

    /// Receives posted so far.
    fn granted(&self) -> u32 {
        self.first.wrapping_add(self.receives.len() as u32)
    }

    /// The peer does not know of all receives yet.
    pub(super) fn owes_credits(&self) -> bool {
        self.told != self.granted()
    }

    /// The number of receives posted so far, modulo 65,536, for a datagram that tells the peer.
    pub(super) fn take_credits(&mut self) -> u16 {
        self.told = self.granted();
        self.told as u16
    }

    /// Where a range of the send of this number belongs.
    pub(super) fn place(&self, number: u32, offset: u64, length: usize) -> Result<Place, Reason> {
        let receive = self.receives.get(number.wrapping_sub(self.first) as usize).ok_or(Reason::Violation)?;
        receive.place.part(offset, length).ok_or(Reason::TooLong)
    }

    /// The send of this number fills the next receive.
    pub(super) fn fill(&mut self, number: u32) -> Result<Receive, Reason> {
        if number != self.first {
            return Err(Reason::Violation);
        }
        let receive = self.receives.pop_front().ok_or(Reason::Violation)?;
        self.first = self.first.wrapping_add(1);
        Ok(receive)
    }

    /// Is a message of the peer incomplete, or a request of it unanswered?
    pub(super) fn is_active(&self) -> bool {
        !self.target.is_empty() || !self.incoming.is_empty()
    }

    /// The memory that receives hold.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        self.receives.iter().map(|receive| receive.place)
    }
}

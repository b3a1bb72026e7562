//! Messages of ours that are posted, and what they are for.

use super::is_long;
use crate::config::URGENT_MAX;
use crate::frame::Descriptor;
use crate::handles::Operation;
use crate::memory::Place;

/// A message that is posted.
pub(super) struct Posted {
    pub(super) purpose: Purpose,
    /// The memory that it reads, which it holds; `None` for a request, and for an answer without bytes.
    pub(super) place: Option<Place>,
    pub(super) descriptor: Descriptor,
    /// Operations with an immediate that were posted before it, sends among them, modulo 65,536.
    pub(super) immediates: u16,
}

impl Posted {
    pub(super) fn bytes(&self) -> u64 {
        self.place.map_or(0, |place| place.len() as u64)
    }

    pub(super) fn is_long(&self) -> bool {
        self.place.is_some_and(is_long)
    }

    /// May it be urgent? A small message may, unless it asks for a long answer, which is not.
    pub(super) fn is_small(&self) -> bool {
        let asks_for_much = matches!(self.descriptor, Descriptor::Read { bytes, .. } if bytes > URGENT_MAX as u64);
        !self.is_long() && !asks_for_much
    }
}

/// The purpose of a message of ours.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    /// A send or write.
    Operation(Operation),
    /// The request of this number.
    Request(u32),
    /// An answer to a request of the peer, which counts as this number of bytes.
    Answer(u64),
}

//! Letters: a handful of typed words that one program sends another, or one end of a one-way connection the other end.

use crate::packet::SackBits;

/// A short word from one program to another. It travels in one control packet of its own and may be lost: whoever needs an
/// answer repeats the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Letter {
    /// A program's own: whatever its two ends agree on.
    Custom {
        /// Tells kinds of letters apart.
        kind: u16,
        /// What it says.
        words: [u32; 4],
    },
    /// Receives are posted: their sender may begin. SDR-RDMA, section 3: clear to send (CTS).
    Clear {
        /// The first of them, as stretches are counted.
        first: u32,
        /// How many they are; those behind the first follow it.
        count: u32,
    },
    /// Chunks of a stretch that are here. SDR-RDMA, section 4.1: the selective-repeat acknowledgement.
    Have(Have),
    /// Groups of a message that are here or can be rebuilt, in place of chunks; `sequence` is the message's first stretch, `newest` tells
    /// how many of its data packets had not come, and `held` in how many runs.
    /// SDR-RDMA, section 4.2: the positive acknowledgement of erasure coding.
    Recovered(Have),
    /// Chunks of a stretch that are lost. SDR-RDMA, sections 4.1 and 4.2: NACK.
    Missing(Missing),
    /// What do you have of this stretch?
    Ask {
        /// The stretch.
        sequence: u32,
    },
    /// Nothing of this stretch has come: the answer to [`Letter::Ask`].
    Unknown {
        /// The stretch.
        sequence: u32,
    },
    /// What has come so far, of everything that was sent: for congestion control.
    Heard(Heard),
    /// The receiver is done with a stretch: it takes nothing of it any more.
    Over {
        /// The stretch.
        sequence: u32,
        /// Is it whole (or rebuilt), rather than given up?
        whole: bool,
    },
}

/// Which chunks of a stretch, or groups of a message, are here. Packed, so that headers stay small: read its fields by value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, packed(2))]
pub struct Have {
    /// The stretch.
    pub sequence: u32,
    /// All chunks below this one are here.
    pub cumulative: u32,
    /// The chunk of bit 0 of `bits`.
    pub base: u32,
    /// Which of the 64 chunks from `base` on are here.
    pub bits: SackBits,
    /// The chunk that was complete last; [`u32::MAX`] if this tells nothing of it.
    pub newest: u32,
    /// For how long it has been complete, in microseconds; no more than fits.
    pub held: u16,
}

/// How many parts have come, with a part by which the sender can tell when and how many it had sent. Ours, after the receiver reports of
/// RFC 3550. Packed: read its fields by value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, packed(2))]
pub struct Heard {
    /// The part that came last among those that left for the first time: its stretch, and which packet of the message (of the parity, for
    /// a stretch of parity).
    pub sequence: u32,
    /// Its packet.
    pub packet: u32,
    /// Parts that had come by then, it included: all copies count, modulo 2^32.
    pub before: u32,
    /// Parts that have come by now.
    pub received: u32,
    /// For how long that part has been here, in microseconds; [`u16::MAX`] if that is too long to say.
    pub held: u16,
}

/// Chunks of a stretch that are lost, in up to three runs. Packed: read its fields by value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, packed(2))]
pub struct Missing {
    /// The stretch.
    pub sequence: u32,
    /// The first chunk of each run.
    pub starts: [u32; Missing::RUNS],
    /// The length of each run; zero for none.
    pub lengths: [u16; Missing::RUNS],
}

impl Missing {
    /// Runs in a letter.
    pub const RUNS: usize = 3;

    /// The runs: first chunk and length of each.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32)> {
        let (starts, lengths) = (self.starts, self.lengths);
        starts.into_iter().zip(lengths).filter(|run| run.1 > 0).map(|(start, length)| (start, u32::from(length)))
    }
}

//! Short typed control messages between two programs, or between the two ends of a one-way connection.

use crate::packet::SackBits;

/// A short message in one control packet. It may be lost: a sender that needs an answer must repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlMessage {
    /// For programs: its meaning is up to its two ends.
    Custom {
        /// Tells kinds of control messages apart.
        kind: u16,
        /// Its contents.
        words: [u32; 4],
    },
    /// Receives are posted, so the sender may begin. SDR-RDMA, section 3: clear to send (CTS).
    Clear {
        /// The number of the first of their stretches.
        first: u32,
        /// The number of receives; their numbers are consecutive.
        count: u32,
    },
    /// Chunks of a stretch that have arrived. SDR-RDMA, section 4.1: the selective-repeat acknowledgement.
    Have(Have),
    /// Groups of a message, in place of chunks, that have arrived or can be rebuilt. `sequence` is the message's first
    /// stretch, `newest` the number of its data packets that were missing, and `held` the number of runs that they
    /// formed. SDR-RDMA, section 4.2: the positive acknowledgement of erasure coding.
    Recovered(Have),
    /// Chunks of a stretch that are lost. SDR-RDMA, sections 4.1 and 4.2: NACK.
    Missing(Missing),
    /// Asks the receiver what has arrived of this stretch.
    Ask {
        /// The stretch.
        sequence: u32,
    },
    /// Nothing of this stretch has arrived: an answer to [`ControlMessage::Ask`].
    Unknown {
        /// The stretch.
        sequence: u32,
    },
    /// The counts of arrived packets, for congestion control.
    Heard(Heard),
    /// The receiver's credit. UEC 1.0: the credit control packet.
    Credit {
        /// The units of 256 B granted since the start of the connection, modulo 2^32.
        granted: u32,
    },
    /// A sender that waits asks for credit. UEC 1.0: the credit request.
    CreditRequest {
        /// The same as [`crate::packet::Data::target`].
        target: u16,
    },
    /// The stretch is over: the receiver accepts no more packets of it.
    Over {
        /// The stretch.
        sequence: u32,
        /// True if it is whole (or rebuilt), false if it was given up.
        whole: bool,
    },
}

/// The chunks of a stretch, or the groups of a message, that have arrived. Packed, so that headers stay small: read its
/// fields by value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, packed(2))]
pub struct Have {
    /// The stretch.
    pub sequence: u32,
    /// All chunks below this one have arrived.
    pub cumulative: u32,
    /// The chunk of bit 0 of `bits`.
    pub base: u32,
    /// Bit `i` is set if chunk `base + i` has arrived.
    pub bits: SackBits,
    /// The chunk that was completed last; [`u32::MAX`] if this control message does not tell.
    pub newest: u32,
    /// The time since it was completed, in microseconds; saturates.
    pub held: u16,
}

/// The number of parts that have arrived, together with one of these parts. By this part, the sender knows when it sent
/// the part and how many parts it had sent until then. Ours, after the receiver reports of RFC 3550. Packed: read its
/// fields by value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, packed(2))]
pub struct Heard {
    /// The stretch of the newest part that was sent for the first time.
    pub sequence: u32,
    /// The index of that part among the message's packets (its parity packets for a stretch of parity).
    pub packet: u32,
    /// The number of parts that had arrived up to and including that part; all copies count, modulo 2^32.
    pub before: u32,
    /// The number of parts that have arrived by now.
    pub received: u32,
    /// The time since that part arrived, in microseconds; [`u16::MAX`] if it is longer.
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
    /// Runs in a control message.
    pub const RUNS: usize = 3;

    /// The runs: first chunk and length of each.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32)> {
        let (starts, lengths) = (self.starts, self.lengths);
        starts.into_iter().zip(lengths).filter(|run| run.1 > 0).map(|(start, length)| (start, u32::from(length)))
    }
}

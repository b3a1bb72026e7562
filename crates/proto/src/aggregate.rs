//! Fragments of gradients and of their sums: the packets between workers, parameter servers and aggregating switches.
//!
//! A gradient is cut into fragments. All workers of a job use the same numbers: a job and a number form a *key*.
//! Switches and servers add the fragments of one key; a bitmap tells which workers are in a sum so far. The header
//! follows the ESA sheet, section 8.4; its layout on the wire is in `strandway_wire::aggregate`. A fragment belongs to
//! no connection.

use crate::counters;

/// The kind of a fragment's packet. ESA sheet, section 8.4; the numbers are those on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A worker's fragment, or the sum of a rack, on its way to be added.
    Data = 1,
    /// A partial sum, or a single fragment, for the parameter server. Switches only forward it.
    Partial = 2,
    /// The sum of all workers.
    Result = 3,
    /// From a worker to the server: the worker waits for this key.
    Remind = 4,
    /// From the server to a switch: send the partial sum of this key.
    Flush = 5,
    /// From a switch to the server: the switch has no partial sum of this key.
    FlushMiss = 6,
    /// From the server to a worker: send your fragment of this key to the server.
    Solicit = 7,
    /// From a worker to the server: the sum of all workers, which the worker has.
    ResultCopy = 8,
    /// From the server to a worker: fragments of other workers are late; none of yours is missing.
    Hold = 9,
    /// From a worker to the server: the worker's fragment does not exist yet; it will come later.
    NotYet = 10,
    /// From a worker to the server: the worker no longer has this old key.
    Obsolete = 11,
    /// From a worker to the server: all keys below the worker's watermark are done.
    Watermark = 14,
    /// A partial sum that a switch sent because of [`Kind::Flush`].
    Flushed = 15,
    /// A key is done, without the sum: for workers that do not own it in a reduce-scatter. Ours.
    Credit = 16,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 14] = [
        Kind::Data,
        Kind::Partial,
        Kind::Result,
        Kind::Remind,
        Kind::Flush,
        Kind::FlushMiss,
        Kind::Solicit,
        Kind::ResultCopy,
        Kind::Hold,
        Kind::NotYet,
        Kind::Obsolete,
        Kind::Watermark,
        Kind::Flushed,
        Kind::Credit,
    ];

    /// Do elements (the numbers of the gradient) follow its header?
    #[inline]
    pub const fn has_elements(self) -> bool {
        matches!(self, Kind::Data | Kind::Partial | Kind::Result | Kind::ResultCopy | Kind::Flushed)
    }
}

/// One-bit facts about a fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Marks(pub u8);

impl Marks {
    /// None.
    pub const NONE: Marks = Marks(0);
    /// Switches must not add it: it goes to the server.
    pub const BYPASS: Marks = Marks(0x01);
    /// It is a retransmission.
    pub const RESEND: Marks = Marks(0x02);
    /// A switch had no slot for it.
    pub const COLLIDED: Marks = Marks(0x04);
    /// Another fragment took its slot.
    pub const EVICTED: Marks = Marks(0x08);
    /// One of the fragments in this sum met a long queue.
    pub const CONGESTED: Marks = Marks(0x10);
    /// Its elements are floats, because as integers they would overflow.
    pub const FLOAT: Marks = Marks(0x20);
    /// It is a sum of whole racks: its bitmap of racks counts, not its bitmap of workers.
    pub const LEVEL: Marks = Marks(0x40);
    /// The server sent it.
    pub const FROM_SERVER: Marks = Marks(0x80);

    /// Are all of `other`'s marks set?
    #[inline]
    pub const fn has(self, other: Marks) -> bool {
        self.0 & other.0 == other.0
    }

    /// These marks and `other`'s.
    #[inline]
    pub const fn with(self, other: Marks) -> Marks {
        Marks(self.0 | other.0)
    }

    /// These marks, and `other`'s where `condition` holds.
    #[inline]
    pub const fn with_if(self, condition: bool, other: Marks) -> Marks {
        if condition { self.with(other) } else { self }
    }

    /// These marks without `other`'s.
    #[inline]
    pub const fn without(self, other: Marks) -> Marks {
        Marks(self.0 & !other.0)
    }
}

/// The header of a fragment. Packed, so that packets stay small: read its fields by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C, packed)]
pub struct Fragment {
    /// Its kind.
    pub kind: Kind,
    /// Facts about it.
    pub marks: Marks,
    /// Its priority for a slot, 1 to 255; an empty slot has priority 0.
    pub priority: u8,
    /// Its job.
    pub job: u16,
    /// The number of workers in a rack's complete sum, and of racks in the whole sum.
    pub fan_in: [u8; 2],
    /// The key's number, from 1 on; after `u32::MAX` follows 1.
    pub number: u32,
    /// The workers of one rack in it, one bit each.
    pub workers: u32,
    /// The worker's rack, or with [`Marks::LEVEL`] the complete racks in it, one bit each.
    pub racks: u32,
    /// The slot that it is for.
    pub slot: u32,
    /// The lowest number that is not done: of the sender, or in a result of the job; 0 for none.
    pub watermark: u32,
    /// The number of elements that follow.
    pub elements: u16,
    /// The worker that sent it.
    pub sender: u16,
}

const _: () = assert!(size_of::<Fragment>() == 31, "with the header's tag, 32 bytes");

impl Fragment {
    /// The server, as a sender.
    pub const SERVER: u16 = 0xffff;

    /// A switch, as a sender.
    pub const SWITCH: u16 = 0xfffe;
}

/// The modulus of key numbers on the wire: keys count from 0 in 64 bits; the wire has 32 bits without the value 0.
const WRAP: u64 = u32::MAX as u64;

/// The number on the wire of `key`, which counts from 0 in 64 bits. ESA sheet, section 5.2.
#[inline]
pub const fn number_of(key: u64) -> u32 {
    (key % WRAP) as u32 + 1
}

/// The key nearest to `near` that has this number on the wire; `None` for the number 0, and if that key would be
/// negative.
pub fn key_of(number: u32, near: u64) -> Option<u64> {
    let low = u64::from(number.checked_sub(1)?);
    let ahead = (low + WRAP - near % WRAP) % WRAP;
    if ahead < WRAP / 2 {
        return near.checked_add(ahead);
    }
    near.checked_sub(WRAP - ahead)
}

counters! {
    /// Counters of a job's fragments, at switches, servers and workers.
    pub struct Counts {
        /// Workers' fragments that were sent for the first time.
        pub sent: u64,
        /// Workers' fragments that were sent again.
        pub resent: u64,
        /// Workers' fragments that are in a sum that a switch completed.
        pub merged: u64,
        /// Sums that switches completed.
        pub completed: u64,
        /// Fragments that took over a slot of a lower priority.
        pub preemptions: u64,
        /// Fragments of this job that lost their slot in this way.
        pub evicted: u64,
        /// Fragments that found no slot.
        pub refused: u64,
        /// Slots whose priority fell to zero.
        pub decayed: u64,
        /// Fragments that were in their slot's sum already.
        pub duplicates: u64,
        /// Fragments that do not fit their slot, or whose job is unknown here.
        pub odd: u64,
        /// Packets with elements that reached the server.
        pub server_packets: u64,
        /// Wire bytes of those packets.
        pub server_bytes: u64,
        /// Sums that the server completed.
        pub server_completed: u64,
        /// [`Kind::Remind`] packets of workers.
        pub reminders: u64,
        /// [`Kind::Flush`] packets of the server.
        pub flushes: u64,
        /// [`Kind::Solicit`] packets of the server.
        pub solicits: u64,
        /// Results that a worker already had.
        pub late_results: u64,
        /// Fragments that travelled as floats.
        pub floats: u64,
        /// Results with [`Marks::CONGESTED`].
        pub congested: u64,
        /// Keys for which a worker was asked after it had forgotten them.
        pub obsolete: u64,
        /// The sum of the times that slots were in use, in picoseconds.
        pub slot_time: u128,
        /// The part of it in which no fragment arrived for longer than a round trip.
        pub idle_time: u128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_number_leads_back_to_its_key(near in 0u64..1 << 40, away in -(1i64 << 30)..1 << 30) {
            let key = near as i64 + away;
            prop_assume!(key >= 0);
            prop_assert_eq!(key_of(number_of(key as u64), near), Some(key as u64));
            prop_assert_ne!(number_of(key as u64), 0);
        }
    }

    #[test]
    fn numbers_leave_out_zero_where_they_wrap() {
        let last = u64::from(u32::MAX) - 1;
        assert_eq!([last - 1, last, last + 1].map(number_of), [u32::MAX - 1, u32::MAX, 1]);
        assert_eq!(key_of(1, last), Some(last + 1));
        assert_eq!(key_of(u32::MAX, last + 5), Some(last));
        assert_eq!(key_of(0, 7), None);
        assert_eq!(key_of(u32::MAX, 0), None, "nothing lies before the first key");
    }
}

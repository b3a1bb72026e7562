//! Fragments of gradients and of their sums: what workers, parameter servers and switches that add tell each other.
//!
//! A gradient is cut into fragments. All workers of a job number them alike: a job and a number are a *key*. Switches and servers add
//! the fragments of one key; who is in a sum so far is a bitmap. The header follows the ESA sheet, section 8.4, whose layout on the wire
//! is in [`crate::wire::aggregate`]. It belongs to no connection.

/// What a fragment's packet is. ESA sheet, section 8.4; the numbers are those on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A worker's fragment, or the sum of a rack, on its way to be added.
    Data = 1,
    /// A sum, or a single fragment, for the parameter server. Switches pass it on.
    Partial = 2,
    /// The sum of all workers.
    Result = 3,
    /// From a worker to the server: I wait for this key.
    Remind = 4,
    /// From the server to a switch: give out what you hold of this key.
    Flush = 5,
    /// From a switch to the server: I hold nothing of this key.
    FlushMiss = 6,
    /// From the server to a worker: send your fragment of this key to me.
    Solicit = 7,
    /// From a worker to the server: the sum of all workers, which I have.
    ResultCopy = 8,
    /// From the server to a worker: others are late; nothing of yours is missing.
    Hold = 9,
    /// From a worker to the server: my fragment does not exist yet; it will come.
    NotYet = 10,
    /// From a worker to the server: this key is too old for me.
    Obsolete = 11,
    /// From a worker to the server: all keys below my watermark are done.
    Watermark = 14,
    /// A sum that a switch gave out because of [`Kind::Flush`].
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

    /// Do numbers follow its header?
    #[inline]
    pub const fn has_lanes(self) -> bool {
        matches!(self, Kind::Data | Kind::Partial | Kind::Result | Kind::ResultCopy | Kind::Flushed)
    }
}

/// One-bit facts about a fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Marks(pub u8);

impl Marks {
    /// None.
    pub const NONE: Marks = Marks(0);
    /// No switch may add it: it goes to the server.
    pub const BYPASS: Marks = Marks(0x01);
    /// It was sent before.
    pub const RESEND: Marks = Marks(0x02);
    /// A switch had no slot for it.
    pub const COLLIDED: Marks = Marks(0x04);
    /// Another fragment took its slot.
    pub const EVICTED: Marks = Marks(0x08);
    /// A queue was long for one of those that are in it.
    pub const CONGESTED: Marks = Marks(0x10);
    /// Its lanes are floats: the way of fragments that would overflow.
    pub const FLOAT: Marks = Marks(0x20);
    /// It is of the level of racks: its bitmap of racks counts, not that of workers.
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
    /// What it is.
    pub kind: Kind,
    /// Facts about it.
    pub marks: Marks,
    /// Who may take over a slot: 1 to 255; 0 is an empty slot's.
    pub priority: u8,
    /// Its job.
    pub job: u16,
    /// Workers that a rack's sum has, and racks that the whole sum has.
    pub fan_in: [u8; 2],
    /// The key's number, from 1 on; behind `u32::MAX` follows 1.
    pub number: u32,
    /// Who is in it: workers of one rack, one bit each.
    pub workers: u32,
    /// Who is in it: the worker's rack, or complete racks with [`Marks::LEVEL`], one bit each.
    pub racks: u32,
    /// The slot that it is for.
    pub slot: u32,
    /// The sender's lowest number that is not done; 0 for none. In a result, the job's.
    pub watermark: u32,
    /// How many numbers follow.
    pub lanes: u16,
    /// Which worker sent it.
    pub sender: u16,
}

const _: () = assert!(size_of::<Fragment>() == 31, "with the header's tag, 32 bytes");

impl Fragment {
    /// The server, as a sender.
    pub const SERVER: u16 = 0xffff;

    /// A switch, as a sender.
    pub const SWITCH: u16 = 0xfffe;
}

/// Numbers are counted in 64 bits from 0; the wire has 32 bits, of which 0 is left out.
const WRAP: u64 = u32::MAX as u64;

/// The number on the wire of a key that is counted in 64 bits from 0. ESA sheet, section 5.2.
#[inline]
pub const fn number_of(key: u64) -> u32 {
    (key % WRAP) as u32 + 1
}

/// The key nearest to `near` that has this number on the wire; `None` for the number 0, or for one before all keys.
pub fn key_of(number: u32, near: u64) -> Option<u64> {
    let low = u64::from(number.checked_sub(1)?);
    let ahead = (low + WRAP - near % WRAP) % WRAP;
    if ahead < WRAP / 2 {
        return near.checked_add(ahead);
    }
    near.checked_sub(WRAP - ahead)
}

/// What happened to the fragments of a job, at switches, servers and workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Workers' fragments that left for the first time.
    pub sent: u64,
    /// Workers' fragments that left again.
    pub resent: u64,
    /// Workers' fragments that are in a sum that a switch completed.
    pub merged: u64,
    /// Sums that switches completed.
    pub completed: u64,
    /// Fragments that took over a slot of a lower priority.
    pub preemptions: u64,
    /// Fragments of this job that lost their slot so.
    pub evicted: u64,
    /// Fragments that found no slot.
    pub refused: u64,
    /// Slots whose priority fell to zero.
    pub decayed: u64,
    /// Fragments that were in their slot's sum already.
    pub duplicates: u64,
    /// Fragments that do not fit their slot, or that no job here has.
    pub odd: u64,
    /// Packets that reached the server with numbers.
    pub server_packets: u64,
    /// Bytes of those packets on the wire.
    pub server_bytes: u64,
    /// Sums that the server completed.
    pub server_completed: u64,
    /// Questions of workers about keys that they wait for.
    pub reminders: u64,
    /// Questions of the server to switches.
    pub flushes: u64,
    /// Questions of the server to workers.
    pub solicits: u64,
    /// Results that workers had already.
    pub late_results: u64,
    /// Fragments that travelled as floats.
    pub floats: u64,
    /// Results that say that a queue was long.
    pub congested: u64,
    /// Keys for which a worker was asked, and which it had forgotten.
    pub obsolete: u64,
    /// Slots times picoseconds in use.
    pub slot_time: u128,
    /// Of those, times without news for longer than a round trip.
    pub idle_time: u128,
}

impl Counts {
    /// Adds what another place has counted.
    pub fn add(&mut self, other: &Counts) {
        let pairs = [
            (&mut self.sent, other.sent),
            (&mut self.resent, other.resent),
            (&mut self.merged, other.merged),
            (&mut self.completed, other.completed),
            (&mut self.preemptions, other.preemptions),
            (&mut self.evicted, other.evicted),
            (&mut self.refused, other.refused),
            (&mut self.decayed, other.decayed),
            (&mut self.duplicates, other.duplicates),
            (&mut self.odd, other.odd),
            (&mut self.server_packets, other.server_packets),
            (&mut self.server_bytes, other.server_bytes),
            (&mut self.server_completed, other.server_completed),
            (&mut self.reminders, other.reminders),
            (&mut self.flushes, other.flushes),
            (&mut self.solicits, other.solicits),
            (&mut self.late_results, other.late_results),
            (&mut self.floats, other.floats),
            (&mut self.congested, other.congested),
            (&mut self.obsolete, other.obsolete),
        ];
        for (all, more) in pairs {
            *all += more;
        }
        self.slot_time += other.slot_time;
        self.idle_time += other.idle_time;
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

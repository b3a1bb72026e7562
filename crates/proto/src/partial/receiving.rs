//! The receiver's table: a slot for each receive, with its progress while it is open.

use super::{Busy, Inserted, PACKETS_MAX, Progress, SLOTS};
use crate::packet::{MessageId, Part};
use crate::reliability::Invalid;

/// The result of placing a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It is a new packet of the stretch.
    Fresh {
        /// The chunk that it completed, if it did.
        chunk: Option<u32>,
    },
    /// It had already arrived.
    Duplicate,
    /// Its stretch is over: its payload must not be written.
    Late {
        /// Was the stretch whole when it was completed?
        whole: bool,
    },
    /// No receive is posted for it (yet).
    NotExpected,
}

/// The end state of a slot's last stretch, for the answers to late packets.
#[derive(Clone, Copy, Debug)]
struct Tombstone {
    sequence: u64,
    whole: bool,
}

#[derive(Debug, Default)]
struct Slot {
    open: Option<Box<Open>>,
    last: Option<Tombstone>,
}

#[derive(Debug)]
struct Open {
    sequence: u64,
    message: Option<MessageId>,
    progress: Progress,
}

/// The receives of one connection. A part for a receive that is over is late and is not placed.
#[derive(Debug)]
pub struct ReceiveTable {
    mtu: u32,
    chunk: u32,
    slots: Vec<Slot>,
    /// The next receive to post.
    next: u64,
    /// The newest stretch seen, from which the full numbers of later parts are computed.
    near: u64,
}

impl ReceiveTable {
    /// An empty table: `mtu` bytes to a packet, `chunk` packets to a chunk.
    pub const fn new(mtu: u32, chunk: u32) -> ReceiveTable {
        ReceiveTable { mtu, chunk, slots: Vec::new(), next: 0, near: 0 }
    }

    /// The full number of a stretch from its 26 bits on the wire.
    #[inline]
    pub fn full(&self, sequence: u32) -> u64 {
        super::extend(sequence, self.near)
    }

    fn slot_mut(&mut self, sequence: u64) -> &mut Slot {
        let at = (sequence % SLOTS) as usize;
        if self.slots.len() <= at {
            // Slots are used in order, so a connection with few messages needs few.
            self.slots.resize_with((at + 1).next_power_of_two(), Slot::default);
        }
        &mut self.slots[at]
    }

    #[inline]
    fn open_at(&self, sequence: u64) -> Option<&Open> {
        let open = self.slots.get((sequence % SLOTS) as usize)?.open.as_deref()?;
        (open.sequence == sequence).then_some(open)
    }

    /// Posts the next receive, with room for `packets` packets.
    ///
    /// # Errors
    /// If its slot is taken.
    pub fn expect(&mut self, packets: u32) -> Result<u64, Busy> {
        let (sequence, chunk) = (self.next, self.chunk);
        let slot = self.slot_mut(sequence);
        if slot.open.is_some() {
            return Err(Busy);
        }
        slot.open = Some(Box::new(Open { sequence, message: None, progress: Progress::new(packets, chunk) }));
        self.next += 1;
        Ok(sequence)
    }

    /// Opens the receive of a stretch that has begun to arrive, for schemes that post receives by rule. False if its
    /// slot is taken, or if the stretch is over. `chunk`: packets of a chunk.
    pub fn open(&mut self, sequence: u64, packets: u32, chunk: u32) -> bool {
        let slot = self.slot_mut(sequence);
        if slot.open.is_some() || slot.last.is_some_and(|last| last.sequence >= sequence) {
            return false;
        }
        slot.open = Some(Box::new(Open { sequence, message: None, progress: Progress::new(packets, chunk) }));
        self.next = self.next.max(sequence + 1);
        true
    }

    /// Receives posted so far.
    pub const fn posted(&self) -> u64 {
        self.next
    }

    /// For a stretch that is over, and was the last one in its slot: whether it was whole.
    #[inline]
    pub fn over(&self, sequence: u64) -> Option<bool> {
        let last = self.slots.get((sequence % SLOTS) as usize)?.last?;
        (last.sequence == sequence).then_some(last.whole)
    }

    /// Checks that a part has the right length for its place, and that its message has such a packet.
    ///
    /// # Errors
    /// If not.
    pub fn check(&self, part: &Part) -> Result<(), Invalid> {
        let Part { packet, packets, tail, length, parity, .. } = *part;
        let last = !parity && packet.checked_add(1) == Some(packets);
        let expected = if last { u32::from(tail) } else { self.mtu };
        let fits = (parity || packet < packets) && (1..=PACKETS_MAX).contains(&packets) && u32::from(tail) <= self.mtu;
        if fits && u32::from(length) == expected { Ok(()) } else { Err(Invalid::BeyondWindow) }
    }

    /// Places packet `packet` of this stretch; `packets` is the number of packets of the stretch, by the part's header.
    ///
    /// # Errors
    /// If the stretch has no such packet: nothing is changed then.
    #[inline]
    pub fn place(&mut self, sequence: u64, packet: u32, packets: u32, message: MessageId) -> Result<Placed, Invalid> {
        let Some(slot) = self.slots.get_mut((sequence % SLOTS) as usize) else { return Ok(Placed::NotExpected) };
        let Some(open) = slot.open.as_deref_mut().filter(|open| open.sequence == sequence) else {
            return Ok(match slot.last {
                Some(last) if last.sequence == sequence => Placed::Late { whole: last.whole },
                Some(last) if last.sequence > sequence => Placed::Late { whole: true },
                _ => Placed::NotExpected,
            });
        };
        if packet >= packets || packets > open.progress.packets() {
            return Err(Invalid::BeyondWindow);
        }
        match open.message {
            None => {
                // A send may be shorter than its receive.
                open.progress.shorten(packets);
                open.message = Some(message);
            }
            Some(known) if known != message || open.progress.packets() != packets => return Err(Invalid::BeyondWindow),
            Some(_) => {}
        }
        let inserted = open.progress.insert(packet);
        self.near = self.near.max(sequence);
        Ok(match inserted {
            Inserted::Duplicate => Placed::Duplicate,
            Inserted::Packet => Placed::Fresh { chunk: None },
            Inserted::Chunk(chunk) => Placed::Fresh { chunk: Some(chunk) },
        })
    }

    /// The progress of an open receive.
    #[inline]
    pub fn progress(&self, sequence: u64) -> Option<&Progress> {
        self.open_at(sequence).map(|open| &open.progress)
    }

    /// The sender's number of the message in an open receive, after its first packet.
    pub fn message(&self, sequence: u64) -> Option<MessageId> {
        self.open_at(sequence)?.message
    }

    /// Ends a stretch that was received or rebuilt completely, even if its receive was never opened: nothing is written
    /// into it afterwards.
    pub fn forget(&mut self, sequence: u64) {
        let slot = self.slot_mut(sequence);
        if slot.open.as_ref().is_some_and(|open| open.sequence == sequence) {
            slot.open = None;
        }
        if slot.last.is_none_or(|last| last.sequence < sequence) {
            slot.last = Some(Tombstone { sequence, whole: true });
        }
    }

    /// Ends a receive, whether packets are missing or not: nothing is written into it afterwards. Returns its progress,
    /// or `None` if it was not open.
    pub fn complete(&mut self, sequence: u64, whole: bool) -> Option<Progress> {
        let slot = self.slots.get_mut((sequence % SLOTS) as usize)?;
        if slot.open.as_ref()?.sequence != sequence {
            return None;
        }
        slot.last = Some(Tombstone { sequence, whole });
        slot.open.take().map(|open| open.progress)
    }
}

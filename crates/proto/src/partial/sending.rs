//! The sender's table: stretches in progress, and their packets that wait to be sent.

use super::{Busy, PACKETS_MAX, SLOTS, truncated};
use crate::message::{Segment, Whole};
use crate::packet::{MessageId, Offset};
use std::collections::VecDeque;

/// A part of a message, or of its parity, that takes one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The message.
    pub message: MessageId,
    /// Is it parity?
    pub parity: bool,
    /// The number of the plan by which the message is cut.
    pub plan: u8,
    /// The index of its first packet among the message's data packets (or parity packets).
    pub first: u32,
    /// The number of its packets.
    pub packets: u32,
    /// The number of packets of the message, without parity.
    pub whole: u32,
    /// Payload bytes of the message's last packet.
    pub tail: u16,
}

/// Packets of one stretch that wait to be sent.
#[derive(Clone, Copy, Debug)]
struct Run {
    sequence: u64,
    next: u32,
    end: u32,
}

#[derive(Clone, Copy, Debug)]
struct Outgoing {
    stretch: Stretch,
    /// The number of packets that wait to be sent.
    queued: u32,
}

/// The stretches that one connection sends, and the packets that wait to be sent: retransmissions before new packets.
#[derive(Clone, Debug)]
pub struct SendTable {
    mtu: u32,
    /// The number of the first stretch in `out`.
    first: u64,
    out: VecDeque<Option<Outgoing>>,
    /// Stretches below this one may begin.
    cleared: u64,
    fresh: VecDeque<Run>,
    again: VecDeque<Run>,
}

impl SendTable {
    /// An empty table. `cleared`: the number of stretches that may begin before the receiver's first control message.
    pub const fn new(mtu: u32, cleared: u64) -> SendTable {
        SendTable { mtu, first: 0, out: VecDeque::new(), cleared, fresh: VecDeque::new(), again: VecDeque::new() }
    }

    /// The number of packets of a message of `bytes` bytes, and the payload of the last one. An empty message is one
    /// packet. A message of more than [`PACKETS_MAX`] packets cannot be sent.
    pub fn cut(&self, bytes: u64) -> (u32, u16) {
        let mtu = u64::from(self.mtu);
        let packets = bytes.div_ceil(mtu).max(1);
        (packets.min(u64::from(PACKETS_MAX)) as u32, (bytes - (packets - 1) * mtu) as u16)
    }

    /// The number of the next stretch to begin.
    pub fn next_sequence(&self) -> u64 {
        self.first + self.out.len() as u64
    }

    /// Are there a free slot and a receive for the next stretch?
    #[inline]
    pub fn has_slot(&self) -> bool {
        (self.out.len() as u64) < SLOTS && self.is_cleared()
    }

    /// Has the receiver posted a receive for the next stretch?
    #[inline]
    pub fn is_cleared(&self) -> bool {
        self.next_sequence() < self.cleared
    }

    /// Opens a stretch. Its packets are sent only when they are pushed.
    ///
    /// # Errors
    /// If its slot is taken, or the receiver has not posted its receive.
    pub fn begin(&mut self, stretch: Stretch) -> Result<u64, Busy> {
        if !self.has_slot() {
            return Err(Busy);
        }
        let sequence = self.next_sequence();
        self.out.push_back(Some(Outgoing { stretch, queued: 0 }));
        Ok(sequence)
    }

    #[inline]
    fn get(&self, sequence: u64) -> Option<&Outgoing> {
        self.out.get(usize::try_from(sequence.checked_sub(self.first)?).ok()?)?.as_ref()
    }

    #[inline]
    fn get_mut(&mut self, sequence: u64) -> Option<&mut Outgoing> {
        self.out.get_mut(usize::try_from(sequence.checked_sub(self.first)?).ok()?)?.as_mut()
    }

    /// A stretch in progress.
    pub fn stretch(&self, sequence: u64) -> Option<&Stretch> {
        self.get(sequence).map(|out| &out.stretch)
    }

    /// Queues packets of a stretch, by their index in the stretch; `again`: they were sent before. Packets that do not
    /// exist are ignored.
    pub fn push(&mut self, sequence: u64, from: u32, to: u32, again: bool) {
        let Some(out) = self.get_mut(sequence) else { return };
        let end = to.min(out.stretch.packets);
        if from >= end {
            return;
        }
        out.queued += end - from;
        let queue = if again { &mut self.again } else { &mut self.fresh };
        match queue.back_mut() {
            Some(last) if last.sequence == sequence && last.end == from => last.end = end,
            _ => queue.push_back(Run { sequence, next: from, end }),
        }
    }

    /// Have all pushed packets been sent?
    pub fn is_injected(&self, sequence: u64) -> bool {
        self.get(sequence).is_none_or(|out| out.queued == 0)
    }

    /// Frees a stretch's slot; its waiting packets are not sent.
    pub fn release(&mut self, sequence: u64) {
        let Some(at) = sequence.checked_sub(self.first).and_then(|at| usize::try_from(at).ok()) else { return };
        let Some(out) = self.out.get_mut(at).and_then(Option::take) else { return };
        if out.queued > 0 {
            self.again.retain(|run| run.sequence != sequence);
            self.fresh.retain(|run| run.sequence != sequence);
        }
        while let Some(None) = self.out.front() {
            self.out.pop_front();
            self.first += 1;
        }
    }

    /// The receiver has posted receives for all stretches below `below`. All earlier stretches in their slots are over.
    pub fn clear(&mut self, below: u64) {
        self.cleared = self.cleared.max(below);
    }

    /// Is there a packet to send?
    #[inline]
    pub fn has_next(&self) -> bool {
        !self.again.is_empty() || !self.fresh.is_empty()
    }

    /// Is the next packet a retransmission?
    #[inline]
    pub fn next_is_again(&self) -> bool {
        !self.again.is_empty()
    }

    /// The next packet.
    #[inline]
    pub fn take_next(&mut self) -> Option<Segment> {
        let again = !self.again.is_empty();
        let queue = if again { &mut self.again } else { &mut self.fresh };
        let run = queue.front_mut()?;
        let (sequence, packet) = (run.sequence, run.next);
        run.next += 1;
        if run.next == run.end {
            queue.pop_front();
        }
        let mtu = self.mtu;
        let Some(out) = self.get_mut(sequence) else { unreachable!("runs of a stretch end with it") };
        out.queued -= 1;
        let Stretch { message, parity, plan, first, whole, tail, .. } = out.stretch;
        let at = first + packet;
        let last = !parity && at + 1 == whole;
        Some(Segment {
            psn: u64::from(truncated(sequence)),
            message,
            offset: Offset::new(u64::from(at) * u64::from(mtu)),
            length: if last { tail } else { mtu as u16 },
            last,
            again,
            whole: Some(Whole { packet: at, packets: whole, tail, parity, plan }),
        })
    }

    /// Forgets everything.
    pub fn abandon(&mut self) {
        self.first = self.next_sequence();
        self.out.clear();
        self.fresh.clear();
        self.again.clear();
    }

    /// The first stretch in progress; without one, the next stretch to begin.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// True if no stretch is in progress.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }
}

//! Messages and how they are cut into packets.
//!
//! All messages of a connection share one sequence of PSNs. So the PSN determines which bytes of which message a packet
//! carries, and this needs no memory per packet.

use crate::packet::{MessageId, Offset};
use crate::queue::push_small;
use std::collections::VecDeque;

/// A message that the application posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The application's number for it, unique among the connection's unfinished messages.
    pub id: MessageId,
    /// Its length in bytes; an empty message still takes one packet.
    pub bytes: u64,
}

/// The part of a message that fits one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its full sequence number.
    pub psn: u64,
    /// The message.
    pub message: MessageId,
    /// Where in the message it starts.
    pub offset: Offset,
    /// Payload bytes.
    pub length: u16,
    /// Is it the last of its message?
    pub last: bool,
    /// Is it a retransmission?
    pub again: bool,
    /// On a one-way connection: its place in the message; `psn` is then its stretch.
    pub whole: Option<Whole>,
}

/// The place of a packet of a one-way connection in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Its index among the message's data packets, or among its parity packets if `parity` is set.
    pub packet: u32,
    /// The number of packets of the message, without parity.
    pub packets: u32,
    /// Payload bytes of the message's last packet.
    pub tail: u16,
    /// Is it parity?
    pub parity: bool,
    /// The number of the plan by which the message is cut and coded.
    pub plan: u8,
}

#[derive(Clone, Copy, Debug)]
struct Posted {
    message: Message,
    first: u64,
    end: u64,
}

/// The messages of one connection that are not wholly acknowledged, in order of their PSNs.
#[derive(Clone, Debug)]
pub struct Backlog {
    mtu: u32,
    posted: VecDeque<Posted>,
    end: u64,
}

impl Backlog {
    /// An empty backlog that cuts messages into payloads of `mtu` bytes.
    pub const fn new(mtu: u32) -> Backlog {
        Backlog { mtu, posted: VecDeque::new(), end: 0 }
    }

    /// Adds a message after the others.
    pub fn push(&mut self, message: Message) {
        let first = self.end;
        self.end += message.bytes.div_ceil(u64::from(self.mtu)).max(1);
        push_small(&mut self.posted, Posted { message, first, end: self.end });
    }

    /// The PSN after the last packet of the last message.
    #[inline]
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// The segment that `psn` carries.
    ///
    /// # Panics
    /// If `psn` belongs to no unfinished message.
    #[inline]
    pub fn segment(&self, psn: u64) -> Segment {
        let front = self.posted.front().expect("a segment of an unfinished message");
        let posted = if psn < front.end { front } else { &self.posted[self.posted.partition_point(|p| p.end <= psn)] };
        assert!(psn >= posted.first, "psn {psn} belongs to a finished message");
        let offset = (psn - posted.first) * u64::from(self.mtu);
        let length = (posted.message.bytes - offset).min(u64::from(self.mtu)) as u16;
        let last = psn + 1 == posted.end;
        Segment {
            psn,
            message: posted.message.id,
            offset: Offset::new(offset),
            length,
            last,
            again: false,
            whole: None,
        }
    }

    /// Takes out the first message if all its packets lie below `settled`.
    #[inline]
    pub fn pop_finished(&mut self, settled: u64) -> Option<Message> {
        match self.posted.front() {
            Some(front) if front.end <= settled => self.posted.pop_front().map(|p| p.message),
            _ => None,
        }
    }

    /// Forgets all messages; the next one's first PSN is `at`.
    pub fn abandon(&mut self, at: u64) {
        self.posted.clear();
        self.end = at;
    }

    /// Is every message finished?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn segments_tile_their_messages(sizes in prop::collection::vec(0u64..20_000, 1..8), mtu in 64u32..5000) {
            let mut backlog = Backlog::new(mtu);
            for (id, &bytes) in sizes.iter().enumerate() {
                backlog.push(Message { id: MessageId(id as u32), bytes });
            }
            let mut covered = vec![0u64; sizes.len()];
            let mut lasts = 0;
            for psn in 0..backlog.end() {
                let segment = backlog.segment(psn);
                let message = segment.message.0 as usize;
                prop_assert_eq!(segment.offset.get(), covered[message]);
                covered[message] += u64::from(segment.length);
                lasts += usize::from(segment.last);
                prop_assert_eq!(segment.last, covered[message] == sizes[message]
                    && (psn + 1 == backlog.end() || backlog.segment(psn + 1).message != segment.message));
            }
            prop_assert_eq!(covered, sizes.clone());
            prop_assert_eq!(lasts, sizes.len());
            let end = backlog.end();
            let mut finished = 0;
            while backlog.pop_finished(end).is_some() { finished += 1; }
            prop_assert_eq!(finished, sizes.len());
        }
    }
}

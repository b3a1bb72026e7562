//! Cuts a message into stretches, groups of submessages, chunks and packets, and places their parity. Arithmetic only.
//!
//! Without a code a message is one stretch, or several if it is longer than [`STRETCH_MAX`] packets. With a code, the
//! data of each group of submessages is one stretch and its parity another, which is sent one group later: D0, D1, P0,
//! D2, P1, and so on (ours; SDR-RDMA does not say where parity is placed).

use super::Plan;
use super::code::{Code, Pieces};
use crate::partial::chunks_of;
use std::ops::Range;

/// Without a code, the largest number of packets in a stretch. Ours: with SDR-RDMA's 18 bits of packet offset (section
/// 3.2), a peer could claim four times the memory by sending one packet to each slot.
const STRETCH_MAX: u32 = 1 << 16;

/// The receiver waits for this many groups together before it asks for the repair of one of them: half of the slots.
const SPAN_GROUPS: u32 = 256;

/// The layout of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    packets: u32,
    chunk: u32,
    code: Option<Code>,
    /// Do neighbouring chunks of a group belong to different submessages?
    striped: bool,
    /// Data chunks of a whole group.
    group_chunks: u32,
    /// Parity chunks of a whole group.
    group_parity: u32,
}

/// A group of submessages: data chunks that are coded, sent and acknowledged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its data chunks.
    pub chunks: u32,
    /// Its submessages; one without a code.
    pub submessages: u32,
    /// Its parity chunks.
    pub parity: u32,
    code: Option<Code>,
    striped: bool,
}

impl Layout {
    /// The layout of a message of `packets` packets by a plan.
    pub fn new(packets: u32, plan: &Plan) -> Layout {
        let Plan { chunk, code, group, striped, .. } = *plan;
        let (group_chunks, group_parity) = match code {
            Some(code) => (group.saturating_mul(code.data() as u32), group.saturating_mul(code.parity() as u32)),
            None => ((STRETCH_MAX / chunk).max(1), 0),
        };
        Layout { packets: packets.max(1), chunk, code, striped, group_chunks, group_parity }
    }

    /// Packets of a chunk.
    pub const fn chunk_packets(&self) -> u32 {
        self.chunk
    }

    /// The code, if there is one.
    pub const fn code(&self) -> Option<Code> {
        self.code
    }

    /// Chunks of the whole message.
    pub const fn chunks(&self) -> u32 {
        chunks_of(self.packets, self.chunk)
    }

    /// Groups of the whole message.
    pub const fn groups(&self) -> u32 {
        self.chunks().div_ceil(self.group_chunks)
    }

    /// The data packets of a group, by their index in the message.
    pub fn data(&self, group: u32) -> Range<u32> {
        let whole = self.group_chunks.saturating_mul(self.chunk);
        let first = group.saturating_mul(whole).min(self.packets);
        first..first.saturating_add(whole).min(self.packets)
    }

    /// The parity packets of a group, by their index among the message's parity packets. Parity chunks are always
    /// whole.
    pub fn parity(&self, group: u32) -> Range<u32> {
        let first = group.saturating_mul(self.group_parity * self.chunk);
        first..first.saturating_add(self.group(group).parity * self.chunk)
    }

    /// The group to which a packet belongs; `None` if the message has no such packet.
    pub fn group_of(&self, packet: u32, parity: bool) -> Option<u32> {
        if !parity {
            return (packet < self.packets).then(|| packet / self.chunk / self.group_chunks);
        }
        let group = (packet / self.chunk).checked_div(self.group_parity)?;
        (group < self.groups() && self.parity(group).contains(&packet)).then_some(group)
    }

    /// The sizes of a group.
    pub fn group(&self, group: u32) -> Group {
        let chunks = self.group_chunks.min(self.chunks() - group * self.group_chunks);
        let (code, striped) = (self.code, self.striped);
        let submessages = code.map_or(1, |code| chunks.div_ceil(code.data() as u32));
        let group = Group { chunks, submessages, parity: 0, code, striped };
        let parity = (0..submessages).map(|s| group.parity_in(s)).sum();
        Group { parity, ..group }
    }

    /// Stretches of the message.
    pub const fn stretches(&self) -> u32 {
        if self.code.is_some() { 2 * self.groups() } else { self.groups() }
    }

    /// Stretch number `index` in sending order: its group, and whether it is the group's parity.
    pub const fn stretch(&self, index: u32) -> (u32, bool) {
        if self.code.is_none() {
            return (index, false);
        }
        // D0, D1, P0, D2, P1, ... P(n-1): with one group, D0, P0.
        let last = 2 * self.groups() - 1;
        match index {
            0 => (0, false),
            _ if index == last => (self.groups() - 1, true),
            _ if index % 2 == 1 => (index.div_ceil(2), false),
            _ => (index / 2 - 1, true),
        }
    }

    /// The index of a group's stretch in sending order.
    pub fn place(&self, group: u32, parity: bool) -> u32 {
        match (self.code, parity) {
            (None, _) => group,
            (Some(_), true) => (2 * group + 2).min(2 * self.groups() - 1),
            (Some(_), false) => (2 * group).saturating_sub(1),
        }
    }

    /// The number of packets, parity included, that have been sent when the parity of the last group has been sent that
    /// the receiver waits for together with this group.
    pub fn sent_with(&self, group: u32) -> u64 {
        let last = (group / SPAN_GROUPS + 1).saturating_mul(SPAN_GROUPS).min(self.groups()) - 1;
        let ahead = if last + 1 < self.groups() { self.data(last + 1) } else { self.data(last) };
        u64::from(ahead.end) + u64::from(self.parity(last).end)
    }
}

impl Group {
    /// Data chunks of a submessage.
    pub fn data_in(&self, submessage: u32) -> u32 {
        match self.code {
            None => self.chunks,
            Some(_) if self.striped => (self.chunks - submessage).div_ceil(self.submessages),
            Some(code) => (code.data() as u32).min(self.chunks - submessage * code.data() as u32),
        }
    }

    /// Parity chunks of a submessage. With stripes, every submessage has the parity of the longest one.
    pub fn parity_in(&self, submessage: u32) -> u32 {
        let Some(code) = self.code else { return 0 };
        let data = if self.striped { self.data_in(0) } else { self.data_in(submessage) };
        code.shortened(data as usize).parity() as u32
    }

    /// The submessage of a data chunk.
    pub fn submessage_of(&self, chunk: u32) -> u32 {
        match self.code {
            None => 0,
            Some(_) if self.striped => chunk % self.submessages,
            Some(code) => chunk / code.data() as u32,
        }
    }

    /// The submessage of a parity chunk.
    pub fn submessage_of_parity(&self, chunk: u32) -> u32 {
        match self.code {
            None => 0,
            Some(_) if self.striped => chunk % self.submessages,
            Some(code) => chunk / code.parity() as u32,
        }
    }

    /// The data chunk at a position of a submessage.
    pub fn chunk(&self, submessage: u32, position: u32) -> u32 {
        match self.code {
            None => position,
            Some(_) if self.striped => position * self.submessages + submessage,
            Some(code) => submessage * code.data() as u32 + position,
        }
    }

    /// The parity chunk at a position of a submessage.
    pub fn parity_chunk(&self, submessage: u32, position: u32) -> u32 {
        match self.code {
            None => position,
            Some(_) if self.striped => position * self.submessages + submessage,
            Some(code) => submessage * code.parity() as u32 + position,
        }
    }

    /// Can a submessage be repaired from these chunks of the group?
    pub fn repairs(&self, submessage: u32, has: impl Fn(u32) -> bool, has_parity: impl Fn(u32) -> bool) -> bool {
        let (data, parity) = (self.data_in(submessage), self.parity_in(submessage));
        let Some(code) = self.code.and_then(|code| code.resized(data as usize, parity as usize)) else {
            return (0..data).all(|j| has(self.chunk(submessage, j)));
        };
        let mut present = Pieces::none();
        for j in (0..data).filter(|&j| has(self.chunk(submessage, j))) {
            present.insert(j as usize);
        }
        for r in (0..parity).filter(|&r| has_parity(self.parity_chunk(submessage, r))) {
            present.insert((data + r) as usize);
        }
        code.decodable(&present)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layouts() -> impl Strategy<Value = (Layout, u32)> {
        (1u32..3_000, 1u32..5, prop::option::of((1u32..40, 1u32..10, any::<bool>())), 1u32..6).prop_map(
            |(packets, chunk, code, group)| {
                let striped = code.is_some_and(|code| code.2);
                let code = code.map(|(k, m, _)| Code::mds(k as usize, m.min(k) as usize).expect("a code"));
                (Layout::new(packets, &Plan { chunk, reorder: None, code, group, striped }), packets)
            },
        )
    }

    proptest! {
        #[test]
        fn every_packet_has_one_place((layout, packets) in layouts()) {
            let mut next = (0, 0);
            for g in 0..layout.groups() {
                let (data, parity) = (layout.data(g), layout.parity(g));
                let group = layout.group(g);
                prop_assert_eq!(data.start, next.0);
                prop_assert_eq!(chunks_of(data.len() as u32, layout.chunk), group.chunks);
                prop_assert!(data.clone().all(|p| layout.group_of(p, false) == Some(g)));
                prop_assert!(parity.clone().all(|p| layout.group_of(p, true) == Some(g)));
                prop_assert!(parity.start >= next.1);
                next = (data.end, parity.end);
                let mut chunks: Vec<u32> = (0..group.submessages)
                    .flat_map(|s| (0..group.data_in(s)).map(move |j| (s, j)))
                    .map(|(s, j)| group.chunk(s, j))
                    .collect();
                prop_assert!(chunks.iter().all(|&c| group.submessage_of(c) < group.submessages));
                chunks.sort_unstable();
                prop_assert_eq!(chunks, (0..group.chunks).collect::<Vec<_>>());
                let mut parities: Vec<u32> = (0..group.submessages)
                    .flat_map(|s| (0..group.parity_in(s)).map(move |r| (s, r)))
                    .map(|(s, r)| group.parity_chunk(s, r))
                    .collect();
                parities.sort_unstable();
                prop_assert_eq!(parities, (0..group.parity).collect::<Vec<_>>());
            }
            prop_assert_eq!(next.0, packets);
            prop_assert_eq!(layout.group_of(packets, false), None);
            prop_assert_eq!(layout.group_of(next.1, true), None);
        }

        #[test]
        fn stretches_come_in_one_order((layout, _) in layouts()) {
            let all: Vec<(u32, bool)> = (0..layout.stretches()).map(|i| layout.stretch(i)).collect();
            for (i, &(group, parity)) in all.iter().enumerate() {
                prop_assert_eq!(layout.place(group, parity) as usize, i);
            }
            let mut sorted = all.clone();
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(sorted.len(), all.len(), "each of them once: {:?}", all);
        }
    }
}

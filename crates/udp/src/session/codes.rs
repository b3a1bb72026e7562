//! Parity of a session: made from registered memory when it leaves, kept by the receiver until its group has ended, and
//! used to rebuild missing data in place.

use std::collections::BTreeMap;
use strandway_erasure::{Decoder, Encoder, Pieces};
use strandway_proto::packet::Part;
use strandway_proto::partial::Progress;
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::repair::{EndedGroup, Layout};
use strandway_proto::{MessageId, Profile};

/// The parity of one group, in the order of its packets.
struct Parity {
    message: MessageId,
    group: u32,
    bytes: Vec<u8>,
}

/// The parity of a session whose messages may have an erasure code.
pub(super) struct Codes {
    reliability: ReliabilityConfig,
    mtu: usize,
    /// One for each code that messages have had so far.
    encoders: Vec<Encoder>,
    decoders: Vec<Decoder>,
    /// The parity of the group that leaves at present. One is enough, since groups leave one after the other.
    leaving: Option<Parity>,
    /// Parity that has come, by message and group.
    kept: BTreeMap<(u32, u32), Vec<u8>>,
    /// Buffers to use again.
    spare: Vec<Vec<u8>>,
}

/// The most spare buffers that are kept: ours.
const SPARE_MAX: usize = 4;

impl Codes {
    /// For a profile whose messages may have an erasure code.
    pub(super) fn new(profile: &Profile) -> Option<Codes> {
        profile.reliability.is_one_way().then(|| Codes {
            reliability: profile.reliability.clone(),
            mtu: profile.transport.mtu as usize,
            encoders: Vec::new(),
            decoders: Vec::new(),
            leaving: None,
            kept: BTreeMap::new(),
            spare: Vec::new(),
        })
    }

    /// The layout of a part's message; `None` if the message has no parity.
    fn layout(&self, part: &Part) -> Option<Layout> {
        self.reliability.coded_layout(part.plan, part.packets)
    }

    /// Bytes of a chunk.
    fn piece(&self, layout: &Layout) -> usize {
        layout.chunk_packets() as usize * self.mtu
    }

    /// The bytes of one parity packet of a message whose bytes are `whole`.
    pub(super) fn parity(&mut self, whole: &[u8], part: &Part) -> &[u8] {
        let layout = self.layout(part).expect("parity belongs to a code");
        let group = layout.group_of(part.packet, true).expect("the engine sends packets that there are");
        let message = part.message;
        if !self.leaving.as_ref().is_some_and(|parity| parity.message == message && parity.group == group) {
            let bytes = self.leaving.take().map(|parity| parity.bytes).unwrap_or_default();
            let bytes = self.encode(whole, &layout, group, bytes);
            self.leaving = Some(Parity { message, group, bytes });
        }
        let at = (part.packet - layout.parity(group).start) as usize * self.mtu;
        self.leaving.as_ref().map_or(&[], |parity| &parity.bytes[at..at + self.mtu])
    }

    /// The parity of a whole group, written into a buffer that is used again.
    fn encode(&mut self, whole: &[u8], layout: &Layout, group: u32, mut bytes: Vec<u8>) -> Vec<u8> {
        let (piece, sizes) = (self.piece(layout), layout.group(group));
        let range = self.range(layout, group, whole.len() as u64);
        let data = &whole[range.start as usize..range.end as usize];
        bytes.clear();
        bytes.resize(sizes.parity as usize * piece, 0);
        let Some(code) = layout.code() else { return bytes };
        let encoder = find(&mut self.encoders, |encoder| encoder.code() == code, || Encoder::new(code));
        let mut pieces: Vec<Option<&mut [u8]>> = bytes.chunks_mut(piece).map(Some).collect();
        for s in 0..sizes.submessages {
            let of = |j: u32| chunk(data, piece, sizes.chunk(s, j));
            let data: Vec<&[u8]> = (0..sizes.data_in(s)).map(of).collect();
            let take = |r: u32| pieces[sizes.parity_chunk(s, r) as usize].take().expect("each parity chunk once");
            let mut parity: Vec<&mut [u8]> = (0..sizes.parity_in(s)).map(take).collect();
            encoder.encode(&data, &mut parity).expect("pieces as the layout cuts them");
        }
        bytes
    }

    /// The bytes of a group's data within its message, which has `bytes` bytes.
    fn range(&self, layout: &Layout, group: u32, bytes: u64) -> std::ops::Range<u64> {
        let packets = layout.data(group);
        let at = |packet: u32| (u64::from(packet) * self.mtu as u64).min(bytes);
        at(packets.start)..at(packets.end)
    }

    /// A parity packet has come that the engine did not have before.
    pub(super) fn keep(&mut self, part: &Part, payload: &[u8]) {
        let Some(layout) = self.layout(part) else { return };
        let Some(group) = layout.group_of(part.packet, true) else { return };
        let length = layout.group(group).parity as usize * self.piece(&layout);
        let spare = &mut self.spare;
        let bytes = self.kept.entry(({ part.message }.0, group)).or_insert_with(|| {
            let mut bytes = spare.pop().unwrap_or_default();
            bytes.resize(length, 0);
            bytes
        });
        let at = (part.packet - layout.parity(group).start) as usize * self.mtu;
        if let Some(place) = bytes.get_mut(at..at + payload.len()) {
            place.copy_from_slice(payload);
        }
    }

    /// The range of a group's data within its message, if any of it must be rebuilt.
    pub(super) fn to_rebuild(&self, ended: &EndedGroup) -> Option<std::ops::Range<u64>> {
        let is_whole = ended.data.as_ref().is_some_and(Progress::is_whole);
        (!is_whole).then(|| self.range(&ended.layout, ended.group, ended.bytes))
    }

    /// A group has ended and needs no repair any more: frees the parity that was kept of it.
    pub(super) fn forget(&mut self, ended: &EndedGroup) {
        if let Some(bytes) = self.kept.remove(&(ended.message.0, ended.group))
            && self.spare.len() < SPARE_MAX
        {
            self.spare.push(bytes);
        }
    }

    /// Rebuilds the missing data of a group in place; `None` if too little is here, which is a mistake of the engine.
    pub(super) fn rebuild(&mut self, ended: &EndedGroup, data: &mut [u8]) -> Option<()> {
        let EndedGroup { layout, group, .. } = *ended;
        let (piece, sizes) = (self.piece(&layout), layout.group(group));
        let kept = self.kept.get(&(ended.message.0, group)).map_or(&[][..], Vec::as_slice);
        let has = |progress: &Option<Progress>, chunk: u32| progress.as_ref().is_some_and(|p| p.has_chunk(chunk));
        let code = layout.code()?;
        let decoder = find(&mut self.decoders, |decoder| decoder.code() == code, || Decoder::new(code));
        let mut pieces: Vec<Option<&mut [u8]>> = data.chunks_mut(piece).map(Some).collect();
        for s in 0..sizes.submessages {
            let (count, parities) = (sizes.data_in(s), sizes.parity_in(s));
            let mut present = Pieces::none();
            for j in (0..count).filter(|&j| has(&ended.data, sizes.chunk(s, j))) {
                present.insert(j as usize);
            }
            if present.count_below(count as usize) == count as usize {
                continue;
            }
            for r in (0..parities).filter(|&r| has(&ended.parity, sizes.parity_chunk(s, r))) {
                present.insert((count + r) as usize);
            }
            // An empty message has one chunk and no bytes.
            let take = |j: u32| pieces.get_mut(sizes.chunk(s, j) as usize).and_then(Option::take).unwrap_or_default();
            let mut data: Vec<&mut [u8]> = (0..count).map(take).collect();
            let of = |r: u32| if kept.is_empty() { kept } else { chunk(kept, piece, sizes.parity_chunk(s, r)) };
            let parity: Vec<&[u8]> = (0..parities).map(of).collect();
            decoder.rebuild(&mut data, &parity, &present).ok()?;
        }
        Some(())
    }
}

/// The first element for which `is_it` holds; made if there is none.
fn find<T>(all: &mut Vec<T>, is_it: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> &mut T {
    let at = all.iter().position(is_it).unwrap_or_else(|| {
        all.push(make());
        all.len() - 1
    });
    &mut all[at]
}

/// A chunk of a group; empty if the group has no chunk of this number.
fn chunk(bytes: &[u8], piece: usize, number: u32) -> &[u8] {
    let at = number as usize * piece;
    bytes.get(at..(at + piece).min(bytes.len())).unwrap_or_default()
}

//! What is to come, by window, then by neighbourhood.
//!
//! Time is cut into windows so short that nothing that happens in one can reach a port or host that has had its turn in it
//! ([`crate::slice`]). All that is kept in order is which window something belongs to, and which group of neighbouring
//! ports or hosts it goes to; the order within one port is made when its turn comes.

use std::collections::BTreeMap;
use strandway_proto::Packet;

/// A packet that comes to a port or host: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Arrival {
    /// The port or host.
    pub(crate) stop: u32,
    /// From the start of the window, in ps.
    pub(crate) offset: u32,
    /// The link that it comes by.
    pub(crate) link: u32,
    pub(crate) packet: Packet,
}

const _: () = assert!(size_of::<Arrival>() == 64, "one cache line per packet in the fabric");

/// Something other than a packet that happens to a port or host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// The port or host.
    pub(crate) stop: u32,
    /// From the start of the window, in ps.
    pub(crate) offset: u32,
    /// Orders what happens at one instant, and says what it is: see [`crate::slice::Sources`].
    pub(crate) source: u32,
    /// What the source needs.
    pub(crate) data: u32,
}

/// Neighbours that are visited together: `1 << GROUP_SHIFT`. Their state and what comes to them in a window fit the cache
/// of a core.
const GROUP_SHIFT: u32 = 7;
/// Ports or hosts of a group.
pub(crate) const GROUP: usize = 1 << GROUP_SHIFT;

/// At most so many windows ahead are kept in the ring; what lies beyond costs more.
const WINDOWS_MAX: u64 = 1024;

/// Arrivals in a block: 2 KiB.
const BLOCK: usize = 32;

/// What comes to one group in one window. Arrivals lie in blocks, which are never moved and are used again while they are
/// warm; all but the last are full.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    blocks: Vec<Vec<Arrival>>,
    /// The block that is being filled.
    open: Vec<Arrival>,
    pub(crate) notes: Vec<Note>,
}

impl Batch {
    /// Number of arrivals.
    #[inline]
    pub(crate) fn arrivals(&self) -> usize {
        self.blocks.len() * BLOCK + self.open.len()
    }

    /// Number of arrivals and notes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.arrivals() + self.notes.len()
    }

    /// The arrival of this number; `None` if there are not so many.
    #[inline]
    pub(crate) fn arrival(&self, index: usize) -> Option<&Arrival> {
        match self.blocks.get(index / BLOCK) {
            Some(block) => block.get(index % BLOCK),
            None => self.open.get(index.wrapping_sub(self.blocks.len() * BLOCK)),
        }
    }

    #[inline]
    fn add(&mut self, arrival: Arrival, spare: &mut Spare) {
        if self.open.len() == self.open.capacity() {
            self.renew(spare);
        }
        self.open.push(arrival);
    }

    /// A new block is opened.
    #[cold]
    fn renew(&mut self, spare: &mut Spare) {
        let block = spare.blocks.pop().unwrap_or_else(|| Vec::with_capacity(BLOCK));
        let full = std::mem::replace(&mut self.open, block);
        if !full.is_empty() {
            if self.blocks.capacity() == 0
                && let Some(list) = spare.lists.pop()
            {
                self.blocks = list;
            }
            self.blocks.push(full);
        }
    }

    #[inline]
    fn remark(&mut self, note: Note, spare: &mut Spare) {
        if self.notes.capacity() == 0
            && let Some(notes) = spare.notes.pop()
        {
            self.notes = notes;
        }
        self.notes.push(note);
    }

    /// All arrivals, in the order in which they were put.
    #[inline]
    fn each(&self, mut tell: impl FnMut(&Arrival)) {
        for block in self.blocks.iter().chain(std::iter::once(&self.open)) {
            for arrival in block {
                tell(arrival);
            }
        }
    }
}

/// Memory of batches that are done.
#[derive(Debug, Default)]
struct Spare {
    blocks: Vec<Vec<Arrival>>,
    lists: Vec<Vec<Vec<Arrival>>>,
    notes: Vec<Vec<Note>>,
}

impl Spare {
    /// Takes over what a batch leaves behind.
    fn keep(&mut self, mut batch: Batch) {
        if batch.open.capacity() > 0 {
            batch.open.clear();
            self.blocks.push(batch.open);
        }
        if batch.blocks.capacity() > 0 {
            for mut block in batch.blocks.drain(..) {
                block.clear();
                self.blocks.push(block);
            }
            self.lists.push(batch.blocks);
        }
        if batch.notes.capacity() > 0 {
            batch.notes.clear();
            self.notes.push(batch.notes);
        }
    }
}

/// What is to come, by window and group.
pub(crate) struct Calendar {
    /// Length of a window in ps.
    span: u64,
    /// Stops below this one have windows that begin and end earlier by so many ps.
    early_stops: u32,
    early: u64,
    /// Number of windows in the ring less one; the number is a power of two.
    mask: u64,
    groups: usize,
    /// By window, then group.
    ring: Vec<Batch>,
    /// Entries per window of the ring.
    counts: Vec<u64>,
    /// The window that is being worked on; entries lie in it or behind it.
    window: u64,
    far: BTreeMap<u64, Batch>,
    /// Memory of batches that are done; the last one is taken first, since it is warm.
    spare: Spare,
}

impl Calendar {
    /// An empty calendar for `stops` ports and hosts, in windows of `span` ps (at most `u32::MAX`), of which those up to
    /// `ahead` ps are at hand. Of the first `early.0` stops, windows begin and end `early.1` ps before those of the others.
    pub(crate) fn new(stops: usize, span: u64, ahead: u64, early: (u32, u64)) -> Calendar {
        let span = span.clamp(1, u64::from(u32::MAX));
        let windows = (ahead / span + 3).next_power_of_two().min(WINDOWS_MAX);
        let groups = stops.div_ceil(GROUP).max(1);
        Calendar {
            span,
            early_stops: early.0,
            early: early.1,
            mask: windows - 1,
            groups,
            ring: vec![Batch::default(); windows as usize * groups],
            counts: vec![0; windows as usize],
            window: 0,
            far: BTreeMap::new(),
            spare: Spare::default(),
        }
    }

    /// Number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    /// The batch that something at `time` belongs to, and its offset in the window.
    #[inline]
    fn batch(&mut self, time: u64, stop: u32) -> (&mut Batch, &mut Spare, u32) {
        let time = time + self.early_of(stop);
        let window = time / self.span;
        debug_assert!(window >= self.window, "{time} ps lies before window {}", self.window);
        let offset = (time - window * self.span) as u32;
        let batch = if window - self.window <= self.mask {
            let slot = (window & self.mask) as usize;
            self.counts[slot] += 1;
            &mut self.ring[slot * self.groups + (stop >> GROUP_SHIFT) as usize]
        } else {
            self.far.entry(window).or_default()
        };
        (batch, &mut self.spare, offset)
    }

    /// A packet will be at a stop at `time`, in the present window or later.
    #[inline]
    pub(crate) fn put(&mut self, time: u64, stop: u32, link: u32, packet: &Packet) {
        let (batch, spare, offset) = self.batch(time, stop);
        batch.add(Arrival { stop, offset, link, packet: *packet }, spare);
    }

    /// Something else will happen at `time`, in the present window or later.
    #[inline]
    pub(crate) fn note(&mut self, time: u64, stop: u32, source: u32, data: u32) {
        let (batch, spare, offset) = self.batch(time, stop);
        batch.remark(Note { stop, offset, source, data }, spare);
    }

    /// The number of the window in which `time` lies.
    #[inline]
    pub(crate) fn window_of(&self, time: u64) -> u64 {
        time / self.span
    }

    /// By how much the windows of a stop begin and end before those of others, in ps.
    #[inline]
    pub(crate) fn early_of(&self, stop: u32) -> u64 {
        if stop < self.early_stops { self.early } else { 0 }
    }

    /// By how much the windows of some stops begin and end before those of others, in ps.
    pub(crate) fn early(&self) -> u64 {
        self.early
    }

    /// The number of the window of a stop in which `time` lies.
    #[inline]
    pub(crate) fn window_at(&self, time: u64, stop: u32) -> u64 {
        self.window_of(time + self.early_of(stop))
    }

    /// When a window starts.
    #[inline]
    pub(crate) fn start_of(&self, window: u64) -> u64 {
        window * self.span
    }

    /// The first window with something in it.
    pub(crate) fn next_window(&self) -> Option<u64> {
        let near = (0..=self.mask).find(|ahead| self.counts[((self.window + ahead) & self.mask) as usize] > 0);
        let far = self.far.keys().next().copied();
        match near.map(|ahead| self.window + ahead) {
            Some(near) => Some(far.map_or(near, |far| near.min(far))),
            None => far,
        }
    }

    /// Goes on to `window`, which nothing lies before.
    pub(crate) fn begin(&mut self, window: u64) {
        self.window = window;
        while let Some((&near, _)) = self.far.first_key_value().filter(|(w, _)| **w - window <= self.mask) {
            let slot = (near & self.mask) as usize;
            let batch = self.far.remove(&near).unwrap_or_default();
            self.counts[slot] += batch.len() as u64;
            let groups = &mut self.ring[slot * self.groups..(slot + 1) * self.groups];
            let spare = &mut self.spare;
            batch.each(|arrival| groups[(arrival.stop >> GROUP_SHIFT) as usize].add(*arrival, spare));
            for note in &batch.notes {
                groups[(note.stop >> GROUP_SHIFT) as usize].remark(*note, spare);
            }
            spare.keep(batch);
        }
    }

    /// Takes out what comes to a group in the present window. To be given back when done, for its memory.
    pub(crate) fn take(&mut self, group: usize) -> Batch {
        let slot = (self.window & self.mask) as usize;
        let batch = std::mem::take(&mut self.ring[slot * self.groups + group]);
        self.counts[slot] -= batch.len() as u64;
        batch
    }

    /// Gives back what `take` gave.
    #[inline]
    pub(crate) fn give_back(&mut self, batch: Batch) {
        self.spare.keep(batch);
    }
}

/// Something of a batch: when, from where, and its place among the arrivals, or behind them among the notes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// Offset in the window, then source.
    key: u64,
    pub(crate) index: u32,
}

impl Turn {
    #[inline]
    fn new(offset: u32, source: u32, index: usize) -> Turn {
        Turn { key: u64::from(offset) << 32 | u64::from(source), index: index as u32 }
    }

    /// From the start of the window, in ps.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.key >> 32
    }

    #[inline]
    pub(crate) fn source(&self) -> u32 {
        self.key as u32
    }
}

/// Puts a batch in order of (stop, time, source) without moving it.
#[derive(Default)]
pub(crate) struct Order {
    turns: Vec<Turn>,
    starts: Vec<u32>,
}

impl Order {
    /// The order of `batch`.
    pub(crate) fn arrange(&mut self, batch: &Batch) {
        self.starts.clear();
        self.starts.resize(GROUP + 2, 0);
        let starts = &mut self.starts[..];
        batch.each(|arrival| starts[(arrival.stop as usize % GROUP) + 2] += 1);
        for note in &batch.notes {
            starts[(note.stop as usize % GROUP) + 2] += 1;
        }
        for i in 2..GROUP + 2 {
            starts[i] += starts[i - 1];
        }
        let count = batch.len();
        if self.turns.len() < count {
            self.turns.resize(count, Turn { key: 0, index: 0 });
        }
        let turns = &mut self.turns[..];
        let mut index = 0;
        let mut place = |stop: u32, offset: u32, source: u32| {
            let start = &mut starts[(stop as usize % GROUP) + 1];
            turns[*start as usize] = Turn::new(offset, source, index);
            *start += 1;
            index += 1;
        };
        batch.each(|a| place(a.stop, a.offset, a.link));
        for n in &batch.notes {
            place(n.stop, n.offset, n.source);
        }
        for stop in 0..GROUP {
            let (from, to) = (self.starts[stop] as usize, self.starts[stop + 1] as usize);
            sort_turns(&mut self.turns[from..to]);
        }
    }

    /// The turns of the `n`-th stop of the group.
    #[inline]
    pub(crate) fn of(&self, n: usize) -> &[Turn] {
        &self.turns[self.starts[n] as usize..self.starts[n + 1] as usize]
    }
}

/// Puts what happens to one stop in order of (time, source); it nearly is.
#[inline]
fn sort_turns(turns: &mut [Turn]) {
    if turns.len() > 64 {
        return turns.sort_unstable_by_key(|t| t.key);
    }
    for i in 1..turns.len() {
        let turn = turns[i];
        let mut at = i;
        while at > 0 && turn.key < turns[at - 1].key {
            turns[at] = turns[at - 1];
            at -= 1;
        }
        turns[at] = turn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use strandway_proto::packet::{Flags, Header};
    use strandway_proto::{ConnectionId, HostId, PathId};

    fn packet() -> Packet {
        let (source, destination) = (HostId(0), HostId(1));
        let (connection, path) = (ConnectionId(0), PathId(0));
        Packet { source, destination, connection, path, size: 64, flags: Flags::NONE, header: Header::Cnp }
    }

    proptest! {
        #[test]
        fn everything_comes_out_in_its_window_in_order(
            steps in prop::collection::vec((0u64..40_000, 0u32..300, 0u32..9, any::<bool>(), any::<bool>()), 1..400),
        ) {
            let mut calendar = Calendar::new(300, 1000, 8000, (0, 0));
            let mut order = Order::default();
            let mut model: BTreeMap<u64, Vec<(u32, u64, u32)>> = BTreeMap::new();
            let mut window = 0u64;
            for (delay, stop, source, is_packet, go_on) in steps {
                let time = calendar.start_of(window) + delay;
                let source = if is_packet { source } else { source + 100 };
                if is_packet {
                    calendar.put(time, stop, source, &packet());
                } else {
                    calendar.note(time, stop, source, 7);
                }
                model.entry(calendar.window_of(time)).or_default().push((stop, time, source));
                if go_on {
                    let next = calendar.next_window();
                    prop_assert_eq!(next, model.keys().next().copied());
                    window = next.unwrap_or(window);
                    calendar.begin(window);
                    let mut got = Vec::new();
                    for group in 0..calendar.groups() {
                        let batch = calendar.take(group);
                        order.arrange(&batch);
                        for n in 0..GROUP {
                            for turn in order.of(n) {
                                let stop = (group * GROUP + n) as u32;
                                let note = (turn.index as usize).checked_sub(batch.arrivals());
                                let of_stop = match note {
                                    Some(note) => batch.notes[note].stop,
                                    None => batch.arrival(turn.index as usize).expect("an arrival").stop,
                                };
                                prop_assert_eq!(of_stop, stop);
                                got.push((stop, calendar.start_of(window) + turn.offset(), turn.source()));
                            }
                        }
                        calendar.give_back(batch);
                    }
                    let mut expected = model.remove(&window).unwrap_or_default();
                    expected.sort_unstable();
                    prop_assert_eq!(got, expected);
                }
            }
        }
    }
}

//! The event set: time buckets of 16-byte events, sorted one bucket at a time.
//!
//! Events are ordered by (time, source). Sources are numbered so that what happens at one instant has a fixed order
//! whatever thread it happens on: see [`crate::slice`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens at an instant. What it is, `source` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event {
    pub(crate) time: u64,
    pub(crate) source: u32,
    pub(crate) data: u32,
}

const _: () = assert!(size_of::<Event>() == 16, "four events to a cache line");

/// Buckets are about this many at the most.
const BUCKETS_MAX: u64 = 32_768;

/// A bucket is sorted by at most so many bits of its times in the first pass.
const SORT_BITS: u32 = 10;

/// Runs up to this length are sorted by insertion.
const INSERTION_MAX: usize = 16;

/// Events of one bucket, in no order. Buckets are chains of these, so that memory follows what is pending however unevenly it
/// is spread.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Chunk {
    events: [Event; CHUNK],
    /// The chunk before it.
    previous: u32,
}

/// Events in a chunk: with the link to the next one, four cache lines.
const CHUNK: usize = 15;

const _: () = assert!(size_of::<Chunk>() == 256);

#[derive(Clone, Copy, Default)]
struct Bucket {
    /// The chunk that is being filled; meaningless in an empty bucket.
    chunk: u32,
    events: u32,
}

const NO_EVENT: Event = Event { time: 0, source: 0, data: 0 };

/// Pending events.
pub(crate) struct EventQueue {
    /// A bucket spans `1 << shift` picoseconds.
    shift: u32,
    /// Number of buckets less one; the number is a power of two.
    mask: u64,
    ring: Vec<Bucket>,
    chunks: Vec<Chunk>,
    free: Vec<u32>,
    occupied: Vec<u64>,
    /// Number of the bucket that `current` was taken from.
    bucket: u64,
    /// Sorted; done up to `position`.
    current: Vec<Event>,
    position: usize,
    /// Beyond the ring.
    far: BinaryHeap<Reverse<Event>>,
    /// For sorting: where each run of a bucket begins.
    starts: Vec<u32>,
}

impl EventQueue {
    /// An empty set. Buckets span about `width` picoseconds each, so that each holds some dozens of events, and reach
    /// `horizon` ahead; what lies further ahead costs more.
    pub(crate) fn new(width: u64, horizon: u64) -> EventQueue {
        let shift = width.max(horizon / BUCKETS_MAX).max(1).ilog2().clamp(6, 30);
        let buckets = (horizon >> shift).next_power_of_two().clamp(256, 2 * BUCKETS_MAX);
        EventQueue {
            shift,
            mask: buckets - 1,
            ring: vec![Bucket::default(); buckets as usize],
            chunks: Vec::new(),
            free: Vec::new(),
            occupied: vec![0; buckets as usize / 64],
            bucket: 0,
            current: Vec::new(),
            position: 0,
            far: BinaryHeap::new(),
            starts: vec![0; (1 << SORT_BITS) + 1],
        }
    }

    /// Adds an event that is not earlier than the last one taken out.
    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        let bucket = event.time >> self.shift;
        if bucket > self.bucket {
            if bucket - self.bucket <= self.mask {
                let slot = (bucket & self.mask) as usize;
                self.put(slot, event);
            } else {
                self.far.push(Reverse(event));
            }
        } else {
            let at = self.current[self.position..].partition_point(|e| (e.time, e.source) < (event.time, event.source));
            self.current.insert(self.position + at, event);
        }
    }

    /// The next event's time, `u64::MAX` if there is none.
    #[inline]
    pub(crate) fn peek(&mut self) -> u64 {
        if !self.is_bucket_done() || self.advance() { self.current[self.position].time } else { u64::MAX }
    }

    /// Takes out the next event if it is earlier than `limit`.
    #[inline]
    pub(crate) fn pop_before(&mut self, limit: u64) -> Option<Event> {
        let event = *self.current.get(self.position)?;
        if event.time >= limit {
            return None;
        }
        self.position += 1;
        Some(event)
    }

    /// Is every event of the current bucket taken out?
    #[inline]
    pub(crate) fn is_bucket_done(&self) -> bool {
        self.position == self.current.len()
    }

    /// Puts an event into a bucket of the ring.
    #[inline]
    fn put(&mut self, slot: usize, event: Event) {
        let bucket = &mut self.ring[slot];
        let at = bucket.events as usize % CHUNK;
        if at == 0 {
            let previous = bucket.chunk;
            bucket.chunk = self.free.pop().unwrap_or_else(|| {
                self.chunks.push(Chunk { events: [NO_EVENT; CHUNK], previous: 0 });
                self.chunks.len() as u32 - 1
            });
            self.chunks[bucket.chunk as usize].previous = previous;
            self.occupied[slot / 64] |= 1 << (slot % 64);
        }
        self.chunks[bucket.chunk as usize].events[at] = event;
        bucket.events += 1;
    }

    /// Makes the next bucket that holds something the current one; false if there is none.
    pub(crate) fn advance(&mut self) -> bool {
        debug_assert!(self.is_bucket_done());
        self.current.clear();
        self.position = 0;
        let near = self.next_occupied();
        let far = self.far.peek().map(|Reverse(e)| e.time >> self.shift);
        let next = match (near, far) {
            (Some(near), Some(far)) => near.min(far),
            (Some(bucket), None) | (None, Some(bucket)) => bucket,
            (None, None) => return false,
        };
        self.bucket = next;
        let slot = (next & self.mask) as usize;
        while let Some(&Reverse(event)) = self.far.peek() {
            if event.time >> self.shift > next {
                break;
            }
            self.far.pop();
            self.put(slot, event);
        }
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        self.sort_into_current(slot);
        true
    }

    /// Sorts a bucket into `current`: one counting pass over the upper bits of the time within the bucket, then each run of
    /// what shares those bits.
    fn sort_into_current(&mut self, slot: usize) {
        let bucket = std::mem::take(&mut self.ring[slot]);
        let count = bucket.events as usize;
        let bits = (usize::BITS - count.leading_zeros()).min(SORT_BITS).min(self.shift);
        let places = 1usize << bits;
        let shift = self.shift - bits;
        let place = |e: &Event| (e.time >> shift) as usize & (places - 1);
        let starts = &mut self.starts[..=places];
        starts.fill(0);
        let fill = |index: usize| if index == 0 && !count.is_multiple_of(CHUNK) { count % CHUNK } else { CHUNK };
        let mut chunk = bucket.chunk;
        for index in 0..count.div_ceil(CHUNK) {
            let here = &self.chunks[chunk as usize];
            for event in &here.events[..fill(index)] {
                starts[place(event) + 1] += 1;
            }
            chunk = here.previous;
        }
        for i in 1..=places {
            starts[i] += starts[i - 1];
        }
        self.current.resize(count, NO_EVENT);
        let mut chunk = bucket.chunk;
        for index in 0..count.div_ceil(CHUNK) {
            let here = &self.chunks[chunk as usize];
            for event in &here.events[..fill(index)] {
                let start = &mut starts[place(event)];
                self.current[*start as usize] = *event;
                *start += 1;
            }
            self.free.push(chunk);
            chunk = here.previous;
        }
        // `starts` holds the ends of the runs now. Hosts that begin together stay in step, so that some runs are long and
        // of one instant.
        let mut from = 0;
        for end in &starts[..places] {
            let run = &mut self.current[from..*end as usize];
            from = *end as usize;
            if run.len() > INSERTION_MAX {
                // Within a bucket the upper bits of the time are the same.
                run.sort_unstable_by_key(|e| (e.time << 32) | u64::from(e.source));
            } else {
                for i in 1..run.len() {
                    let event = run[i];
                    let mut at = i;
                    while at > 0 && event < run[at - 1] {
                        run[at] = run[at - 1];
                        at -= 1;
                    }
                    run[at] = event;
                }
            }
        }
    }

    /// The number of the first bucket behind the current one that holds something.
    fn next_occupied(&self) -> Option<u64> {
        let from = ((self.bucket + 1) & self.mask) as usize;
        let words = self.occupied.len();
        for step in 0..=words {
            let word = (from / 64 + step) % words;
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (from % 64);
            }
            if bits != 0 {
                let slot = (word * 64) as u64 + u64::from(bits.trailing_zeros());
                return Some(self.bucket + 1 + (slot.wrapping_sub(from as u64) & self.mask));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn next(queue: &mut EventQueue, limit: u64) -> Option<Event> {
        if queue.is_bucket_done() && !queue.advance() {
            return None;
        }
        queue.pop_before(limit)
    }

    proptest! {
        #[test]
        fn events_come_out_in_order_of_time_and_source(
            steps in prop::collection::vec((0u64..4, 0u64..1 << 34, 0u32..50, any::<bool>()), 1..600),
        ) {
            let mut queue = EventQueue::new(1000, 1_000_000);
            let mut model = BTreeSet::new();
            let mut now = 0u64;
            for (scale, delay, source, pop) in steps {
                let event = Event { time: now + (delay >> (scale * 10)), source, data: 0 };
                if model.insert((event.time, source)) {
                    queue.push(event);
                }
                prop_assert_eq!(queue.peek(), model.first().map_or(u64::MAX, |f| f.0));
                if pop {
                    let expected = model.pop_first();
                    let got = next(&mut queue, u64::MAX).map(|e| (e.time, e.source));
                    prop_assert_eq!(got, expected);
                    now = got.map_or(now, |g| g.0);
                }
            }
            while let Some(expected) = model.pop_first() {
                prop_assert_eq!(next(&mut queue, u64::MAX).map(|e| (e.time, e.source)), Some(expected));
            }
            prop_assert_eq!(queue.peek(), u64::MAX);
        }
    }

    #[test]
    fn the_limit_holds_back_what_is_not_earlier() {
        let mut queue = EventQueue::new(1000, 1_000_000);
        queue.push(Event { time: 5_000, source: 1, data: 0 });
        assert_eq!(next(&mut queue, 5_000), None);
        // Something earlier may still come in from another slice, into a bucket that has been passed.
        queue.push(Event { time: 4_000, source: 9, data: 0 });
        assert_eq!(next(&mut queue, 5_000).map(|e| e.source), Some(9));
        assert_eq!(next(&mut queue, 5_001).map(|e| e.source), Some(1));
    }
}

//! Queues of waiting packets, in chunks from one arena.
//!
//! A queue only takes memory for its waiting packets, and a free chunk is reused while it is in the cache. With one
//! ring per port, a short queue that is never empty would move through the whole memory of its ring.

use crate::prefetch::{prefetch, prefetch_value};
use crate::road::Transit;

/// Packets in a chunk: two cache lines.
const CHUNK: u32 = 4;
/// The number of chunks that are allocated together. They are never moved.
const SEGMENT: usize = 64;
/// No chunk.
pub(crate) const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Chunk {
    items: [Transit; CHUNK as usize],
}

const _: () = assert!(size_of::<Chunk>() == 128);

/// The chunks of all queues of a slice.
#[derive(Default)]
pub(crate) struct Arena {
    segments: Vec<Box<[Chunk; SEGMENT]>>,
    /// The number of chunks that have ever been used.
    used: usize,
    /// For each chunk, the next chunk of its queue.
    next: Vec<u32>,
    free: Vec<u32>,
}

/// A first-in-first-out queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    head: u32,
    tail: u32,
    /// The first packet's place in the head chunk.
    first: u32,
    len: u32,
}

impl Queue {
    pub(crate) const EMPTY: Queue = Queue { head: NIL, tail: NIL, first: 0, len: 0 };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a packet at the end.
    #[inline(always)]
    pub(crate) fn push(&mut self, arena: &mut Arena, waiting: Transit) {
        // An empty queue has `first` 0.
        let place = (self.first + self.len) % CHUNK;
        if place == 0 {
            let chunk = arena.take();
            let before = if self.len == 0 { &mut self.head } else { &mut arena.next[self.tail as usize] };
            *before = chunk;
            self.tail = chunk;
        }
        arena.chunk_mut(self.tail).items[place as usize] = waiting;
        self.len += 1;
    }

    /// Takes out the first packet; there must be one.
    #[inline(always)]
    pub(crate) fn pop(&mut self, arena: &mut Arena) -> Transit {
        debug_assert!(self.len > 0, "an empty queue has no first packet");
        let waiting = arena.chunk(self.head).items[(self.first % CHUNK) as usize];
        self.len -= 1;
        self.first += 1;
        if self.first == CHUNK || self.len == 0 {
            arena.free.push(self.head);
            self.head = arena.next[self.head as usize];
            self.first = 0;
        }
        waiting
    }

    /// The last packet.
    pub(crate) fn back_mut<'a>(&self, arena: &'a mut Arena) -> Option<&'a mut Transit> {
        if self.len == 0 {
            return None;
        }
        Some(&mut arena.chunk_mut(self.tail).items[((self.first + self.len - 1) % CHUNK) as usize])
    }

    /// Brings the first chunk, and the place of the next packet in the last one, into the cache.
    #[inline]
    pub(crate) fn prefetch_ends(&self, arena: &Arena) {
        if self.len > 0 {
            // Two packets to a cache line.
            let items = &arena.chunk(self.head).items;
            for at in ((self.first % CHUNK) as usize..CHUNK as usize).step_by(2) {
                prefetch(items.as_ptr().wrapping_add(at).cast());
            }
            prefetch_value(&arena.chunk(self.tail).items[((self.first + self.len) % CHUNK) as usize]);
        }
    }

    /// Brings the second chunk into the cache.
    #[inline]
    pub(crate) fn prefetch_second(&self, arena: &Arena) {
        if self.len > 0 && self.head != self.tail {
            prefetch_value(arena.chunk(arena.next[self.head as usize]));
        }
    }
}

impl Arena {
    #[inline]
    fn chunk(&self, index: u32) -> &Chunk {
        &self.segments[index as usize / SEGMENT][index as usize % SEGMENT]
    }

    #[inline]
    fn chunk_mut(&mut self, index: u32) -> &mut Chunk {
        &mut self.segments[index as usize / SEGMENT][index as usize % SEGMENT]
    }

    /// A chunk for a queue.
    #[inline]
    fn take(&mut self) -> u32 {
        match self.free.pop() {
            Some(index) => index,
            None => self.grow(),
        }
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let chunk = Chunk { items: [Transit::note(0, 0); CHUNK as usize] };
        if self.used == self.segments.len() * SEGMENT {
            self.segments.push(Box::new([chunk; SEGMENT]));
        }
        let index = self.used as u32;
        self.used += 1;
        self.next.push(NIL);
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn queues_that_share_an_arena_keep_their_order(steps in prop::collection::vec((0usize..4, 0u32..10), 1..800)) {
            let packet = Transit::note(0, 0);
            let mut arena = Arena::default();
            let mut queues = [Queue::EMPTY; 4];
            let mut models: [VecDeque<u32>; 4] = Default::default();
            for (ingress, (which, action)) in steps.into_iter().enumerate() {
                let ingress = ingress as u32;
                if action < 6 {
                    queues[which].push(&mut arena, packet.waiting(0, ingress));
                    models[which].push_back(ingress);
                } else {
                    let queue = &mut queues[which];
                    let got = (!queue.is_empty()).then(|| queue.pop(&mut arena).ingress());
                    prop_assert_eq!(got, models[which].pop_front());
                }
                prop_assert_eq!(queues[which].is_empty(), models[which].is_empty());
                prop_assert_eq!(queues[which].back_mut(&mut arena).map(|w| w.ingress()), models[which].back().copied());
            }
            for (queue, model) in queues.iter_mut().zip(&mut models) {
                while let Some(expected) = model.pop_front() {
                    prop_assert_eq!(queue.pop(&mut arena).ingress(), expected);
                }
                prop_assert!(queue.is_empty());
            }
            prop_assert_eq!(arena.free.len(), arena.used);
        }
    }
}

//! Queues of waiting packets, in chunks from one arena.
//!
//! A queue only takes memory for its waiting packets, and a free chunk is reused while it is in the cache. With one
//! ring per port, a short queue that is never empty would move through the whole memory of its ring.

use crate::road::Transit;

/// Packets in a chunk: four cache lines.
const CHUNK: u32 = 8;
/// The number of chunks that are allocated together. They are never moved.
const SEGMENT: usize = 64;
/// No chunk.
pub(crate) const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Chunk {
    items: [Transit; CHUNK as usize],
}

const _: () = assert!(size_of::<Chunk>() == 256);

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
        let place = (self.first + self.len) % CHUNK;
        if place == 0 || self.len == 0 {
            let chunk = arena.take(waiting);
            if self.len == 0 {
                *self = Queue { head: chunk, tail: chunk, first: 0, len: 1 };
                return;
            }
            arena.next[self.tail as usize] = chunk;
            self.tail = chunk;
        } else {
            arena.chunk_mut(self.tail).items[place as usize] = waiting;
        }
        self.len += 1;
    }

    /// Takes out the first packet.
    #[inline(always)]
    pub(crate) fn pop(&mut self, arena: &mut Arena) -> Option<Transit> {
        if self.len == 0 {
            return None;
        }
        let waiting = arena.chunk(self.head).items[(self.first % CHUNK) as usize];
        self.len -= 1;
        self.first += 1;
        if self.first == CHUNK || self.len == 0 {
            arena.free.push(self.head);
            self.head = arena.next[self.head as usize];
            self.first = 0;
        }
        Some(waiting)
    }

    /// The last packet.
    pub(crate) fn back_mut<'a>(&self, arena: &'a mut Arena) -> Option<&'a mut Transit> {
        if self.len == 0 {
            return None;
        }
        Some(&mut arena.chunk_mut(self.tail).items[((self.first + self.len - 1) % CHUNK) as usize])
    }

    /// Reads the first packet, so that it is in the cache when it is needed.
    #[inline]
    pub(crate) fn touch(&self, arena: &Arena) -> u32 {
        if self.len == 0 { 0 } else { arena.chunk(self.head).items[(self.first % CHUNK) as usize].cargo() }
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

    /// A chunk that begins with this packet.
    #[inline]
    fn take(&mut self, waiting: Transit) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.chunk_mut(index).items[0] = waiting;
                index
            }
            None => self.grow(waiting),
        }
    }

    #[cold]
    fn grow(&mut self, waiting: Transit) -> u32 {
        let chunk = Chunk { items: [waiting; CHUNK as usize] };
        if self.used == self.segments.len() * SEGMENT {
            self.segments.push(Box::new([chunk; SEGMENT]));
        }
        let index = self.used as u32;
        self.used += 1;
        self.next.push(NIL);
        *self.chunk_mut(index) = chunk;
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
                    let got = queues[which].pop(&mut arena).map(|w| w.ingress());
                    prop_assert_eq!(got, models[which].pop_front());
                }
                prop_assert_eq!(queues[which].is_empty(), models[which].is_empty());
                prop_assert_eq!(queues[which].back_mut(&mut arena).map(|w| w.ingress()), models[which].back().copied());
            }
            for (queue, model) in queues.iter_mut().zip(&mut models) {
                while let Some(expected) = model.pop_front() {
                    prop_assert_eq!(queue.pop(&mut arena).map(|w| w.ingress()), Some(expected));
                }
                prop_assert!(queue.pop(&mut arena).is_none());
            }
            prop_assert_eq!(arena.free.len(), arena.used);
        }
    }
}

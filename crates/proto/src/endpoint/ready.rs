//! The ready list: the order in which connections send.
//!
//! Connections take turns, one packet each. A connection with a single path may have to wait for its port. It keeps its
//! place in the round, and is skipped without a poll until its port is free or its state changes.

use std::collections::VecDeque;

/// A connection that waits for no particular port.
const ANY: u8 = u8::MAX;

/// Connections that may have something to send, each at most once, in order of their turns.
pub(super) struct Ready {
    queue: VecDeque<u32>,
    /// By slot: the port for which a connection in the queue waits, by its latest poll.
    port: Vec<u8>,
    /// The number of connections that wait for each port (empty before the first one waits), and the set of ports with
    /// any.
    waiting: Vec<u32>,
    ports: u32,
    /// The number of connections that wait for a port.
    count: usize,
}

impl Ready {
    pub(super) const fn new() -> Ready {
        Ready { queue: VecDeque::new(), port: Vec::new(), waiting: Vec::new(), ports: 0, count: 0 }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        self.queue.front().copied()
    }

    /// The address of the round's memory.
    #[inline]
    pub(super) fn address(&self) -> *const u8 {
        self.queue.as_slices().0.as_ptr().cast()
    }

    pub(super) fn at(&self, index: usize) -> u32 {
        self.queue[index]
    }

    /// Puts a connection at the end of the round.
    #[inline]
    pub(super) fn push_back(&mut self, slot: u32) {
        self.queue.push_back(slot);
    }

    /// Puts a connection that can send only by `port`, which is busy, at the end of the round.
    pub(super) fn push_waiting(&mut self, slot: u32, port: u8) {
        self.queue.push_back(slot);
        if self.port.len() <= slot as usize {
            self.port.resize(slot as usize + 1, ANY);
        }
        self.port[slot as usize] = port;
        self.waiting.resize(32, 0);
        self.waiting[usize::from(port)] += 1;
        self.ports |= 1 << port;
        self.count += 1;
    }

    /// A connection's state has changed: it must be polled at its next turn.
    #[inline]
    pub(super) fn ask_again(&mut self, slot: u32) {
        if self.count > 0 {
            self.take_port(slot);
        }
    }

    fn take_port(&mut self, slot: u32) {
        let Some(place) = self.port.get_mut(slot as usize).filter(|port| **port != ANY) else { return };
        let port = std::mem::replace(place, ANY);
        self.waiting[usize::from(port)] -= 1;
        self.count -= 1;
        if self.waiting[usize::from(port)] == 0 {
            self.ports &= !(1 << port);
        }
    }

    /// The next connection to poll, with these `free` ports. Each connection that is skipped or returned lowers `tries`
    /// by one; at zero the search ends.
    #[inline]
    pub(super) fn pop(&mut self, free: u32, tries: &mut usize) -> Option<u32> {
        if self.count > 0 {
            return self.pop_waiting(free, tries);
        }
        *tries = tries.checked_sub(1)?;
        self.queue.pop_front()
    }

    #[inline(never)]
    fn pop_waiting(&mut self, free: u32, tries: &mut usize) -> Option<u32> {
        if self.count == self.queue.len() && self.ports & free == 0 {
            // No connection's port is free. Skipping `tries` connections only rotates the queue.
            let moved = *tries % self.queue.len();
            self.queue.rotate_left(moved);
            *tries = 0;
            return None;
        }
        while *tries > 0 {
            *tries -= 1;
            let slot = self.queue.pop_front()?;
            let port = self.port.get(slot as usize).copied().unwrap_or(ANY);
            if port == ANY || free >> port & 1 == 1 {
                self.take_port(slot);
                return Some(slot);
            }
            self.queue.push_back(slot);
        }
        None
    }

    /// Removes a connection from the list.
    pub(super) fn remove(&mut self, slot: u32) {
        self.ask_again(slot);
        self.queue.retain(|&other| other != slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As a plain queue whose members are all asked in turn.
        #[test]
        fn turns_are_those_of_a_plain_queue(
            ports in prop::collection::vec(prop::option::of(0u8..4), 1..12),
            steps in prop::collection::vec((0u32..16, any::<u8>(), any::<bool>()), 1..200),
        ) {
            let (mut ready, mut plain) = (Ready::new(), VecDeque::new());
            for slot in 0..ports.len() as u32 {
                ready.push_back(slot);
                plain.push_back(slot);
            }
            for (free, pick, stays) in steps {
                let fits = |slot: u32| ports[slot as usize].is_none_or(|port| free >> port & 1 == 1);
                let mut expected = None;
                for _ in 0..plain.len() {
                    let slot = plain.pop_front().expect("as many as it has");
                    if fits(slot) {
                        expected = Some(slot);
                        break;
                    }
                    plain.push_back(slot);
                }
                let mut tries = ready.len();
                let mut found = None;
                while found.is_none() && let Some(slot) = ready.pop(free, &mut tries) {
                    match ports[slot as usize] {
                        _ if fits(slot) => found = Some(slot),
                        Some(port) => ready.push_waiting(slot, port),
                        None => ready.push_back(slot),
                    }
                }
                prop_assert_eq!(found, expected);
                if let Some(slot) = found.filter(|_| stays) {
                    ready.push_back(slot);
                    plain.push_back(slot);
                }
                let any = u32::from(pick) % ports.len() as u32;
                if pick % 3 == 0 {
                    ready.ask_again(any);
                } else if pick % 7 == 0 && !plain.contains(&any) {
                    ready.push_back(any);
                    plain.push_back(any);
                } else if pick % 11 == 0 {
                    ready.remove(any);
                    plain.retain(|&slot| slot != any);
                }
                prop_assert!(ready.queue.iter().eq(&plain));
            }
        }
    }
}

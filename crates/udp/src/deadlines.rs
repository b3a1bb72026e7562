//! Deadlines of numbered things, at most one each: a binary heap with an index of places, so that a deadline can be
//! changed or removed in place.

use strandway_proto::Time;

/// Means that a key has no deadline.
const NOWHERE: u32 = u32::MAX;

/// The earliest deadline is found in constant time; setting one takes logarithmic time.
#[derive(Default)]
pub(crate) struct Deadlines {
    heap: Vec<(Time, u32)>,
    /// The place of each key in the heap.
    places: Vec<u32>,
}

impl Deadlines {
    /// Sets the deadline of `key`; [`Time::NEVER`] removes it.
    pub(crate) fn set(&mut self, key: u32, time: Time) {
        let index = key as usize;
        if index >= self.places.len() {
            if time == Time::NEVER {
                return;
            }
            self.places.resize(index + 1, NOWHERE);
        }
        let at = self.places[index];
        if at == NOWHERE {
            if time != Time::NEVER {
                self.places[index] = self.heap.len() as u32;
                self.heap.push((time, key));
                self.rise(self.heap.len() - 1);
            }
            return;
        }
        let at = at as usize;
        if time == Time::NEVER {
            self.heap.swap_remove(at);
            self.places[index] = NOWHERE;
            if at < self.heap.len() {
                self.places[self.heap[at].1 as usize] = at as u32;
                self.move_from(at);
            }
        } else if self.heap[at].0 != time {
            self.heap[at].0 = time;
            self.move_from(at);
        }
    }

    /// The deadline of `key`.
    pub(crate) fn of(&self, key: u32) -> Time {
        let at = self.places.get(key as usize).filter(|&&at| at != NOWHERE);
        at.map_or(Time::NEVER, |&at| self.heap[at as usize].0)
    }

    /// The earliest deadline.
    pub(crate) fn first(&self) -> Time {
        self.heap.first().map_or(Time::NEVER, |&(time, _)| time)
    }

    /// Removes and returns a key whose deadline has come.
    pub(crate) fn pop(&mut self, now: Time) -> Option<u32> {
        let &(time, key) = self.heap.first()?;
        if time > now {
            return None;
        }
        self.set(key, Time::NEVER);
        Some(key)
    }

    /// The number of deadlines.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    fn move_from(&mut self, at: usize) {
        if self.rise(at) == at {
            self.sink(at);
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.places[self.heap[a].1 as usize] = a as u32;
        self.places[self.heap[b].1 as usize] = b as u32;
    }

    fn rise(&mut self, mut at: usize) -> usize {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        at
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let children = 2 * at + 1..(2 * at + 3).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.heap[child]) else { return };
            if self.heap[at] <= self.heap[least] {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn deadlines_agree_with_a_sorted_map(steps in prop::collection::vec((0u32..20, 0u64..50, any::<bool>()), 1..400)) {
            let (mut ours, mut model) = (Deadlines::default(), BTreeMap::<u32, Time>::new());
            for (key, time, sets) in steps {
                if sets {
                    let time = if time < 10 { Time::NEVER } else { Time(time) };
                    ours.set(key, time);
                    model.remove(&key);
                    if time != Time::NEVER {
                        model.insert(key, time);
                    }
                } else {
                    let first = model.iter().map(|(&key, &time)| (time, key)).min().filter(|first| first.0 <= Time(time));
                    let popped = ours.pop(Time(time));
                    prop_assert_eq!(popped, first.map(|(_, key)| key));
                    popped.map(|key| model.remove(&key));
                }
                prop_assert_eq!(ours.first(), model.values().min().copied().unwrap_or(Time::NEVER));
                prop_assert_eq!(ours.len(), model.len());
            }
        }
    }
}

//! The next check ("look") of each port of one switch, in order of time.
//!
//! A tree of minima: a change walks from the port's leaf to the root, the same number of steps each time and without a
//! branch that depends on times. In a heap, most of the comparisons would be mispredicted.

/// No look.
const NONE: u64 = u64::MAX;

/// The looks of the present switch in the present window.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// The root is at 1, the children of `n` at `2n` and `2n + 1`; the leaves begin at `leaves`. A leaf has its time,
    /// as an offset in the window, in the upper half, and the port's number in the lower half.
    tree: Vec<u64>,
    leaves: usize,
    /// The first link of the switch; its ports are numbered from there.
    first_link: u32,
}

impl Looks {
    /// Begins with a switch that has this many ports, from `first_link` on. No look may be left.
    pub(super) fn begin(&mut self, first_link: u32, ports: u32) {
        self.first_link = first_link;
        self.leaves = (ports as usize).next_power_of_two();
        if self.tree.len() < 2 * self.leaves {
            self.tree.resize(2 * self.leaves, NONE);
        }
    }

    /// The first look in order of time, then link: its time and link; the largest value if there is none.
    #[inline]
    pub(super) fn first_key(&self) -> u64 {
        self.tree[1].saturating_add(u64::from(self.first_link))
    }

    /// Takes out the first look; there must be one. Returns its link.
    #[inline]
    pub(super) fn pop(&mut self) -> u32 {
        let port = self.tree[1] as u32;
        self.put(port as usize, NONE);
        self.first_link + port
    }

    /// Plans a look at the port that feeds `link`, in place of a later one. True if there was a later one.
    #[inline]
    pub(super) fn set(&mut self, link: u32, offset: u32) -> bool {
        let port = (link - self.first_link) as usize;
        let is_moved = self.tree[self.leaves + port] != NONE;
        self.put(port, u64::from(offset) << 32 | port as u64);
        is_moved
    }

    #[inline]
    fn put(&mut self, port: usize, value: u64) {
        let mut at = self.leaves + port;
        self.tree[at] = value;
        while at > 1 {
            let least = self.tree[at].min(self.tree[at ^ 1]);
            at /= 2;
            self.tree[at] = least;
        }
    }

    /// Removes all looks. True if there were any.
    pub(super) fn clear(&mut self) -> bool {
        let any = self.tree[1] != NONE;
        if any {
            self.tree.fill(NONE);
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn looks_come_out_in_order_of_time_and_link(
            ports in 1u32..70,
            steps in prop::collection::vec((any::<u32>(), prop::option::of(0u32..50)), 1..300),
        ) {
            let mut looks = Looks::default();
            looks.begin(1000, ports);
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            for (pick, time) in steps {
                let link = 1000 + pick % ports;
                match time {
                    Some(time) => prop_assert_eq!(looks.set(link, time), model.insert(link, time).is_some()),
                    None => {
                        let first = model.iter().map(|(&link, &time)| (time, link)).min();
                        let key = first.map_or(u64::MAX, |(time, link)| u64::from(time) << 32 | u64::from(link));
                        prop_assert_eq!(looks.first_key(), key);
                        if let Some((_, link)) = first {
                            prop_assert_eq!(looks.pop(), link);
                            model.remove(&link);
                        }
                    }
                }
            }
            prop_assert_eq!(looks.clear(), !model.is_empty());
            prop_assert_eq!(looks.first_key(), u64::MAX);
        }
    }
}

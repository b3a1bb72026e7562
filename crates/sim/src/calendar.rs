//! The calendar: future events by window, then by group of neighbouring ports or hosts.
//!
//! Time is cut into windows. A window is so short that a packet sent in it cannot reach a port or host that was already
//! visited in the same window ([`crate::slice`]). The calendar only sorts entries by window and by group of
//! neighbouring ports or hosts; the entries of one port are sorted when the port is visited.

mod batch;
mod order;

use crate::road::Transit;
use batch::{Batch, Spare};
pub(crate) use order::Order;
use std::collections::BTreeMap;

/// An event at a port or host that is not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalEvent {
    /// The order among events of the same instant, and the kind of event: see [`crate::slice::Sources`].
    pub(crate) source: u32,
    /// A value whose meaning depends on the source.
    pub(crate) data: u32,
}

/// `1 << GROUP_SHIFT` neighbours are visited together. Their state and their entries of one window fit into the cache
/// of a core.
const GROUP_SHIFT: u32 = 7;
/// Ports or hosts of a group.
pub(crate) const GROUP: usize = 1 << GROUP_SHIFT;

/// The largest number of windows in the ring; entries beyond it cost more.
const WINDOWS_MAX: u64 = 1024;

/// The source of an entry that stands for a visit to a stop.
const VISIT: u32 = u32::MAX;

/// Future entries, by window and group.
pub(crate) struct Calendar {
    /// Length of a window in ps.
    span: u64,
    /// 2^64 divided by `span`, rounded up. For dividends below `reach`, multiplying by it gives the exact quotient.
    inverse: u64,
    reach: u64,
    /// For stops below `early_stops`, windows begin and end `early` ps earlier.
    early_stops: u32,
    early: u64,
    /// Number of windows in the ring less one; the number is a power of two.
    mask: u64,
    groups: usize,
    /// By window, then group.
    ring: Vec<Batch>,
    /// By window of the ring: the number of batches with entries, plus the number of those with visits.
    due: Vec<u32>,
    /// The present window; all entries are in it or in later windows.
    window: u64,
    /// When it starts.
    start: u64,
    /// Entries beyond the ring, with their stops.
    far: BTreeMap<u64, Vec<(u32, Transit)>>,
    /// Memory of processed batches. The latest is reused first, because it is in the cache.
    spare: Spare,
}

impl Calendar {
    /// An empty calendar for `stops` ports and hosts, in windows of `span` ps (at most `u32::MAX`); the ring covers
    /// `ahead` ps. For the first `early.0` stops, windows begin and end `early.1` ps before those of the others.
    pub(crate) fn new(stops: usize, span: u64, ahead: u64, early: (u32, u64)) -> Calendar {
        let span = span.clamp(1, u64::from(u32::MAX));
        let windows = (ahead / span + 3).next_power_of_two().min(WINDOWS_MAX);
        let groups = stops.div_ceil(GROUP).max(1);
        // The multiplication is exact while the dividend times the span is below 2^64.
        let exact = span > 1 && u128::from(windows) * u128::from(span) * u128::from(span) < 1 << 64;
        Calendar {
            span,
            inverse: if exact { u64::MAX / span + 1 } else { 0 },
            reach: if exact { windows * span } else { 0 },
            early_stops: early.0,
            early: early.1,
            mask: windows - 1,
            groups,
            ring: vec![Batch::default(); windows as usize * groups],
            due: vec![0; windows as usize],
            window: 0,
            start: 0,
            far: BTreeMap::new(),
            spare: Spare::default(),
        }
    }

    /// Length of a window in ps.
    pub(crate) fn span(&self) -> u64 {
        self.span
    }

    /// The number of windows from the present one to the window of `time`, and the offset of `time` in that window.
    #[inline(always)]
    fn ahead(&self, time: u64, stop: u32) -> (u64, u32) {
        let time = time + self.early_of(stop);
        debug_assert!(time >= self.start, "{time} ps lies before window {}", self.window);
        let away = time - self.start;
        let windows = if away < self.reach {
            ((u128::from(away) * u128::from(self.inverse)) >> 64) as u64
        } else {
            away / self.span
        };
        (windows, (away - windows * self.span) as u32)
    }

    /// The index in the ring of the window that is `windows` ahead.
    #[inline]
    fn slot(&self, windows: u64) -> usize {
        ((self.window + windows) & self.mask) as usize
    }

    /// Adds an entry to its window and group.
    #[inline(always)]
    fn add(&mut self, time: u64, stop: u32, source: u32, entry: Transit) {
        let (windows, offset) = self.ahead(time, stop);
        let entry = entry.at(offset, source, (stop % GROUP as u32) as u8);
        if windows <= self.mask {
            let slot = self.slot(windows);
            let batch = &mut self.ring[slot * self.groups + (stop >> GROUP_SHIFT) as usize];
            batch.add(entry, &mut self.spare, &mut self.due[slot]);
        } else {
            self.add_far(windows, stop, entry.words());
        }
    }

    #[cold]
    fn add_far(&mut self, windows: u64, stop: u32, entry: [u64; 4]) {
        self.far.entry(self.window + windows).or_default().push((stop, Transit::of_words(entry)));
    }

    /// Adds a packet that arrives at a stop at `time`, in the present window or later.
    #[inline(always)]
    pub(crate) fn put(&mut self, time: u64, stop: u32, link: u32, packet: Transit) {
        self.add(time, stop, link, packet);
    }

    /// Adds another event at `time`, in the present window or later.
    pub(crate) fn note(&mut self, time: u64, stop: u32, source: u32, data: u32) {
        self.add(time, stop, source, Transit::note(source, data));
    }

    /// Adds a visit to a stop in the window of `time`, the present one or a later one.
    #[inline]
    pub(crate) fn visit(&mut self, time: u64, stop: u32) {
        let (windows, _) = self.ahead(time, stop);
        if windows <= self.mask {
            let slot = self.slot(windows);
            let batch = &mut self.ring[slot * self.groups + (stop >> GROUP_SHIFT) as usize];
            batch.visit(stop, &mut self.due[slot]);
        } else {
            self.add_far(windows, stop, Transit::note(VISIT, 0).words());
        }
    }

    /// The number of the window in which `time` lies.
    #[inline]
    pub(crate) fn window_of(&self, time: u64) -> u64 {
        time / self.span
    }

    /// The time by which a stop's windows begin and end before those of other stops, in ps.
    #[inline]
    pub(crate) fn early_of(&self, stop: u32) -> u64 {
        if stop < self.early_stops { self.early } else { 0 }
    }

    /// The time by which the windows of early stops begin and end before those of others, in ps.
    pub(crate) fn early(&self) -> u64 {
        self.early
    }

    /// When a window starts.
    #[inline]
    pub(crate) fn start_of(&self, window: u64) -> u64 {
        window * self.span
    }

    /// When the window of `time` ends.
    #[inline]
    pub(crate) fn end_of(&self, time: u64) -> u64 {
        self.start_of(self.window_of(time) + 1)
    }

    /// Has this window, which is not far ahead, entries or visits?
    pub(crate) fn is_due(&self, window: u64) -> bool {
        self.due[(window & self.mask) as usize] > 0
    }

    /// The first window that has entries or visits.
    pub(crate) fn next_window(&self) -> Option<u64> {
        let near = (0..=self.mask).find(|ahead| self.due[((self.window + ahead) & self.mask) as usize] > 0);
        let far = self.far.keys().next().copied();
        match near.map(|ahead| self.window + ahead) {
            Some(near) => Some(far.map_or(near, |far| near.min(far))),
            None => far,
        }
    }

    /// Moves on to `window`. There must be no entry before it.
    pub(crate) fn begin(&mut self, window: u64) {
        self.window = window;
        self.start = self.start_of(window);
        while let Some((&near, _)) = self.far.first_key_value().filter(|(w, _)| **w - window <= self.mask) {
            let slot = (near & self.mask) as usize;
            for (stop, entry) in self.far.remove(&near).unwrap_or_default() {
                let batch = &mut self.ring[slot * self.groups + (stop >> GROUP_SHIFT) as usize];
                if entry.source() == VISIT {
                    batch.visit(stop, &mut self.due[slot]);
                } else {
                    batch.add(entry, &mut self.spare, &mut self.due[slot]);
                }
            }
        }
    }

    /// Brings the first block of a group's batch of the present window into the cache.
    pub(crate) fn prefetch(&self, group: usize) {
        if group < self.groups {
            let batch = &self.ring[(self.window & self.mask) as usize * self.groups + group];
            batch.prefetch();
        }
    }

    /// Takes out a group's batch of the present window. `give_back` must follow, to reuse its memory.
    pub(crate) fn take(&mut self, group: usize) -> Batch {
        let slot = (self.window & self.mask) as usize;
        let batch = std::mem::take(&mut self.ring[slot * self.groups + group]);
        self.due[slot] -= batch.due();
        batch
    }

    /// Gives a batch from `take` back.
    #[inline]
    pub(crate) fn give_back(&mut self, batch: Batch) {
        self.spare.keep(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A switch's program may send several packets at one instant, and they share the place of one link.
    #[test]
    fn events_of_one_instant_and_source_keep_their_order_however_many_share_the_window() {
        for (count, stops) in [(20, 1), (100, 1), (2000, 1), (2000, 100)] {
            let mut calendar = Calendar::new(300, 4096, 8 * 4096, (0, 0));
            for data in 0..count {
                let time = 4096 + u64::from(data * 7919 % 5);
                calendar.note(time, data % stops, 3, data);
            }
            calendar.begin(1);
            let batch = calendar.take(0);
            let mut order = Order::default();
            order.arrange(&batch, 4096);
            for n in order.stops().iter().map(|&n| usize::from(n)) {
                let found: Vec<(u64, u32)> = order.of(n).iter().map(|e| (e.offset(), e.cargo())).collect();
                assert!(found.is_sorted(), "{count} events at {stops} stops, stop {n}: {found:?}");
            }
        }
    }

    /// The memory of an `Order` is shared by switches and groups, which arrive in any sequence.
    #[test]
    fn a_group_is_sorted_after_a_larger_switch_was() {
        let mut order = Order::default();
        for (count, one) in [(2000, true), (300, false), (50, true), (2000, false), (1, false)] {
            let mut calendar = Calendar::new(128, 4096, 8 * 4096, (0, 0));
            for data in 0..count {
                calendar.note(4096 + u64::from(data * 7919 % 4096), if one { 0 } else { data % 100 }, 3, data);
            }
            calendar.begin(1);
            let batch = calendar.take(0);
            let mut found = 0;
            if one {
                order.arrange_one(&batch, 4096);
                assert!(order.all().is_sorted_by_key(Transit::key));
                found = order.all().len();
            } else {
                order.arrange(&batch, 4096);
                for &n in order.stops() {
                    assert!(order.of(n.into()).iter().all(|e| e.place() == n));
                    assert!(order.of(n.into()).is_sorted_by_key(Transit::key));
                    found += order.of(n.into()).len();
                }
            }
            assert_eq!(found, count as usize);
        }
    }

    proptest! {
        #[test]
        fn everything_comes_out_in_its_window_in_order(
            span in prop::sample::select(vec![1u64, 7, 1000, 4096]),
            steps in prop::collection::vec((0u64..40_000, 0u32..300, 0u32..9, any::<bool>(), any::<bool>()), 1..1200),
        ) {
            let mut calendar = Calendar::new(300, span, 8 * span, (0, 0));
            let mut order = Order::default();
            let mut model: BTreeMap<u64, Vec<(u32, u64, u32)>> = BTreeMap::new();
            let mut visits: BTreeSet<(u64, u32)> = BTreeSet::new();
            let mut window = 0u64;
            for (delay, stop, source, is_visit, go_on) in steps {
                let time = calendar.start_of(window) + delay * span / 1000;
                let of = calendar.window_of(time);
                if is_visit && source % 2 == 0 {
                    calendar.visit(time, stop);
                    visits.insert((of, stop));
                } else {
                    calendar.note(time, stop, source, 7);
                    model.entry(of).or_default().push((stop, time, source));
                }
                if go_on && source < 2 {
                    let next = calendar.next_window();
                    let expected = model.keys().next().copied().into_iter().chain(visits.first().map(|v| v.0)).min();
                    prop_assert_eq!(next, expected);
                    window = next.unwrap_or(window);
                    calendar.begin(window);
                    let mut got = Vec::new();
                    for group in 0..calendar.groups {
                        let batch = calendar.take(group);
                        order.arrange(&batch, span);
                        for n in order.stops().iter().map(|&n| usize::from(n)) {
                            let stop = (group * GROUP + n) as u32;
                            let wanted = visits.remove(&(window, stop));
                            prop_assert!(wanted || !order.of(n).is_empty(), "nothing calls for a visit to {}", stop);
                            for entry in order.of(n) {
                                prop_assert_eq!(usize::from(entry.place()), n);
                                got.push((stop, calendar.start_of(window) + entry.offset(), entry.source()));
                            }
                        }
                        calendar.give_back(batch);
                    }
                    prop_assert!(visits.first().is_none_or(|v| v.0 > window), "a visit was left out");
                    let mut expected = model.remove(&window).unwrap_or_default();
                    expected.sort_unstable();
                    prop_assert_eq!(got, expected);
                }
            }
        }
    }
}

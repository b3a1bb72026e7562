//! The slots of a switch: their contents, their holders, and the time for which they are held.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use strandway_proto::aggregate::Counts;
use strandway_proto::units::{Span, Time};

/// A slot. Its elements are in the register with the same number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    /// The job in the upper half, the key's number on the wire in the lower half; 0 for an empty slot.
    pub(crate) key: u64,
    /// The workers of the rack in it, or the racks in it.
    pub(crate) bitmap: u32,
    /// The number of workers or racks of the complete sum.
    pub(crate) fan_in: u8,
    pub(crate) priority: u8,
    /// True if it adds racks, false if it adds workers.
    pub(crate) level: bool,
    pub(crate) congested: bool,
    pub(crate) elements: u16,
    /// The other fan-in in the headers of the key's fragments.
    pub(crate) fan_in_other: u8,
    /// The bitmap of racks for the header of the slot's sum.
    pub(crate) racks: u32,
    pub(crate) since: Time,
    pub(crate) touched: Time,
    /// When its priority was last halved.
    pub(crate) aged: Time,
}

/// Compares without times: two slots that will behave the same are equal.
impl PartialEq for Slot {
    fn eq(&self, other: &Slot) -> bool {
        self.state() == other.state()
    }
}

impl Eq for Slot {}

impl Hash for Slot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.state().hash(state);
    }
}

impl Slot {
    fn state(&self) -> (u64, u32, u32, [u8; 3], [bool; 2], u16) {
        let Slot { key, bitmap, racks, fan_in, fan_in_other, priority, level, congested, elements, .. } = *self;
        (key, bitmap, racks, [fan_in, fan_in_other, priority], [level, congested], elements)
    }

    pub(crate) fn job(&self) -> u16 {
        (self.key >> 32) as u16
    }

    pub(crate) fn number(&self) -> u32 {
        self.key as u32
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bitmap.count_ones() >= u32::from(self.fan_in)
    }
}

/// The `key` of a slot, from a job and a number.
pub(crate) fn tag(job: u16, number: u32) -> u64 {
    u64::from(job) << 32 | u64::from(number)
}

/// The number of slots that a job holds now, and over time.
#[derive(Clone, Debug, Default)]
struct Held {
    now: u32,
    since: Time,
    /// Slots times picoseconds, by interval.
    bins: Vec<u128>,
}

/// All slots of a switch.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    slots: Vec<Slot>,
    counts: BTreeMap<u16, Counts>,
    held: BTreeMap<u16, Held>,
    /// The largest number of slots of a job, if it is limited.
    limits: BTreeMap<u16, u32>,
    /// A slot without a new fragment for longer than this counts as idle.
    rtt: Span,
    every: Span,
}

impl PartialEq for Pool {
    fn eq(&self, other: &Pool) -> bool {
        self.slots == other.slots
    }
}

impl Eq for Pool {}

impl Hash for Pool {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.slots.hash(state);
    }
}

impl Pool {
    /// The base round trip.
    pub(crate) const fn rtt(&self) -> Span {
        self.rtt
    }

    /// `slots` empty slots. `every` is the interval of the slot occupancy series; zero for none.
    pub(crate) fn new(slots: u32, rtt: Span, every: Span) -> Pool {
        let (counts, held, limits) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Pool { slots: vec![Slot::default(); slots.max(1) as usize], counts, held, limits, rtt, every }
    }

    pub(crate) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn slot(&self, at: u32) -> &Slot {
        &self.slots[at as usize]
    }

    /// A slot, mutable. Only `install` and `clear` may change its key.
    pub(crate) fn slot_mut(&mut self, at: u32) -> &mut Slot {
        &mut self.slots[at as usize]
    }

    /// The number of slots that a job holds.
    pub(crate) fn held(&self, job: u16) -> u32 {
        self.held.get(&job).map_or(0, |held| held.now)
    }

    /// Limits a job to `slots_max` slots.
    pub(crate) fn limit(&mut self, job: u16, slots_max: u32) {
        self.limits.insert(job, slots_max);
    }

    /// May a job take one more slot?
    pub(crate) fn has_room(&self, job: u16) -> bool {
        self.limits.is_empty() || self.limits.get(&job).is_none_or(|&limit| self.held(job) < limit)
    }

    pub(crate) fn counts(&mut self, job: u16) -> &mut Counts {
        self.counts.entry(job).or_default()
    }

    /// A fragment joined a slot.
    pub(crate) fn mark_used(&mut self, now: Time, at: u32) {
        let slot = &mut self.slots[at as usize];
        let gap = now.since(slot.touched);
        slot.touched = now;
        let job = slot.job();
        if gap > self.rtt {
            self.counts.entry(job).or_default().idle_time += u128::from(gap.0 - self.rtt.0);
        }
    }

    /// A fragment takes an empty slot.
    pub(crate) fn install(&mut self, now: Time, at: u32, slot: Slot) {
        debug_assert_eq!(self.slots[at as usize].key, 0, "slot {at} is empty");
        self.hold(now, slot.job(), 1);
        self.slots[at as usize] = Slot { since: now, touched: now, ..slot };
    }

    /// Empties a slot.
    pub(crate) fn clear(&mut self, now: Time, at: u32) {
        let slot = self.slots[at as usize];
        if slot.key == 0 {
            return;
        }
        self.mark_used(now, at);
        self.counts.entry(slot.job()).or_default().slot_time += u128::from(now.since(slot.since).0);
        self.hold(now, slot.job(), -1);
        self.slots[at as usize] = Slot::default();
    }

    fn hold(&mut self, now: Time, job: u16, change: i32) {
        let every = self.every;
        let held = self.held.entry(job).or_default();
        held.accrue(now, every);
        held.now = held.now.saturating_add_signed(change);
    }

    /// Adds the counters up to `now`.
    pub(crate) fn count(&self, now: Time, into: &mut BTreeMap<u16, Counts>) {
        for (&job, counts) in &self.counts {
            *into.entry(job).or_default() += *counts;
        }
        for slot in self.slots.iter().filter(|slot| slot.key != 0) {
            let counts = into.entry(slot.job()).or_default();
            counts.slot_time += u128::from(now.since(slot.since).0);
            counts.idle_time += u128::from(now.since(slot.touched).0.saturating_sub(self.rtt.0));
        }
    }

    /// The average share of all slots that each job held, by interval.
    pub(crate) fn occupancy(&self) -> Vec<(u16, Vec<f64>)> {
        let whole = self.every.0 as f64 * self.slots.len() as f64;
        let share = |held: &Held| held.bins.iter().map(|&area| area as f64 / whole).collect();
        self.held.iter().map(|(&job, held)| (job, share(held))).collect()
    }
}

impl Held {
    fn accrue(&mut self, now: Time, every: Span) {
        if every == Span::ZERO || self.now == 0 {
            self.since = now;
            return;
        }
        while self.since < now {
            let bin = self.since.0 / every.0;
            let end = Time((bin + 1) * every.0).min(now);
            let bin = bin as usize;
            if bin >= self.bins.len() {
                self.bins.resize(bin + 1, 0);
            }
            self.bins[bin] += u128::from(end.since(self.since).0) * u128::from(self.now);
            self.since = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_counted_over_time_by_job() {
        let mut pool = Pool::new(4, Span(10), Span(100));
        let of = |job| Slot { key: tag(job, 1), fan_in: 2, bitmap: 1, ..Slot::default() };
        pool.install(Time(50), 0, of(1));
        pool.install(Time(100), 1, of(1));
        pool.install(Time(150), 2, of(2));
        pool.mark_used(Time(70), 0);
        pool.clear(Time(250), 0);
        pool.clear(Time(250), 1);
        pool.clear(Time(300), 2);
        let mut counts = BTreeMap::new();
        pool.count(Time(400), &mut counts);
        assert_eq!((counts[&1].slot_time, counts[&2].slot_time), (350, 150));
        // Twenty less ten, 180 less ten; 150 less ten.
        assert_eq!(counts[&1].idle_time, 10 + 170 + 140);
        assert_eq!(pool.occupancy(), [(1, vec![0.125, 0.5, 0.25]), (2, vec![0.0, 0.125, 0.25])]);
    }
}

//! The time series: what is looked at from time to time, without changing anything.

use super::Slice;
use crate::measure::GroupSeries;
use crate::plan::Plan;

/// Points of the time series of one slice.
pub(super) struct Sampler {
    /// The next point's instant; `u64::MAX` without a time series.
    pub(super) next: u64,
    every: u64,
    delivered: Vec<u64>,
    groups: Vec<GroupSeries>,
    /// Bytes that had left per group at the last point.
    left: Vec<u64>,
    /// The group of each port of the slice.
    group_of: Vec<u16>,
}

/// Points are no more than this; a longer run ends its series there.
const POINTS_MAX: usize = 1 << 20;

impl Sampler {
    pub(super) fn new(plan: &Plan) -> Sampler {
        let every = plan.sample_every.map_or(u64::MAX, |s| s.0.max(1));
        let groups = plan.topology.groups().len();
        Sampler {
            next: every,
            every,
            delivered: Vec::new(),
            groups: vec![GroupSeries::default(); groups],
            left: vec![0; groups],
            group_of: Vec::new(),
        }
    }

    /// New payload has arrived.
    pub(super) fn delivered(&mut self, now: u64, bytes: u64) {
        let point = (now / self.every) as usize;
        if point < POINTS_MAX {
            if self.delivered.len() <= point {
                self.delivered.resize(point + 1, 0);
            }
            self.delivered[point] += bytes;
        }
    }

    pub(super) fn take(&mut self) -> (Vec<u64>, Vec<GroupSeries>) {
        (std::mem::take(&mut self.delivered), std::mem::take(&mut self.groups))
    }
}

impl Slice<'_> {
    /// Takes every point that lies at or before `now`.
    #[cold]
    pub(super) fn sample_before(&mut self, now: u64) {
        while self.sampler.next <= now {
            let at = self.sampler.next;
            if self.sampler.groups[0].bytes.len() >= POINTS_MAX {
                self.sampler.next = u64::MAX;
                return;
            }
            self.sample(at);
            self.sampler.next = at.saturating_add(self.sampler.every);
        }
    }

    fn sample(&mut self, at: u64) {
        if self.sampler.group_of.is_empty() {
            let topology = &self.plan.topology;
            self.sampler.group_of = self
                .ports
                .iter()
                .map(|p| topology.ends(crate::LinkId(p.link)).map_or(u16::MAX, |e| topology.group_index(&e) as u16))
                .collect();
        }
        let groups = self.sampler.groups.len();
        let (mut left, mut queued, mut longest) = (vec![0u64; groups], vec![0u64; groups], vec![0u32; groups]);
        for i in 0..self.ports.len() {
            let group = usize::from(self.sampler.group_of[i]);
            if group >= groups {
                continue;
            }
            self.advance(i, at);
            left[group] += self.ports[i].counters.bytes;
            let waiting = self.waiting(i).0;
            queued[group] += waiting;
            longest[group] = longest[group].max(waiting as u32);
        }
        for (group, series) in self.sampler.groups.iter_mut().enumerate() {
            series.bytes.push(left[group] - self.sampler.left[group]);
            series.queued.push(queued[group]);
            series.queued_max.push(longest[group]);
        }
        self.sampler.left = left;
    }
}

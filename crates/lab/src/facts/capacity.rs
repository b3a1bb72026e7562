//! The capacity of links: the rate at each time, over the time in which the run was active.
//!
//! A degraded link counts as full when it carries all that it can at its reduced rate. A link that is down can carry
//! nothing.

use std::collections::BTreeMap;
use std::ops::Range;
use strandway_fabric::fault::FaultKind;
use strandway_fabric::measure::{End, LinkCounters};
use strandway_fabric::{LinkId, Measurements, Plan};
use strandway_proto::units::{Bytes, Span, Time};

/// The capacities of a plan's links.
pub(crate) struct Capacity<'a> {
    plan: &'a Plan,
    /// From the time at which the first flow is posted until the last flow finished. If a flow never did, until the
    /// last payload arrived.
    active: Range<u64>,
    /// Links below their full rate for some time: these times, and the share of the rate that remains.
    slow: BTreeMap<u32, Vec<(Range<u64>, f64)>>,
}

impl<'a> Capacity<'a> {
    pub(crate) fn new(plan: &'a Plan, measured: &Measurements) -> Capacity<'a> {
        let first = measured.flows.iter().filter_map(|f| f.started).min().unwrap_or_default();
        let last = if measured.end == End::Finished || measured.last_arrival == Time::ZERO {
            measured.simulated
        } else {
            measured.last_arrival
        };
        let mut slow: BTreeMap<u32, Vec<(Range<u64>, f64)>> = BTreeMap::new();
        for fault in &plan.faults {
            let left = match fault.kind {
                FaultKind::Down { .. } => 0.0,
                FaultKind::Degraded { fraction } => fraction,
                FaultKind::Loss { .. } | FaultKind::Denied => continue,
            };
            for link in &fault.links {
                slow.entry(link.0).or_default().push((fault.from.0..fault.until.0, left));
            }
        }
        Capacity { plan, active: first.0..last.0.max(first.0), slow }
    }

    /// True if the link was below its full rate, but not dead, while the run was active.
    pub(crate) fn is_slowed(&self, link: LinkId) -> bool {
        self.slow.get(&link.0).is_some_and(|pieces| {
            pieces.iter().any(|(range, left)| {
                *left > 0.0 && *left < 1.0 && range.start < self.active.end && range.end > self.active.start
            })
        })
    }

    /// Bytes that a link can carry in `range`.
    pub(crate) fn of(&self, link: LinkId, range: Range<u64>) -> f64 {
        let Some(ends) = self.plan.topology.ends(link) else { return 0.0 };
        let nominal = self.plan.topology.level_of(&ends).rate.0 as f64 / 8e12;
        let length = range.end.saturating_sub(range.start) as f64;
        let Some(pieces) = self.slow.get(&link.0) else { return nominal * length };
        // If faults overlap, the worst one counts.
        let mut edges: Vec<u64> = pieces.iter().flat_map(|(r, _)| [r.start, r.end]).collect();
        edges.extend([range.start, range.end]);
        edges.retain(|t| (range.start..=range.end).contains(t));
        edges.sort_unstable();
        edges.dedup();
        let left = |t: u64| pieces.iter().filter(|(r, _)| r.contains(&t)).map(|(_, left)| *left).fold(1.0, f64::min);
        edges.windows(2).map(|w| nominal * left(w[0]) * (w[1] - w[0]) as f64).sum()
    }

    /// Bytes carried divided by the link's capacity while the run was active. If a sender kept sending without success
    /// after that, the capacity is counted over the time in which the link was used.
    pub(crate) fn share(&self, link: LinkId, counters: &LinkCounters) -> f64 {
        let carried = Bytes(counters.bytes - counters.bytes_down);
        let share = used(carried, self.of(link, self.active.clone()));
        if share <= 1.0 {
            return share;
        }
        used(carried, self.of(link, self.active.start..self.active.end.max(counters.last.0)))
    }

    /// Capacity of a group of links in bytes, for each of `points` intervals of length `every`.
    pub(crate) fn of_group(&self, group: usize, links: u32, rate: u64, every: Span, points: usize) -> Vec<f64> {
        let full = rate as f64 / 8e12 * every.0 as f64 * f64::from(links);
        let mut could = vec![full; points];
        let topology = &self.plan.topology;
        for &link in self.slow.keys() {
            let Some(ends) = topology.ends(LinkId(link)).filter(|e| topology.group_index(e) == group) else { continue };
            let one = topology.level_of(&ends).rate.0 as f64 / 8e12 * every.0 as f64;
            for (i, could) in could.iter_mut().enumerate() {
                let from = i as u64 * every.0;
                *could -= one - self.of(LinkId(link), from..from + every.0);
            }
        }
        could
    }
}

/// Bytes carried divided by capacity; zero if there is no capacity.
pub(crate) fn used(bytes: Bytes, could: f64) -> f64 {
    if could > 0.0 { bytes.0 as f64 / could } else { 0.0 }
}

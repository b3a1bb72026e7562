//! The records and counters of a slice.

use super::watch::Sampler;
use crate::control::Control;
use crate::records::Records;
use strandway_fabric::measure::{Captured, FlowTime, PATH_SLOTS, PacketCounters, PathCounters};
use strandway_fabric::tally::Tally;
use strandway_proto::account::{Doing, Spent};
use strandway_proto::units::{Span, Time};

/// The time accounts of flows, without the times that are zero, which are most.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    /// Each flow with a bit for each time that is not zero: first the times of its connection, then its wait for others.
    flows: Vec<(u32, u16)>,
    spans: Vec<u64>,
}

impl Accounts {
    pub(super) fn push(&mut self, flow: u32, time: &FlowTime) {
        let spans = time.spent.0.iter().chain([&time.behind]).map(|span| span.0);
        let mut bits = 0;
        for (place, span) in spans.enumerate().filter(|(_, span)| *span != 0) {
            bits |= 1 << place;
            self.spans.push(span);
        }
        self.flows.push((flow, bits));
    }

    /// Calls `each` with every account, in the order in which they were added.
    pub(crate) fn each(&self, mut each: impl FnMut(u32, FlowTime)) {
        let mut spans = self.spans.iter().copied();
        for &(flow, bits) in &self.flows {
            let mut take = |place: usize| Span(if bits >> place & 1 == 1 { spans.next().unwrap_or(0) } else { 0 });
            let spent = Spent(std::array::from_fn(&mut take));
            each(flow, FlowTime { behind: take(Doing::COUNT), spent });
        }
    }
}

/// Everything that a slice measures, apart from the counters of ports and connections.
pub(crate) struct Recorder<'a> {
    /// The rows of all flows; hosts of all slices write into them.
    pub(super) records: &'a Records,
    /// For messages without a row: the results by collective.
    pub(crate) tallies: Vec<Tally>,
    /// The time accounts of the flows that ended.
    pub(crate) times: Accounts,
    pub(crate) packets: PacketCounters,
    pub(crate) paths: Vec<PathCounters>,
    pub(crate) captured: Vec<Captured>,
    pub(crate) hops: u64,
    /// The packets that were handed over to other slices.
    pub(crate) crossed: u64,
    /// The hops that [`Recorder::hops_since`] has told.
    told: u64,
    /// The numbers of whole and of trimmed packets that switches made by copying.
    pub(crate) copies: [u64; 2],
    /// The number of finished messages, and when the last one finished.
    pub(crate) finished: u64,
    pub(crate) finished_at: u64,
    /// The finished messages and hops that were reported as progress.
    reported: (u64, u64),
    pub(super) sampler: Sampler,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(
        records: &'a Records,
        collectives: usize,
        rows: bool,
        planes: u8,
        sampler: Sampler,
    ) -> Recorder<'a> {
        Recorder {
            records,
            tallies: vec![Tally::new(rows); collectives],
            times: Accounts::default(),
            packets: PacketCounters::default(),
            paths: vec![PathCounters::default(); usize::from(planes) * PATH_SLOTS],
            captured: Vec::new(),
            hops: 0,
            crossed: 0,
            told: 0,
            copies: [0; 2],
            finished: 0,
            finished_at: 0,
            reported: (0, 0),
            sampler,
        }
    }

    /// The hops since the last call.
    pub(crate) fn hops_since(&mut self) -> u64 {
        self.hops - std::mem::replace(&mut self.told, self.hops)
    }

    /// Reports the progress up to `now` to `control`.
    pub(super) fn report(&mut self, now: u64, control: &Control) {
        control.reached(Time(now));
        control.add(self.finished - self.reported.0, self.hops - self.reported.1);
        self.reported = (self.finished, self.hops);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn accounts_are_kept_as_they_are(
            all in prop::collection::vec((any::<u32>(), prop::array::uniform12(prop_oneof![Just(0u64), any::<u64>()])), 0..20)
        ) {
            let all: Vec<(u32, FlowTime)> = all.into_iter().map(|(flow, spans)| {
                let spent = Spent(std::array::from_fn(|place| Span(spans[place])));
                (flow, FlowTime { behind: Span(spans[11]), spent })
            }).collect();
            let mut kept = Accounts::default();
            all.iter().for_each(|(flow, time)| kept.push(*flow, time));
            let mut back = Vec::new();
            kept.each(|flow, time| back.push((flow, time)));
            prop_assert_eq!(back, all);
        }
    }
}

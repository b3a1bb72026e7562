//! The fault plan, sorted by link and by time.

use crate::detour::Change;
use std::collections::BTreeMap;
use std::ops::Range;
use strandway_fabric::fault::FaultKind;
use strandway_fabric::loss::{Burst, LossProcess};
use strandway_fabric::plan::Plan;
use strandway_fabric::topology::LinkId;
use strandway_proto::rng::Random;
use strandway_proto::units::Time;

/// An instant at which something begins or ends for a port.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FaultEvent {
    /// A port's rate becomes this fraction of its nominal one.
    Rate(LinkId, f64),
    /// A port's own NIC or switch learns that its link is down, or up again.
    Seen(LinkId, bool),
    /// At the host that feeds this link: the controller denies (true) or allows every entropy value whose path crosses
    /// the links of the plan's fault with this index.
    Ordered(LinkId, u32, bool),
}

impl FaultEvent {
    /// The link whose port it affects.
    pub(crate) fn link(self) -> LinkId {
        match self {
            FaultEvent::Rate(link, _) | FaultEvent::Seen(link, _) | FaultEvent::Ordered(link, ..) => link,
        }
    }
}

/// All faults of a plan.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(super) links: BTreeMap<u32, LinkFaults>,
    /// Fault events of ports, in order of time.
    pub(super) events: Vec<(u64, FaultEvent)>,
    /// Changes of routing's knowledge of dead links, in order of time.
    pub(super) routing: Vec<Change>,
}

impl Faults {
    pub(crate) fn new(plan: &Plan) -> Faults {
        let mut faults = Faults::default();
        for (fault, index) in plan.faults.iter().zip(0..) {
            let range = fault.from.0..fault.until.0;
            for &link in &fault.links {
                match fault.kind {
                    FaultKind::Down { visible } => {
                        faults.links.entry(link.0).or_default().down.push(range.clone());
                        if let Some(delay) = visible {
                            faults.events.push((range.start, FaultEvent::Seen(link, true)));
                            faults.events.push((range.end, FaultEvent::Seen(link, false)));
                            faults.routing.push((range.start.saturating_add(delay.0), link, true));
                            faults.routing.push((range.end.saturating_add(delay.0), link, false));
                        }
                    }
                    FaultKind::Degraded { fraction } => {
                        faults.events.push((range.start, FaultEvent::Rate(link, fraction)));
                        faults.events.push((range.end, FaultEvent::Rate(link, 1.0)));
                    }
                    FaultKind::Loss { probability, burst } => {
                        let loss = Loss::new(range.clone(), probability, burst);
                        faults.links.entry(link.0).or_default().loss.push(loss);
                    }
                    FaultKind::Denied => {}
                }
            }
            if fault.kind == FaultKind::Denied {
                let planes = u32::from(plan.topology.planes());
                for link in (0..plan.topology.hosts()).map(|host| LinkId(host * planes)) {
                    // Denials from the start are in force before the first packet: see `Slice::make_hosts`.
                    if range.start > 0 {
                        faults.events.push((range.start, FaultEvent::Ordered(link, index, true)));
                    }
                    faults.events.push((range.end, FaultEvent::Ordered(link, index, false)));
                }
            }
        }
        faults.events.retain(|(time, _)| *time != u64::MAX);
        faults.events.sort_by_key(|(time, _)| *time);
        faults.routing.retain(|(time, ..)| *time != u64::MAX);
        faults.routing.sort_by_key(|(time, ..)| *time);
        faults.links.values_mut().for_each(LinkFaults::arrange);
        faults
    }
}

/// The times at which a faulty link delivers nothing, or loses some packets. Callers ask in the order in which packets
/// leave, so periods that are over are never checked again.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkFaults {
    /// In order, without overlap.
    down: Vec<Range<u64>>,
    /// In order of their beginnings.
    loss: Vec<Loss>,
    /// The numbers of `down` and `loss` periods that are over.
    down_over: usize,
    loss_over: usize,
}

/// Random losses of a link.
#[derive(Clone, Debug)]
struct Loss {
    range: Range<u64>,
    /// Its place in the plan; of several at the same time, the first applies.
    number: usize,
    process: LossProcess,
}

impl Loss {
    fn new(range: Range<u64>, probability: f64, burst: Burst) -> Loss {
        Loss { range, number: 0, process: LossProcess::new(probability, burst) }
    }
}

impl LinkFaults {
    /// Sorts the periods, which were added in the plan's order.
    fn arrange(&mut self) {
        self.down.sort_by_key(|r| (r.start, r.end));
        let mut apart: Vec<Range<u64>> = Vec::with_capacity(self.down.len());
        for range in self.down.drain(..) {
            match apart.last_mut().filter(|last| range.start < last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => apart.push(range),
            }
        }
        self.down = apart;
        for (number, loss) in self.loss.iter_mut().enumerate() {
            loss.number = number;
        }
        self.loss.sort_by_key(|l| l.range.start);
    }

    /// Is the link down at some time between `start` and `end`, while a packet is on it? Must be called in the order in
    /// which packets leave.
    pub(super) fn cuts(&mut self, start: u64, end: u64) -> bool {
        while self.down.get(self.down_over).is_some_and(|r| r.end <= start) {
            self.down_over += 1;
        }
        self.down.get(self.down_over).is_some_and(|r| r.start < end)
    }

    /// Is a packet that leaves at `start` lost at random? Must be called in the order in which packets leave.
    pub(super) fn loses(&mut self, start: u64, random: &mut Random) -> bool {
        while self.loss.get(self.loss_over).is_some_and(|l| l.range.end <= start) {
            self.loss_over += 1;
        }
        let begun = self.loss[self.loss_over..].iter_mut().take_while(|l| l.range.start <= start);
        let Some(loss) = begun.filter(|l| start < l.range.end).min_by_key(|l| l.number) else { return false };
        loss.process.loses(Time(start), random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use strandway_proto::rng::StreamKind;

    proptest! {
        #[test]
        fn looking_on_from_what_is_over_finds_what_looking_through_all_finds(
            ranges in prop::collection::vec((0u64..60, 0u64..12, any::<bool>()), 0..12),
            steps in prop::collection::vec((0u64..6, 0u64..9), 1..40),
        ) {
            let mut faults = LinkFaults::default();
            let down: Vec<Range<u64>> = ranges.iter().filter(|r| r.2).map(|r| r.0..r.0 + r.1).collect();
            let lossy: Vec<Range<u64>> = ranges.iter().filter(|r| !r.2).map(|r| r.0..r.0 + r.1).collect();
            faults.down = down.clone();
            // Every second one loses all.
            faults.loss = lossy.iter().enumerate().map(|(n, r)| Loss::new(r.clone(), (n % 2) as f64, Burst::NONE)).collect();
            faults.arrange();
            let mut random = Random::new(1, StreamKind::Port, 0);
            let mut start = 0;
            for (later, length) in steps {
                start += later;
                let end = start + length;
                prop_assert_eq!(faults.cuts(start, end), down.iter().any(|r| r.start < end && start < r.end));
                let first = lossy.iter().position(|r| r.contains(&start));
                prop_assert_eq!(faults.loses(start, &mut random), first.is_some_and(|n| n % 2 == 1));
            }
        }
    }
}

//! Clustermapper as a program of the simulator: agents on all hosts probe every cable at fixed intervals, and the
//! controller denies the paths across a cable that loses probes, and allows them again when it works.
//!
//! Source: Araujo et al., arXiv 2605.04333, sections 2.4 and 3. The plan of a run says when each cable is faulty, so the
//! verdicts follow from it, and the simulator gets them as denials ([`FaultKind::Denied`]). A host's agent probes its own
//! cable to each plane's T0 and back, and its share of the T0's cables to T1s and back: the agent of the `d`th host below
//! a T0 those to uplinks `d`, `d + D`, and so on, of `D` hosts. Switches forward the probes without their control planes.

use crate::fault::{FaultKind, FaultPlan};
use crate::loss::LossProcess;
use crate::topology::{LinkId, NodeId, Topology};
use std::collections::BTreeMap;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Span, Time};

/// The settings of Clustermapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapper {
    /// Each cable is probed once in this time.
    pub period: Span,
    /// A cable is denied when this many of its last `window` probes were lost.
    pub misses: u32,
    /// See `misses`; at most 64.
    pub window: u32,
    /// A denied cable is allowed again when this many probes in a row came back; at most 64.
    pub successes: u32,
    /// The time from the end of a probe's period until all senders obey.
    pub delay: Span,
}

impl Default for Mapper {
    fn default() -> Mapper {
        Mapper { period: Span::from_ms(1), misses: 3, window: 10, successes: 10, delay: Span::from_us(100) }
    }
}

/// A cable whose paths were denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Its direction away from the hosts.
    pub link: LinkId,
    /// When all senders obey.
    pub from: Time,
    /// When they use it again; [`Time::NEVER`] if it does not recover within the run.
    pub until: Time,
}

impl Denial {
    /// The denial as a fault plan, for both directions of the cable.
    pub fn plan(&self, topology: &Topology) -> FaultPlan {
        let reverse = topology.ends(self.link).map(|ends| ends.reverse);
        let links = std::iter::once(self.link).chain(reverse).collect();
        FaultPlan { links, kind: FaultKind::Denied, from: self.from, until: self.until }
    }
}

/// A fault of one direction of a cable.
#[derive(Clone, Debug)]
struct CableFault {
    from: Time,
    until: Time,
    /// `None`: it is down.
    loss: Option<LossProcess>,
}

/// A cable with faults.
#[derive(Clone, Debug, Default)]
struct Cable {
    faults: Vec<CableFault>,
}

impl Cable {
    /// Does a probe at `now` come back over this cable? Asked in order of time.
    fn passes(&mut self, now: Time, random: &mut Random) -> bool {
        let mut passes = true;
        for fault in self.faults.iter_mut().filter(|t| t.from <= now && now < t.until) {
            passes &= fault.loss.as_mut().is_some_and(|loss| !loss.loses(now, random));
        }
        passes
    }

    /// The first instant from `now` on at which it may be faulty.
    fn next_fault(&self, now: Time) -> Option<Time> {
        self.faults.iter().filter(|t| t.until > now).map(|t| t.from.max(now)).min()
    }
}

/// The number of probes that [`Mapper::denials`] plays through for these faults, at most.
fn probes(cables: usize, limit: Time, period: Span) -> u64 {
    cables as u64 * (limit.0 / period.0.max(1) + 1)
}

/// More probes than this are not played through. Ours: a second of computing.
pub const PROBES_MAX: u64 = 20_000_000;

impl Mapper {
    /// The denials that follow from these faults until `limit`, in order of their cables and times. `None` if that takes
    /// more than [`PROBES_MAX`] probes.
    pub fn denials(&self, topology: &Topology, faults: &[FaultPlan], limit: Time, seed: u64) -> Option<Vec<Denial>> {
        let mut cables: BTreeMap<LinkId, Cable> = BTreeMap::new();
        for fault in faults {
            let loss = match fault.kind {
                FaultKind::Down { .. } => None,
                FaultKind::Loss { probability, burst } => Some(LossProcess::new(probability, burst)),
                FaultKind::Degraded { .. } | FaultKind::Denied => continue,
            };
            for &link in &fault.links {
                let Some(ends) = topology.ends(link) else { continue };
                let up = if ends.up { link } else { ends.reverse };
                let fault = CableFault { from: fault.from, until: fault.until, loss: loss.clone() };
                cables.entry(up).or_default().faults.push(fault);
            }
        }
        if probes(cables.len(), limit, self.period) > PROBES_MAX {
            return None;
        }
        let hosts = hosts_below(topology, &cables);
        let mut all = Vec::new();
        for (&link, cable) in &cables {
            let agent = agent(topology, &hosts, link);
            // The agent's own cable, if this one lies above it: its losses say nothing about this one.
            let own = agent.filter(|own| *own != link).and_then(|own| cables.get(&own)).cloned();
            let random = Random::new(seed, StreamKind::Fault, 1 << 40 | u64::from(link.0));
            // Agents begin at different times, spread over a period.
            let offset = Span(random.clone().next_u64() % self.period.0.max(1));
            self.watch(link, (cable.clone(), own), Time::ZERO + offset, limit, random, &mut all);
        }
        Some(all)
    }

    /// Plays through the probes of one cable.
    fn watch(
        &self,
        link: LinkId,
        (mut cable, mut own): (Cable, Option<Cable>),
        first: Time,
        limit: Time,
        mut random: Random,
        all: &mut Vec<Denial>,
    ) {
        let (mut lost, mut whole) = (0u64, u64::MAX);
        let mask = |count: u32| if count >= 64 { u64::MAX } else { (1 << count) - 1 };
        let mut denied: Option<Time> = None;
        let mut now = first;
        while now < limit {
            if denied.is_none() && lost == 0 {
                // Nothing changes until the next fault begins.
                let Some(next) = cable.next_fault(now) else { return };
                let periods = next.since(now).0.div_ceil(self.period.0);
                now = now + self.period * periods;
            }
            let is_known = own.as_mut().is_none_or(|own| own.passes(now, &mut random));
            if is_known {
                let passes = cable.passes(now, &mut random);
                lost = (lost << 1 | u64::from(!passes)) & mask(self.window);
                whole = whole << 1 | u64::from(passes);
                let verdict = now + self.period + self.delay;
                match denied {
                    None if lost.count_ones() >= self.misses => {
                        denied = Some(verdict);
                        all.push(Denial { link, from: verdict, until: Time::NEVER });
                    }
                    Some(_) if whole & mask(self.successes) == mask(self.successes) => {
                        denied = None;
                        lost = 0;
                        if let Some(denial) = all.last_mut() {
                            denial.until = verdict;
                        }
                    }
                    _ => {}
                }
            }
            now = now + self.period;
        }
    }
}

/// The cables of the hosts below each leaf with a faulty cable, in order.
fn hosts_below(topology: &Topology, cables: &BTreeMap<LinkId, Cable>) -> BTreeMap<NodeId, Vec<LinkId>> {
    let level_of = |link: LinkId| topology.ends(link).map(|ends| (ends.level, ends.from));
    let mut below: BTreeMap<NodeId, Vec<LinkId>> = cables
        .keys()
        .filter_map(|&link| level_of(link))
        .filter(|(level, _)| *level == 1)
        .map(|(_, leaf)| (leaf, Vec::new()))
        .collect();
    if below.is_empty() {
        return below;
    }
    for link in (0..topology.hosts() * u32::from(topology.planes())).map(LinkId) {
        if let Some(hosts) = topology.ends(link).and_then(|ends| below.get_mut(&ends.to)) {
            hosts.push(link);
        }
    }
    below
}

/// The cable of the host whose agent probes this one, in the same plane; `None` if no single agent does (cables between
/// the upper tiers).
fn agent(topology: &Topology, hosts: &BTreeMap<NodeId, Vec<LinkId>>, link: LinkId) -> Option<LinkId> {
    let ends = topology.ends(link)?;
    match ends.level {
        0 => Some(link),
        1 => {
            let hosts = hosts.get(&ends.from).filter(|hosts| !hosts.is_empty())?;
            let uplink = link.0.saturating_sub(topology.ports_of(ends.from).0.0) as usize;
            hosts.get(uplink % hosts.len()).copied()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::Burst;
    use crate::topology::{Level, Shape};
    use strandway_proto::units::Rate;

    /// 16 hosts on two planes, four below each leaf, four spines in each plane.
    fn fabric() -> Topology {
        let shape = Shape { hosts: 16, planes: 2, hosts_per_leaf: 4, spines: 4, leaf_bundle: 1, pods: None };
        let level = Level { rate: Rate::from_gbps(100), latency: Span::from_us(1) };
        Topology::new(shape, [level; 3], [Span::ZERO; 3]).expect("a valid shape")
    }

    fn between(topology: &Topology, from: &str, to: &str) -> LinkId {
        let node = |name: &str| topology.node_named(name).expect("a node");
        topology.links_between(node(from), node(to))[0]
    }

    const MAPPER: Mapper =
        Mapper { period: Span::from_us(10), misses: 3, window: 10, successes: 5, delay: Span::from_us(2) };

    fn down(links: &[LinkId], from: u64, until: u64) -> FaultPlan {
        let (from, until) = (Time::ZERO + Span::from_us(from), Time::ZERO + Span::from_us(until));
        FaultPlan { links: links.to_vec(), kind: FaultKind::Down { visible: None }, from, until }
    }

    fn found(topology: &Topology, faults: &[FaultPlan]) -> Vec<Denial> {
        MAPPER.denials(topology, faults, Time::ZERO + Span::from_ms(2), 1).expect("few probes")
    }

    #[test]
    fn a_cable_is_denied_after_three_periods_and_allowed_after_five() {
        let topology = fabric();
        let up = between(&topology, "leaf0.p1", "spine2.p1");
        let reverse = topology.ends(up).expect("a link").reverse;
        // One direction is enough, since probes go there and back.
        for link in [up, reverse] {
            let denials = found(&topology, &[down(&[link], 100, 500)]);
            assert_eq!(denials.len(), 1, "{denials:?}");
            let Denial { link, from, until } = denials[0];
            assert_eq!(link, up);
            // Three probes within 100 to 130 us, and 12 us for the last one's verdict and its way.
            assert!((132.0..=142.0).contains(&from.as_us()), "{from}");
            assert!((552.0..=562.0).contains(&until.as_us()), "{until}");
            assert_eq!(denials[0].plan(&topology).links, [up, reverse]);
        }
    }

    #[test]
    fn a_dead_switch_loses_all_its_cables_and_a_dead_port_only_itself() {
        let topology = fabric();
        let spine: Vec<LinkId> =
            (0..4).map(|leaf| between(&topology, &format!("leaf{leaf}.p0"), "spine1.p0")).collect();
        let denials = found(&topology, &[down(&spine, 100, 2_000)]);
        assert_eq!(denials.iter().map(|d| d.link).collect::<Vec<_>>(), spine);
        assert!(denials.iter().all(|d| d.until == Time::NEVER));
        // The agents behind the port test nothing, and accuse nothing but the port.
        let port = LinkId(2 * 2);
        assert_eq!(topology.ends(port).expect("a port").from, NodeId(2));
        let above = between(&topology, "leaf0.p0", "spine2.p0");
        let denials = found(&topology, &[down(&[port], 100, 500), down(&[above], 150, 400)]);
        assert_eq!(denials.iter().map(|d| d.link).collect::<Vec<_>>(), [port]);
    }

    #[test]
    fn a_cable_that_loses_many_packets_is_found_and_one_that_loses_few_is_not() {
        let topology = fabric();
        let link = between(&topology, "leaf1.p0", "spine0.p0");
        let lossy = |probability| {
            let kind = FaultKind::Loss { probability, burst: Burst::NONE };
            let faults = [FaultPlan { links: vec![link], kind, from: Time::ZERO, until: Time::NEVER }];
            MAPPER.denials(&topology, &faults, Time::ZERO + Span::from_ms(20), 1).expect("few probes").len()
        };
        assert!(lossy(0.3) > 0);
        assert_eq!(lossy(0.001), 0);
    }

    #[test]
    fn nothing_is_found_where_nothing_is_broken_and_long_runs_are_refused() {
        let topology = fabric();
        let slow = FaultPlan {
            links: vec![LinkId(0)],
            kind: FaultKind::Degraded { fraction: 0.1 },
            from: Time::ZERO,
            until: Time::NEVER,
        };
        assert_eq!(found(&topology, &[slow]), []);
        assert_eq!(MAPPER.denials(&topology, &[down(&[LinkId(0)], 0, 1)], Time(u64::MAX / 2), 1), None);
    }
}

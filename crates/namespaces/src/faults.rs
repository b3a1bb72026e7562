//! A scenario's faults as failures of a fabric of namespaces, in order of time.

use crate::failure::{Failures, Loss, Place, Target, WHOLE};
use crate::{LinuxFabric, Node};
use std::collections::BTreeSet;
use strandway_fabric::fault::{FaultKind, FaultPlan};
use strandway_fabric::loss::Burst;
use strandway_fabric::topology::NodeKind;
use strandway_fabric::{LinkId, NodeId, Topology};
use strandway_proto::Time;

/// The set of failures from one instant on.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// When, from the start of the run.
    pub at: Time,
    /// All failures from then on.
    pub broken: Failures,
}

/// The moments at which the set of failures changes.
///
/// # Errors
/// If namespaces cannot produce a fault of this kind; the text says which faults they can.
pub fn moments(fabric: &LinuxFabric, topology: &Topology, faults: &[FaultPlan]) -> Result<Vec<Moment>, String> {
    let mut spans = Vec::new();
    for fault in faults {
        // The controller's denials are for the nodes, not for the links.
        if fault.kind != FaultKind::Denied {
            spans.push((fault.from, fault.until, targets(fabric, topology, fault)?));
        }
    }
    let times: BTreeSet<Time> = spans.iter().flat_map(|s| [s.0, s.1]).filter(|&t| t != Time::NEVER).collect();
    let broken = |at: Time| {
        let present = spans.iter().filter(|s| s.0 <= at && at < s.1).flat_map(|s| &s.2);
        present.fold(Failures::default(), |failures, &target| failures.with(target))
    };
    Ok(times.into_iter().map(|at| Moment { at, broken: broken(at) }).collect())
}

fn targets(fabric: &LinuxFabric, topology: &Topology, fault: &FaultPlan) -> Result<Vec<Target>, String> {
    let long = |link: &&LinkId| topology.ends(**link).is_some_and(|ends| topology.long_link_of(&ends).is_some());
    if let Some(&link) = fault.links.iter().find(long) {
        return Err(format!(
            "faults: {} is a long link; between namespaces it loses packets all the time or never: write fabric.loss",
            topology.link_name(link)
        ));
    }
    match fault.kind {
        FaultKind::Down { visible } => broken_links(topology, &fault.links, visible.is_some()),
        FaultKind::Loss { probability: 0.0, .. } => Ok(Vec::new()),
        FaultKind::Loss { burst: Burst::Time(length), .. } => Err(format!(
            "faults: bursts that last for a time ({length}) are not possible at a namespace's port; write `burst` as a number of packets"
        )),
        FaultKind::Loss { probability, burst: Burst::Packets(length) } => {
            let loss = Loss { ppm: millionths(probability), run: (length * 1_000.0).round() as u32 };
            Ok(ways(topology, &fault.links).into_iter().map(|place| Target::Loss(place, loss)).collect())
        }
        FaultKind::Denied => Ok(Vec::new()),
        FaultKind::Degraded { .. } if fabric.host_rate.is_none() => {
            Err("faults: `degrade` needs ports with a rate; leave --unshaped out".into())
        }
        FaultKind::Degraded { fraction } if millionths(fraction) == WHOLE => Ok(Vec::new()),
        FaultKind::Degraded { fraction } => {
            let share = millionths(fraction);
            Ok(ways(topology, &fault.links).into_iter().map(|place| Target::Degrade(place, share)).collect())
        }
    }
}

fn millionths(share: f64) -> u32 {
    ((share * f64::from(WHOLE)).round() as u32).max(1)
}

fn broken_links(topology: &Topology, links: &[LinkId], visible: bool) -> Result<Vec<Target>, String> {
    let all: BTreeSet<u32> = links.iter().map(|link| link.0).collect();
    let mut targets = Vec::new();
    for ends in links.iter().filter_map(|&link| topology.ends(link)).filter(|ends| ends.up) {
        let (below, above) = (node(topology, ends.from), node(topology, ends.to));
        targets.push(match below {
            Node::Host(host) if visible => Target::Port(host, ends.plane),
            _ => Target::Link(below, above),
        });
    }
    let alone = links.iter().find(|&&link| topology.ends(link).is_some_and(|ends| !all.contains(&ends.reverse.0)));
    match alone {
        Some(&link) => Err(format!(
            "faults: {} alone: links of namespaces break in both directions; name both",
            topology.link_name(link)
        )),
        None => Ok(targets),
    }
}

/// Links and single directions of links.
fn ways(topology: &Topology, links: &[LinkId]) -> Vec<Place> {
    let all: BTreeSet<u32> = links.iter().map(|link| link.0).collect();
    let mut places = Vec::new();
    for ends in all.iter().filter_map(|&link| topology.ends(LinkId(link))) {
        let (from, to) = (node(topology, ends.from), node(topology, ends.to));
        // If the fault strikes the other direction as well, both are one link.
        match (all.contains(&ends.reverse.0), ends.up) {
            (true, true) => places.push(Place::Link(from, to)),
            (true, false) => {}
            (false, _) => places.push(Place::Way(from, to)),
        }
    }
    places
}

/// A node of the simulator's fabric as one of ours.
pub(super) fn node(topology: &Topology, node: NodeId) -> Node {
    let (kind, index, plane) = topology.describe(node);
    match kind {
        NodeKind::Host => Node::Host(index as u16),
        NodeKind::Leaf => Node::T0(plane, index as u16),
        NodeKind::Spine => Node::T1(plane, index as u16),
        NodeKind::Core => Node::T2(plane, index as u16),
    }
}

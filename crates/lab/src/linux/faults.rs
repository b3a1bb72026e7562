//! A scenario's faults as failures of a fabric of namespaces, in order of time.

use crate::linux::{Failures, LinuxFabric, Node, Target};
use std::collections::BTreeSet;
use strandway_proto::Time;
use strandway_sim::fault::{FaultKind, FaultPlan};
use strandway_sim::topology::NodeKind;
use strandway_sim::{LinkId, NodeId, Topology};

/// What is broken from an instant on.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// When, from the start of the run.
    pub at: Time,
    /// Everything that is broken from then on.
    pub broken: Failures,
}

/// The moments at which what is broken changes.
///
/// # Errors
/// If a fault is of a kind that namespaces cannot suffer; with what they can.
pub fn moments(fabric: &LinuxFabric, topology: &Topology, faults: &[FaultPlan]) -> Result<Vec<Moment>, String> {
    let mut spans = Vec::new();
    for fault in faults {
        spans.push((fault.from, fault.until, targets(fabric, topology, fault)?));
    }
    let times: BTreeSet<Time> = spans.iter().flat_map(|s| [s.0, s.1]).filter(|&t| t != Time::NEVER).collect();
    let broken = |at: Time| {
        let present = spans.iter().filter(|s| s.0 <= at && at < s.1).flat_map(|s| &s.2);
        present.fold(Failures::default(), |failures, &target| failures.with(target))
    };
    Ok(times.into_iter().map(|at| Moment { at, broken: broken(at) }).collect())
}

fn targets(fabric: &LinuxFabric, topology: &Topology, fault: &FaultPlan) -> Result<Vec<Target>, String> {
    match fault.kind {
        FaultKind::Down { visible } => broken_links(topology, &fault.links, visible.is_some()),
        FaultKind::Loss { probability, burst } if burst <= 1.0 => lossy_planes(fabric, topology, fault, probability),
        FaultKind::Loss { .. } => {
            Err("faults: namespaces lose packets one by one, not in bursts; leave `burst` out".into())
        }
        FaultKind::Degraded { .. } => Err(
            "faults: the rate of a port of namespaces does not change while it runs; `down`, `flap` and `loss` work"
                .into(),
        ),
    }
}

fn broken_links(topology: &Topology, links: &[LinkId], visible: bool) -> Result<Vec<Target>, String> {
    let all: BTreeSet<u32> = links.iter().map(|link| link.0).collect();
    let mut targets = Vec::new();
    for ends in links.iter().filter_map(|&link| topology.ends(link)).filter(|ends| ends.up) {
        let (below, above) = (node(topology, ends.from)?, node(topology, ends.to)?);
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

/// Loss is that of everything that comes in at a plane's switches.
fn lossy_planes(
    fabric: &LinuxFabric,
    topology: &Topology,
    fault: &FaultPlan,
    probability: f64,
) -> Result<Vec<Target>, String> {
    let struck: BTreeSet<u32> = fault.links.iter().map(|link| link.0).collect();
    let ppm = (probability * 1e6).round() as u32;
    let mut targets = Vec::new();
    let mut covered = 0;
    for plane in 0..fabric.planes {
        let mine = |link: u32| topology.ends(LinkId(link)).filter(|ends| ends.plane == plane);
        let wanted: Vec<u32> =
            (0..topology.links()).filter(|&link| mine(link).is_some_and(|ends| ends.up || ends.level > 0)).collect();
        if wanted.iter().all(|link| struck.contains(link)) {
            covered += struck.iter().filter(|&&link| mine(link).is_some()).count();
            targets.push(Target::Loss(Some(plane), ppm));
        }
    }
    if covered == struck.len() {
        return Ok(targets);
    }
    Err("faults: namespaces lose packets at all switches of a plane alike; name whole planes (`plane = 0`)".into())
}

fn node(topology: &Topology, node: NodeId) -> Result<Node, String> {
    let (kind, index, plane) = topology.describe(node);
    Ok(match kind {
        NodeKind::Host => Node::Host(index as u16),
        NodeKind::Leaf => Node::T0(plane, index as u16),
        NodeKind::Spine => Node::T1(plane, index as u16),
        NodeKind::Core => return Err("faults: a fabric of namespaces has no third tier".into()),
    })
}

//! Finds failures that leave no path between some hosts: no transport survives them, so they say nothing about one.

use std::collections::BTreeSet;
use strandway_fabric::LinkId;
use strandway_fabric::fault::FaultKind;
use strandway_proto::HostId;
use strandway_proto::units::Time;
use strandway_scenario::Experiment;

/// True if some hosts cannot reach each other without `failed` links and the links that are down for good in the
/// experiment. A plane's switches forward within their plane, and hosts forward nothing.
pub(super) fn cuts_off(experiment: &Experiment, failed: &[LinkId]) -> bool {
    let topology = &experiment.plan.topology;
    let lasting = experiment
        .plan
        .faults
        .iter()
        .filter(|fault| matches!(fault.kind, FaultKind::Down { .. }) && fault.until == Time::NEVER);
    let down: BTreeSet<LinkId> = lasting.flat_map(|fault| &fault.links).chain(failed).copied().collect();
    let alive = |link: LinkId, reverse: LinkId| !down.contains(&link) && !down.contains(&reverse);
    // Switches that reach each other have one root.
    let mut roots: Vec<u32> = (0..topology.nodes()).collect();
    let cables = || {
        let all = (0..topology.links()).map(LinkId).filter_map(|link| Some((link, topology.ends(link)?)));
        all.filter(|(link, ends)| ends.up && alive(*link, ends.reverse))
    };
    for (_, ends) in cables().filter(|(_, ends)| ends.level > 0) {
        let (a, b) = (root(&mut roots, ends.from.0), root(&mut roots, ends.to.0));
        roots[a as usize] = b;
    }
    let mut reached: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); topology.hosts() as usize];
    for (_, ends) in cables().filter(|(_, ends)| ends.level == 0) {
        let of = root(&mut roots, ends.to.0);
        if let Some(reached) = reached.get_mut(ends.from.0 as usize) {
            reached.insert(of);
        }
    }
    let first = reached.first().cloned().unwrap_or_default();
    (0..topology.hosts()).map(HostId).any(|host| reached[host.0 as usize].is_disjoint(&first))
}

fn root(roots: &mut [u32], node: u32) -> u32 {
    let mut at = node;
    while roots[at as usize] != at {
        // Ways become half as long each time they are walked.
        roots[at as usize] = roots[roots[at as usize] as usize];
        at = roots[at as usize];
    }
    at
}

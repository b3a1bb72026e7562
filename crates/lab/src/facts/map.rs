//! Every link of a fabric of moderate size, for its picture: use, queue, marks and losses.

use super::capacity::{Capacity, used};
use std::collections::{BTreeMap, BTreeSet};
use strandway_fabric::frames::Frames;
use strandway_fabric::measure::LinkCounters;
use strandway_fabric::{LinkId, Measurements, NodeId, Topology};
use strandway_proto::units::{Bytes, Span};
use strandway_report::{MapFacts, MapGroup};
use strandway_scenario::Experiment;

/// Limit on the directed links of a map: ours, for the size of a page. Links of NICs are left out first.
const SHOWN: usize = 2560;

/// Limit on the values over time in a map: ours, likewise.
const TIMED: usize = 12_000;

/// With fewer frames than this, a map has none.
const FRAMES_MIN: usize = 6;

/// The map of a topology without measurements, if it is not too large.
pub(crate) fn of_topology(topology: &Topology) -> Option<MapFacts> {
    made(topology).map(|(map, _)| map)
}

/// A map without measurements, and the links of each of its groups.
fn made(topology: &Topology) -> Option<(MapFacts, Vec<Vec<LinkId>>)> {
    let groups = topology.groups();
    let count = |ports: bool| -> usize {
        groups.iter().filter(|group| ports || group.level > 0).map(|group| group.links as usize).sum()
    };
    let ports = count(true) <= SHOWN;
    if count(false) == 0 || count(false) > SHOWN {
        return None;
    }
    let mut nodes: Vec<String> = Vec::new();
    let mut places: BTreeMap<NodeId, u32> = BTreeMap::new();
    let mut place = |node: NodeId| {
        *places.entry(node).or_insert_with(|| {
            nodes.push(topology.node_name(node));
            nodes.len() as u32 - 1
        })
    };
    // Links by group, in the order of their lower and then their upper ends.
    let mut all: Vec<Vec<(NodeId, NodeId, LinkId)>> = vec![Vec::new(); groups.len()];
    for link in (0..topology.links()).map(LinkId) {
        let Some(ends) = topology.ends(link).filter(|ends| ports || ends.level > 0) else { continue };
        let (low, high) = if ends.up { (ends.from, ends.to) } else { (ends.to, ends.from) };
        all[topology.group_index(&ends)].push((low, high, link));
    }
    let (mut facts, mut links) = (Vec::new(), Vec::new());
    for (group, mut of) in groups.iter().zip(all).filter(|(_, of)| !of.is_empty()) {
        of.sort_unstable();
        facts.push(MapGroup {
            name: group.name.clone(),
            level: group.level,
            up: group.up,
            plane: group.plane,
            low: of.iter().map(|(low, ..)| place(*low)).collect(),
            high: of.iter().map(|(_, high, _)| place(*high)).collect(),
            ..MapGroup::default()
        });
        links.push(of.into_iter().map(|(.., link)| link).collect());
    }
    Some((MapFacts { nodes, groups: facts, every_us: 0.0 }, links))
}

/// The map of a run; `None` without time series, and for a large fabric.
pub(super) fn facts(experiment: &Experiment, measured: &Measurements) -> Option<MapFacts> {
    if measured.series.every == Span::ZERO || measured.links.is_empty() {
        return None;
    }
    let (mut map, links) = made(&experiment.plan.topology)?;
    let capacity = Capacity::new(&experiment.plan, measured);
    let struck: BTreeSet<LinkId> = experiment.faults.iter().flat_map(|fault| fault.links.iter().copied()).collect();
    for (group, links) in map.groups.iter_mut().zip(&links) {
        let counters = |link: &LinkId| measured.links[link.0 as usize];
        let all = |of: fn(&LinkCounters) -> u64| -> Vec<u64> {
            let values: Vec<u64> = links.iter().map(|link| of(&counters(link))).collect();
            if values.iter().any(|value| *value > 0) { values } else { Vec::new() }
        };
        group.utilisation = links.iter().map(|link| rounded(capacity.share(*link, &counters(link)))).collect();
        group.queue_max_bytes = all(|link| link.queue_max.0);
        group.marked = all(|link| link.marked.into());
        group.trimmed = all(|link| link.trimmed.into());
        group.dropped = all(|link| link.dropped.into());
        group.lost = all(|link| link.lost.into());
        group.faults = (0..).zip(links).filter(|(_, link)| struck.contains(link)).map(|(at, _)| at).collect();
    }
    map.every_us = frames(&mut map, &links, experiment, measured);
    Some(map)
}

/// Fills in the frames of a map. Returns their length in microseconds; 0 if there are too few.
fn frames(map: &mut MapFacts, links: &[Vec<LinkId>], experiment: &Experiment, measured: &Measurements) -> f64 {
    let most = TIMED / map.links().max(1);
    let mut frames: Frames = measured.series.links.clone();
    let used_frames = |frames: &Frames| {
        let end = measured.simulated.0.div_ceil(frames.every().0.max(1)) as usize;
        frames.bytes().len().min(end.max(1))
    };
    while used_frames(&frames) > most.max(1) {
        frames.fold();
    }
    let count = used_frames(&frames);
    if count < FRAMES_MIN {
        return 0.0;
    }
    let topology = &experiment.plan.topology;
    let every = frames.every();
    for (group, links) in map.groups.iter_mut().zip(links) {
        let could: Vec<f64> = links
            .iter()
            .map(|link| topology.ends(*link).map_or(0.0, |ends| topology.level_of(&ends).rate.bytes_in(every).0 as f64))
            .collect();
        let share = |bytes: &Vec<u64>| -> Vec<f64> {
            let each = links.iter().zip(&could);
            // A packet counts when it begins to leave, so a frame may contain slightly too many.
            each.map(|(link, could)| rounded(used(Bytes(bytes[link.0 as usize]), *could).min(1.0))).collect()
        };
        group.frames = frames.bytes()[..count].iter().map(share).collect();
    }
    every.as_us()
}

/// A share with four digits.
fn rounded(share: f64) -> f64 {
    (share * 1e4).round() / 1e4
}

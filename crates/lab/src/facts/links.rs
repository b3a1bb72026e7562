//! Facts of links, and of the paths of NIC ports.

use super::capacity::Capacity;
use super::flows::share;
use strandway_fabric::measure::{LinkCounters, PATH_SLOTS};
use strandway_fabric::{LinkId, Measurements, Topology};
use strandway_report::{GroupFacts, LinkFacts, PathFacts};
use strandway_scenario::Experiment;

pub(super) fn groups(experiment: &Experiment, measured: &Measurements) -> Vec<GroupFacts> {
    let topology = &experiment.plan.topology;
    let capacity = Capacity::new(&experiment.plan, measured);
    let mut facts: Vec<GroupFacts> = topology
        .groups()
        .into_iter()
        .map(|g| GroupFacts {
            name: g.name,
            level: g.level,
            up: g.up,
            plane: g.plane,
            links: g.links,
            rate_gbps: g.rate.as_gbps(),
            utilisation_min: f64::INFINITY,
            ..GroupFacts::default()
        })
        .collect();
    for (i, link) in measured.links.iter().enumerate() {
        let Some(ends) = topology.ends(LinkId(i as u32)) else { continue };
        let group = &mut facts[topology.group_index(&ends)];
        let used = capacity.share(LinkId(i as u32), link);
        group.bytes += link.bytes;
        group.utilisation += used;
        group.utilisation_max = group.utilisation_max.max(used);
        group.utilisation_min = group.utilisation_min.min(used);
        group.dropped += u64::from(link.dropped);
        group.trimmed += u64::from(link.trimmed);
        group.marked += u64::from(link.marked);
        group.lost += u64::from(link.lost);
        group.queue_max_bytes = group.queue_max_bytes.max(link.queue_max.0);
        group.paused_us += link.paused.as_us();
    }
    for group in &mut facts {
        group.utilisation /= f64::from(group.links.max(1));
        if !group.utilisation_min.is_finite() {
            group.utilisation_min = 0.0;
        }
    }
    facts
}

/// Number of links in the list of the hottest ones.
const HOTTEST: usize = 10;

pub(super) fn hottest(experiment: &Experiment, measured: &Measurements) -> Vec<LinkFacts> {
    let topology = &experiment.plan.topology;
    let capacity = Capacity::new(&experiment.plan, measured);
    let heat = |i: usize, l: &LinkCounters| (l.packets > 0).then(|| capacity.share(LinkId(i as u32), l));
    let by_heat =
        |a: &(f64, u64, usize), b: &(f64, u64, usize)| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(a.2.cmp(&b.2));
    // Fabrics may have millions of links, so only the hottest ones are kept in order.
    let mut order: Vec<(f64, u64, usize)> = Vec::with_capacity(HOTTEST + 1);
    for link in measured.links.iter().enumerate().filter_map(|(i, l)| Some((heat(i, l)?, l.queue_max.0, i))) {
        let place = order.partition_point(|other| by_heat(other, &link).is_lt());
        if place < HOTTEST {
            order.insert(place, link);
            order.truncate(HOTTEST);
        }
    }
    order
        .into_iter()
        .map(|(utilisation, _, i)| link_facts(topology, LinkId(i as u32), &measured.links[i], utilisation))
        .collect()
}

/// One link in a report.
pub(super) fn link_facts(topology: &Topology, link: LinkId, counters: &LinkCounters, utilisation: f64) -> LinkFacts {
    LinkFacts {
        name: topology.link_name(link),
        utilisation,
        bytes: counters.bytes,
        packets: counters.packets,
        queue_max_bytes: counters.queue_max.0,
        dropped: counters.dropped.into(),
        trimmed: counters.trimmed.into(),
        marked: counters.marked.into(),
        lost: counters.lost.into(),
        paused_us: counters.paused.as_us(),
    }
}

pub(super) fn paths(experiment: &Experiment, measured: &Measurements) -> Vec<PathFacts> {
    let planes = usize::from(experiment.plan.topology.planes());
    (0..planes)
        .map(|port| {
            let first = port * PATH_SLOTS;
            let slots = measured.paths.get(first..first + PATH_SLOTS).unwrap_or_default();
            let used = slots.iter().filter(|s| s.sent > 0).count() as u64;
            let sent: u64 = slots.iter().map(|s| s.sent).sum();
            let most = slots.iter().map(|s| s.sent).max().unwrap_or(0);
            PathFacts {
                name: format!("port{port}"),
                used,
                sent,
                marked: slots.iter().map(|s| s.marked).sum(),
                trimmed: slots.iter().map(|s| s.trimmed).sum(),
                imbalance: share(most * used, sent),
                sent_by_entropy: slots.iter().map(|s| s.sent).collect(),
            }
        })
        .collect()
}

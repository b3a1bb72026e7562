//! Facts of long links between sites: traffic and losses of each direction.

use super::capacity::Capacity;
use super::links::link_facts;
use strandway_fabric::Measurements;
use strandway_report::LongLinkFacts;
use strandway_scenario::Experiment;

/// Every directed long link, in the order of its number.
pub(super) fn facts(experiment: &Experiment, measured: &Measurements) -> Vec<LongLinkFacts> {
    let topology = &experiment.plan.topology;
    let capacity = Capacity::new(&experiment.plan, measured);
    let none = Default::default();
    topology
        .long_links()
        .filter_map(|(link, ends)| {
            let long = topology.long_link_of(&ends)?;
            let counters = measured.links.get(link.0 as usize).unwrap_or(&none);
            let used = capacity.share(link, counters);
            Some(LongLinkFacts {
                rate_gbps: long.level.rate.as_gbps(),
                latency_us: long.level.latency.as_us(),
                queue_bytes: long.queue.0,
                lost_share: f64::from(counters.lost) / counters.packets.max(1) as f64,
                link: link_facts(topology, link, counters, used),
            })
        })
        .collect()
}

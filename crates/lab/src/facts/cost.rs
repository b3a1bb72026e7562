//! Facts of the switches, links and optics of a fabric.

use strandway_fabric::Topology;
use strandway_report::{CostFacts, TableFacts};
use strandway_scenario::cost::{Cost, Tables};

/// The cost of a fabric. Also the cost of the same NICs on one plane of the same switches, if the fabric has several
/// planes and such a plane is possible.
pub(super) fn both(topology: &Topology) -> (CostFacts, Option<CostFacts>) {
    let cost = Cost::of(topology);
    let single = if cost.split > 1 { cost.single_plane() } else { None };
    (facts(&cost), single.as_ref().map(facts))
}

fn facts(cost: &Cost) -> CostFacts {
    CostFacts {
        tiers: cost.tiers,
        switches: cost.switches[..cost.tiers].to_vec(),
        all_switches: cost.all_switches(),
        leaf_ports: cost.leaf_ports,
        links: cost.links[..cost.tiers].to_vec(),
        links_per_host: cost.links_per_host(),
        optics_per_host: cost.optics_per_host(),
        longest: cost.longest,
        paths: cost.paths,
        neighbours: cost.neighbours,
        oversubscription: cost.oversubscription,
        uplink_share: cost.uplink_share(),
    }
}

/// The entries of the switches' tables.
pub(super) fn tables(topology: &Topology) -> TableFacts {
    let tables = Tables::of(topology);
    TableFacts { t0: tables.leaf, t1: tables.spine, t2: tables.core }
}

//! Switches that choose uplinks by how busy these are.

use super::support::{capture, completions, fault, leaf_spine, link, permutation, plan, preset, run};
use std::collections::{BTreeMap, BTreeSet};
use strandway_fabric::fault::FaultKind;
use strandway_fabric::plan::Routing;
use strandway_fabric::{LinkId, Measurements, Plan, Topology};
use strandway_proto::path::PathConfig;
use strandway_proto::{HostId, Profile, Span};

/// 4 leaves of 8 hosts, 8 uplinks each.
fn fabric() -> Topology {
    leaf_spine(32, 8, 8)
}

/// A permutation of 1 MB among all hosts.
fn spread(profile: Profile, routing: Routing, seed: u64) -> Plan {
    let mut plan = plan(fabric(), profile, &permutation(32, 1_000_000, seed));
    plan.routing = routing;
    plan.seed = seed;
    plan
}

fn on_one_path(name: &str) -> Profile {
    Profile { path: PathConfig::named("single").expect("a name"), ..preset(name) }
}

fn uplinks_of(leaf: u32) -> Vec<LinkId> {
    (0..8).map(|spine| link(&fabric(), &format!("leaf{leaf}"), &format!("spine{spine}"))).collect()
}

/// The uplinks of leaf 0 that each host's data packets took.
fn ways(m: &Measurements) -> BTreeMap<HostId, BTreeSet<LinkId>> {
    let mut ways: BTreeMap<HostId, BTreeSet<LinkId>> = BTreeMap::new();
    for captured in m.captured.iter().filter(|c| !c.packet.is_control()) {
        ways.entry(captured.packet.source).or_default().insert(captured.link);
    }
    ways
}

#[test]
fn flows_on_single_paths_end_sooner_where_switches_choose_packet_by_packet() {
    for seed in 1..=3 {
        let slowest = |routing| completions(&run(&spread(on_one_path("uec"), routing, seed))).0;
        let (hashed, adaptive) = (slowest(Routing::Hashed), slowest(Routing::Adaptive));
        assert!(adaptive * 1.5 < hashed, "seed {seed}: {adaptive} us beside {hashed} us");
    }
}

#[test]
fn a_slow_uplink_gets_fewer_packets_than_its_equals() {
    let slow = uplinks_of(0)[0];
    let mut plan = spread(preset("uec"), Routing::Adaptive, 1);
    plan.faults = vec![fault(&[slow], FaultKind::Degraded { fraction: 0.25 }, 0, u64::MAX)];
    let m = run(&plan);
    let sent: Vec<u64> = uplinks_of(0).iter().map(|l| m.links[l.0 as usize].packets).collect();
    let usual = sent[1..].iter().sum::<u64>() / 7;
    assert!(sent[0] * 2 < usual, "{sent:?}");
}

#[test]
fn a_flow_without_gaps_stays_on_one_uplink_among_flowlets_and_takes_all_of_them_otherwise() {
    for (routing, expected) in [(Routing::Flowlet, 1..=1), (Routing::Adaptive, 4..=8)] {
        let mut plan = spread(on_one_path("rocev2_sr"), routing, 1);
        capture(&mut plan, &uplinks_of(0));
        let ways = ways(&run(&plan));
        assert!(ways.len() >= 4, "{} hosts of a leaf send to other leaves", ways.len());
        assert!(ways.values().all(|links| expected.contains(&links.len())), "{routing:?}: {ways:?}");
    }
}

#[test]
fn no_packet_takes_an_uplink_that_routing_knows_to_be_dead() {
    for routing in [Routing::Adaptive, Routing::Flowlet] {
        let dead = uplinks_of(0)[3];
        let mut plan = spread(preset("uec"), routing, 2);
        plan.faults = vec![fault(&[dead], FaultKind::Down { visible: Some(Span::ZERO) }, 0, u64::MAX)];
        let m = run(&plan);
        assert_eq!(m.links[dead.0 as usize].packets, 0, "{routing:?}");
        assert!(completions(&m).0 > 0.0);
    }
}

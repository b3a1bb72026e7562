//! Guarantees of STrack and PRIME in a fabric: balance, fair shares, and no retransmission without losses.

use super::support::{US, build, capture, completions, fault, leaf_spine, link, permutation, plan, preset, run};
use std::collections::BTreeSet;
use strandway_fabric::fault::FaultKind;
use strandway_fabric::measure::LinkCounters;
use strandway_fabric::plan::{Routing, Start};
use strandway_fabric::{LinkId, Measurements, Plan, Topology};
use strandway_proto::path::{PathConfig, PrimeConfig};
use strandway_proto::{Bytes, HostId, PathId, Profile, Span, Time};

/// 8 leaves of 16 hosts, 16 uplinks each.
fn fabric() -> Topology {
    leaf_spine(128, 16, 16)
}

/// A permutation of 2 MB under a preset.
fn spread(name: &str, routing: Routing, seed: u64) -> Plan {
    let mut plan = plan(fabric(), preset(name), &permutation(128, 2_000_000, seed));
    plan.routing = routing;
    plan.seed = seed;
    plan
}

fn uplinks(topology: &Topology) -> impl Iterator<Item = LinkId> {
    (0..8)
        .flat_map(move |leaf| (0..16).map(move |spine| (leaf, spine)))
        .map(|(leaf, spine)| link(topology, &format!("leaf{leaf}"), &format!("spine{spine}")))
        .collect::<Vec<_>>()
        .into_iter()
}

/// The links of all leaves to and from the first spine.
fn links_of_spine0() -> Vec<LinkId> {
    let topology = fabric();
    let both = |leaf: u32| {
        let leaf = format!("leaf{leaf}");
        [link(&topology, &leaf, "spine0"), link(&topology, "spine0", &leaf)]
    };
    (0..8).flat_map(both).collect()
}

/// PRIME's slowest flow takes less than 0.85 of the time that it takes without penalties, and the slow link carries
/// less than half of the packets.
fn assert_that_it_spares(slow: LinkId, prime: &Measurements, round_robin: &Measurements) {
    let (ours, theirs) = (completions(prime).0, completions(round_robin).0);
    assert!(ours < theirs * 0.85, "{ours} us and {theirs} us");
    let sent = |m: &Measurements| m.links[slow.0 as usize].packets;
    assert!(sent(prime) * 2 < sent(round_robin), "{} and {} packets over a slow link", sent(prime), sent(round_robin));
}

#[test]
fn with_indexed_uplinks_no_queue_exceeds_the_number_of_senders_below_its_leaf() {
    for seed in 1..=3 {
        let m = run(&spread("prime", Routing::Direct, seed));
        let longest = uplinks(&fabric()).map(|l| m.links[l.0 as usize].queue_max.0.div_ceil(4160)).max();
        assert!(longest <= Some(16), "{longest:?} packets with 16 senders");
        assert!(m.links.iter().all(|l| l.trimmed == 0));
    }
}

/// PRIME on switches that hash, with a table of their hash at each host or without.
fn hashed(table: bool, penalties: bool, seed: u64) -> Plan {
    let mut plan = spread("prime", Routing::Hashed, seed);
    let mut profile = preset("prime");
    profile.path = PathConfig::Prime(PrimeConfig { table, penalties, ..PrimeConfig::default() });
    plan.profiles[0] = profile.into();
    plan
}

#[test]
fn with_a_table_of_their_hash_switches_that_hash_spread_as_those_that_index() {
    let longest = |m: &Measurements| {
        uplinks(&fabric()).map(|l| m.links[l.0 as usize].queue_max.0.div_ceil(4160)).max().expect("uplinks")
    };
    for seed in 1..=3 {
        let with = run(&hashed(true, true, seed));
        let without = run(&hashed(false, true, seed));
        let indexed = run(&spread("prime", Routing::Direct, seed));
        assert!(longest(&with) <= 16, "{} packets with 16 senders", longest(&with));
        assert!(longest(&without) > 16, "{} packets: the bound means something", longest(&without));
        let slowest = |m: &Measurements| completions(m).0;
        assert!(slowest(&with) < slowest(&indexed) * 1.01, "{} and {} us", slowest(&with), slowest(&indexed));
        assert!(slowest(&with) < slowest(&without) * 0.97, "{} and {} us", slowest(&with), slowest(&without));
        let m = run(&Plan { threads: 3, ..hashed(true, true, seed) });
        assert_eq!(m.digest, with.digest, "on three threads");
    }
    // Acknowledgements take hashed ways, so packets are counted by their bytes: an acknowledgement has 64 of 4160.
    every_uplink_carries_the_same(&run(&hashed(true, true, 1)), |link| link.bytes / 4160);
}

#[test]
fn with_a_table_feedback_finds_the_uplink_that_it_is_about() {
    let slow = links_of_spine0();
    let degraded = |table: bool, penalties: bool| {
        let mut plan = hashed(table, penalties, 1);
        plan.faults = vec![fault(&slow, FaultKind::Degraded { fraction: 0.25 }, 0, u64::MAX)];
        run(&plan)
    };
    let (prime, round_robin) = (degraded(true, true), degraded(true, false));
    assert_that_it_spares(slow[0], &prime, &round_robin);
}

#[test]
fn with_a_table_every_pair_of_uplinks_of_three_tiers_carries_the_same() {
    // Four pods of two leaves with four hosts; four uplinks of a leaf, two of a tier-1 switch.
    let pods = Some(strandway_fabric::topology::Pods { leaves_per_pod: 2, cores_per_spine: 2, core_bundle: 1 });
    let shape =
        strandway_fabric::topology::Shape { hosts: 32, planes: 1, hosts_per_leaf: 4, spines: 4, leaf_bundle: 1, pods };
    let topology = build(shape, 400);
    let mut plan = plan(topology.clone(), preset("prime"), &[(0, 31, 4096 * 800)]);
    let mut profile = preset("prime");
    profile.path = PathConfig::Prime(PrimeConfig { table: true, ..PrimeConfig::default() });
    plan.profiles[0] = profile.into();
    plan.routing = Routing::Hashed;
    let m = run(&plan);
    let counts: Vec<u64> = (0..topology.links())
        .filter(|&l| {
            let from = topology.ends(LinkId(l)).expect("a link").from;
            let to = topology.ends(LinkId(l)).expect("a link").to;
            topology.node_name(from).starts_with("agg0") && topology.node_name(to).starts_with("core")
        })
        .map(|l| m.links[l as usize].packets)
        .collect();
    assert_eq!(counts, [100; 8], "800 packets over eight ways");
}

#[test]
fn with_indexed_uplinks_every_uplink_carries_the_same() {
    every_uplink_carries_the_same(&run(&spread("prime", Routing::Direct, 1)), |link| link.packets);
}

fn every_uplink_carries_the_same(m: &Measurements, count: fn(&LinkCounters) -> u64) {
    for leaf in 0..8 {
        let topology = fabric();
        let packets: Vec<u64> = (0..16)
            .map(|spine| link(&topology, &format!("leaf{leaf}"), &format!("spine{spine}")).0 as usize)
            .map(|link| count(&m.links[link]))
            .collect();
        let (least, most) = (packets.iter().min(), packets.iter().max());
        // 16 senders of 31 rounds: each may be a packet off in its last round. Acknowledgements come on top.
        assert!(most.zip(least).is_some_and(|(m, l)| m - l <= 16 + l / 10), "leaf {leaf}: {packets:?}");
    }
}

#[test]
fn ordered_connections_keep_to_one_uplink_where_switches_index() {
    let mut plan = spread("uec", Routing::Direct, 1);
    let profile = Profile { path: PathConfig::named("single").expect("a name"), ..preset("uec") };
    plan.profiles[0] = profile.into();
    let topology = fabric();
    let all: Vec<LinkId> = (0..16).map(|s| link(&topology, "leaf0", &format!("spine{s}"))).collect();
    capture(&mut plan, &all);
    let m = run(&plan);
    let ways: BTreeSet<(HostId, LinkId, PathId)> = m
        .captured
        .iter()
        .filter(|c| !c.packet.is_control())
        .map(|c| (c.packet.source, c.link, c.packet.path))
        .collect();
    let sources: BTreeSet<HostId> = ways.iter().map(|w| w.0).collect();
    assert_eq!(ways.len(), sources.len(), "one way each");
    assert!(ways.iter().all(|w| w.2.entropy() & PathId::ORDERED != 0));
}

#[test]
fn prime_leaves_a_slow_uplink_out_and_round_robin_does_not() {
    let slow = links_of_spine0();
    let degraded = |penalties: bool| {
        let mut plan = spread("prime", Routing::Direct, 1);
        let mut profile = preset("prime");
        profile.path = PathConfig::Prime(PrimeConfig { penalties, ..PrimeConfig::default() });
        plan.profiles[0] = profile.into();
        plan.faults = vec![fault(&slow, FaultKind::Degraded { fraction: 0.25 }, 0, u64::MAX)];
        run(&plan)
    };
    let (prime, round_robin) = (degraded(true), degraded(false));
    assert_that_it_spares(slow[0], &prime, &round_robin);
}

#[test]
fn strack_sends_nothing_twice_in_a_healthy_fabric() {
    for name in ["strack", "strack_fast"] {
        for seed in 1..=3 {
            let m = run(&spread(name, Routing::Hashed, seed));
            assert_eq!(
                (m.packets.retransmitted, m.packets.dropped, m.packets.timeouts),
                (0, 0, 0),
                "{name}, seed {seed}"
            );
        }
    }
}

#[test]
fn two_strack_flows_that_start_a_millisecond_apart_share_a_link_within_50_round_trips() {
    let shape = strandway_fabric::topology::Shape {
        hosts: 3,
        planes: 1,
        hosts_per_leaf: 3,
        spines: 1,
        leaf_bundle: 1,
        pods: None,
    };
    let topology = build(shape, 400);
    let rtt = topology.base_rtt(Bytes(4160), Bytes(64));
    let mut plan = plan(topology, preset("strack"), &[(1, 0, 1_000_000_000), (2, 0, 1_000_000_000)]);
    plan.flows[1].start = Start::At(Time(1_000 * US));
    let received = |until: Time| {
        let mut plan = plan.clone();
        plan.time_limit = until;
        run(&plan).connections.iter().map(|c| c.delivered_bytes as f64).collect::<Vec<_>>()
    };
    let from = Time(1_000 * US) + rtt * 50;
    let (before, after) = (received(from), received(from + Span(rtt.0 * 50)));
    let rates: Vec<f64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    let sum = rates.iter().sum::<f64>();
    let jain = sum * sum / (2.0 * rates.iter().map(|r| r * r).sum::<f64>());
    assert!(jain > 0.95, "Jain's index {jain:.3}, {rates:?} B");
}

#[test]
fn a_watched_connection_shows_its_window_and_what_it_holds_against_paths() {
    let topology = fabric();
    let mut plan = spread("prime", Routing::Direct, 1);
    let slow = [link(&topology, "leaf0", "spine3"), link(&topology, "spine3", "leaf0")];
    plan.faults = vec![fault(&slow, FaultKind::Degraded { fraction: 0.25 }, 0, u64::MAX)];
    plan.sample_every = Some(Span::from_us(2));
    let plain = run(&plan);
    plan.watch = Some(0);
    for threads in [1, 3] {
        plan.threads = threads;
        let m = run(&plan);
        assert_eq!(m.digest, plain.digest, "watching changes nothing");
        let points = &m.series.watched;
        assert!(points.len() > 15, "{} points", points.len());
        assert!(points.iter().all(|p| p.penalties.len() == 16 && p.window > Bytes(0)));
        let penalised = points.iter().filter(|p| p.penalties.iter().any(|&x| x > 0)).count();
        assert!(penalised > 5, "{penalised} points with a penalty");
    }
}

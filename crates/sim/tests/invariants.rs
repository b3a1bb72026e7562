//! Conditions that every run must meet, with any fabric, protocol, workload and faults.

use super::support::*;
use std::collections::BTreeMap;
use strandway_fabric::Plan;
use strandway_fabric::fault::FaultKind;
use strandway_fabric::loss::Burst;
use strandway_fabric::measure::{End, Measurements};
use strandway_fabric::plan::{PfcSettings, Routing, SharedSettings, Start, TriggerPlan};
use strandway_fabric::topology::{LinkId, NodeId, NodeKind, Pods, Shape, Topology};
use strandway_proto::congestion::CongestionConfig;
use strandway_proto::path::PathConfig;
use strandway_proto::{Bytes, Profile, Rate, Span, Time};
use strandway_sim::{Control, simulate};

/// Eight leaves of two hosts each, so that up to eight threads have a part.
fn two_tiers(planes: u8) -> Topology {
    build(Shape { hosts: 16, planes, hosts_per_leaf: 2, spines: 3, leaf_bundle: 1, pods: None }, 400)
}

/// Eight pods of one leaf each.
fn three_tiers() -> Topology {
    let pods = Some(Pods { leaves_per_pod: 1, cores_per_spine: 2, core_bundle: 1 });
    build(Shape { hosts: 24, planes: 1, hosts_per_leaf: 3, spines: 2, leaf_bundle: 2, pods }, 100)
}

fn uec(path: &str) -> Profile {
    Profile { path: PathConfig::named(path).expect("a known name"), ..preset("uec") }
}

fn with(congestion: &str, profile: Profile) -> Profile {
    Profile { congestion: CongestionConfig::named(congestion).expect("a known name"), ..profile }
}

fn incast(senders: u32, bytes: u64) -> Vec<(u32, u32, u64)> {
    (1..=senders).map(|host| (host, 0, bytes)).collect()
}

/// Ports without trimming, as their profile would have them.
fn untrimmed(mut plan: Plan) -> Plan {
    plan.ports.trim = None;
    plan
}

fn scenarios() -> Vec<(&'static str, Plan)> {
    let pfc = Some(PfcSettings { xoff: Bytes(62_400), xon: Bytes(49_920), headroom: Bytes(250_000) });
    let mut all = vec![
        ("uec, bitmap, permutation", plan(two_tiers(1), uec("bitmap"), &permutation(16, 300_000, 1))),
        ("uec, reps, incast", plan(two_tiers(1), uec("reps"), &incast(15, 200_000))),
        ("uec, mixed, four planes", plan(two_tiers(4), uec("mixed"), &permutation(16, 500_000, 2))),
        ("uec, oblivious, three tiers", plan(three_tiers(), uec("oblivious"), &permutation(24, 100_000, 3))),
        ("rocev2 under PFC, incast", plan(two_tiers(1), preset("rocev2"), &incast(12, 200_000))),
        ("rocev2, three tiers", plan(three_tiers(), preset("rocev2"), &permutation(24, 100_000, 4))),
        ("rocev2_sr, incast", plan(two_tiers(1), preset("rocev2_sr"), &incast(15, 200_000))),
        ("swift, single path", plan(two_tiers(1), with("swift", preset("rocev2_sr")), &permutation(16, 200_000, 5))),
        ("dctcp, three planes", plan(two_tiers(3), with("dctcp", uec("reps")), &incast(10, 100_000))),
    ];
    let mut adaptive = plan(three_tiers(), uec("oblivious"), &permutation(24, 100_000, 6));
    adaptive.routing = Routing::Adaptive;
    all.push(("adaptive switches, three tiers", adaptive));
    let mut flowlets = plan(two_tiers(2), preset("rocev2"), &permutation(16, 300_000, 7));
    flowlets.routing = Routing::Flowlet;
    all.push(("adaptive by flowlets, PFC, two planes", flowlets));
    let mut direct = plan(three_tiers(), uec("oblivious"), &permutation(24, 100_000, 6));
    direct.routing = Routing::Direct;
    all.push(("uec, explicit paths", direct));

    let mut sleek = untrimmed(plan(two_tiers(1), uec("bitmap"), &incast(15, 200_000)));
    sleek.ports.data_queue = Bytes(100_000);
    all.push(("uec without trimming, drops", sleek));

    let mut shared = untrimmed(plan(two_tiers(1), uec("bitmap"), &incast(15, 100_000)));
    shared.ports.shared = Some(SharedSettings { buffer: Bytes(300_000), alpha: 1.0 });
    all.push(("uec over a shared buffer", shared));

    let mut both = plan(two_tiers(1), preset("rocev2"), &incast(15, 100_000));
    both.ports.shared = Some(SharedSettings { buffer: Bytes(1_000_000), alpha: 0.125 });
    both.ports.pfc = pfc.map(|p| PfcSettings { xoff: Bytes(4096), xon: Bytes(3072), ..p });
    all.push(("rocev2, PFC over a shared buffer", both));

    let mut fifo = untrimmed(plan(two_tiers(1), with("fixed", preset("rocev2_sr")), &permutation(16, 200_000, 7)));
    fifo.ports.priority = false;
    fifo.ports.data_queue = Bytes(60_000);
    all.push(("plain queues, drops", fifo));

    let mut broken = plan(two_tiers(1), uec("bitmap"), &permutation(16, 300_000, 8));
    let up = |leaf: &str, spine: &str| link(&broken.topology, leaf, spine);
    let (a, b, c) = (up("leaf0", "spine0"), up("spine1", "leaf3"), up("leaf5", "spine2"));
    broken.faults = vec![
        fault(&[a], FaultKind::Down { visible: None }, 5 * US, 20 * US),
        fault(&[b], FaultKind::Degraded { fraction: 0.25 }, 3 * US, 300 * US),
        fault(&[c], FaultKind::Loss { probability: 0.05, burst: Burst::NONE }, 0, u64::MAX),
    ];
    all.push(("uec with silent faults", broken));

    let mut seen = plan(two_tiers(4), uec("reps"), &permutation(16, 500_000, 9));
    let at = |from: &str, to: &str| link(&seen.topology, from, to);
    let (a, b) = (at("host3", "leaf1.p2"), at("leaf4.p0", "spine1.p0"));
    let visible = FaultKind::Down { visible: Some(Span::from_us(5)) };
    seen.faults = vec![
        fault(&[a], visible, 4 * US, 15 * US),
        fault(&[a], visible, 20 * US, u64::MAX),
        fault(&[b], visible, 2 * US, 40 * US),
    ];
    all.push(("uec with visible faults", seen));

    // Each flow of a ring waits for the one before it; the last four wait for all of them.
    let ring: Vec<_> = (0..12).map(|i| (i, (i + 5) % 16, 20_000)).collect();
    let mut chain = plan(two_tiers(1), uec("bitmap"), &ring);
    chain.triggers = vec![TriggerPlan { needed: 1 }; 8];
    chain.triggers.push(TriggerPlan { needed: 8 });
    for i in 0..8 {
        chain.flows[i].on_received = Some(if i == 7 { 8 } else { i as u32 });
        chain.flows[i].on_sent = Some(8);
        if i > 0 {
            chain.flows[i].start = Start::On(i as u32 - 1, Span(i as u64 * 1000));
        }
    }
    for flow in &mut chain.flows[8..] {
        flow.start = Start::On(8, Span::ZERO);
    }
    all.push(("triggers", chain));
    all
}

/// Everything but the number of events, which threads may change.
fn assert_same(a: &Measurements, b: &Measurements, what: &str) {
    assert_eq!(a.flows, b.flows, "flows, {what}");
    assert_eq!(a.links, b.links, "links, {what}");
    assert_eq!(a.connections, b.connections, "connections, {what}");
    assert_eq!(a.packets, b.packets, "packets, {what}");
    assert_eq!(a.paths, b.paths, "paths, {what}");
    assert_eq!((a.end, a.simulated, a.packet_hops), (b.end, b.simulated, b.packet_hops), "{what}");
    assert_eq!(a.digest, b.digest, "digest, {what}");
}

#[test]
fn threads_change_nothing() {
    for (name, mut plan) in scenarios() {
        plan.sample_every = Some(Span::from_us(3));
        plan.watch = Some(0);
        let links: Vec<LinkId> = (0..plan.topology.links()).filter(|l| l % 5 == 0).map(LinkId).collect();
        capture(&mut plan, &links);
        let one = run(&plan);
        assert_eq!(one.end, End::Finished, "{name}: {:?}", one.packets);
        for threads in [2, 3, 7] {
            plan.threads = threads;
            let many = run(&plan);
            assert_same(&one, &many, &format!("{name} on {threads} threads"));
            assert_eq!(one.series, many.series, "series, {name} on {threads} threads");
            assert_eq!(one.captured, many.captured, "capture, {name} on {threads} threads");
        }
    }
}

#[test]
fn watching_changes_nothing() {
    for (name, mut plan) in scenarios() {
        plan.threads = 2;
        let bare = run(&plan);
        for every in [100_003, 2_000_000] {
            plan.sample_every = Some(Span(every));
            plan.watch = Some(1);
            let m = run(&plan);
            assert_same(&bare, &m, &format!("{name} sampled every {every} ps"));
            let series: u64 = m.series.delivered.iter().sum();
            let delivered: u64 = m.connections.iter().map(|c| c.delivered_bytes).sum();
            assert_eq!(series, delivered, "{name}: the goodput series adds up to what was delivered");
            let of = |planes: &[Vec<u64>]| planes.iter().flatten().sum::<u64>();
            let split = if plan.topology.planes() > 1 { delivered } else { 0 };
            assert_eq!(of(&m.series.planes), split, "{name}: so do those of the planes, where there are several");
            let watched = m.connections[1].delivered_bytes;
            assert_eq!(of(&m.series.watched_planes), watched, "{name}: and those of the watched connection");
        }
        let all: Vec<LinkId> =
            (0..plan.topology.links()).map(LinkId).filter(|&l| plan.topology.ends(l).is_some()).collect();
        plan.sample_every = None;
        // Without a series there is nothing to watch with.
        plan.watch = Some(0);
        capture(&mut plan, &all);
        let m = run(&plan);
        assert_same(&bare, &m, &format!("{name} captured"));
        assert_eq!(m.series, Default::default(), "{name}");
        assert!(m.captured.is_sorted_by_key(|c| c.at));
        if m.packet_hops <= 100_000 {
            assert_eq!(m.captured.len() as u64, m.packet_hops, "{name}: every hop was captured");
        }
    }
}

#[test]
fn a_capture_stops_at_its_limit_on_any_number_of_threads() {
    let mut plan = plan(two_tiers(1), uec("bitmap"), &permutation(16, 100_000, 1));
    let links: Vec<LinkId> = (0..16).map(LinkId).collect();
    capture(&mut plan, &links);
    let whole = run(&plan).captured;
    plan.capture.as_mut().expect("a capture").limit = 100;
    for threads in [1, 2, 7] {
        plan.threads = threads;
        assert_eq!(run(&plan).captured, whole[..100], "{threads} threads");
    }
}

#[test]
fn packets_that_enter_a_switch_leave_it_or_are_counted() {
    for (name, plan) in scenarios() {
        let m = run(&plan);
        assert_eq!(m.end, End::Finished, "{name}");
        let topology = &plan.topology;
        let mut balance: BTreeMap<NodeId, (i64, i64, i64)> = BTreeMap::new();
        let mut dropped = 0;
        for (l, c) in m.links.iter().enumerate() {
            let Some(ends) = topology.ends(LinkId(l as u32)) else {
                assert_eq!(*c, Default::default(), "nothing happens at a port that leads nowhere");
                continue;
            };
            // No packet is in the fabric when the run is over, so every packet that left and was not lost has arrived.
            let arrived = c.packets as i64 - i64::from(c.lost);
            balance.entry(ends.to).or_default().0 += arrived;
            balance.entry(ends.from).or_default().0 -= c.packets as i64 + i64::from(c.dropped);
            balance.entry(ends.to).or_default().1 += i64::from(c.lost);
            balance.entry(ends.from).or_default().2 += i64::from(c.lost);
            dropped += u64::from(c.dropped);
            assert!(
                c.bytes >= c.packets * 64 && c.bytes <= c.packets * 4160,
                "{name}, {}",
                topology.link_name(LinkId(l as u32))
            );
        }
        let visible = plan.faults.iter().any(|f| matches!(f.kind, FaultKind::Down { visible: Some(_) }));
        for (&node, &(balance, lost_before, lost_behind)) in &balance {
            if topology.describe(node).0 == NodeKind::Host {
                continue;
            }
            // A port that is known to be down loses packets before they leave: these count as lost, but not as sent.
            let range = if visible { -lost_before..=lost_behind } else { 0..=0 };
            assert!(range.contains(&balance), "{name}: {balance} packets are left in {}", topology.node_name(node));
        }
        assert_eq!(m.packets.dropped, dropped, "{name}");
        // The NICs' links must count exactly the packets that the endpoints made.
        let nics: u64 =
            m.links[..(topology.hosts() * u32::from(topology.planes())) as usize].iter().map(|c| c.packets).sum();
        let probes: u64 = m.connections.iter().map(|c| c.probes).sum();
        let p = &m.packets;
        assert_eq!(nics, p.sent + p.acks + p.nacks + p.notifications + probes, "{name}: {p:?}");
        assert_eq!(m.packet_hops, m.links.iter().map(|c| c.packets).sum::<u64>(), "{name}");
    }
}

#[test]
fn every_flow_is_delivered_exactly() {
    for (name, plan) in scenarios() {
        let m = run(&plan);
        for (i, (flow, record)) in plan.flows.iter().zip(&m.flows).enumerate() {
            let (started, received, finished) = (record.started, record.received, record.finished);
            assert!(started.is_some() && started <= received && received <= finished, "{name}, flow {i}: {record:?}");
            let c = &m.connections[flow.connection as usize];
            assert_eq!(c.delivered_bytes, flow.bytes, "{name}, flow {i}");
            let packets = flow.bytes.div_ceil(4096).max(1);
            assert_eq!((c.delivered, c.sent - c.retransmitted), (packets, packets), "{name}, flow {i}");
            assert_eq!(c.invalid, 0, "{name}, flow {i}");
        }
        assert_eq!(m.simulated, m.flows.iter().filter_map(|f| f.finished).max().expect("flows"), "{name}");
    }
}

#[test]
fn the_seed_matters_and_only_the_seed() {
    let (_, mut plan) = scenarios().swap_remove(0);
    let first = run(&plan).digest;
    assert_eq!(run(&plan).digest, first);
    plan.seed = 2;
    assert_ne!(run(&plan).digest, first);
}

#[test]
fn a_run_stops_when_asked_and_keeps_what_it_has_measured() {
    for threads in [1, 3] {
        let mut plan = plan(two_tiers(1), uec("bitmap"), &permutation(16, 3_000_000, 1));
        plan.threads = threads;
        let control = Control::new();
        control.stop();
        let m = simulate(&plan, &control);
        assert_eq!(m.end, End::Interrupted);
        assert!(m.flows.iter().any(|f| f.finished.is_none()) && m.links.len() == plan.topology.links() as usize);
    }
}

// ---- Congestion control
// ------------------------------------------------------------------------------------------------

/// Payload bytes that each connection has received up to `until`.
fn received_by(plan: &Plan, until: Time) -> Vec<u64> {
    let mut plan = plan.clone();
    plan.time_limit = until;
    run(&plan).connections.iter().map(|c| c.delivered_bytes).collect()
}

/// Jain's fairness index: 1 if all are alike, 1/n if one has everything.
fn jain(values: &[u64]) -> f64 {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(s, q), &v| (s + v as f64, q + v as f64 * v as f64));
    sum * sum / (values.len() as f64 * squares)
}

#[test]
fn dcqcn_flows_into_one_port_come_to_fair_shares_without_loss_under_pfc() {
    let topology = build(Shape { hosts: 9, planes: 1, hosts_per_leaf: 9, spines: 1, leaf_bundle: 1, pods: None }, 100);
    for senders in [2, 4, 8] {
        let mut plan = plan(topology.clone(), preset("rocev2"), &incast(senders, 1_000_000_000));
        // They begin one after the other, so that the first has the port to itself.
        for (i, flow) in plan.flows.iter_mut().enumerate() {
            flow.start = Start::At(Time(i as u64 * 20 * US));
        }
        let (from, until) = (Time(8_000 * US), Time(16_000 * US));
        let before = received_by(&plan, from);
        plan.time_limit = until;
        let m = run(&plan);
        let rates: Vec<u64> = m.connections.iter().zip(before).map(|(c, b)| c.delivered_bytes - b).collect();
        assert!(jain(&rates) > 0.95, "{senders} flows: index {:.3}, {rates:?}", jain(&rates));
        assert_eq!((m.packets.dropped, m.packets.retransmitted), (0, 0), "{senders} flows");
        let used = rates.iter().sum::<u64>() as f64 / Rate::from_gbps(100).bytes_in(until.since(from)).0 as f64;
        assert!(used > 0.8, "{senders} flows use {used:.2} of the port");
    }
}

#[test]
fn a_uec_incast_comes_within_six_percent_of_the_ideal() {
    for (senders, bytes) in [(15, 1_000_000), (8, 2_000_000), (4, 500_000)] {
        let topology = leaf_spine(32, 16, 16);
        let flows: Vec<_> = (0..senders).map(|i| (16 + i, 0, bytes)).collect();
        let m = run(&plan(topology.clone(), preset("uec"), &flows));
        let packets = u64::from(senders) * bytes.div_ceil(4096);
        let wire = u64::from(senders) * bytes + packets * 64;
        // The last link busy without a gap, after the way there of the first packet, before the way back of the last
        // ACK.
        let ideal = topology.base_rtt(Bytes(4160), Bytes(64)).0 + wire * 20;
        let (slowest, _) = completions(&m);
        let ratio = slowest * US as f64 / ideal as f64;
        assert!((0.99..1.06).contains(&ratio), "{senders} to 1 of {bytes} B takes {ratio:.3} of the ideal");
    }
}

#[test]
fn every_congestion_control_fills_a_link_that_it_has_to_itself() {
    for congestion in CongestionConfig::NAMES {
        let bytes = 4_000_000;
        let m = run(&plan(leaf_spine(4, 2, 2), with(congestion, preset("uec")), &[(0, 3, bytes)]));
        let ideal = (bytes + bytes.div_ceil(4096) * 64) * 20;
        let (took, _) = completions(&m);
        let ratio = took * US as f64 / ideal as f64;
        assert!(ratio < 1.35, "{congestion} takes {ratio:.3} of the ideal");
    }
}

#[test]
fn spraying_beats_one_path_per_connection() {
    let flows = permutation(16, 1_000_000, 3);
    let slowest = |profile: Profile| completions(&run(&plan(two_tiers(1), profile, &flows))).0;
    let (uec_time, roce) = (slowest(uec("bitmap")), slowest(preset("rocev2")));
    assert!(uec_time < roce, "uec {uec_time} us, rocev2 {roce} us");
}

#[test]
fn a_run_cut_short_at_any_instant_ends_and_is_the_same_on_any_number_of_threads() {
    for (name, mut plan) in scenarios() {
        for limit in [0, 1, 999_999, 1_000_000, 2_345_678, 5_500_001, 7_777_777] {
            plan.time_limit = Time(limit);
            plan.threads = 1;
            let one = run(&plan);
            assert_eq!((one.end, one.simulated), (End::TimeLimit, Time(limit)), "{name}");
            for threads in [2, 7] {
                plan.threads = threads;
                assert_same(&one, &run(&plan), &format!("{name}, cut at {limit} ps, on {threads} threads"));
            }
        }
    }
}

//! Plans drawn at random: windows, threads and kinds of ports change no result.

use super::*;
use std::sync::Arc;
use strandway_fabric::fault::{FaultKind, FaultPlan};
use strandway_fabric::loss::Burst;
use strandway_fabric::measure::FlowRecord;
use strandway_fabric::plan::{
    ConnectionPlan, EcnSettings, FlowPlan, PfcSettings, PortSettings, Routing, SharedSettings, Start,
};
use strandway_fabric::topology::LinkId;
use strandway_fabric::topology::{Level, Shape, Topology};
use strandway_proto::path::PathConfig;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Bytes, Rate};
use strandway_proto::{HostId, Profile};

/// Flows between random hosts over a fabric whose ports may be plain first-in-first-out queues.
fn random_plan(seed: u64) -> Plan {
    let mut random = Random::new(seed, StreamKind::Workload, 0);
    let mut pick = |below: u32| random.below(below);
    let shape =
        Shape { hosts: 12, planes: 1 + pick(2) as u8, hosts_per_leaf: 3, spines: 2, leaf_bundle: 1, pods: None };
    let gbps = [100, 400, 300][pick(3) as usize];
    let level = Level { rate: Rate::from_gbps(gbps), latency: Span::from_ns([1000, 317][pick(2) as usize]) };
    let inside = Span::from_ns(u64::from(pick(2) * 250));
    let topology = Topology::new(shape, [level; 3], [inside; 3]).expect("a valid shape");
    let path = PathConfig::named(PathConfig::NAMES[pick(5) as usize]).expect("a known name");
    let mut profile = Profile::preset(Profile::NAMES[pick(3) as usize]).expect("a preset");
    profile.path = path;
    let step = u64::from(20_000 + pick(40_000));
    let ecn = EcnSettings {
        low: Bytes(step),
        high: Bytes(step * [1, 3][pick(2) as usize]),
        probability: 0.3,
        at_dequeue: false,
        last_hop: true,
    };
    let count = 4 + pick(20);
    let ends = (0..count).map(|_| {
        let source = pick(12);
        // Many of them to host 0, so that queues fill up.
        let to = if source != 0 && pick(2) == 0 { 0 } else { (source + 1 + pick(11)) % 12 };
        (source, to, u64::from(pick(300_000)), u64::from(pick(20_000_000)))
    });
    let ends: Vec<_> = ends.collect();
    let connection = |&(from, to, ..): &(u32, u32, u64, u64)| ConnectionPlan {
        source: HostId(from),
        destination: HostId(to),
        profile: 0,
    };
    let flow = |(i, &(.., bytes, at)): (usize, &(u32, u32, u64, u64))| FlowPlan {
        connection: i as u32,
        bytes,
        start: Start::At(Time(at)),
        on_sent: None,
        on_received: None,
    };
    Plan {
        topology,
        ports: PortSettings {
            priority: false,
            data_queue: Bytes([40_000, 100_000, 1_000_000][pick(3) as usize]),
            control_queue: Bytes(0),
            trim: None,
            ecn: (pick(3) > 0).then_some(ecn),
            pfc: None,
            cbfc: None,
            receive: None,
            message_cost: Span::ZERO,
            llr: false,
            shared: None,
            adaptive_queue: Bytes(0),
        },
        routing: Routing::Hashed,
        profiles: vec![Arc::new(profile)],
        connections: ends.iter().map(connection).collect(),
        flows: ends.iter().enumerate().map(flow).collect(),
        triggers: vec![],
        multicast: vec![],
        faults: vec![],
        seed,
        time_limit: Time(200_000_000_000),
        threads: 1 + pick(3) as usize,
        sample_every: None,
        watch: None,
        accounts: true,
        rows: false,
        capture: None,
        tally_paths: false,
    }
}

/// A random plan with faults that are seen, lasting or flapping, which routing learns of a little later; perhaps
/// with PFC or shared buffers.
fn random_failing_plan(seed: u64) -> Plan {
    let mut plan = random_plan(seed);
    let mut random = Random::new(seed, StreamKind::Workload, 1);
    let mut pick = |below: u32| random.below(below);
    for _ in 0..1 + pick(4) {
        let link = LinkId(pick(plan.topology.links()));
        let (from, delay) = (u64::from(pick(15_000_000)), Span(u64::from(pick(3_000_000))));
        let kind = match pick(4) {
            0 => FaultKind::Loss { probability: 0.05, burst: Burst::Packets(1.0 + f64::from(pick(4))) },
            1 => FaultKind::Degraded { fraction: 0.5 },
            _ => FaultKind::Down { visible: Some(delay) },
        };
        let periods = [1, 30][pick(2) as usize];
        let length = u64::from(pick(20_000_000)) / periods + 1;
        plan.faults.extend((0..periods).map(|n| FaultPlan {
            links: vec![link],
            kind,
            from: Time(from + 2 * n * length),
            until: Time(from + 2 * n * length + length),
        }));
    }
    let packets = |n: u64| Bytes(n * 4160);
    if pick(2) == 0 {
        plan.ports.pfc = Some(PfcSettings { xoff: packets(15), xon: packets(12), headroom: packets(40) });
    }
    if pick(3) == 0 {
        plan.ports.shared = Some(SharedSettings { buffer: packets(200), alpha: 0.5 });
    }
    plan.time_limit = Time(2_000_000_000);
    plan
}

#[test]
fn windows_of_any_length_change_nothing_where_links_fail_and_ports_pause() {
    let (mut lost, mut paused, mut finished) = (0, 0, 0);
    for seed in 0..150 {
        let plan = random_failing_plan(seed);
        let run = |parts: u64, threads: usize| {
            let mut plan = plan.clone();
            plan.threads = threads;
            let mut cut = Cut::new(&plan);
            cut.narrow = parts > 0;
            cut.parts = parts.max(1);
            run(&plan, &Programs::new(&plan, &[]), &Control::new(), cut)
        };
        let usual = run(0, 1);
        for (parts, threads) in [(1, 1), (7, 1), (0, 3), (5, 2)] {
            let other = run(parts, threads);
            let what = format!("seed {seed}, {parts} parts, {threads} threads");
            assert_eq!(usual.flows, other.flows, "{what}");
            assert_eq!(usual.links, other.links, "{what}");
            assert_eq!(usual.packets, other.packets, "{what}");
            assert_eq!(
                (usual.digest, usual.end, usual.simulated),
                (other.digest, other.end, other.simulated),
                "{what}"
            );
        }
        lost += usual.packets.lost;
        paused += usual.packets.pauses;
        finished += u32::from(usual.end == End::Finished);
    }
    assert!(lost > 1000 && paused > 100 && finished > 50, "{lost} lost, {paused} pauses, {finished} finished");
}

#[test]
fn threads_that_would_do_little_but_meet_are_not_started() {
    let mut plan = random_plan(0);
    plan.threads = 3;
    assert_eq!(Cut::new(&plan).slices, 3);
    let shape = *plan.topology.shape();
    let level = Level { rate: Rate::from_gbps(400), latency: Span::from_ns(1) };
    plan.topology = Topology::new(shape, [level; 3], [Span::ZERO; 3]).expect("a valid shape");
    assert_eq!(Cut::new(&plan).slices, 1);
}

#[test]
fn neighbouring_leaves_belong_to_different_threads() {
    let mut plan = random_plan(0);
    plan.threads = 3;
    let cut = Cut::new(&plan);
    // Leaves of three hosts: 0 to 2, 3 to 5, and so on.
    let slices: Vec<usize> = (0..12).map(|host| cut.slice_of_host(HostId(host))).collect();
    assert_eq!(slices, [0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0]);
    let places: Vec<u32> = (0..12).map(|host| cut.place_of(host)).collect();
    assert_eq!(places, [0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 5]);
    assert_eq!(cut.nodes_of(0)[0], [0, 1, 2, 9, 10, 11]);
}

#[test]
fn wide_windows_change_nothing() {
    let (mut wide, mut in_phases) = (0, 0);
    let mut cut_short = 0;
    for seed in 0..120 {
        let mut plan = random_plan(seed);
        plan.threads = 1;
        if seed % 2 == 1 {
            plan.time_limit = Time(20_000_000 + 317_123 * seed);
        }
        let mut narrow = Cut::new(&plan);
        narrow.narrow = true;
        let run = |cut| run(&plan, &Programs::new(&plan, &[]), &Control::new(), cut);
        let (a, b) = (run(Cut::new(&plan)), run(narrow));
        assert_eq!(a.flows, b.flows, "seed {seed}");
        assert_eq!(a.links, b.links, "seed {seed}");
        assert_eq!((a.digest, a.end, a.simulated), (b.digest, b.end, b.simulated), "seed {seed}");
        let mut phases = Cut::new(&Plan { threads: 3, ..plan.clone() });
        let c = run(phases.clone());
        phases.narrow = true;
        let d = run(phases);
        for other in [&c, &d] {
            assert_eq!(a.flows, other.flows, "seed {seed}, three slices");
            assert_eq!(a.links, other.links, "seed {seed}, three slices");
            let ends = (other.digest, other.end, other.simulated);
            assert_eq!((a.digest, a.end, a.simulated), ends, "seed {seed}, three slices");
        }
        in_phases += u32::from(c.events < d.events);
        wide += u32::from(a.events < b.events);
        cut_short += u32::from(a.end == End::TimeLimit);
    }
    assert!(wide > 100 && cut_short > 20, "wide windows in {wide} runs, {cut_short} cut short");
    assert!(in_phases > 100, "windows of three phases in {in_phases} runs");
}

#[test]
fn plain_and_queued_ports_agree_where_both_apply() {
    let (mut drops, mut marks) = (0, 0);
    for seed in 0..60 {
        let plan = random_plan(seed);
        let run = |cut| run(&plan, &Programs::new(&plan, &[]), &Control::new(), cut);
        let plain = run(Cut::new(&plan));
        let mut cut = Cut::new(&plan);
        cut.queued_only = true;
        let queued = run(cut);
        let late: Vec<(usize, &FlowRecord, &FlowRecord)> = plain
            .flows
            .iter()
            .zip(&queued.flows)
            .enumerate()
            .filter(|(_, (a, b))| a != b)
            .map(|(i, (a, b))| (i, a, b))
            .collect();
        assert!(late.is_empty(), "seed {seed}: {late:?}");
        assert_eq!(plain.links, queued.links, "seed {seed}");
        assert_eq!(plain.digest, queued.digest, "seed {seed}");
        assert_eq!(plain.end, End::Finished, "seed {seed}");
        drops += plain.packets.dropped;
        marks += plain.packets.marked;
    }
    assert!(drops > 100 && marks > 100, "{drops} drops and {marks} marks compared");
}

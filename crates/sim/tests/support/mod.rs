//! Plans for tests, in a few words.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test file uses its own part")]

use std::sync::Arc;
use strandway_fabric::fault::{FaultKind, FaultPlan};
use strandway_fabric::plan::{
    CapturePlan, ConnectionPlan, EcnSettings, FlowPlan, PfcSettings, PortSettings, Routing, Start, TrimSettings,
};
use strandway_fabric::topology::{Level, Pods, Shape, Topology};
use strandway_fabric::{LinkId, Measurements, NodeId, Plan};
use strandway_proto::congestion::{CongestionConfig, FixedConfig};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{Bytes, HostId, Profile, Rate, Span, Time};
use strandway_sim::{Control, simulate};

pub const US: u64 = 1_000_000;

/// A two-tier fabric at 400 Gb/s with links of 1 us.
pub fn leaf_spine(hosts: u32, hosts_per_leaf: u32, spines: u32) -> Topology {
    let shape = Shape { hosts, planes: 1, hosts_per_leaf, spines, leaf_bundle: 1, pods: None };
    build(shape, 400)
}

/// A three-tier fat tree of `k`-port switches at 100 Gb/s with links of 1 us.
pub fn fat_tree(k: u32) -> Topology {
    let pods = Some(Pods { leaves_per_pod: k / 2, cores_per_spine: k / 2, core_bundle: 1 });
    build(Shape { hosts: k * k * k / 4, planes: 1, hosts_per_leaf: k / 2, spines: k / 2, leaf_bundle: 1, pods }, 100)
}

pub fn build(shape: Shape, gbps: u64) -> Topology {
    let level = Level { rate: Rate::from_gbps(gbps), latency: Span::from_us(1) };
    Topology::new(shape, [level; 3], [Span::ZERO; 3]).expect("a valid shape")
}

pub fn bdp(topology: &Topology) -> u64 {
    let rate = topology.level(0).rate;
    rate.bytes_in(topology.base_rtt(Bytes(4160), Bytes(64))).0
}

/// Ports as the profile wants them in this fabric.
pub fn ports(topology: &Topology, profile: &Profile) -> PortSettings {
    let bdp = bdp(topology) as f64;
    let of = |ratio: f64| Bytes((bdp * ratio) as u64);
    let switch = &profile.switch;
    PortSettings {
        priority: true,
        cbfc: None,
        llr: false,
        receive: None,
        message_cost: Span::ZERO,
        data_queue: of(switch.queue_bdp),
        control_queue: of(switch.queue_bdp * 2.0),
        trim: switch.trimming.then_some(TrimSettings { size: 64 }),
        ecn: Some(EcnSettings {
            low: of(switch.ecn_low_bdp),
            high: of(switch.ecn_high_bdp),
            probability: switch.ecn_probability,
            at_dequeue: switch.ecn_at_dequeue,
            last_hop: true,
        }),
        pfc: switch.pfc.then_some(PfcSettings { xoff: Bytes(62_400), xon: Bytes(49_920), headroom: Bytes(200_000) }),
        shared: None,
        adaptive_queue: of(switch.queue_bdp),
    }
}

pub fn plan(topology: Topology, profile: Profile, flows: &[(u32, u32, u64)]) -> Plan {
    let ports = ports(&topology, &profile);
    Plan {
        topology,
        ports,
        routing: Routing::Hashed,
        profiles: vec![Arc::new(profile)],
        connections: flows
            .iter()
            .map(|f| ConnectionPlan { source: HostId(f.0), destination: HostId(f.1), profile: 0 })
            .collect(),
        flows: flows
            .iter()
            .enumerate()
            .map(|(i, f)| FlowPlan {
                connection: i as u32,
                bytes: f.2,
                start: Start::At(Time::ZERO),
                on_sent: None,
                on_received: None,
            })
            .collect(),
        triggers: vec![],
        multicast: vec![],
        faults: vec![],
        seed: 1,
        time_limit: Time(1_000_000 * US),
        threads: 1,
        sample_every: None,
        watch: None,
        accounts: true,
        rows: false,
        capture: None,
        tally_paths: false,
    }
}

pub fn preset(name: &str) -> Profile {
    Profile::preset(name).expect("a preset")
}

/// UEC's reliability with a window that never changes.
pub fn fixed(window_bdp: f64) -> Profile {
    Profile { congestion: CongestionConfig::Fixed(FixedConfig { window_bdp }), ..preset("uec") }
}

/// Every host sends to another one and hears from another one.
pub fn permutation(hosts: u32, bytes: u64, seed: u64) -> Vec<(u32, u32, u64)> {
    let mut random = Random::new(seed, StreamKind::Workload, 0);
    let mut to: Vec<u32> = (0..hosts).collect();
    random.shuffle(&mut to);
    for i in 0..hosts as usize {
        if to[i] == i as u32 {
            let other = (i + 1) % hosts as usize;
            to.swap(i, other);
        }
    }
    (0..hosts).map(|i| (i, to[i as usize], bytes)).collect()
}

/// Senders with a window that is never full, and ports that do not mark, trim or overflow: pure arithmetic.
pub fn plain(topology: Topology, flows: &[(u32, u32, u64)]) -> Plan {
    let mut plan = plan(topology, fixed(100.0), flows);
    plan.ports.ecn = None;
    plan.ports.trim = None;
    plan.ports.data_queue = Bytes(1_000_000_000);
    plan.ports.control_queue = Bytes(1_000_000_000);
    plan
}

/// The link from one node to another, by their names.
pub fn link(topology: &Topology, from: &str, to: &str) -> LinkId {
    let node = |name: &str| -> NodeId { topology.node_named(name).unwrap_or_else(|| panic!("{name} is a node")) };
    topology.links_between(node(from), node(to))[0]
}

/// Records the first 100,000 packets on these links.
pub fn capture(plan: &mut Plan, links: &[LinkId]) {
    plan.capture = Some(CapturePlan { links: links.to_vec(), limit: 100_000 });
}

pub fn fault(links: &[LinkId], kind: FaultKind, from: u64, until: u64) -> FaultPlan {
    FaultPlan { links: links.to_vec(), kind, from: Time(from), until: Time(until) }
}

pub fn run(plan: &Plan) -> Measurements {
    simulate(plan, &Control::new())
}

/// Completion times in microseconds: slowest and mean.
pub fn completions(m: &Measurements) -> (f64, f64) {
    let all: Vec<f64> = m.flows.iter().map(|f| f.completion().map_or(f64::INFINITY, |c| c.as_us())).collect();
    (all.iter().copied().fold(0.0, f64::max), all.iter().sum::<f64>() / all.len() as f64)
}

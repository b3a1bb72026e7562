//! Broadcasts, and all-gathers by multicast: reads their keys from a scenario and makes operations of a run.

use super::maker::Maker;
use super::plans::CollectivePlan;
use crate::ideal_fct::Alone;
use crate::reader::Section;
use strandway_collective::multicast::{
    CHAINS, Chains, Cutoff, Multicast, PACE, Ranks, Recovery, SILENT_MAX, StartBarriers,
};
use strandway_collective::{BroadcastTree, Collective, Operation};
use strandway_fabric::Members;
use strandway_fabric::multicast::Tree;
use strandway_fabric::plan::{Start, TriggerPlan};
use strandway_fabric::topology::Topology;
use strandway_proto::HostId;
use strandway_proto::cast::{Layout, Parity};
use strandway_proto::repair::Code;
use strandway_proto::units::{Bytes, Rate, Span};

/// The factor of the artifact's cutoff timer. Multicast sheet, section 3.
const ARTIFACT_CUTOFF: f64 = 5.0;

/// The keys of a multicast in a scenario.
#[derive(Clone, Debug)]
pub(super) struct MulticastKeys {
    /// The rank that broadcasts; `None` for an all-gather.
    root: Option<u32>,
    parity: Option<Code>,
    chains: u32,
    trees: u32,
    pace: Option<f64>,
    cutoff: Cutoff,
    recovery: Recovery,
}

impl MulticastKeys {
    /// A broadcast from rank 0 with the settings that scenarios have by default.
    pub(super) fn broadcast() -> MulticastKeys {
        MulticastKeys {
            root: Some(0),
            parity: None,
            chains: CHAINS,
            trees: 0,
            pace: None,
            cutoff: Cutoff::Tuned,
            recovery: Recovery::FAST,
        }
    }
}

/// Reads the keys of a multicast.
pub(super) fn read(section: &Section<'_>, root: Option<u32>) -> MulticastKeys {
    let many = |key: &'static str, low: u64, most: u64| section.count(key, low, most).map(|n| n as u32);
    let chains = if root.is_none() { many("chains", 1, strandway_import::HOSTS_MAX) } else { None };
    let cutoff = match section.choice("cutoff", &["tuned", "artifact"]) {
        Some("artifact") => Cutoff::Artifact(ARTIFACT_CUTOFF),
        _ => Cutoff::Tuned,
    };
    let recovery = match section.choice("recovery", &["fast", "ring"]) {
        Some("ring") => Recovery::RING,
        _ => Recovery::FAST,
    };
    MulticastKeys {
        root,
        parity: read_parity(section),
        chains: chains.unwrap_or(CHAINS),
        trees: many("trees", 0, 1 << 16).unwrap_or(0),
        pace: section.ratio("pace", 0.0, 1.0),
        cutoff,
        recovery,
    }
}

/// Reads a code such as `32+4`: data chunks and parity chunks of a group.
fn read_parity(section: &Section<'_>) -> Option<Code> {
    let text = section.text("parity")?;
    let code = Parity::read(&text);
    if let Err(what) = &code {
        section.wrong("parity", what.clone(), "write, say, \"32+4\" for 4 chunks of parity per 32 of data");
    }
    code.ok()
}

/// Reads the algorithm of a broadcast: a tree of messages, or multicast (`None`); and its root.
pub(super) fn read_broadcast(section: &Section<'_>) -> (Option<BroadcastTree>, u32) {
    const NAMES: [&str; 8] = ["multicast", "binomial", "k-nomial", "binary", "chain", "linear", "direct", "auto"];
    let algorithm = section.choice("algorithm", &NAMES).unwrap_or("multicast");
    let radix = if algorithm == "k-nomial" { section.count("radix", 2, 64).unwrap_or(4) as u32 } else { 2 };
    let tree = match algorithm {
        "binomial" | "k-nomial" => Some(BroadcastTree::Nomial { radix }),
        "binary" => Some(BroadcastTree::Binary),
        "chain" => Some(BroadcastTree::Chain),
        "linear" => Some(BroadcastTree::Linear),
        _ => None,
    };
    (tree, read_root(section))
}

/// Reads the rank that broadcasts.
pub(super) fn read_root(section: &Section<'_>) -> u32 {
    section.count("root", 0, strandway_import::HOSTS_MAX - 1).unwrap_or(0) as u32
}

/// The lowest receive rate between any two of these hosts, all planes together.
fn slowest(topology: &Topology, hosts: &[HostId]) -> Rate {
    let mut leaves: Vec<u32> = hosts.iter().map(|&host| topology.leaf_of(host)).collect();
    leaves.sort_unstable();
    leaves.dedup();
    let own = topology.level(0).rate;
    // Only long links between sites differ from pair to pair.
    let pairs = leaves.iter().flat_map(|&a| leaves.iter().map(move |&b| (a, b)));
    let narrowest = match topology.sites() {
        0 => own,
        _ => pairs.filter(|(a, b)| a != b).map(|(a, b)| topology.narrowest(a, b)).min().unwrap_or(own),
    };
    Rate(narrowest.0.min(own.0) * u64::from(topology.planes()))
}

/// The longest round trip between any two of these hosts.
fn round_trip(topology: &Topology, hosts: &[HostId], packet: Bytes, control: Bytes) -> Span {
    match topology.sites() {
        0 => topology.base_rtt(packet, control),
        _ => {
            let mut firsts: Vec<HostId> = hosts.to_vec();
            firsts.sort_unstable_by_key(|&host| (topology.leaf_of(host), host));
            firsts.dedup_by_key(|host| topology.leaf_of(*host));
            let pairs = firsts.iter().flat_map(|&a| firsts.iter().map(move |&b| (a, b)));
            let trips = pairs.map(|(a, b)| topology.rtt_between(packet, control, a, b));
            trips.max().unwrap_or(Span::ZERO).max(topology.base_rtt(packet, control).min(Span::from_us(20)))
        }
    }
}

impl Maker<'_> {
    /// Makes one broadcast or all-gather by multicast among these hosts.
    pub(super) fn multicast(
        &mut self,
        written: &MulticastKeys,
        bytes: u64,
        hosts: &[HostId],
        name: (String, Option<u32>),
        placement: String,
    ) {
        if self.is_refused_on_graph("multicast") {
            return;
        }
        let ranks = hosts.len() as u32;
        if let Some(root) = written.root.filter(|&root| root >= ranks) {
            let what = format!("there are only {ranks} ranks, numbered from 0 to {}", ranks - 1);
            return self.complain("root", root, what, "name one of them");
        }
        if self.workload.common.connections > 1 {
            let what = "is for unicast algorithms; multicast has no connections for data";
            return self.complain("connections", self.workload.common.connections, what, "leave it out");
        }
        if self.workload.ordered.is_some() {
            let what = "is for unicast algorithms; the chunks of a multicast take all trees in turn";
            return self.complain("ordered", "", what, "leave it out, or write trees = 1");
        }
        let profile = &self.traffic.profiles[usize::from(self.profile)];
        let transport = &profile.transport;
        let (mtu, header, control) = (transport.mtu, transport.header, transport.control);
        let shares = if written.root.is_some() { 1 } else { ranks };
        let Some(layout) = Layout::new(bytes, shares, mtu as u16) else {
            return self.complain("size", Bytes(bytes), "makes more than 4 billion chunks", "write less");
        };
        let parity = written.parity.map(|code| Parity::new(layout, code));
        if let Some(None) = parity {
            return self.complain("parity", Bytes(bytes), "makes more than 4 billion chunks with parity", "write less");
        }
        let topology = self.context.topology;
        let packet = Bytes(u64::from(mtu) + u64::from(header));
        let pace = match written.pace {
            Some(0.0) => None,
            None if self.context.pauses => None,
            pace => Some(pace.unwrap_or(PACE)),
        };
        let number = self.traffic.operations.iter().filter_map(Operation::multicast).count() as u32;
        let multicast = Multicast {
            root: written.root,
            ranks: Ranks::new(hosts.to_vec()),
            layout,
            parity: parity.flatten(),
            chains: Chains::new(ranks, written.chains),
            starts: hosts.iter().map(|_| self.moment(self.workload.common.start)).collect(),
            group: self.traffic.members.len() as u32,
            task: number,
            // Numbers of parts and channels are set when all workloads are known.
            first_message: 0,
            channel: 0,
            profile: self.profile,
            header: header as u16,
            planes: ((1u64 << topology.planes()) - 1) as u32,
            groups: u32::MAX,
            trees: written.trees,
            tree_count: Tree::count(topology),
            rate: slowest(topology, hosts),
            pace,
            rtt: round_trip(topology, hosts, packet, Bytes(u64::from(control))),
            silent_max: SILENT_MAX,
            spare_root: false,
            opening: StartBarriers::TwoBarriers,
            cutoff: written.cutoff,
            recovery: written.recovery,
        };
        self.traffic.members.push(Members::new(topology, hosts.to_vec()));
        let kind = if written.root.is_some() { Collective::Broadcast } else { Collective::AllGather };
        // All chunks for a rank arrive over its own link, after at least one one-way time.
        let longest = layout.share(0).1;
        let heard = if written.root.is_some() { longest } else { bytes - longest };
        let alone = Alone::new(&self.traffic.profiles[usize::from(self.profile)], topology, multicast.rate);
        let way = |to: &HostId| alone.transfer(hosts[0], *to, 0);
        let nearest = hosts[1..].iter().map(way).min().unwrap_or(Span::ZERO);
        let plan = CollectivePlan {
            name: name.0,
            group: name.1,
            kind,
            algorithm: "multicast".into(),
            ranks,
            bytes,
            operation: None,
            placement,
            class: self.class,
            messages: 0..0,
            tallied: true,
            bound: alone.busy(heard) + nearest,
            job: None,
        };
        let operation = Some(self.traffic.add(Operation::Multicast(Box::new(multicast))));
        self.traffic.collectives.push(CollectivePlan { operation, ..plan });
    }

    /// Makes one broadcast over a tree of messages: flows that wait for each other.
    pub(super) fn broadcast(
        &mut self,
        (tree, root, parts): (BroadcastTree, u32, u32),
        hosts: &[HostId],
        name: (String, Option<u32>),
        placement: String,
    ) {
        let ranks = hosts.len() as u32;
        let bytes = self.workload.common.size.0;
        if root >= ranks {
            let what = format!("there are only {ranks} ranks, numbered from 0 to {}", ranks - 1);
            return self.complain("root", root, what, "name one of them");
        }
        let parts = u64::from(parts).min(bytes.max(1)) as u32;
        let flows = u64::from(ranks - 1) * u64::from(parts) * u64::from(self.workload.common.connections);
        if !self.room(flows) {
            return;
        }
        let host = |v: u32| hosts[((u64::from(v) + u64::from(root)) % u64::from(ranks)) as usize];
        let start = self.moment(self.workload.common.start);
        let first = self.traffic.messages.len();
        let cut = |part: u32| (u128::from(bytes) * u128::from(part) / u128::from(parts)) as u64;
        let connections: Vec<_> = (1..ranks).map(|v| self.open(host(tree.parent(v)).0, host(v).0)).collect();
        // The trigger of each rank and part: it fires when the rank has that part and may forward it.
        let mut triggers: Vec<Option<u32>> = vec![None; ranks as usize * parts as usize];
        let place = |v: u32, part: u32| (v * parts + part) as usize;
        for v in (1..ranks).filter(|&v| !tree.children(v, ranks).is_empty()) {
            for part in 0..parts {
                triggers[place(v, part)] = Some(self.traffic.triggers.len() as u32);
                let pieces = u64::from(self.workload.common.connections).min((cut(part + 1) - cut(part)).max(1));
                self.traffic.triggers.push(TriggerPlan { needed: pieces as u32 });
            }
        }
        for part in 0..parts {
            for v in 0..ranks {
                for child in tree.children(v, ranks) {
                    let start = match triggers[place(v, part)] {
                        None => Start::At(start),
                        Some(trigger) => Start::On(trigger, Span::ZERO),
                    };
                    let over = connections[child as usize - 1].clone();
                    let message = self.post(over, Bytes(cut(part + 1) - cut(part)), start, None);
                    let message = self.traffic.messages[message];
                    for flow in message.first..message.first + message.pieces {
                        self.traffic.flows[flow as usize].on_received = triggers[place(child, part)];
                    }
                }
            }
        }
        let alone =
            Alone::new(&self.traffic.profiles[usize::from(self.profile)], self.context.topology, self.context.rate);
        let mut ready = vec![Span::ZERO; ranks as usize];
        for v in 1..ranks {
            let parent = tree.parent(v);
            ready[v as usize] = ready[parent as usize] + alone.transfer(host(parent), host(v), cut(1));
        }
        let plan = CollectivePlan {
            name: name.0,
            group: name.1,
            kind: Collective::Broadcast,
            algorithm: tree.name().into(),
            ranks,
            bytes,
            operation: None,
            placement,
            class: self.class,
            messages: first..self.traffic.messages.len(),
            tallied: false,
            bound: ready.into_iter().max().unwrap_or(Span::ZERO),
            job: None,
        };
        self.traffic.collectives.push(plan);
    }
}

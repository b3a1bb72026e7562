//! The cut of a fabric into slices, one per thread.

use std::sync::Arc;
use strandway_fabric::plan::Plan;
use strandway_fabric::topology::{NodeId, Topology};
use strandway_proto::units::Bytes;
use strandway_proto::{ConnectionId, HostId};

/// The cut of the fabric: the nodes that each slice owns.
///
/// Leaves with their hosts (in three tiers: pods) are dealt out to the slices in turns, and so are the switches of the
/// top tier. Neighbours often work at the same time, as the hosts of one stage of a pipeline do, so neighbours belong
/// to different slices.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) slices: usize,
    pub(crate) link_bases: [u32; 5],
    pub(crate) hosts: u32,
    /// For comparisons: use no plain first-in-first-out ports.
    pub(crate) queued_only: bool,
    /// For comparisons: windows of one link latency, even if wider ones are possible.
    pub(crate) narrow: bool,
    /// For comparisons: the number of parts into which narrow windows are cut.
    pub(crate) parts: u64,
    /// Per slice: its hosts, leaves, tier-1 switches, cores, as ascending node numbers.
    nodes: Vec<[Vec<u32>; 4]>,
    /// For each node, its slice.
    owners: Vec<u16>,
    /// For each host, its place among the hosts of its slice.
    places: Arc<[u32]>,
    /// Each connection's number at its source and at its destination.
    pub(crate) ends: Vec<(ConnectionId, ConnectionId)>,
    /// For each host, the number of its ends of the plan's connections; these have the first numbers.
    pub(crate) planned: Vec<u32>,
}

impl Cut {
    /// Cuts into one slice per thread, but at most one per leaf or pod.
    pub(crate) fn new(plan: &Plan) -> Cut {
        let topology = &plan.topology;
        let units = if topology.shape().pods.is_some() { topology.pods() } else { topology.leaves() };
        let most = units.min(u32::from(u16::MAX)) as usize;
        let slices = plan.threads.min(threads_of_use(topology)).clamp(1, most);
        let mut next = vec![0u32; topology.hosts() as usize];
        let mut number = |host: HostId| {
            let n = &mut next[host.0 as usize];
            *n += 1;
            ConnectionId(*n - 1)
        };
        let ends = plan.connections.iter().map(|c| (number(c.source), number(c.destination))).collect();
        let mut cut = Cut {
            slices,
            link_bases: topology.link_bases(),
            hosts: topology.hosts(),
            queued_only: false,
            narrow: false,
            parts: 1,
            nodes: vec![Default::default(); slices],
            owners: Vec::with_capacity(topology.nodes() as usize),
            places: Arc::default(),
            ends,
            planned: next,
        };
        let mut places = Vec::with_capacity(topology.hosts() as usize);
        for node in 0..topology.nodes() {
            let (kind, unit) = unit(topology, node);
            let owner = unit as usize % slices;
            cut.owners.push(owner as u16);
            let nodes = &mut cut.nodes[owner][kind];
            if kind == 0 {
                places.push(nodes.len() as u32);
            }
            nodes.push(node);
        }
        cut.places = places.into();
        cut
    }

    /// The nodes of a slice: its hosts, leaves, tier-1 switches, cores.
    pub(crate) fn nodes_of(&self, slice: usize) -> &[Vec<u32>; 4] {
        &self.nodes[slice]
    }

    /// The slice that owns a node.
    pub(crate) fn slice_of(&self, node: NodeId) -> usize {
        usize::from(self.owners[node.0 as usize])
    }

    /// The slice that owns a host.
    pub(crate) fn slice_of_host(&self, host: HostId) -> usize {
        self.slice_of(NodeId(host.0))
    }

    /// The place of a host among the hosts of its slice.
    #[inline]
    pub(crate) fn place_of(&self, host: u32) -> u32 {
        if self.slices == 1 { host } else { self.places[host as usize] }
    }

    /// The places of all hosts, see [`Cut::place_of`].
    pub(crate) fn places(&self) -> &Arc<[u32]> {
        &self.places
    }
}

/// The kind of a node (0 for hosts, 1 for leaves, and so on), and the number of the part of the fabric with which it is
/// dealt out.
fn unit(topology: &Topology, node: u32) -> (usize, u32) {
    let shape = topology.shape();
    let bases = topology.node_bases();
    let kind = (1..4).rev().find(|&k| node >= bases[k]).unwrap_or(0);
    let number = if kind == 0 { node } else { (node - bases[kind]) / u32::from(shape.planes) };
    let leaf = if kind == 0 { number / shape.hosts_per_leaf } else { number };
    let unit = match (kind, shape.pods) {
        (0 | 1, None) => leaf,
        (0 | 1, Some(pods)) => leaf / pods.leaves_per_pod,
        (2, Some(_)) => number / shape.spines,
        _ => number,
    };
    (kind, unit)
}

/// A further thread is useful only if, with all links busy, each thread has this many packet hops per window.
const HOPS_MIN: u64 = 64;

/// The largest useful number of threads. With more, threads would mostly wait for each other, because windows are as
/// short as the shortest link.
fn threads_of_use(topology: &Topology) -> usize {
    let packet = topology.level(0).rate.time_for(Bytes(4096)).0.max(1);
    let hops = u128::from(topology.links()) * u128::from(topology.shortest_latency().0) / u128::from(packet);
    usize::try_from(hops / u128::from(HOPS_MIN)).unwrap_or(usize::MAX)
}

//! Hosts, switches and links by arithmetic: nothing is stored per flow or per route.
//!
//! A fabric is one or more identical *planes*. Each plane is a Clos network of two tiers (leaf, spine) or three (leaf,
//! aggregation, core). Every host has one port in each plane. A *directed link* and the port that feeds it are the same
//! thing with the same number:
//!
//! | links | number |
//! |---|---|
//! | host to leaf | `host * planes + plane` |
//! | ports of a leaf: first down to its hosts, then up | after those, leaf by leaf, plane by plane within a leaf |
//! | ports of a tier-1 switch: first down, then up | after those |
//! | ports of a core: down | after those |
//!
//! Alternatively, a plane is a few sites: each is a leaf with its hosts, with long links to every other site. See
//! [`SitesShape`]. Or it is a graph of any switches and links, see [`GraphShape`].

mod distance;
mod graph;
mod names;
mod route;
mod sites;

pub use graph::{
    Dragonfly, FAR, GRAPH_SWITCHES_MAX, Graph, GraphLink, GraphPaths, GraphShape, dragonfly, hyperx, switch_names,
    torus,
};
pub use names::LinkGroup;
pub use sites::{LongLink, SITES_MAX, SitesShape};

use std::sync::Arc;
use strandway_proto::HostId;
use strandway_proto::units::{Rate, Span};

/// A directed link, or the port that feeds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// A host or switch. Hosts have the lowest numbers, then leaves, tier-1 switches, cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// The kinds of node, from the bottom up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeKind {
    /// A NIC.
    Host,
    /// T0: the switch that hosts attach to.
    Leaf,
    /// T1: spine of a two-tier plane, aggregation switch of a three-tier one.
    Spine,
    /// T2: core of a three-tier plane.
    Core,
}

/// The shape of a fabric. Counts are per plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Hosts in the fabric (the same in every plane).
    pub hosts: u32,
    /// Number of identical planes, at most 32. Every host has a port in each.
    pub planes: u8,
    /// Hosts on one leaf; the last leaf may have fewer.
    pub hosts_per_leaf: u32,
    /// Tier-1 switches that one leaf connects to: all spines of a two-tier plane, the pod's aggregation switches
    /// otherwise.
    pub spines: u32,
    /// Parallel links between a leaf and each of its tier-1 switches.
    pub leaf_bundle: u32,
    /// The third tier; `None` for two tiers.
    pub pods: Option<Pods>,
}

/// The third tier of a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pods {
    /// Leaves in one pod; the last pod may have fewer.
    pub leaves_per_pod: u32,
    /// Cores that one aggregation switch connects to. Aggregation switch `a` of every pod reaches cores
    /// `a * cores_per_spine ..`.
    pub cores_per_spine: u32,
    /// Parallel links between an aggregation switch and each of its cores.
    pub core_bundle: u32,
}

/// Rate and delay of the links of one level: host to leaf, leaf to tier 1, tier 1 to core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Rate of one link.
    pub rate: Rate,
    /// Propagation delay, at least 1 ns because the simulator looks ahead by it.
    pub latency: Span,
}

/// Bytes of a packet that a switch must have received before it can send it on: our choice, the longest headers.
pub const CUT_THROUGH_BYTES: u64 = 64;

/// Hosts, switches and links of a fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    shape: Shape,
    levels: [Level; 3],
    switch_latency: [Span; 3],
    cut_through: bool,
    leaves: u32,
    pods: u32,
    spines: u32,
    cores: u32,
    spine_down: u32,
    spine_up: u32,
    core_down: u32,
    /// Long links by pair of sites; empty if the fabric is one place.
    long: Vec<LongLink>,
    /// Links and next hops, if the fabric is a graph.
    graph: Option<Arc<Graph>>,
}

/// The ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEnds {
    /// The node that feeds the link.
    pub from: NodeId,
    /// The node at which it arrives.
    pub to: NodeId,
    /// 0 host to leaf, 1 leaf to tier 1 or site to site, 2 tier 1 to core.
    pub level: usize,
    /// True if it leads towards the core; between sites, towards the site with the higher number.
    pub up: bool,
    /// The plane.
    pub plane: u8,
    /// The number of the link in the other direction.
    pub reverse: LinkId,
}

impl Topology {
    /// The fabric of this shape.
    ///
    /// `levels`: host to leaf, leaf to tier 1, tier 1 to core (unused with two tiers). `switch_latency`: of leaves,
    /// tier 1 and cores.
    ///
    /// # Errors
    /// A sentence that names the wrong value.
    pub fn new(shape: Shape, levels: [Level; 3], switch_latency: [Span; 3]) -> Result<Topology, String> {
        if shape.hosts == 0 || shape.hosts_per_leaf == 0 {
            return Err("a fabric needs at least one host and one host per leaf".into());
        }
        if shape.planes == 0 || shape.planes > 32 {
            return Err(format!("{} planes: a NIC has 1 to 32 ports", shape.planes));
        }
        if shape.spines == 0 || shape.leaf_bundle == 0 {
            return Err("a leaf needs at least one uplink".into());
        }
        let leaves = shape.hosts.div_ceil(shape.hosts_per_leaf);
        let (pods, spines, cores, spine_down, spine_up, core_down) = match shape.pods {
            None => (1, shape.spines, 0, u64::from(leaves) * u64::from(shape.leaf_bundle), 0, 0),
            Some(p) => {
                if p.leaves_per_pod == 0 || p.cores_per_spine == 0 || p.core_bundle == 0 {
                    return Err("a pod needs at least one leaf, and an aggregation switch at least one uplink".into());
                }
                let pods = leaves.div_ceil(p.leaves_per_pod);
                let spines = u64::from(pods) * u64::from(shape.spines);
                let cores = u64::from(shape.spines) * u64::from(p.cores_per_spine);
                let up = u64::from(p.cores_per_spine) * u64::from(p.core_bundle);
                let down = u64::from(p.leaves_per_pod) * u64::from(shape.leaf_bundle);
                let core_down = u64::from(pods) * u64::from(p.core_bundle);
                if spines > 1 << 24 || cores > 1 << 24 || up > 1 << 16 || core_down > 1 << 24 {
                    return Err("too many switches or ports for one fabric".into());
                }
                (pods, spines as u32, cores as u32, down, up as u32, core_down as u32)
            }
        };
        for level in &levels[..if shape.pods.is_some() { 3 } else { 2 }] {
            if level.rate.0 == 0 {
                return Err("a link's rate must be above zero".into());
            }
            if level.latency < Span::from_ns(1) {
                return Err("a link's latency must be at least 1 ns: the simulator looks ahead by it".into());
            }
        }
        let planes = u64::from(shape.planes);
        let links = planes
            * (u64::from(shape.hosts)
                + u64::from(leaves)
                    * (u64::from(shape.hosts_per_leaf) + u64::from(shape.spines) * u64::from(shape.leaf_bundle))
                + u64::from(spines) * (spine_down + u64::from(spine_up))
                + u64::from(cores) * u64::from(core_down));
        if links > 1 << 28 {
            return Err(format!("{links} links are more than one run can hold (268,435,456)"));
        }
        let spine_down = spine_down as u32;
        let cut_through = false;
        Ok(Topology {
            shape,
            levels,
            switch_latency,
            cut_through,
            leaves,
            pods,
            spines,
            cores,
            spine_down,
            spine_up,
            core_down,
            long: Vec::new(),
            graph: None,
        })
    }

    /// Makes switches cut through: where links have their full rate, a switch sends a packet on as soon as its first
    /// [`CUT_THROUGH_BYTES`] have arrived and the next port is idle.
    ///
    /// # Errors
    /// If links have different rates: a faster link would run out of bytes.
    pub fn with_cut_through(self) -> Result<Topology, String> {
        if self.graph.is_some() {
            return Err("switches of graphs store and forward".into());
        }
        if !self.long.is_empty() {
            return Err("switches of sites store and forward: long links have rates of their own".into());
        }
        let used = if self.tiers() == 3 { &self.levels[..] } else { &self.levels[..2] };
        if used.iter().any(|level| level.rate != used[0].rate) {
            let rates: Vec<String> = used.iter().map(|level| level.rate.to_string()).collect();
            return Err(format!(
                "switches can cut through only where all links are equally fast, not {}",
                rates.join(", ")
            ));
        }
        Ok(Topology { cut_through: true, ..self })
    }

    /// The rate of links from which switches may cut through; `None` if switches store and forward.
    pub fn cut_through(&self) -> Option<Rate> {
        self.cut_through.then_some(self.levels[0].rate)
    }

    /// The shape of the fabric.
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Number of hosts.
    pub const fn hosts(&self) -> u32 {
        self.shape.hosts
    }

    /// Number of planes, that is, of ports per NIC.
    pub const fn planes(&self) -> u8 {
        self.shape.planes
    }

    /// Number of tiers: 2 or 3.
    pub const fn tiers(&self) -> usize {
        if self.shape.pods.is_some() { 3 } else { 2 }
    }

    /// Leaves in one plane.
    pub const fn leaves(&self) -> u32 {
        self.leaves
    }

    /// Pods in one plane; 1 with two tiers.
    pub const fn pods(&self) -> u32 {
        self.pods
    }

    /// Tier-1 switches in one plane.
    pub const fn spines(&self) -> u32 {
        self.spines
    }

    /// Cores in one plane.
    pub const fn cores(&self) -> u32 {
        self.cores
    }

    /// Uplinks of one leaf in one plane.
    pub const fn leaf_up(&self) -> u32 {
        self.shape.spines * self.shape.leaf_bundle
    }

    /// Ports of one leaf.
    pub const fn leaf_ports(&self) -> u32 {
        self.shape.hosts_per_leaf + self.leaf_up()
    }

    /// Downward ports of one tier-1 switch.
    pub const fn spine_down(&self) -> u32 {
        self.spine_down
    }

    /// Upward ports of one tier-1 switch.
    pub const fn spine_up(&self) -> u32 {
        self.spine_up
    }

    /// Ports of one tier-1 switch.
    pub const fn spine_ports(&self) -> u32 {
        self.spine_down + self.spine_up
    }

    /// Ports of one core.
    pub const fn core_ports(&self) -> u32 {
        self.core_down
    }

    /// The time that a packet takes inside leaves, switches of tier 1 and cores.
    pub const fn switch_latency(&self) -> [Span; 3] {
        self.switch_latency
    }

    /// Rate and latency of a level: 0 host to leaf, 1 leaf to tier 1, 2 tier 1 to core. Between sites, level 1 has the
    /// lowest rate and the longest latency of all long links; [`Topology::level_of`] returns those of each link.
    pub const fn level(&self, level: usize) -> &Level {
        &self.levels[level]
    }

    /// The first link number of each kind of feeding node, and the number of links.
    pub const fn link_bases(&self) -> [u32; 5] {
        let planes = self.shape.planes as u32;
        let leaf = self.shape.hosts * planes;
        let spine = leaf + self.leaves * planes * self.leaf_ports();
        let core = spine + self.spines * planes * self.spine_ports();
        [0, leaf, spine, core, core + self.cores * planes * self.core_down]
    }

    /// The first node number of each kind, and the number of nodes.
    pub const fn node_bases(&self) -> [u32; 5] {
        let planes = self.shape.planes as u32;
        let leaf = self.shape.hosts;
        let spine = leaf + self.leaves * planes;
        let core = spine + self.spines * planes;
        [0, leaf, spine, core, core + self.cores * planes]
    }

    /// Number of directed links.
    pub const fn links(&self) -> u32 {
        self.link_bases()[4]
    }

    /// Number of nodes.
    pub const fn nodes(&self) -> u32 {
        self.node_bases()[4]
    }

    /// The node of a host.
    pub const fn host(&self, host: HostId) -> NodeId {
        NodeId(host.0)
    }

    /// The node of leaf `leaf` in `plane`.
    pub const fn leaf(&self, leaf: u32, plane: u8) -> NodeId {
        NodeId(self.node_bases()[1] + leaf * self.shape.planes as u32 + plane as u32)
    }

    /// The node of tier-1 switch `spine` in `plane`. With three tiers, `spine` is `pod * spines per pod + index`.
    pub const fn spine(&self, spine: u32, plane: u8) -> NodeId {
        NodeId(self.node_bases()[2] + spine * self.shape.planes as u32 + plane as u32)
    }

    /// The node of core `core` in `plane`.
    pub const fn core(&self, core: u32, plane: u8) -> NodeId {
        NodeId(self.node_bases()[3] + core * self.shape.planes as u32 + plane as u32)
    }

    /// The kind of a node, its number among its kind within its plane, and the plane (0 for hosts).
    pub const fn describe(&self, node: NodeId) -> (NodeKind, u32, u8) {
        let bases = self.node_bases();
        let planes = self.shape.planes as u32;
        let n = node.0;
        if n < bases[1] {
            return (NodeKind::Host, n, 0);
        }
        let (kind, at) = if n < bases[2] {
            (NodeKind::Leaf, n - bases[1])
        } else if n < bases[3] {
            (NodeKind::Spine, n - bases[2])
        } else {
            (NodeKind::Core, n - bases[3])
        };
        (kind, at / planes, (at % planes) as u8)
    }

    /// The first port of a node, and its number of ports.
    pub const fn ports_of(&self, node: NodeId) -> (LinkId, u32) {
        let links = self.link_bases();
        let nodes = self.node_bases();
        let (kind, _, _) = self.describe(node);
        match kind {
            NodeKind::Host => (LinkId(node.0 * self.shape.planes as u32), self.shape.planes as u32),
            NodeKind::Leaf => (LinkId(links[1] + (node.0 - nodes[1]) * self.leaf_ports()), self.leaf_ports()),
            NodeKind::Spine => (LinkId(links[2] + (node.0 - nodes[2]) * self.spine_ports()), self.spine_ports()),
            NodeKind::Core => (LinkId(links[3] + (node.0 - nodes[3]) * self.core_down), self.core_down),
        }
    }

    /// The ends of a link. `None` if the port is not connected (the last leaf or pod may be smaller).
    pub fn ends(&self, link: LinkId) -> Option<LinkEnds> {
        let bases = self.link_bases();
        let planes = u32::from(self.shape.planes);
        let bundle = self.shape.leaf_bundle;
        let l = link.0;
        if l < bases[1] {
            let (host, plane) = (l / planes, (l % planes) as u8);
            let leaf = self.leaf(host / self.shape.hosts_per_leaf, plane);
            let reverse = self.ports_of(leaf).0.0 + host % self.shape.hosts_per_leaf;
            return Some(LinkEnds {
                from: NodeId(host),
                to: leaf,
                level: 0,
                up: true,
                plane,
                reverse: LinkId(reverse),
            });
        }
        if l < bases[2] {
            let at = l - bases[1];
            let from = NodeId(self.node_bases()[1] + at / self.leaf_ports());
            let (_, leaf, plane) = self.describe(from);
            let port = at % self.leaf_ports();
            if port < self.shape.hosts_per_leaf {
                let host = leaf * self.shape.hosts_per_leaf + port;
                if host >= self.shape.hosts {
                    return None;
                }
                let reverse = LinkId(host * planes + u32::from(plane));
                return Some(LinkEnds { from, to: NodeId(host), level: 0, up: false, plane, reverse });
            }
            let up = port - self.shape.hosts_per_leaf;
            if !self.long.is_empty() {
                return Some(self.long_ends(from, leaf, plane, up));
            }
            if let Some(graph) = &self.graph {
                return self.graph_ends(graph, from, leaf, plane, up);
            }
            let (pod, within) = self.pod_of_leaf(leaf);
            let to = self.spine(pod * self.shape.spines + up / bundle, plane);
            let reverse = LinkId(self.ports_of(to).0.0 + within * bundle + up % bundle);
            return Some(LinkEnds { from, to, level: 1, up: true, plane, reverse });
        }
        if l < bases[3] {
            let at = l - bases[2];
            let from = NodeId(self.node_bases()[2] + at / self.spine_ports());
            let (_, spine, plane) = self.describe(from);
            let port = at % self.spine_ports();
            if port < self.spine_down {
                let leaf = match self.shape.pods {
                    None => port / bundle,
                    Some(p) => spine / self.shape.spines * p.leaves_per_pod + port / bundle,
                };
                if leaf >= self.leaves {
                    return None;
                }
                let to = self.leaf(leaf, plane);
                let up = spine % self.shape.spines * bundle + port % bundle;
                let reverse = LinkId(self.ports_of(to).0.0 + self.shape.hosts_per_leaf + up);
                return Some(LinkEnds { from, to, level: 1, up: false, plane, reverse });
            }
            let pods = self.shape.pods?;
            let up = port - self.spine_down;
            let (pod, within) = (spine / self.shape.spines, spine % self.shape.spines);
            let to = self.core(within * pods.cores_per_spine + up / pods.core_bundle, plane);
            let reverse = LinkId(self.ports_of(to).0.0 + pod * pods.core_bundle + up % pods.core_bundle);
            return Some(LinkEnds { from, to, level: 2, up: true, plane, reverse });
        }
        if l < bases[4] {
            let pods = self.shape.pods?;
            let at = l - bases[3];
            let from = NodeId(self.node_bases()[3] + at / self.core_down);
            let (_, core, plane) = self.describe(from);
            let port = at % self.core_down;
            let spine = port / pods.core_bundle * self.shape.spines + core / pods.cores_per_spine;
            let to = self.spine(spine, plane);
            let up = core % pods.cores_per_spine * pods.core_bundle + port % pods.core_bundle;
            let reverse = LinkId(self.ports_of(to).0.0 + self.spine_down + up);
            return Some(LinkEnds { from, to, level: 2, up: false, plane, reverse });
        }
        None
    }

    /// The pod of a leaf, and the leaf's number within it.
    pub const fn pod_of_leaf(&self, leaf: u32) -> (u32, u32) {
        match self.shape.pods {
            None => (0, leaf),
            Some(p) => (leaf / p.leaves_per_pod, leaf % p.leaves_per_pod),
        }
    }

    /// The links from one node to another; empty if they are not neighbours.
    pub fn links_between(&self, from: NodeId, to: NodeId) -> Vec<LinkId> {
        let (first, count) = self.ports_of(from);
        (first.0..first.0 + count).map(LinkId).filter(|&l| self.ends(l).is_some_and(|e| e.to == to)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_proto::units::Bytes;

    pub(super) fn shapes() -> Vec<Topology> {
        let level = Level { rate: Rate::from_gbps(400), latency: Span::from_us(1) };
        let base = Shape { hosts: 30, planes: 1, hosts_per_leaf: 4, spines: 3, leaf_bundle: 2, pods: None };
        let pods = Some(Pods { leaves_per_pod: 2, cores_per_spine: 2, core_bundle: 2 });
        [base, Shape { planes: 4, ..base }, Shape { pods, hosts: 31, ..base }, Shape { pods, planes: 2, ..base }]
            .into_iter()
            .map(|shape| Topology::new(shape, [level; 3], [Span::ZERO; 3]).expect("a valid shape"))
            .chain([sites(2, 1, 1), sites(5, 2, 3)])
            .chain(graph::tests::graphs())
            .collect()
    }

    fn sites(sites: u32, planes: u8, bundle: u32) -> Topology {
        let shape = SitesShape { sites, hosts_per_site: 3, planes, bundle };
        let level = Level { rate: Rate::from_gbps(400), latency: Span::from_us(1) };
        let long = LongLink { level, queue: Bytes(1 << 20) };
        Topology::of_sites(shape, level, vec![long; shape.pairs().count()], Span::ZERO).expect("a valid shape")
    }

    #[test]
    fn every_link_has_a_way_back_and_a_name_of_its_own() {
        for topology in shapes() {
            let mut names = std::collections::BTreeSet::new();
            let mut counts = vec![0; topology.groups().len()];
            for link in (0..topology.links()).map(LinkId) {
                let Some(ends) = topology.ends(link) else { continue };
                let back = topology.ends(ends.reverse).expect("the way back exists");
                assert_eq!((back.from, back.to, back.reverse), (ends.to, ends.from, link));
                assert_ne!(back.up, ends.up);
                assert!(names.insert(topology.link_name(link)), "{} twice", topology.link_name(link));
                assert!(topology.links_between(ends.from, ends.to).contains(&link));
                counts[topology.group_index(&ends)] += 1;
            }
            for (group, count) in topology.groups().iter().zip(counts) {
                assert_eq!(group.links, count, "{}", group.name);
            }
        }
    }
}

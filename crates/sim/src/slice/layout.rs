//! The order of a slice's ports in memory, and the length of its windows.
//!
//! Packets pass every plane in the same direction: up by the leaves, up by the tier above, down by the cores, down by
//! tier 1, down by the leaves; only hosts send packets from the end to the start. So ports are in that order, plane
//! after plane, after the hosts' own ports. A slice visits all switches in that order and then the hosts. So a
//! window may be as long as the way of a packet from a host to its leaf and back ([`Lookahead`]), instead of one link
//! latency. This halves the number of visits, and a plane's ports stay in the cache.

use super::Cut;
use crate::calendar::GROUP;
use std::ops::Range;
use std::sync::Arc;
use strandway_fabric::plan::Plan;
use strandway_fabric::topology::{LinkId, NodeKind, Topology};

/// The places of a slice's ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    /// The first port down and the first port up of each switch; by node, without the hosts.
    down: Vec<u32>,
    up: Vec<u32>,
    /// Ports that lead down, per kind of switch.
    downs: [u32; 3],
    hosts: u32,
    leaf_node: [u32; 3],
    leaf_link: [u32; 3],
    ports_per: [u32; 3],
    /// For each host, its place among the slice's hosts.
    places: Arc<[u32]>,
    planes: u32,
    /// Links by place. `u32::MAX` fills the gaps, so that each stage begins with a new group of stops.
    pub(super) links: Vec<u32>,
    /// The first place after the hosts' ports.
    pub(super) switches: u32,
    /// If stages begin with new groups: the groups of the stages below the top tier that lead up, of the top tier, and
    /// of the stages that lead down.
    pub(super) phases: [Vec<Range<usize>>; 3],
}

/// The stages that a packet passes in a plane: the kind of switch, and whether its ports lead up.
const STAGES: [(NodeKind, bool); 5] = [
    (NodeKind::Leaf, true),
    (NodeKind::Spine, true),
    (NodeKind::Core, false),
    (NodeKind::Spine, false),
    (NodeKind::Leaf, false),
];

/// The stages of the top tier: the cores, or without cores the tier-1 switches.
const CORES: usize = 2;
const SPINES: usize = 3;

impl Layout {
    /// The places of the ports of these nodes: hosts, leaves, tier-1 switches, cores. `places`: of every host, its
    /// place among the hosts of its slice. `aligned`: each stage begins with a new group.
    pub(super) fn new(topology: &Topology, nodes: &[Vec<u32>; 4], places: Arc<[u32]>, aligned: bool) -> Layout {
        let bases = topology.node_bases();
        let links = topology.link_bases();
        let planes = u32::from(topology.planes());
        let switches = (topology.nodes() - topology.hosts()) as usize;
        let host_links = nodes[0].iter().flat_map(|host| host * planes..(host + 1) * planes);
        let mut layout = Layout {
            down: vec![u32::MAX; switches],
            up: vec![u32::MAX; switches],
            downs: [topology.shape().hosts_per_leaf, topology.spine_down(), topology.core_ports()],
            hosts: topology.hosts(),
            leaf_node: [bases[1], bases[2], bases[3]],
            leaf_link: [links[1], links[2], links[3]],
            ports_per: [topology.leaf_ports(), topology.spine_ports(), topology.core_ports()],
            places,
            planes,
            switches: nodes[0].len() as u32 * planes,
            links: host_links.collect(),
            phases: Default::default(),
        };
        // The stage of the highest switches, the only ones that lead from slice to slice.
        let top = if topology.cores() > 0 { CORES } else { SPINES };
        for plane in 0..planes {
            for (stage, (kind, up)) in STAGES.into_iter().enumerate() {
                let k = kind as usize;
                let first = layout.links.len() - layout.switches as usize;
                for node in nodes[k].iter().copied().filter(|n| (n - bases[k]) % planes == plane) {
                    layout.add(topology, node, kind, up);
                }
                let stops = layout.links.len() - layout.switches as usize;
                if aligned && !stops.is_multiple_of(GROUP) {
                    layout.links.resize(layout.switches as usize + stops.next_multiple_of(GROUP), u32::MAX);
                }
                if aligned {
                    let end = layout.links.len() - layout.switches as usize;
                    let phase = usize::from(stage >= top) + usize::from(stage > top);
                    layout.phases[phase].push(first / GROUP..end / GROUP);
                }
            }
        }
        layout
    }

    /// Adds the ports of a switch that lead up, or those that lead down.
    fn add(&mut self, topology: &Topology, node: u32, kind: NodeKind, up: bool) {
        let (LinkId(first), count) = topology.ports_of(strandway_fabric::NodeId(node));
        let down = self.downs[kind as usize - 1];
        let place = self.links.len() as u32;
        let at = (node - self.hosts) as usize;
        if up {
            self.up[at] = place;
            self.links.extend(first + down..first + count);
        } else {
            self.down[at] = place;
            self.links.extend(first..first + down);
        }
    }

    /// The first port down of a switch, if the switch belongs to this slice.
    pub(crate) fn try_down(&self, node: u32) -> Option<u32> {
        self.down.get(node.checked_sub(self.hosts)? as usize).copied()
    }

    /// The first port up of a switch, if the switch belongs to this slice.
    pub(crate) fn try_up(&self, node: u32) -> Option<u32> {
        self.up.get(node.checked_sub(self.hosts)? as usize).copied()
    }

    /// The place of the port that feeds a link of this slice.
    #[inline]
    pub(crate) fn place(&self, link: u32) -> usize {
        if link < self.leaf_link[0] {
            let (host, plane) = (link / self.planes, link % self.planes);
            return (self.places[host as usize] * self.planes + plane) as usize;
        }
        let kind = usize::from(link >= self.leaf_link[1]) + usize::from(link >= self.leaf_link[2]);
        let at = link - self.leaf_link[kind];
        let (switch, port) = (at / self.ports_per[kind], at % self.ports_per[kind]);
        let node = self.leaf_node[kind] + switch;
        let down = self.downs[kind];
        let at = (node - self.hosts) as usize;
        (if port < down { self.down[at] + port } else { self.up[at] + port - down }) as usize
    }
}

/// The windows of a slice, in ps.
pub(super) struct Lookahead {
    /// Length of a window.
    pub(super) span: u64,
    /// The windows of switches begin and end this much earlier than those of hosts.
    pub(super) early: u64,
}

impl Lookahead {
    /// A window has one link latency if a connection is watched or packets are recorded, or with `quick_news`: pauses
    /// or signals between programs, which are faster than packets, switches that run programs, or a graph, whose
    /// packets pass switches in any order.
    ///
    /// Otherwise a window is the time of the way from a host to its leaf and back, and the leaf's window ends one link
    /// latency before the host's. So a packet that a host sends in window `w` reaches its leaf in the leaf's window
    /// `w + 1` or later, and a packet that a leaf sends after its window `w` reaches a host after the host's window
    /// `w`. Several slices exchange packets within such a window, before and after the top tier (`Layout::phases`).
    pub(super) fn new(plan: &Plan, cut: &Cut, quick_news: bool) -> Lookahead {
        let watched = (plan.watch.is_some() && plan.sample_every.is_some()) || plan.capture.is_some();
        if cut.narrow || quick_news || watched || plan.topology.graph().is_some() {
            return Lookahead { span: (plan.topology.shortest_latency().0 / cut.parts).max(1), early: 0 };
        }
        // Offsets in a window have 32 bits, so on long links a window is shorter than the way to the leaf and back.
        let most = u64::from(u32::MAX);
        let inside = plan.topology.latency_inside(NodeKind::Leaf).0.min(most / 2);
        let early = plan.topology.level(0).latency.0.min((most - inside) / 2);
        Lookahead { span: 2 * early + inside, early }
    }
}

//! Multicast groups and their trees, by arithmetic from the members.
//!
//! A tree of a plane is a choice of uplinks. With two tiers it is one uplink of each leaf: a spine, and one of the
//! parallel links to it. With three tiers it is also one uplink of the tier above: a core. All members share a tree,
//! whichever of them sends. A packet climbs from its source as far as it must to reach all members. Every switch on the
//! way copies it to all members below, except towards the port that it came from. So the tree needs no state per
//! source. A packet never turns upwards again after it went down, so multicast adds no cycle of buffers. Between sites
//! a tree is one of the parallel long links.
//!
//! A packet names its tree by its entropy value. Khalilov et al. (arXiv 2408.13356) use one tree per group; spreading a
//! broadcast over all trees is ours.

mod address;

pub use address::GroupAddress;

use crate::topology::{LinkId, NodeId, NodeKind, Topology};
use strandway_proto::HostId;

/// A tree of one plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The uplink of every leaf, as an index among its uplinks. Between sites: which of the parallel long links to each
    /// other site.
    pub leaf_up: u16,
    /// The uplink of every tier-1 switch, as an index; 0 with two tiers.
    pub spine_up: u16,
}

impl Tree {
    /// The number of trees of a plane.
    pub fn count(topology: &Topology) -> u32 {
        if topology.sites() > 0 {
            return topology.shape().leaf_bundle;
        }
        let spine_up = topology.spine_up();
        topology.leaf_up() * if spine_up == 0 { 1 } else { spine_up }
    }

    /// The tree with this number, modulo the number of trees.
    pub fn numbered(topology: &Topology, number: u32) -> Tree {
        let number = number % Tree::count(topology);
        let leaf_up = if topology.sites() > 0 { Tree::count(topology) } else { topology.leaf_up() };
        Tree { leaf_up: (number % leaf_up) as u16, spine_up: (number / leaf_up) as u16 }
    }
}

/// A port of a switch: an index among its upward or its downward ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPort {
    /// True for an upward port.
    pub up: bool,
    /// Its index among them.
    pub port: u32,
}

impl CopyPort {
    /// The link that this port feeds.
    pub fn link(self, topology: &Topology, node: NodeId) -> LinkId {
        let (LinkId(first), _) = topology.ports_of(node);
        let downs = match topology.describe(node).0 {
            NodeKind::Host => 0,
            NodeKind::Leaf => topology.shape().hosts_per_leaf,
            NodeKind::Spine => topology.spine_down(),
            NodeKind::Core => topology.core_ports(),
        };
        LinkId(first + if self.up { downs } else { 0 } + self.port)
    }
}

/// The members of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    hosts: Vec<HostId>,
    /// Their numbers in rising order.
    sorted: Vec<u32>,
    /// Leaves with members, each with the index of its first member in `sorted`; and pods with members. Both in rising
    /// order.
    leaves: Vec<(u32, u32)>,
    pods: Vec<u32>,
}

impl Members {
    /// A group of these hosts. The position in the list is the rank.
    ///
    /// # Panics
    /// If a host is not in the fabric, or named twice.
    pub fn new(topology: &Topology, hosts: Vec<HostId>) -> Members {
        let mut sorted: Vec<u32> = hosts.iter().map(|host| host.0).collect();
        sorted.sort_unstable();
        assert!(sorted.last().is_none_or(|&last| last < topology.hosts()), "members are hosts of the fabric");
        assert!(sorted.is_sorted_by(|a, b| a < b), "a host is a member once");
        let mut leaves: Vec<(u32, u32)> =
            sorted.iter().zip(0..).map(|(host, at)| (host / topology.shape().hosts_per_leaf, at)).collect();
        leaves.dedup_by_key(|leaf| leaf.0);
        let mut pods: Vec<u32> = leaves.iter().map(|leaf| topology.pod_of_leaf(leaf.0).0).collect();
        pods.dedup();
        Members { hosts, sorted, leaves, pods }
    }

    /// The members, by rank.
    pub fn hosts(&self) -> &[HostId] {
        &self.hosts
    }

    /// True if another leaf has members.
    fn beyond_leaf(&self, leaf: u32) -> bool {
        self.leaves.iter().any(|l| l.0 != leaf)
    }

    /// True if another pod has members.
    fn beyond_pod(&self, pod: u32) -> bool {
        self.pods.iter().any(|&p| p != pod)
    }

    /// The entries of `leaves` from leaf `first` to before leaf `end`.
    fn leaves_within(&self, first: u32, end: u32) -> &[(u32, u32)] {
        let from = self.leaves.partition_point(|l| l.0 < first);
        let to = self.leaves.partition_point(|l| l.0 < end);
        &self.leaves[from..to]
    }

    /// Calls `to` for each port on which a switch copies packets that `source` casts along a tree. It is not called if
    /// the switch is not on the way. Packets made by a switch near a host ([`HostId::near`]) reach all members,
    /// including that host.
    pub fn copies(&self, topology: &Topology, node: NodeId, source: HostId, tree: Tree, mut to: impl FnMut(CopyPort)) {
        let shape = topology.shape();
        let home = source.place().0 / shape.hosts_per_leaf;
        let (kind, number, _) = topology.describe(node);
        let leaf_up = u32::from(tree.leaf_up);
        match kind {
            NodeKind::Host => {}
            NodeKind::Leaf => {
                let first = number * shape.hosts_per_leaf;
                let from = self.leaves.partition_point(|l| l.0 < number);
                if let Some(&(leaf, begin)) = self.leaves.get(from)
                    && leaf == number
                {
                    let end = self.leaves.get(from + 1).map_or(self.sorted.len(), |next| next.1 as usize);
                    for &host in self.sorted[begin as usize..end].iter().filter(|&&host| host != source.0) {
                        to(CopyPort { up: false, port: host - first });
                    }
                }
                if number != home {
                    return;
                }
                if topology.sites() > 0 {
                    for &(site, _) in self.leaves.iter().filter(|l| l.0 != home) {
                        to(CopyPort { up: true, port: topology.uplinks_to(home, site) + leaf_up });
                    }
                } else if self.beyond_leaf(home) {
                    to(CopyPort { up: true, port: leaf_up });
                }
            }
            NodeKind::Spine => {
                let (home_pod, _) = topology.pod_of_leaf(home);
                let (pod, leaves) = match shape.pods {
                    None => (0, 0..topology.leaves()),
                    Some(p) => {
                        let pod = number / shape.spines;
                        (pod, pod * p.leaves_per_pod..(pod + 1) * p.leaves_per_pod)
                    }
                };
                for &(leaf, _) in self.leaves_within(leaves.start, leaves.end).iter().filter(|l| l.0 != home) {
                    let within = (leaf - leaves.start) * shape.leaf_bundle;
                    to(CopyPort { up: false, port: within + leaf_up % shape.leaf_bundle });
                }
                if pod == home_pod && self.beyond_pod(pod) {
                    to(CopyPort { up: true, port: u32::from(tree.spine_up) });
                }
            }
            NodeKind::Core => {
                let Some(p) = shape.pods else { return };
                let (home_pod, _) = topology.pod_of_leaf(home);
                for &pod in self.pods.iter().filter(|&&pod| pod != home_pod) {
                    to(CopyPort { up: false, port: pod * p.core_bundle + u32::from(tree.spine_up) % p.core_bundle });
                }
            }
        }
    }

    /// True if packets that `source` casts along a tree of the link's plane cross this link. Links to and from hosts
    /// belong to every tree.
    pub fn crosses(&self, topology: &Topology, source: HostId, tree: Tree, link: LinkId) -> bool {
        let Some(ends) = topology.ends(link) else { return false };
        let on_the_way = match topology.describe(ends.from) {
            (NodeKind::Host, number, _) => return number == source.place().0,
            (NodeKind::Leaf, ..) => true,
            // A switch of another tree never receives the packet.
            (NodeKind::Spine, number, _) => {
                let shape = topology.shape();
                number % shape.spines == u32::from(tree.leaf_up) / shape.leaf_bundle
            }
            (NodeKind::Core, number, _) => topology.shape().pods.is_some_and(|p| {
                let spine = u32::from(tree.leaf_up) / topology.shape().leaf_bundle;
                number == spine * p.cores_per_spine + u32::from(tree.spine_up) / p.core_bundle
            }),
        };
        let mut crosses = false;
        if on_the_way {
            self.copies(topology, ends.from, source, tree, |port| crosses |= port.link(topology, ends.from) == link);
        }
        crosses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Level, LongLink, Pods, Shape, SitesShape};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use strandway_proto::units::{Bytes, Rate, Span};

    fn fabrics() -> Vec<Topology> {
        let level = Level { rate: Rate::from_gbps(400), latency: Span::from_us(1) };
        let base = Shape { hosts: 31, planes: 2, hosts_per_leaf: 4, spines: 3, leaf_bundle: 2, pods: None };
        let pods = Some(Pods { leaves_per_pod: 2, cores_per_spine: 2, core_bundle: 2 });
        let sites = SitesShape { sites: 4, hosts_per_site: 8, planes: 2, bundle: 3 };
        let long = LongLink { level, queue: Bytes(1 << 20) };
        vec![
            Topology::new(base, [level; 3], [Span::ZERO; 3]).expect("a valid shape"),
            Topology::new(Shape { pods, ..base }, [level; 3], [Span::ZERO; 3]).expect("a valid shape"),
            Topology::of_sites(sites, level, vec![long; sites.pairs().count()], Span::ZERO).expect("a valid shape"),
        ]
    }

    /// All links that a chunk crosses, found switch by switch. Each must be crossed once.
    fn walk(topology: &Topology, members: &Members, source: HostId, plane: u8, tree: Tree) -> Vec<LinkId> {
        let mut crossed = vec![LinkId(source.0 * u32::from(topology.planes()) + u32::from(plane))];
        let mut at = 0;
        while at < crossed.len() {
            let node = topology.ends(crossed[at]).expect("a link in use").to;
            members.copies(topology, node, source, tree, |port| crossed.push(port.link(topology, node)));
            at += 1;
            assert!(crossed.len() < 1000, "a packet goes in circles");
        }
        crossed
    }

    proptest! {
        #[test]
        fn every_tree_reaches_each_member_once_and_crosses_as_few_links_as_can_be(
            fabric in 0usize..3, picks in prop::collection::btree_set(0u32..31, 1..31), from in 0usize..31, number in 0u32..40, plane in 0u8..2,
        ) {
            let topology = &fabrics()[fabric];
            let hosts: Vec<HostId> = picks.iter().map(|&h| HostId(h)).collect();
            let members = Members::new(topology, hosts.clone());
            let source = hosts[from % hosts.len()];
            let tree = Tree::numbered(topology, number);
            let crossed = walk(topology, &members, source, plane, tree);
            let unique: BTreeSet<LinkId> = crossed.iter().copied().collect();
            prop_assert_eq!(unique.len(), crossed.len(), "a link is crossed once");
            let reached: BTreeSet<u32> = crossed
                .iter()
                .filter_map(|&l| topology.ends(l))
                .filter(|e| topology.describe(e.to).0 == NodeKind::Host)
                .map(|e| e.to.0)
                .collect();
            let wanted: BTreeSet<u32> = picks.iter().copied().filter(|&h| h != source.0).collect();
            prop_assert_eq!(reached, wanted);
            // Multicast sheet, section 8.3: P + [P > L] leaves + [P > Q] pods.
            let leaves: BTreeSet<u32> = picks.iter().map(|h| h / topology.shape().hosts_per_leaf).collect();
            let pods: BTreeSet<u32> = leaves.iter().map(|&l| topology.pod_of_leaf(l).0).collect();
            let more = |count: usize| if count > 1 { count } else { 0 };
            let expected = match topology.sites() {
                0 => picks.len() + more(leaves.len()) + more(pods.len()),
                _ => picks.len() + leaves.len() - 1,
            };
            prop_assert_eq!(crossed.len(), expected);
            for link in (0..topology.links()).map(LinkId).filter(|&l| topology.ends(l).is_some_and(|e| e.plane == plane)) {
                prop_assert_eq!(members.crosses(topology, source, tree, link), unique.contains(&link), "link {}", link.0);
            }
        }
    }

    #[test]
    fn every_number_below_the_count_is_another_tree() {
        for topology in fabrics() {
            let trees: BTreeSet<(u16, u16)> = (0..Tree::count(&topology))
                .map(|n| Tree::numbered(&topology, n))
                .map(|t| (t.leaf_up, t.spine_up))
                .collect();
            assert_eq!(trees.len() as u32, Tree::count(&topology));
        }
        assert_eq!(fabrics().iter().map(Tree::count).collect::<Vec<_>>(), [6, 24, 3]);
    }
}

//! Routing around known dead links: finds the ways that are left to a leaf.
//!
//! Faults are part of the plan, so routing's knowledge at every instant is known in advance. A packet's next port is
//! computed when it is sent to a switch, for the time of its arrival there. While no link is known to be dead, this is
//! the usual arithmetic. Otherwise, a switch searches only if one of its own links is dead, or a link on one of its
//! ways is. The result is kept until the set of dead links changes.

use crate::route::Router;
use std::collections::{BTreeMap, BTreeSet};
use strandway_fabric::NodeId;
use strandway_fabric::multicast::{Members, Tree};
use strandway_fabric::topology::{Graph, LinkId, NodeKind, Topology};
use strandway_proto::HostId;

/// From this time on, routing knows that a link is dead (`true`) or alive again.
pub(crate) type Change = (u64, LinkId, bool);

/// Sets of dead links, and the times at which each applies.
#[derive(Clone, Debug)]
pub(crate) struct Detours {
    /// The times of change. A packet that arrives exactly at such a time is still routed with the old set.
    instants: Vec<u64>,
    /// For each time in `instants`, the index of the set that applies until then. The last entry is the set after the
    /// last time. Flapping links use the same few sets again.
    holds: Vec<usize>,
    sets: Vec<Dead>,
    /// The interval of the latest query, and its set.
    after: u64,
    until: u64,
    current: usize,
}

impl Detours {
    /// Routing's knowledge over a run; `None` if there are no changes. `changes` must be in order of time.
    pub(crate) fn new(topology: &Topology, changes: &[Change]) -> Option<Box<Detours>> {
        let (&(first, ..), _) = changes.split_first()?;
        let mut detours = Detours {
            instants: vec![first],
            holds: vec![0],
            sets: vec![Dead::new(topology, BTreeSet::new())],
            after: 0,
            until: 0,
            current: 0,
        };
        let mut known = BTreeMap::from([(BTreeSet::new(), 0)]);
        let mut dead = BTreeSet::new();
        for at_once in changes.chunk_by(|a, b| a.0 == b.0) {
            for &(_, LinkId(link), is_dead) in at_once {
                if is_dead {
                    dead.insert(link)
                } else {
                    dead.remove(&link)
                };
            }
            let set = *known.entry(dead.clone()).or_insert_with(|| {
                detours.sets.push(Dead::new(topology, dead.clone()));
                detours.sets.len() - 1
            });
            if at_once[0].0 != first {
                detours.instants.push(at_once[0].0);
            }
            detours.holds.push(set);
        }
        Some(Box::new(detours))
    }

    /// The known dead links for a packet that arrives at `time`; `None` if there are none.
    #[inline]
    pub(crate) fn at(&mut self, time: u64) -> Option<&mut Dead> {
        if time <= self.after || time > self.until {
            self.seek(time);
        }
        if self.current == 0 { None } else { self.sets.get_mut(self.current) }
    }

    fn seek(&mut self, time: u64) {
        let interval = self.instants.partition_point(|&instant| instant < time);
        self.after = interval.checked_sub(1).map_or(0, |before| self.instants[before]);
        self.until = self.instants.get(interval).copied().unwrap_or(u64::MAX);
        self.current = self.holds[interval];
    }
}

/// Values of `known`: not computed yet; all ways lead to the leaf; no way does.
const UNKNOWN: u32 = 0;
const ALL: u32 = 1;
const NONE: u32 = 2;
/// A larger value is this plus the index in `ways` of the bits of the ways that lead to the leaf.
const SOME: u32 = 3;

/// The ways from a switch that lead to a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left<'a> {
    All,
    None,
    /// A bit per way.
    Some(&'a [u64]),
}

/// A set of dead links.
#[derive(Clone, Debug)]
pub(crate) struct Dead {
    links: BTreeSet<u32>,
    /// By node: true if a dead link may be on its ways up.
    near: Vec<bool>,
    /// By leaf: true if a dead link may be on the ways down to it.
    far: Vec<bool>,
    /// Hosts whose last link is dead, each with its plane: no switch of that plane sends them packets.
    hosts: BTreeSet<(u32, u32)>,
    /// By node, then by leaf of its plane: the ways that lead there, computed when first needed.
    known: Vec<Vec<u32>>,
    ways: Vec<u64>,
    /// By group, leaf and plane: the trees without a dead link for casts by a host of that leaf, computed when first
    /// needed.
    trees: BTreeMap<(u32, u32, u8), Vec<u32>>,
    /// In a graph, by plane and switch: the costs from all switches to it over the links that are left, computed when
    /// first needed.
    costs: BTreeMap<(u32, u32), Vec<u8>>,
}

impl Dead {
    fn new(topology: &Topology, links: BTreeSet<u32>) -> Dead {
        let nodes = topology.nodes() as usize;
        let mut set = Dead {
            links: BTreeSet::new(),
            near: vec![false; nodes],
            far: vec![false; nodes],
            hosts: BTreeSet::new(),
            known: vec![Vec::new(); nodes],
            ways: Vec::new(),
            trees: BTreeMap::new(),
            costs: BTreeMap::new(),
        };
        let leaves_of = |spine: NodeId| {
            let (_, number, plane) = topology.describe(spine);
            let shape = topology.shape();
            let leaves = match shape.pods {
                None => 0..topology.leaves(),
                Some(p) => {
                    let pod = number / shape.spines;
                    pod * p.leaves_per_pod..((pod + 1) * p.leaves_per_pod).min(topology.leaves())
                }
            };
            leaves.map(move |leaf| topology.leaf(leaf, plane).0 as usize)
        };
        for &link in &links {
            let Some(ends) = topology.ends(LinkId(link)) else { continue };
            set.near[ends.from.0 as usize] = true;
            match (topology.describe(ends.from).0, topology.describe(ends.to).0) {
                (NodeKind::Leaf, NodeKind::Host) => {
                    set.hosts.insert((ends.to.0, u32::from(ends.plane)));
                }
                (NodeKind::Spine, NodeKind::Leaf) => set.far[ends.to.0 as usize] = true,
                (NodeKind::Spine, NodeKind::Core) => leaves_of(ends.from).for_each(|leaf| set.near[leaf] = true),
                (NodeKind::Core, NodeKind::Spine) => leaves_of(ends.to).for_each(|leaf| set.far[leaf] = true),
                _ => {}
            }
        }
        set.links = links;
        set
    }

    /// Is the last link to a host dead?
    #[inline]
    pub(crate) fn cuts_off(&self, host: u32, plane: u32) -> bool {
        !self.hosts.is_empty() && self.hosts.contains(&(host, plane))
    }

    /// Is a link not known to be dead?
    pub(crate) fn is_alive(&self, link: u32) -> bool {
        !self.links.contains(&link)
    }

    /// In a graph: the costs from all switches of a plane to one of them over the links that are left. `link`: the link
    /// that a port of a switch feeds.
    pub(crate) fn costs(&mut self, graph: &Graph, plane: u32, to: u32, link: impl Fn(u32, u32) -> u32) -> &[u8] {
        let links = &self.links;
        let alive = |switch, port| !links.contains(&link(switch, port));
        self.costs.entry((plane, to)).or_insert_with(|| graph.costs_to(to, alive))
    }

    /// The trees of a plane without a dead link between switches, for casts to a group by a host of this leaf. If every
    /// tree has a dead link, all trees are returned, because it is better to reach some members than none. Dead links
    /// to hosts are part of every tree and do not count.
    pub(crate) fn trees(
        &mut self,
        topology: &Topology,
        (group, members): (u32, &Members),
        source: HostId,
        leaf: u32,
        plane: u8,
    ) -> &[u32] {
        let links = &self.links;
        self.trees.entry((group, leaf, plane)).or_insert_with(|| {
            let between = |link: &LinkId| topology.ends(*link).is_some_and(|e| e.level > 0 && e.plane == plane);
            let dead: Vec<LinkId> = links.iter().map(|&link| LinkId(link)).filter(between).collect();
            let whole = |number: &u32| {
                let tree = Tree::numbered(topology, *number);
                !dead.iter().any(|&link| members.crosses(topology, source, tree, link))
            };
            let all = 0..Tree::count(topology);
            let left: Vec<u32> = all.clone().filter(whole).collect();
            if left.is_empty() { all.collect() } else { left }
        })
    }

    /// The ways from a switch that lead to a leaf of its plane; the leaf is given by its number and as a node.
    #[inline]
    pub(crate) fn left(&mut self, router: &Router, node: u32, leaf: u32, leaf_node: u32) -> Left<'_> {
        if node == leaf_node || !(self.near[node as usize] || self.far[leaf_node as usize]) {
            return Left::All;
        }
        match self.find(router, node, leaf, leaf_node) {
            ALL => Left::All,
            NONE => Left::None,
            at => Left::Some(&self.ways[(at - SOME) as usize..]),
        }
    }

    fn find(&mut self, router: &Router, node: u32, leaf: u32, leaf_node: u32) -> u32 {
        if let Some(&known) = self.known[node as usize].get(leaf as usize)
            && known != UNKNOWN
        {
            return known;
        }
        let links = router.ways_to(node, leaf);
        let mut ways = vec![0u64; links.len().div_ceil(64)];
        let mut count = 0;
        for (n, link) in links.clone().enumerate() {
            if !self.links.contains(&link) {
                let to = router.far_end(link);
                if to == leaf_node || self.find(router, to, leaf, leaf_node) != NONE {
                    ways[n / 64] |= 1 << (n % 64);
                    count += 1;
                }
            }
        }
        let found = if count == links.len() {
            ALL
        } else if count == 0 {
            NONE
        } else {
            self.ways.extend(ways);
            SOME + (self.ways.len() - links.len().div_ceil(64)) as u32
        };
        let known = &mut self.known[node as usize];
        if known.is_empty() {
            known.resize(router.leaves() as usize, UNKNOWN);
        }
        known[leaf as usize] = found;
        found
    }
}

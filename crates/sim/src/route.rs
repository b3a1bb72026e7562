//! Chooses the port by which a packet leaves a switch, by arithmetic over the topology. For known dead links see
//! [`crate::detour`].

mod graph;

use crate::detour::{Change, Detours, Left};
use crate::road::{Cargo, Transit};
use crate::slice::Layout;
use strandway_fabric::NodeId;
use strandway_fabric::multicast::{Members, Tree};
use strandway_fabric::plan::Routing;
use strandway_fabric::topology::{LinkId, Topology};
use strandway_proto::rng::{Random, StreamKind, mix64};
use strandway_proto::{HostId, Packet, PathId};

/// Forwarding of all switches. Each thread holds a copy.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    hosts: u32,
    planes: u32,
    hosts_per_leaf: u32,
    /// The inverse, to divide by `hosts_per_leaf`.
    leaf_inverse: u64,
    leaf_node: u32,
    spine_node: u32,
    core_node: u32,
    first_links: FirstLinks,
    leaf_ports: u32,
    leaf_up: u32,
    leaf_bundle: u32,
    /// True if leaves are sites, whose uplinks lead to each other.
    sites: bool,
    spine_ports: u32,
    spine_down: u32,
    spine_up: u32,
    spines_per_pod: u32,
    leaves_per_pod: u32,
    core_ports: u32,
    core_bundle: u32,
    salt: u64,
    /// By node, without the hosts.
    gates: Vec<Gate>,
    direct: Option<Direct>,
    topology: Topology,
    layout: Layout,
    /// Routing's knowledge of dead links over time, if it ever has any.
    detours: Option<Box<Detours>>,
}

/// The number of the first link that leaves a switch of each tier.
#[derive(Clone, Copy, Debug)]
struct FirstLinks {
    leaf: u32,
    spine: u32,
    core: u32,
}

/// Permutations of the uplinks, per switch.
#[derive(Clone, Debug)]
struct Direct {
    leaf: Vec<u16>,
    spine: Vec<u16>,
    /// The number of bits of the leaf's part of the entropy.
    bits: u32,
    /// True for source routes: they apply to every packet, and also lead over dead links.
    fixed: bool,
}

impl Router {
    pub(crate) fn new(topology: &Topology, routing: Routing, seed: u64, layout: Layout, changes: &[Change]) -> Router {
        let shape = topology.shape();
        let [_, leaf_link, spine_link, core_link, _] = topology.link_bases();
        let [_, leaf_node, spine_node, core_node, _] = topology.node_bases();
        let permutations = |from: u32, to: u32, ports: u32| {
            let mut table = Vec::with_capacity((to - from) as usize * ports as usize);
            for node in from..to {
                let mut order: Vec<u16> = (0..ports as u16).collect();
                if routing == Routing::Direct {
                    Random::new(seed, StreamKind::Switch, u64::from(node)).shuffle(&mut order);
                }
                table.extend(order);
            }
            table
        };
        // Among parallel long links, the entropy itself is the choice.
        let leaf_ways = if topology.sites() > 0 { shape.leaf_bundle } else { topology.leaf_up() };
        let direct = matches!(routing, Routing::Direct | Routing::Source).then(|| Direct {
            leaf: permutations(leaf_node, spine_node, leaf_ways),
            spine: permutations(spine_node, core_node, topology.spine_up()),
            bits: leaf_ways.next_power_of_two().ilog2(),
            fixed: routing == Routing::Source,
        });
        let mut router = Router {
            gates: Vec::new(),
            hosts: topology.hosts(),
            planes: u32::from(topology.planes()),
            hosts_per_leaf: shape.hosts_per_leaf,
            leaf_inverse: inverse(shape.hosts_per_leaf),
            leaf_node,
            spine_node,
            core_node,
            first_links: FirstLinks { leaf: leaf_link, spine: spine_link, core: core_link },
            leaf_ports: topology.leaf_ports(),
            leaf_up: topology.leaf_up(),
            leaf_bundle: shape.leaf_bundle,
            sites: topology.sites() > 0,
            spine_ports: topology.spine_ports(),
            spine_down: topology.spine_down(),
            spine_up: topology.spine_up(),
            spines_per_pod: shape.spines,
            leaves_per_pod: shape.pods.map_or(u32::MAX, |p| p.leaves_per_pod),
            core_ports: topology.core_ports(),
            core_bundle: shape.pods.map_or(1, |p| p.core_bundle),
            salt: Random::new(seed, StreamKind::Switch, u64::MAX).next_u64(),
            direct,
            topology: topology.clone(),
            layout,
            // Source routes also lead over dead links.
            detours: if routing == Routing::Source { None } else { Detours::new(topology, changes) },
        };
        router.gates = (topology.hosts()..topology.nodes()).map(|node| router.gate(node)).collect();
        router
    }

    /// The forwarding data of a switch.
    fn gate(&self, node: u32) -> Gate {
        let place = |place: Option<u32>| place.unwrap_or(u32::MAX);
        let (down, up) = (place(self.layout.try_down(node)), place(self.layout.try_up(node)));
        let all = Gate { down, up, first: 0, count: u32::MAX, inverse: 0, bundle: 1, shift: 0 };
        if node < self.spine_node {
            let leaf = (node - self.leaf_node) / self.planes;
            let (first, count) = (leaf * self.hosts_per_leaf, self.hosts_per_leaf);
            return Gate { first, count, inverse: inverse(1), ..all };
        }
        let per_pod = self.leaves_per_pod;
        if node < self.core_node {
            let spine = Gate { inverse: inverse(self.hosts_per_leaf), bundle: self.leaf_bundle, shift: 16, ..all };
            if self.spine_up == 0 {
                return spine;
            }
            let pod = (node - self.spine_node) / self.planes / self.spines_per_pod;
            return Gate { first: pod * per_pod, count: per_pod, ..spine };
        }
        Gate { inverse: inverse(self.hosts_per_leaf * per_pod), bundle: self.core_bundle, ..all }
    }

    /// The layout of the ports to which it routes.
    #[inline]
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn layout_mut(&mut self) -> &mut Layout {
        &mut self.layout
    }

    /// 32 bits from flow, entropy and switch (ECMP). Another `attempt` gives other bits, for when the first choice is a
    /// dead end.
    #[inline]
    fn hash(&self, node: u32, packet: &Packet, attempt: u32) -> u64 {
        let flow = u64::from(packet.source.0) << 32 | u64::from(packet.destination.0);
        let label = u64::from(packet.connection.0) << 32 | u64::from(packet.path.entropy() & !PathId::ORDERED);
        let place = u64::from(attempt) << 32 | u64::from(node);
        let mixed = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ label.wrapping_mul(0xc2b2_ae3d_27d4_eb4f).rotate_left(32)
            ^ place.wrapping_mul(0x1656_67b1_9e37_79f9)
            ^ self.salt;
        mix64(mixed) >> 32
    }

    /// Do switches look up the way of each packet: does routing know a dead link at some time of the run, or is the
    /// fabric a graph?
    pub(crate) fn needs_place_at(&self) -> bool {
        self.detours.is_some() || self.topology.graph().is_some()
    }

    /// The place of the port by which a packet leaves `node`, where it is at `time`; `None` if routing knows no way. If
    /// the uplink changes, the packet stores the new one.
    #[inline(never)]
    pub(crate) fn place_at(&mut self, node: u32, packet: &mut Transit, cargo: &Cargo, time: u64) -> Option<u32> {
        if self.topology.graph().is_some() {
            return self.place_in_graph(node, packet, cargo, time);
        }
        let way = match self.way_at(node, packet, cargo, time) {
            Way::Usual => return Some(self.place(node, packet, cargo)),
            Way::Nowhere => return None,
            Way::Other(way) => way,
        };
        let gate = &self.gates[(node - self.hosts) as usize];
        let below = gate.below(packet.destination());
        Some(if below >= gate.count { gate.up + way } else { gate.down + below * gate.bundle + way })
    }

    /// Fills `places` with the ports by which a switch of this slice can send up what arrives for a host at `time`:
    /// none if routing knows of no way. False if that host lies below the switch.
    pub(crate) fn uplinks_left(&mut self, node: u32, destination: u32, time: u64, places: &mut Vec<u32>) -> bool {
        let gate = self.gates[(node - self.hosts) as usize];
        if gate.below(destination) < gate.count {
            return false;
        }
        places.clear();
        if self.topology.graph().is_some() {
            self.nearer_in_graph(node, destination, time, places);
            return true;
        }
        let ways = self.ways(node, destination);
        let all = ways.skip..ways.skip + ways.count;
        self.with_left(node, destination, time, |_, left| match left {
            Left::All => places.extend(all.map(|way| gate.up + way)),
            Left::None => {}
            Left::Some(left) => {
                let leads = |way: &u32| left[*way as usize / 64] >> (way % 64) & 1 != 0;
                places.extend((0..ways.count).filter(leads).map(|way| gate.up + ways.skip + way));
            }
        });
        true
    }

    /// A packet at a switch of this slice is to leave by the uplink at this place, and remembers it.
    pub(crate) fn take_uplink(&self, node: u32, place: u32, packet: &mut Transit) {
        if self.topology.graph().is_some() {
            return;
        }
        let gate = &self.gates[(node - self.hosts) as usize];
        let others = packet.uplinks() & !(0xffff << gate.shift);
        packet.reroute(others | (place - gate.up) << gate.shift);
    }

    /// The way of a packet that is at `node` at `time`.
    fn way_at(&mut self, node: u32, packet: &mut Transit, cargo: &Cargo, time: u64) -> Way {
        self.with_left(node, packet.destination(), time, |router, left| match left {
            Left::All => Way::Usual,
            Left::None => Way::Nowhere,
            Left::Some(ways) => Way::Other(router.detour(node, packet, cargo, ways)),
        })
    }

    /// Gives `then` the ways that lead on from `node` to a host at `time`, by the dead links that routing knows of.
    fn with_left<R>(&mut self, node: u32, destination: u32, time: u64, then: impl FnOnce(&Router, Left<'_>) -> R) -> R {
        let Some(mut detours) = self.detours.take() else { return then(self, Left::All) };
        let result = match detours.at(time) {
            None => then(self, Left::All),
            Some(dead) => {
                let (plane, leaf) = (self.plane_of(node), self.leaf_of(destination));
                if dead.cuts_off(destination, plane) {
                    then(self, Left::None)
                } else {
                    then(self, dead.left(self, node, leaf, self.leaf_node + leaf * self.planes + plane))
                }
            }
        };
        self.detours = Some(detours);
        result
    }

    /// Rehashes up to 16 times until the choice is one of the ways left; otherwise takes the first way left.
    fn detour(&self, node: u32, packet: &mut Transit, cargo: &Cargo, left: &[u64]) -> u32 {
        let whole = cargo.packet(packet);
        let ways = self.ways(node, packet.destination());
        let leads = |way: &u32| left[*way as usize / 64] >> (way % 64) & 1 != 0;
        let way = (0..16)
            .map(|attempt| self.choose(node, whole, &ways, attempt))
            .find(leads)
            .or_else(|| (0..ways.count).find(leads))
            .unwrap_or(0);
        let way = ways.skip + way;
        if let Some(Tier::Leaf(switch)) = ways.up {
            let upper = self.spine_uplink(switch / self.planes, way, switch % self.planes, whole);
            packet.reroute(way | upper << 16);
        }
        way
    }

    /// The ports of a switch that are on a shortest way to a leaf.
    pub(crate) fn ways_to(&self, node: u32, leaf: u32) -> std::ops::Range<u32> {
        let ways = self.ways(node, leaf * self.hosts_per_leaf);
        ways.first + ways.skip..ways.first + ways.skip + ways.count
    }

    /// The node at the far end of a link.
    pub(crate) fn far_end(&self, link: u32) -> u32 {
        self.topology.ends(LinkId(link)).map_or(u32::MAX, |ends| ends.to.0)
    }

    /// Number of leaves of a plane.
    pub(crate) fn leaves(&self) -> u32 {
        self.topology.leaves()
    }

    /// The plane of a switch.
    fn plane_of(&self, node: u32) -> u32 {
        let first = [self.core_node, self.spine_node, self.leaf_node].into_iter().find(|&first| node >= first);
        (node - first.unwrap_or(0)) % self.planes
    }

    /// The uplinks of a packet if routing knows no dead link: its leaf's in the lower half, the tier-1 switch's in the
    /// upper half.
    #[inline]
    pub(crate) fn uplinks(&self, packet: &Packet) -> u32 {
        if let Some(graph) = self.topology.graph() {
            return self.start_in_graph(graph, packet);
        }
        self.uplinks_of(self.leaf_of(packet.source.place().0), packet)
    }

    /// The same for a packet that the switch at `node` creates. Only a leaf has a choice there.
    pub(crate) fn uplinks_at(&self, node: u32, packet: &Packet) -> u32 {
        self.uplinks_of(node.wrapping_sub(self.leaf_node) / self.planes, packet)
    }

    /// The uplinks of a packet, from its leaf on.
    #[inline]
    fn uplinks_of(&self, leaf: u32, packet: &Packet) -> u32 {
        let plane = u32::from(packet.path.port());
        let node = self.leaf_node + leaf * self.planes + plane;
        let to = self.leaf_of(packet.destination.0);
        if to == leaf {
            return 0;
        }
        let ways = self.leaf_ways(node - self.leaf_node, to);
        let uplink = ways.skip + self.choose(node, packet, &ways, 0);
        if self.spine_up == 0 {
            return uplink;
        }
        uplink | self.spine_uplink(leaf, uplink, plane, packet) << 16
    }

    /// The tree of a packet that is sent to a group at `time`, in the form in which [`Transit`] stores uplinks. It is
    /// the tree that the packet's entropy value names, unless routing knows a dead link on it.
    pub(crate) fn tree(&mut self, groups: &[Members], packet: &Packet, time: u64) -> u32 {
        let group = packet.destination.as_group().unwrap_or(u32::MAX);
        let mut number = packet.path.entropy();
        if let Some(dead) = self.detours.as_mut().and_then(|detours| detours.at(time)) {
            let (leaf, plane) = (packet.source.place().0 / self.hosts_per_leaf, packet.path.port());
            let usable = dead.trees(&self.topology, (group, &groups[group as usize]), packet.source, leaf, plane);
            number = usable.get(number as usize % usable.len().max(1)).copied().unwrap_or(number);
        }
        let tree = Tree::numbered(&self.topology, number);
        u32::from(tree.leaf_up) | u32::from(tree.spine_up) << 16
    }

    /// Calls `to` with the place of each port to which a switch of this slice copies a packet that `source` casts to a
    /// group.
    #[inline]
    pub(crate) fn copies(&self, members: &Members, node: u32, source: HostId, uplinks: u32, mut to: impl FnMut(u32)) {
        let gate = &self.gates[(node - self.hosts) as usize];
        let tree = Tree { leaf_up: uplinks as u16, spine_up: (uplinks >> 16) as u16 };
        members.copies(&self.topology, NodeId(node), source, tree, |port| {
            to(if port.up { gate.up } else { gate.down } + port.port);
        });
    }

    /// The uplink of a packet at the tier-1 switch above the given uplink of a leaf; 0 if it goes down from there.
    #[inline]
    fn spine_uplink(&self, leaf: u32, uplink: u32, plane: u32, packet: &Packet) -> u32 {
        if self.spine_up == 0 {
            return 0;
        }
        let spine = leaf / self.leaves_per_pod * self.spines_per_pod + uplink / self.leaf_bundle;
        let node = self.spine_node + spine * self.planes + plane;
        let ways = self.ways(node, packet.destination.0);
        if ways.up.is_none() { 0 } else { self.choose(node, packet, &ways, 0) }
    }

    /// The number of a host's leaf, which is the same in every plane.
    #[inline]
    fn leaf_of(&self, host: u32) -> u32 {
        divide(host, self.leaf_inverse)
    }

    /// The link by which a packet leaves `node`, if routing knows no dead link.
    #[inline]
    pub(crate) fn link(&self, node: u32, packet: &Transit, cargo: &Cargo) -> u32 {
        let ways = self.ways(node, packet.destination());
        ways.first + self.choice(node, packet, &ways, cargo)
    }

    /// The place of that link's port, if `node` is a switch of this slice.
    #[inline(always)]
    pub(crate) fn place(&self, node: u32, packet: &Transit, cargo: &Cargo) -> u32 {
        let gate = &self.gates[(node - self.hosts) as usize];
        let below = gate.below(packet.destination());
        let place = if below >= gate.count {
            gate.up + (packet.uplinks() >> gate.shift & 0xffff)
        } else if gate.bundle == 1 {
            gate.down + below
        } else {
            gate.down + below * gate.bundle + self.choose_down(node, cargo.packet(packet))
        };
        debug_assert_eq!(place as usize, self.layout.place(self.link(node, packet, cargo)), "at node {node}");
        place
    }

    /// The choice of a packet among parallel links that lead down.
    #[inline(never)]
    fn choose_down(&self, node: u32, packet: &Packet) -> u32 {
        self.choose(node, packet, &self.ways(node, packet.destination.0), 0)
    }

    /// The choice of a packet among ways, by its stored uplinks. Only parallel links down need the packet itself.
    #[inline]
    fn choice(&self, node: u32, packet: &Transit, ways: &Ways, cargo: &Cargo) -> u32 {
        match ways.up {
            Some(Tier::Leaf(_)) => packet.uplinks() & 0xffff,
            Some(Tier::Spine(_)) => packet.uplinks() >> 16,
            None if ways.count == 1 => 0,
            None => self.choose(node, cargo.packet(packet), ways, 0),
        }
    }

    /// The ports of a switch that are on a shortest way to a host.
    #[inline]
    fn ways(&self, node: u32, destination: u32) -> Ways {
        let leaf = destination / self.hosts_per_leaf;
        if node < self.spine_node {
            let switch = node - self.leaf_node;
            let base = self.first_links.leaf + switch * self.leaf_ports;
            if switch / self.planes == leaf {
                let within = destination % self.hosts_per_leaf;
                return Ways { first: base + within, skip: 0, count: 1, up: None };
            }
            return self.leaf_ways(switch, leaf);
        }
        if node < self.core_node {
            let switch = node - self.spine_node;
            let base = self.first_links.spine + switch * self.spine_ports;
            let mut within = leaf;
            if self.spine_up != 0 {
                if leaf / self.leaves_per_pod != switch / self.planes / self.spines_per_pod {
                    let up = Some(Tier::Spine(switch));
                    return Ways { first: base + self.spine_down, skip: 0, count: self.spine_up, up };
                }
                within = leaf % self.leaves_per_pod;
            }
            let within = within * self.leaf_bundle;
            return Ways { first: base + within, skip: 0, count: self.leaf_bundle, up: None };
        }
        let base = self.first_links.core + (node - self.core_node) * self.core_ports;
        let pod = leaf / self.leaves_per_pod;
        let within = pod * self.core_bundle;
        Ways { first: base + within, skip: 0, count: self.core_bundle, up: None }
    }

    /// The uplinks of a leaf that lead to another leaf of its plane; `switch` is its number among all planes' leaves.
    #[inline]
    fn leaf_ways(&self, switch: u32, leaf: u32) -> Ways {
        let first = self.first_links.leaf + switch * self.leaf_ports + self.hosts_per_leaf;
        let up = Some(Tier::Leaf(switch));
        if self.sites {
            let skip = self.topology.uplinks_to(switch / self.planes, leaf);
            return Ways { first, skip, count: self.leaf_bundle, up };
        }
        Ways { first, skip: 0, count: self.leaf_up, up }
    }

    /// The choice of a packet among ways.
    #[inline(always)]
    fn choose(&self, node: u32, packet: &Packet, ways: &Ways, attempt: u32) -> u32 {
        if ways.count == 1 {
            return 0;
        }
        if let (Some(direct), Some(tier), 0) = (&self.direct, ways.up, attempt)
            && (direct.fixed || packet.path.entropy() & PathId::ORDERED == 0)
        {
            let entropy = packet.path.entropy() & !PathId::ORDERED;
            return u32::from(match tier {
                Tier::Leaf(switch) => {
                    direct.leaf[(switch * ways.count + (entropy & ((1 << direct.bits) - 1)) % ways.count) as usize]
                }
                Tier::Spine(switch) => {
                    direct.spine[(switch * ways.count + (entropy >> direct.bits) % ways.count) as usize]
                }
            });
        }
        ((self.hash(node, packet, attempt) * u64::from(ways.count)) >> 32) as u32
    }
}

/// The way of a packet out of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The same way as without dead links.
    Usual,
    /// The way with this number among the switch's ways.
    Other(u32),
    Nowhere,
}

/// Equal ports to choose from.
struct Ways {
    first: u32,
    /// The number of the switch's uplinks before them, which lead elsewhere.
    skip: u32,
    count: u32,
    /// The switch, if they lead up.
    up: Option<Tier>,
}

/// The data with which a switch forwards packets while no link is dead. Below it are hosts, leaves or pods, each behind
/// its own ports; all other destinations are above.
#[derive(Clone, Copy, Debug)]
struct Gate {
    /// The places of its first port down, and of its first port up.
    down: u32,
    up: u32,
    /// The hosts, leaves or pods below it: the first number, and the count.
    first: u32,
    count: u32,
    /// The inverse with which a host's number is divided to get that of its leaf or pod.
    inverse: u64,
    /// The number of ports to each of them.
    bundle: u32,
    /// The bit position of the uplink in a packet's stored uplinks.
    shift: u32,
}

impl Gate {
    /// The number of the host, leaf or pod below that contains `host`; `count` or more if `host` is not below.
    #[inline]
    fn below(&self, host: u32) -> u32 {
        divide(host, self.inverse).wrapping_sub(self.first)
    }
}

/// Divides by the divisor that belongs to `inverse`.
#[inline]
fn divide(number: u32, inverse: u64) -> u32 {
    ((u128::from(number) * u128::from(inverse)) >> 63) as u32
}

/// 2^63 divided by a number, rounded up: a division with it is exact for all 32-bit numbers.
fn inverse(divisor: u32) -> u64 {
    (1u64 << 63).div_ceil(u64::from(divisor))
}

/// A switch with a choice of uplinks, by its number among its kind.
#[derive(Clone, Copy)]
enum Tier {
    Leaf(u32),
    Spine(u32),
}

#[cfg(test)]
mod tests;

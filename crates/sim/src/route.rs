//! Which port a packet leaves a switch by: arithmetic over the topology. Where links are known to be dead, see
//! [`crate::detour`].

use crate::detour::{Change, Detours, Left};
use crate::road::{Cargo, Transit};
use crate::slice::Layout;
use strandway_fabric::plan::Routing;
use strandway_fabric::topology::{LinkId, Topology};
use strandway_proto::rng::{Random, StreamKind, mix64};
use strandway_proto::{Packet, PathId};

/// Forwarding of all switches. Each thread holds a copy.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    hosts: u32,
    planes: u32,
    hosts_per_leaf: u32,
    /// Divides by that.
    leaf_inverse: u64,
    leaf_node: u32,
    spine_node: u32,
    core_node: u32,
    leaf_link: u32,
    spine_link: u32,
    core_link: u32,
    leaf_ports: u32,
    leaf_up: u32,
    leaf_bundle: u32,
    spine_ports: u32,
    spine_down: u32,
    spine_up: u32,
    spines_per_pod: u32,
    leaves_per_pod: u32,
    core_ports: u32,
    core_bundle: u32,
    salt: u64,
    /// By node, behind the hosts.
    gates: Vec<Gate>,
    direct: Option<Direct>,
    topology: Topology,
    layout: Layout,
    /// What routing learns about dead links, if it does.
    detours: Option<Box<Detours>>,
}

/// Permutations of the uplinks, per switch.
#[derive(Clone, Debug)]
struct Direct {
    leaf: Vec<u16>,
    spine: Vec<u16>,
    /// The leaf's part of the entropy takes so many bits.
    bits: u32,
    /// Source routes: they hold for every packet and lead over dead links, too.
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
        let direct = (routing != Routing::Hashed).then(|| Direct {
            leaf: permutations(leaf_node, spine_node, topology.leaf_up()),
            spine: permutations(spine_node, core_node, topology.spine_up()),
            bits: topology.leaf_up().next_power_of_two().ilog2(),
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
            leaf_link,
            spine_link,
            core_link,
            leaf_ports: topology.leaf_ports(),
            leaf_up: topology.leaf_up(),
            leaf_bundle: shape.leaf_bundle,
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
            // Source routes lead over dead links, too.
            detours: if routing == Routing::Source { None } else { Detours::new(topology, changes) },
        };
        router.gates = (topology.hosts()..topology.nodes()).map(|node| router.gate(node)).collect();
        router
    }

    /// What a switch needs to know.
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

    /// Where the ports are that it routes to.
    #[inline]
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn layout_mut(&mut self) -> &mut Layout {
        &mut self.layout
    }

    /// 32 bits from flow, entropy and switch (ECMP). `attempt` gives others where the first leads nowhere.
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

    /// May there be a dead link that routing knows of at some time?
    pub(crate) fn has_detours(&self) -> bool {
        self.detours.is_some()
    }

    /// The place of the port by which a packet that is at `node` at `time` leaves; `None` if routing knows of no way. The packet
    /// remembers another uplink than its own.
    #[inline(never)]
    pub(crate) fn place_at(&mut self, node: u32, packet: &mut Transit, cargo: &Cargo, time: u64) -> Option<u32> {
        let way = match self.way_at(node, packet, cargo, time) {
            Way::Usual => return Some(self.place(node, packet, cargo)),
            Way::Nowhere => return None,
            Way::Other(way) => way,
        };
        let gate = &self.gates[(node - self.hosts) as usize];
        let below = gate.below(packet.destination());
        Some(if below >= gate.count { gate.up + way } else { gate.down + below * gate.bundle + way })
    }

    /// Which way a packet takes that is at `node` at `time`.
    fn way_at(&mut self, node: u32, packet: &mut Transit, cargo: &Cargo, time: u64) -> Way {
        let Some(mut detours) = self.detours.take() else { return Way::Usual };
        let way = match detours.at(time) {
            None => Way::Usual,
            Some(dead) => {
                let destination = packet.destination();
                let plane = self.plane_of(node);
                let leaf = self.leaf_of(destination);
                if dead.cuts_off(destination, plane) {
                    Way::Nowhere
                } else {
                    match dead.left(self, node, leaf, self.leaf_node + leaf * self.planes + plane) {
                        Left::All => Way::Usual,
                        Left::None => Way::Nowhere,
                        Left::Some(ways) => Way::Other(self.detour(node, packet, cargo, ways)),
                    }
                }
            }
        };
        self.detours = Some(detours);
        way
    }

    /// Rehashes until the choice is one of the ways that are left; then takes the first of them.
    fn detour(&self, node: u32, packet: &mut Transit, cargo: &Cargo, left: &[u64]) -> u32 {
        let whole = cargo.packet(packet);
        let ways = self.ways(node, packet.destination());
        let leads = |way: &u32| left[*way as usize / 64] >> (way % 64) & 1 != 0;
        let way = (0..16)
            .map(|attempt| self.choose(node, whole, &ways, attempt))
            .find(leads)
            .or_else(|| (0..ways.count).find(leads))
            .unwrap_or(0);
        if let Some(Tier::Leaf(switch)) = ways.up {
            let upper = self.spine_uplink(switch / self.planes, way, switch % self.planes, whole);
            packet.reroute(way | upper << 16);
        }
        way
    }

    /// The ports of a switch that lie on a shortest way to a leaf.
    pub(crate) fn ways_to(&self, node: u32, leaf: u32) -> std::ops::Range<u32> {
        let ways = self.ways(node, leaf * self.hosts_per_leaf);
        ways.first..ways.first + ways.count
    }

    /// The node that a link leads to.
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

    /// The uplinks that a packet takes where routing knows of no dead link: its leaf's in the lower half, the tier-1 switch's
    /// in the upper.
    #[inline]
    pub(crate) fn uplinks(&self, packet: &Packet) -> u32 {
        let plane = u32::from(packet.path.port());
        let leaf = self.leaf_of(packet.source.0);
        let node = self.leaf_node + leaf * self.planes + plane;
        if self.leaf_of(packet.destination.0) == leaf {
            return 0;
        }
        let up = Some(Tier::Leaf(node - self.leaf_node));
        let uplink = self.choose(node, packet, &Ways { first: 0, count: self.leaf_up, up }, 0);
        uplink | self.spine_uplink(leaf, uplink, plane, packet) << 16
    }

    /// The uplink that a packet takes from the tier-1 switch above this uplink of a leaf; 0 if it goes down from there.
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

    /// The leaves of a host have this number in their planes.
    #[inline]
    fn leaf_of(&self, host: u32) -> u32 {
        divide(host, self.leaf_inverse)
    }

    /// The port that a packet leaves `node` by, where routing knows of no dead link.
    #[inline]
    pub(crate) fn link(&self, node: u32, packet: &Transit, cargo: &Cargo) -> u32 {
        let ways = self.ways(node, packet.destination());
        ways.first + self.choice(node, packet, &ways, cargo)
    }

    /// The place of that port, where `node` is a switch of this slice.
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

    /// Which of parallel links that lead down a packet takes.
    #[inline(never)]
    fn choose_down(&self, node: u32, packet: &Packet) -> u32 {
        self.choose(node, packet, &self.ways(node, packet.destination.0), 0)
    }

    /// Which of the ways a packet takes whose uplinks are known. Among parallel links that lead down it has to be asked.
    #[inline]
    fn choice(&self, node: u32, packet: &Transit, ways: &Ways, cargo: &Cargo) -> u32 {
        match ways.up {
            Some(Tier::Leaf(_)) => packet.uplinks() & 0xffff,
            Some(Tier::Spine(_)) => packet.uplinks() >> 16,
            None if ways.count == 1 => 0,
            None => self.choose(node, cargo.packet(packet), ways, 0),
        }
    }

    /// The ports of a switch that lie on a shortest way to a host.
    #[inline]
    fn ways(&self, node: u32, destination: u32) -> Ways {
        let leaf = destination / self.hosts_per_leaf;
        if node < self.spine_node {
            let switch = node - self.leaf_node;
            let base = self.leaf_link + switch * self.leaf_ports;
            if switch / self.planes == leaf {
                let within = destination % self.hosts_per_leaf;
                return Ways { first: base + within, count: 1, up: None };
            }
            let up = Some(Tier::Leaf(switch));
            return Ways { first: base + self.hosts_per_leaf, count: self.leaf_up, up };
        }
        if node < self.core_node {
            let switch = node - self.spine_node;
            let base = self.spine_link + switch * self.spine_ports;
            let mut within = leaf;
            if self.spine_up != 0 {
                if leaf / self.leaves_per_pod != switch / self.planes / self.spines_per_pod {
                    let up = Some(Tier::Spine(switch));
                    return Ways { first: base + self.spine_down, count: self.spine_up, up };
                }
                within = leaf % self.leaves_per_pod;
            }
            let within = within * self.leaf_bundle;
            return Ways { first: base + within, count: self.leaf_bundle, up: None };
        }
        let base = self.core_link + (node - self.core_node) * self.core_ports;
        let pod = leaf / self.leaves_per_pod;
        let within = pod * self.core_bundle;
        Ways { first: base + within, count: self.core_bundle, up: None }
    }

    /// Which of the ways a packet takes.
    #[inline]
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

/// How a packet leaves a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// As if no link were dead.
    Usual,
    /// By this one of its ways.
    Other(u32),
    Nowhere,
}

/// Equal ports to choose from.
struct Ways {
    first: u32,
    count: u32,
    /// They lead up from this switch.
    up: Option<Tier>,
}

/// What a switch needs to know in order to forward where no link is dead. Below it lie hosts, leaves or pods, each behind
/// ports of its own; all else lies above.
#[derive(Clone, Copy, Debug)]
struct Gate {
    /// Places of its first port that leads down, and up.
    down: u32,
    up: u32,
    /// What lies below it: the first, and how many.
    first: u32,
    count: u32,
    /// Divides a host's number into that of its leaf or pod.
    inverse: u64,
    /// Ports to each of them.
    bundle: u32,
    /// Where a packet keeps its uplink.
    shift: u32,
}

impl Gate {
    /// The number of the host, leaf or pod below where a host is; `count` or more if it is not below.
    #[inline]
    fn below(&self, host: u32) -> u32 {
        divide(host, self.inverse).wrapping_sub(self.first)
    }
}

/// Divides by the divisor whose inverse this is.
#[inline]
fn divide(number: u32, inverse: u64) -> u32 {
    ((u128::from(number) * u128::from(inverse)) >> 63) as u32
}

/// 2^63 divided by a number, rounded up: dividing by it is exact for all numbers of 32 bits.
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use strandway_fabric::topology::{Level, Pods, Shape};
    use strandway_proto::packet::{Flags, Header};
    use strandway_proto::units::{Rate, Span};
    use strandway_proto::{ConnectionId, HostId, PathId};

    fn fabric(pods: Option<Pods>, planes: u8) -> Topology {
        let level = Level { rate: Rate::from_gbps(400), latency: Span::from_us(1) };
        let shape = Shape { hosts: 30, planes, hosts_per_leaf: 4, spines: 3, leaf_bundle: 2, pods };
        Topology::new(shape, [level; 3], [Span::ZERO; 3]).expect("a valid shape")
    }

    fn packet(source: u32, destination: u32, plane: u8, entropy: u32) -> Packet {
        Packet {
            source: HostId(source),
            destination: HostId(destination),
            connection: ConnectionId(0),
            path: PathId::new(plane, entropy),
            size: 64,
            flags: Flags::NONE,
            header: Header::Cnp,
        }
    }

    fn router(topology: &Topology, routing: Routing, dead: &[u32]) -> Router {
        let changes: Vec<Change> = dead.iter().map(|&link| (0, LinkId(link), true)).collect();
        Router::new(topology, routing, 5, Layout::default(), &changes)
    }

    /// Is a link alive and can the destination be reached from its far end? Asked anew at every switch.
    fn leads(router: &Router, dead: &[u32], link: u32, destination: HostId) -> bool {
        let to = router.far_end(link);
        if dead.contains(&link) || to < router.hosts {
            return !dead.contains(&link);
        }
        let ways = router.ways(to, destination.0);
        (ways.first..ways.first + ways.count).any(|link| leads(router, dead, link, destination))
    }

    /// The link that a packet leaves `node` by: rehashed until it leads on, then the first that does.
    fn naive(router: &Router, dead: &[u32], node: u32, packet: &Packet) -> Option<u32> {
        let ways = router.ways(node, packet.destination.0);
        let alive = |link: &u32| router.detours.is_none() || leads(router, dead, *link, packet.destination);
        (0..16)
            .map(|attempt| ways.first + router.choose(node, packet, &ways, attempt))
            .find(alive)
            .or_else(|| (ways.first..ways.first + ways.count).find(alive))
    }

    /// Follows a packet to its destination; the links it took.
    fn follow(topology: &Topology, router: &mut Router, dead: &[u32], packet: &Packet) -> Option<Vec<u32>> {
        let mut link = packet.source.0 * u32::from(topology.planes()) + u32::from(packet.path.port());
        let mut links = vec![link];
        let mut cargo = Cargo::default();
        let mut transit = cargo.put(packet, router.uplinks(packet));
        loop {
            let ends = topology.ends(LinkId(link)).expect("routes use links that exist");
            assert_eq!(ends.plane, packet.path.port());
            if ends.to.0 < topology.hosts() {
                assert_eq!(ends.to.0, packet.destination.0);
                return Some(links);
            }
            assert!(links.len() < 7, "a loop: {links:?}");
            let usual = router.link(ends.to.0, &transit, &cargo);
            let found = match router.way_at(ends.to.0, &mut transit, &cargo, 1) {
                Way::Usual => Some(usual),
                Way::Other(way) => Some(router.ways(ends.to.0, packet.destination.0).first + way),
                Way::Nowhere => None,
            };
            assert_eq!(found, naive(router, dead, ends.to.0, packet), "at {} with {dead:?} dead", ends.to.0);
            link = found?;
            links.push(link);
        }
    }

    proptest! {
        #[test]
        fn what_is_remembered_of_dead_links_is_what_asking_every_switch_gives(
            shape in 0usize..4,
            dead in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
            direct in any::<bool>(),
            pairs in prop::collection::vec((0u32..30, 0u32..30, 0u32..500), 1..60),
        ) {
            let pods = Some(Pods { leaves_per_pod: 2, cores_per_spine: 2, core_bundle: 2 });
            let topology = [fabric(None, 1), fabric(None, 3), fabric(pods, 1), fabric(pods, 2)][shape].clone();
            let dead: Vec<u32> = dead.iter().map(|i| i.index(topology.links() as usize) as u32).collect();
            let routing = if direct { Routing::Direct } else { Routing::Hashed };
            let mut router = router(&topology, routing, &dead);
            for (from, to, path) in pairs.into_iter().filter(|(from, to, _)| from != to) {
                let planes = u32::from(topology.planes());
                let packet = packet(from, to, (path % planes) as u8, path / planes);
                follow(&topology, &mut router, &dead, &packet);
            }
        }
    }

    #[test]
    fn what_routing_knows_changes_behind_what_arrives_at_that_instant() {
        let topology = fabric(None, 1);
        let leaf = topology.leaf(0, 0);
        let up = topology.ports_of(leaf).0.0 + 4;
        let all: Vec<LinkId> = (up..up + 6).map(LinkId).collect();
        let mut changes: Vec<Change> = Vec::new();
        for period in 0..3u64 {
            changes.extend(all.iter().map(|&link| (100 * period + 50, link, true)));
            changes.extend(all.iter().map(|&link| (100 * period + 70, link, false)));
        }
        let mut router = Router::new(&topology, Routing::Hashed, 5, Layout::default(), &changes);
        let mut cargo = Cargo::default();
        let packet = packet(0, 29, 0, 7);
        let mut transit = cargo.put(&packet, router.uplinks(&packet));
        let mut way = |time| router.way_at(leaf.0, &mut transit, &cargo, time);
        for time in [0, 50, 51, 70, 71, 150, 151, 270, 271, 250, 251, 400, 60] {
            let expected = if matches!(time % 100, 51..=70) { Way::Nowhere } else { Way::Usual };
            assert_eq!(way(time), if time < 300 { expected } else { Way::Usual }, "at {time}");
        }
    }

    #[test]
    fn every_route_is_a_shortest_one_and_every_uplink_is_used() {
        let pods = Some(Pods { leaves_per_pod: 2, cores_per_spine: 2, core_bundle: 2 });
        for topology in [fabric(None, 1), fabric(None, 3), fabric(pods, 1), fabric(pods, 2)] {
            for routing in [Routing::Hashed, Routing::Direct, Routing::Source] {
                let mut router = router(&topology, routing, &[]);
                let mut used = BTreeSet::new();
                for (source, destination) in (0..30).flat_map(|a| (0..30).map(move |b| (a, b))).filter(|(a, b)| a != b)
                {
                    for path in 0..64 * u32::from(topology.planes()) {
                        let plane = (path % u32::from(topology.planes())) as u8;
                        let packet = packet(source, destination, plane, path / u32::from(topology.planes()));
                        let links = follow(&topology, &mut router, &[], &packet).expect("a healthy fabric routes");
                        assert_eq!(links.len(), topology.hops(HostId(source), HostId(destination)));
                        used.extend(links);
                    }
                }
                for link in (0..topology.links()).filter(|&l| topology.ends(LinkId(l)).is_some()) {
                    assert!(used.contains(&link), "{} unused with {routing:?}", topology.link_name(LinkId(link)));
                }
            }
        }
    }

    #[test]
    fn known_dead_links_are_avoided_at_every_tier_until_nothing_is_left() {
        let pods = Some(Pods { leaves_per_pod: 2, cores_per_spine: 2, core_bundle: 1 });
        for topology in [fabric(None, 1), fabric(pods, 1)] {
            let probe = |dead: &[u32]| {
                let mut router = router(&topology, Routing::Hashed, dead);
                (0..200).all(|entropy| {
                    follow(&topology, &mut router, dead, &packet(0, 29, 0, entropy))
                        .is_some_and(|links| links.iter().all(|l| !dead.contains(l)))
                })
            };
            // The ways down to the last leaf, one tier-1 switch after the other.
            let last_leaf = topology.leaf(topology.leaves() - 1, 0);
            let mut dead = Vec::new();
            for spine in (0..topology.spines()).rev().take(3) {
                assert!(probe(&dead), "still routed with {} links dead", dead.len());
                for link in topology.links_between(topology.spine(spine, 0), last_leaf) {
                    dead.push(link.0);
                }
            }
            let mut router = router(&topology, Routing::Hashed, &dead);
            assert_eq!(follow(&topology, &mut router, &dead, &packet(0, 29, 0, 1)), None);
            assert!(probe(&dead[1..]));
        }
    }

    #[test]
    fn source_routes_lead_where_they_say_whatever_routing_knows() {
        let topology = fabric(None, 2);
        for entropy in 0..6 {
            let packet = packet(0, 29, 1, entropy);
            let before =
                follow(&topology, &mut router(&topology, Routing::Source, &[]), &[], &packet).expect("a route");
            // Six uplinks: two parallel links to each of three spines.
            let (_, first) = (0, topology.leaf(0, 1));
            assert_eq!(before[1], topology.ports_of(first).0.0 + 4 + entropy, "uplink {entropy} behind four hosts");
            let mut router = router(&topology, Routing::Source, &[before[1]]);
            assert_eq!(follow(&topology, &mut router, &[before[1]], &packet), Some(before));
        }
    }

    #[test]
    fn source_routes_pass_the_switches_that_micro_segments_name() {
        use strandway_fabric::usid::{Clos, SwitchTable};
        for spines in [3, 4] {
            let level = Level { rate: Rate::from_gbps(400), latency: Span::from_us(1) };
            let shape = Shape { hosts: 30, planes: 2, hosts_per_leaf: 4, spines, leaf_bundle: 1, pods: None };
            let topology = Topology::new(shape, [level; 3], [Span::ZERO; 3]).expect("a valid shape");
            let mut router = router(&topology, Routing::Source, &[]);
            let clos = Clos::new(spines as u16, 4).expect("a fabric that fits");
            // With more values than uplinks, both wrap around alike where the number of uplinks is a power of two.
            let values = if spines.is_power_of_two() { 64 } else { spines };
            for (from, to, plane, entropy) in (0..30)
                .flat_map(|a| (0..30).map(move |b| (a, b)))
                .filter(|(a, b)| a != b)
                .flat_map(|(a, b)| (0..2 * values).map(move |i| (a, b, (i % 2) as u8, i / 2)))
            {
                let links = follow(&topology, &mut router, &[], &packet(from, to, plane, entropy)).expect("a route");
                let mut address = clos.path(plane, from as u16, to as u16, entropy);
                for pair in links.windows(2) {
                    let switch = topology.ends(LinkId(pair[0])).expect("a link").to;
                    let (kind, number, plane) = topology.describe(switch);
                    let table = match kind {
                        strandway_fabric::topology::NodeKind::Leaf => SwitchTable::t0(&clos, plane, number as u16, 30),
                        _ => SwitchTable::t1(&clos, plane, number as u16, topology.leaves() as u16),
                    };
                    let (port, left) = table.forward(address).expect("the switch knows the way");
                    assert_eq!(topology.ports_of(switch).0.0 + u32::from(port), pair[1]);
                    address = left;
                }
                assert_eq!(address, clos.host(to as u16));
            }
        }
    }
}

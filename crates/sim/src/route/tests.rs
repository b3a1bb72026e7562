//! Routes over small fabrics, healthy and failing.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use strandway_fabric::topology::{Level, LongLink, Pods, Shape, SitesShape};
use strandway_proto::packet::{Flags, Header};
use strandway_proto::units::{Bytes, Rate, Span};
use strandway_proto::{ConnectionId, HostId, PathId};

fn fabric(pods: Option<Pods>, planes: u8) -> Topology {
    let level = Level { rate: Rate::from_gbps(400), latency: Span::from_us(1) };
    let shape = Shape { hosts: 30, planes, hosts_per_leaf: 4, spines: 3, leaf_bundle: 2, pods };
    Topology::new(shape, [level; 3], [Span::ZERO; 3]).expect("a valid shape")
}

fn sites(sites: u32, planes: u8, bundle: u32) -> Topology {
    let level = Level { rate: Rate::from_gbps(400), latency: Span::from_us(1) };
    let shape = SitesShape { sites, hosts_per_site: 30 / sites, planes, bundle };
    let long = LongLink { level, queue: Bytes(1 << 20) };
    Topology::of_sites(shape, level, vec![long; shape.pairs().count()], Span::ZERO).expect("a valid shape")
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

/// Is a link alive, and can the destination be reached from its far end? Computed again at every switch.
fn leads(router: &Router, dead: &[u32], link: u32, destination: HostId) -> bool {
    let to = router.far_end(link);
    if dead.contains(&link) || to < router.hosts {
        return !dead.contains(&link);
    }
    let ways = router.ways(to, destination.0);
    let first = ways.first + ways.skip;
    (first..first + ways.count).any(|link| leads(router, dead, link, destination))
}

/// The link by which a packet leaves `node`: rehashed until a link leads to the destination, otherwise the first that
/// does.
fn naive(router: &Router, dead: &[u32], node: u32, packet: &Packet) -> Option<u32> {
    let ways = router.ways(node, packet.destination.0);
    let first = ways.first + ways.skip;
    let alive = |link: &u32| router.detours.is_none() || leads(router, dead, *link, packet.destination);
    (0..16)
        .map(|attempt| first + router.choose(node, packet, &ways, attempt))
        .find(alive)
        .or_else(|| (first..first + ways.count).find(alive))
}

/// Follows a packet to its destination, and returns its links.
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
    fn the_remembered_dead_links_are_those_that_every_switch_reports(
        shape in 0usize..6,
        dead in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        direct in any::<bool>(),
        pairs in prop::collection::vec((0u32..30, 0u32..30, 0u32..500), 1..60),
    ) {
        let pods = Some(Pods { leaves_per_pod: 2, cores_per_spine: 2, core_bundle: 2 });
        let places = [fabric(None, 1), fabric(None, 3), fabric(pods, 1), fabric(pods, 2)];
        let topology = places.into_iter().chain([sites(2, 2, 3), sites(5, 1, 2)]).nth(shape).expect("six shapes");
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
fn routing_learns_of_a_change_after_the_arrivals_of_that_instant() {
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
    let places = [fabric(None, 1), fabric(None, 3), fabric(pods, 1), fabric(pods, 2)];
    for topology in places.into_iter().chain([sites(2, 1, 2), sites(6, 2, 3)]) {
        for routing in [Routing::Hashed, Routing::Direct, Routing::Source] {
            let mut router = router(&topology, routing, &[]);
            let mut used = BTreeSet::new();
            for (source, destination) in (0..30).flat_map(|a| (0..30).map(move |b| (a, b))).filter(|(a, b)| a != b) {
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
        let before = follow(&topology, &mut router(&topology, Routing::Source, &[]), &[], &packet).expect("a route");
        // Six uplinks: two parallel links to each of three spines.
        let (_, first) = (0, topology.leaf(0, 1));
        assert_eq!(before[1], topology.ports_of(first).0.0 + 4 + entropy, "uplink {entropy} behind four hosts");
        let mut router = router(&topology, Routing::Source, &[before[1]]);
        assert_eq!(follow(&topology, &mut router, &[before[1]], &packet), Some(before));
    }
}

#[test]
fn source_routes_pass_the_switches_that_micro_segments_name() {
    use strandway_fabric::topology::NodeKind;
    use strandway_fabric::usid::{Clos, Pods as Above, SwitchTable};
    let tiers = Some(Pods { leaves_per_pod: 2, cores_per_spine: 3, core_bundle: 1 });
    for (spines, pods) in [(3, None), (4, None), (3, tiers), (2, tiers)] {
        let level = Level { rate: Rate::from_gbps(400), latency: Span::from_us(1) };
        let shape = Shape { hosts: 30, planes: 2, hosts_per_leaf: 4, spines, leaf_bundle: 1, pods };
        let topology = Topology::new(shape, [level; 3], [Span::ZERO; 3]).expect("a valid shape");
        let mut router = router(&topology, Routing::Source, &[]);
        let above = pods.map(|pods| Above { t0s: pods.leaves_per_pod as u16, t2s_per_t1: pods.cores_per_spine as u16 });
        let clos = match above {
            None => Clos::new(spines as u16, 4),
            Some(above) => Clos::of_pods(2, spines as u16, 4, above),
        };
        let clos = clos.expect("a fabric that fits");
        // With more values than paths, both wrap around alike.
        let values = 32;
        for (from, to, plane, entropy) in (0..30)
            .flat_map(|a| (0..30).map(move |b| (a, b)))
            .filter(|(a, b)| a != b)
            .flat_map(|(a, b)| (0..2 * values).map(move |i| (a, b, (i % 2) as u8, i / 2)))
        {
            let links = follow(&topology, &mut router, &[], &packet(from, to, plane, entropy)).expect("a route");
            let mut address = clos.path(plane, from, to, entropy);
            for pair in links.windows(2) {
                let switch = topology.ends(LinkId(pair[0])).expect("a link").to;
                let (kind, number, plane) = topology.describe(switch);
                let table = match kind {
                    NodeKind::Leaf => SwitchTable::t0(&clos, plane, number as u16, 30),
                    NodeKind::Spine => SwitchTable::t1(&clos, plane, number as u16, topology.leaves() as u16),
                    _ => SwitchTable::t2(&clos, plane, number as u16, topology.leaves() as u16),
                };
                let (port, left) = table.forward(address).expect("the switch knows the way");
                assert_eq!(topology.ports_of(switch).0.0 + u32::from(port), pair[1]);
                address = left;
            }
            assert_eq!(address, clos.host(plane, to));
        }
    }
}

use super::*;
use strandway_proto::HostId;

fn level(latency: Span) -> Level {
    Level { rate: Rate::from_gbps(400), latency }
}

fn build(
    hosts: u32,
    planes: u8,
    hosts_per_switch: u32,
    switches: u32,
    links: Vec<GraphLink>,
) -> Result<Topology, String> {
    let (names, paths) = (switch_names(switches), GraphPaths::Minimal);
    let shape = GraphShape { hosts, planes, hosts_per_switch, names, links, paths };
    Topology::of_graph(shape, level(Span::from_us(1)), Span::from_ns(300))
}

/// A balanced dragonfly of 72 hosts (p = h = 2, a = 4), a torus of 4 x 4 x 2, a HyperX of 3 x 4, and a line of switches
/// whose last one has no host.
pub(crate) fn graphs() -> Vec<Topology> {
    let link = level(Span::from_us(1));
    let balanced = Dragonfly { groups: 9, switches_per_group: 4, global_links: 2 };
    let line = (0..3).map(|a| GraphLink { a, b: a + 1, level: link, cost: 1 }).collect();
    [
        build(72, 1, 2, 36, dragonfly(balanced, link, level(Span::from_us(5)))),
        build(31, 2, 1, 32, torus(&[4, 4, 2], link)),
        build(24, 1, 2, 12, hyperx(&[3, 4], 2, link)),
        build(5, 1, 2, 4, line),
    ]
    .into_iter()
    .map(|topology| topology.expect("a graph"))
    .collect()
}

#[test]
fn graphs_have_the_diameters_and_links_of_the_literature() {
    let shapes: Vec<(u8, usize)> =
        graphs().iter().map(|t| t.graph().map_or((0, 0), |g| (g.diameter(), g.links() / 2))).collect();
    // Dragonfly: 9 groups of 6 local links, and 36 pairs of groups. Torus: 32 switches with 2 + 2 + 1 ends of links
    // each. HyperX: twice 4 triangles and 3 complete graphs of four.
    assert_eq!(shapes, [(3, 9 * 6 + 36), (5, 32 * 5 / 2), (2, 2 * (4 * 3 + 3 * 6)), (3, 3)]);
}

#[test]
fn every_pair_of_groups_of_a_dragonfly_has_as_many_links() {
    for (groups, switches_per_group, global_links) in [(9, 4, 2), (5, 4, 2), (3, 2, 3), (2, 2, 1)] {
        let shape = Dragonfly { groups, switches_per_group, global_links };
        let link = level(Span::from_us(1));
        let mut pairs = std::collections::BTreeMap::new();
        let mut ends = std::collections::BTreeMap::new();
        for link in dragonfly(shape, link, link) {
            let (a, b) = (link.a / switches_per_group, link.b / switches_per_group);
            if a != b {
                *pairs.entry((a.min(b), a.max(b))).or_insert(0u32) += 1;
                *ends.entry(link.a).or_insert(0) += 1;
                *ends.entry(link.b).or_insert(0) += 1;
            }
        }
        assert_eq!(pairs.len() as u32, groups * (groups - 1) / 2, "{shape:?}");
        assert!(pairs.values().all(|&count| count == shape.links_per_pair()), "{shape:?}: {pairs:?}");
        assert!(ends.values().all(|&count| count <= global_links), "{shape:?}: {ends:?}");
    }
}

#[test]
fn next_hops_come_nearer_and_distances_are_symmetric() {
    for topology in graphs() {
        let graph = topology.graph().expect("a graph");
        for from in 0..graph.switches() {
            for to in 0..graph.switches() {
                assert_eq!(graph.cost(from, to), graph.cost(to, from));
                let mut ports = 0;
                graph.next(from, to, |_| ports += 1);
                assert_eq!(ports == 0, from == to, "{from} to {to}");
            }
        }
    }
}

#[test]
fn times_without_queues_are_exact() {
    let line = graphs().pop().expect("four graphs");
    // Host 0 on the first switch, host 4 on the third: 4 links of 83.2 ns for 4,160 B and 1 us, 3 switches of 300 ns.
    let way = 4 * (83_200 + 1_000_000) + 3 * 300_000;
    assert_eq!(line.one_way_between(Bytes(4160), HostId(0), HostId(4)), Span(way));
    assert_eq!(line.hops(HostId(0), HostId(4)), 4);
    let path: u64 =
        line.links_of_path(HostId(0), HostId(4)).iter().map(|l| l.rate.time_for(Bytes(4160)).0 + l.latency.0).sum();
    assert_eq!(path, way);
    // The fourth switch is one link further, even though it has no host.
    let data = 5 * (83_200 + 1_000_000) + 4 * 300_000;
    let ack = 5 * (1_280 + 1_000_000) + 4 * 300_000;
    assert_eq!(line.base_rtt(Bytes(4160), Bytes(64)), Span(data + ack));
}

/// Costs decide, not the number of links: over the triangle's third side the packet has one link less, and arrives
/// later.
#[test]
fn times_without_queues_are_those_of_the_cheapest_path() {
    let link = |a, b, latency, cost| GraphLink { a, b, level: level(latency), cost };
    let (near, far) = (Span::from_us(1), Span::from_us(9));
    let links = vec![link(0, 1, near, 100), link(1, 2, near, 100), link(0, 2, far, 250)];
    let triangle = build(3, 1, 1, 3, links).expect("a graph");
    let (a, b) = (HostId(0), HostId(2));
    assert_eq!(triangle.hops(a, b), 4);
    assert_eq!(triangle.one_way_between(Bytes(4160), a, b), Span(4 * (83_200 + 1_000_000) + 3 * 300_000));
    let graph = triangle.graph().expect("a graph");
    let mut ports = Vec::new();
    graph.next(0, 2, |port| ports.push(port));
    assert_eq!((ports, graph.cost(0, 2), graph.distance(0, 2), graph.diameter()), (vec![0], 200, 2, 2));
}

/// In a dragonfly a link between groups costs 3, and one inside a group 1.
#[test]
fn the_path_whose_time_is_given_is_a_shortest_one() {
    let balanced = graphs().swap_remove(0);
    let graph = balanced.graph().expect("a graph");
    for from in 0..graph.switches() {
        for to in 0..graph.switches() {
            let path: Vec<&Level> = graph.first_path(from, to).collect();
            let cost: u64 = path.iter().map(|link| if link.latency == Span::from_us(5) { 3 } else { 1 }).sum();
            assert_eq!(cost, u64::from(graph.cost(from, to)), "{from} to {to}");
            assert_eq!(path.len(), usize::from(graph.distance(from, to)), "{from} to {to}");
        }
    }
}

#[test]
fn impossible_graphs_are_refused() {
    let link = level(Span::from_us(1));
    let refused = |hosts, switches, links: &[(u32, u32)]| {
        let links = links.iter().map(|&(a, b)| GraphLink { a, b, level: link, cost: 1 }).collect();
        build(hosts, 1, 2, switches, links).expect_err("it is refused")
    };
    assert!(refused(4, 3, &[(0, 1)]).contains("leads from switch2 to switch0"));
    assert!(refused(4, 2, &[(0, 1), (1, 1)]).contains("switch1 to itself"));
    assert!(refused(5, 2, &[(0, 1)]).contains("5 hosts do not fit"));
    assert!(refused(2, 5000, &[]).contains("1 to 4096"));
}

//! The links of a source route, by arithmetic.

use super::{LinkId, NodeId, NodeKind, Topology};
use strandway_proto::{HostId, PathId};

impl Topology {
    /// The links of a path between two hosts on switches that route by source: as the simulator and micro segments
    /// ([`crate::usid`]) choose them. Among parallel links on the way down the switch chooses by a hash, so all of them
    /// are in the list. Graphs have no source routes.
    pub fn source_route(&self, from: HostId, to: HostId, path: PathId) -> Vec<LinkId> {
        let (plane, entropy) = (path.port(), path.entropy());
        let shape = self.shape();
        let mut links = vec![LinkId(self.ports_of(self.host(from)).0.0 + u32::from(plane))];
        let (first, last) = (self.leaf_of(from), self.leaf_of(to));
        let mut at = self.leaf(first, plane);
        let up = |at: &mut NodeId, links: &mut Vec<LinkId>, port: u32| {
            let link = LinkId(self.ports_of(*at).0.0 + port);
            links.push(link);
            *at = self.ends(link).map_or(*at, |ends| ends.to);
        };
        if first != last {
            let ways = if self.sites() > 0 { shape.leaf_bundle } else { self.leaf_up() };
            let bits = ways.next_power_of_two().ilog2();
            let skip = if self.sites() > 0 { self.uplinks_to(first, last) } else { 0 };
            up(&mut at, &mut links, shape.hosts_per_leaf + skip + (entropy & ((1 << bits) - 1)) % ways);
            let (pod, far) = (self.pod_of_leaf(first).0, self.pod_of_leaf(last).0);
            if pod != far {
                up(&mut at, &mut links, self.spine_down() + (entropy >> bits) % self.spine_up());
                let (_, core, _) = self.describe(at);
                let spine = far * shape.spines + core / shape.pods.map_or(1, |pods| pods.cores_per_spine);
                self.down(&mut at, &mut links, self.spine(spine, plane));
            }
            let leaf = self.leaf(last, plane);
            if at != leaf {
                self.down(&mut at, &mut links, leaf);
            }
        }
        self.down(&mut at, &mut links, self.host(to));
        links
    }

    /// Goes down to a neighbour, over any of the parallel links.
    fn down(&self, at: &mut NodeId, links: &mut Vec<LinkId>, to: NodeId) {
        links.extend(self.links_between(*at, to).into_iter().filter(|link| {
            let plane = self.ends(*link).map_or(0, |ends| ends.plane);
            self.describe(*at).0 == NodeKind::Host || plane == self.describe(*at).2
        }));
        *at = to;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::shapes;
    use super::*;

    #[test]
    fn every_source_route_joins_its_ends_link_by_link() {
        for topology in shapes().into_iter().filter(|topology| topology.graph().is_none()) {
            for (from, to) in (0..topology.hosts()).flat_map(|a| (0..topology.hosts()).map(move |b| (a, b))) {
                for entropy in (0..24).filter(|_| from != to) {
                    let path = PathId::new(topology.planes() - 1, entropy);
                    let links = topology.source_route(HostId(from), HostId(to), path);
                    let ends: Vec<_> = links.iter().map(|link| topology.ends(*link).expect("a link")).collect();
                    let (first, last) = (ends[0], ends[ends.len() - 1]);
                    assert_eq!((first.from, last.to), (NodeId(from), NodeId(to)));
                    assert!(ends.iter().all(|ends| ends.plane == path.port()));
                    let mut stops: Vec<NodeId> = ends.iter().map(|ends| ends.to).collect();
                    stops.dedup();
                    assert_eq!(stops.len(), topology.hops(HostId(from), HostId(to)), "{from} to {to} by {entropy}");
                    let joined =
                        |pair: &[super::super::LinkEnds]| pair[0].to == pair[1].from || pair[0].to == pair[1].to;
                    assert!(ends.windows(2).all(joined));
                }
            }
        }
    }
}

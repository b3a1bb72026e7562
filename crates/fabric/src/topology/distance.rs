//! Distances between hosts: links on the way, and times without queues.

use super::{CUT_THROUGH_BYTES, Level, NodeKind, Topology};
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Span};

impl Topology {
    /// The delay of a packet inside a switch of this kind; zero for hosts.
    pub const fn latency_inside(&self, kind: NodeKind) -> Span {
        match kind {
            NodeKind::Host => Span::ZERO,
            NodeKind::Leaf => self.switch_latency[0],
            NodeKind::Spine => self.switch_latency[1],
            NodeKind::Core => self.switch_latency[2],
        }
    }

    /// The shortest propagation delay of any link.
    pub fn shortest_latency(&self) -> Span {
        self.kinds_of_link().map(|l| l.latency).min().unwrap_or(Span::ZERO)
    }

    /// The time of a signal from one host's program to another's (for triggers): the shortest propagation delay of any
    /// link; between sites, the delay of the way.
    pub fn news_between(&self, a: HostId, b: HostId) -> Span {
        let long = self.long_link(self.leaf_of(a), self.leaf_of(b));
        long.map_or(self.shortest_latency(), |long| long.level.latency + self.levels[0].latency * 2)
    }

    /// Number of links between two hosts: 2 under one leaf, 3 between sites, 4 over tier 1, 6 over cores; in a graph
    /// those of a shortest path.
    pub fn hops(&self, a: HostId, b: HostId) -> usize {
        let (leaf_a, leaf_b) = (self.leaf_of(a), self.leaf_of(b));
        if leaf_a == leaf_b {
            2
        } else if let Some(graph) = self.graph() {
            2 + usize::from(graph.distance(leaf_a, leaf_b))
        } else if !self.long.is_empty() {
            3
        } else if self.pod_of_leaf(leaf_a).0 == self.pod_of_leaf(leaf_b).0 {
            4
        } else {
            6
        }
    }

    /// The number of a host's leaf or site.
    pub const fn leaf_of(&self, host: HostId) -> u32 {
        host.0 / self.shape.hosts_per_leaf
    }

    /// One-way time of a packet of `bytes` between two hosts, without queues.
    pub fn one_way_between(&self, bytes: Bytes, a: HostId, b: HostId) -> Span {
        self.one_way_of_leaves(bytes, self.leaf_of(a), self.leaf_of(b))
            .unwrap_or_else(|| self.one_way(bytes, self.hops(a, b)))
    }

    /// One-way time of a packet of `bytes` between hosts of two sites, or of two switches of a graph; `None` unless `a`
    /// and `b` are two of these.
    fn one_way_of_leaves(&self, bytes: Bytes, a: u32, b: u32) -> Option<Span> {
        if let Some(graph) = self.graph().filter(|_| a != b) {
            let local = &self.levels[0];
            let ends = (local.rate.time_for(bytes) + local.latency) * 2 + self.switch_latency[0];
            let each = |link: &Level| link.rate.time_for(bytes) + link.latency + self.switch_latency[0];
            return Some(graph.first_path(a, b).fold(ends, |sum, link| sum + each(link)));
        }
        let long = &self.long_link(a, b)?.level;
        let local = &self.levels[0];
        let ends = (local.rate.time_for(bytes) + local.latency + self.switch_latency[0]) * 2;
        Some(ends + long.rate.time_for(bytes) + long.latency)
    }

    /// Round trip of a packet of `bytes` and an acknowledgement of `ack` between two hosts, without queues.
    pub fn rtt_between(&self, bytes: Bytes, ack: Bytes, a: HostId, b: HostId) -> Span {
        self.one_way_between(bytes, a, b) + self.one_way_between(ack, b, a)
    }

    /// One-way time of a packet of `bytes` over `hops` links within one place, without queues. A store-and-forward
    /// switch adds the time of the whole packet at every link; with cut-through only the last link does.
    pub fn one_way(&self, bytes: Bytes, hops: usize) -> Span {
        let each = if self.cut_through { Bytes(bytes.0.min(CUT_THROUGH_BYTES)) } else { bytes };
        let rate = self.levels[0].rate;
        let mut total =
            if self.cut_through { Span(rate.time_for(bytes).0 - rate.time_for(each).0) } else { Span::ZERO };
        for level in 0..hops / 2 {
            let link = &self.levels[level];
            total += (link.rate.time_for(each) + link.latency) * 2;
            total += self.switch_latency[level] * if level + 1 == hops / 2 { 1 } else { 2 };
        }
        total
    }

    /// The links of a path between two hosts, in order. The latency of each includes that of the switch behind it.
    pub fn links_of_path(&self, a: HostId, b: HostId) -> Vec<Level> {
        let slower = |link: &Level, switch: Span| Level { latency: link.latency + switch, ..*link };
        if let Some(long) = self.long_link(self.leaf_of(a), self.leaf_of(b)) {
            let (local, inside) = (&self.levels[0], self.switch_latency[0]);
            return vec![slower(local, inside), slower(&long.level, inside), *local];
        }
        if let Some(graph) = self.graph() {
            let (first, inside) = (&self.levels[0], self.switch_latency[0]);
            let between = graph.first_path(self.leaf_of(a), self.leaf_of(b)).map(|link| slower(link, inside));
            return std::iter::once(slower(first, inside)).chain(between).chain([*first]).collect();
        }
        let half = self.hops(a, b) / 2;
        let up = (0..half).map(|level| slower(&self.levels[level], self.switch_latency[level]));
        let down = (0..half).rev().map(|level| match level {
            0 => self.levels[0],
            _ => slower(&self.levels[level], self.switch_latency[level - 1]),
        });
        up.chain(down).collect()
    }

    /// The largest number of links between two hosts of this fabric.
    pub fn longest_hops(&self) -> usize {
        if self.leaves <= 1 {
            2
        } else if let Some(graph) = self.graph() {
            2 + usize::from(graph.diameter())
        } else if !self.long.is_empty() {
            3
        } else if self.pods > 1 {
            6
        } else {
            4
        }
    }

    /// Round trip of a packet of `bytes` and an acknowledgement of `ack` over the longest path, without queues; in a
    /// graph over the longest of the shortest paths.
    pub fn base_rtt(&self, bytes: Bytes, ack: Bytes) -> Span {
        if let Some(graph) = self.graph() {
            let (a, b) = graph.farthest;
            let one_way = |bytes| self.one_way_of_leaves(bytes, a, b).unwrap_or_else(|| self.one_way(bytes, 2));
            return one_way(bytes) + one_way(ack);
        }
        let pairs = (1..self.sites()).flat_map(|high| (0..high).map(move |low| (low, high)));
        let round = |(a, b)| Some(self.one_way_of_leaves(bytes, a, b)? + self.one_way_of_leaves(ack, b, a)?);
        if let Some(longest) = pairs.filter_map(round).max() {
            return longest;
        }
        self.one_way(bytes, self.longest_hops()) + self.one_way(ack, self.longest_hops())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Level, Shape};
    use super::*;
    use strandway_proto::units::Rate;

    #[test]
    fn base_rtt_of_the_reference_fabric_is_the_published_one() {
        let level = Level { rate: Rate::from_gbps(400), latency: Span::from_us(1) };
        let shape = Shape { hosts: 128, planes: 1, hosts_per_leaf: 16, spines: 16, leaf_bundle: 1, pods: None };
        let topology = Topology::new(shape, [level; 3], [Span::ZERO; 3]).expect("a valid shape");
        // 8 us of propagation, four times 4,150 B and four times 64 B at 20 ps a byte.
        assert_eq!(topology.base_rtt(Bytes(4150), Bytes(64)), Span(8_000_000 + 4 * 83_000 + 4 * 1_280));
    }
}

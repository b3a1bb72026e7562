//! The names of nodes, links and groups of links.

use super::{LinkEnds, LinkId, NodeId, NodeKind, Topology};
use strandway_proto::units::Rate;

/// A group of similar links: same level, direction and plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkGroup {
    /// For example "leaf->spine" or "host->leaf.p3"; between sites "site->higher" and "site->lower", by the sites'
    /// numbers.
    pub name: String,
    /// 0 host to leaf, 1 leaf to tier 1 or site to site, 2 tier 1 to core.
    pub level: usize,
    /// True if they lead towards the core; between sites, towards the site with the higher number.
    pub up: bool,
    /// The plane.
    pub plane: u8,
    /// The number of links.
    pub links: u32,
    /// Their rate; if long links have different rates, the mean.
    pub rate: Rate,
}

impl Topology {
    /// All groups: by level, then up before down, then by plane.
    pub fn groups(&self) -> Vec<LinkGroup> {
        let tier1 = if self.tiers() == 2 { "spine" } else { "agg" };
        let mut names = [["host->leaf", "leaf->host"], ["leaf->", "->leaf"], ["agg->core", "core->agg"]];
        let mut groups = Vec::new();
        let mut counts = [self.shape.hosts, self.leaves * self.leaf_up(), self.spines * self.spine_up];
        let mut rates = self.levels.map(|level| level.rate);
        if !self.long.is_empty() {
            names = [["host->site", "site->host"], ["site->higher", "site->lower"], names[2]];
            counts[1] /= 2;
            rates[1] = Rate(self.long.iter().map(|long| long.level.rate.0).sum::<u64>() / self.long.len() as u64);
        }
        if let Some(graph) = self.graph() {
            names = [["host->switch", "switch->host"], ["switch->higher", "switch->lower"], names[2]];
            counts[1] = graph.links() as u32 / 2;
            rates[1] = graph.mean_rate();
        }
        for level in 0..self.tiers() {
            for (direction, name) in names[level].iter().enumerate() {
                let name = match (level, direction) {
                    _ if !self.long.is_empty() || self.graph().is_some() => (*name).to_string(),
                    (1, 0) => format!("{name}{tier1}"),
                    (1, _) => format!("{tier1}{name}"),
                    _ => (*name).to_string(),
                };
                for plane in 0..self.shape.planes {
                    let name = if self.shape.planes > 1 { format!("{name}.p{plane}") } else { name.clone() };
                    let rate = rates[level];
                    groups.push(LinkGroup { name, level, up: direction == 0, plane, links: counts[level], rate });
                }
            }
        }
        groups
    }

    /// The index of a link's group in [`Topology::groups`].
    pub const fn group_index(&self, ends: &LinkEnds) -> usize {
        (ends.level * 2 + !ends.up as usize) * self.shape.planes as usize + ends.plane as usize
    }

    /// A node's name: `host12`, `leaf3`, `spine0`, `agg1.0` (pod, index), `core5`; `site1` for the switch of a site;
    /// switches of graphs have names of their own. With several planes, names of switches end in the plane, such as
    /// `.p2`.
    pub fn node_name(&self, node: NodeId) -> String {
        let (kind, index, plane) = self.describe(node);
        let name = match kind {
            NodeKind::Host => return format!("host{index}"),
            NodeKind::Leaf if !self.long.is_empty() => format!("site{index}"),
            NodeKind::Leaf => self.graph().map_or_else(|| format!("leaf{index}"), |graph| graph.name(index).into()),
            NodeKind::Spine if self.tiers() == 2 => format!("spine{index}"),
            NodeKind::Spine => format!("agg{}.{}", index / self.shape.spines, index % self.shape.spines),
            NodeKind::Core => format!("core{index}"),
        };
        if self.shape.planes > 1 { format!("{name}.p{plane}") } else { name }
    }

    /// The node with this name, as [`Topology::node_name`] writes it.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        let number = |text: &str, below: u32| text.parse::<u32>().ok().filter(|&n| n < below);
        if let Some(host) = name.strip_prefix("host").and_then(|rest| number(rest, self.shape.hosts)) {
            return Some(NodeId(host));
        }
        let (name, plane) = match name.rsplit_once(".p") {
            Some((name, plane)) => (name, number(plane, u32::from(self.shape.planes))? as u8),
            None if self.shape.planes == 1 => (name, 0),
            None => return None,
        };
        if let Some(graph) = self.graph() {
            return graph.named(name).map(|n| self.leaf(n, plane));
        }
        if let Some(rest) = name.strip_prefix(if self.long.is_empty() { "leaf" } else { "site" }) {
            return number(rest, self.leaves).map(|n| self.leaf(n, plane));
        }
        if let Some(rest) = name.strip_prefix("spine").filter(|_| self.tiers() == 2) {
            return number(rest, self.spines).map(|n| self.spine(n, plane));
        }
        if let Some(rest) = name.strip_prefix("agg").filter(|_| self.tiers() == 3) {
            let (pod, index) = rest.split_once('.')?;
            let spine = number(pod, self.pods)? * self.shape.spines + number(index, self.shape.spines)?;
            return Some(self.spine(spine, plane));
        }
        if let Some(rest) = name.strip_prefix("core") {
            return number(rest, self.cores).map(|n| self.core(n, plane));
        }
        None
    }

    /// A link's name: `host0->leaf0`, `leaf0->spine3`. Among parallel links, the second and later ones end in `#1`,
    /// `#2`, ….
    pub fn link_name(&self, link: LinkId) -> String {
        let Some(ends) = self.ends(link) else { return format!("unused port {}", link.0) };
        let name = format!("{}->{}", self.node_name(ends.from), self.node_name(ends.to));
        let bundle = match ends.level {
            0 => 1,
            1 => self.shape.leaf_bundle,
            _ => self.shape.pods.map_or(1, |p| p.core_bundle),
        };
        let first = self.ports_of(ends.from).0.0;
        let down = match self.describe(ends.from).0 {
            NodeKind::Leaf => self.shape.hosts_per_leaf,
            NodeKind::Spine => self.spine_down,
            _ => 0,
        };
        let port = link.0 - first;
        let nth = if let Some(graph) = self.graph().filter(|_| ends.level == 1) {
            self.graph_nth(graph, self.describe(ends.from).1, port - down)
        } else if ends.up || (ends.level == 1 && !self.long.is_empty()) {
            (port - down.min(port)) % bundle
        } else {
            port % bundle
        };
        if nth == 0 { name } else { format!("{name}#{nth}") }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::shapes;
    use super::*;

    #[test]
    fn nodes_are_found_by_their_names() {
        for topology in shapes() {
            for node in (0..topology.nodes()).map(NodeId) {
                assert_eq!(topology.node_named(&topology.node_name(node)), Some(node));
            }
            for wrong in ["host30000", "leaf", "spine99", "core-1", "agg0", "x", "leaf0.p9", ""] {
                assert_eq!(topology.node_named(wrong), None, "{wrong}");
            }
        }
    }
}

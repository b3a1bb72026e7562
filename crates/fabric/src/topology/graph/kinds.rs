//! Graphs of the literature: dragonfly, torus, HyperX.

use super::GraphLink;
use crate::topology::Level;

/// The cost of a link between groups, if one inside a group costs 1. With it a path with one global link and two local
/// ones is shorter than one with two global links, so a shortest path has one global link, as in section 4 of the
/// paper.
const GLOBAL_COST: u8 = 3;

/// A dragonfly. Source: Kim, Dally, Scott, Abts, "Technology-Driven, Highly-Scalable Dragonfly Topology", ISCA 2008,
/// section 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dragonfly {
    /// Groups, `g`.
    pub groups: u32,
    /// Switches of one group, `a`; each has a link to every other one of its group.
    pub switches_per_group: u32,
    /// Links of one switch to other groups, `h`.
    pub global_links: u32,
}

impl Dragonfly {
    /// The most groups that can all be joined by one link per pair: `a h + 1`.
    pub fn groups_max(self) -> u64 {
        u64::from(self.switches_per_group) * u64::from(self.global_links) + 1
    }

    /// Links between each pair of groups. Links that do not suffice for one more per pair are not there.
    pub fn links_per_pair(self) -> u32 {
        let all = u64::from(self.switches_per_group) * u64::from(self.global_links);
        (all / u64::from(self.groups.max(2) - 1)) as u32
    }
}

/// The links of a dragonfly. Group `i` has the switches `i a ..`. Its global link `k` belongs to its switch `k / h`,
/// and leads to the group that is `k mod (g - 1) + 1` places further, counted around ("consecutive" arrangement).
pub fn dragonfly(shape: Dragonfly, local: Level, global: Level) -> Vec<GraphLink> {
    let Dragonfly { groups, switches_per_group, global_links } = shape;
    let mut links = Vec::new();
    for group in 0..groups {
        let first = group * switches_per_group;
        for b in 1..switches_per_group {
            links.extend((0..b).map(|a| GraphLink { a: first + a, b: first + b, level: local, cost: 1 }));
        }
    }
    if groups < 2 {
        return links;
    }
    let used = shape.links_per_pair() * (groups - 1);
    for group in 0..groups {
        for k in 0..used {
            let (round, offset) = (k / (groups - 1), k % (groups - 1) + 1);
            let other = (group + offset) % groups;
            if other < group {
                continue;
            }
            // Seen from the other group, ours is `groups - offset` places further.
            let back = round * (groups - 1) + (groups - offset) - 1;
            let (a, b) =
                (group * switches_per_group + k / global_links, other * switches_per_group + back / global_links);
            links.push(GraphLink { a, b, level: global, cost: GLOBAL_COST });
        }
    }
    links
}

/// The place of a switch in each dimension; the first dimension changes fastest.
fn places(dims: &[u32], mut switch: u32) -> Vec<u32> {
    dims.iter()
        .map(|&size| {
            let place = switch % size;
            switch /= size;
            place
        })
        .collect()
}

/// How much the number of a switch grows with a step in each dimension.
fn strides(dims: &[u32]) -> Vec<u32> {
    dims.iter()
        .scan(1, |stride, &size| {
            let this = *stride;
            *stride *= size;
            Some(this)
        })
        .collect()
}

/// The links of a torus: each switch has a link to the next one in each dimension, and the last one to the first. A
/// dimension of size 2 has one link, not two.
pub fn torus(dims: &[u32], level: Level) -> Vec<GraphLink> {
    let mut links = Vec::new();
    for switch in 0..dims.iter().product() {
        for ((place, &size), stride) in places(dims, switch).into_iter().zip(dims).zip(strides(dims)) {
            if size > 2 || (size == 2 && place == 0) {
                let next = if place + 1 == size { switch - place * stride } else { switch + stride };
                links.push(GraphLink { a: switch, b: next, level, cost: 1 });
            }
        }
    }
    links
}

/// The links of a HyperX: each switch has `bundle` links to every switch that differs from it in one dimension. Source:
/// Ahn, Binkert, Davis, McLaren, Schreiber, "HyperX: Topology, Routing, and Packaging of Efficient Large-Scale
/// Networks", SC 2009.
pub fn hyperx(dims: &[u32], bundle: u32, level: Level) -> Vec<GraphLink> {
    let mut links = Vec::new();
    for switch in 0..dims.iter().product() {
        for ((place, &size), stride) in places(dims, switch).into_iter().zip(dims).zip(strides(dims)) {
            for further in 1..size - place {
                let link = GraphLink { a: switch, b: switch + further * stride, level, cost: 1 };
                links.extend(std::iter::repeat_n(link, bundle as usize));
            }
        }
    }
    links
}

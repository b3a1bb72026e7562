//! Graphs: any switches with hosts, and any links between switches. Next hops come from a table.
//!
//! Every switch of a graph is a leaf in the numbering of nodes and links: its first ports lead down to its hosts, the
//! other ones to other switches. Switches with hosts have the lowest numbers. All switches have room for as many links
//! as the one with the most links; ports without a link are not connected.

mod kinds;

pub use kinds::{Dragonfly, dragonfly, hyperx, torus};

use super::{Level, LinkEnds, LinkId, NodeId, Shape, Topology};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use strandway_proto::units::{Bytes, Rate, Span};

/// Limit on the switches of one plane (ours): their two tables have 32 MiB.
pub const GRAPH_SWITCHES_MAX: u32 = 4096;

/// Limit on the cost of a path (ours): costs are stored in a byte.
const COST_MAX: u8 = 250;

/// The cost where there is no path.
pub const FAR: u8 = u8::MAX;

/// Paths between two switches of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphPaths {
    /// Shortest paths only, by the sum of their links' costs.
    #[default]
    Minimal,
    /// Each data packet goes to a switch that its hash selects, and from there to its destination; both parts on
    /// shortest paths. Source: Valiant, SIAM J. Comput. 11 (1982).
    Valiant,
    /// The switch of the source selects between both by the queues of its ports times the number of links (UGAL-L).
    /// Source: Kim, Dally, Scott, Abts, ISCA 2008, section 4.
    Ugal,
}

/// A link between two switches, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphLink {
    /// One end.
    pub a: u32,
    /// The other end.
    pub b: u32,
    /// Rate of one direction, and propagation delay.
    pub level: Level,
    /// Its cost for shortest paths, from 1 on, as in OSPF.
    pub cost: u8,
}

/// The shape of a graph. Counts are per plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphShape {
    /// Hosts in the fabric; host `h` is on switch `h / hosts_per_switch`.
    pub hosts: u32,
    /// Identical planes, at most 32. Every host has a port in each.
    pub planes: u8,
    /// Hosts on one switch; the last switch that has hosts may have fewer.
    pub hosts_per_switch: u32,
    /// Names of the switches, without the plane; those with hosts first.
    pub names: Vec<String>,
    /// Links between switches; two switches may have several.
    pub links: Vec<GraphLink>,
    /// Paths that packets take.
    pub paths: GraphPaths,
}

/// A port of a switch that leads to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SwitchPort {
    /// The switch at the other end.
    to: u32,
    /// The port at the other end that leads back, counted from its first port to a switch.
    back: u32,
    level: Level,
    cost: u8,
}

/// Links, names and next hops of a graph, the same in all planes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    names: Vec<String>,
    paths: GraphPaths,
    switches: u32,
    /// For each switch, its ports to others.
    edges: Vec<Vec<SwitchPort>>,
    /// By switch, then by destination: the cost of a shortest path between them, and the links of the first one.
    costs: Vec<u8>,
    distances: Vec<u8>,
    diameter: u8,
    /// Two switches between which a packet needs the longest time.
    pub(super) farthest: (u32, u32),
    /// Rate and latency of every kind of link, the links of hosts first.
    pub(super) kinds: Vec<Level>,
}

impl Graph {
    /// Paths that packets take.
    pub fn paths(&self) -> GraphPaths {
        self.paths
    }

    /// Number of switches in one plane.
    pub fn switches(&self) -> u32 {
        self.switches
    }

    /// Cost of a shortest path between two switches.
    pub fn cost(&self, from: u32, to: u32) -> u8 {
        self.costs[from as usize * self.switches as usize + to as usize]
    }

    /// Number of links of the first shortest path between two switches.
    pub fn distance(&self, from: u32, to: u32) -> u8 {
        self.distances[from as usize * self.switches as usize + to as usize]
    }

    /// The largest distance between two switches.
    pub fn diameter(&self) -> u8 {
        self.diameter
    }

    /// Do switches choose the paths of packets by their queues?
    pub fn chooses_by_queues(&self) -> bool {
        self.paths == GraphPaths::Ugal
    }

    /// Links between switches, in both directions, of one plane.
    pub fn links(&self) -> usize {
        self.edges.iter().map(Vec::len).sum()
    }

    /// Calls `each` with every port of a switch that is on a shortest path to another one, in order. Ports are counted
    /// from the first one that leads to a switch.
    pub fn next(&self, from: u32, to: u32, mut each: impl FnMut(u32)) {
        self.nearer(from, to).for_each(|(port, _)| each(port));
    }

    /// The ports of a switch on a shortest path to another one, in order.
    fn nearer(&self, from: u32, to: u32) -> impl Iterator<Item = (u32, &SwitchPort)> {
        let here = self.cost(from, to);
        let ports = (0..).zip(&self.edges[from as usize]);
        ports.filter(move |(_, edge)| self.cost(edge.to, to).checked_add(edge.cost) == Some(here))
    }

    /// Calls `each` with every port of a switch, the switch at its other end, and the cost of the link.
    pub fn ports(&self, from: u32, mut each: impl FnMut(u32, u32, u8)) {
        self.edges[from as usize].iter().zip(0..).for_each(|(edge, port)| each(port, edge.to, edge.cost));
    }

    /// The costs from all switches to one, over the links for which `alive(switch, port)` holds; [`FAR`] without a
    /// path.
    pub fn costs_to(&self, to: u32, alive: impl Fn(u32, u32) -> bool) -> Vec<u8> {
        let mut costs = vec![FAR; self.switches as usize];
        costs[to as usize] = 0;
        let mut queue = BinaryHeap::from([Reverse((0u8, to))]);
        while let Some(Reverse((cost, at))) = queue.pop() {
            if cost > costs[at as usize] {
                continue;
            }
            for edge in &self.edges[at as usize] {
                let next = cost.saturating_add(edge.cost);
                if next < costs[edge.to as usize] && next <= COST_MAX && alive(edge.to, edge.back) {
                    costs[edge.to as usize] = next;
                    queue.push(Reverse((next, edge.to)));
                }
            }
        }
        costs
    }

    /// The links of the first of the shortest paths between two switches.
    pub(super) fn first_path(&self, from: u32, to: u32) -> impl Iterator<Item = &Level> {
        let mut at = from;
        std::iter::from_fn(move || {
            let (_, edge) = self.nearer(at, to).next()?;
            at = edge.to;
            Some(&edge.level)
        })
    }

    /// Mean rate of the links between switches.
    pub(super) fn mean_rate(&self) -> Rate {
        let all = self.edges.iter().flatten().map(|edge| edge.level.rate.0);
        Rate(all.sum::<u64>() / self.links().max(1) as u64)
    }

    /// The name of a switch.
    pub(super) fn name(&self, switch: u32) -> &str {
        &self.names[switch as usize]
    }

    /// The number of a switch with this name.
    pub(super) fn named(&self, name: &str) -> Option<u32> {
        self.names.iter().position(|known| known == name).map(|at| at as u32)
    }
}

/// The names `switch0`, `switch1`, ….
pub fn switch_names(switches: u32) -> Vec<String> {
    (0..switches).map(|n| format!("switch{n}")).collect()
}

impl Topology {
    /// Switches that links join in any way. `local`: the links between hosts and their switch. `switch_latency`: the
    /// latency of all switches.
    ///
    /// # Errors
    /// A sentence that names the wrong value: a switch without a path to another one, a link from a switch to itself,
    /// or more switches, ports or links than one fabric may have.
    pub fn of_graph(graph: GraphShape, local: Level, switch_latency: Span) -> Result<Topology, String> {
        let GraphShape { hosts, planes, hosts_per_switch, names, links, paths } = graph;
        let switches = names.len() as u32;
        if switches == 0 || switches > GRAPH_SWITCHES_MAX {
            return Err(format!(
                "{switches} switches: a graph has 1 to {GRAPH_SWITCHES_MAX}, since it keeps a table of all pairs"
            ));
        }
        if hosts_per_switch == 0 || u64::from(hosts) > u64::from(switches) * u64::from(hosts_per_switch) {
            return Err(format!("{hosts} hosts do not fit on {switches} switches with {hosts_per_switch} each"));
        }
        let mut edges: Vec<Vec<SwitchPort>> = vec![Vec::new(); switches as usize];
        for link in &links {
            if link.a >= switches || link.b >= switches {
                return Err(format!("a link between switches {} and {} of {switches}", link.a, link.b));
            }
            if link.a == link.b {
                return Err(format!("a link leads from {} to itself", names[link.a as usize]));
            }
            if link.cost == 0 || link.cost > COST_MAX {
                return Err(format!("a link costs {}: costs are from 1 to {COST_MAX}", link.cost));
            }
            if link.level.rate.0 == 0 || link.level.latency < Span::from_ns(1) {
                return Err("a link needs a rate above zero and a latency of at least 1 ns".into());
            }
            let (a, b) = (edges[link.a as usize].len() as u32, edges[link.b as usize].len() as u32);
            edges[link.a as usize].push(SwitchPort { to: link.b, back: b, level: link.level, cost: link.cost });
            edges[link.b as usize].push(SwitchPort { to: link.a, back: a, level: link.level, cost: link.cost });
        }
        let degree = edges.iter().map(Vec::len).max().unwrap_or(0).max(1) as u32;
        let slowest = links.iter().map(|link| link.level.rate).min().unwrap_or(local.rate);
        let longest = links.iter().map(|link| link.level.latency).max().unwrap_or(local.latency);
        let level = Level { rate: slowest, latency: longest };
        let shape =
            Shape { hosts, planes, hosts_per_leaf: hosts_per_switch, spines: degree, leaf_bundle: 1, pods: None };
        let clos = Topology::new(shape, [local, level, level], [switch_latency; 3])?;
        let all = u64::from(planes)
            * (u64::from(hosts) + u64::from(switches) * (u64::from(hosts_per_switch) + u64::from(degree)));
        if degree > 1 << 15 || all > 1 << 28 {
            return Err(format!("{all} ports and links are more than one run can hold (268,435,456)"));
        }
        let mut graph = Graph {
            names,
            paths,
            switches,
            edges,
            costs: Vec::new(),
            distances: Vec::new(),
            diameter: 0,
            farthest: (0, 0),
            kinds: vec![local],
        };
        for link in &links {
            if !graph.kinds.contains(&link.level) {
                graph.kinds.push(link.level);
            }
        }
        graph.measure()?;
        Ok(Topology { spines: 0, spine_down: 0, leaves: switches, graph: Some(Arc::new(graph)), ..clos })
    }

    /// The graph, if the fabric is one.
    pub fn graph(&self) -> Option<&Graph> {
        self.graph.as_deref()
    }

    /// The ends of port `up` of a switch of a graph, counted from its first port to another switch.
    pub(super) fn graph_ends(&self, graph: &Graph, from: NodeId, switch: u32, plane: u8, up: u32) -> Option<LinkEnds> {
        let edge = graph.edges[switch as usize].get(up as usize)?;
        let to = self.leaf(edge.to, plane);
        let reverse = LinkId(self.ports_of(to).0.0 + self.shape.hosts_per_leaf + edge.back);
        Some(LinkEnds { from, to, level: 1, up: switch < edge.to, plane, reverse })
    }

    /// Rate and latency of a link of a graph.
    pub(super) fn graph_level(&self, graph: &Graph, ends: &LinkEnds) -> Option<Level> {
        let (_, from, _) = self.describe(ends.from);
        let back = (ends.reverse.0 - self.ports_of(ends.to).0.0).checked_sub(self.shape.hosts_per_leaf)?;
        let (_, to, _) = self.describe(ends.to);
        graph.edges[to as usize].get(back as usize).filter(|edge| edge.to == from).map(|edge| edge.level)
    }

    /// Number of parallel links of a graph before this one, between the two switches.
    pub(super) fn graph_nth(&self, graph: &Graph, switch: u32, up: u32) -> u32 {
        let edges = &graph.edges[switch as usize];
        edges.iter().take(up as usize).filter(|edge| edge.to == edges[up as usize].to).count() as u32
    }
}

impl Graph {
    /// Do the paths of packets depend on each other in a cycle: can a packet that waits for a link hold the one that
    /// the next packet waits for, and so on around? Then a fabric with PFC can deadlock. Source: Dally and Seitz, IEEE
    /// Trans. Computers C-36 (1987).
    pub fn has_cycle(&self) -> bool {
        let first: Vec<usize> = self
            .edges
            .iter()
            .scan(0, |sum, edges| {
                *sum += edges.len();
                Some(*sum - edges.len())
            })
            .collect();
        let mut after = vec![std::collections::BTreeSet::new(); self.links()];
        let anywhere = self.paths != GraphPaths::Minimal;
        for to in 0..self.switches {
            for from in 0..self.switches {
                self.next(from, to, |port| {
                    let through = self.edges[from as usize][port as usize].to;
                    let follow = |next: u32| first[through as usize] + next as usize;
                    let link = first[from as usize] + port as usize;
                    if anywhere && through == to {
                        after[link].extend((0..self.edges[through as usize].len() as u32).map(follow));
                    }
                    self.next(through, to, |next| {
                        after[link].insert(follow(next));
                    });
                });
            }
        }
        // Links that wait for none are taken away until none is left, or the rest is a cycle.
        let mut waiting: Vec<usize> = after.iter().map(std::collections::BTreeSet::len).collect();
        let mut before = vec![Vec::new(); after.len()];
        for (link, nexts) in after.iter().enumerate() {
            nexts.iter().for_each(|&next| before[next].push(link));
        }
        let mut free: Vec<usize> = (0..after.len()).filter(|&link| waiting[link] == 0).collect();
        let mut left = after.len();
        while let Some(link) = free.pop() {
            left -= 1;
            for &earlier in &before[link] {
                waiting[earlier] -= 1;
                if waiting[earlier] == 0 {
                    free.push(earlier);
                }
            }
        }
        left > 0
    }

    /// Fills the table of distances, and finds the pair of switches that are farthest apart.
    fn measure(&mut self) -> Result<(), String> {
        let count = self.switches as usize;
        self.costs = vec![FAR; count * count];
        self.distances = vec![0; count * count];
        let time = |level: &Level| level.rate.time_for(Bytes(4160)).0 + level.latency.0;
        let mut longest = 0;
        for to in 0..self.switches {
            let costs = self.costs_to(to, |_, _| true);
            if let Some(lost) = costs.iter().position(|&cost| cost == FAR) {
                let (lost, to) = (&self.names[lost], &self.names[to as usize]);
                return Err(format!(
                    "no path of a cost up to {COST_MAX} leads from {lost} to {to}: links must join all switches"
                ));
            }
            for (from, &cost) in costs.iter().enumerate() {
                self.costs[from * count + to as usize] = cost;
            }
            let mut order: Vec<u32> = (0..self.switches).collect();
            order.sort_by_key(|&at| costs[at as usize]);
            let mut times = vec![0u64; count];
            for &at in order.iter().skip(1) {
                let Some((_, edge)) = self.nearer(at, to).next() else { continue };
                let (next, level) = (edge.to, edge.level);
                let links = self.distance(next, to) + 1;
                times[at as usize] = times[next as usize] + time(&level);
                if times[at as usize] > longest {
                    (longest, self.farthest) = (times[at as usize], (at, to));
                }
                self.diameter = self.diameter.max(links);
                self.distances[at as usize * count + to as usize] = links;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests;

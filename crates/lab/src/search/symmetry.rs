//! Parts of a fabric that are alike: its symmetry under the traffic of a run, by colour refinement.
//!
//! Every node begins with a colour made of its kind and, for hosts, of the roles that it plays in jobs and services
//! and of its traffic. Then each node's colour takes in those of its neighbours over links (with their level, rate
//! and faults) and over traffic (with bytes and the number of links between both), until no class splits any more.
//! Collectives are nodes, too. Two parts with different colours are never alike; two with the same colour are alike
//! in every property that this looks at, which excludes seeds, hashes, and noise of compute times. Planes count as
//! alike unless faults tell them apart.

use std::collections::BTreeMap;
use strandway_collective::{Operation, RankOperation};
use strandway_fabric::{LinkId, NodeId, Topology};
use strandway_proto::HostId;
use strandway_scenario::Experiment;

/// Limit on the rounds of the refinement: ours. Colours settle within a few diameters of the fabric.
const ROUNDS_MAX: usize = 64;

/// The colours of nodes, and what faults tell of links.
pub(super) struct Colours {
    nodes: Vec<u64>,
    /// By directed link: its faults; zero without.
    faults: BTreeMap<LinkId, u64>,
}

/// Mixes two numbers (splitmix64).
fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    x = (x ^ (x >> 30)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn of_text(text: &str) -> u64 {
    text.bytes().fold(mix(1, text.len() as u64), |hash, byte| mix(hash, byte.into()))
}

impl Colours {
    /// The colours after all rounds.
    pub(super) fn of(experiment: &Experiment) -> Colours {
        let mut graph = Graph::of(experiment);
        let mut classes = distinct(&graph.colours);
        for _ in 0..ROUNDS_MAX {
            graph.refine();
            let now = distinct(&graph.colours);
            if now == classes {
                break;
            }
            classes = now;
        }
        graph.colours.truncate(experiment.plan.topology.nodes() as usize);
        Colours { nodes: graph.colours, faults: graph.faults }
    }

    /// The class of a node.
    pub(super) fn node(&self, node: NodeId) -> u64 {
        self.nodes[node.0 as usize]
    }

    /// The class of a cable between two nodes, given by both directions.
    pub(super) fn cable(&self, topology: &Topology, up: LinkId, down: LinkId) -> u64 {
        let Some(ends) = topology.ends(up) else { return 0 };
        let fault = |link: &LinkId| self.faults.get(link).copied().unwrap_or(0);
        mix(mix(self.node(ends.from), self.node(ends.to)), mix(fault(&up), fault(&down)))
    }
}

fn distinct(colours: &[u64]) -> usize {
    let mut sorted = colours.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.len()
}

/// Nodes of the fabric and collectives, with labelled edges.
struct Graph {
    colours: Vec<u64>,
    /// To each node: from which node, with which label.
    edges: Vec<Vec<(u32, u64)>>,
    faults: BTreeMap<LinkId, u64>,
}

impl Graph {
    fn of(experiment: &Experiment) -> Graph {
        let topology = &experiment.plan.topology;
        let nodes = topology.nodes() as usize;
        let kind = |node: u32| mix(2, topology.describe(NodeId(node)).0 as u64);
        let mut graph = Graph {
            colours: (0..topology.nodes()).map(kind).collect(),
            edges: vec![Vec::new(); nodes],
            faults: faults(experiment),
        };
        graph.links(topology);
        graph.flows(experiment);
        graph.jobs(experiment);
        graph.services(experiment);
        graph.collectives(experiment);
        for operation in &experiment.operations {
            match operation {
                Operation::PointToPoint(pipe) => {
                    graph.traffic(topology, pipe.ends[0], pipe.ends[1], mix(pipe.bytes, pipe.count.into()));
                }
                Operation::Messages(group) if group.schedule().is_none() => {
                    for message in 0..group.plans().messages() as u32 {
                        if let Some(((from, to), bytes)) = group.ends(group.number_of(message, 0)) {
                            graph.traffic(topology, from, to, mix(11, bytes));
                        }
                    }
                }
                _ => {}
            }
        }
        if experiment.aggregation.is_some() {
            // Trees of switches that add: their places follow from numbers, so no two parts count as alike.
            graph.colours.iter_mut().zip(0..).for_each(|(colour, node)| *colour = mix(*colour, node));
        }
        graph
    }

    fn links(&mut self, topology: &Topology) {
        for link in (0..topology.links()).map(LinkId) {
            let Some(ends) = topology.ends(link) else { continue };
            let level = topology.level_of(&ends);
            let mut label = mix(ends.level as u64 * 2 + u64::from(ends.up), level.rate.0);
            label = mix(label, level.latency.0);
            label = mix(label, self.faults.get(&link).copied().unwrap_or(0));
            label = mix(label, self.faults.get(&ends.reverse).copied().unwrap_or(0));
            self.edges[ends.to.0 as usize].push((ends.from.0, label));
        }
    }

    /// A message from one host to another.
    fn traffic(&mut self, topology: &Topology, from: HostId, to: HostId, label: u64) {
        let label = mix(label, topology.hops(from, to) as u64);
        let (from, to) = (topology.host(from).0, topology.host(to).0);
        self.edges[to as usize].push((from, mix(3, label)));
        self.edges[from as usize].push((to, mix(4, label)));
    }

    fn flows(&mut self, experiment: &Experiment) {
        let plan = &experiment.plan;
        for message in &experiment.messages {
            let (from, to) = experiment.ends(message);
            self.traffic(&plan.topology, from, to, mix(message.bytes, message.class.into()));
        }
    }

    /// The roles of hosts in jobs.
    fn jobs(&mut self, experiment: &Experiment) {
        let differs = |member: &u32| {
            experiment.operations[*member as usize].group().is_some_and(|group| group.schedule().is_none())
        };
        for job in experiment.operations.iter().filter_map(Operation::job) {
            for (rank, host) in job.hosts.iter().enumerate() {
                let mut role = mix(u64::from(job.number) + 5, u64::from(job.roles[rank]));
                if job.stragglers > 0.0 {
                    // Each rank has a speed of its own.
                    role = mix(role, rank as u64 + 1);
                }
                let kinds = job.operations[rank].iter().map(|operation| match operation {
                    // Ranks of a recipe differ, and so do the messages of a server: nothing here is taken as alike.
                    RankOperation::Member { operation, rank } if differs(operation) => {
                        mix(mix(8, (*operation).into()), (*rank).into())
                    }
                    RankOperation::Member { operation, .. } => match &experiment.operations[*operation as usize] {
                        Operation::Multicast(_) => 2,
                        Operation::InNetwork(_) => 3,
                        _ => 1,
                    },
                    RankOperation::Send { .. } => 4,
                    RankOperation::Receive { .. } => 5,
                    RankOperation::Hand { local, gives } => mix(mix(9, u64::from(*local)), u64::from(*gives)),
                    RankOperation::Inside { messages: Some((group, rank)), .. } if differs(group) => {
                        mix(mix(10, (*group).into()), (*rank).into())
                    }
                    RankOperation::Inside { messages, .. } => 6 + u64::from(messages.is_some()),
                });
                role = kinds.fold(role, mix);
                let colour = &mut self.colours[experiment.plan.topology.host(*host).0 as usize];
                // Several ranks may share a host.
                *colour = colour.wrapping_add(mix(6, role));
            }
        }
    }

    /// The roles of hosts in services. No two replicas are alike, since each has requests of its own; the NICs of a
    /// replica that only carry its KV caches are.
    fn services(&mut self, experiment: &Experiment) {
        let topology = &experiment.plan.topology;
        for (number, plan) in (1u64..).zip(&experiment.services) {
            let service = &plan.service;
            let node = |place: u32| topology.host(service.hosts[place as usize]).0;
            for (replica, made) in (1u64..).zip(&service.replicas) {
                let ordered = made.exchange.is_some() || made.stages.len() > 1;
                for (stage, nics) in (1u64..).zip(&made.stages) {
                    for (at, place) in (0u64..).zip(nics) {
                        let order = if ordered { at + 2 } else { u64::from(at > 0) };
                        let carries = u64::from(made.lanes.contains(place));
                        let role = mix(mix(mix(number, replica), stage), order * 2 + carries);
                        // Several replicas may share a NIC.
                        let colour = &mut self.colours[node(*place) as usize];
                        *colour = colour.wrapping_add(mix(12, role));
                    }
                }
            }
            let router = &mut self.colours[node(service.router) as usize];
            *router = router.wrapping_add(mix(13, number));
            for prefill in 0..service.prefill {
                for decode in service.prefill..service.replicas.len() as u32 {
                    for (from, to) in service.lanes(prefill, decode) {
                        let [from, to] = [from, to].map(|place| service.hosts[place as usize]);
                        self.traffic(topology, from, to, mix(14, number));
                    }
                }
            }
        }
    }

    /// A node for every group of hosts that have collectives together.
    fn collectives(&mut self, experiment: &Experiment) {
        let topology = &experiment.plan.topology;
        // For each list of hosts, in order, and each algorithm: the number of its collectives and their bytes, hashed.
        let mut groups: BTreeMap<(&[HostId], &str), u64> = BTreeMap::new();
        for made in &experiment.collectives {
            let hosts: &[HostId] = match experiment.operation_of(made) {
                Some(Operation::Messages(group)) if group.schedule().is_some() => &group.hosts,
                Some(Operation::Multicast(multicast)) => multicast.ranks.hosts(),
                _ => continue,
            };
            let sum = groups.entry((hosts, &made.algorithm)).or_insert(0);
            *sum = sum.wrapping_add(mix(7, made.bytes));
        }
        for ((hosts, algorithm), sum) in groups {
            let label = mix(sum, of_text(algorithm));
            let here = self.colours.len() as u32;
            // How its members lie below leaves and pods.
            let mut leaves: BTreeMap<u32, u64> = BTreeMap::new();
            let mut pods: BTreeMap<u32, u64> = BTreeMap::new();
            for host in hosts {
                let leaf = host.0 / topology.shape().hosts_per_leaf;
                *leaves.entry(leaf).or_insert(0) += 1;
                *pods.entry(topology.pod_of_leaf(leaf).0).or_insert(0) += 1;
            }
            let lie = leaves.values().chain(pods.values()).fold(0u64, |sum, count| sum.wrapping_add(mix(8, *count)));
            self.colours.push(mix(label, lie));
            self.edges.push(Vec::new());
            for host in hosts {
                let node = topology.host(*host).0;
                self.edges[here as usize].push((node, 9));
                self.edges[node as usize].push((here, 10));
            }
            if algorithm.starts_with("ring") {
                for (from, to) in hosts.iter().zip(hosts.iter().cycle().skip(1)) {
                    self.traffic(topology, *from, *to, label);
                }
            }
        }
    }

    /// One round: every colour takes in those of its neighbours.
    fn refine(&mut self) {
        let around = |(node, edges): (usize, &Vec<(u32, u64)>)| {
            let sum = edges
                .iter()
                .fold(0u64, |sum, (from, label)| sum.wrapping_add(mix(*label, self.colours[*from as usize])));
            mix(self.colours[node], sum)
        };
        self.colours = self.edges.iter().enumerate().map(around).collect();
    }
}

/// The faults of each link, as numbers.
fn faults(experiment: &Experiment) -> BTreeMap<LinkId, u64> {
    let mut faults = BTreeMap::new();
    for fault in &experiment.plan.faults {
        let told = mix(of_text(&format!("{:?}", fault.kind)), mix(fault.from.0, fault.until.0));
        for link in &fault.links {
            let sum: &mut u64 = faults.entry(*link).or_insert(0);
            *sum = sum.wrapping_add(told);
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Classes of nodes by tier: hosts, leaves, spines, cores.
    fn classes(text: &str) -> [usize; 4] {
        let experiment =
            crate::check(&strandway_scenario::parse(text).expect("TOML")).unwrap_or_else(|e| panic!("{e}"));
        let colours = Colours::of(&experiment);
        let topology = &experiment.plan.topology;
        let mut found: [Vec<u64>; 4] = Default::default();
        for node in (0..topology.nodes()).map(NodeId) {
            found[topology.describe(node).0 as usize].push(colours.node(node));
        }
        found.map(|colours| distinct(&colours))
    }

    const FABRIC: &str = "[fabric]\nhosts = 16\nhosts_per_leaf = 4\nspines = 4\n[profile]\nname = \"uec\"\n";

    #[test]
    fn failures_with_equal_effects_are_one_class() {
        let all = format!("{FABRIC}[workload]\nkind = \"all-to-all\"\nsize = \"1 MB\"\n");
        assert_eq!(classes(&all), [1, 1, 1, 0]);
        // Of a ring over all hosts, each leaf has a first member, a second one, and so on.
        let ring = format!("{FABRIC}[workload]\nkind = \"all-reduce\"\nsize = \"1 MB\"\n");
        assert_eq!(classes(&ring), [4, 1, 1, 0]);
    }

    #[test]
    fn an_incast_and_a_fault_tell_parts_apart() {
        // The receiver, its three neighbours, and the others; its leaf, and the others.
        let incast = format!("{FABRIC}[workload]\nkind = \"incast\"\nsenders = 15\nsize = \"1 MB\"\n");
        assert_eq!(classes(&incast), [3, 2, 1, 0]);
        let fault = format!(
            "{FABRIC}[workload]\nkind = \"all-to-all\"\nsize = \"1 MB\"\n[[faults]]\nswitch = \"spine1\"\nkind = \"down\"\n"
        );
        assert_eq!(classes(&fault), [1, 1, 2, 0]);
        let link = fault.replace("switch = \"spine1\"", "between = [\"leaf2\", \"spine1\"]");
        assert_eq!(classes(&link), [2, 2, 2, 0]);
    }

    #[test]
    fn replicas_of_a_service_differ_and_their_other_nics_do_not() {
        // Three replicas with a leader and three other NICs each, and a server without work, each below its own leaf.
        let service = format!("{FABRIC}[servers]\ngpus = 4\n[[service]]\nprefill = 2\ndecode = 1\nrequests = 4\n");
        assert_eq!(classes(&service), [7, 4, 1, 0]);
        // A NIC without KV caches is another class, if it is not the leader's.
        assert_eq!(classes(&format!("{service}kv_nics = 2\n")), [10, 4, 1, 0]);
        // Stages of two servers send activations from NIC to NIC.
        let stages = format!("{FABRIC}[servers]\ngpus = 4\n[[service]]\npp = 2\nrequests = 4\n");
        assert_eq!(classes(&stages), [16, 4, 1, 0]);
    }

    #[test]
    fn stages_of_a_pipeline_differ_and_planes_do_not() {
        let job = "[fabric]\nkind = \"multi-plane\"\nhosts = 16\nplanes = 2\nhosts_per_leaf = 4\nspines = 2\n[servers]\ngpus = 4\n\
                   [profile]\nname = \"mrc\"\n[job]\nlayers = 4\nhidden = 512\nsequence = 256\ntp = 4\ndp = 2\npp = 2\nmicro_batches = 2\n";
        assert_eq!(classes(job), [2, 2, 1, 0]);
        let faulty = format!("{job}[[faults]]\nplane = 1\nkind = \"degrade\"\nfraction = 0.5\n");
        assert_eq!(classes(&faulty), [2, 4, 2, 0]);
    }
}

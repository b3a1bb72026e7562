//! Chakra execution traces (MLCommons): a file per rank, each a stream of protobuf messages with their lengths before
//! them: first `GlobalMetadata`, then a `Node` each.
//!
//! Format: mlcommons/chakra, `schema/protobuf/et_def.proto`. Like the reference's feeder, nodes wait for their data
//! dependencies only, unless asked otherwise, and start times are not obeyed: they are those of the recording machine.

mod json;
mod node;
mod set;
mod streams;

pub(crate) use set::prefix_of;
pub use set::{Set, files_of, is_trace};

use super::trace::{ANY, Does, Kind, LANES_MAX, OPERATIONS_MAX, Operation, RankTrace, SPAN_MAX_NS, Trace, problem};
use super::wire;
use crate::problem::Problems;
use node::{Node, NodeType};
use std::collections::BTreeMap;
use std::io::{BufRead, Read};
use strandway_proto::units::Span;

/// Limit on the length of one message: ours. The longest in public traces has 30 kB.
const MESSAGE_MAX: u64 = 1 << 28;

/// The lanes of a rank: its GPU computes on lane 0, its CPU on lane 1.
const CPU: u8 = 1;
const _: () = assert!(CPU < LANES_MAX);

/// How to understand the nodes of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Floating-point operations per second that a GPU reaches, for nodes without a duration.
    pub flops: f64,
    /// Bytes per second of a GPU's memory, for the same.
    pub memory: f64,
    /// Nodes wait for their control dependencies, too.
    pub control: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { flops: 495e12, memory: 3.35e12, control: false }
    }
}

/// Counts of unusual nodes in the files, for the list of assumptions.
#[derive(Clone, Debug, Default)]
struct Met {
    control: u64,
    untyped: u64,
    unmeasured: u64,
    peerless: u64,
    missing: u64,
    dimensions: u64,
    chained: u64,
}

/// The names and members of groups. The group of all ranks has number 0 and an empty list.
#[derive(Clone, Debug)]
struct Groups {
    numbers: BTreeMap<String, u32>,
    members: Vec<Option<Vec<u32>>>,
}

impl Default for Groups {
    fn default() -> Groups {
        Groups { numbers: BTreeMap::new(), members: vec![Some(Vec::new())] }
    }
}

impl Groups {
    /// The number of the group with this name. An empty name and `0` stand for all ranks, unless `0` is defined.
    fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        if name.is_empty() || name == "0" {
            return 0;
        }
        self.members.push(None);
        self.numbers.insert(name.to_string(), self.members.len() as u32 - 1);
        self.members.len() as u32 - 1
    }

    fn define(&mut self, name: &str, members: Vec<u32>) {
        if members.is_empty() && (name.is_empty() || name == "0") {
            return;
        }
        let number = match self.numbers.get(name) {
            Some(&number) => number,
            None => {
                self.members.push(None);
                self.numbers.insert(name.to_string(), self.members.len() as u32 - 1);
                self.members.len() as u32 - 1
            }
        };
        self.members[number as usize] = Some(members);
    }
}

/// Reads the traces of all ranks.
#[derive(Debug)]
pub struct Reader {
    options: Options,
    trace: Trace,
    groups: Groups,
    met: Met,
    operations: usize,
}

impl Reader {
    /// No rank yet. `file` is the name of the set in messages.
    pub fn new(file: &str, options: Options) -> Reader {
        let format = "a Chakra execution trace";
        let trace = Trace { file: file.to_string(), format, noun: "node", ..Trace::default() };
        Reader { options, trace, groups: Groups::default(), met: Met::default(), operations: 0 }
    }

    /// Defines groups as ASTRA-sim's `comm_group.json` does: `{"NAME": [0, 1, ...], ...}`.
    ///
    /// # Errors
    /// If it has another form.
    pub fn groups(&mut self, file: &str, text: &str) -> Result<(), Problems> {
        let remedy = "write {\"NAME\": [ranks]}, as ASTRA-sim's comm_group.json has it";
        let parsed: Result<BTreeMap<String, Vec<u32>>, _> = serde_json::from_str(text);
        match parsed {
            Ok(groups) => {
                groups.into_iter().for_each(|(name, members)| self.groups.define(&name, members));
                Ok(())
            }
            Err(error) => {
                let what = format!("is no list of groups: {error}");
                Err(problem(file, Some(error.line()).filter(|line| *line > 0), "", what, remedy))
            }
        }
    }

    /// Reads the file of the next rank, message by message.
    ///
    /// # Errors
    /// With the file, the number of the message (the metadata is message 0) and a remedy.
    pub fn rank(&mut self, file: &str, bytes: impl BufRead) -> Result<(), Problems> {
        let nodes = self.nodes(file, bytes)?;
        self.add(file, nodes)
    }

    /// Reads the file of the next rank, as JSON: what `chakra_jsonizer` writes, or a `workload_graph`.
    ///
    /// # Errors
    /// With the file, the place and a remedy.
    pub fn rank_of_json(&mut self, file: &str, text: &str) -> Result<(), Problems> {
        let mut nodes = json::nodes(file, text)?;
        if nodes.is_empty() {
            return Err(problem(file, None, "", "has no nodes", "is it a Chakra trace?"));
        }
        nodes.sort_by_key(|node| node.id);
        self.add(file, nodes)
    }

    /// Adds the nodes of the next rank.
    fn add(&mut self, file: &str, nodes: Vec<Node>) -> Result<(), Problems> {
        self.operations += nodes.len();
        if self.operations > OPERATIONS_MAX {
            let what = format!("has more than {OPERATIONS_MAX} nodes in all ranks");
            return Err(problem(file, None, "", what, "cut the trace, or leave ranks out"));
        }
        let mut place: BTreeMap<u64, u32> = BTreeMap::new();
        for (at, node) in (0u32..).zip(&nodes) {
            if place.insert(node.id, at).is_some() {
                let what = format!("has two nodes with the id {}", node.id);
                return Err(problem(file, None, "", what, "give each node an id of its own"));
            }
        }
        let mut all = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let mut needs = Vec::new();
            let control = if self.options.control { &node.control[..] } else { &[] };
            self.met.control += node.control.len() as u64;
            for id in node.data.iter().chain(control) {
                match place.get(id) {
                    Some(&need) => needs.push(need),
                    // Converters leave nodes out, and keep their ids in dependencies.
                    None => self.met.missing += 1,
                }
            }
            needs.sort_unstable();
            needs.dedup();
            all.push(needs);
        }
        self.met.chained += streams::chain(&nodes, &mut all);
        let mut rank = RankTrace::default();
        for (node, needs) in nodes.iter().zip(all) {
            let does = self.does(file, node)?;
            rank.add(Operation { id: node.id, does }, needs);
        }
        self.trace.ranks.push(rank);
        Ok(())
    }

    /// All nodes of a file, in the order of their ids: of nodes that can begin, the one with the lowest id does.
    fn nodes(&mut self, file: &str, mut bytes: impl BufRead) -> Result<Vec<Node>, Problems> {
        let mut nodes = Vec::new();
        let mut message = Vec::new();
        for number in 0u64.. {
            let wrong = |what: &str| {
                let remedy = "is it a Chakra trace (.et) that was copied whole?";
                problem(file, None, "", format!("message {number} {what}"), remedy)
            };
            let Some(length) = next_length(&mut bytes).map_err(|what| wrong(&what))? else { break };
            if length > MESSAGE_MAX {
                return Err(wrong(&format!("claims to have {length} bytes, more than {MESSAGE_MAX}")));
            }
            message.clear();
            // Memory grows with the bytes that are there, not with the length that is claimed.
            let read = (&mut bytes).take(length).read_to_end(&mut message);
            read.map_err(|error| wrong(&format!("cannot be read: {error}")))?;
            if (message.len() as u64) < length {
                return Err(wrong(&format!("has {} of its {length} bytes: the file was cut off", message.len())));
            }
            if number == 0 {
                node::check_metadata(&message).map_err(|_| wrong("is no metadata of a Chakra trace"))?;
                continue;
            }
            let read = Node::read(&message).map_err(|what| wrong(&what))?;
            if let Some(groups) = read.groups.as_deref() {
                for (name, members) in groups {
                    self.groups.define(name, members.clone());
                }
            }
            nodes.push(read);
            if nodes.len() > OPERATIONS_MAX {
                return Err(wrong("is one too many"));
            }
        }
        if nodes.is_empty() {
            return Err(problem(file, None, "", "has no nodes", "is it a Chakra trace (.et)?"));
        }
        nodes.sort_by_key(|node| node.id);
        Ok(nodes)
    }

    /// The operation of a node.
    fn does(&mut self, file: &str, node: &Node) -> Result<Does, Problems> {
        let wrong = |what: String, remedy: &str| {
            Err(problem(file, None, "", format!("node {} (`{}`) {what}", node.id, node.shown()), remedy))
        };
        let lane = if node.is_cpu { CPU } else { 0 };
        let computes = |span: Span| Does::Compute { span, lane };
        let Some(nanoseconds) = node.duration_us.checked_mul(1000).filter(|ns| *ns <= SPAN_MAX_NS) else {
            return wrong(format!("lasts for {} us", node.duration_us), "write a duration of less than 13 days");
        };
        let duration = Span::from_ns(nanoseconds);
        Ok(match node.kind {
            NodeType::Metadata => computes(Span::ZERO),
            NodeType::Load | NodeType::Store => computes(duration),
            NodeType::Compute if node.duration_us > 0 => computes(duration),
            NodeType::Compute => {
                let seconds = (node.operations / self.options.flops).max(node.tensor_bytes / self.options.memory);
                self.met.unmeasured += u64::from(seconds > 0.0);
                if !(0.0..=1e6).contains(&seconds) {
                    return wrong(format!("has num_ops for {seconds} s"), "correct num_ops or tensor_size");
                }
                computes(Span((seconds * 1e12).round() as u64))
            }
            NodeType::Send | NodeType::Receive => {
                let sends = node.kind == NodeType::Send;
                let Some(bytes) = node.bytes else {
                    return wrong("has no comm_size".into(), "add the attribute: the bytes of the message");
                };
                let tag = node.tag.unwrap_or(0);
                let peer = match if sends { node.to } else { node.from } {
                    Some(peer) => peer,
                    None => {
                        self.met.peerless += 1;
                        let group = self.groups.number(node.group.as_deref().unwrap_or_default());
                        let members = self.groups.members[group as usize].clone().unwrap_or_default();
                        let mine = self.trace.ranks.len() as u32;
                        match members.iter().find(|member| **member != mine) {
                            Some(&peer) if members.len() == 2 => peer,
                            _ => {
                                let name = if sends { "comm_dst" } else { "comm_src" };
                                let what = format!("has no {name}, and its group is no pair of ranks");
                                return wrong(what, "add the attribute, or a group of two ranks");
                            }
                        }
                    }
                };
                if peer == ANY {
                    return wrong("names no rank".into(), "correct comm_src or comm_dst");
                }
                if sends { Does::Send { to: peer, bytes, tag } } else { Does::Receive { from: peer, tag } }
            }
            NodeType::Collective => {
                let Some(kind) = node.collective.or_else(|| node.kernel()) else {
                    // Calls on the CPU that launch a collective have this type, too.
                    self.met.untyped += 1;
                    return Ok(computes(duration));
                };
                if node.some_dimensions && node.group.is_none() {
                    let what = "is among some dimensions of a network (involved_dim), which a trace does not have";
                    return wrong(what.into(), "add the group of its ranks (pg_name), and define it");
                }
                self.met.dimensions += u64::from(node.some_dimensions);
                let group = self.groups.number(node.group.as_deref().unwrap_or_default());
                let Some(bytes) = node.bytes.map_or((kind == Kind::Barrier).then_some(0), |bytes| {
                    Some(if kind == Kind::Barrier { 0 } else { bytes })
                }) else {
                    return wrong("has no comm_size".into(), "add the attribute: the bytes of the collective");
                };
                if bytes == 0 && kind != Kind::Barrier {
                    return Ok(computes(Span::ZERO));
                }
                Does::Collective { group, kind, bytes }
            }
        })
    }

    /// The whole trace, sorted. `alike`: it is of one rank, and all ranks do the same.
    ///
    /// # Errors
    /// If nodes wait for each other in a circle, with their ids; or a group has no members.
    pub fn finish(mut self, alike: bool) -> Result<Trace, Problems> {
        self.trace.alike = alike;
        let names: BTreeMap<u32, &String> = self.groups.numbers.iter().map(|(name, number)| (*number, name)).collect();
        for (number, members) in (0u32..).zip(self.groups.members) {
            match members {
                Some(members) => self.trace.groups.push(members),
                // One rank knows only that there is a group.
                None if alike => self.trace.groups.push(Vec::new()),
                None => {
                    let name = names.get(&number).map_or("", |name| name.as_str());
                    let remedy = "name a file that defines it: groups = \"comm_group.json\"";
                    return Err(problem(&self.trace.file, None, name, "is a group without a list of ranks", remedy));
                }
            }
        }
        let met = &self.met;
        let mut assumed = vec![
            match self.options.control {
                true => "nodes wait for data and control dependencies".to_string(),
                false => {
                    format!("nodes wait for data dependencies only ({} control dependencies are not read)", met.control)
                }
            },
            "of nodes that can begin the one with the lowest id does, on a GPU and on a CPU one at a time".to_string(),
            "start times are not obeyed".to_string(),
            "collectives without a group are among all ranks; comm_size of an all-gather is what one rank gives"
                .to_string(),
        ];
        let mut note = |count: u64, text: &str| {
            if count > 0 {
                assumed.push(format!("{count} {text}"));
            }
        };
        note(met.untyped, "nodes of type COMM_COLL without comm_type only compute");
        note(met.unmeasured, "nodes without a duration compute for as long as num_ops and tensor_size say");
        note(met.peerless, "messages without a peer go to the other rank of their group");
        note(met.dimensions, "collectives have involved_dim, which is not read: their groups are those of pg_name");
        note(met.chained, "kernels wait for the one before them on their stream, which the trace does not say");
        note(met.missing, "dependencies name nodes that are not there, and are left out");
        if alike {
            assumed.push("every rank does what this one does, in groups of the same shape".to_string());
        }
        self.trace.assumed = assumed;
        self.trace.sort()?;
        Ok(self.trace)
    }
}

/// The length of the next message; `None` at the end of the file.
fn next_length(bytes: &mut impl BufRead) -> Result<Option<u64>, String> {
    let mut length = Vec::new();
    loop {
        let mut byte = [0];
        match bytes.read(&mut byte) {
            Ok(0) if length.is_empty() => return Ok(None),
            Ok(0) => return Err("has no length: the file was cut off".to_string()),
            Ok(_) => length.push(byte[0]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(format!("cannot be read: {error}")),
        }
        if byte[0] < 0x80 || length.len() == 10 {
            return wire::varint(&mut &length[..]).map(Some).map_err(|_| "has a length that is no number".to_string());
        }
    }
}

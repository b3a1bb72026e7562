//! The traffic of a run while it is made: connections, flows, and the entries that workloads add.

use super::plans::{CollectivePlan, JobPlan, Message, ServicePlan};
use super::servers::Servers;
use super::switch::settings::{Spec, Switch};
use crate::collective::bounds::add_bytes;
use crate::reader::Sink;
use crate::reduction::Reduction;
use std::ops::Range;
use std::sync::Arc;
use strandway_collective::{Operation, ScriptedJob};
use strandway_fabric::plan::{ConnectionPlan, FlowPlan, Start, TriggerPlan};
use strandway_fabric::{Members, Topology};
use strandway_import::FLOWS_MAX;
use strandway_proto::read::REQUEST_BYTES;
use strandway_proto::rng::Random;
use strandway_proto::units::{Bytes, Rate, Span, Time};
use strandway_proto::{HostId, Profile};
use strandway_switch::Aggregation;

/// With more messages than this, collectives have no entry for each message, unless a scenario asks for entries. Ours:
/// percentiles are exact up to a million flows, and a million entries take about 250 MB.
pub(crate) const ROWS_MAX: u64 = 1 << 20;

/// If collectives without entries have more connections than this, the connections open at first use. Ours: an open
/// connection takes up to 2 kB.
pub(super) const CHANNELS_MAX: u64 = 1 << 18;

/// Limit on messages: all messages have 32-bit numbers.
pub(super) const MESSAGES_MAX: u64 = u32::MAX as u64 - (FLOWS_MAX + 1);

/// All traffic of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) connections: Vec<ConnectionPlan>,
    pub(crate) flows: Vec<FlowPlan>,
    pub(crate) triggers: Vec<TriggerPlan>,
    /// The triggers' numbers in a matrix; empty for other triggers.
    pub(crate) trigger_names: Vec<String>,
    pub(crate) messages: Vec<Message>,
    pub(crate) classes: Vec<String>,
    pub(crate) collectives: Vec<CollectivePlan>,
    /// All operations of the run.
    pub(crate) operations: Vec<Operation>,
    /// The members of each multicast group.
    pub(crate) members: Vec<Members>,
    /// Jobs whose gradients switches add: as read from the scenario, and for the run.
    pub(crate) specs: Vec<Spec>,
    pub(crate) aggregation: Option<Aggregation>,
    /// The facts for reports about training jobs with scripts.
    pub(crate) jobs: Vec<JobPlan>,
    /// Inference services.
    pub(crate) services: Vec<ServicePlan>,
    /// Number of messages without entries.
    pub(crate) tallied: u64,
    /// True if a job or a collective uses the links inside servers.
    pub(crate) uses_servers: bool,
    /// Servers that jobs have taken.
    pub(crate) taken: Vec<u32>,
    /// Notes about jobs for the readers of results.
    pub(crate) notes: Vec<String>,
    /// Profiles; the first one is the profile of the run.
    pub(crate) profiles: Vec<Arc<Profile>>,
}

/// The keys of a workload besides those of its kind.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// The name of its flows in reports.
    pub(crate) class: String,
    /// Its section, for messages.
    pub(crate) section: String,
    pub(crate) common: Common,
    /// The profile of its connections; `None` for the profile of the run.
    pub(crate) profile: Option<Profile>,
    /// The share of its pairs that use a single path.
    pub(crate) ordered: Option<f64>,
    /// True: receivers read their messages, that is, each message follows a request of its receiver.
    pub(crate) reads: bool,
}

/// Keys that most kinds have.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(crate) size: Bytes,
    pub(crate) start: Span,
    pub(crate) jitter: Span,
    pub(crate) messages: u32,
    pub(crate) gap: Span,
    pub(crate) connections: u32,
    /// Only this many hosts, the first ones, take part.
    pub(crate) hosts: Option<u32>,
}

/// The facts about the run that generators need.
pub(crate) struct Context<'a> {
    pub(crate) sink: &'a Sink,
    pub(crate) topology: &'a Topology,
    pub(crate) rate: Rate,
    pub(crate) seed: u64,
    /// Which GPUs share a server.
    pub(crate) servers: &'a Servers,
    /// The settings of `[switch]`.
    pub(crate) switch: &'a Switch,
    /// True: every message has an entry, however many there are.
    pub(crate) rows: bool,
    /// True: switches pause instead of dropping packets (PFC).
    pub(crate) pauses: bool,
    /// By how much the jobs are smaller than written.
    pub(crate) reduction: Reduction,
    /// The profile of connections without their own profile.
    pub(crate) profile: &'a Arc<Profile>,
}

/// Makes the traffic of one workload.
pub(super) struct Maker<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) workload: &'a Head,
    pub(super) traffic: &'a mut Traffic,
    pub(super) class: u16,
    pub(super) profile: u16,
    pub(super) random: Random,
    /// The connections of each pair so far.
    pub(super) pairs: Vec<Range<u32>>,
    /// The hosts of all ranks of a collective.
    pub(super) placed: Vec<HostId>,
    pub(super) full: bool,
}

impl Maker<'_> {
    pub(super) fn complain(
        &self,
        key: &str,
        value: impl std::fmt::Display,
        what: impl std::fmt::Display,
        remedy: impl std::fmt::Display,
    ) {
        self.context.sink.add(&format!("{}.{key}", self.workload.section), value, what, remedy);
    }

    /// Checks that this many more flows fit. Reports a problem once if not.
    pub(super) fn room(&mut self, flows: u64) -> bool {
        if self.traffic.flows.len() as u64 + flows <= FLOWS_MAX {
            return true;
        }
        if !self.full {
            self.full = true;
            let what = format!("makes more than {FLOWS_MAX} flows");
            self.context.sink.add(
                &self.workload.section,
                "",
                what,
                "lower hosts, ranks, messages, connections, load or duration",
            );
        }
        false
    }

    /// Opens the connections of one pair.
    pub(super) fn open(&mut self, source: u32, destination: u32) -> Range<u32> {
        let first = self.traffic.connections.len() as u32;
        for _ in 0..self.workload.common.connections {
            self.traffic.connections.push(ConnectionPlan {
                source: HostId(source),
                destination: HostId(destination),
                profile: self.profile,
            });
        }
        let pair = first..self.traffic.connections.len() as u32;
        if self.workload.reads {
            let requests = pair.clone().map(|connection| {
                let ConnectionPlan { source, destination, profile } = self.traffic.connections[connection as usize];
                ConnectionPlan { source: destination, destination: source, profile }
            });
            let requests: Vec<ConnectionPlan> = requests.collect();
            self.traffic.connections.extend(requests);
        }
        if self.workload.ordered.is_some() {
            self.pairs.push(pair.clone());
        }
        pair
    }

    /// Posts one message, striped over these connections.
    pub(super) fn post(&mut self, over: Range<u32>, bytes: Bytes, start: Start, id: Option<u32>) -> usize {
        if self.workload.reads {
            return self.post_read(over, bytes, start, id);
        }
        let pieces = u64::from(over.end - over.start).min(bytes.0.max(1));
        let first = self.traffic.flows.len() as u32;
        for (i, connection) in (0..pieces).zip(over) {
            let part = bytes.0 / pieces + u64::from(i < bytes.0 % pieces);
            self.traffic.flows.push(FlowPlan { connection, bytes: part, start, on_sent: None, on_received: None });
        }
        let message = Message { first, pieces: pieces as u32, class: self.class, id, bytes: bytes.0 };
        self.traffic.messages.push(message);
        self.traffic.messages.len() - 1
    }

    /// Posts one message that its receiver reads: a request for each piece, and the pieces as answers.
    fn post_read(&mut self, over: Range<u32>, bytes: Bytes, start: Start, id: Option<u32>) -> usize {
        let pieces = u64::from(over.end - over.start).min(bytes.0.max(1)) as u32;
        let first = self.traffic.flows.len() as u32;
        for (i, connection) in (0..pieces).zip(over.clone()) {
            let part = bytes.0 / u64::from(pieces) + u64::from(u64::from(i) < bytes.0 % u64::from(pieces));
            let start = Start::Asked(first + pieces + i);
            self.traffic.flows.push(FlowPlan { connection, bytes: part, start, on_sent: None, on_received: None });
        }
        for connection in over.take(pieces as usize) {
            // Requests travel the other way, over connections of their own. Each follows the connection of its answers.
            let connection = connection + self.workload.common.connections;
            let bytes = REQUEST_BYTES;
            self.traffic.flows.push(FlowPlan { connection, bytes, start, on_sent: None, on_received: None });
        }
        self.traffic.messages.push(Message { first, pieces, class: self.class, id, bytes: bytes.0 });
        self.traffic.messages.len() - 1
    }

    pub(super) fn moment(&mut self, start: Span) -> Time {
        let jitter = self.workload.common.jitter;
        let offset = if jitter == Span::ZERO { 0 } else { (self.random.unit() * jitter.0 as f64) as u64 };
        Time(start.0 + offset)
    }

    /// Refuses a workload that needs the tiers of a Clos, if the fabric is a graph.
    pub(super) fn is_refused_on_graph(&self, what: &str) -> bool {
        let refused = self.context.topology.graph().is_some();
        if refused {
            let said =
                format!("{what} needs a leaf-spine fabric, a fat tree, planes or sites, and this fabric is a graph");
            self.complain("algorithm", "", said, "choose an algorithm of messages, such as \"ring\"");
        }
        refused
    }
}

impl Traffic {
    /// The index of the class with this name; adds it if it is new.
    pub(crate) fn class(&mut self, name: &str) -> u16 {
        let class = self.classes.iter().position(|c| c == name).unwrap_or_else(|| {
            self.classes.push(name.to_string());
            self.classes.len() - 1
        });
        class as u16
    }

    /// Adds an operation, and returns its index.
    pub(crate) fn add(&mut self, mut operation: Operation) -> usize {
        let place = self.operations.len();
        if let Operation::Messages(group) = &mut operation {
            group.number = place as u32;
        }
        self.operations.push(operation);
        place
    }

    /// Adds a job.
    pub(crate) fn add_job(&mut self, plan: JobPlan, job: ScriptedJob) {
        let operation = self.add(Operation::Job(Box::new(job)));
        self.jobs.push(JobPlan { operation, ..plan });
    }

    /// How long the busiest NIC is busy without any waiting (`None` if that is too long for a run), and when the last
    /// flow with a start time starts.
    pub(crate) fn ideal(&self, hosts: u32, rate: Rate) -> (Option<Span>, Time) {
        let mut bytes = vec![[0u64; 2]; hosts as usize];
        let mut last = Time::ZERO;
        let mut add = |host: HostId, way: usize, more: u64| {
            let sum = &mut bytes[host.0 as usize][way];
            *sum = sum.saturating_add(more);
        };
        for flow in &self.flows {
            let connection = &self.connections[flow.connection as usize];
            add(connection.source, 0, flow.bytes);
            add(connection.destination, 1, flow.bytes);
            if let Start::At(at) = flow.start {
                last = last.max(at);
            }
        }
        for operation in &self.operations {
            last = last.max(latest(operation.starts()));
            match operation {
                // Flows of the plan are counted above.
                Operation::Messages(group) if group.first_message as usize >= self.flows.len() => {
                    add_bytes(group.plans(), |rank, ways| (0..2).for_each(|way| add(group.host(rank), way, ways[way])));
                }
                Operation::PointToPoint(pipe) => {
                    let all = operation.bytes().unwrap_or(0);
                    pipe.ends.into_iter().zip(0..).for_each(|(host, way)| add(host, way, all));
                }
                Operation::Multicast(multicast) => {
                    multicast.ranks.hosts().iter().for_each(|&host| add(host, 1, multicast.layout.bytes()));
                }
                Operation::Messages(_) | Operation::Job(_) | Operation::InNetwork(_) => {}
            }
        }
        let most = bytes.iter().flatten().copied().max().unwrap_or(0);
        (fits(rate, Bytes(most)), last)
    }
}

/// The latest of these times, ignoring those that only a script knows.
fn latest(starts: &[Time]) -> Time {
    starts.iter().copied().filter(|&start| start != Time::NEVER).max().unwrap_or_default()
}

/// The time of this many bytes at this rate; `None` if it is too long for a run. The clock counts 213 days, and a run
/// may take a hundred times its lower bound.
pub(super) fn fits(rate: Rate, bytes: Bytes) -> Option<Span> {
    let time = u128::from(bytes.0) * 8_000_000_000_000 / u128::from(rate.0.max(1));
    (time < u128::from(u64::MAX / 100)).then(|| rate.time_for(bytes))
}

//! A scenario that has been checked: the simulator's plan, and further facts for reports.

mod hops;

use crate::expect::Bound;
use crate::fabric::Derived;
use crate::faults::FaultNote;
use crate::ideal_fct::Alone;
use crate::plans::CollectivePlan;
use crate::plans::JobPlan;
use crate::plans::Message;
use crate::plans::ServicePlan;
use crate::run::{self, CaptureLayout};
use std::ops::Range;
use std::sync::Arc;
use strandway_collective::{Group, InNetwork, Operation, Programs, ScriptedJob};
use strandway_fabric::plan::Start;
use strandway_fabric::tally::Tally;
use strandway_fabric::{Measurements, Plan};
use strandway_proto::units::{Span, Time};
use strandway_proto::{HostId, Profile};
use strandway_report::Origin;
use strandway_serving::plan::Class;
use strandway_switch::Aggregation;

/// A checked scenario: the simulator's plan, and further facts for reports.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The scenario's name.
    pub name: String,
    /// The scenario's description, if it has one.
    pub description: String,
    /// The plan for the simulator.
    pub plan: Plan,
    /// True if the scenario has no `run.time_limit`: then the plan's follows from the workload, and runs between real
    /// nodes, which share their machine with other programs, may last longer.
    pub default_time_limit: bool,
    /// The kind of fabric as written.
    pub fabric: String,
    /// Numbers computed from fabric and profile.
    pub derived: Derived,
    /// The workload's messages; reports call them flows.
    pub messages: Vec<Message>,
    /// Names of the classes of flows.
    pub classes: Vec<String>,
    /// All operations of the run. Programs, tallies and reports name them by their index.
    pub operations: Vec<Operation>,
    /// The facts for reports about the workload's collectives.
    pub collectives: Vec<CollectivePlan>,
    /// The facts for reports about the workload's training jobs that have scripts.
    pub jobs: Vec<JobPlan>,
    /// The workload's jobs whose gradients switches add, for the programs of switches.
    pub aggregation: Option<Aggregation>,
    /// The services.
    pub services: Vec<ServicePlan>,
    /// The bounds that the result must meet.
    pub expect: Vec<Bound>,
    /// The faults, in words.
    pub faults: Vec<FaultNote>,
    /// The names of the plan's triggers: their numbers in the matrix, or empty for triggers of other workloads.
    pub trigger_names: Vec<String>,
    /// Remarks that a reader of results needs beyond the scenario's text.
    pub notes: Vec<String>,
    /// The file of the scenario, and its text after all changes.
    pub origin: Origin,
    /// The scenario asks for a row of every message and request (`run.rows`).
    pub rows_wanted: bool,
    /// How long the busiest NIC would be busy without any waiting, from the run's start.
    pub ideal: Span,
    /// Each job is to run alone, too: what it is slowed down by is wanted.
    pub alone: bool,
    /// The run is to be repeated without the scenario's `[[faults]]`: what they cost is wanted.
    pub healthy: bool,
    /// The number of fault plans that come from `[[faults]]`; the others belong to the fabric.
    pub(crate) own_faults: usize,
    /// The settings of series and captures.
    pub recording: Recording,
}

/// How much of a run is recorded, once it is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// The interval of a series with about 200 points.
    pub(crate) auto_sample: Span,
    /// The scenario has its own interval.
    pub(crate) sampled: bool,
    /// Packets in a capture file at most.
    pub(crate) capture_limit: usize,
    /// The bytes of packets in a capture file.
    pub capture_layout: CaptureLayout,
}

impl Experiment {
    /// The profile of the run; single workloads may use another.
    pub fn profile(&self) -> &Profile {
        &self.plan.profiles[0]
    }

    /// This experiment with one of its jobs, and nothing beside it. Everything keeps its place and its numbers.
    pub fn only_job(&self, job: usize) -> Experiment {
        let mut only = self.clone();
        only.plan.flows.iter_mut().for_each(|flow| flow.start = Start::Program);
        let others = only.operations.iter_mut().enumerate().filter(|(place, _)| *place != self.jobs[job].operation);
        others.for_each(|(_, operation)| operation.starts_mut().fill(Time::NEVER));
        only.services.clear();
        only.plan.sample_every = None;
        only.plan.capture = None;
        only
    }

    /// This experiment without the scenario's `[[faults]]`; `None` if it has none.
    pub fn without_faults(&self) -> Option<Experiment> {
        let mut whole = self.clone();
        whole.plan.faults.drain(..self.own_faults);
        whole.plan.sample_every = None;
        whole.plan.capture = None;
        (self.own_faults > 0).then_some(whole)
    }

    /// Records time series with about 200 points, unless the scenario sets its own interval.
    pub fn with_series(&mut self) {
        if !self.recording.sampled {
            self.plan.sample_every = Some(self.recording.auto_sample);
        }
    }

    /// Records packets at the place that the scenario names, or at the first host.
    pub fn with_capture(&mut self) {
        if self.plan.capture.is_none() {
            self.plan.capture = run::capture("host0", self.recording.capture_limit, &self.plan.topology).ok();
        }
    }

    /// The profile of a message's connections.
    pub fn profile_of(&self, message: &Message) -> &Profile {
        &self.plan.profiles[self.profile_index(message)]
    }

    /// The place of the profile of a message's connections in the plan.
    pub fn profile_index(&self, message: &Message) -> usize {
        let flow = &self.plan.flows[message.first as usize];
        usize::from(self.plan.connections[flow.connection as usize].profile)
    }

    /// For each profile of the plan: the times of messages alone in the fabric.
    pub fn ideal_fcts(&self) -> Vec<Alone<'_>> {
        let alone = |p: &Arc<Profile>| {
            let alone = Alone::new(p, &self.plan.topology, self.derived.rate);
            alone.with_message_cost(self.plan.ports.message_cost)
        };
        self.plan.profiles.iter().map(alone).collect()
    }

    /// The sender and the receiver of a message.
    pub fn ends(&self, message: &Message) -> (HostId, HostId) {
        let flow = &self.plan.flows[message.first as usize];
        let connection = &self.plan.connections[flow.connection as usize];
        (connection.source, connection.destination)
    }

    /// The name of a message in reports: `host0->host13`, after its id if it comes from an imported matrix.
    pub fn message_name(&self, message: &Message) -> String {
        let (from, to) = self.ends(message);
        match message.id {
            Some(id) => format!("{id}: host{}->host{}", from.0, to.0),
            None => format!("host{}->host{}", from.0, to.0),
        }
    }

    /// The messages with this name: a pair such as `host0->host13` or `0->13`, or an id of an imported matrix.
    pub fn message_named(&self, name: &str) -> Option<Vec<usize>> {
        let short = name.replace("host", "");
        let found: Vec<usize> = self
            .messages
            .iter()
            .enumerate()
            .filter(|(_, m)| {
                let (from, to) = self.ends(m);
                m.id.is_some_and(|id| id.to_string() == name) || short == format!("{}->{}", from.0, to.0)
            })
            .map(|(i, _)| i)
            .collect();
        (!found.is_empty()).then_some(found)
    }

    /// The operation of a collective; the job that runs it, if it is a collective on servers. `None` if flows of the plan
    /// perform it.
    pub fn operation_of(&self, plan: &CollectivePlan) -> Option<&Operation> {
        plan.operation.map(|place| &self.operations[place])
    }

    /// The job for the run that a report's facts belong to.
    ///
    /// # Panics
    /// If the facts are those of another experiment.
    pub fn script_of(&self, plan: &JobPlan) -> &ScriptedJob {
        self.operations[plan.operation].job().unwrap_or_else(|| panic!("{} is no job of this experiment", plan.name))
    }

    /// The job that switches perform, with its sizes.
    pub fn aggregated(&self, operation: &InNetwork) -> Option<&Arc<strandway_switch::Plan>> {
        self.aggregation.as_ref()?.plans.get(usize::from(operation.number).checked_sub(1)?)
    }

    /// Number of messages of a collective; for multicast and for aggregation in switches, its number of ranks.
    pub fn messages_of(&self, plan: &CollectivePlan) -> u64 {
        match self.operation_of(plan) {
            Some(Operation::Job(_)) => self.rails(plan).map(|rail| self.messages_of(rail)).sum(),
            Some(operation) if plan.tallied => operation.messages(),
            _ => plan.messages.len() as u64,
        }
    }

    /// The collectives between servers of one group of a collective on servers: one per rail.
    pub fn rails(&self, plan: &CollectivePlan) -> impl Iterator<Item = &CollectivePlan> {
        let job = self.jobs.iter().find(|job| Some(job.operation) == plan.operation);
        let all = job.and_then(|job| job.operations.first()).map_or(&[][..], |(_, places)| places);
        let groups = job.map_or(0, |job| self.script_of(job).hosts.len() / job.groups_of.max(1) as usize);
        let each = all.len() / groups.max(1);
        let first = plan.group.unwrap_or(0) as usize * each;
        all.iter().skip(first).take(each).map(|&place| &self.collectives[place])
    }

    /// The counts of a collective without entries.
    pub fn tally_of<'m>(&self, plan: &CollectivePlan, measured: &'m Measurements) -> Option<&'m Tally> {
        measured.tallies.get(plan.operation.filter(|_| plan.tallied)?)
    }

    /// The programs of all hosts.
    pub fn programs(&self) -> Programs<'_> {
        Programs::new(&self.plan, &self.operations)
    }

    /// The message numbers of each class of each service's messages, and the service's profile.
    pub fn service_numbers(&self) -> Vec<(Range<u32>, u16)> {
        let of = |plan: &ServicePlan| {
            let service = &plan.service;
            Class::ALL.map(|(class, _)| (service.numbers(class), service.profile))
        };
        self.services.iter().flat_map(of).collect()
    }

    /// The counts of a class of a service's messages.
    pub fn service_tally<'m>(&self, service: usize, class: Class, measured: &'m Measurements) -> Option<&'m Tally> {
        let before = self.operations.len();
        measured.tallies.get(before + service * Class::COUNT as usize + class as usize)
    }

    /// The collective that a flow of the plan belongs to.
    pub fn group_of(&self, flow: u32) -> Option<&Group> {
        self.operations.iter().filter_map(Operation::group).find(|group| group.numbers().contains(&flow))
    }

    /// The connection of the first message with this name. If the message is striped over several connections, the
    /// first of them.
    pub fn connection_of(&self, name: &str) -> Option<u32> {
        let message = *self.message_named(name)?.first()?;
        Some(self.plan.flows[self.messages[message].first as usize].connection)
    }

    /// The time at which a message is posted, if it is fixed.
    pub fn start_of(&self, message: &Message) -> Option<Time> {
        match self.plan.flows[message.first as usize].start {
            Start::At(at) => Some(at),
            Start::Asked(request) => match self.plan.flows[request as usize].start {
                Start::At(at) => Some(at),
                _ => None,
            },
            Start::On(..) | Start::Program => None,
        }
    }
}

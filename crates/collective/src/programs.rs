//! The programs of a run: which program runs at each host.

use crate::collective_rank::CollectiveRank;
use crate::flows::{FlowTable, Flows};
use crate::group::Group;
use crate::multicast::{Multicast, MulticastRank};
use crate::schedule::Rank;
use crate::script::{Operation, ScriptedJob};
use crate::server::IntraServer;
use crate::training_rank::{OperationMaker, Operations, TrainingRank};
use crate::transfer::{Pipe, Transfer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use strandway_fabric::{NodeId, Plan};
use strandway_proto::aggregate::Counts;
use strandway_proto::application::{Action, Application, Event};
use strandway_proto::program::Program;
use strandway_proto::{HostId, MessageId, RankTimes, Time};

/// The program of a host. Built-in programs are called by a `match`, not through a pointer.
pub enum AnyApplication<'a> {
    /// The plan's flows.
    Flows(Flows<'a>),
    /// A rank of a collective.
    Collective(Box<CollectiveRank<'a>>),
    /// A rank of a multicast operation.
    Multicast(Box<MulticastRank<'a>>),
    /// A rank of a training job.
    Training(Box<TrainingRank<'a>>),
    /// One end of a message of a job.
    Transfer(Transfer<'a>),
    /// A rank of an operation inside a server.
    IntraServer(Box<IntraServer<'a>>),
    /// Composite programs on one host. The event of a message goes to the program that owns the message; every other
    /// event goes to all programs.
    Composite(Composite<'a>),
    /// A program that the caller supplies.
    Custom(Box<dyn Application + 'a>),
}

impl fmt::Debug for AnyApplication<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyApplication::Flows(flows) => flows.fmt(f),
            AnyApplication::Collective(member) => member.fmt(f),
            AnyApplication::Multicast(rank) => rank.fmt(f),
            AnyApplication::Training(actor) => actor.fmt(f),
            AnyApplication::Transfer(transfer) => transfer.fmt(f),
            AnyApplication::IntraServer(inside) => inside.fmt(f),
            AnyApplication::Composite(several) => several.fmt(f),
            AnyApplication::Custom(_) => f.write_str("Custom"),
        }
    }
}

/// Calls the same method on any variant.
macro_rules! each {
    ($any:expr, $program:ident => $call:expr) => {
        match $any {
            AnyApplication::Flows($program) => $call,
            AnyApplication::Collective($program) => $call,
            AnyApplication::Multicast($program) => $call,
            AnyApplication::Training($program) => $call,
            AnyApplication::Transfer($program) => $call,
            AnyApplication::IntraServer($program) => $call,
            AnyApplication::Composite($program) => $call,
            AnyApplication::Custom($program) => $call,
        }
    };
}

impl Application for AnyApplication<'_> {
    fn handle_event(&mut self, now: Time, event: &Event) {
        each!(self, program => program.handle_event(now, event))
    }

    fn handle_timeout(&mut self, now: Time) {
        each!(self, program => program.handle_timeout(now))
    }

    fn poll_action(&mut self, now: Time) -> Option<Action> {
        each!(self, program => program.poll_action(now))
    }

    fn poll_timeout(&self) -> Time {
        each!(self, program => program.poll_timeout())
    }

    fn owns(&self, message: MessageId) -> bool {
        each!(self, program => program.owns(message))
    }

    fn count(&self, now: Time, into: &mut BTreeMap<u16, Counts>) {
        each!(self, program => program.count(now, into));
    }

    fn begin(&mut self, now: Time) {
        each!(self, program => program.begin(now))
    }

    fn is_complete(&self) -> bool {
        each!(self, program => program.is_complete())
    }

    fn append_times(&self, now: Time, into: &mut Vec<RankTimes>) {
        each!(self, program => program.append_times(now, into));
    }

    fn is_done(&self) -> bool {
        each!(self, program => program.is_done())
    }
}

/// Composite programs on one host.
#[derive(Debug)]
pub struct Composite<'a>(Vec<AnyApplication<'a>>);

impl Application for Composite<'_> {
    fn handle_event(&mut self, now: Time, event: &Event) {
        match event {
            Event::Sent { message } | Event::Received { message, .. } => {
                if let Some(owner) = self.0.iter_mut().find(|program| program.owns(*message)) {
                    owner.handle_event(now, event);
                }
            }
            _ => self.0.iter_mut().for_each(|program| program.handle_event(now, event)),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        // One program per call: the first one whose timer has expired.
        if let Some(program) = self.0.iter_mut().find(|program| program.poll_timeout() <= now) {
            program.handle_timeout(now);
        }
    }

    fn poll_action(&mut self, now: Time) -> Option<Action> {
        self.0.iter_mut().find_map(|program| program.poll_action(now))
    }

    fn poll_timeout(&self) -> Time {
        self.0.iter().map(Application::poll_timeout).min().unwrap_or(Time::NEVER)
    }

    fn owns(&self, message: MessageId) -> bool {
        self.0.iter().any(|program| program.owns(message))
    }

    fn count(&self, now: Time, into: &mut BTreeMap<u16, Counts>) {
        self.0.iter().for_each(|program| program.count(now, into));
    }

    fn append_times(&self, now: Time, into: &mut Vec<RankTimes>) {
        self.0.iter().for_each(|program| program.append_times(now, into));
    }

    fn is_done(&self) -> bool {
        self.0.iter().all(Application::is_done)
    }
}

/// All programs of a run.
pub struct Programs<'a> {
    flows: FlowTable<'a>,
    operations: Operations<'a>,
    /// The ranks that no job begins, host by host in the order in which they act at one instant: the kind of operation,
    /// its index in its list, and the rank.
    ranks: Vec<(HostId, Kind, u32, u32)>,
    /// The message numbers of each collective, and all first numbers in order, with the collective.
    numbers: Vec<Range<u32>>,
    by_number: Vec<(u32, u32)>,
    make: Option<&'a Maker<'a>>,
    /// Do custom programs signal each other?
    custom_signals: bool,
    switches: Option<&'a SwitchMaker<'a>>,
}

/// The kinds of operations, in the order in which their ranks act if they share a host and an instant. The order is
/// part of the results.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Computed,
    Multicast,
    Job,
    Tabled,
}

/// Makes a custom program for a host; `None` for a host without one.
pub type Maker<'a> = dyn Fn(HostId) -> Option<Box<dyn Application>> + Sync + 'a;

/// Makes a program for a switch; `None` for a switch without one.
pub type SwitchMaker<'a> = dyn Fn(NodeId) -> Option<Box<dyn Program>> + Sync + 'a;

impl<'a> Programs<'a> {
    /// Programs for a plan's flows and for operations. The message numbers of all must not overlap. Jobs begin the
    /// operations that their scripts name.
    pub fn new(plan: &'a Plan, operations: Operations<'a>) -> Programs<'a> {
        let Operations { groups, multicasts, jobs, pipes, .. } = operations;
        let named = || jobs.iter().flat_map(|job| job.operations.iter().flatten());
        let by_jobs: BTreeSet<u32> = named().filter_map(|operation| Some(operation.group()?.0)).collect();
        let cast_by_jobs: BTreeSet<u32> = named().filter_map(Operation::multicast).collect();
        let mut ranks = Vec::new();
        let mut add = |kind: Kind, number: u32, hosts: &[HostId]| {
            ranks.extend((0..).zip(hosts).map(|(rank, &host)| (host, kind, number, rank)));
        };
        for (number, group) in (0..).zip(groups).filter(|(number, _)| !by_jobs.contains(number)) {
            let kind = if group.schedule().is_some() { Kind::Computed } else { Kind::Tabled };
            add(kind, number, &group.hosts);
        }
        for (number, multicast) in (0..).zip(multicasts).filter(|(number, _)| !cast_by_jobs.contains(number)) {
            add(Kind::Multicast, number, multicast.ranks.hosts());
        }
        (0..).zip(jobs).for_each(|(number, job)| add(Kind::Job, number, &job.hosts));
        ranks.sort_unstable();
        let mut programs = Programs {
            flows: FlowTable::new(plan),
            operations,
            ranks,
            numbers: Vec::new(),
            by_number: Vec::new(),
            make: None,
            custom_signals: false,
            switches: None,
        };
        let numbers = groups.iter().map(Group::numbers).chain(multicasts.iter().map(Multicast::messages));
        let numbers = numbers.chain(jobs.iter().map(ScriptedJob::messages)).chain(pipes.iter().map(Pipe::numbers));
        programs.tally_parts(numbers);
        programs
    }

    /// Adds a maker for operations of training jobs that use neither unicast messages nor multicast.
    pub fn with_operations(mut self, make: &'a OperationMaker<'a>) -> Programs<'a> {
        self.operations.make = Some(make);
        self
    }

    /// Messages with these numbers are counted as further collectives, after all existing ones.
    fn tally_parts(&mut self, parts: impl IntoIterator<Item = Range<u32>>) {
        self.numbers.extend(parts);
        self.by_number = self.numbers.iter().map(|numbers| numbers.start).zip(0..).collect();
        self.by_number.sort_unstable();
    }

    /// Adds a custom program at every host for which `make` returns one. It runs beside the programs of the plan and of
    /// the collectives.
    pub fn with(mut self, make: &'a Maker<'a>) -> Programs<'a> {
        self.make = Some(make);
        self
    }

    /// As [`Programs::with`], for programs that signal each other with the order [`Programs::custom_order`].
    pub fn with_signals(self, make: &'a Maker<'a>) -> Programs<'a> {
        Programs { custom_signals: true, ..self.with(make) }
    }

    /// The order of the signals of custom programs. Programs of the plan, of collectives and of jobs ignore signals of
    /// this order with the word `u32::MAX`.
    pub fn custom_order(plan: &Plan) -> u32 {
        FlowTable::orders(plan) - 1
    }

    /// The lowest message number above those of the plan, of collectives and of jobs.
    pub fn first_free_number(&self, plan: &Plan) -> u32 {
        let ends = self.numbers.iter().map(|numbers| numbers.end);
        ends.chain([plan.flows.len() as u32]).max().unwrap_or(0)
    }

    /// Adds a program at every switch for which `make` returns one. `parts` holds the message numbers of collectives
    /// that custom programs at hosts execute with these switches; they must not overlap with other numbers, and are
    /// counted as further collectives.
    pub fn with_switches(mut self, make: &'a SwitchMaker<'a>, parts: Vec<Range<u32>>) -> Programs<'a> {
        self.switches = Some(make);
        self.tally_parts(parts);
        self
    }

    /// True if switches run programs.
    pub fn has_switches(&self) -> bool {
        self.switches.is_some()
    }

    /// The program of one switch in its initial state.
    pub fn switch_at(&self, switch: NodeId) -> Option<Box<dyn Program>> {
        self.switches.and_then(|make| make(switch))
    }

    /// The program of one host in its initial state.
    pub fn at(&self, host: HostId) -> AnyApplication<'_> {
        let own = self.make.and_then(|make| make(host)).map(AnyApplication::Custom);
        let flows = AnyApplication::Flows(Flows::new(&self.flows, host));
        let Operations { groups, multicasts, jobs, .. } = self.operations;
        let here = self.ranks[self.ranks.partition_point(|rank| rank.0 < host)..].iter().take_while(|r| r.0 == host);
        let program = |&(_, kind, number, rank): &(HostId, Kind, u32, u32)| match kind {
            Kind::Computed | Kind::Tabled => {
                AnyApplication::Collective(Box::new(CollectiveRank::new(&groups[number as usize], Rank(rank))))
            }
            Kind::Multicast => {
                AnyApplication::Multicast(Box::new(MulticastRank::new(&multicasts[number as usize], rank)))
            }
            Kind::Job => {
                AnyApplication::Training(Box::new(TrainingRank::new(&jobs[number as usize], rank, self.operations)))
            }
        };
        let mut all: Vec<AnyApplication<'_>> = own.into_iter().chain(here.map(program)).collect();
        match all.pop() {
            None => flows,
            Some(only) if all.is_empty() && self.flows.starts_nothing_at(host) => only,
            Some(last) => AnyApplication::Composite(Composite(all.into_iter().chain([last, flows]).collect())),
        }
    }

    /// The number of collectives. They are counted in this order: unicast collectives, multicast operations, training
    /// jobs, messages between ranks of jobs, collectives executed by switches.
    pub fn groups(&self) -> usize {
        self.numbers.len()
    }

    /// The collective that a message belongs to.
    pub fn group_of(&self, message: u32) -> Option<usize> {
        let behind = self.by_number.partition_point(|&(first, _)| first <= message);
        let (_, group) = *self.by_number.get(behind.checked_sub(1)?)?;
        self.numbers[group as usize].contains(&message).then_some(group as usize)
    }

    /// The profile that a message uses.
    pub fn profile_of(&self, message: u32) -> u16 {
        self.group_of(message).and_then(|group| self.operations.groups.get(group)).map_or(0, |group| group.profile)
    }

    /// True if a program at one host ever signals another host.
    pub fn signals(&self) -> bool {
        self.custom_signals || self.flows.signals() || self.operations.jobs.iter().any(|job| !job.locals.is_empty())
    }
}

//! The programs of a run: which program runs at each host.

use crate::collective_rank::CollectiveRank;
use crate::flows::{FlowTable, Flows};
use crate::multicast::MulticastRank;
use crate::operation::Operation;
use crate::schedule::Rank;
use crate::script::RankOperation;
use crate::server::IntraServer;
use crate::training_rank::{OperationMaker, TrainingRank};
use crate::transfer::Transfer;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use strandway_fabric::{NodeId, Plan};
use strandway_proto::aggregate::Counts;
use strandway_proto::application::{Account, Action, Application, Event};
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

    fn note_account(&mut self, message: MessageId, account: &Account<'_>) {
        each!(self, program => program.note_account(message, account))
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

    fn note_account(&mut self, message: MessageId, account: &Account<'_>) {
        if let Some(owner) = self.0.iter_mut().find(|program| program.owns(message)) {
            owner.note_account(message, account);
        }
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
    operations: &'a [Operation],
    /// The ranks that no job begins, host by host in the order in which they act at one instant: the turn of the
    /// operation, its index, and the rank.
    ranks: Vec<(HostId, Turn, u32, u32)>,
    /// By the first message number of each operation, in order: the number behind its last one, and its index.
    numbers: Vec<(u32, u32, u32)>,
    make: Option<&'a Maker<'a>>,
    make_ranks: Option<&'a OperationMaker<'a>>,
    /// Do custom programs signal each other?
    custom_signals: bool,
    switches: Option<&'a SwitchMaker<'a>>,
    /// The profiles of the messages of services, which are counted after those of all operations.
    services: Vec<u16>,
}

/// The order in which ranks act if they share a host and an instant. The order is part of the results.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
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
    pub fn new(plan: &'a Plan, operations: &'a [Operation]) -> Programs<'a> {
        let scripts = operations.iter().filter_map(Operation::job).flat_map(|job| job.operations.iter().flatten());
        let by_jobs: BTreeSet<u32> =
            scripts.filter_map(RankOperation::member).map(|(operation, _)| operation).collect();
        let mut ranks = Vec::new();
        for (number, operation) in (0..).zip(operations).filter(|(number, _)| !by_jobs.contains(number)) {
            let turn = match operation {
                Operation::Messages(group) if group.schedule().is_some() => Turn::Computed,
                Operation::Messages(_) => Turn::Tabled,
                Operation::Multicast(_) => Turn::Multicast,
                Operation::Job(_) => Turn::Job,
                Operation::PointToPoint(_) | Operation::InNetwork(_) => continue,
            };
            ranks.extend((0..).zip(operation.hosts()).map(|(rank, &host)| (host, turn, number, rank)));
        }
        ranks.sort_unstable();
        let numbers = operations.iter().map(Operation::numbers).zip(0..);
        let mut numbers: Vec<_> = numbers.map(|(numbers, operation)| (numbers.start, numbers.end, operation)).collect();
        numbers.sort_unstable();
        Programs {
            flows: FlowTable::new(plan),
            operations,
            ranks,
            numbers,
            make: None,
            make_ranks: None,
            custom_signals: false,
            switches: None,
            services: Vec::new(),
        }
    }

    /// With a maker for the ranks of operations that switches perform and that jobs begin.
    pub fn with_operations(self, make: &'a OperationMaker<'a>) -> Programs<'a> {
        Programs { make_ranks: Some(make), ..self }
    }

    /// With a custom program at every host for which `make` returns one. It runs beside the programs of the plan and of
    /// the operations.
    pub fn with(self, make: &'a Maker<'a>) -> Programs<'a> {
        Programs { make: Some(make), ..self }
    }

    /// As [`Programs::with`], for programs that signal each other with the order [`Programs::custom_order`].
    pub fn with_signals(self, make: &'a Maker<'a>) -> Programs<'a> {
        Programs { custom_signals: true, ..self.with(make) }
    }

    /// With programs of inference services, as [`Programs::with_signals`] does. `parts` holds the message numbers of
    /// each class of their messages and the profile; they must not overlap with other numbers, and are counted after
    /// those of all operations.
    pub fn with_services(self, make: &'a Maker<'a>, parts: Vec<(Range<u32>, u16)>) -> Programs<'a> {
        let mut programs = self.with_signals(make);
        for (numbers, profile) in parts {
            let place = programs.tallies() as u32;
            programs.numbers.push((numbers.start, numbers.end, place));
            programs.services.push(profile);
        }
        programs.numbers.sort_unstable();
        programs
    }

    /// The number of tallies: one for each operation, and one for each class of messages of services.
    pub fn tallies(&self) -> usize {
        self.operations.len() + self.services.len()
    }

    /// The order of the signals of custom programs. Programs of the plan, of collectives and of jobs ignore signals of
    /// this order with the word `u32::MAX`.
    pub fn custom_order(plan: &Plan) -> u32 {
        FlowTable::orders(plan) - 1
    }

    /// The lowest message number above those of the plan, of collectives and of jobs.
    pub fn first_free_number(&self, plan: &Plan) -> u32 {
        let ends = self.numbers.iter().map(|&(_, end, _)| end);
        ends.chain([plan.flows.len() as u32]).max().unwrap_or(0)
    }

    /// With a program at every switch for which `make` returns one.
    pub fn with_switches(self, make: &'a SwitchMaker<'a>) -> Programs<'a> {
        Programs { switches: Some(make), ..self }
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
        let here = self.ranks[self.ranks.partition_point(|rank| rank.0 < host)..].iter().take_while(|r| r.0 == host);
        let program = |&(_, _, number, rank): &(HostId, Turn, u32, u32)| match &self.operations[number as usize] {
            Operation::Messages(group) => {
                Some(AnyApplication::Collective(Box::new(CollectiveRank::new(group, Rank(rank)))))
            }
            Operation::Multicast(multicast) => {
                Some(AnyApplication::Multicast(Box::new(MulticastRank::new(multicast, rank))))
            }
            Operation::Job(job) => {
                let rank = TrainingRank::new(job, rank, self.operations, self.make_ranks);
                Some(AnyApplication::Training(Box::new(rank)))
            }
            Operation::PointToPoint(_) | Operation::InNetwork(_) => None,
        };
        let mut all: Vec<AnyApplication<'_>> = own.into_iter().chain(here.filter_map(program)).collect();
        match all.pop() {
            None => flows,
            Some(only) if all.is_empty() && self.flows.starts_nothing_at(host) => only,
            Some(last) => AnyApplication::Composite(Composite(all.into_iter().chain([last, flows]).collect())),
        }
    }

    /// The operations of the run. Tallies have their order.
    pub fn operations(&self) -> &'a [Operation] {
        self.operations
    }

    /// The index of the operation that a message belongs to.
    pub fn operation_of(&self, message: u32) -> Option<usize> {
        let behind = self.numbers.partition_point(|&(first, ..)| first <= message);
        let &(_, end, operation) = self.numbers.get(behind.checked_sub(1)?)?;
        (message < end).then_some(operation as usize)
    }

    /// The profile that a message uses.
    pub fn profile_of(&self, message: u32) -> u16 {
        self.operation_of(message).map_or(0, |place| match self.operations.get(place) {
            Some(operation) => operation.profile(),
            None => self.services[place - self.operations.len()],
        })
    }

    /// True if a program at one host ever signals another host.
    pub fn signals(&self) -> bool {
        let jobs = || self.operations.iter().filter_map(Operation::job);
        self.custom_signals || self.flows.signals() || jobs().any(|job| !job.locals.is_empty())
    }
}

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
            Event::Failed { .. }
            | Event::Control { .. }
            | Event::Signal { .. }
            | Event::Chunk { .. }
            | Event::Fragment(_)
            | Event::Cast { .. }
            | Event::Ports { .. } => {
                self.0.iter_mut().for_each(|program| program.handle_event(now, event));
            }
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
    groups: &'a [Group],
    multicasts: &'a [Multicast],
    /// Multicast operations: host, index of the operation, and rank at this host.
    multicast_ranks: Vec<(HostId, u32, u32)>,
    /// The collectives with a rank at each host, and that rank, sorted by host; and the index at which each host's
    /// entries begin.
    ranks: Vec<(u32, Rank)>,
    bounds: Vec<u32>,
    /// Training jobs; `actors` has host, index of the job, and rank at this host.
    jobs: &'a [ScriptedJob],
    pipes: &'a [Pipe],
    actors: Vec<(HostId, u32, u32)>,
    make_operation: Option<&'a OperationMaker<'a>>,
    /// The first message of each collective, in order.
    by_number: Vec<(u32, u32)>,
    make: Option<&'a Maker<'a>>,
    switches: Option<&'a SwitchMaker<'a>>,
    /// Message numbers of training jobs and of collectives that custom programs execute: they are not in `groups` or
    /// `multicasts`.
    parts: Vec<Range<u32>>,
}

/// Makes a custom program for a host; `None` for a host without one.
pub type Maker<'a> = dyn Fn(HostId) -> Option<Box<dyn Application>> + Sync + 'a;

/// Makes a program for a switch; `None` for a switch without one.
pub type SwitchMaker<'a> = dyn Fn(NodeId) -> Option<Box<dyn Program>> + Sync + 'a;

impl<'a> Programs<'a> {
    /// Programs for a plan's flows and for collectives. The message numbers of both must not overlap.
    pub fn new(plan: &'a Plan, groups: &'a [Group]) -> Programs<'a> {
        let mut ranks: Vec<(HostId, u32, Rank)> = Vec::new();
        for (group, number) in groups.iter().zip(0..) {
            ranks.extend(group.hosts.iter().zip(0..).map(|(&host, rank)| (host, number, Rank(rank))));
        }
        ranks.sort_by_key(|&(host, number, _)| (host, number));
        let bound = |host: u32| ranks.partition_point(|r| r.0.0 < host) as u32;
        let bounds = (0..=plan.topology.hosts()).map(bound).collect();
        let ranks = ranks.into_iter().map(|(_, number, rank)| (number, rank)).collect();
        let mut by_number: Vec<(u32, u32)> = groups.iter().map(|g| g.first_message).zip(0..).collect();
        by_number.sort_unstable();
        let (multicasts, multicast_ranks) = (&[][..], Vec::new());
        Programs {
            flows: FlowTable::new(plan),
            groups,
            multicasts,
            multicast_ranks,
            jobs: &[],
            pipes: &[],
            actors: Vec::new(),
            make_operation: None,
            ranks,
            bounds,
            by_number,
            make: None,
            switches: None,
            parts: Vec::new(),
        }
    }

    /// Adds the ranks of multicast operations. Their message numbers must not overlap with others.
    pub fn with_multicasts(mut self, multicasts: &'a [Multicast]) -> Programs<'a> {
        self.multicasts = multicasts;
        for (multicast, number) in multicasts.iter().zip(0..) {
            let ranks = multicast.ranks.hosts().iter().zip(0..);
            self.multicast_ranks.extend(ranks.map(|(&host, rank)| (host, number, rank)));
        }
        self.multicast_ranks.sort_unstable();
        let first = self.groups.len() as u32;
        self.by_number.extend(multicasts.iter().map(|multicast| multicast.first_message).zip(first..));
        self.by_number.sort_unstable();
        self
    }

    /// Adds the ranks of training jobs, which begin the collectives that their scripts name. Call it after
    /// [`Programs::with_multicasts`]. `pipes` are the messages that ranks send each other.
    pub fn with_jobs(mut self, jobs: &'a [ScriptedJob], pipes: &'a [Pipe]) -> Programs<'a> {
        self.jobs = jobs;
        self.pipes = pipes;
        for (job, number) in jobs.iter().zip(0..) {
            self.actors.extend(job.hosts.iter().zip(0..).map(|(&host, rank)| (host, number, rank)));
        }
        self.actors.sort_unstable();
        let named = || jobs.iter().flat_map(|job| job.operations.iter().flatten());
        let of_messages = |operation: &Operation| operation.group().map(|(group, _)| group);
        let of_multicast = |operation: &Operation| match *operation {
            Operation::Multicast { multicast, .. } => Some(multicast),
            _ => None,
        };
        let groups: BTreeSet<u32> = named().filter_map(of_messages).collect();
        let multicasts: BTreeSet<u32> = named().filter_map(of_multicast).collect();
        let (mut ranks, mut bounds) = (Vec::new(), vec![0]);
        for host in self.bounds.windows(2) {
            let here = &self.ranks[host[0] as usize..host[1] as usize];
            ranks.extend(here.iter().filter(|(group, _)| !groups.contains(group)));
            bounds.push(ranks.len() as u32);
        }
        (self.ranks, self.bounds) = (ranks, bounds);
        self.multicast_ranks.retain(|(_, multicast, _)| !multicasts.contains(multicast));
        self.tally_parts(jobs.iter().map(ScriptedJob::messages).collect());
        self.tally_parts(pipes.iter().map(Pipe::numbers).collect());
        self
    }

    /// Adds a maker for operations of training jobs that use neither unicast messages nor multicast.
    pub fn with_operations(mut self, make: &'a OperationMaker<'a>) -> Programs<'a> {
        self.make_operation = Some(make);
        self
    }

    /// Messages with these numbers are counted as further collectives, after all existing ones.
    fn tally_parts(&mut self, parts: Vec<Range<u32>>) {
        let first = self.groups() as u32;
        self.by_number.extend(parts.iter().map(|part| part.start).zip(first..));
        self.by_number.sort_unstable();
        self.parts.extend(parts);
    }

    /// Adds a custom program at every host for which `make` returns one. It runs beside the programs of the plan and of
    /// the collectives.
    pub fn with(mut self, make: &'a Maker<'a>) -> Programs<'a> {
        self.make = Some(make);
        self
    }

    /// Adds a program at every switch for which `make` returns one. `parts` holds the message numbers of collectives
    /// that custom programs at hosts execute with these switches; they must not overlap with other numbers, and are
    /// counted as further collectives. Call it last.
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
        let ranks = self.bounds[host.0 as usize] as usize..self.bounds[host.0 as usize + 1] as usize;
        let member = |&(group, rank): &(u32, Rank)| {
            AnyApplication::Collective(Box::new(CollectiveRank::new(&self.groups[group as usize], rank)))
        };
        // Of programs that act at the same time the first one acts first, so their order is part of the results.
        let (computed, tabled): (Vec<_>, Vec<_>) =
            self.ranks[ranks].iter().partition(|(group, _)| self.groups[*group as usize].schedule().is_some());
        let (computed, tabled) = (computed.into_iter().map(member), tabled.into_iter().map(member));
        let multicast_ranks = &self.multicast_ranks[self.multicast_ranks.partition_point(|rank| rank.0 < host)..];
        let multicast_ranks = multicast_ranks.iter().take_while(|rank| rank.0 == host).map(|&(_, number, rank)| {
            AnyApplication::Multicast(Box::new(MulticastRank::new(&self.multicasts[number as usize], rank)))
        });
        let actors = &self.actors[self.actors.partition_point(|actor| actor.0 < host)..];
        let all = Operations {
            groups: self.groups,
            multicasts: self.multicasts,
            pipes: self.pipes,
            make: self.make_operation,
        };
        let actors = actors.iter().take_while(|actor| actor.0 == host).map(|&(_, number, rank)| {
            AnyApplication::Training(Box::new(TrainingRank::new(&self.jobs[number as usize], rank, all)))
        });
        let mut all: Vec<AnyApplication<'_>> =
            own.into_iter().chain(computed).chain(multicast_ranks).chain(actors).chain(tabled).collect();
        match all.pop() {
            None => flows,
            Some(only) if all.is_empty() && self.flows.starts_nothing_at(host) => only,
            Some(last) => AnyApplication::Composite(Composite(all.into_iter().chain([last, flows]).collect())),
        }
    }

    /// The number of collectives. They are counted in this order: unicast collectives, multicast operations, training
    /// jobs, messages between ranks of jobs, collectives executed by switches.
    pub fn groups(&self) -> usize {
        self.groups.len() + self.multicasts.len() + self.parts.len()
    }

    /// The collective that a message belongs to.
    pub fn group_of(&self, message: u32) -> Option<usize> {
        let behind = self.by_number.partition_point(|&(first, _)| first <= message);
        let (_, group) = *self.by_number.get(behind.checked_sub(1)?)?;
        let group = group as usize;
        let numbers = match group.checked_sub(self.groups.len()) {
            None => self.groups[group].numbers(),
            Some(behind) => match behind.checked_sub(self.multicasts.len()) {
                None => self.multicasts[behind].messages(),
                Some(part) => self.parts[part].clone(),
            },
        };
        numbers.contains(&message).then_some(group)
    }

    /// The profile that a message uses.
    pub fn profile_of(&self, message: u32) -> u16 {
        self.group_of(message).and_then(|group| self.groups.get(group)).map_or(0, |group| group.profile)
    }

    /// True if a program at one host ever signals another host.
    pub fn signals(&self) -> bool {
        self.flows.signals() || self.jobs.iter().any(|job| !job.locals.is_empty())
    }
}

//! Runs one rank of a training job on a host: the rank performs the steps of its script.

use crate::frontier::Frontier;
use crate::group::Group;
use crate::listed::{Follower, Listed};
use crate::multicast::{Caster, Multicast, Word};
use crate::participant::Participant;
use crate::programs::AnyApplication;
use crate::schedule::Rank;
use crate::script::{Between, COMPUTE, FREE, Operation, STREAMS_MAX, Script, ScriptedJob, Step, Work};
use crate::server::{Inside, Rail};
use crate::transfer::{Pipe, Transfer};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use strandway_proto::aggregate::Counts;
use strandway_proto::application::{Action, Application, Event, Stage};
use strandway_proto::packet::Header;
use strandway_proto::rank_times::StepTimes;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Span, Time};
use strandway_proto::{MessageId, RankTimes};

/// Makes the program that executes an [`Operation::Own`], from the operation's number and the rank.
pub type OperationMaker<'a> = dyn Fn(u16, u32) -> Option<Box<dyn Application>> + Sync + 'a;

/// All operations of a run. Scripts name an operation by its index in these lists.
#[derive(Clone, Copy)]
pub struct Operations<'a> {
    /// Operations that send unicast messages.
    pub groups: &'a [Group],
    /// Operations that use multicast.
    pub multicasts: &'a [Multicast],
    /// Messages outside collectives.
    pub pipes: &'a [Pipe],
    /// Operations that follow recipes.
    pub listed: &'a [Listed],
    /// Makes the programs of all other operations.
    pub make: Option<&'a OperationMaker<'a>>,
}

/// The state of one stream of a rank.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// Index in the stream of the step that runs, or of the next step if none runs.
    next: usize,
    /// The step that runs and the time at which it ends. The time is [`Time::NEVER`] if the step ends with its
    /// operation.
    runs: Option<(u32, Time)>,
}

/// An operation that has begun here, or for which a message has arrived.
struct Part<'a> {
    /// Its index among the rank's operations.
    place: u32,
    program: AnyApplication<'a>,
    /// The step that waits for this operation. `None` before that step begins and after it ends.
    awaited: Option<u32>,
    begun: bool,
}

/// The life of an operation at this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not made: it has not begun and no event for it has arrived.
    Unmade,
    Made,
    /// Finished: later events for it are ignored.
    Over,
}

/// One rank. It begins a step as soon as the stream is free and every step named in `after` has ended.
///
/// If its script is a graph, a stream begins whichever step can begin; messages are counted by [`Frontier`] and have no
/// program of their own, since a trace may have thousands of them under way.
pub struct Actor<'a> {
    job: &'a ScriptedJob,
    script: &'a Script,
    all: Operations<'a>,
    operations: &'a [Operation],
    /// The numbers of the messages of operations, in order: the first number, the number after the last one, and the
    /// operation's index.
    numbers: Vec<(u32, u32, u32)>,
    /// Operations inside the server, in order: the index among the job's operations inside servers, and the index among
    /// this rank's operations.
    locals: Vec<(u32, u32)>,
    rank: u32,
    ended: Vec<bool>,
    left: usize,
    lanes: Vec<Lane>,
    states: Vec<State>,
    /// If the script is a graph.
    frontier: Option<Frontier<'a>>,
    /// `live`: operations that may still act by themselves. `resting`: complete operations that only answer requests of
    /// other ranks.
    live: Vec<Part<'a>>,
    resting: Vec<Part<'a>>,
    /// The ports that are up, one bit each; `None` until the host reports them.
    up: Option<u32>,
    /// Factor on the length of this iteration's compute steps (at least 1).
    slow: f64,
    random: Random,
    times: RankTimes,
    /// When the compute stream began or ended its last step.
    since: Time,
    out: VecDeque<Action>,
}

impl fmt::Debug for Actor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Actor");
        shown.field("rank", &self.rank).field("left", &self.left).field("lanes", &self.lanes).finish_non_exhaustive()
    }
}

/// Does this event (`what`) belong to this operation?
fn concerns(all: &Operations<'_>, operation: &Operation, what: Concern) -> bool {
    match (*operation, what) {
        (Operation::Multicast { multicast, .. }, Concern::Task(task)) => {
            all.multicasts[multicast as usize].task == task
        }
        (Operation::Own { number, .. }, Concern::Own(own)) => number == own,
        _ => false,
    }
}

/// The numbers of the messages of an operation, if it has any.
fn numbers(all: &Operations<'_>, operation: &Operation) -> Option<Range<u32>> {
    match *operation {
        Operation::Multicast { multicast, rank } => {
            let message = all.multicasts[multicast as usize].message(rank).0;
            Some(message..message + 1)
        }
        Operation::Send { pipe, index } | Operation::Receive { pipe, index } => {
            Some(all.pipes[pipe as usize].numbers_of(index))
        }
        Operation::Messages { .. } | Operation::Listed { .. } | Operation::Inside { .. } => {
            operation.between().map(|between| match between {
                Between::Group(group, _) => all.groups[group as usize].numbers(),
                Between::Listed(listed, _) => all.listed[listed as usize].numbers(),
            })
        }
        Operation::Own { .. } | Operation::Hand { .. } => None,
    }
}

/// The key by which an event finds its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Concern {
    /// The number of a message.
    Message(u32),
    /// The number of a multicast.
    Task(u32),
    /// The number of an [`Operation::Own`].
    Own(u16),
    /// The index of an operation inside a server.
    Local(u32),
}

impl<'a> Actor<'a> {
    /// A rank before its first step.
    ///
    /// # Panics
    /// If the job has no such rank.
    pub fn new(job: &'a ScriptedJob, rank: u32, all: Operations<'a>) -> Actor<'a> {
        let script = job.script(rank);
        let operations = &job.operations[rank as usize];
        let stream = u64::from(job.number) << 32 | u64::from(rank) | 1 << 61;
        let places = || operations.iter().zip(0u32..);
        let mut numbers: Vec<(u32, u32, u32)> = places()
            .filter_map(|(operation, place)| numbers(&all, operation).map(|range| (range.start, range.end, place)))
            .collect();
        numbers.sort_unstable();
        let mut locals: Vec<(u32, u32)> = places()
            .filter_map(|(operation, place)| match *operation {
                Operation::Inside { local, .. } | Operation::Hand { local, gives: false } => Some((local, place)),
                _ => None,
            })
            .collect();
        locals.sort_unstable();
        Actor {
            job,
            script,
            all,
            operations,
            numbers,
            locals,
            rank,
            ended: vec![false; script.steps().len()],
            left: script.steps().len(),
            lanes: vec![Lane::default(); script.streams().len()],
            states: vec![State::Unmade; operations.len()],
            frontier: Frontier::new(script, operations, job.keeps_steps),
            live: Vec::new(),
            resting: Vec::new(),
            up: None,
            slow: 1.0,
            random: Random::new(job.seed, StreamKind::Workload, stream),
            times: RankTimes {
                job: job.number,
                rank,
                waited: vec![Span::ZERO; script.kinds().len()],
                ..RankTimes::default()
            },
            since: Time::ZERO,
            out: VecDeque::new(),
        }
    }

    /// The length of a step with this iteration's slowdown and random noise.
    fn length(&mut self, nominal: Span) -> Span {
        if nominal == Span::ZERO {
            return nominal;
        }
        let noise = if self.job.noise > 0.0 { 1.0 + self.job.noise * self.random.normal() } else { 1.0 };
        nominal.scaled(self.slow * noise.max(0.0))
    }

    fn stage(&mut self, stage: Stage) {
        let message = MessageId(self.job.first_message + self.rank);
        self.out.push_back(Action::Stage { message, stage });
    }

    /// The index, among this rank's operations, of the operation with this key.
    fn place(&self, what: Concern) -> Option<u32> {
        match what {
            Concern::Message(message) => {
                let behind = self.numbers.partition_point(|&(first, ..)| first <= message);
                let &(_, end, place) = self.numbers.get(behind.checked_sub(1)?)?;
                (message < end).then_some(place)
            }
            Concern::Local(local) => {
                let at = self.locals.binary_search_by_key(&local, |&(local, _)| local).ok()?;
                Some(self.locals[at].1)
            }
            Concern::Task(_) | Concern::Own(_) => {
                let place = self.operations.iter().position(|operation| concerns(&self.all, operation, what))?;
                Some(place as u32)
            }
        }
    }

    /// Index in `live` of the operation that `what` belongs to. Makes the operation if it does not exist yet.
    fn part(&mut self, now: Time, what: Concern) -> Option<usize> {
        let place = self.place(what)?;
        if let Some(at) = self.resting.iter().position(|part| part.place == place) {
            let part = self.resting.swap_remove(at);
            self.live.push(part);
            return Some(self.live.len() - 1);
        }
        self.made(now, place)
    }

    /// Index in `live` of the operation with this index among the rank's operations. Makes it if it does not exist yet.
    fn made(&mut self, now: Time, place: u32) -> Option<usize> {
        match self.states[place as usize] {
            State::Made => return self.live.iter().position(|part| part.place == place),
            State::Over => return None,
            State::Unmade => {}
        }
        let mut program = match self.operations[place as usize] {
            Operation::Messages { group, rank } => {
                AnyApplication::Member(Box::new(Participant::new(&self.all.groups[group as usize], Rank(rank))))
            }
            Operation::Multicast { multicast, rank } => {
                AnyApplication::Caster(Box::new(Caster::new(&self.all.multicasts[multicast as usize], rank)))
            }
            Operation::Own { number, rank } => {
                AnyApplication::Custom(self.all.make.and_then(|make| make(number, rank))?)
            }
            Operation::Send { pipe, index } => {
                AnyApplication::Transfer(Transfer::new(&self.all.pipes[pipe as usize], index, true))
            }
            Operation::Receive { pipe, index } => {
                AnyApplication::Transfer(Transfer::new(&self.all.pipes[pipe as usize], index, false))
            }
            Operation::Listed { listed, rank } => {
                AnyApplication::Follower(Box::new(Follower::new(&self.all.listed[listed as usize], rank)))
            }
            // Frontiers count them.
            Operation::Hand { .. } => return None,
            Operation::Inside { local, messages } => {
                let job = self.job;
                let what = job.locals[local as usize];
                let member = messages.map(|between| match between {
                    Between::Group(group, rank) => {
                        Rail::Member(Participant::new(&self.all.groups[group as usize], Rank(rank)))
                    }
                    Between::Listed(listed, rank) => {
                        Rail::Follower(Follower::new(&self.all.listed[listed as usize], rank))
                    }
                });
                let (team, word) = (&job.teams[what.team as usize], job.first_word + local);
                AnyApplication::Inside(Box::new(Inside::new(team, what, job.signal_latency, word, member)))
            }
        };
        if let Some(up) = self.up {
            program.handle_event(now, &Event::Ports { up });
        }
        self.states[place as usize] = State::Made;
        self.live.push(Part { place, program, awaited: None, begun: false });
        Some(self.live.len() - 1)
    }

    /// Ends every step that has ended by `now` and begins every step that can begin.
    fn advance(&mut self, now: Time) {
        if self.times.begun.is_none() {
            if now < self.job.start {
                return;
            }
            self.times.begun = Some(now);
            self.since = now;
            self.slow = 1.0 + self.job.stragglers * self.random.unit();
            self.stage(Stage::Begun);
        }
        let mut moves = true;
        while moves && self.left > 0 {
            moves = self.end_operations(now);
            for stream in 0..self.lanes.len() {
                moves |= self.end_computing(now, stream);
                moves |= match self.frontier {
                    Some(_) => self.begin_ready(now, stream),
                    None => self.begin_next(now, stream),
                };
            }
        }
    }

    /// Ends the steps whose operation is complete. Returns true if it ended at least one.
    fn end_operations(&mut self, now: Time) -> bool {
        let mut any = false;
        for at in 0..self.live.len() {
            let part = &mut self.live[at];
            if part.awaited.is_some()
                && part.program.is_complete()
                && let Some(step) = part.awaited.take()
            {
                any = true;
                self.end(now, step);
            }
        }
        any
    }

    /// Ends a compute step whose time is over. Returns true if it did.
    fn end_computing(&mut self, now: Time, stream: usize) -> bool {
        let Some((step, _)) = self.lanes[stream].runs.filter(|&(_, until)| until <= now) else { return false };
        self.end(now, step);
        true
    }

    /// Begins the next step of a stream if nothing blocks it. Returns true if it did.
    fn begin_next(&mut self, now: Time, stream: usize) -> bool {
        let lane = self.lanes[stream];
        let Some(&place) = self.script.streams()[stream].get(lane.next) else { return false };
        let step = &self.script.steps()[place as usize];
        if lane.runs.is_some() || !step.after.iter().all(|&before| self.ended[before as usize]) {
            return false;
        }
        if self.job.keeps_steps {
            self.times.steps.push(StepTimes { step: place, begun: now, ended: Time::NEVER });
        }
        let until = match step.work {
            Work::Compute(nominal) => now + self.length(nominal),
            Work::Operation(operation) => {
                let Some(at) = self.made(now, operation) else { return false };
                let part = &mut self.live[at];
                part.awaited = Some(place);
                part.begun = true;
                part.program.begin(now);
                Time::NEVER
            }
        };
        self.lanes[stream].runs = Some((place, until));
        if step.stream == COMPUTE {
            let blamed = self.blamed(step);
            self.times.waited[usize::from(blamed)] += now.since(self.since);
            self.since = now;
        }
        true
    }

    /// The same if the script is a graph.
    fn begin_ready(&mut self, now: Time, stream: usize) -> bool {
        let free = stream == usize::from(FREE);
        let mut any = false;
        while free || self.lanes[stream].runs.is_none() {
            let Some(place) = self.frontier.as_mut().and_then(|frontier| frontier.take(stream)) else { return any };
            any = true;
            self.begin_step(now, stream, place);
        }
        any
    }

    /// Begins a step of a graph.
    fn begin_step(&mut self, now: Time, stream: usize, place: u32) {
        let script = self.script;
        let step = &script.steps()[place as usize];
        if self.job.keeps_steps {
            if let Some(frontier) = &mut self.frontier {
                frontier.kept[place as usize] = self.times.steps.len() as u32;
            }
            self.times.steps.push(StepTimes { step: place, begun: now, ended: Time::NEVER });
        }
        if step.stream == COMPUTE {
            let cause = self.frontier.as_ref().and_then(|frontier| frontier.cause(place));
            let blamed = cause.map(|cause| &script.steps()[cause as usize]).filter(|cause| cause.stream != COMPUTE);
            let blamed = blamed.map_or(step.kind, |cause| cause.kind);
            self.times.waited[usize::from(blamed)] += now.since(self.since);
            self.since = now;
        }
        let mut over = None;
        let until = match step.work {
            Work::Compute(nominal) => now + self.length(nominal),
            Work::Operation(operation) => match self.operations[operation as usize] {
                Operation::Send { pipe, index } => {
                    let pipe = &self.all.pipes[pipe as usize];
                    let mut sender = Transfer::new(pipe, index, true);
                    sender.begin(now);
                    while let Some(action) = sender.poll_action(now) {
                        self.out.push_back(action);
                    }
                    over = self.begin_message(operation, pipe.pieces);
                    Time::NEVER
                }
                Operation::Receive { pipe, .. } => {
                    over = self.begin_message(operation, self.all.pipes[pipe as usize].pieces);
                    Time::NEVER
                }
                Operation::Hand { gives: false, .. } => {
                    over = self.begin_message(operation, 1);
                    Time::NEVER
                }
                Operation::Hand { local, gives: true } => self.hand(now, step.stream, local),
                _ => {
                    if let Some(at) = self.made(now, operation) {
                        let part = &mut self.live[at];
                        part.awaited = Some(place);
                        part.begun = true;
                        part.program.begin(now);
                    }
                    Time::NEVER
                }
            },
        };
        if stream != usize::from(FREE) {
            self.lanes[stream].runs = Some((place, until));
        } else if until <= now {
            over = Some(place);
        }
        if let Some(frontier) = &mut self.frontier {
            frontier.begun(script, place);
        }
        if let Some(place) = over {
            self.end(now, place);
        }
    }

    fn begin_message(&mut self, operation: u32, pieces: u32) -> Option<u32> {
        self.frontier.as_mut()?.begin_message(operation, pieces)
    }

    /// Sends a message to a rank of the same server. Returns the time at which the last byte has left.
    fn hand(&mut self, now: Time, stream: u8, local: u32) -> Time {
        let made = self.job.locals[local as usize];
        let at = now + made.span + self.job.signal_latency;
        let seat = u32::from(self.job.seats[self.rank as usize]);
        let order = self.job.first_order + seat * u32::from(STREAMS_MAX) + u32::from(stream);
        for &to in &self.job.teams[made.team as usize].hosts {
            self.out.push_back(Action::Signal { to, at, order, word: self.job.first_word + local });
        }
        now + made.span
    }

    /// Counts an event of a message that has no program of its own. Returns false if the event is of another kind.
    fn count_message(&mut self, now: Time, event: &Event) -> bool {
        if self.frontier.is_none() {
            return false;
        }
        let concern = match event {
            Event::Sent { message } | Event::Received { message, .. } => Concern::Message(message.0),
            Event::Signal { order, word } if *order >= self.job.first_order => {
                Concern::Local(word.wrapping_sub(self.job.first_word))
            }
            _ => return false,
        };
        let Some(place) = self.place(concern) else { return false };
        let (pieces, ours) = match (self.operations[place as usize], event) {
            (Operation::Send { pipe, .. }, _) => {
                (self.all.pipes[pipe as usize].pieces, matches!(event, Event::Sent { .. }))
            }
            (Operation::Receive { pipe, .. }, _) => {
                (self.all.pipes[pipe as usize].pieces, matches!(event, Event::Received { .. }))
            }
            (Operation::Hand { .. }, Event::Signal { .. }) => (1, true),
            _ => return false,
        };
        let over = self.frontier.as_mut().filter(|_| ours).and_then(|frontier| frontier.count(place, pieces));
        if let Some(step) = over {
            self.end(now, step);
        }
        true
    }

    /// The kind of the step to which the waiting time before `step` is charged: the first step of another stream in
    /// `step.after` that has not ended. If all of them have ended, the last one in that list.
    fn blamed(&self, step: &Step) -> u8 {
        let steps = self.script.steps();
        let waits =
            || step.after.iter().map(|&before| (before, &steps[before as usize])).filter(|(_, s)| s.stream != COMPUTE);
        let unfinished = waits().find(|(before, _)| !self.ended[*before as usize]);
        unfinished.or_else(|| waits().next_back()).map_or(step.kind, |(_, s)| s.kind)
    }

    fn end(&mut self, now: Time, place: u32) {
        let script = self.script;
        let step = &script.steps()[place as usize];
        self.ended[place as usize] = true;
        self.left -= 1;
        if self.frontier.is_none() || step.stream != FREE {
            let lane = &mut self.lanes[usize::from(step.stream)];
            lane.runs = None;
            lane.next += 1;
        }
        if self.job.keeps_steps {
            let kept = match &self.frontier {
                Some(frontier) => self.times.steps.get_mut(frontier.kept[place as usize] as usize),
                None => self.times.steps.iter_mut().rev().find(|kept| kept.step == place),
            };
            kept.into_iter().for_each(|kept| kept.ended = now);
        }
        if let Some(frontier) = &mut self.frontier {
            frontier.ended(script, place);
        }
        if step.stream == COMPUTE {
            self.times.computed += now.since(self.since);
            self.since = now;
        }
        if step.ends_iteration {
            self.times.iterations.push(now);
            self.slow = 1.0 + self.job.stragglers * self.random.unit();
        }
        if self.left == 0 {
            self.stage(Stage::Complete);
            self.stage(Stage::Closed);
        }
    }

    /// Removes complete operations from `live`: they do not act by themselves any more.
    fn retire(&mut self) {
        let mut at = 0;
        while at < self.live.len() {
            let part = &self.live[at];
            let over = part.begun && part.awaited.is_none() && part.program.is_done();
            if !over || part.program.poll_timeout() != Time::NEVER {
                at += 1;
                continue;
            }
            let part = self.live.swap_remove(at);
            match part.program {
                // No other rank asks a member for messages that have arrived.
                AnyApplication::Member(_)
                | AnyApplication::Transfer(_)
                | AnyApplication::Inside(_)
                | AnyApplication::Follower(_) => {
                    self.states[part.place as usize] = State::Over;
                }
                _ => self.resting.push(part),
            }
        }
    }

    fn everywhere(&mut self, now: Time, event: &Event) {
        self.live.iter_mut().chain(&mut self.resting).for_each(|part| part.program.handle_event(now, event));
    }
}

impl Application for Actor<'_> {
    fn handle_event(&mut self, now: Time, event: &Event) {
        if self.count_message(now, event) {
            return self.advance(now);
        }
        let concern = match event {
            Event::Sent { message } | Event::Received { message, .. } => Some(Concern::Message(message.0)),
            Event::Chunk { task, .. } | Event::Cast { task, .. } => Some(Concern::Task(*task)),
            Event::Letter { letter, .. } => Word::read(letter).map(|(task, _)| Concern::Task(task)),
            Event::Fragment(packet) => match packet.header {
                Header::Fragment(fragment) => Some(Concern::Own(fragment.job)),
                _ => None,
            },
            Event::Ports { up } => {
                self.up = Some(*up);
                None
            }
            Event::Signal { order, word } => {
                let local = word.wrapping_sub(self.job.first_word);
                let ours = *order >= self.job.first_order && (local as usize) < self.job.locals.len();
                let Some(at) = ours.then(|| self.part(now, Concern::Local(local))).flatten() else { return };
                self.live[at].program.handle_event(now, event);
                return self.advance(now);
            }
            Event::Failed { .. } => None,
        };
        match concern {
            Some(what) => {
                if let Some(at) = self.part(now, what) {
                    self.live[at].program.handle_event(now, event);
                }
            }
            None => self.everywhere(now, event),
        }
        self.advance(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        // One program per call: its packets leave before the next program acts.
        if let Some(part) = self.live.iter_mut().find(|part| part.program.poll_timeout() <= now) {
            part.program.handle_timeout(now);
        }
        self.advance(now);
    }

    fn poll_action(&mut self, now: Time) -> Option<Action> {
        if let Some(action) = self.out.pop_front() {
            return Some(action);
        }
        for part in &mut self.live {
            let Some(mut action) = part.program.poll_action(now) else { continue };
            if let Action::Signal { order, .. } = &mut action {
                // Two signals that reach a host at the same time never come from the same stream of the same GPU.
                let stream = part.awaited.map_or(COMPUTE, |step| self.script.steps()[step as usize].stream);
                let seat = u32::from(self.job.seats[self.rank as usize]);
                *order = self.job.first_order + seat * u32::from(STREAMS_MAX) + u32::from(stream);
            }
            return Some(action);
        }
        self.retire();
        None
    }

    fn poll_timeout(&self) -> Time {
        let start = if self.times.begun.is_none() { self.job.start } else { Time::NEVER };
        let steps = self.lanes.iter().filter_map(|lane| lane.runs).map(|(_, until)| until);
        let parts = self.live.iter().map(|part| part.program.poll_timeout());
        steps.chain(parts).fold(start, Time::min)
    }

    fn owns(&self, message: MessageId) -> bool {
        message.0 == self.job.first_message + self.rank || self.place(Concern::Message(message.0)).is_some()
    }

    fn count(&self, now: Time, into: &mut BTreeMap<u16, Counts>) {
        self.live.iter().chain(&self.resting).for_each(|part| part.program.count(now, into));
    }

    fn tell_times(&self, now: Time, into: &mut Vec<RankTimes>) {
        let mut times = self.times.clone();
        if let (Some(_), Some(lane)) = (times.begun, self.lanes.first()) {
            // The run may end while a step computes or waits: count the time since that began.
            let rest = now.since(self.since.min(now));
            let steps = &self.script.streams()[usize::from(COMPUTE)];
            let next = match self.frontier {
                Some(_) => steps.iter().find(|step| !self.ended[**step as usize]),
                None => steps.get(lane.next),
            };
            match (lane.runs, next) {
                (Some(_), _) => times.computed += rest,
                (None, Some(&next)) => {
                    let blamed = self.blamed(&self.script.steps()[next as usize]);
                    times.waited[usize::from(blamed)] += rest;
                }
                (None, None) => {}
            }
        }
        into.push(times);
    }

    fn is_done(&self) -> bool {
        self.left == 0 && self.live.iter().all(|part| part.program.is_done())
    }
}

//! Runs one rank of a training job on a host: the rank performs the steps of its script.

mod operations;
mod steps;

use crate::frontier::Frontier;
use crate::multicast::MulticastMessage;
use crate::operation::Operation;
use crate::programs::AnyApplication;
use crate::script::{COMPUTE, RankOperation, STREAMS_MAX, Script, ScriptedJob};
use operations::{Concern, numbers};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use strandway_proto::aggregate::Counts;
use strandway_proto::application::{Action, Application, Event, Stage};
use strandway_proto::packet::Header;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Span, Time};
use strandway_proto::{MessageId, RankTimes};

/// Makes the program of a rank in an [`Operation::InNetwork`], from the operation's number and the rank.
pub type OperationMaker<'a> = dyn Fn(u16, u32) -> Option<Box<dyn Application>> + Sync + 'a;

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
/// If its script is a graph, a stream begins whichever step can begin; messages are counted by its frontier and have no
/// program of their own, since a trace may have thousands of them under way.
pub struct TrainingRank<'a> {
    job: &'a ScriptedJob,
    script: &'a Script,
    /// All operations of the run, and the maker of programs for those that switches perform.
    all: &'a [Operation],
    make: Option<&'a OperationMaker<'a>>,
    operations: &'a [RankOperation],
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

impl fmt::Debug for TrainingRank<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Actor");
        shown.field("rank", &self.rank).field("left", &self.left).field("lanes", &self.lanes).finish_non_exhaustive()
    }
}

impl<'a> TrainingRank<'a> {
    /// A rank before its first step.
    ///
    /// # Panics
    /// If the job has no such rank.
    pub fn new(
        job: &'a ScriptedJob,
        rank: u32,
        all: &'a [Operation],
        make: Option<&'a OperationMaker<'a>>,
    ) -> TrainingRank<'a> {
        let script = job.script(rank);
        let operations = &job.operations[rank as usize];
        let stream = u64::from(job.number) << 32 | u64::from(rank) | 1 << 61;
        let places = || operations.iter().zip(0u32..);
        let mut numbers: Vec<(u32, u32, u32)> = places()
            .filter_map(|(operation, place)| numbers(all, operation).map(|range| (range.start, range.end, place)))
            .collect();
        numbers.sort_unstable();
        let mut locals: Vec<(u32, u32)> = places()
            .filter_map(|(operation, place)| match *operation {
                RankOperation::Inside { local, .. } | RankOperation::Hand { local, gives: false } => {
                    Some((local, place))
                }
                _ => None,
            })
            .collect();
        locals.sort_unstable();
        TrainingRank {
            job,
            script,
            all,
            make,
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

    fn stage(&mut self, stage: Stage) {
        let message = MessageId(self.job.first_message + self.rank);
        self.out.push_back(Action::Stage { message, stage });
    }
}

impl Application for TrainingRank<'_> {
    fn handle_event(&mut self, now: Time, event: &Event) {
        if self.count_message(now, event) {
            return self.advance(now);
        }
        let concern = match event {
            Event::Sent { message } | Event::Received { message, .. } => Some(Concern::Message(message.0)),
            Event::Chunk { task, .. } | Event::Cast { task, .. } => Some(Concern::Task(*task)),
            Event::Control { control, .. } => MulticastMessage::read(control).map(|(task, _)| Concern::Task(task)),
            Event::Fragment(packet) => match packet.header {
                Header::Fragment(fragment) => Some(Concern::InNetwork(fragment.job)),
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

    fn append_times(&self, now: Time, into: &mut Vec<RankTimes>) {
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
                (None, Some(&next)) if self.frontier.is_some() => self.charge_unfinished(next, rest, &mut times),
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

//! The steps of the ranks of a training job: a rank computes, and it takes part in collectives.
//!
//! A [`Script`] lists the steps of all iterations one after the other. A step belongs to a *stream*. Like a CUDA
//! stream, it performs its steps in order, one at a time. A step may also wait for steps of other streams. All ranks of
//! one role share a script.
//!
//! Traces of other tools are graphs: their steps have no order besides their dependencies ([`Script::graph`]).

use crate::lists::Lists;
use crate::server::{Local, Team};
use std::fmt;
use strandway_proto::HostId;
use strandway_proto::units::{Span, Time};

/// The number of the stream with the compute steps. Other streams carry collectives.
pub const COMPUTE: u8 = 0;

/// Limit on the streams of a rank: ours. GOAL numbers the CPUs of a rank with a byte.
pub const STREAMS_MAX: u16 = 256;

/// In the steps given to [`Script::graph`]: the stream with the messages to ranks of the same server.
pub const INSIDE: u8 = 254;

/// In the steps given to [`Script::graph`]: the stream whose steps all begin as soon as they can. Its steps are
/// operations, or computation that takes no time.
pub const FREE: u8 = 255;

/// The work of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Computes for this time, before noise and stragglers.
    Compute(Span),
    /// Takes part in the operation with this index in the rank's list ([`ScriptedJob::operations`]). The step ends when
    /// the rank has received everything.
    Operation(u32),
}

/// A step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of its stream. A graph numbers its streams anew, without gaps ([`Script::graph`]).
    pub stream: u8,
    /// Its work.
    pub work: Work,
    /// Steps that must end before this one begins, besides the earlier steps of its stream: indices in the script.
    pub after: Vec<u32>,
    /// Its kind: an index into [`Script::kinds`].
    pub kind: u8,
    /// The layer (or similar) that it belongs to, for display.
    pub layer: u32,
    /// True if an iteration ends with this step.
    pub ends_iteration: bool,
}

/// The steps of one role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    steps: Vec<Step>,
    kinds: Vec<String>,
    /// For each stream the indices of its steps, in order.
    streams: Vec<Vec<u32>>,
    /// If the steps of a stream have no order.
    graph: Option<Graph>,
    /// In a graph: the stream whose steps begin as soon as they can, if there is one.
    free: Option<u8>,
}

/// The steps that wait for each step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Graph {
    /// The number of events for which each step waits.
    pub(crate) waits: Vec<u32>,
    /// The steps that wait for the end of a step, and for its begin.
    ended: Lists,
    begun: Lists,
}

impl Graph {
    /// The steps that wait for the end of this one.
    pub(crate) fn after_end(&self, step: u32) -> &[u32] {
        self.ended.of(step)
    }

    /// The steps that wait for the begin of this one.
    pub(crate) fn after_begin(&self, step: u32) -> &[u32] {
        self.begun.of(step)
    }
}

/// Why a list of steps is not a valid script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptError {
    /// The kind of this step does not exist, or its stream has no steps of this work.
    Unknown(u32),
    /// This step waits for itself or for a later step; such waits could form a cycle.
    Forward(u32),
    /// More steps than four billion.
    TooMany,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScriptError::Unknown(step) => {
                write!(f, "step {step} has a kind that does not exist, or computes on a stream without time")
            }
            ScriptError::Forward(step) => write!(f, "step {step} waits for a step that is not before it"),
            ScriptError::TooMany => f.write_str("a script of more than four billion steps"),
        }
    }
}

impl std::error::Error for ScriptError {}

impl Script {
    /// A script of these steps, with these kinds.
    ///
    /// # Errors
    /// If a step names a kind that does not exist, or waits for itself or for a later step. An accepted
    /// script always ends, since a step waits only for earlier ones.
    pub fn new(kinds: Vec<String>, steps: Vec<Step>) -> Result<Script, ScriptError> {
        let mut streams: Vec<Vec<u32>> = Vec::new();
        if u32::try_from(steps.len()).is_err() {
            return Err(ScriptError::TooMany);
        }
        for (place, step) in (0u32..).zip(&steps) {
            if usize::from(step.kind) >= kinds.len() {
                return Err(ScriptError::Unknown(place));
            }
            if step.after.iter().any(|&before| before >= place) {
                return Err(ScriptError::Forward(place));
            }
            let stream = usize::from(step.stream);
            streams.resize(streams.len().max(stream + 1), Vec::new());
            streams[stream].push(place);
        }
        Ok(Script { steps, kinds, streams, graph: None, free: None })
    }

    /// A script whose steps have no order besides their dependencies. A stream performs one step at a time: of all
    /// steps that can begin, the first one in the list. Streams [`INSIDE`] and [`FREE`] have the meanings given there.
    /// The streams that have steps are numbered anew in the script, in order and without gaps; [`COMPUTE`] keeps its
    /// number. Each pair of `begins` is a step, and an earlier step that must have begun before it.
    ///
    /// # Errors
    /// Those of [`Script::new`]; and if a step of [`FREE`] computes for some time.
    pub fn graph(kinds: Vec<String>, mut steps: Vec<Step>, begins: &[(u32, u32)]) -> Result<Script, ScriptError> {
        let takes_time = |step: &Step| matches!(step.work, Work::Compute(span) if span > Span::ZERO);
        if let Some(place) = steps.iter().position(|step| step.stream == FREE && takes_time(step)) {
            return Err(ScriptError::Unknown(place as u32));
        }
        let mut number = [None; STREAMS_MAX as usize];
        number[usize::from(COMPUTE)] = Some(0);
        steps.iter().for_each(|step| number[usize::from(step.stream)] = Some(0));
        (0u8..).zip(number.iter_mut().flatten()).for_each(|(next, number)| *number = next);
        steps.iter_mut().for_each(|step| step.stream = number[usize::from(step.stream)].unwrap_or(COMPUTE));
        let mut script = Script::new(kinds, steps)?;
        script.free = number[usize::from(FREE)];
        let count = script.steps.len();
        if let Some(&(step, _)) = begins.iter().find(|(step, before)| before >= step || *step as usize >= count) {
            return Err(ScriptError::Forward(step));
        }
        let mut waits: Vec<u32> = script.steps.iter().map(|step| step.after.len() as u32).collect();
        begins.iter().for_each(|(step, _)| waits[*step as usize] += 1);
        let ends = (0u32..).zip(&script.steps);
        let ends = ends.flat_map(|(place, step)| step.after.iter().map(move |&before| (before, place)));
        let ended = Lists::new(count, ends);
        let begun = Lists::new(count, begins.iter().map(|&(step, before)| (before, step)));
        script.graph = Some(Graph { waits, ended, begun });
        Ok(script)
    }

    /// True if this stream of a graph begins its steps as soon as they can, all at the same time.
    pub fn is_free(&self, stream: u8) -> bool {
        self.free == Some(stream)
    }

    /// True if its steps have no order besides their dependencies.
    pub fn is_graph(&self) -> bool {
        self.graph.is_some()
    }

    /// The graph, if the script is one.
    pub(crate) fn as_graph(&self) -> Option<&Graph> {
        self.graph.as_ref()
    }

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The names of the kinds of steps.
    pub fn kinds(&self) -> &[String] {
        &self.kinds
    }

    /// The indices of the steps of each stream, in order.
    pub fn streams(&self) -> &[Vec<u32>] {
        &self.streams
    }

    /// The total time of all steps of the compute stream, before noise and stragglers.
    pub fn computation(&self) -> Span {
        let of = |step: &Step| match step.work {
            Work::Compute(span) => span,
            Work::Operation(_) => Span::ZERO,
        };
        self.steps.iter().filter(|step| step.stream == COMPUTE).map(of).fold(Span::ZERO, |sum, span| sum + span)
    }

    /// How many iterations it has.
    pub fn iterations(&self) -> u32 {
        self.steps.iter().filter(|step| step.ends_iteration).count() as u32
    }
}

/// The part of a rank of a job in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankOperation {
    /// Takes part in a collective of messages, in a multicast, or in a collective that switches perform.
    Member {
        /// Its index among the run's [`Operation`](crate::Operation)s.
        operation: u32,
        /// The rank in it.
        rank: u32,
    },
    /// Sends a message. It ends when the receiver has acknowledged it.
    Send {
        /// The index of the [`Pipe`](crate::Pipe) among the run's operations.
        pipe: u32,
        /// The message's place in the pipe.
        index: u32,
    },
    /// Waits for a message.
    Receive {
        /// The index of the [`Pipe`](crate::Pipe) among the run's operations.
        pipe: u32,
        /// The message's place in the pipe.
        index: u32,
    },
    /// Sends a message to a rank of the same server, or receives it. Only scripts that are graphs have such operations.
    Hand {
        /// An index into [`ScriptedJob::locals`]: the time of the message, and the host of the receiver.
        local: u32,
        /// True at the sender.
        gives: bool,
    },
    /// Exchanges data with the ranks of its server, and may take part in a collective of messages meanwhile.
    Inside {
        /// An index into [`ScriptedJob::locals`].
        local: u32,
        /// The collective of messages between servers, if there is one: its index among the run's operations, and the
        /// rank in it.
        messages: Option<(u32, u32)>,
    },
}

impl RankOperation {
    /// The index of the operation that it is a member of, and the rank in it.
    pub fn member(&self) -> Option<(u32, u32)> {
        match *self {
            RankOperation::Member { operation, rank } => Some((operation, rank)),
            RankOperation::Inside { messages, .. } => messages,
            _ => None,
        }
    }
}

/// A training job, placed on hosts.
///
/// A rank begins an operation when its script says so; the start times of the operation itself are ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedJob {
    /// Its number in the run.
    pub number: u32,
    /// The scripts of all roles.
    pub scripts: Vec<Script>,
    /// The role of each rank: an index into `scripts`.
    pub roles: Vec<u32>,
    /// The host of each rank.
    pub hosts: Vec<HostId>,
    /// The operations of each rank. Steps name them by index.
    pub operations: Vec<Vec<RankOperation>>,
    /// Ranks that share a server and exchange data inside it.
    pub teams: Vec<Team>,
    /// The operations of teams.
    pub locals: Vec<Local>,
    /// The GPU of each rank, by its number in the server; empty if there are no teams.
    pub seats: Vec<u16>,
    /// Latency of a signal between ranks of a server: at least the shortest latency of the fabric's links.
    pub signal_latency: Span,
    /// The word of the first of `locals` in signals; the others have the next words. Unique in the run.
    pub first_word: u32,
    /// The order of signals of seat 0 ([`Action::Signal`](strandway_proto::application::Action::Signal)).
    pub first_order: u32,
    /// Start time of the job.
    pub start: Time,
    /// In each iteration, a rank's compute steps take longer by a random share between 0 and this value.
    pub stragglers: f64,
    /// The relative standard deviation of the time of each step.
    pub noise: f64,
    /// The seed of the job's random numbers.
    pub seed: u64,
    /// The message number of rank 0's part; rank `r` has the number `first_message + r`.
    pub first_message: u32,
    /// Record when each step began and ended: 24 B per step and rank.
    pub keeps_steps: bool,
}

impl ScriptedJob {
    /// The script of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn script(&self, rank: u32) -> &Script {
        &self.scripts[self.roles[rank as usize] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(stream: u8, after: Vec<u32>) -> Step {
        let work = Work::Compute(Span::from_us(1));
        Step { stream, work, after, kind: 0, layer: 0, ends_iteration: false }
    }

    #[test]
    fn a_step_waits_for_earlier_ones_only() {
        let kinds = || vec!["forward".to_string()];
        let steps = vec![step(0, vec![]), step(1, vec![0]), step(0, vec![1])];
        let script = Script::new(kinds(), steps).expect("a script");
        assert_eq!(script.streams(), [vec![0, 2], vec![1]]);
        assert_eq!(script.computation(), Span::from_us(2));
        assert_eq!(Script::new(kinds(), vec![step(0, vec![0])]), Err(ScriptError::Forward(0)));
        assert_eq!(Script::new(Vec::new(), vec![step(0, vec![])]), Err(ScriptError::Unknown(0)));
    }

    #[test]
    fn a_graph_knows_who_waits_for_each_step() {
        let kinds = || vec!["forward".to_string()];
        let steps = || vec![step(0, vec![]), step(1, vec![0]), step(0, vec![0, 1]), step(1, vec![])];
        let script = Script::graph(kinds(), steps(), &[(3, 0), (3, 2)]).expect("a script");
        let graph = script.as_graph().expect("a graph");
        assert_eq!(graph.waits, [0, 1, 2, 2]);
        assert_eq!((graph.after_end(0), graph.after_end(1), graph.after_end(2)), (&[1, 2][..], &[2][..], &[][..]));
        assert_eq!((graph.after_begin(0), graph.after_begin(2), graph.after_begin(3)), (&[3][..], &[3][..], &[][..]));
        assert_eq!(Script::graph(kinds(), steps(), &[(1, 1)]), Err(ScriptError::Forward(1)));
        assert_eq!(Script::graph(kinds(), vec![step(FREE, vec![])], &[]), Err(ScriptError::Unknown(0)));
        // Streams are numbered without gaps.
        let idle = Step { work: Work::Compute(Span::ZERO), ..step(FREE, vec![]) };
        let script = Script::graph(kinds(), vec![step(14, vec![]), step(253, vec![]), idle], &[]).expect("a script");
        assert_eq!(script.streams(), [vec![], vec![0], vec![1], vec![2]]);
        assert!(script.is_free(3) && !script.is_free(2));
    }
}

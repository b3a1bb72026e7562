//! What the ranks of a training job do, step by step: they compute, and they take part in collectives.
//!
//! A [`Script`] is one iteration after the other, written out. A step belongs to a *stream*, which does one step at a time and keeps their
//! order, as CUDA streams do; and it may wait for steps of other streams. All ranks of one role share a script.

use crate::server::{Local, Team};
use std::fmt;
use std::ops::Range;
use strandway_proto::HostId;
use strandway_proto::units::{Span, Time};

/// The stream whose steps compute. Others carry collectives.
pub const COMPUTE: u8 = 0;

/// Streams of a rank at the most: ours.
pub const STREAMS_MAX: u8 = 16;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Computes for this long, before noise and stragglers.
    Compute(Span),
    /// Takes part in the rank's operation of this place ([`ScriptedJob::operations`]). It ends when the rank has everything.
    Operation(u32),
}

/// A step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The stream that it belongs to, below [`STREAMS_MAX`].
    pub stream: u8,
    /// What it does.
    pub work: Work,
    /// The steps that must have ended before it begins, beside those before it in its stream: their places in the script.
    pub after: Vec<u32>,
    /// Its kind: a place in [`Script::kinds`].
    pub kind: u8,
    /// The layer or the like that it is for, for people.
    pub layer: u32,
    /// An iteration ends with it.
    pub ends_iteration: bool,
}

/// The steps of one role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    steps: Vec<Step>,
    kinds: Vec<String>,
    /// Stream by stream: its steps, in order.
    streams: Vec<Vec<u32>>,
}

/// Why steps are no script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptError {
    /// This step's stream or kind is not there.
    Unknown(u32),
    /// This step waits for itself or for a step that is written behind it: such waits could go in circles.
    Forward(u32),
    /// More steps than four billion.
    TooMany,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScriptError::Unknown(step) => write!(f, "step {step} has a stream or a kind that is not there"),
            ScriptError::Forward(step) => write!(f, "step {step} waits for a step that is not before it"),
            ScriptError::TooMany => f.write_str("a script of more than four billion steps"),
        }
    }
}

impl std::error::Error for ScriptError {}

impl Script {
    /// These steps, of these kinds.
    ///
    /// # Errors
    /// If a step names a stream, a kind or an earlier step that is not there. What is accepted always comes to its end, since every step
    /// waits for earlier ones only.
    pub fn new(kinds: Vec<String>, steps: Vec<Step>) -> Result<Script, ScriptError> {
        let mut streams: Vec<Vec<u32>> = Vec::new();
        if u32::try_from(steps.len()).is_err() {
            return Err(ScriptError::TooMany);
        }
        for (place, step) in (0u32..).zip(&steps) {
            if step.stream >= STREAMS_MAX || usize::from(step.kind) >= kinds.len() {
                return Err(ScriptError::Unknown(place));
            }
            if step.after.iter().any(|&before| before >= place) {
                return Err(ScriptError::Forward(place));
            }
            let stream = usize::from(step.stream);
            streams.resize(streams.len().max(stream + 1), Vec::new());
            streams[stream].push(place);
        }
        Ok(Script { steps, kinds, streams })
    }

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The names of the kinds of steps.
    pub fn kinds(&self) -> &[String] {
        &self.kinds
    }

    /// The steps of each stream, in order.
    pub fn streams(&self) -> &[Vec<u32>] {
        &self.streams
    }

    /// How long all steps of the compute stream take, before noise and stragglers.
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

/// A collective that a rank takes part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// One of messages.
    Messages {
        /// Its place among the run's [`Group`](crate::Group)s.
        group: u32,
        /// The rank in it.
        rank: u32,
    },
    /// One by multicast.
    Multicast {
        /// Its place among the run's [`Multicast`](crate::Multicast)s.
        multicast: u32,
        /// The rank in it.
        rank: u32,
    },
    /// One that a program of one's own executes.
    Own {
        /// Its number, as the maker of such programs knows it.
        number: u16,
        /// The rank in it.
        rank: u32,
    },
    /// Sends a message. It ends when the receiver has acknowledged it.
    Send {
        /// The pipe's place among the run's [`Pipe`](crate::Pipe)s.
        pipe: u32,
        /// The message's place in the pipe.
        index: u32,
    },
    /// Waits for a message.
    Receive {
        /// The pipe's place among the run's [`Pipe`](crate::Pipe)s.
        pipe: u32,
        /// The message's place in the pipe.
        index: u32,
    },
    /// Exchanges data with the ranks of its server, and may take part in a collective of messages meanwhile.
    Inside {
        /// A place in [`ScriptedJob::locals`].
        local: u32,
        /// A collective's place among the run's [`Group`](crate::Group)s, and the rank in it.
        messages: Option<(u32, u32)>,
    },
}

impl Operation {
    /// The collective of messages that it takes part in, and the rank in it.
    pub fn group(&self) -> Option<(u32, u32)> {
        match *self {
            Operation::Messages { group, rank } => Some((group, rank)),
            Operation::Inside { messages, .. } => messages,
            _ => None,
        }
    }
}

/// A training job, placed on hosts.
///
/// Ranks begin an operation when their script says so, not at the instant that the operation's own plan has.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedJob {
    /// Its number in the run.
    pub number: u32,
    /// The scripts of all roles.
    pub scripts: Vec<Script>,
    /// The role of each rank: a place in `scripts`.
    pub roles: Vec<u32>,
    /// The host of each rank.
    pub hosts: Vec<HostId>,
    /// The operations of each rank, in the order in which scripts count them.
    pub operations: Vec<Vec<Operation>>,
    /// Ranks that share a server, and what they do inside it.
    pub teams: Vec<Team>,
    /// What teams do.
    pub locals: Vec<Local>,
    /// The GPU of each rank, as its server counts them; empty where there are no teams.
    pub seats: Vec<u16>,
    /// How long a signal between ranks of a server takes: at least the shortest latency of the fabric's links.
    pub signal_latency: Span,
    /// What the first of `locals` is called in signals; others follow. Unique in the run.
    pub first_word: u32,
    /// The order of signals of seat 0 ([`Action::Signal`](strandway_proto::application::Action::Signal)).
    pub first_order: u32,
    /// When it begins.
    pub start: Time,
    /// A rank's computation of an iteration takes longer by a random share of up to this.
    pub stragglers: f64,
    /// Each step's time has this relative standard deviation.
    pub noise: f64,
    /// Every random stream derives from this.
    pub seed: u64,
    /// The number that rank 0's part has among the run's messages. Others follow.
    pub first_message: u32,
    /// Keep when each step began and ended: 24 B per step and rank.
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

    /// The numbers of all ranks' parts.
    pub fn messages(&self) -> Range<u32> {
        self.first_message..self.first_message + self.hosts.len() as u32
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
        assert_eq!(Script::new(kinds(), vec![step(16, vec![])]), Err(ScriptError::Unknown(0)));
        assert_eq!(Script::new(Vec::new(), vec![step(0, vec![])]), Err(ScriptError::Unknown(0)));
    }
}

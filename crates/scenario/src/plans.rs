//! Plans of messages, collectives and jobs: the part of an experiment that reports have entries for.

use std::ops::Range;
use strandway_collective::Collective;
use strandway_proto::units::Span;
use strandway_serving::Service;

/// One message of the workload: `pieces` consecutive flows of the plan, starting at `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Index of its first flow in the plan.
    pub first: u32,
    /// The number of flows that it is striped over.
    pub pieces: u32,
    /// Index of its class in [`crate::Experiment::classes`].
    pub class: u16,
    /// Its number in an imported matrix.
    pub id: Option<u32>,
    /// Its bytes, all pieces together.
    pub bytes: u64,
}

/// One collective of a run. Reports have an entry for each.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectivePlan {
    /// The name of its workload. With several groups, followed by a slash and the group's number.
    pub name: String,
    /// The group's number, if there are several.
    pub group: Option<u32>,
    /// The collective.
    pub kind: Collective,
    /// The algorithm: `ring`, `multicast` and so on.
    pub algorithm: String,
    /// Number of ranks.
    pub ranks: u32,
    /// Bytes as nccl-tests counts them.
    pub bytes: u64,
    /// Its index in [`crate::Experiment::operations`]; of a group of a collective on servers, the index of the job that
    /// runs it. `None` for flows of the plan that wait for each other.
    pub operation: Option<usize>,
    /// `contiguous`, `random` or the name of a file.
    pub placement: String,
    /// Index of its class in [`crate::Experiment::classes`].
    pub class: u16,
    /// Its messages: a range of [`crate::Experiment::messages`], empty if they have no entries there.
    pub messages: Range<usize>,
    /// True if its messages have no entry each; they are counted, and a histogram holds their times.
    pub tallied: bool,
    /// Lower bound of its time, on a fabric without queues.
    pub bound: Span,
    /// The training job that begins it: an index into [`crate::Experiment::jobs`].
    pub job: Option<u32>,
}

/// The collectives of one kind in a recording: the kind of step, their mean time in us, and their number.
pub type RecordedTime = (String, f64, u64);

/// The facts about a job that a report needs, besides its script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobPlan {
    /// Its workload's name; with several groups `NAME/0`, `NAME/1`, ...
    pub name: String,
    /// Its index in [`crate::Experiment::operations`].
    pub operation: usize,
    /// Its collectives by kind of step: the kind, and their indices in [`crate::Experiment::collectives`].
    pub operations: Vec<(String, Vec<usize>)>,
    /// Its collectives among ranks that share servers, each with its rails and the links inside servers.
    pub wholes: Vec<WholePlan>,
    /// Lower bound of the job's time: the time of its computation, or of the traffic of one NIC.
    pub bound: Span,
    /// About how long it takes if nothing of it overlaps.
    pub longest: Span,
    /// Floating-point operations that the model needs per iteration and GPU; 0 if nothing is known of a model.
    pub flops: f64,
    /// Peak rate of a GPU, floating-point operations per second.
    pub peak: f64,
    /// Tokens of an iteration.
    pub tokens: u64,
    /// If it replays a recording: the time of the recorded run in us, and the mean time of its collectives by kind of
    /// step, and their number.
    pub recorded: Option<(f64, Vec<RecordedTime>)>,
    /// If it is a collective workload on servers, which reports show among the collectives: the ranks of each of its
    /// groups. 0 for a job.
    pub groups_of: u32,
}

/// A collective of a job among ranks that share servers, as nccl-tests counts it: all ranks, and the whole buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct WholePlan {
    /// Its kind of step.
    pub label: &'static str,
    /// The collective.
    pub kind: Collective,
    /// Its algorithm between servers, with the number of rails.
    pub algorithm: String,
    /// Number of ranks.
    pub ranks: u32,
    /// The number of ranks for which each of them stands.
    pub each: u32,
    /// Bytes as nccl-tests counts them.
    pub bytes: u64,
    /// Lower bound of its time.
    pub bound: Span,
    /// Its part inside each server: indices in [`strandway_collective::ScriptedJob::locals`].
    pub locals: Range<u32>,
}

/// A service of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct ServicePlan {
    /// The service.
    pub service: Service,
    /// How long it takes if every replica computes one request after the other.
    pub longest: Span,
}

//! Training jobs: the time of iterations, and how the time of ranks is divided.

use crate::grid::{ALWAYS, Grid};
use crate::numbers::{bytes, count, percent, us};
use crate::parts::{LaneFacts, PartFacts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Column heads of the table of jobs.
pub(crate) const HEAD: [&str; 6] = ["job", "ranks", "iteration", "lower bound", "computing", "not computing"];

/// Column heads of the table of the parts of an iteration.
pub(crate) const PARTS_HEAD: [&str; 3] = ["where the iteration went", "mean of ranks", "share"];

/// Column heads of the table of the jobs' collectives.
pub(crate) const OPERATIONS_HEAD: [&str; 6] =
    ["collectives of the job", "times", "mean time", "longest", "bus bandwidth", "exposed"];

/// A training job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobFacts {
    /// Its workload's name; with several groups `NAME/0`, `NAME/1`, ...
    pub name: String,
    /// How many ranks it has.
    pub ranks: u32,
    /// Iterations of its script.
    pub iterations: u32,
    /// Iterations that all ranks have ended.
    pub iterations_ended: u32,
    /// Time from the start of the first rank until the last rank ended the last iteration; absent if it did not.
    pub time_us: Option<f64>,
    /// Mean time of an iteration. It lasts from the end of the previous iteration (or the start of the job) at the last
    /// rank until its own end at the last rank.
    pub iteration_us: Option<f64>,
    /// Time of the longest iteration.
    pub iteration_max_us: Option<f64>,
    /// Lower bound of the time of an iteration, by arithmetic: its computation, or the traffic of one of a rank's
    /// streams.
    pub bound_us: f64,
    /// Compute time of a rank per iteration, mean over ranks.
    pub computed_us: f64,
    /// The share of ranks' time, from the start of the job to its end, in which they did not compute: the bubble.
    pub bubble: f64,
    /// The waiting time of ranks, by the kind of step that they waited for.
    pub exposed: Vec<ExposedFacts>,
    /// The parts of an iteration's time: computation, exposed communication by group, bubbles and waiting. Shares add
    /// up to 1.
    pub parts: Vec<PartFacts>,
    /// Model FLOPs utilisation: the floating-point operations that the model needs per iteration, divided by those that
    /// the GPUs could do at their peak; absent if the model is not known.
    pub mfu: Option<f64>,
    /// Tokens per second of all ranks together; absent if the model is not known.
    pub tokens_per_second: Option<f64>,
    /// Time of an iteration divided by its time with only this job on the fabric; absent unless requested.
    pub slowdown: Option<f64>,
    /// If it replays a recording: the time of the recorded run, from the first call to the last end.
    pub recorded_us: Option<f64>,
    /// Its collectives by kind.
    pub operations: Vec<OperationFacts>,
    /// Its collectives among ranks that share servers, by kind, as nccl-tests counts them: the whole buffer and all
    /// ranks, whose messages on each rail are among `operations`. Without times if there were too many steps to keep
    /// theirs.
    pub on_servers: Vec<OperationFacts>,
    /// The steps of the last iteration, at the rank that ended last; empty if there were too many steps to record.
    pub timeline: Vec<TimelineFacts>,
    /// When the iteration of `timeline` and `lanes` began, in us since the run began.
    pub timeline_from_us: f64,
    /// The activities of some ranks in that iteration, the slowest one among them; empty without time series
    /// (`run.sample`, or a page), and if there were too many steps to keep their times.
    pub lanes: Vec<LaneFacts>,
}

/// Time in which the compute stream waited.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExposedFacts {
    /// The kind of step that it waited for, such as `all-gather`.
    pub name: String,
    /// Time per iteration, mean over ranks.
    pub us: f64,
    /// The share of ranks' time.
    pub share: f64,
}

/// Collectives of one kind of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OperationFacts {
    /// The kind, such as `all-gather`.
    pub name: String,
    /// `ring`, `multicast` and so on.
    pub algorithm: String,
    /// Number of them.
    pub count: u64,
    /// Number of them that every rank has ended.
    pub ended: u64,
    /// Mean number of bytes of one, counted as in nccl-tests.
    pub bytes: u64,
    /// Mean time of those that ended. The time lasts from the start of the first rank until the last rank had
    /// everything.
    pub time_us: Option<f64>,
    /// Mean time of the same collectives in the recorded run that the job replays.
    pub recorded_us: Option<f64>,
    /// Time of the longest one.
    pub time_max_us: Option<f64>,
    /// Mean lower bound of their times, by arithmetic.
    pub bound_us: f64,
    /// Bus bandwidth, as nccl-tests defines it, in 10^9 bytes per second: the sum of the bytes of all that ended, each
    /// times the factor of its kind and number of ranks, divided by the sum of their times.
    #[serde(rename = "busbw_GBps")]
    pub busbw: Option<f64>,
    /// Bus bandwidth at the lower bound of the time, in 10^9 bytes per second.
    #[serde(rename = "bound_busbw_GBps")]
    pub bound_busbw: Option<f64>,
    /// Mean part of the time until the last rank was ready for it; absent for messages between two ranks, and if there
    /// were too many steps to keep their times.
    pub late_us: Option<f64>,
    /// Time of its messages by cause, as shares that add up to 1: `line`, queues (`collision`, `slow_link`, `incast`,
    /// `fabric`), `window`, `recovery`, `timeout`, `paused`, `propagation`; absent without accounts (`run.why`).
    pub shares: BTreeMap<String, Option<f64>>,
    /// The link at which its packets waited, if one stands out.
    pub link: Option<String>,
    /// Why it took longer than its lower bound, in words; empty if it did not.
    pub why: String,
}

/// A step of a rank.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TimelineFacts {
    /// 0 is the compute stream; the others carry collectives.
    pub stream: u8,
    /// Its kind, such as `forward`.
    pub kind: String,
    /// Its layer.
    pub layer: u32,
    /// When it began, in us since the iteration began.
    pub from_us: f64,
    /// When it ended, in us since the iteration began.
    pub until_us: f64,
}

impl TimelineFacts {
    /// The number of the compute stream.
    pub const COMPUTE: u8 = 0;
}

/// The rows of the table of jobs.
pub(crate) fn rows(jobs: &[&JobFacts]) -> Vec<[String; 6]> {
    let row = |job: &&JobFacts| {
        let iteration = match job.iteration_us {
            None => format!("{} of {} ended", count(job.iterations_ended.into()), count(job.iterations.into())),
            time => us(time),
        };
        let bound = us(Some(job.bound_us));
        [job.name.clone(), count(job.ranks.into()), iteration, bound, us(Some(job.computed_us)), percent(job.bubble)]
    };
    jobs.iter().map(row).collect()
}

/// The rows of the table of the jobs' collectives.
pub(crate) fn operation_rows(jobs: &[&JobFacts]) -> Vec<[String; 6]> {
    let of = |job: &&JobFacts| -> Vec<[String; 6]> {
        let row = |operation: &OperationFacts| {
            let exposed = job.exposed.iter().find(|exposed| exposed.name == operation.name).map_or(0.0, |e| e.us);
            let times = match operation.ended == operation.count {
                true => count(operation.count),
                false => format!("{} of {} ended", count(operation.ended), count(operation.count)),
            };
            [
                format!("{}: {}, {}, {}", job.name, operation.name, operation.algorithm, bytes(operation.bytes)),
                times,
                us(operation.time_us),
                us(operation.time_max_us),
                match (operation.busbw, operation.bound_busbw) {
                    (Some(rate), Some(most)) => format!("{rate:.2} of {most:.2} GB/s"),
                    (Some(rate), None) => format!("{rate:.2} GB/s"),
                    _ => "–".to_string(),
                },
                us(Some(exposed)),
            ]
        };
        // A kind with a row of its messages has its exposed time there.
        let whole = |operation: &OperationFacts| {
            let mut row = row(operation);
            if job.operations.iter().any(|other| other.name == operation.name) {
                row[5] = "–".to_string();
            }
            row
        };
        job.operations.iter().map(row).chain(job.on_servers.iter().map(whole)).collect()
    };
    jobs.iter().flat_map(of).collect()
}

/// Column heads of the table of predictions beside recorded times.
pub(crate) const RECORDED_HEAD: [&str; 5] = ["replayed", "times", "recorded", "predicted", "predicted / recorded"];

/// The rows of that table; none if no job replays a recording.
pub(crate) fn recorded_rows(jobs: &[&JobFacts]) -> Vec<[String; 5]> {
    let ratio = |predicted: Option<f64>, recorded: f64| match predicted.filter(|_| recorded > 0.0) {
        Some(predicted) => format!("{:.2}", predicted / recorded),
        None => "–".to_string(),
    };
    let row = |name: String, times: u64, recorded: f64, predicted: Option<f64>| {
        [name, count(times), us(Some(recorded)), us(predicted), ratio(predicted, recorded)]
    };
    let of = |job: &&JobFacts| -> Vec<[String; 5]> {
        let whole = job.recorded_us.map(|recorded| row(job.name.clone(), 1, recorded, job.time_us));
        let each = job.operations.iter().filter_map(|operation| {
            let name = format!("{}: {}, {}", job.name, operation.name, bytes(operation.bytes));
            Some(row(name, operation.count, operation.recorded_us?, operation.time_us))
        });
        whole.into_iter().chain(each).collect()
    };
    jobs.iter().flat_map(of).collect()
}

/// For each kind of collective a sentence that says why it takes longer than it must.
pub(crate) fn below_lines(jobs: &[&JobFacts]) -> Vec<String> {
    let of = |job: &&JobFacts| -> Vec<String> {
        let told = job.operations.iter().filter(|operation| !operation.why.is_empty());
        told.map(|operation| format!("{}: {}", job.name, operation.why)).collect()
    };
    jobs.iter().flat_map(of).collect()
}

/// The rows of the table of the parts of an iteration.
pub(crate) fn part_rows(jobs: &[&JobFacts]) -> Vec<[String; 3]> {
    let of = |job: &&JobFacts| -> Vec<[String; 3]> {
        let told = job.parts.iter().filter_map(|part| Some((part, part.us?, part.share?)));
        told.filter(|(_, time, _)| *time > 0.0)
            .map(|(part, time, share)| [format!("{}: {}", job.name, part.summary()), us(Some(time)), percent(share)])
            .collect()
    };
    jobs.iter().flat_map(of).collect()
}

/// A sentence about the results of a job with a model, with its slowdown by other jobs.
pub(crate) fn summary(job: &JobFacts) -> Option<String> {
    let reached = job.mfu.zip(job.tokens_per_second).map(|(mfu, tokens)| {
        format!("{} of the GPUs' peak (MFU), {} tokens per second", percent(mfu), count(tokens.round() as u64))
    });
    let slowed = job.slowdown.map(|times| format!("{times:.3} times as long as alone"));
    let all: Vec<String> = reached.into_iter().chain(slowed).collect();
    (!all.is_empty()).then(|| format!("{}: {}", job.name, all.join("; ")))
}

/// Limit on the jobs that a terminal or a page shows. JSON has all of them.
const SHOWN: usize = 16;

/// The jobs to show: all, or the slowest ones if there are more than the limit.
pub(crate) fn shown(jobs: &[JobFacts]) -> Vec<&JobFacts> {
    let mut shown: Vec<&JobFacts> = jobs.iter().collect();
    if shown.len() > SHOWN {
        let time = |job: &JobFacts| job.iteration_us.unwrap_or(f64::INFINITY);
        shown.sort_by(|a, b| time(b).total_cmp(&time(a)));
        shown.truncate(SHOWN);
    }
    shown
}

/// The jobs, as tables for a terminal of `width` characters.
pub(crate) fn table(jobs: &[JobFacts], width: Option<usize>) -> String {
    let shown = shown(jobs);
    let (mut first, mut second, mut third) = (Grid::default(), Grid::default(), Grid::default());
    for head in PARTS_HEAD {
        third.column(head, ALWAYS, head != PARTS_HEAD[0]);
    }
    let parts = part_rows(&shown);
    let any = !parts.is_empty();
    parts.into_iter().for_each(|row| third.row(row));
    for (head, rank) in HEAD.iter().zip([ALWAYS, 3, ALWAYS, 2, 1, ALWAYS]) {
        first.column(*head, rank, rank != ALWAYS || *head != "job");
    }
    for (head, rank) in OPERATIONS_HEAD.iter().zip([ALWAYS, 3, ALWAYS, 2, 1, ALWAYS]) {
        second.column(*head, rank, !head.starts_with("collectives"));
    }
    rows(&shown).into_iter().for_each(|row| first.row(row));
    operation_rows(&shown).into_iter().for_each(|row| second.row(row));
    let mut recorded = Grid::default();
    for (head, rank) in RECORDED_HEAD.iter().zip([ALWAYS, 3, ALWAYS, ALWAYS, ALWAYS]) {
        recorded.column(*head, rank, *head != RECORDED_HEAD[0]);
    }
    let replayed = recorded_rows(&shown);
    let any_recorded = !replayed.is_empty();
    replayed.into_iter().for_each(|row| recorded.row(row));
    let recorded = if any_recorded { recorded.text(width) } else { String::new() };
    let more = match jobs.len() - shown.len() {
        0 => String::new(),
        more => format!("the slowest of them; {more} more jobs are in the JSON report\n"),
    };
    let parts = if any { third.text(width) } else { String::new() };
    let more = shown.iter().filter_map(|job| summary(job)).fold(more, |more, line| more + &line + "\n");
    let why: String = below_lines(&shown).iter().map(|line| format!("{line}\n")).collect();
    format!("{}{more}{parts}{}{recorded}{why}", first.text(width), second.text(width))
}

/// The streams of a timeline, in order.
pub(crate) fn streams(job: &JobFacts) -> Vec<u8> {
    let mut streams: Vec<u8> = job.timeline.iter().map(|step| step.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    streams
}

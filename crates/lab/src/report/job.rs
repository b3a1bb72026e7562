//! Training jobs: the time of iterations, and how the time of ranks is divided.

use super::collective_causes;
use super::parts::{self, LaneFacts, PartFacts};
use super::text::grid::{ALWAYS, Grid};
use super::text::{bytes, count, percent, us};
use crate::plan::{CollectivePlan, Execution, Experiment, JobPlan, WholePlan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use strandway_collective::script::COMPUTE;
use strandway_collective::{Operation, ScriptedJob, Work, bandwidth};
use strandway_fabric::Measurements;
use strandway_fabric::tally::Histogram;
use strandway_proto::RankTimes;
use strandway_proto::units::{Bytes, Span, Time};

/// Limit on the steps of a timeline: ours.
const TIMELINE_MAX: usize = 2000;

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

/// All jobs of a run. `alone` has the time of each job's iterations when it runs alone, if that was requested.
pub(super) fn facts(experiment: &Experiment, measured: &Measurements, alone: &[Option<f64>]) -> Vec<JobFacts> {
    let of = |(plan, job): (&JobPlan, &ScriptedJob)| {
        let ranks: Vec<&RankTimes> = measured.ranks.iter().filter(|rank| rank.job == job.number).collect();
        one(experiment, measured, plan, job, &ranks)
    };
    let all = experiment.jobs.iter().zip(&experiment.scripted).enumerate();
    // Collectives on servers are among the collectives of the report.
    let jobs = all.filter(|(_, (plan, _))| plan.groups_of == 0).map(|(place, both)| {
        let mut job = of(both);
        let alone = alone.get(place).copied().flatten();
        job.slowdown = job.iteration_us.zip(alone).map(|(beside, alone)| beside / alone);
        job
    });
    jobs.collect()
}

fn one(
    experiment: &Experiment,
    measured: &Measurements,
    plan: &JobPlan,
    job: &ScriptedJob,
    ranks: &[&RankTimes],
) -> JobFacts {
    let script = job.script(0);
    let iterations = script.iterations();
    let ended = ranks.iter().map(|rank| rank.iterations.len() as u32).min().unwrap_or(0);
    // An iteration ends when the last rank has ended it.
    let end = |iteration: u32| ranks.iter().filter_map(|rank| rank.iterations.get(iteration as usize)).max().copied();
    let ends: Vec<Time> = (0..ended).filter_map(end).collect();
    let begun = ranks.iter().filter_map(|rank| rank.begun).min();
    let begins = begun.into_iter().chain(ends.iter().copied());
    let lengths: Vec<f64> = begins.zip(&ends).map(|(begin, end)| end.since(begin).as_us()).collect();
    let computed: f64 = ranks.iter().map(|rank| rank.computed.as_us()).sum();
    let waited =
        |kind: usize| -> f64 { ranks.iter().filter_map(|rank| rank.waited.get(kind)).map(|w| w.as_us()).sum() };
    let kinds = script.kinds();
    let all_waited: f64 = (0..kinds.len()).map(waited).sum();
    let all = computed + all_waited;
    let share = |part: f64| if all > 0.0 { part / all } else { 0.0 };
    let per = f64::from(ended.max(1)) * ranks.len().max(1) as f64;
    let iteration_us = (!lengths.is_empty()).then(|| lengths.iter().sum::<f64>() / lengths.len() as f64);
    let seconds = iteration_us.filter(|_| plan.flops > 0.0).map(|us| us / 1e6);
    let exposed = kinds.iter().enumerate().filter(|(kind, _)| waited(*kind) > 0.0);
    JobFacts {
        name: plan.name.clone(),
        ranks: job.hosts.len() as u32,
        iterations,
        iterations_ended: ended,
        time_us: begun.zip(ends.last().filter(|_| ended == iterations)).map(|(begin, end)| end.since(begin).as_us()),
        iteration_us,
        parts: parts::facts(job, ranks, ended),
        mfu: seconds.map(|seconds| plan.flops / plan.peak / seconds),
        tokens_per_second: seconds.map(|seconds| plan.tokens as f64 / seconds),
        slowdown: None,
        iteration_max_us: lengths.iter().copied().max_by(f64::total_cmp),
        bound_us: plan.bound.as_us() / f64::from(iterations.max(1)),
        computed_us: computed / per,
        bubble: match begun.zip(ends.last().filter(|_| ended == iterations)) {
            // Ranks that end early wait for the others.
            Some((begun, end)) if *end > begun => {
                (1.0 - computed / (end.since(begun).as_us() * ranks.len() as f64)).max(0.0)
            }
            _ => share(all_waited),
        },
        exposed: exposed
            .map(|(kind, name)| ExposedFacts { name: name.clone(), us: waited(kind) / per, share: share(waited(kind)) })
            .collect(),
        operations: {
            let ready = parts::ready(job, ranks);
            let of = |(kind, places): &(String, Vec<usize>)| {
                let mut facts = operations(experiment, measured, kind, places);
                collective_causes::explain(experiment, measured, places, &ready, &mut facts);
                facts
            };
            plan.operations.iter().map(of).collect()
        },
        on_servers: on_servers(plan, job, ranks),
        timeline: timeline(job, ranks),
        timeline_from_us: drawn(ranks).map_or(0.0, |(_, begin)| begin.as_us()),
        lanes: match drawn(ranks).filter(|_| experiment.plan.sample_every.is_some()) {
            Some((slowest, begin)) => parts::lanes(job, ranks, begin, slowest.rank),
            None => Vec::new(),
        },
    }
}

/// All messages of one kind between ranks.
fn transfers(
    experiment: &Experiment,
    measured: &Measurements,
    kind: &str,
    plans: &[&CollectivePlan],
) -> OperationFacts {
    let mut completion = Histogram::default();
    let (mut count, mut ended) = (0, 0);
    for plan in plans {
        count += experiment.messages_of(plan);
        if let Some(tally) = experiment.tally_of(plan, measured) {
            ended += tally.finished;
            completion.merge(&tally.completion);
        }
    }
    let bytes = plans.first().map_or(0, |plan| plan.bytes);
    let mean = completion.mean().map(|ps| ps / 1e6);
    let bound_us = plans.iter().map(|plan| plan.bound.as_us()).sum::<f64>() / plans.len().max(1) as f64;
    OperationFacts {
        name: kind.to_string(),
        algorithm: "messages".to_string(),
        count,
        ended,
        bytes,
        time_us: mean,
        time_max_us: completion.max().map(Span::as_us),
        bound_us,
        busbw: mean.map(|us| bytes as f64 / us / 1e3),
        bound_busbw: (bound_us > 0.0).then(|| bytes as f64 / bound_us / 1e3),
        ..OperationFacts::default()
    }
}

/// All collectives of one kind.
fn operations(experiment: &Experiment, measured: &Measurements, kind: &str, places: &[usize]) -> OperationFacts {
    let plans: Vec<&CollectivePlan> = places.iter().map(|&place| &experiment.collectives[place]).collect();
    if plans.first().is_some_and(|plan| matches!(plan.execution, Execution::Pipe(_))) {
        return transfers(experiment, measured, kind, &plans);
    }
    let time = |plan: &&CollectivePlan| -> Option<Span> {
        let tally = experiment.tally_of(plan, measured)?;
        (tally.received == experiment.messages_of(plan)).then(|| Some(tally.last?.since(tally.first?))).flatten()
    };
    let times: Vec<f64> = plans.iter().filter_map(time).map(|span| span.as_us()).collect();
    let count = plans.len() as u64;
    let mean = (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64);
    let size = plans.iter().map(|plan| plan.bytes).sum::<u64>() / count.max(1);
    let bound_us = plans.iter().map(|plan| plan.bound.as_us()).sum::<f64>() / count.max(1) as f64;
    // Groups of several sizes and several kinds may share a row: each collective counts with its own factor.
    let bus_bytes = |plan: &&&CollectivePlan| {
        bandwidth(plan.kind, plan.ranks, Bytes(plan.bytes), Span::from_us(1)).map_or(0.0, |rates| rates.bus * 1e3)
    };
    let ended_bytes: f64 = plans.iter().filter(|plan| time(plan).is_some()).map(|plan| bus_bytes(&plan)).sum();
    let all_bytes: f64 = plans.iter().map(|plan| bus_bytes(&plan)).sum();
    let bus = |bytes: f64, us: f64| (us > 0.0).then(|| bytes / us / 1e3);
    let bound_sum = plans.iter().map(|plan| plan.bound.as_us()).sum::<f64>();
    OperationFacts {
        name: kind.to_string(),
        algorithm: plans.first().map_or_else(String::new, |plan| plan.algorithm.clone()),
        count,
        ended: times.len() as u64,
        bytes: size,
        time_us: mean,
        time_max_us: times.iter().copied().max_by(f64::total_cmp),
        bound_us,
        busbw: bus(ended_bytes, times.iter().sum()),
        bound_busbw: bus(all_bytes, bound_sum),
        ..OperationFacts::default()
    }
}

/// The collectives among ranks that share servers, by kind. A collective lasts from its begin at the first rank until its
/// end at the last one.
fn on_servers(plan: &JobPlan, job: &ScriptedJob, ranks: &[&RankTimes]) -> Vec<OperationFacts> {
    // By place in the list: ranks that have ended it, its begin and its end.
    let mut times: Vec<(u32, Time, Time)> = vec![(0, Time::NEVER, Time::ZERO); plan.wholes.len()];
    for rank in ranks {
        let (script, mine) = (job.script(rank.rank), &job.operations[rank.rank as usize]);
        for kept in rank.steps.iter().filter(|kept| kept.ended != Time::NEVER) {
            let Work::Operation(place) = script.steps()[kept.step as usize].work else { continue };
            let Operation::Inside { local, .. } = mine[place as usize] else { continue };
            let at = plan.wholes.partition_point(|whole| whole.locals.end <= local);
            if plan.wholes.get(at).is_some_and(|whole| whole.locals.contains(&local)) {
                let (ended, begin, end) = &mut times[at];
                (*ended, *begin, *end) = (*ended + 1, kept.begun.min(*begin), kept.ended.max(*end));
            }
        }
    }
    let mut labels: Vec<&str> = Vec::new();
    for whole in &plan.wholes {
        if !labels.contains(&whole.label) {
            labels.push(whole.label);
        }
    }
    let of = |label: &str| {
        let all: Vec<(&WholePlan, Option<f64>)> = plan
            .wholes
            .iter()
            .zip(&times)
            .filter(|(whole, _)| whole.label == label)
            .map(|(whole, (ended, begin, end))| (whole, (*ended == whole.ranks).then(|| end.since(*begin).as_us())))
            .collect();
        let count = all.len() as u64;
        let ended: Vec<f64> = all.iter().filter_map(|(_, time)| *time).collect();
        let sum: f64 = ended.iter().sum();
        let bounds: f64 = all.iter().map(|(whole, _)| whole.bound.as_us()).sum();
        let bus = |plan: &WholePlan| {
            bandwidth(plan.kind, plan.ranks, Bytes(plan.bytes), Span::from_us(1)).map_or(0.0, |rates| rates.bus * 1e3)
        };
        let ended_bytes: f64 = all.iter().filter(|(_, time)| time.is_some()).map(|(plan, _)| bus(plan)).sum();
        let all_bytes: f64 = all.iter().map(|(plan, _)| bus(plan)).sum();
        OperationFacts {
            name: label.to_string(),
            algorithm: all.first().map_or_else(String::new, |(whole, _)| whole.algorithm.clone()),
            count,
            ended: ended.len() as u64,
            bytes: all.iter().map(|(whole, _)| whole.bytes).sum::<u64>() / count.max(1),
            time_us: (!ended.is_empty()).then(|| sum / ended.len() as f64),
            time_max_us: ended.iter().copied().max_by(f64::total_cmp),
            bound_us: bounds / count.max(1) as f64,
            busbw: (sum > 0.0).then(|| ended_bytes / sum / 1e3),
            bound_busbw: (bounds > 0.0).then(|| all_bytes / bounds / 1e3),
            ..OperationFacts::default()
        }
    };
    labels.into_iter().map(of).collect()
}

/// The rank that ended last, and when its last iteration began.
fn drawn<'a>(ranks: &[&'a RankTimes]) -> Option<(&'a RankTimes, Time)> {
    let last = ranks.iter().max_by_key(|rank| (rank.iterations.len(), rank.iterations.last()))?;
    let before = last.iterations.len().checked_sub(2).map(|at| last.iterations[at]);
    Some((last, before.or(last.begun)?))
}

/// The last iteration, at the rank that ended last.
fn timeline(job: &ScriptedJob, ranks: &[&RankTimes]) -> Vec<TimelineFacts> {
    let Some((last, begin)) = drawn(ranks) else { return Vec::new() };
    let script = job.script(last.rank);
    let steps = last.steps.iter().filter(|kept| kept.begun >= begin && kept.ended != Time::NEVER);
    let facts = steps.take(TIMELINE_MAX + 1).map(|kept| {
        let step = &script.steps()[kept.step as usize];
        TimelineFacts {
            stream: step.stream,
            kind: script.kinds()[usize::from(step.kind)].clone(),
            layer: step.layer,
            from_us: kept.begun.since(begin).as_us(),
            until_us: kept.ended.since(begin).as_us(),
        }
    });
    let facts: Vec<TimelineFacts> = facts.collect();
    if facts.len() > TIMELINE_MAX { Vec::new() } else { facts }
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
pub(super) fn table(jobs: &[JobFacts], width: Option<usize>) -> String {
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
    let more = match jobs.len() - shown.len() {
        0 => String::new(),
        more => format!("the slowest of them; {more} more jobs are in the JSON report\n"),
    };
    let parts = if any { third.text(width) } else { String::new() };
    let more = shown.iter().filter_map(|job| summary(job)).fold(more, |more, line| more + &line + "\n");
    let why: String = below_lines(&shown).iter().map(|line| format!("{line}\n")).collect();
    format!("{}{more}{parts}{}{why}", first.text(width), second.text(width))
}

/// The streams of a timeline, in order.
pub(crate) fn streams(job: &JobFacts) -> Vec<u8> {
    let mut streams: Vec<u8> = job.timeline.iter().map(|step| step.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    streams
}

/// True for the compute stream.
pub(crate) fn computes(stream: u8) -> bool {
    stream == COMPUTE
}

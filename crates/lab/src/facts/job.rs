//! Facts of training jobs: the time of iterations, and how the time of ranks is divided.

use super::{collective_causes, parts};
use strandway_collective::script::COMPUTE;
use strandway_collective::{RankOperation, ScriptedJob, Work, bandwidth};
use strandway_fabric::Measurements;
use strandway_fabric::tally::Histogram;
use strandway_proto::RankTimes;
use strandway_proto::units::{Bytes, Span, Time};
use strandway_report::{ExposedFacts, JobFacts, OperationFacts, TimelineFacts};
use strandway_scenario::{CollectivePlan, Experiment, JobPlan, WholePlan};

/// Limit on the steps of a timeline: ours.
const TIMELINE_MAX: usize = 2000;

// Reports know the compute stream by its number.
const _: () = assert!(TimelineFacts::COMPUTE == COMPUTE);

/// All jobs of a run. `alone` has the time of each job's iterations when it runs alone, if that was requested.
pub(super) fn facts(experiment: &Experiment, measured: &Measurements, alone: &[Option<f64>]) -> Vec<JobFacts> {
    let of = |plan: &JobPlan| {
        let job = experiment.script_of(plan);
        let ranks: Vec<&RankTimes> = measured.ranks.iter().filter(|rank| rank.job == job.number).collect();
        one(experiment, measured, plan, job, &ranks)
    };
    let all = experiment.jobs.iter().enumerate();
    // Collectives on servers are among the collectives of the report.
    let jobs = all.filter(|(_, plan)| plan.groups_of == 0).map(|(place, plan)| {
        let mut job = of(plan);
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
        recorded_us: plan.recorded.as_ref().map(|(us, _)| *us),
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
            let recorded = |kind: &str| {
                let (_, all) = plan.recorded.as_ref()?;
                // A barrier has the kind of an all-reduce, in this row and in that of the prediction.
                let mine = all.iter().filter(|(known, ..)| known == kind);
                let (sum, count) =
                    mine.fold((0.0, 0), |(sum, all), (_, mean, count)| (sum + mean * *count as f64, all + count));
                (count > 0).then(|| sum / count as f64)
            };
            let of = |(kind, places): &(String, Vec<usize>)| {
                let mut facts = operations(experiment, measured, kind, places);
                facts.recorded_us = recorded(kind);
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
    if plans.first().and_then(|plan| experiment.operation_of(plan)?.pipe()).is_some() {
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

/// The collectives among ranks that share servers, by kind. A collective lasts from its begin at the first rank until
/// its end at the last one.
fn on_servers(plan: &JobPlan, job: &ScriptedJob, ranks: &[&RankTimes]) -> Vec<OperationFacts> {
    // By place in the list: ranks that have ended it, its begin and its end.
    let mut times: Vec<(u32, Time, Time)> = vec![(0, Time::NEVER, Time::ZERO); plan.wholes.len()];
    for rank in ranks {
        let (script, mine) = (job.script(rank.rank), &job.operations[rank.rank as usize]);
        for kept in rank.steps.iter().filter(|kept| kept.ended != Time::NEVER) {
            let Work::Operation(place) = script.steps()[kept.step as usize].work else { continue };
            let RankOperation::Inside { local, .. } = mine[place as usize] else { continue };
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
            let ranks = plan.ranks * plan.each;
            bandwidth(plan.kind, ranks, Bytes(plan.bytes), Span::from_us(1)).map_or(0.0, |rates| rates.bus * 1e3)
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

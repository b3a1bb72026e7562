//! Facts of collectives.

use super::life::Life;
use strandway_collective::{Operation, ScriptedJob, bandwidth};
use strandway_fabric::Measurements;
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Span, Time};
use strandway_report::CollectiveFacts;
use strandway_scenario::{CollectivePlan, Experiment};

pub(super) fn collectives(experiment: &Experiment, measured: &Measurements, lives: &[Life]) -> Vec<CollectiveFacts> {
    let facts = |plan: &CollectivePlan| {
        let lives = &lives[plan.messages.clone()];
        let tally = experiment.tally_of(plan, measured);
        let messages = experiment.messages_of(plan);
        let received =
            tally.map_or_else(|| lives.iter().filter(|l| l.received.is_some()).count() as u64, |t| t.received);
        let started = tally.map_or_else(|| lives.iter().filter_map(|l| l.started).min(), |t| t.first);
        let last = tally.map_or_else(|| lives.iter().filter_map(|l| l.received).max(), |t| t.last);
        let (received, started, last) = match experiment.operation_of(plan) {
            Some(Operation::Job(job)) => on_servers(experiment, measured, plan, job),
            _ => (received, started, last),
        };
        let last = last.filter(|_| received == messages);
        let time = last.zip(started).map(|(last, first)| last.since(first));
        let rates = time.and_then(|t| bandwidth(plan.kind, plan.ranks, Bytes(plan.bytes), t));
        CollectiveFacts {
            name: plan.name.clone(),
            group: plan.group,
            kind: plan.kind.name().to_string(),
            algorithm: plan.algorithm.clone(),
            placement: plan.placement.clone(),
            ranks: plan.ranks,
            bytes: plan.bytes,
            messages,
            received,
            started_us: started.map(Time::as_us),
            time_us: time.map(Span::as_us),
            bound_us: plan.bound.as_us(),
            algbw: rates.map(|r| r.algorithm),
            busbw: rates.map(|r| r.bus),
        }
    };
    experiment.collectives.iter().filter(|plan| plan.job.is_none()).map(facts).collect()
}

/// Of a group of a collective on servers: the messages between servers that have arrived, the start of its first rank,
/// and the end of its last one.
pub(super) fn on_servers(
    experiment: &Experiment,
    measured: &Measurements,
    plan: &CollectivePlan,
    job: &ScriptedJob,
) -> (u64, Option<Time>, Option<Time>) {
    let rails = experiment.rails(plan).filter_map(|rail| experiment.tally_of(rail, measured));
    let received = rails.map(|tally| tally.received).sum();
    let (size, group) = (plan.ranks, plan.group.unwrap_or(0));
    let mine = || measured.ranks.iter().filter(move |rank| rank.job == job.number && rank.rank / size == group);
    let ends: Option<Vec<Time>> = mine().map(|rank| rank.iterations.last().copied()).collect();
    let all = ends.filter(|ends| ends.len() == size as usize);
    (received, mine().filter_map(|rank| rank.begun).min(), all.and_then(|ends| ends.into_iter().max()))
}

/// Notes on multicasts that were given up, with the silent host, and on those that had to use a chain of ranks.
pub(super) fn deaths(experiment: &Experiment, measured: &Measurements) -> Vec<String> {
    let told = |plan: &CollectivePlan| -> Vec<String> {
        let aborted = experiment.tally_of(plan, measured).map(|tally| &tally.aborted);
        let dead = aborted.into_iter().flatten();
        let tell = |(host, ranks): (&HostId, &u64)| {
            format!("{}: {ranks} of {} ranks gave up, since host{} did not answer", plan.name, plan.ranks, host.0)
        };
        let chained = experiment.tally_of(plan, measured).is_some_and(|tally| tally.chained > 0).then(|| {
            format!(
                "{}: no plane is common to all ranks, so chunks went from rank to rank instead of by multicast",
                plan.name
            )
        });
        dead.map(tell).chain(chained).collect()
    };
    experiment.collectives.iter().flat_map(told).collect()
}

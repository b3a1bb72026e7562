//! Facts of flows: how many there are, the slowest ones, payload and rates.

use super::life::Life;
use super::unlisted::{self, Crowd, Loose};
use std::collections::BTreeSet;
use strandway_collective::Operation;
use strandway_fabric::Measurements;
use strandway_fabric::plan::Start;
use strandway_proto::units::Span;
use strandway_report::spread::spread;
use strandway_report::{FlowFacts, Goodput, SlowFlow, Spread};
use strandway_scenario::{Experiment, Message};

/// Jain's fairness index; `None` without a value.
pub(super) fn jain(rates: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for rate in rates {
        count += 1.0;
        sum += rate;
        squares += rate * rate;
    }
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

pub(super) fn flows(experiment: &Experiment, measured: &Measurements, lives: &[Life], crowd: &Crowd<'_>) -> FlowFacts {
    let pairs = || experiment.messages.iter().zip(lives);
    let loose = crowd.rows();
    let unfinished = pairs().filter(|(_, l)| l.finished.is_none()).map(|(m, _)| experiment.message_name(m));
    let behind = loose.iter().filter(|m| m.life.finished.is_none()).map(Loose::name);
    let unfinished = unfinished.chain(behind).take(100);
    let all = || lives.iter().chain(loose.iter().map(|m| &m.life));
    let mut slowest: Vec<(Span, usize)> = all().enumerate().filter_map(|(i, l)| Some((l.completion()?, i))).collect();
    slowest.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    slowest.truncate(10);
    let rows = slowest.into_iter().map(|(fct, i)| {
        let (name, bytes, life) = match i.checked_sub(lives.len()) {
            None => (experiment.message_name(&experiment.messages[i]), experiment.messages[i].bytes, lives[i]),
            Some(behind) => (loose[behind].name(), loose[behind].bytes, loose[behind].life),
        };
        SlowFlow { name, bytes, start_us: life.started.unwrap_or_default().as_us(), fct_us: fct.as_us() }
    });
    let mut slowest: Vec<SlowFlow> = rows.collect();
    slowest.extend(crowd.slowest());
    slowest.sort_by(|a, b| b.fct_us.total_cmp(&a.fct_us));
    slowest.truncate(10);
    let more = |of: fn(&unlisted::Part<'_>) -> u64| crowd.all().map(of).sum::<u64>();
    FlowFacts {
        total: all().count() as u64 + more(|p| p.total),
        finished: all().filter(|l| l.finished.is_some()).count() as u64 + more(|p| p.finished()),
        never_started: all().filter(|l| l.started.is_none()).count() as u64 + more(|p| p.total - p.started()),
        bytes: experiment.messages.iter().map(|m| m.bytes).chain(loose.iter().map(|m| m.bytes)).sum::<u64>()
            + more(|p| p.bytes),
        delivered_bytes: delivered(experiment, measured),
        unfinished: unfinished.collect(),
        waiting: pairs()
            .filter(|(_, l)| l.started.is_none())
            .filter_map(|(m, _)| waits(experiment, m))
            .take(100)
            .collect(),
        slowest,
    }
}

/// The trigger that a message waits for, if it was never posted and a matrix names the trigger.
pub(super) fn waits(experiment: &Experiment, message: &Message) -> Option<String> {
    let Start::On(trigger, _) = experiment.plan.flows[message.first as usize].start else { return None };
    let name = experiment.trigger_names.get(trigger as usize).filter(|name| !name.is_empty())?;
    Some(format!("{} waits for trigger {name}", experiment.message_name(message)))
}

/// Payload bytes sent onto links. `None` unless the header of every packet has the size of a control packet; otherwise
/// the sum cannot be computed.
pub(super) fn payload_link_bytes(experiment: &Experiment, measured: &Measurements) -> Option<u64> {
    let transports = || experiment.plan.profiles.iter().map(|p| &p.transport);
    let header = u64::from(transports().next()?.header);
    let same = transports().all(|t| u64::from(t.header) == header && u64::from(t.control) == header);
    let trims = experiment.plan.ports.trim.is_none_or(|trim| u64::from(trim.size) == header);
    (same && trims).then(|| measured.links.iter().map(|l| l.bytes - header * l.packets).sum())
}

/// Payload bytes that arrived for the first time. Of multicasts, only the bytes of ranks that have everything.
pub(super) fn delivered(experiment: &Experiment, measured: &Measurements) -> u64 {
    let multicast = experiment.collectives.iter().map(|plan| {
        let complete = experiment.tally_of(plan, measured).map_or(0, |tally| tally.received);
        match experiment.operation_of(plan) {
            Some(Operation::InNetwork(_)) => plan.bytes.saturating_mul(complete),
            Some(Operation::Multicast(multicast)) => {
                (u128::from(multicast.heard()) * u128::from(complete) / u128::from(plan.ranks)) as u64
            }
            _ => 0,
        }
    });
    let connections = measured.connections.iter().chain([&measured.opened.counters]).map(|c| c.delivered_bytes);
    connections.chain(multicast).sum()
}

pub(super) fn goodput(experiment: &Experiment, measured: &Measurements, lives: &[Life], crowd: &Crowd<'_>) -> Goodput {
    let bytes = delivered(experiment, measured);
    let tallies = || measured.tallies.iter().filter(|t| t.started > 0);
    let first =
        lives.iter().filter_map(|l| l.started).chain(tallies().filter_map(|t| t.first)).min().unwrap_or_default();
    let last = if tallies().next().is_none() && lives.iter().all(|l| l.received.is_some()) {
        lives.iter().filter_map(|l| l.received).max().unwrap_or_default()
    } else {
        tallies().filter_map(|t| t.last).max().unwrap_or_default().max(measured.last_arrival)
    };
    let span = last.since(first);
    let total = if span == Span::ZERO { 0.0 } else { bytes as f64 * 8e3 / span.0 as f64 };
    let mut senders: BTreeSet<u32> = experiment.plan.connections.iter().map(|c| c.source.0).collect();
    let all_send = |operation: &&Operation| match operation {
        // Some ranks of a recipe send nothing; the others have connections of the plan.
        Operation::Messages(group) => group.schedule().is_some(),
        Operation::Multicast(_) | Operation::InNetwork(_) => true,
        Operation::Job(_) | Operation::PointToPoint(_) => false,
    };
    let operations = experiment.operations.iter().filter(all_send);
    senders.extend(operations.flat_map(|operation| operation.hosts().iter().map(|host| host.0)));
    let rate =
        |bytes: u64, life: &Life| life.completion().map_or(0.0, |time| bytes as f64 * 8e3 / time.0.max(1) as f64);
    let single = experiment.messages.iter().zip(lives).map(|(m, life)| rate(m.bytes, life));
    let single = single.chain(crowd.rows().iter().map(|m| rate(m.bytes, &m.life)));
    let per_flow = if crowd.is_empty() { spread(single.collect(), 0) } else { Spread::default() };
    Goodput { mean_per_host: total / senders.len().max(1) as f64, total, per_flow }
}

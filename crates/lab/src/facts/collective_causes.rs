//! Why the collectives of a job take longer than their lower bounds.
//!
//! A collective lasts from its first message to its last one. The time until its last rank was ready is *waiting for a
//! rank*. The rest is divided by cause: sending, windows cut by queues (at one link, at the receivers, or all over the
//! fabric), losses, pauses, and the way there and back. The causes come from the accounts of the senders' connections
//! and from the queues that the packets met ([`Tally`]), summed over all collectives of one kind.

use super::capacity::Capacity;
use std::collections::BTreeMap;
use strandway_fabric::tally::{Tally, Waited};
use strandway_fabric::{LinkId, Measurements};
use strandway_proto::account::{Doing, Spent};
use strandway_proto::units::{Bytes, Time};
use strandway_report::OperationFacts;
use strandway_report::numbers::{percent, us};
use strandway_scenario::{CollectivePlan, Experiment};

/// A collective that takes at most this many times its bound needs no reason.
const NEAR: f64 = 1.03;

/// Queues count if the mean of the packets' longest waits is at least this share of the base RTT, as for flows.
const QUEUED: f64 = 0.1;

/// One link stands out if packets waited there for more than this share of all waits inside the fabric.
const STANDS_OUT: f64 = 0.5;

/// All causes of the time of messages.
const CAUSES: [&str; 10] =
    ["line", "collision", "slow_link", "incast", "fabric", "window", "recovery", "timeout", "paused", "propagation"];

/// Fills the reasons of one kind of collective, whose plans have these places. `ready` is the time at which the last
/// rank was ready for each group of messages.
pub(super) fn explain(
    experiment: &Experiment,
    measured: &Measurements,
    places: &[usize],
    ready: &BTreeMap<u32, Time>,
    facts: &mut OperationFacts,
) {
    let plans: Vec<&CollectivePlan> = places.iter().map(|&place| &experiment.collectives[place]).collect();
    let tallies: Vec<(&CollectivePlan, &Tally)> =
        plans.iter().filter_map(|plan| Some((*plan, experiment.tally_of(plan, measured)?))).collect();
    let late = |(plan, tally): &(&CollectivePlan, &Tally)| -> Option<f64> {
        // Ranks of a recipe do different things.
        experiment.operation_of(plan)?.group()?.schedule()?;
        let (first, last) = (tally.first?, *ready.get(&(plan.operation? as u32))?);
        Some(last.since(first.min(last)).as_us())
    };
    let lates: Vec<f64> = tallies.iter().filter_map(late).collect();
    facts.late_us = (!lates.is_empty()).then(|| lates.iter().sum::<f64>() / lates.len() as f64);
    let (mut spent, mut waited) = (Spent::default(), Tally::default());
    for (_, tally) in &tallies {
        spent += tally.spent;
        waited.merge(&Tally { waited: tally.waited.clone(), ..Tally::default() });
    }
    facts.shares = CAUSES.iter().map(|cause| ((*cause).to_string(), None)).collect();
    let Some(found) = causes(experiment, measured, &spent, &waited.waited) else { return };
    for cause in CAUSES {
        facts.shares.insert(cause.to_string(), Some(found.share(cause)));
    }
    facts.link.clone_from(&found.link);
    facts.why = words(facts, &found);
}

/// The causes of the time of some messages.
pub(super) struct Causes {
    shares: [(&'static str, f64); 7],
    /// The link at which their packets waited, if one stands out.
    pub(super) link: Option<String>,
    queued: bool,
}

impl Causes {
    /// The names of all causes.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        CAUSES.into_iter()
    }

    /// The share of the time with this cause.
    pub(super) fn share(&self, cause: &str) -> f64 {
        self.shares.iter().find(|(name, _)| *name == cause).map_or(0.0, |(_, share)| *share)
    }

    /// The three main causes in words, each with its share.
    pub(super) fn words(&self) -> Vec<String> {
        let mut order: Vec<(&str, f64)> = self.shares.iter().copied().filter(|(_, share)| *share >= 0.05).collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        let phrase = |(name, share): (&str, f64)| {
            let link = self.link.as_deref();
            let what = match name {
                "line" => "sending at their NIC's rate".to_string(),
                "collision" => format!("in the queue of {}, where paths collide", link.unwrap_or("one link")),
                "slow_link" => format!("behind the slow link {}", link.unwrap_or_default()),
                "incast" => "in queues at their receivers".to_string(),
                "fabric" if self.queued => "in queues of many links".to_string(),
                "window" => "waiting for their windows".to_string(),
                "recovery" => "sending lost packets again".to_string(),
                "timeout" => "waiting for timeouts after losses".to_string(),
                "paused" => "with their NIC paused".to_string(),
                _ => "on the way there and back".to_string(),
            };
            format!("{} {what}", percent(share).replace(".0 %", " %"))
        };
        order.into_iter().take(3).map(phrase).collect()
    }
}

/// The causes of the time that connections spent on messages whose packets waited like this; `None` without accounts.
pub(super) fn causes(
    experiment: &Experiment,
    measured: &Measurements,
    spent: &Spent,
    waited: &Waited,
) -> Option<Causes> {
    let all = spent.total().0 as f64;
    if all == 0.0 {
        return None;
    }
    let queue = Queue::of(experiment, measured, waited);
    let on = |doing: Doing| spent.on(doing).0 as f64 / all;
    let windows = [Doing::Window, Doing::WindowMarks, Doing::WindowDelay, Doing::WindowLoss].map(on);
    let cut: f64 = windows[1..].iter().sum();
    let (rest, tail) = (windows[0] + on(Doing::Range) + on(Doing::Idle), on(Doing::Tail));
    // With queues, waiting for windows and for acknowledgements is charged to the queues, in the same way as for flows.
    let (queued, window) = match &queue {
        Some(queue) => (cut + rest * queue.share + tail * queue.share, rest * (1.0 - queue.share)),
        None => (0.0, cut + rest),
    };
    let way = tail * (1.0 - queue.as_ref().map_or(0.0, |queue| queue.share));
    let name = queue.as_ref().map_or("fabric", |queue| queue.name);
    let shares = [
        ("line", on(Doing::Line)),
        (name, queued),
        ("window", window),
        ("recovery", on(Doing::Recovery)),
        ("timeout", on(Doing::Timeout)),
        ("paused", on(Doing::Paused)),
        ("propagation", way),
    ];
    let link = queue.as_ref().and_then(|queue| queue.link).map(|link| experiment.plan.topology.link_name(link));
    Some(Causes { shares, link, queued: queue.is_some() })
}

/// The queues that packets met.
struct Queue {
    /// `collision`, `slow_link`, `incast` or `fabric`.
    name: &'static str,
    /// The share of a round trip that was spent in them.
    share: f64,
    link: Option<LinkId>,
}

impl Queue {
    fn of(experiment: &Experiment, measured: &Measurements, waited: &Waited) -> Option<Queue> {
        let plan = &experiment.plan;
        let profile = &plan.profiles[0].transport;
        let full = Bytes(u64::from(profile.mtu) + u64::from(profile.header));
        let way = plan.topology.base_rtt(full, Bytes(profile.control.into())).0 as f64;
        let mean = (waited.last_hop + waited.elsewhere).0 as f64 / waited.packets.max(1) as f64;
        if mean < QUEUED * way {
            return None;
        }
        let share = mean / (mean + way);
        if waited.last_hop > waited.elsewhere {
            return Some(Queue { name: "incast", share, link: None });
        }
        let capacity = Capacity::new(plan, measured);
        let top = waited.links.iter().max_by_key(|(link, wait)| (**wait, std::cmp::Reverse(**link)));
        let stands_out = |wait: f64| wait > STANDS_OUT * waited.elsewhere.0 as f64;
        let slow = waited.links.iter().find(|(link, _)| capacity.is_slowed(LinkId(**link)));
        Some(match (slow, top) {
            (Some((link, _)), _) => Queue { name: "slow_link", share, link: Some(LinkId(*link)) },
            (None, Some((link, wait))) if stands_out(wait.0 as f64) => {
                Queue { name: "collision", share, link: Some(LinkId(*link)) }
            }
            _ => Queue { name: "fabric", share, link: None },
        })
    }
}

/// The reasons in a sentence; empty if the collective is near its bound.
fn words(facts: &OperationFacts, found: &Causes) -> String {
    let Some(time) = facts.time_us.filter(|time| facts.bound_us > 0.0 && *time > NEAR * facts.bound_us) else {
        return String::new();
    };
    let rates = match (facts.busbw, facts.bound_busbw) {
        (Some(rate), Some(most)) => format!(" gets {rate:.1} of {most:.1} GB/s:"),
        _ => String::new(),
    };
    let mut told = Vec::new();
    if let Some(late) = facts.late_us.filter(|late| *late > 0.02 * time) {
        told.push(format!("it waits {} of {} for its last rank", us(Some(late)), us(Some(time))));
    }
    let spent = found.words();
    if !spent.is_empty() {
        told.push(format!("its messages spend {}", spent.join(", ")));
    }
    format!("{}{rates} {}", facts.name, told.join("; "))
}

//! The critical chain of a collective, or of flows that trigger each other. It starts at the flow that ended last and
//! goes back to the flow that it waited for, and so on. Its time is the time of these flows and of the signals between
//! them.

use super::{Account, Accounts};
use std::ops::Range;
use strandway_collective::{Group, Rank};
use strandway_fabric::plan::Start;
use strandway_proto::units::{Span, Time};
use strandway_report::{Cause, WhyFacts};
use strandway_scenario::{CollectivePlan, Experiment, Message};

/// Name, subject and kind of the entries that [`facts`] returns.
pub(super) fn names(experiment: &Experiment) -> Vec<(String, String, &'static str)> {
    if experiment.collectives.is_empty() {
        let triggered = experiment.plan.flows.iter().any(|f| matches!(f.start, Start::On(..)));
        return if triggered { vec![("chain".into(), "the longest chain".into(), "chain")] } else { Vec::new() };
    }
    let name = |c: &CollectivePlan| (format!("collective.{}", c.name), c.name.clone(), "collective");
    experiment.collectives.iter().filter(|c| !c.tallied).map(name).collect()
}

/// An account for each collective. If there are none, and flows trigger others, an account of the longest chain of the
/// run.
pub(super) fn facts(books: &Accounts<'_>) -> Vec<WhyFacts> {
    let experiment = books.experiment;
    let names = names(experiment);
    if names.is_empty() {
        return Vec::new();
    }
    let firings = Firings::new(books);
    let known = experiment.collectives.iter().filter(|c| !c.tallied);
    let mut ranges: Vec<Range<usize>> = known.map(|c| c.messages.clone()).collect();
    if ranges.is_empty() {
        ranges.push(0..experiment.messages.len());
    }
    let one = |((name, what, kind), range): ((String, String, &'static str), Range<usize>)| {
        books.facts(name, what, kind, &chain(books, &firings, &experiment.messages[range]))
    };
    names.into_iter().zip(ranges).map(one).collect()
}

/// By trigger: when it released its flows, and the flow whose end was the last firing that it needed.
struct Firings {
    by_trigger: Vec<Option<(Time, u32)>>,
}

impl Firings {
    fn new(books: &Accounts<'_>) -> Firings {
        let plan = &books.experiment.plan;
        let count = plan.triggers.len();
        let mut fired: Vec<Vec<(Time, u32)>> = vec![Vec::new(); count];
        for (index, (flow, record)) in plan.flows.iter().zip(&books.measured.flows).enumerate() {
            for (trigger, end) in [(flow.on_sent, record.finished), (flow.on_received, record.received)] {
                if let (Some(trigger), Some(end)) = (trigger, end) {
                    fired[trigger as usize].push((end, index as u32));
                }
            }
        }
        let by_trigger = fired.into_iter().zip(&plan.triggers).map(|(mut times, trigger)| {
            times.sort_unstable();
            times.get(trigger.needed.max(1) as usize - 1).copied()
        });
        let by_trigger = by_trigger.collect();
        Firings { by_trigger }
    }
}

/// The account of the chain that ends with the last arrival among these messages.
fn chain(books: &Accounts<'_>, firings: &Firings, messages: &[Message]) -> Account {
    let plan = &books.experiment.plan;
    let flows = &books.measured.flows;
    let all = || messages.iter().flat_map(|m| m.first..m.first + m.pieces);
    let mut account = Account::default();
    let Some(last) =
        all().filter(|f| flows[*f as usize].received.is_some()).max_by_key(|f| flows[*f as usize].received)
    else {
        return account;
    };
    let begin = all().filter_map(|f| flows[f as usize].started).min().unwrap_or_default();
    let (mut flow, mut end) = (last, flows[last as usize].received.unwrap_or_default());
    // Each round goes back in time, and a flow is on a chain at most once.
    for _ in 0..plan.flows.len() {
        let Some(started) = flows[flow as usize].started else { break };
        account.merge(&books.account(flow as usize).shortened(end.since(started).0 as f64));
        let before = match plan.flows[flow as usize].start {
            Start::On(trigger, _) => firings.by_trigger[trigger as usize],
            Start::Asked(request) => flows[request as usize].received.map(|at| (at, request)),
            Start::Program => books.experiment.group_of(flow).and_then(|group| release(books, group, flow)),
            Start::At(_) => None,
        }
        .filter(|(at, _)| *at <= started);
        let Some((at, who)) = before.filter(|(at, _)| *at > begin) else {
            account.add(Cause::Dependency, wait(started, begin));
            break;
        };
        account.add(Cause::Dependency, wait(started, at));
        (flow, end) = (who, at);
    }
    account
}

/// When the last message arrived that this message of a collective waited for, and which flow that was.
fn release(books: &Accounts<'_>, group: &Group, flow: u32) -> Option<(Time, u32)> {
    let flows = &books.measured.flows;
    let schedule = group.schedule()?;
    let (message, _) = group.piece_of(flow)?;
    let (rank, mut index) = (Rank(message / schedule.messages()), message % schedule.messages());
    let mut last: Option<(Time, u32)> = None;
    // If a message is handed out after an earlier one, it waits for all that the earlier one waits for.
    loop {
        let after = schedule.send(rank, index).after;
        let pieces = |rank: Rank, index: u32| {
            let message = rank.0 * schedule.messages() + index;
            (0..group.pieces()).map(move |piece| group.number_of(message, piece))
        };
        if let Some((from, place)) = after.received {
            last = last.max(pieces(from, place).filter_map(|f| Some((flows[f as usize].received?, f))).max());
        }
        if let Some(place) = after.sent {
            last = last.max(pieces(rank, place).filter_map(|f| Some((flows[f as usize].finished?, f))).max());
        }
        match after.posted {
            Some(before) => index = before,
            None => return last,
        }
    }
}

fn wait(until: Time, since: Time) -> f64 {
    let span: Span = until.since(since);
    span.0 as f64
}

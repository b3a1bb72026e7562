//! The times of a message.

use strandway_fabric::measure::FlowRecord;
use strandway_fabric::plan::{FlowPlan, Start};
use strandway_proto::units::{Span, Time};
use strandway_scenario::Message;

/// The times of a message: those of all its pieces together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Life {
    pub(super) started: Option<Time>,
    pub(super) received: Option<Time>,
    pub(super) finished: Option<Time>,
}

impl Life {
    pub(super) fn completion(&self) -> Option<Span> {
        Some(self.finished? - self.started?)
    }
}

/// The times of a message of the plan. A read begins with its request, and is finished when the reader has the answer.
pub(super) fn life(message: &Message, plan: &[FlowPlan], flows: &[FlowRecord]) -> Life {
    let first = message.first as usize;
    let pieces = flows.get(first..first + message.pieces as usize).unwrap_or_default();
    let requests = plan.iter().skip(first).take(pieces.len()).filter_map(|piece| match piece.start {
        Start::Asked(request) => flows.get(request as usize),
        _ => None,
    });
    let requests: Vec<&FlowRecord> = requests.collect();
    let last = |of: fn(&FlowRecord) -> Option<Time>| -> Option<Time> {
        let times: Option<Vec<Time>> = pieces.iter().map(of).collect();
        times.and_then(|t| t.into_iter().max())
    };
    let is_read = !requests.is_empty();
    Life {
        started: requests.into_iter().chain(pieces.iter().filter(|_| !is_read)).filter_map(|p| p.started).min(),
        received: last(|p| p.received),
        finished: if is_read { last(|p| p.received) } else { last(|p| p.finished) },
    }
}

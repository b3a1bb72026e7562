//! The times of a message.

use strandway_fabric::measure::FlowRecord;
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

/// The times of a message of the plan.
pub(super) fn life(message: &Message, flows: &[FlowRecord]) -> Life {
    let first = message.first as usize;
    let pieces = flows.get(first..first + message.pieces as usize).unwrap_or_default();
    let last = |of: fn(&FlowRecord) -> Option<Time>| -> Option<Time> {
        let times: Option<Vec<Time>> = pieces.iter().map(of).collect();
        times.and_then(|t| t.into_iter().max())
    };
    Life {
        started: pieces.iter().filter_map(|p| p.started).min(),
        received: last(|p| p.received),
        finished: last(|p| p.finished),
    }
}

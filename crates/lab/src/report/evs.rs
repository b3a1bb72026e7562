//! The changes of MRC's entropy values (EV events) in a report.

use super::Report;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use strandway_fabric::Measurements;
use strandway_proto::path::PathChange;

/// The most events with a row of their own; ours.
const ROWS_MAX: usize = 1000;

/// The changes of MRC's entropy values.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EvFacts {
    /// Events by kind: `failed`, `kept`, `answered`, `unanswered`, `returned`, `denied`, `allowed`, `replaced`.
    pub counts: BTreeMap<String, u64>,
    /// Events that were lost because a connection had too many.
    pub lost: u64,
    /// The first 1,000 events, in order of time.
    pub events: Vec<EvEventFacts>,
}

/// A change of an entropy value.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EvEventFacts {
    /// When it happened.
    pub at_us: f64,
    /// The sender.
    pub host: u32,
    /// The receiver.
    pub peer: u32,
    /// The plane.
    pub plane: u8,
    /// The number of the path in the plane.
    pub path: u32,
    /// The kind of change, as in `counts`.
    pub change: Cow<'static, str>,
}

/// The events of a run; `None` if there were none.
pub(super) fn facts(measured: &Measurements) -> Option<EvFacts> {
    let all = &measured.path_events;
    if all.is_empty() {
        return None;
    }
    let count = |change: PathChange| all.iter().filter(|row| row.event.change == change).count() as u64;
    let counts = PathChange::ALL.into_iter().map(|change| (change.name().to_string(), count(change)));
    let row = |row: &strandway_fabric::measure::PathRow| EvEventFacts {
        at_us: row.event.at.as_us(),
        host: row.host.0,
        peer: row.peer.0,
        plane: row.event.path.port(),
        path: row.event.path.entropy(),
        change: row.event.change.name().into(),
    };
    Some(EvFacts {
        counts: counts.filter(|(_, count)| *count > 0).collect(),
        lost: all.iter().map(|row| u64::from(row.event.lost)).sum(),
        events: all.iter().take(ROWS_MAX).map(row).collect(),
    })
}

/// The events in a sentence.
pub(super) fn sentence(report: &Report) -> Option<String> {
    let facts = report.ev_events.as_ref()?;
    let counts: Vec<String> = facts.counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    let first = facts.events.first()?;
    Some(format!(
        "EV events: {}; the first at {:.1} us (host{} to host{}, plane {}, path {}: {})",
        counts.join(", "),
        first.at_us,
        first.host,
        first.peer,
        first.plane,
        first.path,
        first.change
    ))
}

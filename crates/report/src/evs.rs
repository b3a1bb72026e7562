//! The changes of MRC's entropy values (EV events) in a report.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

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

/// The events in a sentence.
pub(crate) fn sentence(facts: &EvFacts) -> Option<String> {
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

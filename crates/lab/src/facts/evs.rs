//! Facts of the changes of MRC's entropy values (EV events).

use strandway_fabric::Measurements;
use strandway_proto::path::PathChange;
use strandway_report::{EvEventFacts, EvFacts};

/// The most events with a row of their own; ours.
const ROWS_MAX: usize = 1000;

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

//! The record of a connection's entropy values: each change that a controller may want to know.

use crate::packet::PathId;
use crate::units::Time;
use std::collections::VecDeque;

/// The most events that wait to be read. Ours: four times the largest set.
pub const PATH_EVENTS_MAX: usize = 1024;

/// A change of a path's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathChange {
    /// It failed (a loss without trim, a timeout, "always skip", an unanswered probe) and is out of use: ASSUMED_BAD.
    Failed,
    /// It failed and stays in use, because too few others are left (`active_min`).
    Kept,
    /// A probe of it was answered.
    Answered,
    /// A probe of it was not answered in time.
    Unanswered,
    /// Enough probes in a row were answered: it is good again.
    Returned,
    /// The controller forbids it.
    Denied,
    /// The controller declares it good.
    Allowed,
    /// The controller has put it in the place of another one.
    Replaced,
}

impl PathChange {
    /// All changes, in the order of reports.
    pub const ALL: [PathChange; 8] = [
        PathChange::Failed,
        PathChange::Kept,
        PathChange::Answered,
        PathChange::Unanswered,
        PathChange::Returned,
        PathChange::Denied,
        PathChange::Allowed,
        PathChange::Replaced,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            PathChange::Failed => "failed",
            PathChange::Kept => "kept",
            PathChange::Answered => "answered",
            PathChange::Unanswered => "unanswered",
            PathChange::Returned => "returned",
            PathChange::Denied => "denied",
            PathChange::Allowed => "allowed",
            PathChange::Replaced => "replaced",
        }
    }
}

/// A change of one path (OCP MRC 1.0: an EV event).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathEvent {
    /// When it happened.
    pub at: Time,
    /// The path.
    pub path: PathId,
    /// The change.
    pub change: PathChange,
    /// The number of events lost just before this one, because nothing read them in time.
    pub lost: u32,
}

/// Events that wait to be read, the oldest first. The newest are lost if too many wait.
#[derive(Clone, Debug, Default)]
struct Waiting {
    events: VecDeque<PathEvent>,
    lost: u32,
}

/// The events of a set of paths. It takes no memory before the first.
#[derive(Clone, Debug, Default)]
pub(super) struct PathRecord(Option<Box<Waiting>>);

impl PathRecord {
    pub(super) fn add(&mut self, at: Time, path: PathId, change: PathChange) {
        let waiting = self.0.get_or_insert_default();
        if waiting.events.len() >= PATH_EVENTS_MAX {
            waiting.lost = waiting.lost.saturating_add(1);
            return;
        }
        waiting.events.push_back(PathEvent { at, path, change, lost: std::mem::take(&mut waiting.lost) });
    }

    pub(super) fn take(&mut self) -> Option<PathEvent> {
        self.0.as_mut()?.events.pop_front()
    }
}

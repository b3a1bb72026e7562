//! The clock of a slice: future events, and how far the slice has come.

use crate::calendar::{Calendar, Order};

/// Future events, and how far a slice has come.
pub(crate) struct EventClock {
    /// The events of lazy ports and of hosts.
    pub(super) calendar: Calendar,
    /// The events of the group that is visited, in order.
    pub(super) order: Order,
    /// All events up to this time are processed, in ps.
    pub(crate) now: u64,
    /// Some events were not processed because the run ends before them.
    pub(super) cut_off: bool,
    /// The number of processed events.
    pub(crate) events_done: u64,
}

impl EventClock {
    pub(super) fn new(calendar: Calendar, cut_off: bool) -> EventClock {
        EventClock { calendar, order: Order::default(), now: 0, cut_off, events_done: 0 }
    }
}

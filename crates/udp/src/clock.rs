//! The monotonic clock as the engines' [`Time`].

use std::time::{Duration, Instant};
use strandway_proto::{Span, Time};

/// Counts picoseconds since it was made; as fine as the system's monotonic clock, whose unit is the nanosecond.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock { start: Instant::now() }
    }

    pub(crate) fn now(&self) -> Time {
        Time::ZERO + span(self.start.elapsed())
    }
}

/// A duration in picoseconds, at most 213 days.
pub(crate) fn span(duration: Duration) -> Span {
    Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000))
}

/// The same backwards, rounded up to nanoseconds.
pub(crate) fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.0.div_ceil(1000))
}

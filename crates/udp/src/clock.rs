//! The monotonic clock as the engines' [`Time`].
//!
//! [`Time`] counts 213 days. A node may run longer, so it sets its clock back now and then. Each connection adds the
//! time by which the clock was set back since the connection began, so its own time never goes back.

use std::time::{Duration, Instant};
use strandway_proto::{Span, Time};

/// A node sets its clock back when the clock shows this: ours, 100 days.
const LATE: Span = Span::from_ms(100 * 86_400_000);
/// The time that it then shows: ours, an hour, more than any timeout that a node subtracts.
pub(crate) const EARLY: Span = Span::from_ms(3_600_000);
/// The age at which a connection ends: ours, 200 days; the rest of [`Time`]'s range is longer than any timeout.
pub(crate) const LIFE: Span = Span::from_ms(200 * 86_400_000);

/// Counts picoseconds since it was made, less the time by which it was set back. Its resolution is that of the system's
/// monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    made: Instant,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let now = Instant::now();
        Clock { start: now, made: now }
    }

    pub(crate) fn now(&self) -> Time {
        Time::ZERO + span(self.start.elapsed())
    }

    /// The time since it was made, regardless of settings back.
    pub(crate) fn age(&self) -> Duration {
        self.made.elapsed()
    }

    /// Sets it back if it is late; returns by how much.
    pub(crate) fn set_back(&mut self, now: Time) -> Option<Span> {
        let late = now > Time::ZERO + LATE;
        late.then(|| {
            let back = now.since(Time::ZERO + EARLY);
            self.start += duration(back);
            // In whole nanoseconds, since the clock has moved by whole nanoseconds.
            span(duration(back))
        })
    }

    /// Makes the clock older by `by`.
    #[cfg(test)]
    pub(crate) fn make_older(&mut self, by: Duration) {
        (self.start, self.made) = (self.start - by, self.made - by);
    }
}

/// A duration in picoseconds, at most 213 days.
pub(crate) fn span(duration: Duration) -> Span {
    Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000))
}

/// A span as a duration, rounded up to nanoseconds.
pub(crate) fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.0.div_ceil(1000))
}

/// A time of the clock before it was set back, as the clock now counts.
pub(crate) fn earlier(time: Time, back: Span) -> Time {
    if time == Time::NEVER { time } else { Time(time.0.saturating_sub(back.0)) }
}

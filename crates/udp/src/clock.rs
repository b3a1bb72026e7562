//! The monotonic clock as the engines' [`Time`].
//!
//! [`Time`] counts 213 days. A node runs longer: it sets its clock back now and then, and each connection adds what the clock
//! was set back by since it began, so that its own time never does.

use std::time::{Duration, Instant};
use strandway_proto::{Span, Time};

/// A node sets its clock back when it shows this: ours, 100 days.
const LATE: Span = Span::from_ms(100 * 86_400_000);
/// What it then shows: ours, an hour, more than anything that a node looks back to.
pub(crate) const EARLY: Span = Span::from_ms(3_600_000);
/// The age that no connection reaches: ours, 200 days, what is left of [`Time`] being more than any timeout.
pub(crate) const LIFE: Span = Span::from_ms(200 * 86_400_000);

/// Counts picoseconds since it was made, less what it was set back by; as fine as the system's monotonic clock, whose unit is
/// the nanosecond.
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

    /// Since it was made, whatever it shows.
    pub(crate) fn age(&self) -> Duration {
        self.made.elapsed()
    }

    /// Sets it back if it is late; by how much.
    pub(crate) fn set_back(&mut self, now: Time) -> Option<Span> {
        let late = now > Time::ZERO + LATE;
        late.then(|| {
            let back = now.since(Time::ZERO + EARLY);
            self.start += duration(back);
            // Whole nanoseconds, as the clock has moved.
            span(duration(back))
        })
    }

    /// As if it had been made so much earlier.
    #[cfg(test)]
    pub(crate) fn make_older(&mut self, by: Duration) {
        (self.start, self.made) = (self.start - by, self.made - by);
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

/// A time that a clock has shown, after it was set back.
pub(crate) fn earlier(time: Time, back: Span) -> Time {
    if time == Time::NEVER { time } else { Time(time.0.saturating_sub(back.0)) }
}

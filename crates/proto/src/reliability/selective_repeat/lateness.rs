//! Finds losses by lateness: a packet is given up once something sent much later has arrived without it.
//!
//! Sprayed packets overtake each other, but in a fabric whose queues congestion control keeps short not by much. So one
//! that is overtaken by something sent a whole limit later is lost, or stuck on a path so slow that a copy by another way
//! arrives first. How long everything takes does not matter, only the difference between paths: behind a common queue,
//! as in an incast, nobody is late. The limit follows what the fabric does to the packets that do arrive.

use crate::units::{Span, Time};

/// What is known of the present order of arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lateness {
    /// The limit is no less than this.
    floor: Span,
    /// Mean deviations that the limit is above the mean.
    deviations: f32,
    /// The latest sending time of anything known to have arrived.
    arrived: Time,
    /// How much earlier than that packets were sent when they were found to have arrived: the mean, and the mean deviation
    /// from it, picoseconds.
    mean: f64,
    deviation: f64,
    /// How much the best informed acknowledgement so far knew of, as receivers count.
    newest: u32,
}

/// Gain of mean and mean deviation. Ours: the last thirty or so acknowledgements, about one round trip at full speed.
const GAIN: f64 = 1.0 / 32.0;
/// What is further from the mean than so many mean deviations counts as that far. Ours: with 4, one slow path among sixteen
/// moves the limit by less than half.
const OUTLIER: f64 = 4.0;
/// The limit is no more than so many floors: ours, beyond any queue that a switch holds.
const LIMIT_MAX: f64 = 4.0;
/// The same once nothing new is left to send, when what is missing holds the message up. Ours: the lowest value that, with the
/// default floor, sends nothing twice in healthy fabrics (docs/protocols/strack.md).
const LIMIT_MAX_LAST: f64 = 1.4;

impl Lateness {
    pub(super) const fn new(floor: Span, deviations: f64) -> Lateness {
        let deviations = deviations as f32;
        Lateness { floor, deviations, arrived: Time::ZERO, mean: 0.0, deviation: 0.0, newest: 0 }
    }

    /// Sent so much earlier than something that has arrived is late. `last`: nothing new is left to send.
    pub(super) fn limit(&self, last: bool) -> Span {
        let usual = self.mean + f64::from(self.deviations) * self.deviation;
        let most = self.floor.scaled(if last { LIMIT_MAX_LAST } else { LIMIT_MAX });
        Span(self.floor.0.max(usual as u64).min(most.0))
    }

    /// How much the newest acknowledgement knew of.
    pub(super) const fn newest(&self) -> u32 {
        self.newest
    }

    /// Acknowledgements that knew of less are old.
    pub(super) const fn start_from(&mut self, newest: u32) {
        self.newest = newest;
    }

    /// The latest sending time of anything known to have arrived.
    pub(super) const fn latest(&self) -> Time {
        self.arrived
    }

    /// Something sent at this time has arrived.
    #[inline]
    pub(super) fn arrived(&mut self, sent: Time) {
        // One slow path among many must not make the usual of what it is not.
        let usual = self.mean + OUTLIER * self.deviation;
        let least = self.floor.0 as f64 / 4.0;
        let most = if usual < least { least } else { usual };
        let late = (self.arrived.0.saturating_sub(sent.0) as f64).min(most);
        let away = late - self.mean;
        self.mean += GAIN * away;
        self.deviation += GAIN * (if away < 0.0 { -away } else { away } - self.deviation);
        self.arrived = self.arrived.max(sent);
    }

    /// Acknowledgements overtake each other, too: may this one say that a packet is missing? Only if it was written no earlier
    /// than those that told what has arrived. The count of bytes received, which only grows, dates them.
    #[inline]
    pub(super) const fn is_newest(&mut self, received: u32) -> bool {
        // MRC counts in 24 bits: compare those, with 2 GiB to either side.
        let newest = (received << 8).wrapping_sub(self.newest << 8) < 1 << 31;
        if newest {
            self.newest = received;
        }
        newest
    }
}

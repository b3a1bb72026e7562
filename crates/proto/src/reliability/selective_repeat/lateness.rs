//! Finds losses by lateness: a packet counts as lost when a packet sent much later has arrived before it.
//!
//! Sprayed packets overtake each other, but only by little if congestion control keeps queues short. So a packet that
//! is overtaken by one sent a whole limit later is lost, or it is on a path so slow that a copy by another path arrives
//! first. Only the difference between paths counts, not the whole delay: behind a common queue, as in an incast, no
//! packet is late. The limit follows the lateness of the packets that do arrive.

use crate::units::{Span, Time};

/// The lateness of arriving packets, and the limit that follows from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lateness {
    /// The smallest limit.
    floor: Span,
    /// The limit is the mean plus this many mean deviations.
    deviations: f32,
    /// The latest sending time of anything known to have arrived.
    arrived: Time,
    /// The lateness of a packet is the time from its sending to `arrived`, when its arrival becomes known. Here: its
    /// mean, and its mean deviation, in picoseconds.
    mean: f64,
    deviation: f64,
    /// The largest count of received bytes in any acknowledgement so far, in the receiver's units.
    newest: u32,
}

/// Gain of mean and mean deviation. Ours: the last thirty or so acknowledgements, about one round trip at full speed.
const GAIN: f64 = 1.0 / 32.0;
/// A sample is cut off at this many mean deviations above the mean. Ours: with 4, one slow path among sixteen moves the
/// limit by less than half.
const OUTLIER: f64 = 4.0;
/// The limit is at most this many floors. Ours: longer than any queue of a switch.
const LIMIT_MAX: f64 = 4.0;
/// The limit is at most this many floors when no new packet is left to send, because then a missing packet delays the
/// message. Ours: the lowest value that, with the default floor, sends nothing twice in healthy fabrics
/// (docs/protocols/strack.md).
const LIMIT_MAX_LAST: f64 = 1.4;

impl Lateness {
    pub(super) const fn new(floor: Span, deviations: f64) -> Lateness {
        let deviations = deviations as f32;
        Lateness { floor, deviations, arrived: Time::ZERO, mean: 0.0, deviation: 0.0, newest: 0 }
    }

    /// A packet is late if it was sent this much earlier than a packet that has arrived. `last`: no new packet is left
    /// to send.
    pub(super) fn limit(&self, last: bool) -> Span {
        let usual = self.mean + f64::from(self.deviations) * self.deviation;
        let most = self.floor.scaled(if last { LIMIT_MAX_LAST } else { LIMIT_MAX });
        Span(self.floor.0.max(usual as u64).min(most.0))
    }

    /// The count of received bytes in the newest acknowledgement.
    pub(super) const fn newest(&self) -> u32 {
        self.newest
    }

    /// Sets the count of received bytes below which an acknowledgement counts as old.
    pub(super) const fn start_from(&mut self, newest: u32) {
        self.newest = newest;
    }

    /// The latest sending time of anything known to have arrived.
    pub(super) const fn latest(&self) -> Time {
        self.arrived
    }

    /// A packet sent at `sent` has arrived.
    #[inline]
    pub(super) fn arrived(&mut self, sent: Time) {
        // Samples are cut off, so that one slow path among many does not raise the limit for all.
        let usual = self.mean + OUTLIER * self.deviation;
        let least = self.floor.0 as f64 / 4.0;
        let most = if usual < least { least } else { usual };
        let late = (self.arrived.0.saturating_sub(sent.0) as f64).min(most);
        let away = late - self.mean;
        self.mean += GAIN * away;
        self.deviation += GAIN * (if away < 0.0 { -away } else { away } - self.deviation);
        self.arrived = self.arrived.max(sent);
    }

    /// May this acknowledgement show that a packet is missing? Acknowledgements overtake each other too, so only the
    /// newest one may. Its count of received bytes, which only grows, tells its age.
    #[inline]
    pub(super) const fn is_newest(&mut self, received: u32) -> bool {
        // MRC's count has 24 bits of 256 B each. Compare these bits only; counts up to 2 GiB apart are ordered
        // correctly.
        let newest = (received << 8).wrapping_sub(self.newest << 8) < 1 << 31;
        if newest {
            self.newest = received;
        }
        newest
    }
}

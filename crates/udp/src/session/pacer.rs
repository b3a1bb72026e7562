//! Paces a window over the base round trip, where the receiving socket does not hold a window: what would leave as one burst
//! leaves as it would arrive, and never faster than the line rate.

use crate::plane::BATCH_BYTES;
use strandway_proto::{Bytes, Span, Time};

/// A bucket of bytes that fills at a window per base round trip.
pub(super) struct Pacer {
    base_rtt: Span,
    /// What the line carries in a base round trip.
    bdp: u64,
    /// Bytes that may leave at once: what a receiving socket holds.
    burst: u64,
    bytes: u64,
    /// Until when it was filled.
    at: Time,
    /// Empty, and not yet full enough for a batch.
    waits: bool,
}

impl Pacer {
    pub(super) fn new(now: Time, base_rtt: Span, bdp: Bytes, burst: u64) -> Pacer {
        Pacer { base_rtt, bdp: bdp.0, burst, bytes: burst, at: now, waits: false }
    }

    /// System calls cost the same for less than a batch.
    fn batch(&self) -> u64 {
        self.burst.min(BATCH_BYTES as u64)
    }

    /// May data leave now?
    pub(super) fn is_open(&mut self, now: Time, window: u64) -> bool {
        let elapsed = now.since(self.at).0;
        let filled = u128::from(elapsed) * u128::from(window.min(self.bdp)) / u128::from(self.base_rtt.0.max(1));
        if filled > 0 {
            self.bytes = (u128::from(self.bytes) + filled).min(u128::from(self.burst)) as u64;
            self.at = now;
        }
        self.waits = self.waits && self.bytes < self.batch();
        !self.waits
    }

    /// So many bytes leave.
    pub(super) fn spend(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.waits = self.bytes == 0;
    }

    /// When data may leave again, if it may not now.
    pub(super) fn deadline(&self, window: u64) -> Option<Time> {
        let missing = u128::from(self.batch().saturating_sub(self.bytes)) * u128::from(self.base_rtt.0);
        let wait = missing.div_ceil(u128::from(window.min(self.bdp).max(1))).min(u128::from(u64::MAX)) as u64;
        self.waits.then(|| self.at + Span(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_leaves_per_round_trip_and_no_more_than_a_burst_at_once() {
        // The window may be larger than what the line carries.
        let (rtt, bdp, window, burst) = (Span::from_ms(50), Bytes(6_250_000), 9_000_000, 500_000);
        let mut now = Time::ZERO;
        let mut pacer = Pacer::new(now, rtt, bdp, burst);
        let mut left = Vec::new();
        while now < Time::ZERO + Span::from_ms(500) {
            let mut at_once = 0;
            while pacer.is_open(now, window) {
                pacer.spend(1_400);
                at_once += 1_400;
            }
            left.push(at_once);
            let deadline = pacer.deadline(window).expect("it waits");
            assert!(deadline > now);
            now = deadline;
        }
        assert!(left[0] >= burst && left[0] < burst + 1_400);
        assert!(left[1..].iter().all(|&bytes| (BATCH_BYTES as u64..70_000).contains(&bytes)), "{left:?}");
        let all: u64 = left.iter().sum();
        assert!((burst + 62_000_000..burst + 63_000_000).contains(&all), "ten windows and a burst: {all}");
        // Whoever slept catches up by a burst.
        now = now + Span::from_ms(1_000);
        assert!(pacer.is_open(now, window) && pacer.bytes == burst);
    }
}

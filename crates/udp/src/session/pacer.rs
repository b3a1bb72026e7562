//! Paces a window over the base round trip, where the receiving socket cannot hold a window. Data leaves at the rate of
//! one window per base round trip instead of in one burst, and never faster than the line rate.

use crate::plane::BATCH_BYTES;
use strandway_proto::{Bytes, Span, Time};

/// A bucket of bytes that fills at a window per base round trip.
pub(super) struct Pacer {
    base_rtt: Span,
    /// Bytes that the line carries in a base round trip.
    bdp: u64,
    /// Bytes that may leave at once: a receiving socket can hold them.
    burst: u64,
    bytes: u64,
    /// The time at which `bytes` was last raised.
    at: Time,
    /// The bucket ran empty, and does not hold a batch yet.
    waits: bool,
}

impl Pacer {
    pub(super) fn new(now: Time, base_rtt: Span, bdp: Bytes, burst: u64) -> Pacer {
        Pacer { base_rtt, bdp: bdp.0, burst, bytes: burst, at: now, waits: false }
    }

    /// Data leaves in batches of this size, since a system call costs the same for a smaller one.
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

    /// Takes `bytes` bytes that leave out of the bucket.
    pub(super) fn spend(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.waits = self.bytes == 0;
    }

    /// When data may leave again, if none may leave now.
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
        // The window may be larger than the bytes that the line carries in a round trip.
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
        // After a long sleep, one burst may leave at once.
        now = now + Span::from_ms(1_000);
        assert!(pacer.is_open(now, window) && pacer.bytes == burst);
    }
}

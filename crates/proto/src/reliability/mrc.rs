//! MRC's reliability: selective repeat within a bounded range of PSNs (MPR), four ways to find a loss, and timers that stay
//! as they are for some retries and double from then on, until the budget is used up.
//!
//! The machinery is [`SelectiveRepeat`]'s, found losses by NACK and by lateness together; this file has what is MRC's own.

use super::selective_repeat::{LossDetection, SelectiveReceiver, SelectiveRepeat, SelectiveRepeatConfig};
use crate::parameters;
use crate::profile::{Environment, TransportConfig};
use crate::units::{Span, Time};

parameters! {
    /// MRC's selective acknowledgements, loss detection and retransmission timers.
    pub struct MrcSackConfig {
        /// No packet is sent more than so many times 128 PSNs ahead of the oldest one not acknowledged (MPR).
        psn_range: u32 = 8, 1.0..=255.0, "OCP MRC 1.0, samples: MPR 8";
        /// A packet is lost when something sent so many base RTTs later has arrived: the target queueing delay.
        reorder: f64 = 0.75, 0.0..=1000.0, "ours: the source leaves the criterion open; NSCC's target with trimming";
        /// ... but no less than this later.
        reorder_min: Span = Span::from_us(4), 0.0..=1.0e12, "ours: a queue of few packets on a slow plane is no loss";
        /// ... and no less than packets are late by on average plus so many mean deviations.
        reorder_spread: f64 = 8.0, 0.0..=1000.0, "ours: as strack_fast; uneven planes are no loss";
        /// Retransmission timeout T; zero takes the smallest 1.024 us times a power of two that is three times base RTT and target.
        timeout: Span = Span::ZERO, 0.0..=1.8e13, "OCP MRC 1.0: 1.024 us * 2^t; the choice of t is ours";
        /// Retries that wait for T each.
        retries_linear: u32 = 7, 0.0..=7.0, "OCP MRC 1.0, samples: 7, the largest value";
        /// Retries after those, each of which waits for twice as long; then the connection fails. 25: retry for ever.
        retries_exponential: u32 = 25, 0.0..=25.0, "OCP MRC 1.0, samples: 25, which means for ever";
        /// The timeout grows no longer than this.
        timeout_max: Span = Span::from_ms(100), 1.0e6..=1.8e13, "ours: the longest time between probes of a path";
    }
}

/// Exponential retries that mean: for ever. OCP MRC 1.0.
const FOR_EVER: u32 = 25;

impl MrcSackConfig {
    /// A packet sent so much earlier than something that has arrived is late.
    fn reorder_window(&self, environment: &Environment) -> Span {
        environment.base_rtt.scaled(self.reorder).max(self.reorder_min)
    }

    /// T.
    fn first_timeout(&self, environment: &Environment) -> Span {
        if self.timeout > Span::ZERO {
            return self.timeout;
        }
        let least = (environment.base_rtt + environment.base_rtt.scaled(self.reorder)) * 3;
        let mut timeout = Span::from_ns(1024);
        // 2^24 is the largest multiple there is.
        for _ in 0..24 {
            if timeout < least {
                timeout = timeout * 2;
            }
        }
        timeout
    }

    fn machinery(&self) -> SelectiveRepeatConfig {
        SelectiveRepeatConfig {
            late_spread: self.reorder_spread,
            sack_rotates: true,
            window_psn: self.psn_range * 128,
            ..SelectiveRepeatConfig::default()
        }
    }

    pub(super) fn build(&self, transport: &TransportConfig, environment: &Environment) -> SelectiveRepeat {
        let retry = Retry {
            linear: self.retries_linear,
            exponential: self.retries_exponential,
            most: self.timeout_max,
            used: 0,
            charged: Time::ZERO,
            failed: false,
        };
        SelectiveRepeat::build(&self.machinery(), LossDetection::Lateness, transport, environment)
            .with_lateness(self.reorder_window(environment), self.reorder_spread)
            .with_retries(self.first_timeout(environment), retry)
    }

    pub(super) fn build_receiver(&self, transport: &TransportConfig) -> SelectiveReceiver {
        SelectiveReceiver::new(&self.machinery(), transport).refusing()
    }
}

/// What has been spent of the retry budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    linear: u32,
    exponential: u32,
    most: Span,
    used: u32,
    /// When the latest retry was charged: what was sent before belongs to the same round.
    charged: Time,
    failed: bool,
}

impl Retry {
    /// How long to wait at present, where `first` is T.
    pub(super) fn timeout(&self, first: Span) -> Span {
        let doublings = self.used.saturating_sub(self.linear).min(40);
        Span(first.0.saturating_mul(1 << doublings)).min(self.most.max(first))
    }

    /// Something sent at `sent` has to go again. What was sent before the latest retry was charged is part of that round, or
    /// one dead plane would use the budget up at once. False if the budget is used up.
    pub(super) fn charge(&mut self, now: Time, sent: Time) -> bool {
        if self.used == 0 || sent >= self.charged {
            self.used = self.used.saturating_add(1);
            self.charged = now;
        }
        self.exponential >= FOR_EVER || self.used <= self.linear + self.exponential
    }

    /// The cumulative acknowledgement has advanced.
    pub(super) const fn reset(&mut self) {
        self.used = 0;
    }

    pub(super) const fn fail(&mut self) {
        self.failed = true;
    }

    pub(super) const fn failed(&self) -> bool {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(linear: u32, exponential: u32) -> Retry {
        let most = Span::from_ms(100);
        Retry { linear, exponential, most, used: 0, charged: Time::ZERO, failed: false }
    }

    #[test]
    fn timeouts_stay_the_same_and_then_double_up_to_a_limit() {
        let mut retry = retry(2, FOR_EVER);
        let first = Span::from_us(64);
        let mut waits = Vec::new();
        let mut now = Time::ZERO;
        for _ in 0..16 {
            let wait = retry.timeout(first);
            waits.push(wait.0 / first.0);
            now = now + wait;
            assert!(retry.charge(now, now));
        }
        assert_eq!(waits[..7], [1, 1, 1, 2, 4, 8, 16]);
        assert_eq!(retry.timeout(first), Span::from_ms(100));
        retry.reset();
        assert_eq!(retry.timeout(first), first);
    }

    #[test]
    fn a_round_of_timeouts_counts_as_one_retry() {
        let mut retry = retry(1, 1);
        assert!(retry.charge(Time(100), Time(0)));
        assert!(retry.charge(Time(120), Time(20)));
        assert!(retry.charge(Time(200), Time(100)));
        assert!(!retry.charge(Time(300), Time(200)));
    }
}

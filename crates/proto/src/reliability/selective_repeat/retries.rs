//! MRC's timers: the same for some retries, then doubled each time, and a budget of retries that ends the connection.

use super::SelectiveRepeat;
use super::lateness::Lateness;
use crate::units::{Span, Time};

/// Exponential retries that mean: for ever. OCP MRC 1.0.
const FOR_EVER: u32 = 25;

/// What has been spent of the retry budget.
#[derive(Clone, Copy, Debug)]
pub(in crate::reliability) struct Retry {
    linear: u32,
    exponential: u32,
    most: Span,
    used: u32,
    /// When the latest retry was charged: what was sent before belongs to the same round.
    charged: Time,
    failed: bool,
}

impl Retry {
    /// Nothing spent.
    pub(in crate::reliability) const fn new(linear: u32, exponential: u32, most: Span) -> Retry {
        Retry { linear, exponential, most, used: 0, charged: Time::ZERO, failed: false }
    }

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

impl SelectiveRepeat {
    /// Found late only by this much.
    pub(in crate::reliability) fn with_lateness(mut self, floor: Span, deviations: f64) -> SelectiveRepeat {
        if let Some(probe) = &mut self.probe {
            probe.late = Lateness::new(floor, deviations);
        }
        self
    }

    /// With MRC's timers and its probes: 15 bits for their number; half a timeout after a packet, or two base RTTs after the
    /// last one.
    pub(in crate::reliability) fn with_retries(mut self, timeout: Span, retry: Retry) -> SelectiveRepeat {
        self.rto = timeout;
        self.retry = Some(Box::new(retry));
        if let Some(probe) = &mut self.probe {
            probe.numbers = 0x7fff;
            probe.gap_max = timeout;
        }
        self
    }

    /// A retry for something sent at `sent`; the last one ends the connection.
    pub(super) fn charge(&mut self, now: Time, sent: Time) {
        if let Some(retry) = &mut self.retry
            && !retry.charge(now, sent)
        {
            self.give_up();
        }
    }

    /// Nothing is sent or owed any more.
    pub(super) fn give_up(&mut self) {
        for psn in self.board.una()..self.board.next() {
            self.board.acknowledge(psn);
        }
        self.board.advance(self.board.next());
        self.backlog.abandon(self.board.next());
        self.repairs.clear();
        self.deadline = Time::NEVER;
        if let Some(probe) = &mut self.probe {
            probe.at = Time::NEVER;
            probe.due = false;
        }
        if let Some(retry) = &mut self.retry {
            retry.fail();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(linear: u32, exponential: u32) -> Retry {
        Retry::new(linear, exponential, Span::from_ms(100))
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

//! MRC's retransmission timers: the timeout is constant for some retries, then doubles with each retry. When the budget
//! of retries is used up, the connection fails.

use super::SelectiveRepeat;
use super::lateness::Lateness;
use crate::units::{Span, Time};

/// This number of exponential retries means: retry for ever. OCP MRC 1.0.
const FOR_EVER: u32 = 25;

/// The retries used so far, and their budget.
#[derive(Clone, Copy, Debug)]
pub(in crate::reliability) struct Retry {
    linear: u32,
    exponential: u32,
    most: Span,
    used: u32,
    /// When the latest retry was counted: packets sent before this time belong to the same round.
    charged: Time,
    failed: bool,
}

impl Retry {
    /// No retry used yet.
    pub(in crate::reliability) const fn new(linear: u32, exponential: u32, most: Span) -> Retry {
        Retry { linear, exponential, most, used: 0, charged: Time::ZERO, failed: false }
    }

    /// The present timeout; `first` is T.
    pub(super) fn timeout(&self, first: Span) -> Span {
        let doublings = self.used.saturating_sub(self.linear).min(40);
        Span(first.0.saturating_mul(1 << doublings)).min(self.most.max(first))
    }

    /// Counts a retry for a packet sent at `sent`. A packet sent before the latest counted retry belongs to that
    /// retry's round and is not counted; otherwise one dead plane would use up the budget at once. False if the budget
    /// is used up.
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
    /// Sets the floor of the lateness limit and its deviations.
    pub(in crate::reliability) fn with_lateness(mut self, floor: Span, deviations: f64) -> SelectiveRepeat {
        if let Some(probe) = &mut self.probe {
            probe.late = Lateness::new(floor, deviations);
        }
        self
    }

    /// Sets MRC's timers and probes. Probe numbers have 15 bits; a probe follows half a timeout after a packet, or two
    /// base RTTs after the last packet.
    pub(in crate::reliability) fn with_retries(mut self, timeout: Span, retry: Retry) -> SelectiveRepeat {
        self.rto = timeout;
        self.retry = Some(Box::new(retry));
        if let Some(probe) = &mut self.probe {
            probe.numbers = 0x7fff;
            probe.gap_max = timeout;
        }
        self
    }

    /// Counts a retry for a packet sent at `sent`; the connection fails when the budget is used up.
    pub(super) fn charge(&mut self, now: Time, sent: Time) {
        if let Some(retry) = &mut self.retry
            && !retry.charge(now, sent)
        {
            self.give_up();
        }
    }

    /// Gives up: nothing is sent any more, and no timer runs.
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

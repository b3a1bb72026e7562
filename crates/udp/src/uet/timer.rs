//! After which time an end sends packets again: later than the configured timeout where round trips are long, and ever
//! later into silence.

use strandway_proto::{Span, Time};

/// The longest wait between two retransmissions; ours. SUET waits up to 4 s.
const WAIT_MAX: Span = Span::from_ms(1_000);
/// Packets whose time of sending is kept: ours, by far the usual window.
const SENT: u64 = 1_024;

/// Measures round trips as RFC 6298 does, and counts retransmissions since the peer was heard.
pub(super) struct Timer {
    /// The shortest timeout.
    timeout: Span,
    smoothed: Option<Span>,
    variation: Span,
    /// Times of sending of packets that were sent once, by number modulo the length.
    sent: Vec<(u64, Time)>,
    rounds: u32,
    /// Timeouts before this time belong to the last round.
    next_round: Time,
}

impl Timer {
    pub(super) fn new(timeout: Span) -> Timer {
        let sent = vec![(u64::MAX, Time::ZERO); SENT as usize];
        Timer { timeout, smoothed: None, variation: Span::ZERO, sent, rounds: 0, next_round: Time::ZERO }
    }

    /// A packet was sent; `again`: not for the first time, so that an answer may belong to either.
    pub(super) fn on_sent(&mut self, now: Time, psn: u64, again: bool) {
        self.sent[(psn % SENT) as usize] = (if again { u64::MAX } else { psn }, now);
    }

    /// An acknowledgement came that this packet has caused.
    pub(super) fn on_acked(&mut self, now: Time, psn: u64) {
        let (of, at) = std::mem::replace(&mut self.sent[(psn % SENT) as usize], (u64::MAX, now));
        if of != psn {
            return;
        }
        let sample = now.since(at).0;
        (self.smoothed, self.variation) = match self.smoothed {
            None => (Some(Span(sample)), Span(sample / 2)),
            Some(Span(mean)) => {
                (Some(Span(mean - mean / 8 + sample / 8)), Span(self.variation.0 * 3 / 4 + mean.abs_diff(sample) / 4))
            }
        };
    }

    /// The peer was heard.
    pub(super) fn on_heard(&mut self) {
        (self.rounds, self.next_round) = (0, Time::ZERO);
    }

    /// The present timeout.
    pub(super) fn timeout(&self) -> Span {
        let wanted = self.smoothed.map_or(0, |mean| mean.0.saturating_add(self.variation.0.saturating_mul(4)));
        let usual = self.timeout.max(Span(wanted.min(WAIT_MAX.0)));
        let silent = Span(self.timeout.0.saturating_mul(1 << self.rounds.min(20))).min(WAIT_MAX.max(self.timeout));
        usual.max(silent)
    }

    /// A timeout has led to retransmissions: the next one waits twice as long, if the peer stays silent.
    pub(super) fn on_timeout(&mut self, now: Time) {
        if now >= self.next_round {
            self.rounds += 1;
            self.next_round = now + self.timeout();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_round_trips_and_doubles_into_silence() {
        let (ms, at) = (Span::from_ms, |n| Time::ZERO + Span::from_ms(n));
        let mut timer = Timer::new(ms(5));
        assert_eq!(timer.timeout(), ms(5));
        // Short round trips: the configured timeout.
        timer.on_sent(at(0), 0, false);
        timer.on_acked(at(1), 0);
        assert_eq!(timer.timeout(), ms(5));
        // Long ones: mean and four variations, at most a second.
        for psn in 1..200 {
            timer.on_sent(at(20 * psn), psn, false);
            timer.on_acked(at(20 * psn + 20), psn);
        }
        assert!(timer.timeout() > ms(19) && timer.timeout() < ms(21), "{:?}", timer.timeout());
        timer.on_sent(at(0), 500, false);
        timer.on_acked(at(900_000), 500);
        assert_eq!(timer.timeout(), ms(1_000));
        // Packets sent twice, acknowledged twice or not sent at all tell nothing.
        let before = (timer.smoothed, timer.variation);
        timer.on_sent(at(0), 501, true);
        for psn in [501, 500, 7_777] {
            timer.on_acked(at(1), psn);
        }
        assert_eq!((timer.smoothed, timer.variation), before);
        let mut timer = Timer::new(ms(5));
        let mut now = at(1_000);
        for wait in [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000] {
            // Packets that were sent at other times belong to one round.
            for late in [0, 1, 4] {
                timer.on_timeout(now + ms(late));
                assert_eq!(timer.timeout(), ms(wait));
            }
            now = now + ms(wait);
        }
        timer.on_heard();
        assert_eq!(timer.timeout(), ms(5));
    }
}

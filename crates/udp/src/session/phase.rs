//! The phases of an established connection, and all transitions between them. Times are those of the connection's own
//! clock.

use crate::peer_monitor::PINGS;
use strandway_proto::{Span, Time};

/// The phase of a connection. It ends when an error ends it; then nothing of it remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The peer called, and must show by the time `until` that it has the keys. Until then nothing is sent to it.
    Unconfirmed { until: Time },
    /// The last genuine datagram came at `heard`, and no ping has left since.
    Heard { heard: Time },
    /// A ping has left at `since`, and nothing has come since. The next ping is due at `again`.
    ///
    /// If no other connection leads to the same peer, the peer monitor finds out whether the peer lives, and these
    /// times are not used.
    Asking { heard: Time, since: Time, again: Time },
}

/// How long a peer may be silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// On one plane, before other planes are used instead.
    pub(super) plane: Span,
    /// On all planes, before the connection ends.
    pub(super) peer: Span,
}

impl Phase {
    /// The first phase: only the side that calls knows from the handshake that its peer has the keys.
    pub(super) fn new(now: Time, calls: bool, handshake_timeout: Span) -> Phase {
        if calls { Phase::Heard { heard: now } } else { Phase::Unconfirmed { until: now + handshake_timeout } }
    }

    /// Has the peer shown that it has the keys?
    pub(super) const fn is_confirmed(&self) -> bool {
        !matches!(self, Phase::Unconfirmed { .. })
    }

    /// A genuine datagram came. Returns true if it is the first one that shows that the peer has the keys.
    pub(super) fn handle_arrival(&mut self, now: Time) -> bool {
        let first = !self.is_confirmed();
        *self = Phase::Heard { heard: now };
        first
    }

    /// A ping leaves by this connection, so its answer must come in time.
    pub(super) fn handle_ping(&mut self, now: Time, timeouts: &Timeouts) {
        if let Phase::Heard { heard } = *self {
            *self = Phase::Asking { heard, since: now, again: now + Span(timeouts.plane.0 / PINGS) };
        }
    }

    /// This node had no turn for `absence`, and its peer may have had none either. The peer has half of the timeout
    /// left to be heard.
    pub(super) fn excuse(&mut self, now: Time, absence: Span, timeouts: &Timeouts) {
        if absence <= Span(timeouts.peer.0 / 2) {
            return;
        }
        let back = Time(now.0.saturating_sub(timeouts.peer.0 / 2));
        match self {
            Phase::Unconfirmed { .. } => {}
            Phase::Heard { heard } => *heard = back.max(*heard),
            Phase::Asking { heard, since, .. } => (*heard, *since) = (back.max(*heard), back.max(*since)),
        }
    }

    /// Has a connection with unfinished work heard nothing for too long? Then its next ping is due at once.
    pub(super) fn is_overdue(&self, now: Time, timeouts: &Timeouts) -> bool {
        matches!(self, Phase::Heard { heard } if now.since(*heard) > timeouts.peer)
    }

    /// The next ping is due now.
    pub(super) fn ask_at_once(&mut self, now: Time) {
        if let Phase::Heard { heard } = *self {
            *self = Phase::Asking { heard, since: now, again: now };
        }
    }

    /// When the first ping left that nothing has followed.
    pub(super) const fn asked_since(&self) -> Option<Time> {
        if let Phase::Asking { since, .. } = self { Some(*since) } else { None }
    }

    /// If the next ping is due, sets the time of the one after it, and returns true.
    pub(super) fn ask_again(&mut self, now: Time, timeouts: &Timeouts) -> bool {
        let Phase::Asking { since, again, .. } = self else { return false };
        let due = *again <= now;
        if due {
            let timeout = if now.since(*since) < timeouts.plane { timeouts.plane } else { timeouts.peer };
            *again = now + Span(timeout.0 / PINGS);
        }
        due
    }

    /// When the connection must find out again whether its peer still has it. `active`: it has unfinished work.
    pub(super) fn deadline(&self, timeouts: &Timeouts, active: impl FnOnce() -> bool) -> Time {
        match *self {
            Phase::Unconfirmed { until } => until + Span(1),
            Phase::Asking { since, again, .. } => again.min(since + timeouts.peer + Span(1)),
            Phase::Heard { heard } if active() => heard + timeouts.peer + Span(1),
            Phase::Heard { .. } => Time::NEVER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: Timeouts = Timeouts { plane: Span(PINGS * 10), peer: Span(1_000) };

    #[test]
    fn a_called_side_is_confirmed_by_the_first_genuine_datagram() {
        let mut phase = Phase::new(Time(5), false, Span(100));
        phase.handle_ping(Time(6), &TIMEOUTS);
        assert_eq!((phase, phase.is_confirmed()), (Phase::Unconfirmed { until: Time(105) }, false));
        assert!(phase.handle_arrival(Time(7)) && phase.is_confirmed());
        assert!(!phase.handle_arrival(Time(8)), "it is confirmed once");
        assert!(Phase::new(Time(5), true, Span(100)).is_confirmed());
    }

    #[test]
    fn pings_follow_each_other_until_something_comes() {
        let mut phase = Phase::new(Time(0), true, Span(100));
        assert!(!phase.is_overdue(Time(1_000), &TIMEOUTS) && phase.is_overdue(Time(1_001), &TIMEOUTS));
        phase.handle_ping(Time(50), &TIMEOUTS);
        assert!(!phase.ask_again(Time(59), &TIMEOUTS) && phase.ask_again(Time(60), &TIMEOUTS));
        assert_eq!(phase, Phase::Asking { heard: Time(0), since: Time(50), again: Time(70) });
        assert!(!phase.is_overdue(Time(9_999), &TIMEOUTS), "it asks already");
        phase.handle_arrival(Time(80));
        assert_eq!((phase.asked_since(), phase.deadline(&TIMEOUTS, || false)), (None, Time::NEVER));
        assert_eq!(phase.deadline(&TIMEOUTS, || true), Time(1_081));
    }

    #[test]
    fn a_node_that_was_away_gives_its_peer_half_of_the_timeout() {
        let mut phase = Phase::new(Time(0), true, Span(100));
        phase.handle_ping(Time(10), &TIMEOUTS);
        phase.excuse(Time(5_000), Span(500), &TIMEOUTS);
        assert_eq!(phase.asked_since(), Some(Time(10)));
        phase.excuse(Time(5_000), Span(501), &TIMEOUTS);
        assert_eq!(phase.asked_since(), Some(Time(4_500)));
    }
}

//! The counters of a connection, and the account of its time. Only the pace of CNPs depends on them.

use super::Connection;
use crate::account::{Clock, Doing, Spent, Waits};
use crate::congestion::Congestion;
use crate::path::PathTally;
use crate::reliability::Reliability;
use crate::stats::ConnectionStats;
use crate::units::Time;

/// Counters and accounts of a connection. They stay when it sleeps. The fields that change with each sent packet are
/// neighbours in memory: the end of the clock and the beginning of the counters.
#[repr(C)]
pub(crate) struct Record {
    pub(super) clock: Clock,
    pub(crate) stats: ConnectionStats,
    pub(super) waits: Waits,
    /// When the last CNP left; [`Time::NEVER`] before the first.
    pub(super) last_cnp: Time,
    /// Was the last packet a retransmission?
    pub(super) again: bool,
    /// Counts of packets by path, if anyone has asked for them.
    pub(crate) paths: Option<Box<PathTally>>,
}

impl Record {
    pub(super) fn new() -> Box<Record> {
        Box::new(Record {
            stats: ConnectionStats::NONE,
            clock: Clock::default(),
            waits: Waits::default(),
            last_cnp: Time::NEVER,
            again: false,
            paths: None,
        })
    }
}

impl Connection {
    /// How its time was spent up to `now`.
    pub(crate) fn spent(&mut self, now: Time) -> Spent {
        self.record.clock.read(now)
    }

    /// Where its packets waited on their way.
    pub(crate) fn waits(&self) -> Waits {
        self.record.waits
    }

    /// Its activity at `now`. `open` tells whether its window, or the one it shares, is open.
    pub(super) fn doing(&self, now: Time, open: bool, again: bool) -> Doing {
        if self.outlook.has_next {
            if open && now >= self.pace_at { Doing::Line } else { Doing::window(self.congestion.last_cut()) }
        } else if self.reliability.is_held() {
            Doing::Range
        } else if self.outlook.in_flight == 0 {
            Doing::Idle
        } else if again {
            Doing::Recovery
        } else {
            Doing::Tail
        }
    }

    /// Updates its activity after an input. `open`: whether the window that it shares is open, if it shares one;
    /// `blocked`: whether all ports are blocked. A ready connection counts as sending until a poll finds nothing to
    /// send.
    #[inline]
    pub(crate) fn keep_time(&mut self, now: Time, open: Option<bool>, blocked: bool) {
        if !(self.ready && !blocked && self.record.clock.doing.is_sending()) {
            self.refresh(now, open, blocked);
        }
    }

    #[inline(never)]
    fn refresh(&mut self, now: Time, open: Option<bool>, blocked: bool) {
        let doing = self.doing(now, open.unwrap_or_else(|| self.window_open()), self.record.again);
        self.record.clock.turn_to(now, if blocked && doing == Doing::Line { Doing::Paused } else { doing });
    }
}

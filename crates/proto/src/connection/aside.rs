//! What a connection has once it is used: its accounts, and when it sent its last CNP.

use super::Connection;
use crate::account::{Clock, Doing, Spent, Waits};
use crate::congestion::Congestion;
use crate::reliability::Reliability;
use crate::units::Time;

/// What a connection has only when it has been used: an idle one stays small.
pub(super) struct Aside {
    pub(super) clock: Clock,
    pub(super) waits: Waits,
    /// When the last CNP left; [`Time::NEVER`] before the first.
    pub(super) last_cnp: Time,
    /// Was the last packet one that was sent again?
    pub(super) again: bool,
}

impl Aside {
    #[cold]
    pub(super) fn new() -> Box<Aside> {
        Box::new(Aside { clock: Clock::default(), waits: Waits::default(), last_cnp: Time::NEVER, again: false })
    }
}

impl Connection {
    /// Where its time went up to `now`.
    pub(crate) fn spent(&mut self, now: Time) -> Spent {
        self.aside.get_or_insert_with(Aside::new).clock.read(now)
    }

    /// What its packets met on their way.
    pub(crate) fn waits(&self) -> Waits {
        self.aside.as_ref().map_or_else(Waits::default, |a| a.waits)
    }

    /// What it does at `now`, where its window, or the one it shares, is `open`.
    pub(super) fn doing(&self, now: Time, open: bool, again: bool) -> Doing {
        if self.reliability.has_next() {
            if open && now >= self.pace_at { Doing::Line } else { Doing::window(self.congestion.last_cut()) }
        } else if self.reliability.is_held() {
            Doing::Range
        } else if self.reliability.in_flight().0 == 0 {
            Doing::Idle
        } else if again {
            Doing::Recovery
        } else {
            Doing::Tail
        }
    }

    /// After an input: what it does from now on. `open` says whether a window is that it shares, `blocked` whether all ports
    /// are. What is ready goes on sending until it is asked and has nothing.
    #[inline]
    pub(crate) fn keep_time(&mut self, now: Time, open: Option<bool>, blocked: bool) {
        if let Some(aside) = &self.aside
            && !(self.ready && !blocked && aside.clock.doing.is_sending())
        {
            self.look_again(now, open, blocked, aside.again);
        }
    }

    #[inline(never)]
    fn look_again(&mut self, now: Time, open: Option<bool>, blocked: bool, again: bool) {
        let doing = self.doing(now, open.unwrap_or_else(|| self.window_open()), again);
        self.turn_to(now, if blocked && doing == Doing::Line { Doing::Paused } else { doing });
    }

    #[inline]
    pub(super) fn turn_to(&mut self, now: Time, doing: Doing) {
        if let Some(aside) = &mut self.aside {
            aside.clock.turn_to(now, doing);
        }
    }
}

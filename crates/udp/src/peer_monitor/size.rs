//! Do full packets still pass? A path may become narrower in the middle of a run, and lose them without a word, while
//! small pings pass. So a plane that is in use is pinged with a full packet now and then: the black hole detection of
//! RFC 8899, section 4.3, with one size.

use super::{PeerMonitor, PeerMonitors};
use strandway_proto::{Span, Time};

/// A plane in use is asked so often: ours.
const CHECK: Span = Span::from_ms(1_000);
/// If an answer is missing, or full packets do not pass, so often: ours.
const AGAIN: Span = Span::from_ms(50);
/// The least time that an answer has: ours. Queues hold a full packet up longer than a small one.
const ANSWER: Span = Span::from_ms(100);
/// After this number of full pings without an answer, while others are answered, a plane is no longer used: ours.
const NARROW: u32 = 4;
/// If no other plane is left, the connection ends after this number: ours. With half of all packets lost, it happens
/// once in 10^9 times.
const LOST: u32 = 30;

/// The state of full packets on a plane.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// When to ask again.
    check_at: Time,
    /// The full ping that is not answered yet, and when it left.
    asked: Option<(u64, Time)>,
    /// Full pings that were not answered, one after the other.
    missed: u32,
    /// Full packets do not pass.
    pub(super) narrow: bool,
}

impl Size {
    pub(super) fn go_back(&mut self, earlier: impl Fn(Time) -> Time) {
        self.check_at = earlier(self.check_at);
        self.asked = self.asked.map(|(number, at)| (number, earlier(at)));
    }
}

impl PeerMonitors {
    /// Is it time to ping a plane with a full packet?
    pub(crate) fn wants_full_ping(&self, now: Time, monitor: u32, plane: usize) -> bool {
        let Some(one) = self.get(monitor) else { return false };
        let side = &one.sides[plane];
        one.active > 0 && side.up && side.size.asked.is_none() && now >= side.size.check_at
    }

    /// A full ping leaves; returns its number.
    pub(crate) fn ping_in_full(&mut self, now: Time, monitor: u32, plane: usize) -> u64 {
        let number = self.number();
        if let Some(side) = self.get_mut(monitor).and_then(|one| one.sides.get_mut(plane)) {
            side.size.asked = Some((number, now));
        }
        number
    }

    /// A ping was answered: perhaps the full one.
    pub(super) fn handle_full_pong(&mut self, now: Time, monitor: u32, plane: usize, number: u64) {
        let Some(side) = self.get_mut(monitor).and_then(|one| one.sides.get_mut(plane)) else { return };
        if side.size.asked.is_some_and(|(asked, _)| asked == number) {
            let was_narrow = side.size.narrow;
            side.size = super::Size { check_at: now + CHECK, ..super::Size::default() };
            if was_narrow {
                self.note_change(monitor);
            }
        }
    }

    /// The kernel says that full packets do not fit the interface.
    pub(crate) fn set_narrow(&mut self, now: Time, monitor: u32, plane: usize) {
        if let Some(side) = self.get_mut(monitor).and_then(|one| one.sides.get_mut(plane))
            && !std::mem::replace(&mut side.size.narrow, true)
        {
            (side.size.asked, side.size.check_at) = (None, now + AGAIN);
            self.note_change(monitor);
        }
    }
}

impl PeerMonitor {
    /// Looks at full pings without answers: has a plane become narrow, and is none left that is not?
    pub(super) fn check_sizes(&mut self, now: Time, answer: Span) -> (bool, bool) {
        let (mut is_news, mut is_lost) = (false, false);
        for plane in 0..self.sides.len() {
            let side = &mut self.sides[plane];
            let Some((_, at)) = side.size.asked.filter(|(_, at)| now.since(*at) > answer.max(ANSWER)) else { continue };
            side.size.asked = None;
            side.size.check_at = now + AGAIN;
            if side.heard <= at {
                // Nothing passes, whatever its size: other pings find that out.
                continue;
            }
            side.size.missed += 1;
            let missed = side.size.missed;
            if missed >= NARROW {
                is_news |= !std::mem::replace(&mut side.size.narrow, true);
            }
            is_lost |= missed >= LOST && !self.sides.iter().any(|side| side.is_usable());
        }
        (is_news, is_lost)
    }
}

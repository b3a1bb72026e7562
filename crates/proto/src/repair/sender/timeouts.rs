//! The timeouts of chunks, in order of time.

use super::{RepairSender, SILENCE_MIN};
use crate::packet::PathId;
use crate::rng::mix64;
use crate::units::{Span, Time};
use std::cmp::Reverse;

/// After this many transmissions of a chunk, its timeout doubles with each further one. Ours.
const PATIENT_AFTER: u8 = 3;
/// The timeout doubles at most this many times. Ours.
const DOUBLINGS: u8 = 10;
/// A doubled timeout is at most this long, unless the timeout itself is longer. Ours: a sender gives up after
/// [`SILENCE_MIN`], and must have tried often enough by then. With losses of 30 % in both directions, twelve tries are too
/// few for one chunk in a thousand.
const DOUBLED_MAX: Span = Span(SILENCE_MIN.0 / 16);

impl RepairSender {
    /// The timeout of a chunk that was sent `tries` times, the last time over `path`.
    ///
    /// A doubled timeout is longer by up to a half, at random: senders that lost their packets in one full queue would
    /// otherwise meet there again and again (ours). The path's entropy is the random number.
    pub(super) fn timeout_of(&self, tries: u8, path: PathId) -> Span {
        let doublings = tries.max(self.rounds).saturating_sub(PATIENT_AFTER).min(DOUBLINGS);
        let rto = self.timing.rto();
        if doublings == 0 {
            return rto;
        }
        let timeout = (rto.0 << doublings).min(rto.max(DOUBLED_MAX).0);
        let random = mix64(u64::from(path.entropy())) >> 56;
        Span(timeout + timeout / 512 * random)
    }

    /// Adds a timeout of a chunk that ends at `at`.
    pub(super) fn push_timeout(&mut self, at: Time, sequence: u64, chunk: u32) {
        if let Some(state) = self.get_mut(sequence).and_then(|s| s.states.get_mut(chunk as usize)) {
            state.due = at;
        }
        if self.timeouts.back().is_none_or(|last| last.0 <= at) {
            self.timeouts.push_back((at, sequence, chunk));
        } else {
            self.patient.push(Reverse((at, sequence, chunk)));
        }
    }

    /// When the next timeout ends.
    pub(super) fn next_timeout(&self) -> Time {
        let regular = self.timeouts.front().map_or(Time::NEVER, |t| t.0);
        regular.min(self.patient.peek().map_or(Time::NEVER, |t| t.0.0))
    }

    /// Takes a timeout that has ended.
    pub(super) fn take_timeout(&mut self, now: Time) -> Option<(Time, u64, u32)> {
        if let Some(&(at, sequence, chunk)) = self.timeouts.front()
            && at <= now
        {
            self.timeouts.pop_front();
            return Some((at, sequence, chunk));
        }
        let &Reverse((at, sequence, chunk)) = self.patient.peek()?;
        if at > now {
            return None;
        }
        self.patient.pop();
        Some((at, sequence, chunk))
    }
}

//! How a worker finds and recovers missing results.

#[cfg(test)]
mod tests;

use super::{Recovery, Worker};
use strandway_proto::aggregate::{Fragment, Kind, Marks, key_of};
use strandway_proto::program::Elements;
use strandway_proto::rng::mix64;
use strandway_proto::units::{Span, Time};

/// The longest timer. Ours.
const TIMEOUT_MAX: Span = Span::from_ms(64);

/// A timeout asks for one key, and each further one for twice as many, up to this number, until a result comes that
/// nobody asked for, or the server says that it waits. Ours: the answer about the first key says whether others are lost.
const ASKED_MAX: u32 = 64;

/// The longest time between two reminders is the shortest timer, or this many round trips. Ours: reminders are short,
/// and the server answers those that only wait for a slow worker.
const REMIND_MAX_RTTS: u64 = 32;

/// A key that later ones have passed counts as lost after this many times the time of a path, and so does the answer about
/// it. Ours: with less, workers ask for keys that a server completes by itself, after a slot was taken over.
const LATE: u64 = 3;

/// The same for ATP, whose workers send at once.
const LATE_ATP: u64 = 2;

/// A worker of ESA reminds the server of the first missing key after this many times the time of a path without any
/// result: later keys cannot show the loss of the last ones before a pause. Ours.
const TAIL: u64 = 8;

/// After this many timeouts without any result, further ones are longer by up to their length, at random: workers whose
/// fragments did not fit into the queue to the server together would otherwise meet there for ever. Ours.
const HASTY: u32 = 4;

impl Worker {
    /// The random part of a timeout, see [`HASTY`]. It depends on the worker and on the number of timeouts.
    fn delay(&self) -> Span {
        if self.silent <= HASTY {
            return Span::ZERO;
        }
        let random = mix64(u64::from(self.worker) << 32 | u64::from(self.silent)) >> 54;
        Span(self.timeout.0 / 1024 * random)
    }

    /// Reacts to a missing result of a key: reminds the server, or sends the fragment again.
    fn ask(&mut self, now: Time, key: u64) {
        self.state_mut(key).acted = now;
        match self.settings.recovery {
            Recovery::Resend if self.job.contributes(self.worker, key) => {
                self.counts.resent += 1;
                self.send(key, Marks::RESEND);
            }
            // In a reduce-scatter the owner of a key has no fragment to send again, also in ATP.
            Recovery::Remind | Recovery::Resend => {
                self.counts.reminders += 1;
                let fragment = self.word(Kind::Remind, key);
                self.send_to_server(key, fragment, Elements::None);
            }
        }
    }

    /// The time of a result that does not wait for another worker: a round trip at least.
    fn path_time(&self) -> Span {
        self.path.get().max(self.job.shape.rtt)
    }

    /// The time after which a key counts as lost that later ones have passed.
    fn late(&self) -> Span {
        self.path_time() * if self.settings.recovery == Recovery::Remind { LATE } else { LATE_ATP }
    }

    /// The timer after a result.
    pub(super) fn first_timeout(&self) -> Span {
        self.settings.timeout.max(self.path_time() * 4).min(TIMEOUT_MAX)
    }

    /// Finds lost keys: enough later keys are done, and the key was sent [`LATE`] times the time of a path ago.
    pub(super) fn detect_losses(&mut self, now: Time) {
        self.hurry_at = Time::NEVER;
        let Some(&third) = self.highest.last() else { return };
        self.looked = self.looked.max(self.base);
        while self.looked < third {
            let state = *self.of(self.looked);
            if !state.done && now.since(state.sent) < self.late() {
                // If the window is full, no further result may come, so a timer must check again.
                self.hurry_at = state.sent + self.late();
                return;
            }
            if !state.done && state.hurried == 0 {
                if self.settings.halves {
                    self.window.on_reordering(self.looked, self.next);
                }
                self.hurry(now, self.looked);
            }
            self.looked += 1;
        }
    }

    /// Asks for a lost key, and again when the answer is late, too; the time doubles.
    fn hurry(&mut self, now: Time, key: u64) {
        let wait = (self.late() * (1 << self.of(key).hurried.min(16))).min(self.longest_timeout());
        let state = self.state_mut(key);
        state.hurried = state.hurried.saturating_add(1);
        self.lost.insert((now + wait, key));
        self.ask(now, key);
    }

    /// Asks for lost keys again.
    pub(super) fn hurry_again(&mut self, now: Time) {
        while let Some(&(due, key)) = self.lost.first().filter(|(due, _)| *due <= now) {
            self.lost.remove(&(due, key));
            if key >= self.base && !self.of(key).done {
                self.hurry(now, key);
            }
        }
    }

    /// The time without any result after which the timer expires.
    pub(super) fn patience(&self) -> Span {
        match self.settings.recovery {
            Recovery::Remind if self.silent == 0 => self.timeout.min(self.path_time() * TAIL),
            _ => self.timeout,
        }
    }

    /// The same after a result. If it was asked for, more may be lost: the next ones are asked for soon.
    pub(super) fn patience_after(&self, repaired: bool) -> Span {
        match repaired {
            true => self.patience().min(self.late()),
            false => self.patience(),
        }
    }

    /// The longest timer without a result.
    fn longest_timeout(&self) -> Span {
        match self.settings.recovery {
            Recovery::Remind => self.first_timeout().max(self.job.shape.rtt * REMIND_MAX_RTTS).min(TIMEOUT_MAX),
            // Ours: in the released ATP the timeout does not grow at all.
            Recovery::Resend => self.settings.timeout * 8,
        }
    }

    /// The server asks for this worker's fragment of a key.
    pub(super) fn handle_solicit(&mut self, now: Time, fragment: &Fragment) {
        let Some(key) = key_of(fragment.number, self.base) else { return };
        let float = fragment.marks.has(Marks::FLOAT);
        if self.has_result(key) {
            if key + self.settings.retain < self.base {
                self.counts.obsolete += 1;
                let word = self.word(Kind::Obsolete, key);
                return self.send_to_server(key, word, Elements::None);
            }
            if self.job.owner(key).is_none_or(|owner| owner == self.worker) {
                let word = self.word(Kind::ResultCopy, key);
                return self.send_to_server(key, word, Elements::Result(key));
            }
        } else if key >= self.next {
            // The key is not sent yet. When it is sent, it will bypass the switches.
            if key < self.base + u64::from(self.job.shape.window) {
                self.state_mut(key).bypass = true;
                if float {
                    self.floats.insert(key);
                }
            }
            let word = self.word(Kind::NotYet, key);
            return self.send_to_server(key, word, Elements::None);
        }
        if !self.has_result(key) {
            let path = self.path_time();
            let state = self.state_mut(key);
            state.acted = now;
            // The server asks again if it does not know how long an answer takes. The last one is still on its way.
            if state.answered.is_some_and(|at| now.since(at) < path) {
                return;
            }
            state.answered = Some(now);
        }
        if self.job.contributes(self.worker, key) {
            self.counts.resent += 1;
            self.send(key, Marks::BYPASS.with(Marks::RESEND).with_if(float, Marks::FLOAT));
        }
    }

    /// The timer has expired: no result came for long.
    pub(super) fn ask_silent(&mut self, now: Time) {
        let mut asked = 0;
        let patience = self.patience();
        let most = if self.settings.recovery == Recovery::Remind { self.burst } else { ASKED_MAX };
        for key in self.base..self.next {
            let state = self.of(key);
            if !state.done && now.since(state.acted) >= patience && asked < most {
                self.ask(now, key);
                asked += 1;
            }
        }
        if asked > 0 {
            self.silent = self.silent.saturating_add(1);
            self.burst = (2 * self.burst).min(ASKED_MAX);
            if patience == self.timeout {
                self.timeout = (self.timeout * 2).min(self.longest_timeout());
            }
        }
        let wait = if asked > 0 { self.timeout + self.delay() } else { patience };
        self.wake = if self.base < self.next { now + wait } else { Time::NEVER };
    }
}

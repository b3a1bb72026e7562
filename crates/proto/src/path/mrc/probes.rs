//! Probes of paths that are assumed bad.

use super::MrcConfig;
use crate::packet::PathId;
use crate::units::{Span, Time};

/// This bit is set in the numbers of probes of paths assumed bad. It is clear in the numbers of reliability's probes
/// and of probes of reverse paths. Numbers have 16 bits.
pub(super) const OURS: u32 = 1 << 15;

/// Is it the number of a probe of a path assumed bad?
pub(super) const fn is_ours(number: u32) -> bool {
    number & OURS != 0
}

/// The effect that the answer of a probe has on its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// No probe of that path and number was on its way.
    Late,
    /// The path needs more successes in a row.
    Counted,
    /// The path is good again.
    Restored,
}

/// One path that is assumed bad.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    path: PathId,
    /// While a probe is on its way: when it has failed. Otherwise: when the next one may be sent.
    at: Time,
    interval: Span,
    /// The number of the probe on its way.
    asked: Option<u32>,
    /// Successes in a row.
    ok: u8,
}

#[derive(Clone, Debug)]
pub(super) struct Probes {
    /// The paths assumed bad, in any order; each path at most once, so at most as many as the set has.
    suspects: Vec<Suspect>,
    /// One of them is to be probed when a port is idle.
    due: bool,
    /// The next time at which a probe is due or has failed; [`Time::NEVER`] if there is none.
    wake: Time,
    /// The usable planes; paths of other planes are not probed.
    usable: u32,
    /// The next probe is not sent before this time, so that probes stay below `probe_share`.
    pace: Time,
    gap: Span,
    first: Span,
    most: Span,
    timeout: Span,
    needed: u8,
    number: u32,
}

impl Probes {
    pub(super) fn new(config: &MrcConfig, base_rtt: Span, gap: Span) -> Probes {
        let least = |span: Span| Span(span.0.max(1000));
        Probes {
            suspects: Vec::new(),
            due: false,
            wake: Time::NEVER,
            usable: u32::MAX,
            pace: Time::ZERO,
            gap,
            first: least(base_rtt.scaled(config.probe_first)),
            most: config.probe_max,
            timeout: least(base_rtt.scaled(config.probe_timeout)),
            needed: config.probe_successes.clamp(1, 255) as u8,
            number: 0,
        }
    }

    /// Computes whether a probe is due, and the next time at which something happens.
    fn plan(&mut self, now: Time) {
        self.due = false;
        self.wake = Time::NEVER;
        for suspect in &self.suspects {
            let at = if suspect.asked.is_some() { suspect.at } else { suspect.at.max(self.pace) };
            if suspect.asked.is_none() && self.usable >> suspect.path.port() & 1 == 0 {
                continue;
            }
            if suspect.asked.is_none() && at <= now {
                self.due = true;
            } else {
                self.wake = self.wake.min(at);
            }
        }
    }

    /// The set of usable planes has changed.
    pub(super) fn on_planes(&mut self, now: Time, usable: u32) {
        self.usable = usable;
        self.plan(now);
    }

    /// Starts to probe a path that is now assumed bad.
    pub(super) fn start(&mut self, now: Time, path: PathId) {
        let suspect = Suspect { path, at: now + self.first, interval: self.first, asked: None, ok: 0 };
        self.suspects.push(suspect);
        self.plan(now);
    }

    /// Stops probing a path.
    pub(super) fn stop(&mut self, now: Time, path: PathId) {
        self.suspects.retain(|s| s.path != path);
        self.plan(now);
    }

    #[inline]
    pub(super) const fn deadline(&self) -> Time {
        self.wake
    }

    /// Ends the probes that were not answered in time; after each failure the time to the next probe doubles.
    pub(super) fn expire(&mut self, now: Time, mut unanswered: impl FnMut(PathId)) {
        for suspect in &mut self.suspects {
            if suspect.asked.is_some() && suspect.at <= now {
                unanswered(suspect.path);
                suspect.asked = None;
                suspect.ok = 0;
                suspect.interval = (suspect.interval * 2).min(self.most);
                suspect.at = now + suspect.interval;
            }
        }
        self.plan(now);
    }

    /// Is there a path to probe now?
    #[inline]
    pub(super) const fn is_due(&self) -> bool {
        self.due
    }

    /// Takes a probe that is due on one of these ports.
    pub(super) fn take(&mut self, now: Time, ports: u32) -> Option<(PathId, u32)> {
        if !self.due || self.pace > now {
            return None;
        }
        let due = |s: &Suspect| s.asked.is_none() && s.at <= now && ports >> s.path.port() & 1 == 1;
        let at = self.suspects.iter().position(due)?;
        self.number = self.number.wrapping_add(1);
        let number = OURS | self.number & (OURS - 1);
        let suspect = &mut self.suspects[at];
        suspect.asked = Some(number);
        suspect.at = now + self.timeout;
        self.pace = now + self.gap;
        let path = suspect.path;
        self.plan(now);
        Some((path, number))
    }

    /// A path assumed bad has failed again: its successes do not count any more.
    pub(super) fn spoil(&mut self, path: PathId) {
        if let Some(suspect) = self.suspects.iter_mut().find(|s| s.path == path) {
            suspect.ok = 0;
        }
    }

    /// A probe was answered.
    pub(super) fn answered(&mut self, now: Time, path: PathId, number: u32, good: bool) -> Answered {
        let asked = |s: &Suspect| s.path == path && s.asked == Some(number);
        let Some(at) = self.suspects.iter().position(asked) else { return Answered::Late };
        let suspect = &mut self.suspects[at];
        suspect.asked = None;
        suspect.ok = if good { suspect.ok + 1 } else { 0 };
        suspect.interval = self.first;
        suspect.at = now + self.first;
        let returns = suspect.ok >= self.needed;
        if returns {
            self.suspects.swap_remove(at);
        }
        self.plan(now);
        if returns { Answered::Restored } else { Answered::Counted }
    }
}

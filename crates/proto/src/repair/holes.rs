//! Which chunks of a stretch are lost, as its receiver sees it: those that others have overtaken, and a tail that does not come.
//!
//! SDR-RDMA (section 4.1) names NACKs and models them as a timeout of one round trip; the detector is ours.

use super::timers::Timing;
use crate::letter::{Letter, Missing};
use crate::partial::{Progress, truncated};
use crate::units::{Span, Time};
use std::collections::VecDeque;

/// Runs of chunks that are reported at one time.
const RUNS_MAX: usize = 170;

/// The holes of one stretch.
#[derive(Clone, Debug)]
pub(super) struct Holes {
    /// Chunks that may overtake.
    reorder: u32,
    /// Chunks below have been looked at.
    looked: u32,
    /// Chunks that are lost, to be reported.
    lost: VecDeque<u32>,
    /// Chunks that were reported, and when, in order.
    reported: VecDeque<(Time, u32)>,
    /// No report leaves before.
    quiet_until: Time,
    /// When something came last: copies, too, since they delay what is new.
    last_came: Time,
}

impl Holes {
    pub(super) fn new(now: Time, reorder: u32) -> Holes {
        Holes {
            reorder,
            looked: 0,
            lost: VecDeque::new(),
            reported: VecDeque::new(),
            quiet_until: Time::ZERO,
            last_came: now,
        }
    }

    /// A packet that is new has come; with `chunk`, that chunk is complete.
    pub(super) fn note(&mut self, now: Time, chunk: Option<u32>, progress: &Progress) {
        self.last_came = now;
        if let Some(chunk) = chunk {
            self.look_at(chunk.saturating_sub(self.reorder), progress);
        }
    }

    /// A packet that was here already has come.
    pub(super) fn note_copy(&mut self, now: Time) {
        self.last_came = now;
    }

    fn look_at(&mut self, below: u32, progress: &Progress) {
        while self.looked < below {
            let hole = progress.first_missing(self.looked);
            if hole >= below {
                self.looked = below;
                return;
            }
            self.lost.push_back(hole);
            self.looked = hole + 1;
        }
    }

    /// A lost chunk that was reported is lost again after so long.
    fn patience(&self, timing: &Timing) -> Span {
        timing.rtt + Span(timing.rtt.0 / 8).max(timing.chunk * u64::from(self.reorder))
    }

    /// When to call [`Holes::handle_timeout`].
    pub(super) fn deadline(&self, timing: &Timing, progress: &Progress) -> Time {
        let mut at = Time::NEVER;
        if !self.lost.is_empty() {
            at = self.quiet_until;
        }
        if let Some(&(when, _)) = self.reported.front() {
            at = at.min(when + self.patience(timing));
        }
        if self.looked < progress.chunks() {
            at = at.min(self.last_came + timing.tail());
        }
        at
    }

    /// Reports what is lost by now.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        sequence: u64,
        progress: &Progress,
        timing: &Timing,
        letters: &mut impl FnMut(Letter),
    ) {
        let patience = self.patience(timing);
        while let Some(&(when, chunk)) = self.reported.front()
            && when + patience <= now
        {
            self.reported.pop_front();
            self.lost.push_back(chunk);
        }
        if self.last_came + timing.tail() <= now {
            self.look_at(progress.chunks(), progress);
        }
        if now < self.quiet_until || self.lost.is_empty() {
            return;
        }
        let mut report = Report::new(sequence);
        while report.runs < RUNS_MAX
            && let Some(chunk) = self.lost.pop_front()
        {
            if !progress.has_chunk(chunk) {
                report.add(chunk, letters);
                self.reported.push_back((now, chunk));
            }
        }
        report.finish(letters);
        self.quiet_until = now + timing.nack_interval();
    }
}

/// Lost chunks of one stretch, on their way into letters.
pub(super) struct Report {
    missing: Missing,
    filled: usize,
    /// Runs so far.
    pub(super) runs: usize,
}

impl Report {
    pub(super) fn new(sequence: u64) -> Report {
        Report { missing: Missing { sequence: truncated(sequence), ..Missing::default() }, filled: 0, runs: 0 }
    }

    /// One more chunk; chunks in a row make a run.
    pub(super) fn add(&mut self, chunk: u32, letters: &mut impl FnMut(Letter)) {
        let (mut starts, mut lengths) = (self.missing.starts, self.missing.lengths);
        if let Some(last) = self.filled.checked_sub(1)
            && starts[last] + u32::from(lengths[last]) == chunk
            && lengths[last] < u16::MAX
        {
            lengths[last] += 1;
            self.missing.lengths = lengths;
            return;
        }
        if self.filled == Missing::RUNS {
            letters(Letter::Missing(self.missing));
            self.filled = 0;
            (starts, lengths) = ([0; Missing::RUNS], [0; Missing::RUNS]);
        }
        (starts[self.filled], lengths[self.filled]) = (chunk, 1);
        (self.missing.starts, self.missing.lengths) = (starts, lengths);
        self.filled += 1;
        self.runs += 1;
    }

    /// The last letter, if there is anything left to say.
    pub(super) fn finish(self, letters: &mut impl FnMut(Letter)) {
        if self.filled > 0 {
            letters(Letter::Missing(self.missing));
        }
    }
}

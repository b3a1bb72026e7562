//! Finds the lost chunks of a stretch at its receiver: those that later chunks have overtaken, and the last ones if
//! nothing arrives any more.
//!
//! SDR-RDMA (section 4.1) names NACKs and models them as a timeout of one round trip; the detector is ours.

use super::timers::Timing;
use crate::control_message::{ControlMessage, Missing};
use crate::partial::{Progress, truncated};
use crate::units::{Span, Time};
use std::collections::VecDeque;

/// The largest number of runs that are reported at one time.
const RUNS_MAX: usize = 170;

/// The holes of one stretch.
#[derive(Clone, Debug)]
pub(super) struct Holes {
    /// The number of chunks that may overtake a chunk before it counts as lost.
    reorder: u32,
    /// All chunks below this one have been checked.
    looked: u32,
    /// Lost chunks that are not reported yet.
    lost: VecDeque<u32>,
    /// Reported chunks and the time of the report, in order.
    reported: VecDeque<(Time, u32)>,
    /// No report is sent before this time.
    quiet_until: Time,
    /// When the last packet arrived, duplicates included, because they delay new packets.
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

    /// A new packet has arrived. If it completes a chunk, that is `chunk`.
    pub(super) fn note(&mut self, now: Time, chunk: Option<u32>, progress: &Progress) {
        self.last_came = now;
        if let Some(chunk) = chunk {
            self.refresh(chunk.saturating_sub(self.reorder), progress);
        }
    }

    /// A duplicate has arrived.
    pub(super) fn note_copy(&mut self, now: Time) {
        self.last_came = now;
    }

    fn refresh(&mut self, below: u32, progress: &Progress) {
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

    /// A reported chunk that has not arrived after this long counts as lost again.
    fn answer_timeout(&self, timing: &Timing) -> Span {
        timing.rtt + Span(timing.rtt.0 / 8).max(timing.chunk * u64::from(self.reorder))
    }

    /// When to call [`Holes::handle_timeout`].
    pub(super) fn deadline(&self, timing: &Timing, progress: &Progress) -> Time {
        let mut at = Time::NEVER;
        if !self.lost.is_empty() {
            at = self.quiet_until;
        }
        if let Some(&(when, _)) = self.reported.front() {
            at = at.min(when + self.answer_timeout(timing));
        }
        if self.looked < progress.chunks() {
            at = at.min(self.last_came + timing.tail());
        }
        at
    }

    /// Reports the chunks that count as lost by now.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        sequence: u64,
        progress: &Progress,
        timing: &Timing,
        controls: &mut impl FnMut(ControlMessage),
    ) {
        let patience = self.answer_timeout(timing);
        while let Some(&(when, chunk)) = self.reported.front()
            && when + patience <= now
        {
            self.reported.pop_front();
            self.lost.push_back(chunk);
        }
        if self.last_came + timing.tail() <= now {
            self.refresh(progress.chunks(), progress);
        }
        if now < self.quiet_until || self.lost.is_empty() {
            return;
        }
        let mut report = Report::new(sequence);
        while report.runs < RUNS_MAX
            && let Some(chunk) = self.lost.pop_front()
        {
            if !progress.has_chunk(chunk) {
                report.add(chunk, controls);
                self.reported.push_back((now, chunk));
            }
        }
        report.finish(controls);
        self.quiet_until = now + timing.nack_interval();
    }
}

/// Packs the lost chunks of one stretch into control messages.
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

    /// Adds a chunk; consecutive chunks form a run.
    pub(super) fn add(&mut self, chunk: u32, controls: &mut impl FnMut(ControlMessage)) {
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
            controls(ControlMessage::Missing(self.missing));
            self.filled = 0;
            (starts, lengths) = ([0; Missing::RUNS], [0; Missing::RUNS]);
        }
        (starts[self.filled], lengths[self.filled]) = (chunk, 1);
        (self.missing.starts, self.missing.lengths) = (starts, lengths);
        self.filled += 1;
        self.runs += 1;
    }

    /// Writes the last control message, if it holds any chunk.
    pub(super) fn finish(self, controls: &mut impl FnMut(ControlMessage)) {
        if self.filled > 0 {
            controls(ControlMessage::Missing(self.missing));
        }
    }
}

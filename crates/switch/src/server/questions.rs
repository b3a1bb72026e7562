//! The questions of a server that lacks parts of a key. It asks the switches for their partial sums first, then workers
//! for their fragments.

use super::cover::cover;
use super::entry::Flushing;
use super::{Rules, Server};
use std::collections::BTreeMap;
use strandway_proto::aggregate::{Fragment, Kind, Marks};
use strandway_proto::program::Elements;
use strandway_proto::units::{Span, Time};

/// The longest time between two questions about a key is this, or [`FLUSH_MAX_RTTS`] round trips, or
/// [`FLUSH_MAX_ANSWERS`] times the time that workers take to answer, whichever is the longest. Ours.
pub(super) const FLUSH_MAX: Span = Span::from_ms(1);
const FLUSH_MAX_RTTS: u64 = 32;
const FLUSH_MAX_ANSWERS: u64 = 4;

/// The longest time between two questions about a key before any worker has answered one. Ours: a queue that is longer
/// than a round trip must not fill with questions.
const UNKNOWN_MAX: Span = Span::from_ms(64);

/// The most questions that a worker has not answered: ours. Its port may be slow, and each answer has elements.
const OUTSTANDING_MAX: u32 = 64;

/// The number of questions about a key for which no worker waits. Ours.
pub(super) const FLUSHES_MAX: u32 = 16;

/// The time to the next question about a key: it doubles each time, from two round trips on. `answers`: how long workers
/// take to answer, if that is known.
pub(super) fn answer_timeout(before: Span, rtt: Span, answers: Option<Span>) -> Span {
    let most = answers.map_or(UNKNOWN_MAX, |answers| answers * FLUSH_MAX_ANSWERS);
    (before * 2).min(most.max(FLUSH_MAX).max(rtt * FLUSH_MAX_RTTS)).max(rtt * 2)
}

impl Server {
    /// Sets the timer of a key that a new part has come for: two round trips, or the time between its questions if it
    /// was asked for before.
    pub(super) fn rearm(&mut self, now: Time, key: u64) {
        if self.rules != (Rules::Cover { flush_timer: true }) {
            return;
        }
        let rtt = self.job.shape.rtt;
        if let Some(entry) = self.entries.get_mut(&key) {
            if entry.asked.is_none() {
                entry.patience = rtt * 2;
            }
            entry.repeats = 0;
            let at = now + entry.patience;
            self.arm(key, at);
        }
    }

    /// Asks a worker for its fragment of a key, unless it has enough questions to answer.
    pub(super) fn solicit(&mut self, now: Time, key: u64, worker: u16, marks: Marks) {
        let Some(outstanding) = self.outstanding.get_mut(usize::from(worker)) else { return };
        let Some(entry) = self.entries.get_mut(&key) else { return };
        if let std::collections::btree_map::Entry::Vacant(first) = entry.solicited.entry(worker) {
            if *outstanding >= OUTSTANDING_MAX {
                return;
            }
            *outstanding += 1;
            first.insert(now);
        }
        self.counts.solicits += 1;
        self.send_marks(key, Kind::Solicit, worker, marks);
    }

    /// A worker has answered a question. Answers to repeated questions count from the first one (Karn: too long is
    /// safe, too short is not).
    pub(super) fn note_answer(&mut self, now: Time, key: u64, worker: u16) {
        let asked = self.entries.get_mut(&key).and_then(|entry| entry.solicited.remove(&worker));
        if let Some(asked) = asked {
            self.outstanding[usize::from(worker)] -= 1;
            self.answers.add(now.since(asked));
        }
    }

    /// Nobody needs the answers to these questions any more.
    pub(super) fn end_questions(&mut self, solicited: &BTreeMap<u16, Time>) {
        for &worker in solicited.keys() {
            self.outstanding[usize::from(worker)] -= 1;
        }
    }

    /// Asks the switches for their partial sums of a key: first the switch that adds racks, then the switches of
    /// incomplete racks.
    pub(super) fn flush(&mut self, now: Time, key: u64) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.asked = Some(now);
        entry.patience = answer_timeout(entry.patience, self.job.shape.rtt, self.answers.get());
        let (at, flushing) = (now + entry.patience, entry.flushing);
        self.arm(key, at);
        match flushing {
            // Ask the racks again that have not answered; the answers of the others are still valid.
            Flushing::Racks(waiting) if waiting != 0 => self.ask_racks(key, waiting),
            Flushing::No | Flushing::Racks(_) if self.job.racks().len() == 1 => self.flush_racks(now, key),
            _ => {
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.flushing = Flushing::All;
                }
                self.ask_switch(key, 0, Marks::LEVEL);
            }
        }
    }

    fn flush_racks(&mut self, now: Time, key: u64) {
        let all = self.job.all(key);
        let racks = self.job.racks().len();
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let (covered, _) = cover(&entry.parts, racks);
        let missing = (0..racks).filter(|&rack| covered.rack(rack) != all.rack(rack));
        let missing = missing.fold(0u32, |bits, rack| bits | 1 << rack);
        entry.flushing = Flushing::Racks(missing);
        if missing == 0 {
            return self.after_flush(now, key);
        }
        self.ask_racks(key, missing);
    }

    fn ask_racks(&mut self, key: u64, racks: u32) {
        for rack in (0..self.job.racks().len()).filter(|rack| racks >> rack & 1 == 1) {
            self.ask_switch(key, rack, Marks::NONE);
        }
    }

    fn ask_switch(&mut self, key: u64, rack: usize, marks: Marks) {
        self.counts.flushes += 1;
        let marks = marks.with(Marks::FROM_SERVER);
        let fragment = Fragment { marks, racks: 1 << rack, ..self.header(Kind::Flush, key) };
        // It is addressed to a worker of the rack; the switch consumes it.
        let worker = self.job.racks()[rack].workers[0];
        let host = self.job.workers()[usize::from(worker)];
        let packet = self.job.packet(self.job.server(), host, self.job.plane(key), fragment);
        self.send(packet, Elements::None);
    }

    /// Handles a switch's answer: it sent its partial sum of a key, or had none.
    pub(super) fn handle_flush_answer(&mut self, now: Time, key: u64, fragment: &Fragment) {
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.done.is_none()) else { return };
        match (entry.flushing, fragment.marks.has(Marks::LEVEL)) {
            (Flushing::All, true) => self.flush_racks(now, key),
            (Flushing::Racks(waiting), false) => {
                let left = waiting & !fragment.racks;
                entry.flushing = Flushing::Racks(left);
                if left == 0 {
                    entry.flushing = Flushing::No;
                    self.after_flush(now, key);
                }
            }
            _ => {}
        }
    }

    /// All switches have answered. If workers wait for the key, asks the workers whose fragments are still missing.
    fn after_flush(&mut self, now: Time, key: u64) {
        let racks = self.job.racks().len();
        let all = self.job.all(key);
        let Some(entry) = self.entries.get(&key) else { return };
        if entry.askers.is_empty() {
            return;
        }
        let (covered, _) = cover(&entry.parts, racks);
        let askers: Vec<u16> = entry.askers.iter().copied().collect();
        for worker in 0..self.job.workers().len() as u16 {
            let place = self.job.place(worker);
            if all.has(place) && !covered.has(place) {
                self.solicit(now, key, worker, Marks::NONE);
            }
        }
        // Workers take longer than switches.
        if let (Some(answers), Some(entry)) = (self.answers.get(), self.entries.get(&key)) {
            let at = now + entry.patience.max(answers);
            self.arm(key, at);
        }
        for worker in askers {
            if covered.has(self.job.place(worker)) {
                self.send_marks(key, Kind::Hold, worker, Marks::NONE);
            }
        }
    }
}

//! A server's answers to one worker: results for reminders, and copies of results that it takes.

use super::Server;
use strandway_proto::aggregate::{Fragment, Kind, Marks};
use strandway_proto::program::{Act, Elements};
use strandway_proto::units::Time;

impl Server {
    /// Sends a key's result to one worker.
    pub(super) fn answer(&mut self, key: u64, worker: u16) {
        let Some((done, given)) = self.entries.get(&key).and_then(|entry| Some((entry.done?, entry.given))) else {
            return;
        };
        let Some(&host) = self.job.workers().get(usize::from(worker)) else { return };
        let mut fragment = self.result_of(key);
        let owned = self.job.owner(key).is_none_or(|owner| owner == worker);
        if !owned {
            fragment = Fragment { kind: Kind::Credit, elements: 0, ..fragment };
        }
        let fragment = Fragment { watermark: given.map_or(fragment.watermark, |slot| slot + 1), ..fragment };
        let packet = self.job.packet(self.job.server(), host, self.job.plane(key), fragment);
        self.send(packet, if owned { Elements::Register(done) } else { Elements::None });
    }

    /// Handles a reminder: a worker waits for a key.
    pub(super) fn handle_reminder(&mut self, now: Time, fragment: &Fragment, key: u64) {
        let worker = fragment.sender;
        if usize::from(worker) >= self.job.workers().len() {
            return;
        }
        let entry = self.entries.entry(key).or_default();
        if entry.done.is_some() {
            // A reminder that left before the result could arrive needs no answer.
            if entry.finished.is_none_or(|at| now.since(at) >= self.job.shape.rtt) {
                self.answer(key, worker);
            }
            return;
        }
        entry.slot.get_or_insert(fragment.slot);
        // All workers that lack a result remind the server at about the same time. The answers to a question that was
        // asked for one of them less than a round trip ago are still on their way; if they are lost, the timer asks
        // again.
        let waits = !entry.askers.is_empty() && entry.asked.is_some_and(|at| now.since(at) < self.job.shape.rtt);
        // It has parts of a key whose slot was taken over, and asks for the rest by itself when that has had time to come.
        let waits = waits || entry.asked.is_none() && entry.timer.is_some();
        entry.askers.insert(worker);
        if waits {
            return;
        }
        if entry.floats.is_some() {
            return self.solicit_floats(now, key);
        }
        self.flush(now, key);
    }

    /// Handles the copy of a result from a worker.
    pub(super) fn handle_copy(&mut self, now: Time, key: u64, fragment: &Fragment) {
        let entry = self.entries.entry(key).or_default();
        if entry.done.is_some() {
            return;
        }
        if fragment.marks.has(Marks::FLOAT) {
            entry.floats.get_or_insert_default();
        }
        let left: Vec<u32> = entry.take_registers();
        self.free.extend(left);
        let register = self.register();
        self.acts.push_back(Act::Store { to: register, from: Elements::Incoming });
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.done = Some(register);
        }
        self.send_result(now, key);
    }
}

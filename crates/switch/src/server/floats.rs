//! Keys whose fragments are floats, because integers would have overflowed. The server alone adds them, in the order of
//! workers.

use super::Server;
use super::questions::answer_timeout;
use crate::who::Who;
use strandway_proto::aggregate::{Fragment, Marks};
use strandway_proto::program::{Act, Elements};
use strandway_proto::units::Time;

impl Server {
    /// Handles a fragment of floats: its key is then added from floats, in the order of workers.
    pub(super) fn handle_float(&mut self, now: Time, key: u64, fragment: &Fragment, who: &Who) {
        let workers = self.job.workers().len();
        let sender = usize::from(fragment.sender);
        if sender >= workers || *who != self.single(fragment.sender) {
            self.counts.odd += 1;
            return;
        }
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let begins = entry.floats.is_none();
        self.free.extend(entry.parts.drain(..).map(|part| part.register));
        let known = entry.floats.get_or_insert_with(|| vec![None; workers])[sender].is_some();
        if !known {
            let register = self.register();
            self.acts.push_back(Act::Store { to: register, from: Elements::Incoming });
            if let Some(floats) = self.entries.get_mut(&key).and_then(|entry| entry.floats.as_mut()) {
                floats[sender] = Some(register);
            }
        }
        if begins || known {
            self.solicit_floats(now, key);
        }
        let all = self.job.all(key);
        let Some(floats) = self.entries.get(&key).and_then(|entry| entry.floats.as_ref()) else { return };
        let wanted = (0..workers as u16).filter(|&worker| all.has(self.job.place(worker)));
        let here: Option<Vec<u32>> = wanted.map(|worker| floats[usize::from(worker)]).collect();
        let Some(registers) = here else { return };
        let sum = registers[0];
        for &register in &registers[1..] {
            self.acts.push_back(Act::Add { to: sum, from: Elements::Register(register) });
        }
        self.free.extend(registers[1..].iter().copied());
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.floats = Some(Vec::new());
            entry.done = Some(sum);
        }
        self.send_result(now, key);
    }

    fn single(&self, worker: u16) -> Who {
        let (rack, bit) = self.job.place(worker);
        let mut who = Who::nobody(self.job.racks().len());
        who.insert(usize::from(rack), 1 << bit);
        who
    }

    /// Asks all workers whose floats of a key are missing.
    pub(super) fn solicit_floats(&mut self, now: Time, key: u64) {
        let all = self.job.all(key);
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let Some(floats) = entry.floats.clone() else { return };
        entry.asked = Some(now);
        entry.patience = answer_timeout(entry.patience, self.job.shape.rtt, self.answers.get());
        let at = now + entry.patience;
        self.arm(key, at);
        for worker in 0..self.job.workers().len() as u16 {
            if all.has(self.job.place(worker)) && floats.get(usize::from(worker)).is_some_and(Option::is_none) {
                self.solicit(now, key, worker, Marks::FLOAT);
            }
        }
    }
}

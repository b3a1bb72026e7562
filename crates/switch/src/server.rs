//! The parameter server of a job: it adds the fragments that switches did not add, and sends results to workers that
//! lack them.
//!
//! ATP's server drops a part that overlaps with its sum. Ours for ESA keeps all parts and chooses those that cover
//! every worker once (ESA sheet, section 6). Elements are in registers, which the world keeps.

mod answers;
mod cover;
mod entry;
mod floats;
mod questions;
#[cfg(test)]
mod tests;

use crate::esa::send_to_owners;
use crate::job::Job;
use crate::times::AnswerTime;
use crate::who::Who;
use cover::cover;
use entry::{Entry, Flushing, Part};
use questions::FLUSHES_MAX;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use strandway_proto::Packet;
use strandway_proto::aggregate::{Counts, Fragment, Kind, Marks, key_of, number_of};
use strandway_proto::packet::{Flags, Header};
use strandway_proto::program::{Act, Elements, Fate, Program};
use strandway_proto::queue::take_oldest;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::Time;

/// How a server combines parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Parts that overlap are alternatives; the server asks for missing fragments. Ours, for ESA.
    Cover {
        /// When a part of a key has arrived, ask the switches for their partial sums of it after a time, without a
        /// worker's reminder. Off only for the comparison with ATP.
        flush_timer: bool,
    },
    /// A part that overlaps with the present sum is dropped. ATP.
    Discard {
        /// After a collision, assign another slot to the key's place in the list.
        readdress: bool,
    },
}

/// The number of packets between two updates of the lowest watermark.
const LOOK_EVERY: u32 = 64;

/// The server of one job.
#[derive(Clone, Debug)]
pub struct Server {
    job: Arc<Job>,
    rules: Rules,
    entries: BTreeMap<u64, Entry>,
    /// Free registers, and the number of all registers.
    free: Vec<u32>,
    registers: u32,
    /// For each worker, the key below which all are done there.
    watermarks: Vec<u64>,
    /// The lowest of these, at the last update.
    watermark: u64,
    since_look: u32,
    /// The highest key seen.
    highest: u64,
    /// Keys further than this above the watermark are not stored.
    reach: u64,
    /// No packet has come yet, and the job may be anywhere.
    resumes: bool,
    timers: BTreeSet<(Time, u64)>,
    /// How long workers take to answer, and the number of questions that each has not answered.
    answers: AnswerTime,
    outstanding: Vec<u32>,
    /// ATP: unused slots in random order, and the present list of slots.
    spare: Vec<u32>,
    list: Vec<u32>,
    acts: VecDeque<Act>,
    counts: Counts,
}

impl PartialEq for Server {
    fn eq(&self, other: &Server) -> bool {
        (&self.entries, &self.watermarks, &self.list) == (&other.entries, &other.watermarks, &other.list)
    }
}

impl Eq for Server {}

impl Hash for Server {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.entries, &self.watermarks, &self.list).hash(state);
    }
}

impl Server {
    /// A new server. `seed` gives the order of the slots that it assigns after collisions.
    pub fn new(job: &Arc<Job>, rules: Rules, seed: u64) -> Server {
        let first = job.shape.first;
        let list = job.list().to_vec();
        let mut spare = Vec::new();
        if rules == (Rules::Discard { readdress: true }) {
            let used: BTreeSet<u32> = list.iter().copied().collect();
            spare = (0..job.shape.slots).filter(|slot| !used.contains(slot)).collect();
            Random::new(seed, StreamKind::Switch, u64::from(job.shape.number) << 32).shuffle(&mut spare);
        }
        Server {
            job: Arc::clone(job),
            rules,
            entries: BTreeMap::new(),
            free: Vec::new(),
            registers: 0,
            watermarks: vec![first; job.workers().len()],
            watermark: first,
            since_look: 0,
            highest: first,
            reach: u64::MAX,
            resumes: false,
            timers: BTreeSet::new(),
            answers: AnswerTime::default(),
            outstanding: vec![0; job.workers().len()],
            spare,
            list,
            acts: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Bounds its memory: fragments of keys more than `reach` above the watermark are dropped, and count as lost.
    #[must_use]
    pub fn within(mut self, reach: u64) -> Server {
        self.reach = reach;
        self
    }

    /// Begins in the middle of a job: its first packet tells where the job is. Two windows below that packet's key all
    /// workers are done, since each is less than a window behind or ahead of any other one.
    #[must_use]
    pub fn resumed(mut self) -> Server {
        self.resumes = true;
        self
    }

    /// May this key be stored?
    fn keeps(&self, key: u64) -> bool {
        key >= self.watermark && key - self.watermark <= self.reach
    }

    /// Are packets of this kind for servers?
    pub const fn hears(kind: Kind) -> bool {
        !matches!(kind, Kind::Result | Kind::Credit | Kind::Solicit | Kind::Hold | Kind::Flush)
    }

    /// The number of stored keys.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Registers in use.
    pub fn held(&self) -> usize {
        self.registers as usize - self.free.len()
    }

    /// Forgets everything, as after a restart. Workers still have the fragments and results that it needs.
    pub fn restart(&mut self) {
        let first = self.job.shape.first;
        self.entries.clear();
        self.timers.clear();
        self.free.clear();
        self.registers = 0;
        self.watermarks.fill(first);
        self.watermark = first;
        self.outstanding.fill(0);
    }

    /// Forgets the results of keys below `end`, to bound memory. This is safe because workers keep results.
    pub fn forget_below(&mut self, end: u64) {
        let keys: Vec<u64> = self.entries.range(..end).filter(|(_, e)| e.done.is_some()).map(|(&key, _)| key).collect();
        keys.into_iter().for_each(|key| self.drop_entry(key));
    }

    fn register(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.registers += 1;
            self.registers - 1
        })
    }

    fn send(&mut self, packet: Packet, elements: Elements) {
        self.acts.push_back(Act::Send { packet, elements });
    }

    /// Sends a packet without elements about a key to one worker.
    fn send_marks(&mut self, key: u64, kind: Kind, worker: u16, marks: Marks) {
        let fragment = Fragment { marks: marks.with(Marks::FROM_SERVER), ..self.header(kind, key) };
        let host = self.job.workers()[usize::from(worker)];
        let packet = self.job.packet(self.job.server(), host, self.job.plane(key), fragment);
        self.send(packet, Elements::None);
    }

    fn header(&self, kind: Kind, key: u64) -> Fragment {
        let slot = match self.job.shape.index {
            crate::job::Index::List => self.list[(key % self.list.len() as u64) as usize],
            crate::job::Index::PerKey => self.job.slot(key),
        };
        let slot = self.entries.get(&key).and_then(|entry| entry.slot).unwrap_or(slot);
        let watermark = match self.rules {
            Rules::Cover { .. } => number_of(self.watermark),
            Rules::Discard { .. } => 0,
        };
        Fragment { slot, watermark, ..self.job.fragment(kind, key) }
    }

    fn drop_entry(&mut self, key: u64) {
        if let Some(entry) = self.entries.remove(&key) {
            self.free.extend(entry.registers());
            self.end_questions(&entry.solicited);
            if let Some(at) = entry.timer {
                self.timers.remove(&(at, key));
            }
        }
    }

    fn arm(&mut self, key: u64, at: Time) {
        if let Some(entry) = self.entries.get_mut(&key) {
            if let Some(old) = entry.timer.replace(at) {
                self.timers.remove(&(old, key));
            }
            self.timers.insert((at, key));
        }
    }

    fn disarm(&mut self, key: u64) {
        if let Some(old) = self.entries.get_mut(&key).and_then(|entry| entry.timer.take()) {
            self.timers.remove(&(old, key));
        }
    }

    /// Raises the watermarks of workers: a packet carries its sender's watermark, and a worker that sent a key has done
    /// all keys more than a window below it.
    fn note_progress(&mut self, fragment: &Fragment, key: u64, who: Option<&Who>) {
        if std::mem::take(&mut self.resumes) {
            let done = key.saturating_sub(2 * u64::from(self.job.shape.window)).max(self.watermark);
            self.watermarks.fill(done);
            self.watermark = done;
        }
        self.highest = self.highest.max(key);
        if let Some(mark) = self.watermarks.get_mut(usize::from(fragment.sender))
            && fragment.watermark != 0
            && let Some(told) = key_of(fragment.watermark, self.highest)
        {
            *mark = (*mark).max(told);
        }
        if let Some(who) = who {
            let reached = (key + 1).saturating_sub(u64::from(self.job.shape.window));
            for (worker, mark) in self.watermarks.iter_mut().enumerate() {
                if who.has(self.job.place(worker as u16)) {
                    *mark = (*mark).max(reached);
                }
            }
        }
        self.since_look += 1;
        if self.since_look >= LOOK_EVERY || fragment.kind == Kind::Watermark {
            self.since_look = 0;
            self.watermark = self.watermarks.iter().copied().min().unwrap_or(0).max(self.watermark);
            while let Some((&key, _)) = self.entries.first_key_value().filter(|(key, _)| **key < self.watermark) {
                self.drop_entry(key);
            }
        }
    }

    /// Handles a partial sum or a single fragment.
    fn handle_part(&mut self, now: Time, packet: &Packet, fragment: Fragment) {
        let Some(key) = key_of(fragment.number, self.highest) else { return };
        let Some(who) = self.job.who(&fragment, key) else {
            self.counts.odd += 1;
            return;
        };
        self.counts.server_packets += 1;
        self.counts.server_bytes += u64::from(packet.size);
        self.note_progress(&fragment, key, Some(&who));
        if !self.keeps(key) {
            return;
        }
        if fragment.marks.has(Marks::RESEND) {
            self.note_answer(now, key, fragment.sender);
        }
        let marked = fragment.marks.has(Marks::CONGESTED) || packet.flags.has(Flags::CE);
        let entry = self.entries.entry(key).or_default();
        entry.congested |= marked;
        entry.collided |= fragment.marks.has(Marks::COLLIDED);
        entry.slot.get_or_insert(fragment.slot);
        if entry.done.is_some() {
            // ATP: a worker that sends again lacks the result.
            if matches!(self.rules, Rules::Discard { .. }) && fragment.marks.has(Marks::RESEND) {
                self.answer(key, fragment.sender);
            }
            return;
        }
        if fragment.marks.has(Marks::FLOAT) {
            return self.handle_float(now, key, &fragment, &who);
        }
        if entry.floats.is_some() {
            if fragment.marks.has(Marks::RESEND) {
                self.solicit_floats(now, key);
            }
            return;
        }
        match self.rules {
            Rules::Cover { .. } => self.cover_with(now, key, &fragment, who),
            Rules::Discard { .. } => self.add_or_discard(now, key, who),
        }
    }

    /// ATP: adds a part to the sum if none of its workers is in the sum yet.
    fn add_or_discard(&mut self, now: Time, key: u64, who: Who) {
        let all = self.job.all(key);
        let Some(entry) = self.entries.get_mut(&key) else { return };
        match entry.parts.first_mut() {
            // A part with all workers replaces the sum.
            _ if who == all => self.keep_part(key, who, true),
            None => self.keep_part(key, who, true),
            Some(part) if part.who.is_apart_from(&who) => {
                part.who.join(&who);
                let to = part.register;
                self.acts.push_back(Act::Add { to, from: Elements::Incoming });
            }
            Some(_) => self.counts.duplicates += 1,
        }
        if self.entries.get(&key).and_then(|entry| entry.parts.first()).is_some_and(|part| part.who == all) {
            self.finish(now, key, &[0]);
        }
    }

    /// Stores a part; `alone`: in place of all others.
    fn keep_part(&mut self, key: u64, who: Who, alone: bool) {
        if alone && let Some(entry) = self.entries.get_mut(&key) {
            self.free.extend(entry.parts.drain(..).map(|part| part.register));
        }
        let register = self.register();
        self.acts.push_back(Act::Store { to: register, from: Elements::Incoming });
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.parts.push(Part { who, register });
        }
    }

    /// ESA: stores a part beside the others, unless there is one with the same workers.
    fn cover_with(&mut self, now: Time, key: u64, fragment: &Fragment, who: Who) {
        let all = self.job.all(key);
        let known = self.entries.get(&key).is_some_and(|entry| entry.parts.iter().any(|part| part.who == who));
        if !known {
            self.keep_part(key, who, false);
            self.bound_parts(key);
        }
        let Some(entry) = self.entries.get(&key) else { return };
        let (covered, chosen) = cover(&entry.parts, self.job.racks().len());
        if covered == all {
            return self.finish(now, key, &chosen);
        }
        if fragment.kind == Kind::Flushed {
            return self.handle_flush_answer(now, key, fragment);
        }
        if !known {
            self.rearm(now, key);
        }
    }

    /// Bounds the number of parts: with more than the number of workers plus four, drops the smallest part of several
    /// workers.
    fn bound_parts(&mut self, key: u64) {
        let most = self.job.workers().len() + 4;
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.parts.len() > most) else { return };
        let sums = entry.parts.iter().enumerate().filter(|(_, part)| part.who.count() > 1);
        if let Some((smallest, _)) = sums.min_by_key(|(_, part)| part.who.count()) {
            let part = entry.parts.remove(smallest);
            self.free.push(part.register);
        }
    }

    /// Completes a key: the chosen parts contain all workers.
    fn finish(&mut self, now: Time, key: u64, chosen: &[usize]) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let sum = entry.parts[chosen[0]].register;
        for &part in &chosen[1..] {
            self.acts.push_back(Act::Add { to: sum, from: Elements::Register(entry.parts[part].register) });
        }
        self.free.extend(entry.parts.drain(..).map(|part| part.register).filter(|&register| register != sum));
        entry.done = Some(sum);
        self.send_result(now, key);
    }

    /// Sends a key's result to all workers, and clears the state of its recovery.
    fn send_result(&mut self, now: Time, key: u64) {
        self.disarm(key);
        self.counts.server_completed += 1;
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.askers.clear();
        entry.flushing = Flushing::No;
        entry.finished = Some(now);
        let (collided, solicited) = (entry.collided, std::mem::take(&mut entry.solicited));
        self.end_questions(&solicited);
        let fragment = self.result_of(key);
        let given = if collided { self.readdress(key) } else { None };
        let fragment = Fragment { watermark: given.map_or(fragment.watermark, |slot| slot + 1), ..fragment };
        let Some(done) = self.entries.get(&key).and_then(|entry| entry.done) else { return };
        let plane = self.job.plane(key);
        let job = Arc::clone(&self.job);
        send_to_owners(&job, fragment, plane, Elements::Register(done), &mut |act| self.acts.push_back(act));
    }

    /// The header of a result, without a new slot.
    fn result_of(&self, key: u64) -> Fragment {
        let entry = self.entries.get(&key);
        let marks = Marks::FROM_SERVER
            .with_if(entry.is_some_and(|entry| entry.congested), Marks::CONGESTED)
            .with_if(entry.is_some_and(|entry| entry.floats.is_some()), Marks::FLOAT);
        Fragment { marks, ..self.header(Kind::Result, key) }
    }

    /// ATP: assigns another slot to the list place of a key that collided.
    fn readdress(&mut self, key: u64) -> Option<u32> {
        if self.rules != (Rules::Discard { readdress: true }) || self.spare.is_empty() {
            return None;
        }
        let place = (key % self.list.len() as u64) as usize;
        let new = self.spare.remove(0);
        self.spare.push(std::mem::replace(&mut self.list[place], new));
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.given = Some(new);
        }
        Some(new)
    }
}

impl Program for Server {
    fn handle_packet(&mut self, now: Time, packet: &Packet) -> Fate {
        let Header::Fragment(fragment) = packet.header else { return Fate::Forward };
        if fragment.job != self.job.shape.number {
            return Fate::Forward;
        }
        if matches!(fragment.kind, Kind::Partial | Kind::Data | Kind::Flushed) {
            if !packet.flags.has(Flags::TRIMMED) {
                self.handle_part(now, packet, fragment);
            }
            return Fate::Consume;
        }
        let Some(key) = key_of(fragment.number, self.highest) else { return Fate::Consume };
        match fragment.kind {
            Kind::Watermark => self.note_progress(&fragment, key, None),
            Kind::Remind if matches!(self.rules, Rules::Cover { .. }) => {
                self.note_progress(&fragment, key, None);
                if self.keeps(key) {
                    self.handle_reminder(now, &fragment, key);
                }
            }
            // ATP: the owner of a key lacks its result. While the sum is not complete, the other workers send their
            // fragments again.
            Kind::Remind => self.answer(key, fragment.sender),
            Kind::FlushMiss => self.handle_flush_answer(now, key, &fragment),
            Kind::ResultCopy if !packet.flags.has(Flags::TRIMMED) && self.keeps(key) => {
                self.handle_copy(now, key, &fragment);
            }
            Kind::Obsolete => {
                if self.entries.get(&key).is_some_and(|entry| entry.done.is_none() && !entry.askers.is_empty()) {
                    self.acts.push_back(Act::Fail { job: self.job.shape.number, key });
                }
            }
            Kind::NotYet => self.note_answer(now, key, fragment.sender),
            Kind::ResultCopy => {}
            _ => return Fate::Forward,
        }
        Fate::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(&(at, key)) = self.timers.first().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, key));
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            entry.timer = None;
            entry.repeats += 1;
            if entry.done.is_some() || entry.repeats > FLUSHES_MAX && entry.askers.is_empty() {
                continue;
            }
            if entry.floats.is_some() {
                self.solicit_floats(now, key);
            } else if entry.repeats <= 4 * FLUSHES_MAX {
                self.flush(now, key);
            }
        }
    }

    fn poll_act(&mut self) -> Option<Act> {
        take_oldest(&mut self.acts)
    }

    fn poll_timeout(&self) -> Time {
        self.timers.first().map_or(Time::NEVER, |timer| timer.0)
    }

    fn count(&self, _now: Time, into: &mut BTreeMap<u16, Counts>) {
        *into.entry(self.job.shape.number).or_default() += self.counts;
    }
}

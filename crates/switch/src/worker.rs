//! A worker of ATP or ESA: when it sends its fragments, and how it recovers missing results.
//!
//! Windows and numbering are ATP's, reminders are ours (ESA sheet, section 5). Keys count in 64 bits and are sent in
//! order, which is the same at all workers. A key is sent when it is produced and is within the window above the lowest
//! key that is not done.

mod recovery;

use crate::job::{Index, Job};
use crate::times::LeastTime;
use crate::window::Window;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use strandway_proto::Packet;
use strandway_proto::aggregate::{Counts, Fragment, Kind, Marks, key_of, number_of};
use strandway_proto::packet::{Flags, Header};
use strandway_proto::program::{Act, Elements, Fate, Program};
use strandway_proto::queue::take_oldest;
use strandway_proto::units::{Span, Time};

/// How a worker recovers a missing result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// It sends its fragment again, past the sums of switches; without a fragment (the owner in a reduce-scatter) it
    /// reminds the server: ATP.
    Resend,
    /// It reminds the server, and sends a fragment again when the server asks for it: ours, for ESA.
    Remind,
}

/// The settings of a worker of ATP or ESA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerSettings {
    /// How it recovers.
    pub recovery: Recovery,
    /// The window at the start.
    pub window: u32,
    /// A key counts as lost after this many results of later keys; 0: only the timer finds losses. ATP: 3.
    pub out_of_order: u32,
    /// Such a key halves the window, too. ATP's paper; not its released code.
    pub halves: bool,
    /// The shortest timer.
    pub timeout: Span,
    /// The number of keys below the lowest one not done whose results are kept: those of two iterations.
    pub retain: u64,
}

/// The state of a key.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    done: bool,
    /// How often it was asked for because later keys were done.
    hurried: u8,
    /// The server has asked for it: it must bypass the switches when it is sent.
    bypass: bool,
    sent: Time,
    /// When it was last sent or asked for.
    acted: Time,
    /// When the server's question for it was last answered.
    answered: Option<Time>,
}

/// One worker.
#[derive(Clone, Debug)]
pub struct Worker {
    job: Arc<Job>,
    worker: u16,
    settings: WorkerSettings,
    window: Window,
    /// The lowest key not done, the next key to send, and the first key not produced.
    base: u64,
    next: u64,
    produced: u64,
    /// The states of the keys from `base` on, by remainder modulo the length, which is a power of two.
    states: Vec<State>,
    /// The slots of keys; ATP's server replaces slots after collisions.
    slots: Vec<u32>,
    /// The highest keys done, the highest first.
    highest: Vec<u64>,
    /// Keys below this one were already checked for losses.
    looked: u64,
    /// Lost keys that were asked for, and when each is asked for again.
    lost: BTreeSet<(Time, u64)>,
    /// Keys whose values would overflow as integers, so they travel as floats.
    floats: BTreeSet<u64>,
    /// Pairs of a first key and the priority of fragments from that key on; in order.
    priorities: VecDeque<(u64, u8)>,
    /// The time of a result that does not wait for another worker.
    path: LeastTime,
    timeout: Span,
    /// The number of timeouts since the last result.
    silent: u32,
    /// The number of keys that the next timeout asks for.
    burst: u32,
    wake: Time,
    /// When the oldest key that later keys have passed is old enough to count as lost.
    hurry_at: Time,
    /// The number of results since the last separate watermark packet.
    quiet: u32,
    acts: VecDeque<Act>,
    counts: Counts,
}

impl PartialEq for Worker {
    fn eq(&self, other: &Worker) -> bool {
        self.state().eq(other.state())
    }
}

impl Eq for Worker {}

impl Hash for Worker {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.state().for_each(|word| word.hash(state));
    }
}

impl Worker {
    /// A new worker: no key is produced.
    pub fn new(job: &Arc<Job>, worker: u16, settings: WorkerSettings) -> Worker {
        let first = job.shape.first;
        Worker {
            job: Arc::clone(job),
            worker,
            settings,
            window: Window::new(settings.window, job.shape.window),
            base: first,
            next: first,
            produced: first,
            states: vec![State::default(); job.shape.window.next_power_of_two() as usize],
            slots: job.list().to_vec(),
            highest: vec![first; settings.out_of_order as usize],
            looked: first,
            lost: BTreeSet::new(),
            floats: BTreeSet::new(),
            priorities: VecDeque::new(),
            path: LeastTime::new(job.shape.rtt, job.shape.window),
            timeout: settings.timeout,
            silent: 0,
            burst: 1,
            wake: Time::NEVER,
            hurry_at: Time::NEVER,
            quiet: 0,
            acts: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// The state that decides its future actions, without times and windows. For searches through all states.
    fn state(&self) -> impl Iterator<Item = u64> + '_ {
        let bits = move |key: u64| {
            let State { done, hurried, bypass, .. } = *self.of(key);
            let sent = key < self.next;
            u64::from(sent && done) | u64::from(sent && hurried > 0) << 1 | u64::from(bypass) << 2
        };
        let states = (self.base..self.base + self.states.len() as u64).map(bits);
        let ends = [self.base, self.next, self.produced, u64::from(self.poll_timeout() == Time::NEVER)];
        ends.into_iter()
            .chain(states)
            .chain(self.floats.iter().copied())
            .chain(self.slots.iter().map(|&s| u64::from(s)))
    }

    /// All keys below this one are done.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Are all produced keys done?
    pub fn is_done(&self) -> bool {
        self.base == self.produced
    }

    /// The number of keys sent and not done.
    pub fn under_way(&self) -> u64 {
        self.next - self.base
    }

    /// The window.
    pub fn window(&self) -> u32 {
        self.window.size()
    }

    /// Tells that this key's sum would overflow as integers, so it must travel as floats. Must be called before the key
    /// is produced.
    pub fn overflow(&mut self, key: u64) {
        self.floats.insert(key);
    }

    /// Produces all keys below `end`; the new ones get this priority.
    pub fn produce(&mut self, now: Time, end: u64, priority: u8) {
        if end <= self.produced {
            return;
        }
        if self.priorities.back().is_none_or(|last| last.1 != priority) {
            self.priorities.push_back((self.produced, priority.max(1)));
        }
        self.produced = end;
        self.send_on(now);
    }

    /// Sends this worker's watermark to the server, so that the server can forget keys below it.
    pub fn send_watermark(&mut self) {
        let fragment = Fragment { priority: 1, ..self.word(Kind::Watermark, self.base) };
        self.send_to_server(self.base, fragment, Elements::None);
    }

    /// Its acts that were not polled yet.
    pub(crate) const fn acts_mut(&mut self) -> &mut VecDeque<Act> {
        &mut self.acts
    }

    fn at(&self, key: u64) -> usize {
        key as usize & (self.states.len() - 1)
    }

    fn of(&self, key: u64) -> &State {
        &self.states[self.at(key)]
    }

    fn state_mut(&mut self, key: u64) -> &mut State {
        let at = self.at(key);
        &mut self.states[at]
    }

    /// Has the result of a key arrived at some time?
    fn has_result(&self, key: u64) -> bool {
        key < self.base || key < self.next && self.of(key).done
    }

    fn priority(&self, key: u64) -> u8 {
        // Most keys are among the newest.
        self.priorities.iter().rev().find(|&&(from, _)| from <= key).map_or(1, |&(_, priority)| priority)
    }

    /// A header of this worker about a key.
    fn word(&self, kind: Kind, key: u64) -> Fragment {
        let (rack, bit) = self.job.place(self.worker);
        let slot = match self.job.shape.index {
            Index::List => self.slots[(key % self.slots.len() as u64) as usize],
            Index::PerKey => self.job.slot(key),
        };
        Fragment {
            priority: self.priority(key),
            fan_in: self.job.fan_in(usize::from(rack), key),
            workers: 1 << bit,
            racks: 1 << rack,
            watermark: number_of(self.base),
            sender: self.worker,
            ..self.job.fragment_at(slot, kind, key)
        }
    }

    fn send_to_server(&mut self, key: u64, fragment: Fragment, elements: Elements) {
        let host = self.job.workers()[usize::from(self.worker)];
        let packet = self.job.packet(host, self.job.server(), self.job.plane(key), fragment);
        self.acts.push_back(Act::Send { packet, elements });
    }

    /// Sends its fragment of a key.
    fn send(&mut self, key: u64, marks: Marks) {
        let float = self.floats.contains(&key) || marks.has(Marks::FLOAT);
        let marks = marks.with_if(float, Marks::FLOAT.with(Marks::BYPASS));
        let fragment = Fragment { marks, ..self.word(Kind::Data, key) };
        self.counts.floats += u64::from(float);
        self.send_to_server(key, fragment, Elements::Own(key));
    }

    /// Sends new keys while the window has room.
    fn send_on(&mut self, now: Time) {
        let end = self.produced.min(self.base + u64::from(self.window.size()));
        while self.next < end {
            let key = self.next;
            self.next += 1;
            let state = self.state_mut(key);
            let bypass = state.bypass;
            *state = State { sent: now, acted: now, answered: bypass.then_some(now), ..State::default() };
            if !self.job.contributes(self.worker, key) {
                continue;
            }
            self.counts.sent += 1;
            let marks = Marks::NONE.with_if(bypass, Marks::BYPASS.with(Marks::RESEND));
            self.send(key, marks);
        }
        if self.wake == Time::NEVER && self.base < self.next {
            self.wake = now + self.patience();
        }
    }

    fn handle_result(&mut self, now: Time, fragment: &Fragment, marked: bool, trimmed: bool) {
        let Some(key) = key_of(fragment.number, self.base) else { return };
        if self.has_result(key) {
            self.counts.late_results += 1;
            return;
        }
        if key >= self.next || trimmed {
            return;
        }
        let owned = self.job.owner(key).is_none_or(|owner| owner == self.worker);
        if owned && fragment.kind == Kind::Credit {
            return;
        }
        self.counts.congested += u64::from(marked);
        if self.settings.recovery == Recovery::Resend && fragment.watermark != 0 {
            let at = (key % self.slots.len() as u64) as usize;
            self.slots[at] = fragment.watermark - 1;
        }
        self.acts.push_back(Act::Take { key, here: owned });
        self.floats.remove(&key);
        let state = self.state_mut(key);
        state.done = true;
        // A key that was asked for gives no valid time sample (Karn).
        let State { sent, acted, .. } = *state;
        let repaired = sent != acted;
        if !repaired {
            self.path.add(now.since(sent));
            self.burst = 1;
        }
        self.timeout = self.first_timeout();
        self.silent = 0;
        while self.base < self.next && self.of(self.base).done {
            self.base += 1;
        }
        while self.priorities.get(1).is_some_and(|next| next.0 <= self.base) {
            self.priorities.pop_front();
        }
        self.wake = if self.base < self.next { now + self.patience_after(repaired) } else { Time::NEVER };
        self.window.on_result(key, marked, self.next);
        self.quiet += 1;
        if self.quiet >= 4 * self.job.shape.window && self.settings.recovery == Recovery::Remind {
            self.quiet = 0;
            self.send_watermark();
        }
        let above = self.highest.partition_point(|&done| done > key);
        if above < self.highest.len() {
            self.highest[above..].rotate_right(1);
            self.highest[above] = key;
        }
        self.detect_losses(now);
        self.send_on(now);
    }
}

impl Program for Worker {
    fn handle_packet(&mut self, now: Time, packet: &Packet) -> Fate {
        let Header::Fragment(fragment) = &packet.header else { return Fate::Forward };
        if fragment.job != self.job.shape.number {
            return Fate::Forward;
        }
        let marked = fragment.marks.has(Marks::CONGESTED) || packet.flags.has(Flags::CE);
        match fragment.kind {
            Kind::Result | Kind::Credit => {
                self.handle_result(now, fragment, marked, packet.flags.has(Flags::TRIMMED));
            }
            Kind::Solicit => self.handle_solicit(now, fragment),
            Kind::Hold => {
                if let Some(key) = key_of(fragment.number, self.base)
                    && (self.base..self.next).contains(&key)
                {
                    self.state_mut(key).acted = now;
                    // The server has the fragment and waits for another worker: nothing was lost.
                    (self.silent, self.burst) = (0, 1);
                    self.timeout = self.first_timeout();
                    self.wake = self.wake.min(now + self.timeout);
                }
            }
            _ => return Fate::Forward,
        }
        Fate::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        if now >= self.hurry_at {
            self.detect_losses(now);
        }
        self.hurry_again(now);
        if now < self.wake {
            return;
        }
        self.ask_silent(now);
    }

    fn poll_act(&mut self) -> Option<Act> {
        take_oldest(&mut self.acts)
    }

    fn poll_timeout(&self) -> Time {
        let again = self.lost.first().map_or(Time::NEVER, |(due, _)| *due);
        self.wake.min(self.hurry_at).min(again)
    }

    fn count(&self, _now: Time, into: &mut BTreeMap<u16, Counts>) {
        *into.entry(self.job.shape.number).or_default() += self.counts;
    }
}

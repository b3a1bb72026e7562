//! A worker of SwitchML: it has one fragment per slot in flight, and each result releases the next fragment of its
//! slot.
//!
//! Packet numbers run over the whole job: packet `p` uses slot `p mod s` and version `(p / s) mod 2`, so that a slot's
//! versions alternate. With exponents, each round (an iteration, or an operation) has one more packet per slot: packet
//! `j` of a round carries the exponents of block `j` and the elements of block `j - s` (ESA sheet, section 11.1). In a
//! round of fewer blocks than slots, the elements follow the exponents by that number of packets instead of `s`.

use crate::job::Job;
use crate::switchml::{VERSION, exponents, exponents_of};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use strandway_proto::Packet;
use strandway_proto::aggregate::{Counts, Fragment, Kind, Marks, key_of, number_of};
use strandway_proto::packet::{Flags, Header};
use strandway_proto::program::{Act, Elements, Fate, Program};
use strandway_proto::queue::take_oldest;
use strandway_proto::units::{Span, Time};

/// The exponents of the blocks of one round, which workers agree on before they send the elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Exponents {
    /// Blocks in a round; 0 if each round is announced ([`SelfClocked::begin_round`]).
    pub per_round: u64,
    /// This worker's exponents by block; zero for blocks beyond the end.
    pub own: Vec<[i8; 2]>,
}

/// A round that was announced.
#[derive(Clone, Debug)]
struct Round {
    /// Its first packet and its first key.
    packet: u64,
    key: u64,
    /// Its blocks.
    blocks: u64,
    own: Vec<[i8; 2]>,
}

/// One worker.
#[derive(Clone, Debug)]
pub struct SelfClocked {
    job: Arc<Job>,
    worker: u16,
    timeout: Span,
    exponents: Option<Exponents>,
    /// Announced rounds that are not over.
    rounds: VecDeque<Round>,
    /// The largest exponents of all workers by block, where known.
    agreed: BTreeMap<u64, [i8; 2]>,
    /// For each slot: the packet that is in flight or comes next, and whether it is in flight.
    turns: Vec<(u64, bool)>,
    /// Keys below this one exist.
    produced: u64,
    /// The number of keys whose results have arrived.
    taken: u64,
    /// Packets in flight, in the order of their timers.
    timers: VecDeque<(Time, u64)>,
    acts: VecDeque<Act>,
    counts: Counts,
}

impl PartialEq for SelfClocked {
    fn eq(&self, other: &SelfClocked) -> bool {
        (&self.turns, self.produced, self.taken) == (&other.turns, other.produced, other.taken)
    }
}

impl Eq for SelfClocked {}

impl Hash for SelfClocked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.turns, self.produced, self.taken).hash(state);
    }
}

impl SelfClocked {
    /// A new worker. The job's window is the number of its slots; `timeout` is the time to wait for a result.
    pub fn new(job: &Arc<Job>, worker: u16, timeout: Span, exponents: Option<Exponents>) -> SelfClocked {
        let slots = u64::from(job.shape.window);
        SelfClocked {
            job: Arc::clone(job),
            worker,
            timeout,
            exponents,
            rounds: VecDeque::new(),
            agreed: BTreeMap::new(),
            turns: (0..slots).map(|slot| (job.shape.first.next_multiple_of(2 * slots) + slot, false)).collect(),
            produced: job.shape.first,
            taken: job.shape.first,
            timers: VecDeque::new(),
            acts: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Produces all keys below `end`.
    pub fn produce(&mut self, now: Time, end: u64) {
        self.produced = self.produced.max(end);
        let mut ready: Vec<u64> = self.turns.iter().filter(|turn| !turn.1).map(|turn| turn.0).collect();
        ready.sort_unstable();
        ready.into_iter().for_each(|packet| self.send_if_ready(now, packet));
    }

    /// Announces the next round, with this worker's exponents of each of its blocks. Must be called before its keys are
    /// produced, and when all keys of earlier rounds are done.
    pub fn begin_round(&mut self, own: Vec<[i8; 2]>) {
        let lowest = self.turns.iter().map(|turn| turn.0).min().unwrap_or(0);
        let last =
            self.rounds.back().map(|round| (round.packet + self.packets(round.blocks), round.key + round.blocks));
        let (packet, key) = last.unwrap_or((self.origin(), self.job.shape.first));
        self.rounds.push_back(Round { packet, key, blocks: own.len() as u64, own });
        // The newest round stays, because the next one follows it.
        while self.rounds.len() > 1 && self.rounds[1].packet <= lowest {
            self.rounds.pop_front();
        }
    }

    /// Packets of a round.
    fn packets(&self, blocks: u64) -> u64 {
        blocks + self.lead(blocks)
    }

    /// The number of packets between a block's exponents and its elements.
    fn lead(&self, blocks: u64) -> u64 {
        blocks.min(self.slots())
    }

    /// Are all produced keys done?
    pub fn is_done(&self) -> bool {
        self.taken == self.produced
    }

    /// The number of keys whose results have arrived.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The largest exponents of all workers for a key, if they are known.
    pub fn agreed(&self, key: u64) -> Option<[i8; 2]> {
        self.agreed.get(&key).copied()
    }

    /// Its acts that were not polled yet.
    pub(crate) const fn acts_mut(&mut self) -> &mut VecDeque<Act> {
        &mut self.acts
    }

    fn slots(&self) -> u64 {
        self.turns.len() as u64
    }

    /// The first packet of the job: a slot's first version is 0.
    fn origin(&self) -> u64 {
        self.job.shape.first.next_multiple_of(2 * self.slots())
    }

    /// The first key of a packet's round, its blocks, and the packet's place in it.
    fn round(&self, packet: u64) -> Option<(u64, u64, u64)> {
        let per_round = self.exponents.as_ref().map_or(0, |exponents| exponents.per_round);
        if per_round > 0 {
            let (at, each) = (packet - self.origin(), self.packets(per_round));
            return Some((self.job.shape.first + at / each * per_round, per_round, at % each));
        }
        let round = self.rounds.iter().rev().find(|round| round.packet <= packet)?;
        let at = packet - round.packet;
        (at < self.packets(round.blocks)).then_some((round.key, round.blocks, at))
    }

    /// The keys of a packet: the one whose elements it carries, and the one whose exponents it carries.
    fn keys_of(&self, packet: u64) -> (Option<u64>, Option<u64>) {
        if self.exponents.is_none() {
            return (Some(self.job.shape.first + packet - self.origin()), None);
        }
        let Some((key, blocks, at)) = self.round(packet) else { return (None, None) };
        (at.checked_sub(self.lead(blocks)).map(|block| key + block), (at < blocks).then_some(key + at))
    }

    /// This worker's exponents of a key.
    fn own(&self, key: u64) -> [i8; 2] {
        let round = self.rounds.iter().rev().find(|round| round.key <= key);
        let announced = round.map(|round| (&round.own, round.key));
        let all = announced.or(self.exponents.as_ref().map(|all| (&all.own, self.job.shape.first)));
        all.and_then(|(own, first)| own.get((key - first) as usize).copied()).unwrap_or_default()
    }

    fn send_if_ready(&mut self, now: Time, packet: u64) {
        let slot = (packet % self.slots()) as usize;
        let (numbers, expo) = self.keys_of(packet);
        let ready = numbers.max(expo).is_some_and(|key| key < self.produced);
        // Elements become integers by the exponents that all workers have agreed on.
        let agreed = self.exponents.is_none() || numbers.is_none_or(|key| self.agreed.contains_key(&key));
        if self.turns[slot] == (packet, false) && ready && agreed {
            self.turns[slot].1 = true;
            self.counts.sent += 1;
            self.send(now, packet, Marks::NONE);
        }
    }

    fn send(&mut self, now: Time, packet: u64, marks: Marks) {
        let (rack, bit) = self.job.place(self.worker);
        let (numbers, expo) = self.keys_of(packet);
        let slots = self.slots();
        let version = if packet / slots % 2 == 1 { VERSION } else { 0 };
        let fragment = Fragment {
            marks,
            fan_in: self.job.fan_in(usize::from(rack), numbers.or(expo).unwrap_or(0)),
            number: number_of(packet),
            workers: 1 << bit,
            racks: 1 << rack,
            slot: (packet % slots) as u32 | version,
            watermark: exponents(expo.map(|key| self.own(key)).unwrap_or_default()),
            sender: self.worker,
            elements: if numbers.is_some() { self.job.shape.elements } else { 0 },
            ..self.job.fragment(Kind::Data, 0)
        };
        let host = self.job.workers()[usize::from(self.worker)];
        let plane = self.job.plane(packet % slots);
        let out = self.job.packet(host, self.job.server(), plane, fragment);
        self.acts.push_back(Act::Send { packet: out, elements: numbers.map_or(Elements::None, Elements::Own) });
        self.timers.push_back((now + self.timeout, packet));
    }
}

impl Program for SelfClocked {
    fn handle_packet(&mut self, now: Time, packet: &Packet) -> Fate {
        let Header::Fragment(fragment) = packet.header else { return Fate::Forward };
        if fragment.job != self.job.shape.number || fragment.kind != Kind::Result {
            return Fate::Forward;
        }
        let slot = (fragment.slot & !VERSION) as usize;
        let Some(&(turn, under_way)) = self.turns.get(slot) else { return Fate::Consume };
        if packet.flags.has(Flags::TRIMMED) || !under_way || key_of(fragment.number, turn) != Some(turn) {
            self.counts.late_results += 1;
            return Fate::Consume;
        }
        let (numbers, expo) = self.keys_of(turn);
        if let Some(key) = expo {
            self.agreed.insert(key, exponents_of(fragment.watermark));
        }
        if let Some(key) = numbers {
            self.acts.push_back(Act::Take { key, here: true });
            self.taken += 1;
            self.agreed.remove(&key);
        }
        let next = turn + self.slots();
        let elements = self.round(turn).map(|(_, blocks, _)| turn + self.lead(blocks)).filter(|_| expo.is_some());
        self.turns[slot] = (next, false);
        self.send_if_ready(now, next);
        // In a short round another slot carries the elements of the block whose exponents are agreed now.
        if let Some(packet) = elements.filter(|&packet| packet != next) {
            self.send_if_ready(now, packet);
        }
        Fate::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(&(at, packet)) = self.timers.front() {
            let live = self.turns[(packet % self.slots()) as usize] == (packet, true);
            if live && at > now {
                return;
            }
            self.timers.pop_front();
            if live {
                self.counts.resent += 1;
                self.send(now, packet, Marks::RESEND);
            }
        }
    }

    fn poll_act(&mut self) -> Option<Act> {
        take_oldest(&mut self.acts)
    }

    fn poll_timeout(&self) -> Time {
        if self.turns.iter().all(|turn| !turn.1) {
            return Time::NEVER;
        }
        self.timers.front().map_or(Time::NEVER, |timer| timer.0)
    }

    fn count(&self, _now: Time, into: &mut BTreeMap<u16, Counts>) {
        *into.entry(self.job.shape.number).or_default() += self.counts;
    }
}

//! A network of a few ranks with real bytes, in which everything may be lost, late or told twice.
#![allow(unreachable_pub, reason = "the test beside it uses all of it")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use strandway_collective::multicast::{
    Caster, Chains, Counts, Cutoff, Layout, Multicast, Outcome, Ranks, Recovery, Word,
};
use strandway_proto::application::{Action, Application, Event};
use strandway_proto::cast::Cast;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Rate, Span, Time};
use strandway_proto::{HostId, Letter};

pub const CHUNK: u16 = 32;
const LATENCY: u64 = 1_000_000;
const RATE: Rate = Rate(8_000_000_000);

/// One operation of so many ranks; hosts are 100, 101, ...
pub fn operation(ranks: u32, root: Option<u32>, bytes: u64, chains: u32, recovery: Recovery) -> Multicast {
    Multicast {
        root,
        ranks: Ranks::new((100..100 + ranks).map(HostId).collect()),
        layout: Layout::new(bytes, if root.is_some() { 1 } else { ranks }, CHUNK).expect("few chunks"),
        chains: Chains::new(ranks, chains),
        starts: vec![Time::ZERO; ranks as usize],
        group: 0,
        task: 0,
        first_message: 0,
        channel: 0,
        profile: 0,
        header: 4,
        planes: 1,
        trees: 0,
        rate: RATE,
        pace: Some(0.95),
        rtt: Span(4 * LATENCY),
        barriers: true,
        cutoff: Cutoff::Tuned,
        recovery,
    }
}

/// Is it such a letter?
pub type Test = fn(&Word) -> bool;

/// What goes wrong.
#[derive(Clone, Default)]
pub struct Trouble {
    /// The share of chunks and letters that each receiver loses.
    pub loss: f64,
    /// The share of multicast chunks that nobody gets.
    pub near_root: f64,
    /// The share of what arrives that is late by 100 times the latency, or comes a second time then.
    pub late: f64,
    /// Rank, and when it falls silent.
    pub death: Option<(u32, Time)>,
    /// Multicast chunks that a receiver never gets: receiver and share.
    pub missing: Vec<(u32, u32)>,
    /// The number of a multicast chunk that nobody gets the first time.
    pub lost_chunk: Option<u32>,
    /// The run is given up then; by default after a second.
    pub until: Option<Time>,
    /// Letters of this kind are lost: a test, and how many of them.
    pub lost_letters: Option<(Test, u32)>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Wake,
    Left { to: u32, task: u32, end: u32 },
    Chunk { from: u32, task: u32, chunk: u32, last: bool, bytes: Vec<u8> },
    Letter { from: u32, kind: u16, words: [u32; 4] },
}

type Happening = (Time, u64, u32, What);

/// What became of all ranks.
pub struct Ended {
    /// By operation and rank.
    pub outcomes: Vec<Vec<Outcome>>,
    /// Ranks whose buffer was wrong when they were told that it is complete, by operation.
    pub wrong: Vec<(usize, u32)>,
    pub counts: Counts,
    pub quiet: bool,
}

struct Net<'a> {
    ops: &'a [Multicast],
    casters: Vec<Vec<Caster<'a>>>,
    /// The buffer of each rank in each operation.
    buffers: Vec<Vec<Vec<u8>>>,
    seen: Vec<Vec<Outcome>>,
    wrong: Vec<(usize, u32)>,
    heap: BinaryHeap<Reverse<Happening>>,
    serial: u64,
    busy: Vec<Time>,
    random: Random,
    trouble: Trouble,
    lost_chunk: Option<u32>,
}

fn byte(op: usize, place: u64) -> u8 {
    (place * 31 + op as u64 * 7 + 1) as u8
}

impl Net<'_> {
    fn put(&mut self, at: Time, rank: u32, what: What) {
        self.serial += 1;
        self.heap.push(Reverse((at, self.serial, rank, what)));
    }

    /// When something that leaves now arrives; `None` if it is lost. Perhaps it arrives a second time.
    fn travel(&mut self, from: u32, to: u32, left: Time) -> Vec<Time> {
        let dead = |rank: u32, at: Time| self.trouble.death.is_some_and(|(dead, since)| dead == rank && at >= since);
        if dead(from, left) || self.random.chance(self.trouble.loss) {
            return Vec::new();
        }
        let mut arrivals = vec![left + Span(LATENCY + u64::from(self.random.below(500_000)))];
        if self.random.chance(self.trouble.late) {
            let late = left + Span(100 * LATENCY);
            if self.random.chance(0.5) { arrivals[0] = late } else { arrivals.push(late) }
        }
        arrivals.retain(|&at| !self.trouble.death.is_some_and(|(dead, since)| dead == to && at >= since));
        arrivals
    }

    fn cast(&mut self, rank: u32, cast: Cast, now: Time) {
        let op = cast.task as usize;
        let group = cast.to.as_group().is_some();
        let ranks = self.ops[op].ranks.count();
        for chunk in cast.first..cast.first + cast.count {
            let (first, length) = self.ops[op].layout.place(chunk).expect("a chunk that exists");
            let last = chunk == cast.last;
            assert_eq!(u64::from(length), u64::from(if last { cast.tail } else { cast.bytes }));
            let left = self.busy[rank as usize].max(now) + cast.rate.min(RATE).time_for(strandway_proto::Bytes(36));
            self.busy[rank as usize] = left;
            let place = first as usize..first as usize + usize::from(length);
            let bytes = self.buffers[op][rank as usize][place].to_vec();
            let mut nobody = group && self.random.chance(self.trouble.near_root);
            if group && self.lost_chunk == Some(chunk) {
                self.lost_chunk = None;
                nobody = true;
            }
            if nobody {
                continue;
            }
            let to: Vec<u32> = match group {
                true => (0..ranks).filter(|&to| to != rank).collect(),
                false => vec![cast.to.0 - 100],
            };
            let share = self.ops[op].layout.share_of(chunk);
            for to in to {
                if group && self.trouble.missing.contains(&(to, share)) {
                    continue;
                }
                for at in self.travel(rank, to, left) {
                    let bytes = bytes.clone();
                    self.put(at, to, What::Chunk { from: rank, task: cast.task, chunk, last, bytes });
                }
            }
        }
        let left = self.busy[rank as usize];
        self.put(left, rank, What::Left { to: cast.to.0, task: cast.task, end: cast.first + cast.count });
    }

    fn act(&mut self, rank: u32, op: usize, now: Time) {
        while let Some(action) = self.casters[op][rank as usize].poll_action(now) {
            match action {
                Action::Cast(cast) => self.cast(rank, cast, now),
                Action::Fragment(_) => panic!("multicast has no fragments"),
                Action::Letter { channel, letter } => {
                    let (_, word) = Word::read(&letter).expect("a word of ours");
                    let Letter::Custom { kind, words } = letter else { panic!("a letter of a program") };
                    if let Some((test, left)) = &mut self.trouble.lost_letters
                        && *left > 0
                        && test(&word)
                    {
                        *left -= 1;
                        continue;
                    }
                    let to = channel.peer.0 - 100;
                    for at in self.travel(rank, to, now) {
                        self.put(at, to, What::Letter { from: rank, kind, words });
                    }
                }
                Action::Stage { .. } | Action::Close { .. } => {}
                other => panic!("a rank does not {other:?}"),
            }
        }
        let wake = self.casters[op][rank as usize].poll_timeout();
        if wake != Time::NEVER {
            self.put(wake.max(now + Span(1)), rank, What::Wake);
        }
        self.judge(rank, op, now);
    }

    /// Looks at what a rank may do with its buffers, and does it at once.
    fn judge(&mut self, rank: u32, op: usize, now: Time) {
        let outcome = self.casters[op][rank as usize].outcome();
        let before = std::mem::replace(&mut self.seen[op][rank as usize], outcome);
        let complete = |outcome| matches!(outcome, Outcome::Complete | Outcome::Closed);
        if complete(outcome) && !complete(before) {
            let bytes = self.ops[op].layout.bytes();
            let right: Vec<u8> = (0..bytes).map(|place| byte(op, place)).collect();
            if self.buffers[op][rank as usize] != right {
                self.wrong.push((op, rank));
            }
        }
        if outcome == Outcome::Closed && before != Outcome::Closed {
            self.buffers[op][rank as usize].fill(0xee);
            if op + 1 < self.ops.len() {
                let caster = &mut self.casters[op + 1][rank as usize];
                caster.handle_timeout(now);
                self.act(rank, op + 1, now);
            }
        }
    }

    fn happen(&mut self, rank: u32, what: What, now: Time) {
        let host = |rank: u32| HostId(100 + rank);
        let (op, event) = match what {
            What::Wake => {
                for op in 0..self.ops.len() {
                    let begun = op == 0 || self.seen[op - 1][rank as usize] == Outcome::Closed;
                    let caster = &mut self.casters[op][rank as usize];
                    if begun && caster.poll_timeout() <= now {
                        caster.handle_timeout(now);
                        self.act(rank, op, now);
                    }
                }
                return;
            }
            What::Left { to, task, end } => (task, Event::Cast { to: HostId(to), task, end }),
            What::Letter { from, kind, words } => {
                (words[0], Event::Letter { from: host(from), letter: Letter::Custom { kind, words } })
            }
            What::Chunk { from, task, chunk, last, bytes } => {
                let (op, place) = (task as usize, self.ops[task as usize].layout.place(chunk));
                let before = self.casters[op][rank as usize].progress().has_packet(chunk);
                let event = Event::Chunk { from: host(from), task, chunk, plane: 0, trimmed: false, last };
                self.casters[op][rank as usize].handle_event(now, &event);
                if !before && self.casters[op][rank as usize].progress().has_packet(chunk) {
                    let (first, _) = place.expect("a chunk that exists");
                    self.buffers[op][rank as usize][first as usize..first as usize + bytes.len()]
                        .copy_from_slice(&bytes);
                }
                return self.act(rank, op, now);
            }
        };
        self.casters[op as usize][rank as usize].handle_event(now, &event);
        self.act(rank, op as usize, now);
    }
}

/// Runs operations one after the other: a rank begins one when it has closed the one before.
pub fn run(ops: &[Multicast], trouble: Trouble, seed: u64) -> Ended {
    let ranks = ops[0].ranks.count();
    let buffers = ops.iter().enumerate().map(|(op, multicast)| {
        let buffer = |rank: u32| {
            let mut buffer = vec![0u8; multicast.layout.bytes() as usize];
            if let Some(share) = multicast.share_of(rank) {
                let (first, length) = multicast.layout.share(share);
                (first..first + length).for_each(|place| buffer[place as usize] = byte(op, place));
            }
            buffer
        };
        (0..ranks).map(buffer).collect()
    });
    let mut net = Net {
        ops,
        casters: ops.iter().map(|op| (0..ranks).map(|rank| Caster::new(op, rank)).collect()).collect(),
        buffers: buffers.collect(),
        seen: vec![vec![Outcome::Running; ranks as usize]; ops.len()],
        wrong: Vec::new(),
        heap: BinaryHeap::new(),
        serial: 0,
        busy: vec![Time::ZERO; ranks as usize],
        random: Random::new(seed, StreamKind::Workload, 0),
        lost_chunk: trouble.lost_chunk,
        trouble,
    };
    for rank in 0..ranks {
        net.put(ops[0].starts[rank as usize], rank, What::Wake);
    }
    let mut events = 0u64;
    while let Some(Reverse((now, _, rank, what))) = net.heap.pop() {
        events += 1;
        if events > 2_000_000 || now > net.trouble.until.unwrap_or(Time(1_000_000 * LATENCY)) {
            break;
        }
        if net.trouble.death.is_some_and(|(dead, since)| dead == rank && now >= since) {
            continue;
        }
        net.happen(rank, what, now);
    }
    let mut counts = Counts::default();
    for caster in net.casters.iter().flatten() {
        let one = caster.counts();
        counts.duplicates += one.duplicates;
        counts.unready += one.unready;
        counts.fetches += one.fetches;
        counts.repaired += one.repaired;
        counts.again += one.again;
    }
    let quiet = net.heap.is_empty();
    let outcomes = net.casters.iter().map(|op| op.iter().map(Caster::outcome).collect()).collect();
    Ended { outcomes, wrong: net.wrong, counts, quiet }
}

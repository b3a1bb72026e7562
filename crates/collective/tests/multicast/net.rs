//! A network of a few ranks with real bytes. It may lose, delay and repeat every packet.
#![allow(unreachable_pub, reason = "the test beside it uses all of it")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use strandway_collective::multicast::{
    Chains, Counts, Cutoff, Multicast, MulticastMessage, MulticastRank, Outcome, Ranks, Recovery, SILENT_MAX,
    StartBarriers,
};
use strandway_erasure::{Decoder, Encoder};
use strandway_proto::application::{Action, Application, Event};
use strandway_proto::cast::{Cast, Layout, Parity, Rebuild};
use strandway_proto::repair::Code;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Rate, Span, Time};
use strandway_proto::{ControlMessage, HostId};

pub const CHUNK: u16 = 32;
const LATENCY: u64 = 1_000_000;
const RATE: Rate = Rate(8_000_000_000);

/// One operation of `ranks` ranks; their hosts are 100, 101, ...
pub fn operation(ranks: u32, root: Option<u32>, bytes: u64, chains: u32, recovery: Recovery) -> Multicast {
    Multicast {
        root,
        ranks: Ranks::new((100..100 + ranks).map(HostId).collect()),
        layout: Layout::new(bytes, if root.is_some() { 1 } else { ranks }, CHUNK).expect("few chunks"),
        parity: None,
        chains: Chains::new(ranks, chains),
        starts: vec![Time::ZERO; ranks as usize],
        group: 0,
        task: 0,
        first_message: 0,
        channel: 0,
        profile: 0,
        header: 4,
        planes: 1,
        groups: u32::MAX,
        trees: 0,
        tree_count: 0,
        rate: RATE,
        pace: Some(0.95),
        rtt: Span(4 * LATENCY),
        silent_max: SILENT_MAX,
        spare_root: root.is_some() && recovery.direct,
        opening: StartBarriers::TwoBarriers,
        cutoff: Cutoff::Tuned,
        recovery,
    }
}

/// Adds parity to an operation: `m` parity chunks per `k` data chunks.
pub fn with_parity(op: Multicast, k: usize, m: usize) -> Multicast {
    let code = Code::mds(k, m).expect("few pieces");
    Multicast { parity: Some(Parity::new(op.layout, code).expect("few chunks")), ..op }
}

/// A data chunk as parity counts it: padded with zeros.
fn padded(op: &Multicast, buffer: &[u8], chunk: u32) -> Vec<u8> {
    let (first, length) = op.layout.place(chunk).expect("a chunk that exists");
    let mut bytes = buffer[first as usize..first as usize + usize::from(length)].to_vec();
    bytes.resize(usize::from(CHUNK), 0);
    bytes
}

/// Selects the control messages to lose.
pub type Test = fn(&MulticastMessage) -> bool;

/// The faults of a run.
#[derive(Clone, Default)]
pub struct Disturbance {
    /// The probability with which each receiver loses a chunk or control message.
    pub loss: f64,
    /// The probability with which a multicast chunk is lost for all receivers.
    pub near_root: f64,
    /// The probability that a packet is late by 100 times the latency, or arrives a second time after that time.
    pub late: f64,
    /// A rank, and when it dies.
    pub death: Option<(u32, Time)>,
    /// Multicast chunks that a receiver never gets: receiver and share.
    pub missing: Vec<(u32, u32)>,
    /// Runs of multicast chunks that all receivers lose the first time: first chunk and count.
    pub lost_runs: Vec<(u32, u32)>,
    /// The planes of each rank; empty if every rank has all planes.
    pub ports: Vec<u32>,
    /// A plane and a tree, and the time from which they carry nothing.
    pub silent: Option<((u8, u32), Time)>,
    /// A rank that runs a different operation than the others.
    pub odd: Option<(u32, Multicast)>,
    /// The run ends at this time; the default is one second.
    pub until: Option<Time>,
    /// Control messages to lose: the test that selects them, and how many of them.
    pub lost_controls: Option<(Test, u32)>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Wake,
    Left { to: u32, task: u32, end: u32 },
    Chunk { from: u32, task: u32, chunk: u32, last: bool, way: Option<(u8, u32)>, bytes: Vec<u8> },
    Control { from: u32, kind: u16, words: [u32; 4] },
}

type Happening = (Time, u64, u32, What);

/// The result of a run.
pub struct Ended {
    /// By operation and rank.
    pub outcomes: Vec<Vec<Outcome>>,
    /// Ranks whose buffer was wrong when it was reported complete, by operation.
    pub wrong: Vec<(usize, u32)>,
    pub counts: Counts,
    /// Chunks lost on a silent tree.
    pub swallowed: u32,
    /// Chunks cast to all.
    pub grouped: u32,
    pub quiet: bool,
}

struct Net<'a> {
    ops: &'a [Multicast],
    multicast_ranks: Vec<Vec<MulticastRank<'a>>>,
    /// By operation and rank: the buffer.
    buffers: Vec<Vec<Vec<u8>>>,
    /// By operation and rank: the parity chunks that have arrived.
    parity: Vec<Vec<BTreeMap<u32, Vec<u8>>>>,
    seen: Vec<Vec<Outcome>>,
    wrong: Vec<(usize, u32)>,
    heap: BinaryHeap<Reverse<Happening>>,
    serial: u64,
    busy: Vec<Time>,
    random: Random,
    trouble: Disturbance,
    /// Chunks that all receivers lose the first time.
    lost: BTreeSet<u32>,
    /// By rank: how many chunks it has cast to all.
    turns: Vec<u32>,
    /// Chunks lost on a silent tree.
    swallowed: u32,
    /// Chunks cast to all.
    grouped: u32,
}

fn byte(op: usize, place: u64) -> u8 {
    (place * 31 + op as u64 * 7 + 1) as u8
}

impl Net<'_> {
    fn put(&mut self, at: Time, rank: u32, what: What) {
        self.serial += 1;
        self.heap.push(Reverse((at, self.serial, rank, what)));
    }

    /// True if a rank has this plane.
    fn is_up(&self, rank: u32, plane: u8) -> bool {
        self.trouble.ports.is_empty() || self.trouble.ports[rank as usize] >> plane & 1 == 1
    }

    /// The arrival times of a packet that leaves now: none if it is lost, two if it is repeated.
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

    /// The plane and tree of a rank's next chunk. Chunks take planes and trees in turn, except those left out.
    fn way(&mut self, rank: u32, cast: &Cast) -> (u8, u32) {
        let planes: Vec<u8> = (0..32).filter(|plane| cast.planes >> plane & 1 == 1).collect();
        loop {
            let turn = self.turns[rank as usize];
            self.turns[rank as usize] += 1;
            let way = (
                planes[turn as usize % planes.len()],
                turn / planes.len() as u32 % self.ops[cast.task as usize].tree_count.max(1),
            );
            if !cast.left_out.contains(way.0, way.1) {
                return way;
            }
        }
    }

    /// The bytes of a chunk at a rank: data from its buffer, parity computed from the data.
    fn bytes_of(&self, rank: u32, op: usize, chunk: u32) -> Vec<u8> {
        let (multicast, buffer) = (&self.ops[op], &self.buffers[op][rank as usize]);
        if let Some((first, length)) = multicast.layout.place(chunk) {
            return buffer[first as usize..first as usize + usize::from(length)].to_vec();
        }
        let parity = multicast.parity.expect("a chunk that exists");
        let group = parity.group(parity.group_of(chunk));
        assert!(group.parity.contains(&chunk), "a chunk that exists");
        let data: Vec<Vec<u8>> = group.data.clone().map(|chunk| padded(multicast, buffer, chunk)).collect();
        let mut made = vec![vec![0; usize::from(CHUNK)]; group.parity.len()];
        let pieces: Vec<&[u8]> = data.iter().map(|piece| &piece[..]).collect();
        let mut room: Vec<&mut [u8]> = made.iter_mut().map(|piece| &mut piece[..]).collect();
        Encoder::new(group.code(parity.code())).encode(&pieces, &mut room).expect("equal sizes");
        made.swap_remove((chunk - group.parity.start) as usize)
    }

    /// Rebuilds the chunks that a rank's action names.
    fn rebuild(&mut self, rank: u32, rebuild: &Rebuild) {
        let (op, code) = (rebuild.task as usize, rebuild.code);
        let multicast = &self.ops[op];
        let buffer = &mut self.buffers[op][rank as usize];
        let numbers = rebuild.data..rebuild.data + code.data() as u32;
        let mut data: Vec<Vec<u8>> = numbers.clone().map(|chunk| padded(multicast, buffer, chunk)).collect();
        let held = &self.parity[op][rank as usize];
        let blank = || vec![0xdd; usize::from(CHUNK)];
        let parity = rebuild.parity..rebuild.parity + code.parity() as u32;
        let parity: Vec<Vec<u8>> = parity.map(|chunk| held.get(&chunk).cloned().unwrap_or_else(blank)).collect();
        let mut pieces: Vec<&mut [u8]> = data.iter_mut().map(|piece| &mut piece[..]).collect();
        let others: Vec<&[u8]> = parity.iter().map(|piece| &piece[..]).collect();
        Decoder::new(code).rebuild(&mut pieces, &others, &rebuild.present).expect("enough is here");
        for (chunk, bytes) in numbers.zip(data) {
            let (first, length) = multicast.layout.place(chunk).expect("a chunk that exists");
            let length = usize::from(length);
            buffer[first as usize..first as usize + length].copy_from_slice(&bytes[..length]);
        }
    }

    fn cast(&mut self, rank: u32, cast: Cast, now: Time) {
        let op = cast.task as usize;
        let group = cast.to.as_group().is_some();
        let ranks = self.ops[op].ranks.count();
        for chunk in cast.first..cast.first + cast.count {
            let last = chunk == cast.last;
            let bytes = self.bytes_of(rank, op, chunk);
            assert_eq!(bytes.len(), usize::from(if last { cast.tail } else { cast.bytes }));
            let left = self.busy[rank as usize].max(now) + cast.rate.min(RATE).time_for(strandway_proto::Bytes(36));
            self.busy[rank as usize] = left;
            let (plane, tree) = self.way(rank, &cast);
            let way = group.then_some((plane, tree));
            self.grouped += u32::from(group);
            let mut nobody = group && self.random.chance(self.trouble.near_root);
            nobody |= group && self.lost.remove(&chunk);
            let silent = self.trouble.silent.is_some_and(|(silent, since)| way == Some(silent) && left >= since);
            nobody |= silent;
            self.swallowed += u32::from(silent);
            if nobody {
                continue;
            }
            let to: Vec<u32> = match group {
                true => (0..ranks).filter(|&to| to != rank).collect(),
                false => vec![cast.to.0 - 100],
            };
            let multicast = &self.ops[op];
            let share = multicast.parity.map_or(multicast.layout.share_of(chunk), |parity| parity.share_of(chunk));
            for to in to {
                if group && self.trouble.missing.contains(&(to, share)) {
                    continue;
                }
                if !self.is_up(rank, plane) || !self.is_up(to, plane) {
                    continue;
                }
                for at in self.travel(rank, to, left) {
                    let bytes = bytes.clone();
                    self.put(at, to, What::Chunk { from: rank, task: cast.task, chunk, last, way, bytes });
                }
            }
        }
        let left = self.busy[rank as usize];
        self.put(left, rank, What::Left { to: cast.to.0, task: cast.task, end: cast.first + cast.count });
    }

    fn act(&mut self, rank: u32, op: usize, now: Time) {
        while let Some(action) = self.multicast_ranks[op][rank as usize].poll_action(now) {
            match action {
                Action::Cast(cast) => self.cast(rank, cast, now),
                Action::Rebuild(rebuild) => self.rebuild(rank, &rebuild),
                Action::Fragment(_) => panic!("multicast has no fragments"),
                Action::Control { channel, control } => {
                    let (_, word) = MulticastMessage::read(&control).expect("a word of ours");
                    let ControlMessage::Custom { kind, words } = control else { panic!("a letter of a program") };
                    if let Some((test, left)) = &mut self.trouble.lost_controls
                        && *left > 0
                        && test(&word)
                    {
                        *left -= 1;
                        continue;
                    }
                    let to = channel.peer.0 - 100;
                    let common = (0..32).any(|plane| self.is_up(rank, plane) && self.is_up(to, plane));
                    for at in if common { self.travel(rank, to, now) } else { Vec::new() } {
                        self.put(at, to, What::Control { from: rank, kind, words });
                    }
                }
                Action::Stage { .. } | Action::Close { .. } => {}
                other => panic!("a rank does not {other:?}"),
            }
        }
        let wake = self.multicast_ranks[op][rank as usize].poll_timeout();
        if wake != Time::NEVER {
            self.put(wake.max(now + Span(1)), rank, What::Wake);
        }
        self.check(rank, op, now);
    }

    /// Acts at once on the state of a rank's part: checks the buffer, or overwrites it.
    fn check(&mut self, rank: u32, op: usize, now: Time) {
        let outcome = self.multicast_ranks[op][rank as usize].outcome();
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
                let multicast_rank = &mut self.multicast_ranks[op + 1][rank as usize];
                multicast_rank.handle_timeout(now);
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
                    let multicast_rank = &mut self.multicast_ranks[op][rank as usize];
                    if begun && multicast_rank.poll_timeout() <= now {
                        multicast_rank.handle_timeout(now);
                        self.act(rank, op, now);
                    }
                }
                return;
            }
            What::Left { to, task, end } => (task, Event::Cast { to: HostId(to), task, end }),
            What::Control { from, kind, words } => {
                (words[0], Event::Control { from: host(from), control: ControlMessage::Custom { kind, words } })
            }
            What::Chunk { from, task, chunk, last, way, bytes } => {
                let (op, place) = (task as usize, self.ops[task as usize].layout.place(chunk));
                if place.is_none() {
                    self.parity[op][rank as usize].insert(chunk, bytes.clone());
                }
                let before = place.is_none() || self.multicast_ranks[op][rank as usize].progress().has_packet(chunk);
                let (plane, tree) = way.map_or((0, None), |(plane, tree)| (plane, Some(tree)));
                let event = Event::Chunk { from: host(from), task, chunk, plane, tree, trimmed: false, last };
                self.multicast_ranks[op][rank as usize].handle_event(now, &event);
                if !before
                    && self.multicast_ranks[op][rank as usize].progress().has_packet(chunk)
                    && let Some((first, _)) = place
                {
                    self.buffers[op][rank as usize][first as usize..first as usize + bytes.len()]
                        .copy_from_slice(&bytes);
                }
                return self.act(rank, op, now);
            }
        };
        self.multicast_ranks[op as usize][rank as usize].handle_event(now, &event);
        self.act(rank, op as usize, now);
    }
}

/// Runs operations one after the other. A rank begins an operation when it has closed the previous one.
pub fn run(ops: &[Multicast], trouble: Disturbance, seed: u64) -> Ended {
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
    let other = trouble.odd.clone();
    let odd = |op, rank| other.as_ref().filter(|(who, _)| *who == rank).map_or(op, |(_, other)| other);
    let mut net = Net {
        ops,
        multicast_ranks: ops
            .iter()
            .map(|op| (0..ranks).map(|rank| MulticastRank::new(odd(op, rank), rank)).collect())
            .collect(),
        buffers: buffers.collect(),
        parity: vec![vec![BTreeMap::new(); ranks as usize]; ops.len()],
        seen: vec![vec![Outcome::Running; ranks as usize]; ops.len()],
        wrong: Vec::new(),
        heap: BinaryHeap::new(),
        serial: 0,
        busy: vec![Time::ZERO; ranks as usize],
        random: Random::new(seed, StreamKind::Workload, 0),
        turns: vec![0; ranks as usize],
        swallowed: 0,
        grouped: 0,
        lost: trouble.lost_runs.iter().flat_map(|&(first, count)| first..first + count).collect(),
        trouble,
    };
    for (rank, &up) in net.trouble.ports.clone().iter().enumerate() {
        for op in &mut net.multicast_ranks {
            op[rank].handle_event(Time::ZERO, &Event::Ports { up });
        }
    }
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
    for multicast_rank in net.multicast_ranks.iter().flatten() {
        let one = multicast_rank.counts();
        counts.duplicates += one.duplicates;
        counts.unready += one.unready;
        counts.fetches += one.fetches;
        counts.repaired += one.repaired;
        counts.again += one.again;
        counts.rebuilt += one.rebuilt;
        counts.silent += one.silent;
    }
    let quiet = net.heap.is_empty();
    let outcomes = net.multicast_ranks.iter().map(|op| op.iter().map(MulticastRank::outcome).collect()).collect();
    Ended { outcomes, wrong: net.wrong, counts, swallowed: net.swallowed, grouped: net.grouped, quiet }
}

//! The program that runs one rank of a multicast operation on a host.

mod arrivals;
mod chain;
mod talk;
mod turn;

use super::messages::{Barrier, MulticastMessage};
use super::owed::Owed;
use super::rebuilding::Rebuilding;
use super::repair::{Fetching, Serving};
use super::silence::Silence;
use super::{Multicast, StartBarriers};
use std::collections::{BTreeSet, VecDeque};
use strandway_proto::MessageId;
use strandway_proto::application::{Action, Application, Event, Stage};
use strandway_proto::cast::LeftOut;
use strandway_proto::partial::Progress;
use strandway_proto::units::{Span, Time};

/// The phases of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before its start.
    Idle,
    /// In the first barrier.
    Here,
    /// In the second barrier, if there is one. It accepts chunks.
    Armed,
    /// Chunks are cast and fetched.
    Moving,
    /// It has all chunks, and waits until the other ranks have them too.
    Closing,
    Closed,
    /// Given up. The control message tells other ranks the reason.
    Aborted(MulticastMessage),
}

/// The state of a rank's part, for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in progress.
    Running,
    /// All chunks are here and may be read. Other ranks may still ask for them.
    Complete,
    /// No rank needs this rank's buffers any more.
    Closed,
    /// Given up: a rank does not answer.
    Aborted {
        /// The silent rank.
        dead: u32,
    },
    /// Given up before any chunk was sent: two ranks have buffers of different sizes.
    Differs {
        /// Two ranks with different sizes. If only one rank differs from all others, it is one of the two.
        ranks: [u32; 2],
    },
}

/// Counters of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Chunks that arrived a second time.
    pub duplicates: u64,
    /// Chunks that arrived before this rank was ready for them.
    pub unready: u64,
    /// Chunks of which only the header arrived.
    pub trimmed: u64,
    /// Control messages that asked for chunks.
    pub fetches: u64,
    /// Chunks sent to single ranks that asked for them.
    pub repaired: u64,
    /// Chunks cast to all a second time.
    pub again: u64,
    /// Lost chunks that were rebuilt from parity.
    pub rebuilt: u64,
    /// How often a tree or a plane seemed to be silent.
    pub silent: u64,
}

/// The state of a rank's own multicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The token has not arrived yet.
    Waits,
    /// It casts.
    Casts {
        /// Chunks of its share below this number have been handed out.
        next: u32,
        /// The chunk number after the last chunk of the batch that is leaving.
        end: u32,
    },
    Done,
}

/// The question that a rank repeats while it waits for another rank.
#[derive(Clone, Copy, Debug)]
struct Probe {
    of: u32,
    at: Time,
    sent: Time,
    silent: u32,
}

/// The state of a rank's own share.
#[derive(Debug)]
struct Casting {
    turn: Turn,
    /// The rank before it has cast its share.
    token: bool,
    /// The token has been passed on.
    handed_on: bool,
}

/// By barrier: the rounds whose control messages have arrived, one bit each; and how many rounds this rank has sent.
#[derive(Debug, Default)]
struct Barriers {
    heard: [u32; 3],
    sent: [u8; 3],
}

/// Planes, one bit each.
#[derive(Debug)]
struct Planes {
    /// Those of this rank.
    up: u32,
    /// Those that all ranks have, as far as this rank knows.
    common: u32,
    /// No plane is common to all ranks: chunks then go from rank to rank.
    chained: bool,
    /// Planes, and trees, on which other ranks receive nothing.
    shunned: u32,
}

/// When something happened, or will.
#[derive(Debug)]
struct Times {
    /// Chunks move since then.
    moving_since: Time,
    /// Earliest time at which this rank may cast its share.
    cast_at: Time,
    /// When the last chunk arrived; and by plane.
    last_chunk: Time,
    last_by_plane: Vec<Time>,
    /// When chunks of this rank last left. A rank that is the only one to cast receives no chunks.
    last_cast: Time,
    /// When the cutoff timer expires.
    cutoff_at: Time,
    /// When missing chunks count as lost, because all chunks have been cast.
    over_at: Time,
}

impl Times {
    fn new(planes: u32) -> Times {
        Times {
            moving_since: Time::ZERO,
            cast_at: Time::ZERO,
            last_chunk: Time::ZERO,
            last_by_plane: vec![Time::ZERO; (u32::BITS - planes.leading_zeros()) as usize],
            last_cast: Time::ZERO,
            cutoff_at: Time::NEVER,
            over_at: Time::NEVER,
        }
    }
}

/// One rank. It learns of chunks and control messages; it casts its share when it has the token, fetches missing
/// chunks, and answers the requests of other ranks.
#[derive(Debug)]
pub struct MulticastRank<'a> {
    op: &'a Multicast,
    rank: u32,
    /// Start time; [`Time::NEVER`] until another program calls `begin`.
    start: Time,
    phase: Phase,
    /// One bit for each chunk, and one for each complete share.
    progress: Progress,
    /// `Some` if the operation has parity.
    rebuilding: Option<Rebuilding>,
    complete: bool,
    casting: Casting,
    fin: bool,
    barriers: Barriers,
    planes: Planes,
    owed: Owed,
    fetching: Fetching,
    serving: Serving,
    /// By share: its end has arrived.
    ends: Vec<bool>,
    times: Times,
    left_out: LeftOut,
    /// Counts the chunks that arrive along each tree, if trees are known.
    silence: Option<Silence>,
    probe: Option<Probe>,
    /// By rank: when it last gave a sign of life.
    heard: Vec<Time>,
    out: VecDeque<Action>,
    /// The ranks to which a channel is open, and whether it is the channel for answers.
    spoken: BTreeSet<(u32, bool)>,
    spoke_at: Time,
    wake: Time,
    counts: Counts,
}

impl<'a> MulticastRank<'a> {
    /// A rank before its start.
    pub fn new(op: &'a Multicast, rank: u32) -> MulticastRank<'a> {
        let layout = &op.layout;
        let mut progress = Progress::new(layout.numbers(), layout.stride());
        for share in 0..layout.shares() {
            let (first, chunks) = (layout.first(share), layout.chunks(share));
            let own = op.root_of(share) == rank;
            for within in if own { 0 } else { chunks }..layout.stride() {
                progress.insert(first + within);
            }
        }
        MulticastRank {
            op,
            rank,
            phase: Phase::Idle,
            progress,
            rebuilding: op.parity.map(|parity| Rebuilding::new(parity, layout.numbers())),
            complete: false,
            casting: Casting {
                turn: if op.share_of(rank).is_some() { Turn::Waits } else { Turn::Done },
                token: op.link(rank).step == 0,
                handed_on: false,
            },
            fin: false,
            barriers: Barriers::default(),
            planes: Planes { up: op.planes, common: op.planes & op.groups, chained: false, shunned: 0 },
            owed: Owed::default(),
            fetching: Fetching::new(rank),
            serving: Serving::default(),
            ends: vec![false; op.layout.shares() as usize],
            times: Times::new(op.planes),
            left_out: LeftOut::of(op.trees_used()),
            // Roots without a pace let switches pause them, so a tree may be late by any time.
            silence: (op.recovery.direct && op.pace.is_some() && op.trees_used() * op.planes.count_ones() > 1)
                .then(|| Silence::new(op.trees_used(), op.planes)),
            probe: None,
            heard: vec![Time::ZERO; op.ranks.count() as usize],
            out: VecDeque::new(),
            spoken: BTreeSet::new(),
            spoke_at: Time::ZERO,
            start: op.starts[rank as usize],
            wake: op.starts[rank as usize],
            counts: Counts::default(),
        }
    }

    /// The rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The state of the rank's part.
    pub fn outcome(&self) -> Outcome {
        match self.phase {
            Phase::Closed => Outcome::Closed,
            Phase::Aborted(MulticastMessage::Differ { ranks }) => Outcome::Differs { ranks },
            Phase::Aborted(MulticastMessage::Abort { dead }) => Outcome::Aborted { dead },
            _ if self.complete => Outcome::Complete,
            _ => Outcome::Running,
        }
    }

    /// The chunks that are here.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The rank's counters.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// True if it accepts chunks.
    fn armed(&self) -> bool {
        let here = self.op.opening == StartBarriers::OneBarrier && self.phase == Phase::Here;
        here || matches!(self.phase, Phase::Armed | Phase::Moving | Phase::Closing)
    }

    /// The rank `distance` places ahead in the ring.
    fn ahead(&self, distance: u32) -> u32 {
        ((u64::from(self.rank) + u64::from(distance)) % u64::from(self.op.ranks.count())) as u32
    }

    /// The rank `distance` places behind in the ring.
    fn behind(&self, distance: u32) -> u32 {
        let ranks = u64::from(self.op.ranks.count());
        ((u64::from(self.rank) + ranks - u64::from(distance) % ranks) % ranks) as u32
    }

    /// Rounds of a barrier. It is a dissemination barrier: in round `k` each rank sends a control message to the rank
    /// `2^k` ahead.
    fn rounds(&self) -> u8 {
        self.op.ranks.count().next_power_of_two().ilog2() as u8
    }

    /// Time to wait for the acknowledgement of a control message. Ours.
    fn answer_timeout(&self) -> Span {
        self.op.rtt * 2
    }

    fn send_message(&mut self, to: u32, word: MulticastMessage) {
        let (channel, control) = (self.op.channel_to(to, word.is_answer()), word.control(self.op.task));
        self.out.push_back(Action::Control { channel, control });
        self.spoken.insert((to, word.is_answer()));
    }

    /// Sends a control message and repeats it until it is acknowledged.
    fn owe(&mut self, now: Time, to: u32, word: MulticastMessage) {
        self.send_message(to, word);
        self.owed.push(now, to, word, self.answer_timeout());
    }

    fn stage(&mut self, stage: Stage) {
        self.out.push_back(Action::Stage { message: self.op.message(self.rank), stage });
    }

    /// Sends the control messages of all rounds that may begin. Returns true if the barrier is passed.
    fn pass(&mut self, now: Time, barrier: Barrier) -> bool {
        let (b, rounds) = (barrier as usize, self.rounds());
        while self.barriers.sent[b] < rounds {
            let round = self.barriers.sent[b];
            if round > 0 && self.barriers.heard[b] >> (round - 1) & 1 == 0 {
                return false;
            }
            self.barriers.sent[b] += 1;
            let bytes = self.op.layout.bytes();
            self.owe(
                now,
                self.ahead(1 << round),
                MulticastMessage::Barrier { barrier, round, planes: self.planes.common, bytes },
            );
        }
        self.barriers.heard[b] == ((1u64 << rounds) - 1) as u32
    }

    /// Enters the next phase as often as possible.
    fn advance(&mut self, now: Time) {
        while let Some(next) = self.next_phase(now) {
            self.phase = next;
        }
    }

    /// The phase that may begin now, if any. Sends the control messages that are due.
    fn next_phase(&mut self, now: Time) -> Option<Phase> {
        match self.phase {
            Phase::Idle => {
                if now < self.start {
                    return None;
                }
                self.stage(Stage::Begun);
                Some(if self.op.opening == StartBarriers::AtOnce { Phase::Armed } else { Phase::Here })
            }
            Phase::Here => {
                let passed = self.pass(now, Barrier::Here);
                if passed {
                    self.choose_way();
                }
                passed.then_some(Phase::Armed)
            }
            Phase::Armed => {
                let ready = self.op.opening != StartBarriers::TwoBarriers || self.pass(now, Barrier::Armed);
                if ready {
                    self.begin_moving(now);
                }
                ready.then_some(Phase::Moving)
            }
            Phase::Moving => {
                self.take_turn(now);
                if !self.complete && self.progress.is_whole() {
                    self.complete = true;
                    self.stage(Stage::Complete);
                }
                let through = self.complete && self.casting.turn == Turn::Done;
                if through && !self.has_close() && self.op.ranks.count() > 1 {
                    self.owe(now, self.ahead(1), MulticastMessage::Fin);
                }
                through.then_some(Phase::Closing)
            }
            Phase::Closing => {
                let closes = self.closes(now);
                if closes {
                    self.stage(Stage::Closed);
                }
                closes.then_some(Phase::Closed)
            }
            Phase::Closed | Phase::Aborted(_) => None,
        }
    }

    /// True if no rank needs this rank's buffers any more.
    fn closes(&mut self, now: Time) -> bool {
        if self.has_close() {
            return self.pass(now, Barrier::Close);
        }
        self.op.ranks.count() == 1 || self.fin && !self.owed.awaits(MulticastMessage::Fin.name())
    }

    fn begin_moving(&mut self, now: Time) {
        self.times.moving_since = now;
        self.times.last_chunk = now;
        let cutoff = if self.planes.chained { self.op.chain_cutoff() } else { self.op.cutoff() };
        self.times.cutoff_at = now + cutoff.scaled(self.slowdown());
        if self.op.pace.is_some() && !self.planes.chained {
            // The first roots of the chains begin one chunk time apart. If they began together, their chunks would meet
            // in every queue.
            self.times.cast_at = now + self.op.chunk_time() * u64::from(self.op.link(self.rank).chain);
        }
        self.hurry(now);
    }

    /// Performs all actions that are due after an input.
    fn go_on(&mut self, now: Time) {
        self.repeat(now);
        self.check_clock(now);
        self.rebuild(now);
        self.advance(now);
        self.check_missing(now);
        self.check_awaited(now);
        self.hang_up(now);
        self.wake = self.next_wake();
    }

    fn next_wake(&self) -> Time {
        let start = if self.phase == Phase::Idle { self.start } else { Time::NEVER };
        let missing = self.phase == Phase::Moving && !self.progress.is_whole();
        let fetch = match (missing, self.fetching.begun) {
            (false, _) => Time::NEVER,
            (true, true) => self.fetching.next(self.op),
            (true, false) => self.stops_waiting_at().min(self.fetching.next(self.op)),
        };
        let fetch = match &self.rebuilding {
            Some(rebuilding) if missing => fetch.min(rebuilding.next()),
            _ => fetch,
        };
        let turn = self.phase == Phase::Moving && self.casting.turn == Turn::Waits && self.casting.token;
        let start = if turn { self.times.cast_at } else { start };
        let probe = self.probe.map_or(Time::NEVER, |probe| probe.at);
        start.min(self.owed.next()).min(fetch).min(probe).min(self.hangs_up_at())
    }
}

impl Application for MulticastRank<'_> {
    fn handle_event(&mut self, now: Time, event: &Event) {
        match *event {
            Event::Chunk { from, task, chunk, plane, tree, trimmed, last } if task == self.op.task => {
                if let Some(tree) = tree {
                    self.watch_trees(from, chunk, (plane, tree));
                }
                self.handle_chunk(now, from, (chunk, plane), trimmed, last);
            }
            Event::Cast { to, task, end } if task == self.op.task && to == self.audience() => {
                self.times.last_cast = now;
                self.handle_cast(end);
                self.go_on(now);
            }
            Event::Control { from, control } => {
                let Some((task, word)) = MulticastMessage::read(&control).filter(|(task, _)| *task == self.op.task)
                else {
                    return;
                };
                debug_assert_eq!(task, self.op.task);
                if let Some(from) = self.op.ranks.at(from) {
                    self.spoke_at = now;
                    self.handle_word(now, from, word);
                    self.go_on(now);
                }
            }
            Event::Ports { up } => {
                self.planes.up = self.op.planes & up;
                if matches!(self.phase, Phase::Idle) {
                    self.planes.common = self.planes.up & self.op.groups;
                }
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.go_on(now);
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action> {
        self.out.pop_front()
    }

    fn poll_timeout(&self) -> Time {
        self.wake
    }

    fn owns(&self, message: MessageId) -> bool {
        message == self.op.message(self.rank)
    }

    fn begin(&mut self, now: Time) {
        self.start = now;
        self.go_on(now);
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Closed && self.owed.is_empty()
    }
}

//! The messages of a collective: sender, receiver, bytes, and the messages that each one waits for. All of it is
//! computed; there are no tables.
//!
//! This file defines the algorithms. [`crate::Executor`] executes them message by message.

use std::fmt;

/// One participant of a collective, numbered from 0. [`crate::Placement`] decides its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

/// The result that a collective produces, whatever the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Every rank ends with the sum of all buffers.
    AllReduce,
    /// Rank r ends with block r of the sum.
    ReduceScatter,
    /// Every rank ends with the blocks of all.
    AllGather,
    /// Rank r ends with block r of every rank.
    AllToAll,
    /// Every rank ends with the buffer of one.
    Broadcast,
    /// One rank ends with the sum of all buffers.
    Reduce,
    /// One rank ends with the blocks of all.
    Gather,
    /// Rank r ends with block r of one rank.
    Scatter,
    /// One rank ends with the buffer of another.
    SendReceive,
}

/// How a collective produces its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// All-reduce: a reduce-scatter and an all-gather around the ring, 2 (n - 1) steps (Patarasuk, Yuan: "Bandwidth
    /// optimal all-reduce algorithms for clusters of workstations", 2009).
    RingAllReduce,
    /// Reduce-scatter around the ring, n - 1 steps.
    RingReduceScatter,
    /// All-gather around the ring, n - 1 steps.
    RingAllGather,
    /// All-gather by recursive doubling, log2 n steps: in step k, partners at distance 2^k exchange all the blocks that
    /// they have. (Thakur, Rabenseifner, Gropp, 2005, section 4.1.)
    RecursiveDoubling,
    /// All-gather by n - 1 simultaneous transfers per rank: rank r sends its block to r + 1, r + 2, ...
    LinearAllGather,
    /// All-reduce by recursive halving and doubling, 2 log2 n steps. In step k of the first half, partners at distance
    /// 2^k exchange halves of the data that they still hold. The second half repeats the steps in reverse order. The
    /// longest messages go to the nearest partner. (Rabenseifner's algorithm as in Thakur, Rabenseifner, Gropp:
    /// "Optimization of collective communication operations in MPICH", 2005, section 4.5.)
    HalvingDoubling,
    /// All-to-all by n - 1 transfers per rank: rank r walks its peers r + 1, r + 2, ...
    AllToAll {
        /// Simultaneous transfers per rank: transfer `i` begins when transfer `i - window` has ended.
        window: u32,
    },
}

/// A validated collective: algorithm, ranks and bytes. It is `Copy` and has 32 bytes, for any number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    algorithm: Algorithm,
    ranks: u32,
    bytes: u64,
    parts: u32,
    /// The number of steps that it does, if it is less than the algorithm has.
    limit: u32,
}

/// A message that a rank sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    /// Its index among the rank's messages, which are in the order of steps, and in a step of parts.
    pub index: u32,
    /// The receiver.
    pub to: Rank,
    /// Where it begins in the sender's buffer.
    pub first_byte: u64,
    /// Its length; may be zero if there are fewer bytes than ranks.
    pub bytes: u64,
    /// The events that must happen before it may be sent.
    pub after: After,
}

/// The events that a message waits for. It waits for all that are `Some`; if none is, it may be sent at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct After {
    /// This rank has received the message with this index from this rank.
    pub received: Option<(Rank, u32)>,
    /// This rank has handed out this earlier message (which itself waits for other events).
    pub posted: Option<u32>,
    /// This earlier message of the same sender has arrived, and the sender knows it.
    pub sent: Option<u32>,
}

/// A message that a rank receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// The sender.
    pub from: Rank,
    /// Its first byte in the receiver's buffer. (The receive buffer of an all-to-all holds one block per rank, all of
    /// the same length.)
    pub first_byte: u64,
    /// Its length.
    pub bytes: u64,
    /// True: add it to the bytes in the buffer. False: replace them.
    pub reduces: bool,
}

/// Why a schedule cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleError {
    /// A collective needs two ranks.
    TooFewRanks,
    /// Recursive halving needs a power of two.
    NotAPowerOfTwo,
    /// Recursive doubling needs a power of two.
    CannotDouble,
    /// Window and parts are at least 1.
    Zero,
    /// A message of recursive doubling holds several blocks, so it cannot be cut into separate parts.
    NoParts,
    /// A rank would send more than 2^32 messages.
    TooLong,
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScheduleError::TooFewRanks => "a collective needs two ranks",
            ScheduleError::NotAPowerOfTwo => "recursive halving needs a power of two of ranks",
            ScheduleError::Zero => "window and parts must be at least 1",
            ScheduleError::CannotDouble => "recursive doubling needs a power of two of ranks",
            ScheduleError::NoParts => "recursive doubling sends all blocks of a rank in one message: parts must be 1",
            ScheduleError::TooLong => "a rank would send more than 2^32 messages",
        })
    }
}

impl std::error::Error for ScheduleError {}

impl Collective {
    /// The name in nccl-tests: `allreduce`, `reducescatter`, `allgather`, `alltoall`, `broadcast`, `reduce`, `gather`,
    /// `scatter`, `sendrecv`.
    pub const fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "allreduce",
            Collective::ReduceScatter => "reducescatter",
            Collective::AllGather => "allgather",
            Collective::AllToAll => "alltoall",
            Collective::Broadcast => "broadcast",
            Collective::Reduce => "reduce",
            Collective::Gather => "gather",
            Collective::Scatter => "scatter",
            Collective::SendReceive => "sendrecv",
        }
    }
}

impl Algorithm {
    /// `ring`, `halving-doubling`, `recursive-doubling`, `linear` or `windowed`.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::RingAllReduce | Algorithm::RingReduceScatter | Algorithm::RingAllGather => "ring",
            Algorithm::HalvingDoubling => "halving-doubling",
            Algorithm::RecursiveDoubling => "recursive-doubling",
            Algorithm::LinearAllGather => "linear",
            Algorithm::AllToAll { .. } => "windowed",
        }
    }

    /// The collective that the algorithm computes.
    pub const fn collective(self) -> Collective {
        match self {
            Algorithm::RingAllReduce | Algorithm::HalvingDoubling => Collective::AllReduce,
            Algorithm::RingReduceScatter => Collective::ReduceScatter,
            Algorithm::RingAllGather | Algorithm::RecursiveDoubling | Algorithm::LinearAllGather => {
                Collective::AllGather
            }
            Algorithm::AllToAll { .. } => Collective::AllToAll,
        }
    }
}

/// First byte of piece `i` of `bytes` cut into `count` pieces. The first `bytes % count` pieces are one byte longer.
pub(crate) const fn cut(bytes: u64, count: u32, i: u32) -> u64 {
    let (count, i) = (count as u64, i as u64);
    let rest = bytes % count;
    bytes / count * i + if i < rest { i } else { rest }
}

impl Schedule {
    /// A schedule. `bytes` is counted as in [`crate::bandwidth`](mod@crate::bandwidth): the whole buffer; for
    /// all-gather and reduce-scatter, the buffers of all ranks together. Every block is cut into `parts` parts, each
    /// its own message, so that a rank can forward one part while it receives the next.
    ///
    /// # Errors
    /// If the algorithm cannot run with this number of ranks, parts or transfers.
    pub const fn new(algorithm: Algorithm, ranks: u32, bytes: u64, parts: u32) -> Result<Schedule, ScheduleError> {
        if ranks < 2 {
            return Err(ScheduleError::TooFewRanks);
        }
        match algorithm {
            Algorithm::HalvingDoubling if !ranks.is_power_of_two() => return Err(ScheduleError::NotAPowerOfTwo),
            Algorithm::RecursiveDoubling if !ranks.is_power_of_two() => return Err(ScheduleError::CannotDouble),
            Algorithm::RecursiveDoubling if parts > 1 => return Err(ScheduleError::NoParts),
            Algorithm::AllToAll { window: 0 } => return Err(ScheduleError::Zero),
            _ => {}
        }
        if parts == 0 {
            return Err(ScheduleError::Zero);
        }
        if 2 * (ranks as u64 - 1) * parts as u64 > u32::MAX as u64 {
            return Err(ScheduleError::TooLong);
        }
        Ok(Schedule { algorithm, ranks, bytes, parts, limit: u32::MAX })
    }

    /// A shorter operation that stands for the whole one in runs of smaller jobs: the first steps of a ring, or
    /// transfers to some of the peers of an all-to-all, evenly spread. It has no result.
    ///
    /// # Panics
    /// If [`Schedule::has_equal_steps`] is false, or without a step.
    pub const fn shortened(self, steps: u32) -> Schedule {
        assert!(steps > 0 && self.has_equal_steps());
        Schedule { limit: steps, ..self }
    }

    /// Do ranks do the same in all steps, apart from the receivers of an all-to-all?
    pub const fn has_equal_steps(&self) -> bool {
        matches!(
            self.algorithm,
            Algorithm::RingAllReduce
                | Algorithm::RingReduceScatter
                | Algorithm::RingAllGather
                | Algorithm::AllToAll { .. }
        )
    }

    /// The distance to the receiver in a step of an all-to-all.
    const fn distance(&self, step: u32) -> u64 {
        1 + step as u64 * (self.whole_steps() / self.steps()) as u64
    }

    /// The algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The number of ranks.
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Bytes as [`Schedule::new`] takes them.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Messages per block.
    pub const fn parts(&self) -> u32 {
        self.parts
    }

    /// Steps of every rank.
    pub const fn steps(&self) -> u32 {
        let whole = self.whole_steps();
        if self.limit < whole { self.limit } else { whole }
    }

    /// Steps of the whole algorithm.
    pub(crate) const fn whole_steps(&self) -> u32 {
        match self.algorithm {
            Algorithm::RingAllReduce => 2 * (self.ranks - 1),
            Algorithm::HalvingDoubling => 2 * self.ranks.ilog2(),
            Algorithm::RecursiveDoubling => self.ranks.ilog2(),
            Algorithm::RingReduceScatter
            | Algorithm::RingAllGather
            | Algorithm::LinearAllGather
            | Algorithm::AllToAll { .. } => self.ranks - 1,
        }
    }

    /// Messages that every rank sends: one per step and part. It receives the same number.
    pub const fn messages(&self) -> u32 {
        self.steps() * self.parts
    }

    /// Where the block of a rank begins.
    pub(crate) const fn cut_at(&self, rank: u32) -> u64 {
        cut(self.bytes, self.ranks, rank)
    }

    /// Bytes of all messages of all ranks.
    pub const fn volume(&self) -> u64 {
        let times = match self.algorithm {
            Algorithm::RingAllReduce | Algorithm::HalvingDoubling => 2,
            _ => 1,
        };
        let whole = self.bytes.saturating_mul(times * (self.ranks as u64 - 1));
        match (self.steps(), self.whole_steps()) {
            (some, all) if some < all => (whole as u128 * some as u128 / all as u128) as u64,
            _ => whole,
        }
    }

    /// How many different ranks every rank sends to.
    pub const fn peers(&self) -> u32 {
        match self.algorithm {
            Algorithm::RingAllReduce | Algorithm::RingReduceScatter | Algorithm::RingAllGather => 1,
            Algorithm::HalvingDoubling | Algorithm::RecursiveDoubling => self.ranks.ilog2(),
            Algorithm::AllToAll { .. } | Algorithm::LinearAllGather => self.steps(),
        }
    }

    /// Index of the receiver of this step among the rank's peers. Index 0 is the peer that it sends to first.
    pub const fn peer(&self, step: u32) -> u32 {
        match self.algorithm {
            Algorithm::RingAllReduce | Algorithm::RingReduceScatter | Algorithm::RingAllGather => 0,
            Algorithm::HalvingDoubling => {
                let half = self.ranks.ilog2();
                if step < half { step } else { 2 * half - 1 - step }
            }
            Algorithm::AllToAll { .. } | Algorithm::LinearAllGather | Algorithm::RecursiveDoubling => step,
        }
    }

    /// True if this is the last message between its sender and that peer. Only all-to-all and linear all-gather have
    /// one (one transfer per peer); the other algorithms use the same few peers until the end.
    pub const fn is_last_to_peer(&self, index: u32) -> bool {
        matches!(self.algorithm, Algorithm::AllToAll { .. } | Algorithm::LinearAllGather)
            && index % self.parts == self.parts - 1
    }

    /// The length of the shortest message, bytes.
    pub fn shortest(&self) -> u64 {
        // Where lengths differ, the first blocks and parts are the longer ones.
        self.range((self.ranks - 1, self.ranks), self.parts - 1).1
    }

    /// The message with this index in a rank's order; the index is below [`Schedule::messages`].
    pub fn send(&self, rank: Rank, index: u32) -> Send {
        let (to, blocks) = self.leg(rank, self.step_of(index));
        let (first_byte, bytes) = self.range(blocks, index % self.parts);
        Send { index, to, first_byte, bytes, after: self.after(rank, index) }
    }

    /// All messages that a rank sends, in order.
    pub fn sends(&self, rank: Rank) -> impl Iterator<Item = Send> + use<> {
        let schedule = *self;
        (0..self.messages()).map(move |i| schedule.send(rank, i))
    }

    /// The message that a rank receives with this index (step and part).
    pub fn receive(&self, rank: Rank, index: u32) -> Receive {
        let step = self.step_of(index);
        let from = self.source(rank, step);
        let Send { first_byte, bytes, .. } = self.send(from, index);
        match self.algorithm {
            Algorithm::AllToAll { .. } => {
                let block = cut(self.bytes, self.ranks, rank.0);
                let length = cut(self.bytes, self.ranks, rank.0 + 1) - block;
                let first_byte = u64::from(from.0) * length + (first_byte - block);
                Receive { from, first_byte, bytes, reduces: false }
            }
            _ => Receive { from, first_byte, bytes, reduces: self.reduces(step) },
        }
    }

    /// All messages that a rank receives, by step. They may arrive in another order.
    pub fn receives(&self, rank: Rank) -> impl Iterator<Item = Receive> + use<> {
        let schedule = *self;
        (0..self.messages()).map(move |i| schedule.receive(rank, i))
    }

    /// The step of a message.
    pub const fn step_of(&self, index: u32) -> u32 {
        index / self.parts
    }

    /// The number of events that a message waits for ([`Send::after`]).
    pub(crate) fn waits_of(&self, index: u32) -> u32 {
        match self.algorithm {
            Algorithm::AllToAll { window } => u32::from(self.step_of(index) >= window),
            Algorithm::LinearAllGather => 0,
            _ if index < self.parts => 0,
            _ => 1 + u32::from(self.merges()),
        }
    }

    /// The message of this rank that waits for the receipt of this one.
    pub(crate) fn released_by_receipt(&self, index: u32) -> Option<u32> {
        match self.algorithm {
            Algorithm::AllToAll { .. } | Algorithm::LinearAllGather => None,
            _ => Some(index + self.parts).filter(|i| *i < self.messages()),
        }
    }

    /// The message of this rank that must be handed out after this one.
    pub(crate) fn released_by_posting(&self, index: u32) -> Option<u32> {
        match self.algorithm {
            Algorithm::HalvingDoubling | Algorithm::RecursiveDoubling => {
                Some(index + self.parts).filter(|i| *i < self.messages())
            }
            _ => None,
        }
    }

    /// The message of this rank that waits until this one has ended.
    pub(crate) fn released_by_end(&self, index: u32) -> Option<u32> {
        match self.algorithm {
            Algorithm::AllToAll { window } => {
                let next = u64::from(index) + u64::from(window) * u64::from(self.parts);
                (next < u64::from(self.messages())).then_some(next as u32)
            }
            _ => None,
        }
    }

    /// True if a message holds several blocks, different ones in each step.
    const fn merges(&self) -> bool {
        matches!(self.algorithm, Algorithm::HalvingDoubling | Algorithm::RecursiveDoubling)
    }

    /// True if the receiver adds the data of this step to its buffer.
    fn reduces(&self, step: u32) -> bool {
        match self.algorithm {
            Algorithm::RingReduceScatter => true,
            Algorithm::RingAllReduce | Algorithm::HalvingDoubling => step < self.whole_steps() / 2,
            Algorithm::RingAllGather
            | Algorithm::RecursiveDoubling
            | Algorithm::LinearAllGather
            | Algorithm::AllToAll { .. } => false,
        }
    }

    /// The receiver of a rank's message in a step, and its blocks: the first block, and one after the last.
    fn leg(&self, rank: Rank, step: u32) -> (Rank, (u32, u32)) {
        let (n, r) = (self.ranks, rank.0);
        let next = Rank(wrap(u64::from(r) + 1, n));
        let one = |block: u32| (block, block + 1);
        // Around the ring, a rank sends in one step the block that it received in the step before.
        let scattered = |step: u32| one(wrap(u64::from(r) + u64::from(n) - 1 - u64::from(step), n));
        let gathered = |step: u32| one(wrap(u64::from(r) + u64::from(n) - u64::from(step), n));
        match self.algorithm {
            Algorithm::RingReduceScatter => (next, scattered(step)),
            Algorithm::RingAllGather => (next, gathered(step)),
            Algorithm::RingAllReduce if step < n - 1 => (next, scattered(step)),
            Algorithm::RingAllReduce => (next, gathered(step - (n - 1))),
            Algorithm::HalvingDoubling => {
                let half = n.ilog2();
                let halving = step < half;
                let k = if halving { step } else { 2 * half - 1 - step };
                let partner = Rank(r ^ (1 << k));
                (partner, self.held(if halving { partner } else { rank }, k + 1))
            }
            Algorithm::RecursiveDoubling => {
                // All blocks that the 2^step neighbours of its group have gathered.
                let first = r >> step << step;
                (Rank(r ^ (1 << step)), (first, first + (1 << step)))
            }
            Algorithm::LinearAllGather => (Rank(wrap(u64::from(r) + 1 + u64::from(step), n)), one(r)),
            Algorithm::AllToAll { .. } => {
                let to = wrap(u64::from(r) + self.distance(step), n);
                (Rank(to), one(to))
            }
        }
    }

    /// The blocks that a rank still holds after `halvings` halvings. The lower of two partners keeps the lower half.
    fn held(&self, rank: Rank, halvings: u32) -> (u32, u32) {
        let lower = |i: u32| (rank.0 >> i & 1) * (self.ranks >> (i + 1));
        let first: u32 = (0..halvings).map(lower).sum();
        (first, first + (self.ranks >> halvings))
    }

    /// The sender of the message that a rank receives in a step.
    pub(crate) fn source(&self, rank: Rank, step: u32) -> Rank {
        let (n, r) = (self.ranks, u64::from(rank.0));
        match self.algorithm {
            Algorithm::HalvingDoubling | Algorithm::RecursiveDoubling => self.leg(rank, step).0,
            Algorithm::AllToAll { .. } => Rank(wrap(r + u64::from(n) - self.distance(step), n)),
            Algorithm::LinearAllGather => Rank(wrap(r + u64::from(n) - 1 - u64::from(step), n)),
            _ => Rank(wrap(r + u64::from(n) - 1, n)),
        }
    }

    /// First byte and length of part `part` of the blocks from `first` to before `end`.
    fn range(&self, (first, end): (u32, u32), part: u32) -> (u64, u64) {
        if self.algorithm == Algorithm::HalvingDoubling {
            // Blocks merge and split from step to step, so the buffer is first cut into parts, and each part into
            // blocks.
            let base = cut(self.bytes, self.parts, part);
            let length = cut(self.bytes, self.parts, part + 1) - base;
            let from = cut(length, self.ranks, first);
            return (base + from, cut(length, self.ranks, end) - from);
        }
        let base = cut(self.bytes, self.ranks, first);
        let length = cut(self.bytes, self.ranks, end) - base;
        let from = cut(length, self.parts, part);
        (base + from, cut(length, self.parts, part + 1) - from)
    }

    fn after(&self, rank: Rank, index: u32) -> After {
        let earlier = |steps: u32| u32::try_from(i64::from(index) - i64::from(steps) * i64::from(self.parts)).ok();
        match self.algorithm {
            Algorithm::AllToAll { window } => After { sent: earlier(window), ..After::default() },
            Algorithm::LinearAllGather => After::default(),
            _ => {
                let before = earlier(1);
                let received = before.map(|before| (self.source(rank, self.step_of(before)), before));
                let posted = before.filter(|_| self.merges());
                After { received, posted, sent: None }
            }
        }
    }
}

/// `at` modulo the ring size `n`.
const fn wrap(at: u64, n: u32) -> u32 {
    (at % n as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(algorithm: Algorithm, ranks: u32, bytes: u64) -> Schedule {
        Schedule::new(algorithm, ranks, bytes, 1).expect("a schedule")
    }

    #[test]
    fn pieces_differ_by_one_byte_at_most_and_leave_none_out() {
        for (bytes, count) in [(10, 3), (2, 5), (0, 4), (u64::MAX, 7), (1 << 48, 1 << 20)] {
            assert_eq!((cut(bytes, count, 0), cut(bytes, count, count)), (0, bytes));
            let least = bytes / u64::from(count);
            for i in 0..count.min(100) {
                let length = cut(bytes, count, i + 1) - cut(bytes, count, i);
                assert!(length == least || length == least + 1, "{bytes} {count} {i}: {length}");
            }
        }
    }

    #[test]
    fn a_ring_of_three_is_what_one_draws_on_a_board() {
        let s = schedule(Algorithm::RingAllReduce, 3, 30);
        let blocks: Vec<u64> = s.sends(Rank(0)).map(|m| m.first_byte / 10).collect();
        assert_eq!(blocks, [2, 1, 0, 2]);
        assert!(s.sends(Rank(0)).all(|m| m.to == Rank(1) && m.bytes == 10));
        assert_eq!(s.send(Rank(0), 0).after, After::default());
        assert_eq!(s.send(Rank(0), 2).after.received, Some((Rank(2), 1)));
    }

    #[test]
    fn halving_sends_the_longest_messages_to_the_nearest() {
        let s = schedule(Algorithm::HalvingDoubling, 8, 80);
        let legs: Vec<(u32, u64)> = s.sends(Rank(5)).map(|m| (m.to.0, m.bytes)).collect();
        assert_eq!(legs, [(4, 40), (7, 20), (1, 10), (1, 10), (7, 20), (4, 40)]);
    }

    #[test]
    fn doubling_gathers_more_with_every_step_and_the_linear_one_all_at_once() {
        let s = schedule(Algorithm::RecursiveDoubling, 8, 80);
        let legs: Vec<(u32, u64, u64)> = s.sends(Rank(5)).map(|m| (m.to.0, m.first_byte, m.bytes)).collect();
        assert_eq!(legs, [(4, 50, 10), (7, 40, 20), (1, 40, 40)]);
        let s = schedule(Algorithm::LinearAllGather, 4, 40);
        let legs: Vec<(u32, u64)> = s.sends(Rank(2)).map(|m| (m.to.0, m.first_byte)).collect();
        assert_eq!(legs, [(3, 20), (0, 20), (1, 20)]);
        assert!(s.sends(Rank(2)).all(|m| m.after == After::default()));
    }

    #[test]
    fn an_all_to_all_walks_its_peers() {
        let s = schedule(Algorithm::AllToAll { window: 2 }, 4, 40);
        let legs: Vec<(u32, Option<u32>)> = s.sends(Rank(3)).map(|m| (m.to.0, m.after.sent)).collect();
        assert_eq!(legs, [(0, None), (1, None), (2, Some(0))]);
    }

    #[test]
    fn names_that_do_not_exist_are_refused() {
        use ScheduleError::{CannotDouble, NoParts, NotAPowerOfTwo, TooFewRanks, TooLong, Zero};
        for (algorithm, ranks, parts, error) in [
            (Algorithm::RingAllReduce, 1, 1, TooFewRanks),
            (Algorithm::HalvingDoubling, 12, 1, NotAPowerOfTwo),
            (Algorithm::RecursiveDoubling, 12, 1, CannotDouble),
            (Algorithm::RecursiveDoubling, 8, 2, NoParts),
            (Algorithm::AllToAll { window: 0 }, 4, 1, Zero),
            (Algorithm::RingAllGather, 4, 0, Zero),
            (Algorithm::RingAllReduce, u32::MAX, 1, TooLong),
        ] {
            assert_eq!(Schedule::new(algorithm, ranks, 100, parts), Err(error));
        }
    }
}

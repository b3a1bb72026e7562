//! Reliable broadcast and all-gather by multicast.
//!
//! Khalilov, Di Girolamo, Chrapek, Nudelman, Bloch, Hoefler: "Network-Offloaded Bandwidth-Optimal Broadcast and
//! Allgather for Distributed AI", arXiv 2408.13356 (SC'24). Two barriers make sure that every rank listens. Roots
//! multicast their shares in chains. Receivers mark the chunks that arrive in a bitmap. When a timer expires, they
//! fetch the missing chunks around a ring of neighbours. A last handshake tells each rank that it may reuse its
//! buffers. `docs/protocols/multicast.md` says which rules are the paper's and which are ours.
//!
//! [`MulticastRank`] is one rank as an [`Application`](strandway_proto::Application). It asks three things of its
//! caller: to cast chunks to a group or to one host ([`Action::Cast`](strandway_proto::application::Action::Cast)), to
//! send control messages, and to report arrivals. It touches no payload: chunk `n` belongs at [`Layout::place`] of the
//! operation's buffer.

mod chains;
mod messages;
mod owed;
mod rank;
mod rebuilding;
mod repair;
mod silence;

pub use chains::{Chains, Link};
pub use messages::{Barrier, MulticastMessage, Run};
pub use rank::{Counts, MulticastRank, Outcome};

use std::ops::Range;
use strandway_proto::application::Channel;
use strandway_proto::cast::{Cast, Layout, LeftOut, Parity};
use strandway_proto::units::{Bytes, Rate, Span, Time};
use strandway_proto::{HostId, MessageId};

/// A rank counts as dead after this many unanswered questions in a row. Multicast sheet, section 6.2, rule 6.
pub const SILENT_MAX: u32 = 40;

/// Roots send at this share of the receive rate if switches may drop packets. Multicast sheet, section 6.1.
pub const PACE: f64 = 0.95;

/// Default number of chains of an all-gather: the artifact's.
pub const CHAINS: u32 = 2;

/// Chunks that a root hands out at a time, before it handles other events: the artifact's batch.
pub const BATCH: u32 = 128;

/// The time at which receivers stop waiting for multicast chunks and begin to fetch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cutoff {
    /// The artifact's: this factor times the time that all bytes take at link rate, counted from the end of the
    /// barriers. The artifact uses the factor 5.
    Artifact(f64),
    /// Ours (multicast sheet, section 6.3): 1.25 times the schedule, one token's time per step, four round trips and
    /// 200 us. Receivers begin earlier when the shares of the last roots of all chains have ended, or when 0.9 of the
    /// schedule has passed and chunks have stopped arriving. They begin later while chunks still arrive.
    Tuned,
}

/// The order in which a receiver fetches missing shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By the number of the root: the artifact's. With one fetch at a time it takes about P^2 / 2 round trips if all
    /// shares are missing.
    Ascending,
    /// Beginning with the neighbour's own share, then around the ring: no fetch waits for a later one.
    NearestFirst,
    /// The reverse order. With fewer than P - 1 blocking fetches at a time it deadlocks: for tests.
    FarthestFirst,
}

/// The barriers that ranks pass before they cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartBarriers {
    /// Two barriers, as in the artifact. After the first one, every rank is present; after the second one, every rank
    /// listens.
    TwoBarriers,
    /// Only the first barrier. It is enough if a rank's buffer is open before the rank begins: a rank that is present
    /// also listens. Ours; it saves log2 P round trips.
    OneBarrier,
    /// No barrier. Chunks that arrive before a rank has begun are lost: for tests.
    AtOnce,
}

/// How receivers fetch missing chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The order in which shares are fetched.
    pub order: Order,
    /// The number of shares that may be fetched at the same time.
    pub under_way: u32,
    /// True: a neighbour that lacks a part of a share sends nothing of it. False: it sends the chunks that it has.
    pub blocking: bool,
    /// Ask the root itself if the neighbour has not helped within two round trips. If two ranks ask a root for the same
    /// chunk, the root casts it to all.
    pub direct: bool,
    /// True: end with a barrier of all ranks. False: end with a control message to the neighbour. With `direct` that
    /// control message is not enough: other ranks may still fetch from a buffer when it is overwritten.
    pub close: bool,
}

impl Recovery {
    /// The artifact's: one blocking fetch from the neighbour at a time.
    pub const RING: Recovery =
        Recovery { order: Order::Ascending, under_way: 1, blocking: true, direct: false, close: false };

    /// Ours (multicast sheet, section 6.2): fetch all shares at once, take the chunks that the neighbour has, ask the
    /// root for the rest, and end with a barrier.
    pub const FAST: Recovery =
        Recovery { order: Order::NearestFirst, under_way: u32::MAX, blocking: false, direct: true, close: true };
}

/// The hosts of the ranks, and the ranks of the hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranks {
    hosts: Vec<HostId>,
    by_host: Vec<(HostId, u32)>,
}

impl Ranks {
    /// These hosts, in the order of their ranks.
    pub fn new(hosts: Vec<HostId>) -> Ranks {
        let mut by_host: Vec<(HostId, u32)> = hosts.iter().copied().zip(0..).collect();
        by_host.sort_unstable();
        Ranks { hosts, by_host }
    }

    /// The number of ranks.
    pub fn count(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// The host of each rank.
    pub fn hosts(&self) -> &[HostId] {
        &self.hosts
    }

    /// The host of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn host(&self, rank: u32) -> HostId {
        self.hosts[rank as usize]
    }

    /// The rank at a host.
    pub fn at(&self, host: HostId) -> Option<u32> {
        let place = self.by_host.binary_search_by_key(&host, |entry| entry.0).ok()?;
        Some(self.by_host[place].1)
    }
}

/// One broadcast or all-gather, placed on hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Multicast {
    /// The rank that broadcasts; `None` for an all-gather.
    pub root: Option<u32>,
    /// The hosts of its ranks.
    pub ranks: Ranks,
    /// The shares of the ranks and their chunks.
    pub layout: Layout,
    /// Parity chunks that roots cast after their data chunks, if any. Receivers rebuild lost chunks from parity instead
    /// of fetching them.
    pub parity: Option<Parity>,
    /// The order in which the ranks of an all-gather multicast.
    pub chains: Chains,
    /// When each rank begins.
    pub starts: Vec<Time>,
    /// The number of the ranks' multicast group.
    pub group: u32,
    /// The operation's number; operations that run at the same time have different numbers.
    pub task: u32,
    /// The message number of rank 0's part; rank `r` has the number `first_message + r`.
    pub first_message: u32,
    /// The channels between ranks have this number and the next one. No other channel at these hosts may use them. One
    /// carries questions, the other one answers. Control messages of a channel take planes in turn, so with one channel
    /// for both, every question might meet one dead plane and every answer another one.
    pub channel: u32,
    /// The profile of these channels.
    pub profile: u16,
    /// Header bytes of a chunk on the wire, all layers together.
    pub header: u16,
    /// The planes that every host has, one bit each.
    pub planes: u32,
    /// The planes on which multicast reaches this rank, one bit each; `u32::MAX` if every switch can copy packets.
    pub groups: u32,
    /// How many trees of each plane are used; zero for all.
    pub trees: u32,
    /// How many trees each plane has; zero if unknown. If it is known, silent trees are detected and left out.
    pub tree_count: u32,
    /// The receive rate of the slowest rank, all planes together.
    pub rate: Rate,
    /// The share of `rate` at which roots send. `None`: they send as fast as their ports allow, for fabrics without
    /// loss.
    pub pace: Option<f64>,
    /// The round trip between the two ranks that are farthest apart, without queues.
    pub rtt: Span,
    /// A rank counts as dead after this many unanswered questions in a row, one every four round trips
    /// ([`SILENT_MAX`]).
    pub silent_max: u32,
    /// True: the root of a broadcast takes no part in the ring. Receivers ask other receivers, at growing distance, and
    /// ask the root only for chunks that none of these has (multicast sheet, section 6.2, rule 5).
    pub spare_root: bool,
    /// The barriers before the multicast.
    pub opening: StartBarriers,
    /// The time at which receivers begin to fetch.
    pub cutoff: Cutoff,
    /// How receivers fetch.
    pub recovery: Recovery,
}

impl Multicast {
    /// The rank that multicasts a share.
    pub fn root_of(&self, share: u32) -> u32 {
        self.root.unwrap_or(share)
    }

    /// The share that a rank multicasts, if it has one.
    pub fn share_of(&self, rank: u32) -> Option<u32> {
        match self.root {
            None => Some(rank),
            Some(root) => (root == rank).then_some(0),
        }
    }

    /// The rank that a rank asks first for missing chunks: the next one in the ring.
    fn neighbour(&self, rank: u32) -> u32 {
        let ranks = self.ranks.count();
        let next = (rank + 1) % ranks;
        if self.spare_root && self.root == Some(next) && ranks > 2 { (next + 1) % ranks } else { next }
    }

    /// The rank to ask next, if `asked` did not have the chunks. Normally the root. If the root is spared: the receiver
    /// at twice the distance around the ring, until that distance exceeds one round; then the root.
    fn after(&self, rank: u32, asked: u32, share: u32) -> u32 {
        let root = self.root_of(share);
        let (ranks, receivers) = (self.ranks.count(), self.ranks.count() - 1);
        if !self.spare_root || asked == root || receivers < 2 {
            return root;
        }
        // Receivers counted from the root on.
        let place = |rank: u32| (rank + ranks - root - 1) % ranks;
        let ahead = 2 * ((place(asked) + receivers - place(rank)) % receivers);
        if ahead == 0 || ahead >= receivers {
            return root;
        }
        (root + 1 + (place(rank) + ahead) % receivers) % ranks
    }

    /// The message number of a rank's part.
    pub fn message(&self, rank: u32) -> MessageId {
        MessageId(self.first_message + rank)
    }

    /// Payload bytes that all ranks together receive.
    pub fn heard(&self) -> u64 {
        self.layout.bytes().saturating_mul(u64::from(self.ranks.count().saturating_sub(1)))
    }

    /// The message numbers of all ranks' parts.
    pub fn messages(&self) -> std::ops::Range<u32> {
        self.first_message..self.first_message + self.ranks.count()
    }

    /// The channel to a rank, for questions or for answers.
    fn channel_to(&self, rank: u32, answers: bool) -> Channel {
        Channel { peer: self.ranks.host(rank), number: self.channel + u32::from(answers), profile: self.profile }
    }

    /// The position of a rank in its chain. The root of a broadcast is a chain of one.
    fn link(&self, rank: u32) -> Link {
        if self.root.is_some() { Link { chain: 0, step: 0, last: true } } else { self.chains.link(rank) }
    }

    /// If this chunk ends a share: the share, and the time until the rest of the share has left. The end is the chunk
    /// marked `last`, or any chunk of the share's last parity.
    fn is_end(&self, chunk: u32, last: bool) -> Option<(u32, Span)> {
        let Some(parity) = self.parity else { return last.then(|| (self.layout.share_of(chunk), Span::ZERO)) };
        let share = parity.share_of(chunk);
        let last = self.layout.first(share) + self.layout.chunks(share).checked_sub(1)?;
        let end = parity.group(parity.group_of(last)).parity;
        let left = end.end.checked_sub(chunk + 1).filter(|_| end.contains(&chunk))?;
        let sharing = self.sharing(self.root_of(share));
        Some((share, self.chunk_time() * (u64::from(left) * u64::from(sharing))))
    }

    /// Trees of each plane that are used; zero if their number is unknown.
    fn trees_used(&self) -> u32 {
        if self.trees == 0 { self.tree_count } else { self.trees.min(self.tree_count) }
    }

    /// The divisor of a root's rate: the number of roots that cast at the same time.
    fn sharing(&self, rank: u32) -> u32 {
        if self.root.is_some() { 1 } else { self.chains.sharing(self.link(rank).step) }
    }

    /// Data chunks that a root hands out at a time. With parity this is a whole number of parity groups.
    fn batch(&self) -> u32 {
        self.parity.map_or(BATCH, |parity| {
            let group = parity.code().data() as u32;
            (BATCH / group).max(1) * group
        })
    }

    /// Wire bytes of all chunks of a share.
    fn wire_bytes(&self, share: u32) -> u64 {
        let parity = self.parity.map_or(0, |parity| u64::from(parity.chunks(share)));
        let header = u64::from(self.header);
        let chunks = u64::from(self.layout.chunks(share));
        self.layout.share(share).1 + chunks * header + parity * (u64::from(self.layout.chunk_bytes()) + header)
    }

    /// The rate of all roots together: the receive rate of a rank, times `pace`.
    fn paced_rate(&self) -> Rate {
        self.rate.scaled(self.pace.unwrap_or(1.0))
    }

    /// The time of one chunk at the rate of a single root.
    fn chunk_time(&self) -> Span {
        self.paced_rate().time_for(Bytes(u64::from(self.layout.chunk_bytes()) + u64::from(self.header)))
    }

    /// The duration of the multicast without losses (multicast sheet, section 6.3: `T_sched`).
    pub fn schedule(&self) -> Span {
        let longest = self.wire_bytes(0);
        match self.root {
            Some(_) => self.paced_rate().time_for(Bytes(longest)),
            None => self.chains.schedule(longest, self.paced_rate()),
        }
    }

    /// The duration of the multicast without losses if ranks forward chunks to each other: the time of all shares, and
    /// a round trip and a chunk for each rank on the way.
    fn chain_schedule(&self) -> Span {
        let all: u64 = (0..self.layout.shares()).map(|share| self.wire_bytes(share)).sum();
        self.paced_rate().time_for(Bytes(all)) + (self.rtt + self.chunk_time()) * u64::from(self.ranks.count())
    }

    /// The latest time after the barriers at which receivers of a chain begin to fetch, if no more chunks arrive.
    fn chain_cutoff(&self) -> Span {
        self.chain_schedule().scaled(1.25) + self.rtt * 4
    }

    /// The latest time after the barriers at which receivers begin to fetch, if no more chunks arrive.
    pub fn cutoff(&self) -> Span {
        match self.cutoff {
            Cutoff::Artifact(factor) => {
                // Multicast sheet, section 6.3: s * slice * P / bandwidth.
                self.rate.time_for(Bytes(self.layout.bytes())).scaled(factor)
            }
            Cutoff::Tuned => {
                let steps = if self.root.is_some() { 0 } else { u64::from(self.chains.steps()) - 1 };
                self.schedule().scaled(1.25) + self.rtt * (steps + 4) + Span::from_us(200)
            }
        }
    }

    /// Casts chunks of a share to a group or a host on these planes, in a step with `sharing` roots. The pace on each
    /// plane is the pace of all planes divided by the number of planes, even if fewer planes are used.
    fn cast(&self, to: HostId, share: u32, first: u32, count: u32, planes: u32, sharing: u32) -> Cast {
        let many = u64::from(self.planes.count_ones().max(1)) * u64::from(sharing);
        let chunks = self.layout.chunks(share);
        Cast {
            to,
            task: self.task,
            first,
            count,
            bytes: self.layout.chunk_bytes(),
            last: (self.layout.first(share) + chunks).saturating_sub(1),
            tail: self.layout.tail(share),
            header: self.header,
            rate: if self.pace.is_some() { Rate((self.paced_rate().0 / many).max(1)) } else { Cast::UNPACED },
            planes,
            trees: if to.as_group().is_some() { self.trees } else { 0 },
            left_out: LeftOut::NONE,
        }
    }

    /// Casts parity chunks of a share to the group, at the same pace.
    fn cast_parity(&self, share: u32, run: Range<u32>, planes: u32, sharing: u32) -> Cast {
        let (first, count) = (run.start, run.len() as u32);
        let cast = self.cast(HostId::group(self.group), share, first, count, planes, sharing);
        let last = self.parity.map_or(0, |parity| {
            let (first, chunks) = (self.layout.first(share), self.layout.chunks(share));
            parity.of_run(first, chunks).end
        });
        Cast { last: last.saturating_sub(1), tail: self.layout.chunk_bytes(), ..cast }
    }
}

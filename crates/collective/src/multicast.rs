//! Reliable broadcast and all-gather by multicast.
//!
//! Khalilov, Di Girolamo, Chrapek, Nudelman, Bloch, Hoefler: "Network-Offloaded Bandwidth-Optimal Broadcast and Allgather for
//! Distributed AI", arXiv 2408.13356 (SC'24). Two barriers make sure that everybody listens; roots multicast their shares in chains;
//! receivers mark chunks in a bitmap; when a timer runs out they fetch what is missing around a ring of neighbours; a last handshake
//! gives the buffers back. `docs/protocols/multicast.md` tells what is the paper's and what is ours.
//!
//! [`Caster`] is one rank as an [`Application`](strandway_proto::Application). What it needs of a world are chunks cast to a group or
//! to one host ([`Action::Cast`](strandway_proto::application::Action::Cast)), letters, and news of what arrived. It touches no
//! payload: chunk `n` belongs at [`Layout::place`] of the operation's buffer.

mod caster;
mod chains;
mod letters;
mod owed;
mod rebuilding;
mod repair;
mod silence;

pub use caster::{Caster, Counts, Outcome};
pub use chains::{Chains, Link};
pub use letters::{Barrier, Run, Word};

use std::ops::Range;
use strandway_proto::application::Channel;
use strandway_proto::cast::{Cast, Layout, LeftOut, Parity};
use strandway_proto::units::{Bytes, Rate, Span, Time};
use strandway_proto::{HostId, MessageId};

/// So often in a row a rank may leave a question unanswered before it counts as dead. Multicast sheet, section 6.2, rule 6.
pub const SILENT_MAX: u32 = 40;

/// The share of its rate that a root sends where switches may drop. Multicast sheet, section 6.1.
pub const PACE: f64 = 0.95;

/// Chains of an all-gather unless one says otherwise: the artifact's.
pub const CHAINS: u32 = 2;

/// Chunks that a root casts before it looks up: the artifact's batch.
pub const BATCH: u32 = 128;

/// When receivers stop to wait for multicast chunks and fetch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cutoff {
    /// The artifact's: this many times the time that all bytes take at link rate, counted from the end of the barriers. Its factor is
    /// 5.
    Artifact(f64),
    /// Ours (multicast sheet, section 6.3): 1.25 times the schedule, a token's time per step, four round trips and 200 us. Earlier if the
    /// last roots of all chains have been heard to the end, or if 0.9 of the schedule has passed and nothing comes any more. Later as long
    /// as chunks come.
    Tuned,
}

/// The order in which a receiver fetches the shares that it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By the number of the root: the artifact's. With one fetch under way it takes about P^2 / 2 round trips if everything is missing.
    Ascending,
    /// From the neighbour's own share on around the ring: no fetch waits for a later one.
    NearestFirst,
    /// The other way round. With fewer than P - 1 fetches under way that block, it deadlocks: for tests.
    FarthestFirst,
}

/// What ranks wait for before they cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Two barriers: everybody is here; then, everybody listens. The artifact's.
    TwoBarriers,
    /// The first one alone, where a rank's buffer is open before it begins: whoever is here listens. Ours; it saves log2 P round trips.
    OneBarrier,
    /// Nothing. Chunks that come before a rank has begun are lost: for tests.
    AtOnce,
}

/// How receivers repair what they lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// In which order shares are fetched.
    pub order: Order,
    /// Of how many shares fetches may be under way at once.
    pub under_way: u32,
    /// A neighbour that lacks a part of a share gives nothing of it, rather than what it has.
    pub blocking: bool,
    /// Ask the root itself when the neighbour has not helped within two round trips. A root that two ranks ask for one chunk casts it to
    /// all.
    pub direct: bool,
    /// End with a barrier of all, rather than with a word to the neighbour. With `direct` the neighbour's word is not enough: buffers
    /// may be overwritten while others still fetch from them.
    pub close: bool,
}

impl Recovery {
    /// The artifact's: one blocking fetch from the neighbour at a time.
    pub const RING: Recovery =
        Recovery { order: Order::Ascending, under_way: 1, blocking: true, direct: false, close: false };

    /// Ours (multicast sheet, section 6.2): everything at once, what there is of it, from the root if need be, and a barrier.
    pub const FAST: Recovery =
        Recovery { order: Order::NearestFirst, under_way: u32::MAX, blocking: false, direct: true, close: true };
}

/// The hosts of ranks, found both ways.
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

    /// How many ranks there are.
    pub fn count(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// The hosts, rank by rank.
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
    /// The rank that broadcasts; `None` if all gather.
    pub root: Option<u32>,
    /// The hosts of its ranks.
    pub ranks: Ranks,
    /// Shares and chunks.
    pub layout: Layout,
    /// Chunks of parity that roots cast behind those of data, if they do. Receivers rebuild from them what is lost, rather than fetch
    /// it.
    pub parity: Option<Parity>,
    /// The order in which ranks multicast, in an all-gather.
    pub chains: Chains,
    /// When each rank begins.
    pub starts: Vec<Time>,
    /// Which multicast group the ranks are.
    pub group: u32,
    /// The operation's number, unlike those of all others that are under way.
    pub task: u32,
    /// The number that rank 0's part has among the run's messages. Others follow.
    pub first_message: u32,
    /// The numbers of the channels between ranks, this and the next one: at no host those of other channels. One is for questions, the
    /// other one for answers: a channel's letters take planes in turn, and with one for both, each question may meet a dead plane
    /// and each answer the other one.
    pub channel: u32,
    /// The profile of these channels.
    pub profile: u16,
    /// Bytes of all headers of a chunk on the wire.
    pub header: u16,
    /// The planes that every host has, one bit each.
    pub planes: u32,
    /// The planes of those by which groups reach this rank, one bit each; all (`u32::MAX`) where every switch copies.
    pub groups: u32,
    /// How many trees of a plane are used; zero for all.
    pub trees: u32,
    /// How many trees each plane has; zero if that is not known. Where it is, trees that fall silent are found and left out.
    pub tree_count: u32,
    /// The rate at which the slowest rank receives, all planes together.
    pub rate: Rate,
    /// The share of that rate that roots send; `None` to send as fast as ports take it, where the fabric loses nothing.
    pub pace: Option<f64>,
    /// A round trip between the two farthest ranks without queues.
    pub rtt: Span,
    /// So often in a row a rank may leave a question unanswered, one every four round trips ([`SILENT_MAX`]).
    pub silent_max: u32,
    /// The root of a broadcast takes no part in the ring: receivers ask receivers, farther and farther ones, and the root only for what
    /// those do not have (multicast sheet, section 6.2, rule 5).
    pub spare_root: bool,
    /// What ranks wait for before they cast.
    pub opening: Opening,
    /// When receivers begin to fetch.
    pub cutoff: Cutoff,
    /// How they fetch.
    pub recovery: Recovery,
}

impl Multicast {
    /// The rank whose share it is.
    pub fn root_of(&self, share: u32) -> u32 {
        self.root.unwrap_or(share)
    }

    /// The share that a rank multicasts, if it does.
    pub fn share_of(&self, rank: u32) -> Option<u32> {
        match self.root {
            None => Some(rank),
            Some(root) => (root == rank).then_some(0),
        }
    }

    /// The rank that a rank asks first for what it lacks: the next one.
    fn neighbour(&self, rank: u32) -> u32 {
        let ranks = self.ranks.count();
        let next = (rank + 1) % ranks;
        if self.spare_root && self.root == Some(next) && ranks > 2 { (next + 1) % ranks } else { next }
    }

    /// The rank that a rank asks next for chunks of a share that `asked` did not give: the root, or if that is to be spared, the
    /// receiver twice as far ahead around the ring, as long as that is less than once around.
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

    /// The number that a rank's part has among the run's messages.
    pub fn message(&self, rank: u32) -> MessageId {
        MessageId(self.first_message + rank)
    }

    /// Payload bytes that all ranks together hear.
    pub fn heard(&self) -> u64 {
        self.layout.bytes().saturating_mul(u64::from(self.ranks.count().saturating_sub(1)))
    }

    /// The numbers of all ranks' parts.
    pub fn messages(&self) -> std::ops::Range<u32> {
        self.first_message..self.first_message + self.ranks.count()
    }

    /// The channel to a rank for questions, or for answers.
    fn channel_to(&self, rank: u32, answers: bool) -> Channel {
        Channel { peer: self.ranks.host(rank), number: self.channel + u32::from(answers), profile: self.profile }
    }

    /// Where a rank stands in its chain; a broadcast's root is a chain of its own.
    fn link(&self, rank: u32) -> Link {
        if self.root.is_some() { Link { chain: 0, step: 0, last: true } } else { self.chains.link(rank) }
    }

    /// The share whose end a chunk is, if it is one, and how long the rest of the share takes to leave: the chunk that is marked as the last
    /// one, or any chunk of a share's last parity.
    fn is_end(&self, chunk: u32, last: bool) -> Option<(u32, Span)> {
        let Some(parity) = self.parity else { return last.then(|| (self.layout.share_of(chunk), Span::ZERO)) };
        let share = parity.share_of(chunk);
        let last = self.layout.first(share) + self.layout.chunks(share).checked_sub(1)?;
        let end = parity.group(parity.group_of(last)).parity;
        let left = end.end.checked_sub(chunk + 1).filter(|_| end.contains(&chunk))?;
        let sharing = self.sharing(self.root_of(share));
        Some((share, self.chunk_time() * (u64::from(left) * u64::from(sharing))))
    }

    /// Trees of each plane that are used, if their number is known.
    fn trees_used(&self) -> u32 {
        if self.trees == 0 { self.tree_count } else { self.trees.min(self.tree_count) }
    }

    /// By how much a root's rate is divided: the roots that cast at the same time.
    fn sharing(&self, rank: u32) -> u32 {
        if self.root.is_some() { 1 } else { self.chains.sharing(self.link(rank).step) }
    }

    /// Chunks of data that a root casts before it looks up: whole groups, where there is parity.
    fn batch(&self) -> u32 {
        self.parity.map_or(BATCH, |parity| {
            let group = parity.code().data() as u32;
            (BATCH / group).max(1) * group
        })
    }

    /// Bytes on the wire of all chunks of a share.
    fn wire_bytes(&self, share: u32) -> u64 {
        let parity = self.parity.map_or(0, |parity| u64::from(parity.chunks(share)));
        let header = u64::from(self.header);
        let chunks = u64::from(self.layout.chunks(share));
        self.layout.share(share).1 + chunks * header + parity * (u64::from(self.layout.chunk_bytes()) + header)
    }

    /// The rate that all roots together may send: the one at which a rank receives, or a share of it.
    fn paced_rate(&self) -> Rate {
        self.rate.scaled(self.pace.unwrap_or(1.0))
    }

    /// How long a chunk takes at the pace of a single root.
    fn chunk_time(&self) -> Span {
        self.paced_rate().time_for(Bytes(u64::from(self.layout.chunk_bytes()) + u64::from(self.header)))
    }

    /// How long the multicast takes if nothing goes wrong (multicast sheet, section 6.3: `T_sched`).
    pub fn schedule(&self) -> Span {
        let longest = self.wire_bytes(0);
        match self.root {
            Some(_) => self.paced_rate().time_for(Bytes(longest)),
            None => self.chains.schedule(longest, self.paced_rate()),
        }
    }

    /// The same where ranks pass chunks on to each other: all that a rank gets, and a round trip for each rank on the way.
    fn chain_schedule(&self) -> Span {
        let all: u64 = (0..self.layout.shares()).map(|share| self.wire_bytes(share)).sum();
        self.paced_rate().time_for(Bytes(all)) + (self.rtt + self.chunk_time()) * u64::from(self.ranks.count())
    }

    /// How long after the barriers they begin to fetch then.
    fn chain_cutoff(&self) -> Span {
        self.chain_schedule().scaled(1.25) + self.rtt * 4
    }

    /// How long after the barriers receivers begin to fetch at the latest, if no chunk comes then.
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

    /// Chunks of a share for a group or a host, on these planes, in a step with so many roots. The pace on each plane is that of all planes
    /// divided by their number, however few of them are used.
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

    /// Chunks of parity of a share for the group, likewise.
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

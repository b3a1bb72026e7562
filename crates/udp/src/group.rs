//! Multicast groups of nodes: chunks that switches copy to all members, and letters between members.
//!
//! A *team* is a fixed list of members, each known by its rank. Whatever a member sends is sealed with a key of its own, which the
//! team's secret gives to all members: counters never repeat, and each sender has a replay window. Chunks go to the addresses of
//! trees ([`GroupAddress`]), letters to one member's addresses or to all. Nothing is acknowledged or repeated here; what is
//! missing, programs fetch (`strandway_collective::multicast`).
//!
//! All members can forge each other's datagrams, since whoever opens a datagram could have sealed it. A receiver that does not trust
//! the others gives [`Incoming::hashes`], which say what each chunk must be.

mod body;
mod keys;
mod parity;
mod team;

pub(crate) use body::{ChunkHead, WordBody};
pub use parity::parity_chunks;
pub(crate) use team::{Chunked, Team};

use crate::memory::Region;
use std::net::SocketAddrV6;
use std::ops::Range;
use std::sync::Arc;
use strandway_fabric::multicast::GroupAddress;
use strandway_proto::cast::Layout;
use strandway_proto::repair::Code;

/// A group that a node has joined. It stays a valid name for nothing once the node has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// What a member must know of its team.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The team's number, a part of its group addresses. Fabrics copy for the teams that they know.
    pub team: u16,
    /// The team's secret, the same for all members and fresh for each team: random bytes. Keys follow from it, and a secret that is used
    /// twice lets recorded datagrams in again.
    pub secret: [u8; 32],
    /// Our rank.
    pub rank: u32,
    /// The addresses of every rank, plane by plane, ours among them.
    pub members: Vec<Vec<SocketAddrV6>>,
    /// The UDP port of the team's group addresses.
    pub port: u16,
    /// How many trees each plane has; at most [`GroupAddress::TREES_MAX`].
    pub trees: u16,
}

/// Where the chunks of an operation go, and where they are read from.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The operation's number, unlike those of all others that are open in the group.
    pub task: u32,
    /// How the buffer is cut.
    pub layout: Layout,
    /// The buffer.
    pub region: Region,
    /// The part of the region that is the buffer, as long as the layout says.
    pub range: Range<usize>,
    /// Chunks that are there: those that others send of them are not placed. By their numbers.
    pub present: Vec<Range<u32>>,
    /// The code of the parity that may come or be cast, if any.
    pub parity: Option<Code>,
    /// The hash that each chunk must have, by its number, those of parity behind those of data: the first 16 bytes of BLAKE3. A chunk with
    /// another one counts as forged, and is as good as lost. Chunks beyond the end of the list are not checked.
    pub hashes: Option<Arc<[[u8; 16]]>>,
}

/// What a group counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounters {
    /// Chunks that were sent, each once however many copies switches make.
    pub sent: u64,
    /// Those of them that went to one member.
    pub repairs: u64,
    /// Payload bytes of all that were sent.
    pub sent_bytes: u64,
    /// Chunks that arrived for the first time: those of data are placed.
    pub placed: u64,
    /// Chunks that were rebuilt from parity.
    pub rebuilt: u64,
    /// Chunks that arrived and were there.
    pub duplicates: u64,
    /// Chunks of operations that are not open here, or that no operation has.
    pub strays: u64,
    /// Chunks whose contents are not those that their hashes promise.
    pub forged: u64,
    /// Chunks that a switch has cut.
    pub trimmed: u64,
    /// Datagrams with a CE mark.
    pub marked: u64,
    /// Datagrams with a wrong tag, or that are none of a group's.
    pub refused: u64,
    /// Datagrams that were seen before, or come too late to tell.
    pub repeated: u64,
    /// Words that were sent and that arrived.
    pub words: [u64; 2],
}

impl Membership {
    /// The group address of a tree of a plane.
    pub fn address(&self, plane: u8, tree: u16) -> GroupAddress {
        GroupAddress { plane, tree, team: self.team }
    }
}

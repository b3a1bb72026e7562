//! Multicast groups of nodes: chunks that switches copy to all members, and control messages between members.
//!
//! A *team* is a fixed list of members, each known by its rank. A member seals its datagrams with a key of its own,
//! which all members derive from the team's secret: so counters never repeat, and each sender has a replay window.
//! Chunks go to the addresses of trees ([`GroupAddress`]), control messages to one member's addresses or to all.
//! Nothing is acknowledged or repeated here: programs fetch missing chunks (`strandway_collective::multicast`).
//!
//! All members can forge each other's datagrams, since they share the keys. A receiver that does not trust the others
//! gives [`Incoming::hashes`], the hash of each chunk.

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

/// A member's view of its team.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The team's number, a part of its group addresses. Switches copy datagrams only for teams that they know.
    pub team: u16,
    /// The team's secret, the same for all members and fresh for each team: random bytes. All keys follow from it. With
    /// a secret that is used twice, members would accept recorded datagrams of the first team.
    pub secret: [u8; 32],
    /// Our rank.
    pub rank: u32,
    /// The addresses of every rank, plane by plane, ours among them.
    pub members: Vec<Vec<SocketAddrV6>>,
    /// The UDP port of the team's group addresses. `None`: the team does not use multicast, and opens no sockets for
    /// it; members may still send each other control messages, and chunks one by one.
    pub port: Option<u16>,
    /// The number of trees of each plane; at most [`GroupAddress::TREES_MAX`].
    pub trees: u16,
}

/// The buffer of an operation: chunks are written to it, and read from it.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The operation's number, which no other open operation of the group has.
    pub task: u32,
    /// How the buffer is cut into chunks.
    pub layout: Layout,
    /// The buffer.
    pub region: Region,
    /// The part of the region that is the buffer, as long as the layout says.
    pub range: Range<usize>,
    /// Chunks that are there already, by their numbers: they are not written when they arrive.
    pub present: Vec<Range<u32>>,
    /// The code of the parity that may arrive or be cast, if any.
    pub parity: Option<Code>,
    /// The hash that each chunk must have, by its number; parity chunks follow data chunks. A hash is the first 16
    /// bytes of BLAKE3. A chunk with another hash counts as forged, and is treated as lost. Chunks beyond the end of
    /// the list are not checked.
    pub hashes: Option<Arc<[[u8; 16]]>>,
}

/// Counters of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounters {
    /// Chunks that were sent; each counts once, regardless of the number of copies that switches make.
    pub sent: u64,
    /// Those of them that went to one member.
    pub repairs: u64,
    /// Payload bytes of all chunks that were sent.
    pub sent_bytes: u64,
    /// Chunks that arrived for the first time; those of data were written to the buffer.
    pub placed: u64,
    /// Chunks that were rebuilt from parity.
    pub rebuilt: u64,
    /// Chunks that arrived although they were there already.
    pub duplicates: u64,
    /// Chunks of operations that are not open here, and chunks with numbers that the operation does not have.
    pub strays: u64,
    /// Chunks whose contents do not have the expected hash.
    pub forged: u64,
    /// Chunks that a switch has trimmed.
    pub trimmed: u64,
    /// Datagrams with a CE mark.
    pub marked: u64,
    /// Datagrams with a wrong tag, or with a layout that groups do not have.
    pub refused: u64,
    /// Datagrams that came before, or so late that the group cannot tell whether they came before.
    pub repeated: u64,
    /// Control messages that were sent, and control messages that arrived.
    pub words: [u64; 2],
}

impl Membership {
    /// The group address of a tree of a plane.
    pub fn address(&self, plane: u8, tree: u16) -> GroupAddress {
        GroupAddress { plane, tree, team: self.team }
    }
}

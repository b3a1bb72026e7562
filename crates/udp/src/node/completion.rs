//! What a node tells: connections and operations by name, completions, counters.

use crate::error::Reason;
use crate::group::Group;
use std::net::SocketAddr;
use strandway_proto::{HostId, Letter, PathId};

/// A connection of a node. It stays a valid name for nothing once the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    pub(crate) index: u32,
    pub(super) generation: u32,
}

impl Connection {
    #[cfg(test)]
    pub(crate) const fn test(index: u32) -> Connection {
        Connection { index, generation: 0 }
    }
}

/// What was posted, as completions name it; a node counts them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation(pub u64);

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A connection that we began is established.
    Connected {
        /// This one.
        connection: Connection,
    },
    /// A peer has begun a connection, and shown that it knows the key.
    Accepted {
        /// This one.
        connection: Connection,
        /// Where its first datagram came from.
        from: SocketAddr,
    },
    /// A send or write of ours is wholly in the peer's memory. On one connection they finish in the order of posting.
    Sent {
        /// On this connection.
        connection: Connection,
        /// What the posting call returned.
        operation: Operation,
    },
    /// All packets of a one-shot have left ([`crate::Node::send_once`]): its bytes may change. Whether they arrive, nobody here knows. On
    /// one connection one-shots leave in the order of posting.
    Injected {
        /// On this connection.
        connection: Connection,
        /// What the posting call returned.
        operation: Operation,
    },
    /// Every packet of the message that a receive takes is there ([`crate::Node::expect`]). The receive stays open until it is completed;
    /// if that has happened already, this comes nevertheless.
    Whole {
        /// On this connection.
        connection: Connection,
        /// What the posting call returned.
        receive: u64,
        /// The sender's number for the message.
        immediate: u32,
        /// How many bytes it has.
        bytes: u64,
    },
    /// A receive of ours is filled. In the order of posting.
    Received {
        /// On this connection.
        connection: Connection,
        /// What the posting call returned.
        operation: Operation,
        /// How many bytes came; at most those that there was room for.
        bytes: u64,
    },
    /// A peer's write with an immediate is wholly in our memory, and so is everything that the peer posted before it.
    Written {
        /// On this connection.
        connection: Connection,
        /// The peer's number.
        immediate: u32,
        /// How many bytes it wrote.
        bytes: u64,
    },
    /// A letter of the peer's program is here. Letters may be lost, on their way and here if nobody polls.
    Letter {
        /// On this connection.
        connection: Connection,
        /// What it says.
        letter: Letter,
    },
    /// A chunk of an open operation is here, in its place; or a switch has cut it, and only its name is here. Chunks that were here
    /// before are told of again.
    Chunk {
        /// In this group.
        group: Group,
        /// The rank that sent it.
        from: u32,
        /// The operation.
        task: u32,
        /// The chunk's number in the operation.
        chunk: u32,
        /// The plane that it came by.
        plane: u8,
        /// The tree that it came along, if it went to all: a number that counts trees modulo as many as there are.
        tree: Option<u32>,
        /// Was its payload cut off?
        trimmed: bool,
        /// Is it the last one of its sender's share?
        last: bool,
    },
    /// All chunks of a cast of ours have left ([`crate::Node::cast`]).
    Cast {
        /// In this group.
        group: Group,
        /// To whom: all, or the host with the number of a rank.
        to: HostId,
        /// The operation.
        task: u32,
        /// The chunk behind the last of them.
        end: u32,
    },
    /// A letter of another member is here. Letters may be lost.
    Word {
        /// In this group.
        group: Group,
        /// The rank that sent it.
        from: u32,
        /// The plane and, if it went to all, the tree that it came by.
        path: PathId,
        /// Did it go to all members?
        to_all: bool,
        /// What it says.
        letter: Letter,
    },
    /// A connection has ended. Its unfinished operations, of which there may or may not be anything at the peer, get no
    /// completion of their own; their memory is free again.
    Closed {
        /// This one.
        connection: Connection,
        /// Why.
        reason: Reason,
    },
}

/// What a node counts of datagrams that belong to no connection, and of connections that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Datagrams that are none of this layout.
    pub malformed: u64,
    /// Datagrams for connections that do not exist.
    pub strays: u64,
    /// Hellos whose sender does not know the key.
    pub wrong_key: u64,
    /// Hellos of another version.
    pub wrong_version: u64,
    /// Callers with another profile, or other parameters of it.
    pub other_profile: u64,
    /// Callers with another payload size.
    pub other_payload: u64,
    /// Callers with another number of planes.
    pub other_planes: u64,
    /// Callers that want other protection.
    pub other_protection: u64,
    /// Callers for whom there was no room (`connections_max`).
    pub full: u64,
    /// Cookies given out.
    pub retries: u64,
    /// Handshakes begun by callers that know the key.
    pub handshakes: u64,
    /// Turns in which the node moved packets.
    pub turns: u64,
    /// Connections that were looked at in those turns, one after the other: those that had something to do.
    pub visits: u64,
    /// Payload bytes that had arrived for the first time on connections that have ended.
    pub ended_received_bytes: u64,
    /// Payload bytes that had been sent for the first time on connections that have ended.
    pub ended_fresh_bytes: u64,
    /// Packets that had been sent again on connections that have ended.
    pub ended_retransmitted: u64,
}

impl NodeCounters {
    /// How many hellos were refused, by reason.
    pub const fn refused(&self) -> [(Reason, u64); 7] {
        [
            (Reason::WrongKey, self.wrong_key),
            (Reason::WrongVersion, self.wrong_version),
            (Reason::OtherProfile, self.other_profile),
            (Reason::OtherPayload, self.other_payload),
            (Reason::OtherPlanes, self.other_planes),
            (Reason::OtherProtection, self.other_protection),
            (Reason::PeerFull, self.full),
        ]
    }

    pub(super) const fn refuse(&mut self, reason: Reason) {
        let counter = match reason {
            Reason::WrongKey => &mut self.wrong_key,
            Reason::WrongVersion => &mut self.wrong_version,
            Reason::OtherProfile => &mut self.other_profile,
            Reason::OtherPayload => &mut self.other_payload,
            Reason::OtherPlanes => &mut self.other_planes,
            Reason::OtherProtection => &mut self.other_protection,
            _ => &mut self.full,
        };
        *counter += 1;
    }
}

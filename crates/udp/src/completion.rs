//! The answers of a node: completions and counters.

use crate::error::{Reason, Refusal};
use crate::handles::{Connection, Group, Operation};
use std::net::SocketAddr;
use strandway_proto::path::PathEvent;
use strandway_proto::{ControlMessage, HostId, PathId};

/// An event of which the node tells its application.
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
    /// All bytes of a send or write of ours are in the peer's memory. Operations of one connection finish in the order
    /// of posting.
    Sent {
        /// On this connection.
        connection: Connection,
        /// The result of the posting call.
        operation: Operation,
    },
    /// All packets of a one-shot have left ([`crate::Node::send_once`]), so its bytes may change. The node does not
    /// learn whether they arrive. The one-shots of one connection leave in the order of posting.
    Injected {
        /// On this connection.
        connection: Connection,
        /// The result of the posting call.
        operation: Operation,
    },
    /// Every packet of a receive's message is there ([`crate::Node::expect`]). The receive stays open until it is
    /// completed. This completion may also come after that.
    Whole {
        /// On this connection.
        connection: Connection,
        /// The result of the posting call.
        receive: u64,
        /// The sender's number for the message.
        immediate: u32,
        /// How many bytes it has.
        bytes: u64,
    },
    /// A receive of ours is filled. Receives are filled in the order of posting.
    Received {
        /// On this connection.
        connection: Connection,
        /// The result of the posting call.
        operation: Operation,
        /// How many bytes came; at most the length of the receive's range.
        bytes: u64,
    },
    /// All bytes of a peer's write with an immediate are in our memory, and so are those of everything that the peer
    /// posted before it.
    Written {
        /// On this connection.
        connection: Connection,
        /// The peer's number.
        immediate: u32,
        /// How many bytes it wrote.
        bytes: u64,
    },
    /// All bytes of a read of ours are in our memory ([`crate::Node::read`]).
    Read {
        /// On this connection.
        connection: Connection,
        /// The result of the posting call.
        operation: Operation,
        /// How many bytes were read.
        bytes: u64,
    },
    /// An atomic operation of ours was carried out ([`crate::Node::fetch_add`], [`crate::Node::compare_swap`]).
    Fetched {
        /// On this connection.
        connection: Connection,
        /// The result of the posting call.
        operation: Operation,
        /// The word as it was before.
        word: u64,
    },
    /// The peer refused a read or an atomic operation of ours, and nothing has changed. The connection goes on.
    Refused {
        /// On this connection.
        connection: Connection,
        /// The result of the posting call.
        operation: Operation,
        /// Why.
        refusal: Refusal,
    },
    /// A path of a connection with profile `mrc` has changed: it failed, was probed, came back, or was denied or
    /// allowed. Only if [`PathReports::events`](crate::PathReports::events) is set; the event's time is that of
    /// [`NodeObserver::uptime`](crate::NodeObserver::uptime).
    Path {
        /// The connection.
        connection: Connection,
        /// The change.
        event: PathEvent,
    },
    /// A control message of the peer's program is here. Control messages may be lost: on their way, or here if the
    /// application does not poll.
    Control {
        /// On this connection.
        connection: Connection,
        /// The control message.
        control: ControlMessage,
    },
    /// A chunk of an open operation is here and in its place; or a switch has trimmed it, and only its number is here.
    /// A chunk that comes again is reported again.
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
        /// The tree that it came along, if it went to all: a number that counts modulo the number of trees.
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
        /// The receivers: all, or the host with the number of a rank.
        to: HostId,
        /// The operation.
        task: u32,
        /// The number after that of the last chunk.
        end: u32,
    },
    /// A control message of another member is here. Control messages may be lost.
    Word {
        /// In this group.
        group: Group,
        /// The rank that sent it.
        from: u32,
        /// The plane and, if it went to all, the tree that it came by.
        path: PathId,
        /// Did it go to all members?
        to_all: bool,
        /// The control message.
        control: ControlMessage,
    },
    /// A probe of ours was answered ([`crate::Node::probe`]): datagrams of its length pass, there and back.
    Probed {
        /// On this plane.
        plane: usize,
        /// The number of the probe.
        number: u64,
        /// Bytes of the datagram, without IP and UDP headers.
        length: u32,
    },
    /// A connection has ended. Its unfinished operations, of which some bytes may be in the peer's memory, get no
    /// completion of their own; their memory is released.
    Closed {
        /// This one.
        connection: Connection,
        /// Why.
        reason: Reason,
    },
}

/// Counters of datagrams that belong to no connection, and of connections that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Datagrams that have no valid layout.
    pub malformed: u64,
    /// Datagrams of MRC's layout with a wrong ICRC, which count as malformed as well.
    pub wrong_icrc: u64,
    /// Datagrams for connections that do not exist.
    pub strays: u64,
    /// Hellos whose sender does not know the key.
    pub wrong_key: u64,
    /// Hellos of another version.
    pub wrong_version: u64,
    /// Callers with another profile, or with other parameters of the same profile.
    pub other_profile: u64,
    /// Callers with another payload size.
    pub other_payload: u64,
    /// Callers with another number of planes.
    pub other_planes: u64,
    /// Callers that want another protection.
    pub other_protection: u64,
    /// Callers that were refused because as many connections as the limit allows were open.
    pub full: u64,
    /// Cookies given out.
    pub retries: u64,
    /// Handshakes begun by callers that know the key.
    pub handshakes: u64,
    /// Datagrams for other nodes that share our ports, which we handed over to them.
    pub handed_over: u64,
    /// Datagrams for other nodes that share our ports, which were dropped because those nodes had too many to read.
    pub undelivered: u64,
    /// Turns in which the node moved packets.
    pub turns: u64,
    /// Connections that worked in those turns, because they had something to do; each visit counts.
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

    pub(crate) const fn refuse(&mut self, reason: Reason) {
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

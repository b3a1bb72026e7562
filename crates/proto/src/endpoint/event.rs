//! The inputs and outputs of an endpoint: connections to open, results of arriving packets, events for the application.

use crate::control_message::ControlMessage;
use crate::environment::Environment;
use crate::packet::{ConnectionId, HostId, MessageId};
use crate::profile::Profile;
use crate::rng::Random;
use crate::units::Bytes;
use std::sync::Arc;

/// An event for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message of ours is wholly acknowledged.
    Sent {
        /// On this connection.
        connection: ConnectionId,
        /// The application's number for it.
        message: MessageId,
    },
    /// A peer's message has arrived completely.
    Received {
        /// On this connection.
        connection: ConnectionId,
        /// The peer's number for it.
        message: MessageId,
        /// Its length.
        bytes: Bytes,
    },
    /// A control message has arrived.
    Control {
        /// On this connection.
        connection: ConnectionId,
        /// The control message.
        control: ControlMessage,
    },
    /// All chunks of a cast ([`Endpoint::cast`](crate::Endpoint::cast)) have been sent.
    Cast {
        /// The host or group to which they were sent.
        to: HostId,
        /// Their operation.
        task: u32,
        /// The index after the last chunk.
        end: u32,
    },
    /// A connection has used up its retries, or its peer ended it. Unfinished messages stay unfinished, and nothing
    /// more is sent. Reported once.
    Failed {
        /// This connection.
        connection: ConnectionId,
    },
    /// A connection is over: we closed it and the peer answered or never answered, or the peer closed it. Its number is
    /// no longer valid, and unfinished messages stay unfinished. Reported once.
    Closed {
        /// This connection.
        connection: ConnectionId,
    },
}

/// The result of handling a packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// It was new data: the world must place its payload in the message, at the offset in its header.
    Fresh,
    /// It was for this host and contained no new data.
    Here,
    /// It names a connection that is closed or never existed: counted and dropped.
    Stray,
    /// A peer has opened a connection, and this is one of its first packets. The endpoint has not changed. The world
    /// may accept the connection ([`Endpoint::accept`](crate::Endpoint::accept)) and handle the packet again, refuse it
    /// ([`Endpoint::refuse`](crate::Endpoint::refuse)), or drop the packet.
    Unknown,
}

/// The data to open a connection. Both sides must open their end with the same profile.
#[derive(Clone, Debug)]
pub struct OpenConnection {
    /// The protocol.
    pub profile: Arc<Profile>,
    /// The environment in which it runs.
    pub environment: Environment,
    /// The other host.
    pub peer: HostId,
    /// The other host's number for the connection; `None` if that host opens its end only when it gets the first
    /// packet.
    pub peer_connection: Option<ConnectionId>,
    /// Its random stream.
    pub random: Random,
}

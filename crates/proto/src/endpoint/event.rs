//! What an endpoint is given and what it tells: connections to open, what became of a packet, what the application learns.

use crate::environment::Environment;
use crate::letter::Letter;
use crate::packet::{ConnectionId, HostId, MessageId};
use crate::profile::Profile;
use crate::rng::Random;
use crate::units::Bytes;
use std::sync::Arc;

/// What the application learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message of ours is wholly acknowledged.
    Sent {
        /// On this connection.
        connection: ConnectionId,
        /// The application's number for it.
        message: MessageId,
    },
    /// A peer's message is wholly here.
    Received {
        /// On this connection.
        connection: ConnectionId,
        /// The peer's number for it.
        message: MessageId,
        /// Its length.
        bytes: Bytes,
    },
    /// A letter is here.
    Letter {
        /// On this connection.
        connection: ConnectionId,
        /// What it says.
        letter: Letter,
    },
    /// All chunks of a cast ([`Endpoint::cast`](crate::Endpoint::cast)) have left.
    Cast {
        /// To whom they went.
        to: HostId,
        /// The operation that they are a part of.
        task: u32,
        /// The chunk behind the last of them.
        end: u32,
    },
    /// A connection has used up its retries, or its peer ended it: what is not finished never will be, and nothing more is
    /// sent. Told once.
    Failed {
        /// This connection.
        connection: ConnectionId,
    },
    /// A connection is over: we have closed it and the peer knows, or never answered; or the peer has closed it. Its number means
    /// nothing any more, and what is not finished never will be. Told once.
    Closed {
        /// This connection.
        connection: ConnectionId,
    },
}

/// What became of a packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// It was data for us that had not come before: its payload belongs into the message, at the offset that it names.
    Fresh,
    /// It was for us, and brought no new data.
    Here,
    /// It names a connection that is closed, or never was: counted and dropped.
    Stray,
    /// A peer has opened a connection, and this is one of its first packets: nothing has changed. The world may accept it
    /// ([`Endpoint::accept`](crate::Endpoint::accept)) and hand the packet in again, or refuse it
    /// ([`Endpoint::refuse`](crate::Endpoint::refuse)), or drop it.
    Unknown,
}

/// What it takes to open a connection; both sides open their end with the same profile.
#[derive(Clone, Debug)]
pub struct OpenConnection {
    /// The protocol.
    pub profile: Arc<Profile>,
    /// The world it runs in.
    pub environment: Environment,
    /// The other host.
    pub peer: HostId,
    /// The connection as the other host numbers it; `None` if that host has not opened its end, and will when it gets the first
    /// packet.
    pub peer_connection: Option<ConnectionId>,
    /// Its random stream.
    pub random: Random,
}

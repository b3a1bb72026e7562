//! The state of a cast and of its receivers, for the caller.

use super::Failures;
use crate::copy::FileError;
use std::net::SocketAddrV6;
use std::path::PathBuf;

/// A receiver, as the caller describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name in messages.
    pub name: String,
    /// Its node's addresses, plane by plane.
    pub addresses: Vec<SocketAddrV6>,
}

/// The state of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It does not answer.
    Absent,
    /// It has answered, and takes part in the next pass.
    Waits,
    /// It takes part.
    Receives,
    /// It has everything that it can get.
    Done,
    /// It was lost, or has refused; with the reason.
    Lost(String),
}

/// One receiver's progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: State,
    /// Payload of file batches that are on its disk, in bytes.
    pub bytes: u64,
    /// Files that it received and has now.
    pub files: u64,
}

/// The state of a cast.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Seconds since the call.
    pub seconds: f64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// Planes that carry multicast in the present team, one bit each.
    pub planes: u32,
    /// Payload bytes that have been cast, including those that were cast again for late receivers.
    pub cast_bytes: u64,
    /// Bytes that this host sent, headers and Ethernet frames included.
    pub wire_bytes: u64,
    /// Payload bytes of a full packet, of the present team.
    pub payload: u32,
    /// All receivers, in the order of the call.
    pub receivers: Vec<Progress>,
}

/// The result of a cast.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The state at its end.
    pub status: Status,
    /// The number of passes: one, and one more each time that late receivers were served.
    pub passes: u32,
    /// Bytes that at least one receiver lacked at the beginning of the first pass.
    pub missing_bytes: u64,
    /// Files that did not arrive at a receiver.
    pub failures: Failures,
    /// Sources that could not be read.
    pub unread: Vec<(PathBuf, FileError)>,
}

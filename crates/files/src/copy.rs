//! Files from one host to another: [`copy`] sends files and directories over a connection, [`serve`] writes them below
//! a directory and nowhere else.
//!
//! The client offers its files in batches. The server answers which blocks are missing. The contents follow as writes
//! of *parcels* into registered memory, several under way at a time; a parcel is a block of a large file or many small
//! files. Every file has a BLAKE3 hash, and the server compares it with the hash of the bytes that it wrote before it
//! gives the file its name. An unfinished file lies beside its name with a journal of its blocks, and the next copy
//! sends only the missing blocks.
//!
//! Disks are slow and block, so on either side each copy has a thread of its own for the disk. The calling thread works
//! on the sockets. A large block is hashed by one more thread while it is written.

mod client;
mod contents;
mod digest;
mod disk;
mod exclude;
mod file_error;
mod journal;
mod message;
mod more;
mod names;
mod receiver;
mod remover;
mod sender;
mod server;
mod spare;
mod target;
mod target_tree;
mod tree;

pub use client::{News, Request, Status, Summary, copy, copy_request};
pub use exclude::Exclude;
pub use file_error::FileError;
pub(crate) use message::flag;
pub use message::{
    Answer, Entry, Kind, MESSAGE_MAX, Malformed, Message, Modified, Piece, VERSION, VERSION_MORE, WITH_DELETE,
    WITH_OWNERS,
};
pub use more::More;
pub use sender::{FileNews, Happened};
pub use server::{Allowed, Served, Server, serve};
pub use tree::Preserve;

/// The two sides of a copy without sockets, for callers that carry it in another way than over one connection.
pub mod parts {
    pub use super::disk::{DiskEvent, Work, work};
    pub use super::message::Results;
    pub use super::receiver::Receiver;
    pub use super::sender::{Done, Order, Outcome, Sender, parcel_bytes};
    pub use super::target::Target;
    pub use super::tree::{Item, Tree};
}

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use strandway_proto::{Rate, Span};
use strandway_udp::{Completion, Region};
use strandway_udp::{Connection, Node, Operation};
use strandway_udp::{Error, Reason};

/// The default profile of copies.
pub const PROFILE: &str = "sdr_auto";
/// The most parcels under way; ours.
pub const SLOTS_MAX: u16 = 64;
/// Receives for messages that either side keeps posted; ours.
const RECEIVES: usize = 16;

/// How to copy.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of a block, a power of two from 4 KiB to 16 MiB. Default 4 MiB. A lost connection loses at most this much
    /// per parcel under way.
    pub block: u32,
    /// Parcels under way, 2 to [`SLOTS_MAX`]; [`Options::for_path`] has a rule.
    pub slots: u16,
    /// The most payload per second, on average over some parcels.
    pub limit: Option<Rate>,
    /// Only ask which blocks are missing; copy nothing.
    pub dry_run: bool,
    /// Properties of files that are kept besides contents, modes and times.
    pub preserve: Preserve,
    /// In directories that are copied, remove at the server what is not here. The server must allow it.
    pub delete: bool,
}

impl Options {
    /// Blocks of 4 MiB. Parcels: twice the number that fills a path of this rate and round trip, and four more. Twice,
    /// because the server frees the memory of a parcel only when the bytes are on its disk.
    pub fn for_path(rate: Rate, round_trip: Span) -> Options {
        let block = 4 << 20;
        let slots = 2 * rate.bytes_in(round_trip).0 / u64::from(block) + 4;
        let slots = slots.clamp(2, SLOTS_MAX.into()) as u16;
        Options { block, slots, limit: None, dry_run: false, preserve: Preserve::default(), delete: false }
    }

    fn check(&self) -> Result<(), CopyError> {
        let wrong = |what: String| Err(CopyError::Option(what));
        if !self.block.is_power_of_two() || !(1 << 12..=1 << 24).contains(&self.block) {
            return wrong(format!("blocks of {} bytes: take a power of two from 4 KiB to 16 MiB", self.block));
        }
        if !(2..=SLOTS_MAX).contains(&self.slots) {
            return wrong(format!("{} parcels under way: take 2 to {SLOTS_MAX}", self.slots));
        }
        if self.limit.is_some_and(|limit| limit.0 < 8_000) {
            return wrong("a limit below 8 kb/s is too slow to copy anything: take more".into());
        }
        Ok(())
    }
}

/// Why a copy ended early. Bytes that had arrived are kept: the same copy continues from there.
#[derive(Debug)]
pub enum CopyError {
    /// A call failed.
    Call(Error),
    /// The connection ended.
    Closed(Reason),
    /// The peer sent bytes that are not a message of the protocol.
    Malformed(Malformed),
    /// The server does not copy this entry, nor any after it.
    Refused(PathBuf, FileError),
    /// A source, a directory or an option is wrong: the text says which, and the remedy.
    Option(String),
    /// The caller asked it to stop.
    Stopped,
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyError::Call(error) => error.fmt(f),
            CopyError::Closed(reason @ (Reason::ByPeer | Reason::PeerSilent)) => {
                write!(f, "{reason}; run the same command again: it goes on where it stopped")
            }
            CopyError::Closed(reason) => reason.fmt(f),
            CopyError::Malformed(malformed) => malformed.fmt(f),
            CopyError::Refused(path, file_error) => {
                use std::os::unix::ffi::OsStrExt;
                write!(f, "{}: {file_error}", names::shown(path.as_os_str().as_bytes()))
            }
            CopyError::Option(what) => f.write_str(what),
            CopyError::Stopped => f.write_str("stopped; the same command goes on where it stopped"),
        }
    }
}

impl std::error::Error for CopyError {}

impl From<Error> for CopyError {
    fn from(error: Error) -> CopyError {
        CopyError::Call(error)
    }
}

/// A path for display: bytes that are no text, and control characters, are escaped.
pub fn shown(path: &std::path::Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    names::shown(path.as_os_str().as_bytes())
}

/// The messages of one connection: posted receives, and sends and writes under way.
pub struct Letters {
    connection: Connection,
    inbox: Region,
    /// The part of the inbox that each posted receive fills, in order.
    posted: VecDeque<usize>,
    /// The memory of the sends and writes under way, in order.
    sending: VecDeque<(Operation, Region)>,
}

impl Letters {
    /// The messages of a connection that has begun.
    pub fn new(node: &mut Node, connection: Connection) -> Letters {
        let inbox = node.register(vec![0; RECEIVES * MESSAGE_MAX]);
        Letters { connection, inbox, posted: VecDeque::new(), sending: VecDeque::new() }
    }

    /// Posts all receives, as soon as the connection is established.
    ///
    /// # Errors
    /// If it has ended.
    pub fn post_all(&mut self, node: &mut Node) -> Result<(), Error> {
        (0..RECEIVES).try_for_each(|part| self.post(node, part))
    }

    /// Posts the receive of one part again, after its message has been handled.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn post(&mut self, node: &mut Node, part: usize) -> Result<(), Error> {
        node.recv(self.connection, self.inbox, part * MESSAGE_MAX..(part + 1) * MESSAGE_MAX)?;
        self.posted.push_back(part);
        Ok(())
    }

    /// A receive is filled with `bytes` bytes. Returns its part, which must be posted again, and the message.
    fn received(&mut self, node: &Node, bytes: u64) -> Result<(usize, Result<Message, Malformed>), Error> {
        let (part, bytes) = self.take(node, bytes)?;
        Ok((part, Message::decode(bytes)))
    }

    /// A receive is filled with `bytes` bytes. Returns its part, which must be posted again, and the bytes.
    ///
    /// # Errors
    /// If the node no longer has the memory.
    pub fn take<'a>(&mut self, node: &'a Node, bytes: u64) -> Result<(usize, &'a [u8]), Error> {
        let part = self.posted.pop_front().unwrap_or(0);
        let start = part * MESSAGE_MAX;
        Ok((part, &node.memory(self.inbox)?[start..start + bytes as usize]))
    }

    /// Sends a message of at most [`MESSAGE_MAX`] bytes.
    ///
    /// # Errors
    /// If the connection has ended, or too many operations are under way.
    pub fn send(&mut self, node: &mut Node, message: Vec<u8>) -> Result<(), Error> {
        let length = message.len();
        let region = node.register(message);
        let sent = node.send(self.connection, region, 0..length);
        self.keep(node, region, sent)
    }

    /// Keeps the memory of an operation until it ends; gives it back at once if the operation did not begin.
    fn keep(&mut self, node: &mut Node, region: Region, begun: Result<Operation, Error>) -> Result<(), Error> {
        match begun {
            Ok(operation) => {
                self.sending.push_back((operation, region));
                Ok(())
            }
            Err(error) => {
                // Nothing uses it.
                let _ = node.deregister(region);
                Err(error)
            }
        }
    }

    /// An operation has ended. Returns its memory, if it was the oldest one of these letters.
    ///
    /// # Errors
    /// If its memory is in use.
    pub fn sent(&mut self, node: &mut Node, operation: Operation) -> Result<Option<Vec<u8>>, Error> {
        match self.sending.front() {
            Some(&(first, region)) if first == operation => {
                self.sending.pop_front();
                node.deregister(region).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The connection is closed: gives all memory back.
    pub fn leave(self, node: &mut Node) {
        for region in self.sending.into_iter().map(|(_, region)| region).chain([self.inbox]) {
            // Its connection is gone, so nothing uses it.
            let _ = node.deregister(region);
        }
    }
}

/// The connection of a completion; `None` if it belongs to a group.
const fn connection_of(completion: &Completion) -> Option<Connection> {
    match completion {
        Completion::Connected { connection }
        | Completion::Accepted { connection, .. }
        | Completion::Sent { connection, .. }
        | Completion::Received { connection, .. }
        | Completion::Written { connection, .. }
        | Completion::Path { connection, .. }
        | Completion::Control { connection, .. }
        | Completion::Injected { connection, .. }
        | Completion::Whole { connection, .. }
        | Completion::Read { connection, .. }
        | Completion::Fetched { connection, .. }
        | Completion::Refused { connection, .. }
        | Completion::Closed { connection, .. } => Some(*connection),
        Completion::Chunk { .. } | Completion::Cast { .. } | Completion::Word { .. } | Completion::Probed { .. } => {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_udp::Config;

    #[test]
    fn a_message_that_is_not_sent_gives_its_memory_back() {
        let config = Config::new(&[5; 32]).expect("a key").plane("[::1]:0".parse().expect("an address"));
        let mut node = Node::bind(config).expect("a node");
        let connection = node.connect(&["[::1]:9".parse().expect("an address")]).expect("a connection");
        let mut controls = Letters::new(&mut node, connection);
        // The memory of a region that was given back has its number.
        let number = |region: Region| format!("{region:?}").split(',').next().map(String::from);
        let free = node.register(vec![0; 10]);
        node.deregister(free).expect("nothing uses it");
        for _ in 0..3 {
            let sent = controls.send(&mut node, vec![1; 100]);
            assert!(matches!(sent, Err(Error::NotConnected)), "{sent:?}");
            let next = node.register(vec![0; 10]);
            assert_eq!(number(next), number(free));
            node.deregister(next).expect("nothing uses it");
        }
    }
}

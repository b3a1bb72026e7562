//! The engine's state: peers, groups, messages and memory.

use super::super::delegate::Kind;
use super::super::failure::Failure;
use super::super::message::{Landing, Signature};
use super::super::probe::Probe;
use super::super::record::Record;
use super::delegates::Running;
use super::local::LocalMap;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddrV6;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use strandway_collective::plan::Hosts;
use strandway_udp::{Connection, Region};

pub(super) enum PeerConnection {
    Calling(Connection),
    /// The peer begins the connection.
    Expected,
    Open(Connection),
    /// The reason.
    Gone(String),
}

/// A message that leaves, and its purpose.
pub(super) struct OutgoingMessage {
    pub(super) bytes: Vec<u8>,
    pub(super) about: About,
}

/// The purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// It keeps the two sides in step, and carries no payload.
    Control,
    /// It has bytes of this call of this group. The sender goes on before they arrive.
    Call { group: u64, number: u64 },
    /// It has the bytes of this task, a send.
    Send { task: u64 },
}

/// The numbers of messages with payload, and of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) messages: u64,
    pub(super) writes: u64,
}

/// Ports of a peer have refused datagrams.
pub(super) struct Refusals {
    /// The place and time of the first refusal.
    pub(super) plane: usize,
    pub(super) address: SocketAddrV6,
    pub(super) first: Instant,
    pub(super) count: u32,
}

pub(super) struct Peer {
    pub(super) record: Record,
    pub(super) line: PeerConnection,
    /// Messages that wait for the connection, or for room on it.
    pub(super) backlog: VecDeque<OutgoingMessage>,
    pub(super) met: Instant,
    /// It is silent, and a message has been sent to it that it would acknowledge.
    pub(super) nudged: bool,
    pub(super) probe: Option<Probe>,
    /// The refusals that this node's own datagrams have met at its ports since it was heard last.
    pub(super) refusals: Option<Refusals>,
    /// The bytes of short messages that were sent to it unasked, and that it has not reported as taken.
    pub(super) owed: usize,
    /// The bytes of its unasked short messages that were taken here, and not reported to it yet.
    pub(super) taken: usize,
    /// The bytes of all its messages that wait here for a call.
    pub(super) early: usize,
    pub(super) starved: Starved,
    /// Messages and writes that were posted to it, and those that were accepted from it.
    pub(super) posted: Counts,
    pub(super) accepted: Counts,
    /// Messages and writes that it had accepted when it said good-bye.
    pub(super) bye: Option<Counts>,
    /// The calls of messages that were sent by a link, and where they end there; those in front may have arrived.
    pub(super) by_link: VecDeque<(u64, About)>,
    /// Tasks whose writes found no room in the queue of operations.
    pub(super) crowded: BTreeSet<u64>,
}

/// Tasks whose short messages wait for credit of a peer. After a while this rank announces a message that still waits,
/// and the peer asks for it when it needs it. Credit usually comes sooner, and costs less than an announcement of each
/// message.
#[derive(Default)]
pub(super) struct Starved {
    pub(super) tasks: BTreeSet<u64>,
    /// Tasks with messages that were not announced to the peer, and the time since when they wait. Some messages may
    /// have left.
    pub(super) untold: VecDeque<(Instant, u64)>,
    /// A message was announced to the peer, and messages have waited without a break since then. Further messages are
    /// announced at once.
    pub(super) tells: bool,
}

impl Peer {
    pub(super) fn new(record: Record, line: PeerConnection) -> Peer {
        Peer {
            record,
            line,
            backlog: VecDeque::new(),
            met: Instant::now(),
            nudged: false,
            probe: None,
            refusals: None,
            owed: 0,
            taken: 0,
            early: 0,
            starved: Starved::default(),
            posted: Counts::default(),
            accepted: Counts::default(),
            bye: None,
            by_link: VecDeque::new(),
            crowded: BTreeSet::new(),
        }
    }
}

pub(super) struct Group {
    pub(super) rank: u32,
    pub(super) hosts: Hosts,
    /// Peers by rank; our own place is empty.
    pub(super) members: Vec<Option<usize>>,
    pub(super) ranks: LocalMap<usize, u32>,
    /// Collectives with lower numbers have begun here.
    pub(super) begun: u64,
    pub(super) tasks: BTreeMap<u64, u64>,
    /// Calls that have failed here, the newest [`FAILED_MAX`].
    pub(super) failed: BTreeSet<u64>,
    /// Receives that wait for a message, by tag, in the order of their calls: task and rank.
    pub(super) wanted: HashMap<u32, VecDeque<(u64, Option<u32>)>>,
    /// Messages that wait for a receive, by tag, in the order of their arrival: the sender's rank and the message.
    pub(super) messages: HashMap<u32, VecDeque<(u32, QueuedMessage)>>,
    /// The first failure of a task. Callers can read it.
    pub(super) failure: Arc<Mutex<Option<Failure>>>,
    /// The reason why the ranks no longer agree on which of their calls belong together. No later call can be right.
    pub(super) broken: Option<Failure>,
    pub(super) aborted: bool,
    pub(super) delegates: BTreeMap<Kind, Running>,
}

pub(super) enum QueuedMessage {
    Bytes(Vec<u8>),
    Offer { number: u64, length: u64 },
}

impl QueuedMessage {
    /// Its cost in bytes while it waits.
    pub(super) fn bytes(&self) -> usize {
        match self {
            QueuedMessage::Bytes(bytes) => cost(bytes.len()),
            QueuedMessage::Offer { .. } => NOTE,
        }
    }
}

/// The cost of a short message while it waits for a call: its bytes, and those of the lists that it is in.
pub(super) const fn cost(length: usize) -> usize {
    length + NOTE
}

/// The cost of an announcement in bytes: ours.
pub(super) const NOTE: usize = 128;

impl Early {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Early::Bytes(_, _, bytes) => cost(bytes.len()),
            Early::Told(text) => cost(text.len()),
            Early::Ready(..) | Early::Open(..) => NOTE,
        }
    }
}

/// A message of a collective that has not begun here.
pub(super) enum Early {
    Bytes(u32, Signature, Vec<u8>),
    Ready(u32, Signature),
    Open(u32, Signature, Landing),
    Told(String),
}

/// Receives that are open: memory that a peer may write to, by its connection and its number.
#[derive(Default)]
pub(super) struct Landings {
    pub(super) open: LocalMap<(Connection, u32), Opened>,
    next: u32,
}

impl Landings {
    /// The number of a new one.
    pub(super) fn number(&mut self) -> u32 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        number
    }
}

/// Memory that is open to a peer, for a receive of a task.
pub(super) struct Opened {
    pub(super) task: u64,
    pub(super) receive: usize,
    pub(super) landing: Landing,
    /// The staging area, if it is not the caller's memory.
    pub(super) staging: Option<Region>,
    /// The number of the offer for which it is open, if there is one.
    pub(super) offer: Option<u64>,
}

/// The purpose of a send of the node.
pub(super) enum Sent {
    Message(Region, About),
    Long {
        task: u64,
        send: usize,
    },
    /// A message by a link with the bytes of this task, a send.
    Parcel {
        task: u64,
    },
}

/// The end of an engine.
pub(super) struct Ending {
    /// The latest time of the end.
    pub(super) until: Instant,
    /// The good-byes have left; their acknowledgements are waited for until this time.
    pub(super) bye: Option<Instant>,
}

/// Room for a connection's messages; filled in turn.
pub(super) struct Slots {
    pub(super) region: Region,
    pub(super) next: usize,
}

//! A link with a process of this host: messages and writes into each other's open memory, through two rings.

use super::super::message::Id;
use super::bell::PeerBell;
use super::frame::{HEAD, Head};
use super::ring::{LINE, Nonsense, Receiver, Sender};
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::Instant;
use strandway_udp::{Connection, Error, Node, Operation, Reason, Region, RemoteRegion};

/// The longest message.
pub(super) const MESSAGE_MAX: usize = 16_384;
const _: () = assert!(HEAD + MESSAGE_MAX < super::ring::RING_MIN / 2);
/// The peer sees a long write in pieces of this length, so that both sides copy at the same time: ours.
const PIECE: usize = 64 << 10;
/// A link moves at most this much before another one has its turn: ours.
const TURN: usize = 512 << 10;

/// What leaves by a link.
pub(super) enum Outgoing {
    Message(Vec<u8>),
    Write { region: Region, range: Range<usize>, remote: RemoteRegion, landing: u32 },
}

struct Waiting {
    what: Outgoing,
    /// Its completion is wanted under this number.
    operation: Option<Operation>,
    /// Bytes of a write that have left; `None` before its head has.
    left: Option<usize>,
}

/// What has come by a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    Message(Vec<u8>),
    Written { landing: u32, bytes: u64 },
}

/// A write that comes.
struct Body {
    landing: u32,
    key: u64,
    length: u64,
    at: u64,
}

pub(super) struct Link {
    pub(super) id: Id,
    /// The connection that it takes the place of, once both sides know.
    pub(super) connection: Option<Connection>,
    pub(super) ends: Ends,
    sender: Sender,
    receiver: Receiver,
    bell: PeerBell,
    queue: VecDeque<Waiting>,
    /// Bytes of the ring up to the last message or write that was posted.
    posted: u64,
    body: Option<Body>,
    pub(super) heard: Instant,
    /// The peer has ended, for this reason; what it has sent is still taken.
    pub(super) ended: Option<&'static str>,
    /// The node's connection has ended, for this reason.
    pub(super) closed: Option<Reason>,
}

/// The descriptors that show the end of a peer.
pub(super) struct Ends {
    pub(super) socket: OwnedFd,
    /// Its process, where the kernel tells.
    pub(super) process: Option<OwnedFd>,
}

fn padded(length: usize) -> usize {
    length.next_multiple_of(LINE)
}

impl Link {
    pub(super) fn new(id: Id, ends: Ends, sender: Sender, receiver: Receiver, bell: PeerBell) -> Link {
        Link {
            id,
            connection: None,
            ends,
            sender,
            receiver,
            bell,
            queue: VecDeque::new(),
            posted: 0,
            body: None,
            heard: Instant::now(),
            ended: None,
            closed: None,
        }
    }

    /// Posts a message or a write. Returns the position in the ring at which it ends.
    pub(super) fn post(&mut self, what: Outgoing, operation: Option<Operation>) -> u64 {
        let length = match &what {
            Outgoing::Message(bytes) => padded(HEAD + bytes.len()),
            Outgoing::Write { range, .. } => LINE + padded(range.len()),
        };
        self.posted += length as u64;
        self.queue.push_back(Waiting { what, operation, left: None });
        self.posted
    }

    /// Does anything wait for room?
    pub(super) fn is_crowded(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Has the peer taken everything up to a position?
    pub(super) fn is_taken(&mut self, position: u64) -> Result<bool, Nonsense> {
        self.sender.is_taken(&self.receiver, position)
    }

    /// Has the peer taken everything?
    pub(super) fn is_all_taken(&mut self) -> Result<bool, Nonsense> {
        self.is_taken(self.posted)
    }

    /// Is there anything to take, or room for what waits?
    pub(super) fn is_ready(&mut self, wants_room: bool) -> Result<bool, Nonsense> {
        if self.receiver.available()? > 0 {
            return Ok(true);
        }
        Ok(match self.queue.front() {
            Some(first) => {
                let needed = first.needs();
                self.sender.room(&self.receiver, needed)? >= needed
            }
            None => wants_room && self.is_all_taken()?,
        })
    }

    /// Sends what there is room for. `done` gets the operations that have left entirely. True if anything moved.
    pub(super) fn send(&mut self, node: &Node, done: &mut VecDeque<Operation>) -> Result<bool, LinkError> {
        let mut moved = 0;
        while let Some(first) = self.queue.front_mut() {
            let needed = first.needs();
            let room = self.sender.room(&self.receiver, needed)?;
            if room < needed || moved > TURN {
                break;
            }
            let before = self.sender.position();
            let ends = match &first.what {
                Outgoing::Message(bytes) => {
                    self.sender.write_two(&Head::Message { length: bytes.len() as u64 }.encode(), bytes);
                    true
                }
                Outgoing::Write { region, range, remote, landing } => {
                    let sent = match first.left {
                        Some(sent) => sent,
                        None => {
                            let length = range.len() as u64;
                            self.sender.write(&Head::Write { landing: *landing, key: remote.key, length }.encode());
                            0
                        }
                    };
                    let room = room - (self.sender.position() - before) as usize;
                    let piece = (range.len() - sent).min(PIECE).min(room);
                    let start = range.start + sent;
                    self.sender.write(&node.memory(*region)?[start..start + piece]);
                    first.left = Some(sent + piece);
                    sent + piece == range.len()
                }
            };
            moved += (self.sender.position() - before) as usize;
            self.sender.publish();
            self.bell.ring();
            if ends {
                done.extend(self.queue.pop_front().and_then(|first| first.operation));
            }
        }
        Ok(moved > 0)
    }

    /// Takes what has come: up to the end of a message or write, or a part of it. True if anything moved.
    pub(super) fn receive(
        &mut self,
        node: &mut Node,
        spare: &mut Vec<u8>,
    ) -> Result<(bool, Option<Arrived>), LinkError> {
        let Some(connection) = self.connection else { return Ok((false, None)) };
        let mut moved = 0;
        loop {
            let here = self.receiver.available()?;
            if here == 0 || moved > TURN {
                return Ok((moved > 0, None));
            }
            let Some(body) = &mut self.body else {
                let mut head = [0; HEAD];
                self.receiver.read(0, &mut head);
                match Head::decode(&head).ok_or(Nonsense("it breaks the protocol of shared memory"))? {
                    Head::Message { length } => {
                        let length = usize::try_from(length).ok().filter(|length| *length <= MESSAGE_MAX);
                        let length = length.filter(|length| padded(HEAD + length) <= here);
                        let length = length.ok_or(Nonsense("it sends a message that is too long"))?;
                        let mut bytes = std::mem::take(spare);
                        bytes.resize(length, 0);
                        self.receiver.read(HEAD, &mut bytes);
                        self.receiver.take(HEAD + length, &self.sender);
                        self.bell.ring_for_room();
                        return Ok((true, Some(Arrived::Message(bytes))));
                    }
                    Head::Write { landing, key, length } => {
                        self.receiver.take(HEAD, &self.sender);
                        self.body = Some(Body { landing, key, length, at: 0 });
                        moved += LINE;
                    }
                }
                continue;
            };
            let piece = (body.length - body.at).min(here.min(PIECE) as u64) as usize;
            let into = node.exposed(connection, body.key, body.at, piece);
            self.receiver.read(0, into.ok_or(Nonsense("it writes where nothing is open to it"))?);
            body.at += piece as u64;
            moved += padded(piece);
            let ends = body.at == body.length;
            let arrived = Arrived::Written { landing: body.landing, bytes: body.length };
            self.receiver.take(piece, &self.sender);
            self.bell.ring_for_room();
            if ends {
                self.body = None;
                return Ok((true, Some(arrived)));
            }
        }
    }
}

impl Waiting {
    /// The room that it needs to go on.
    fn needs(&self) -> usize {
        match (&self.what, self.left) {
            (Outgoing::Message(bytes), _) => padded(HEAD + bytes.len()),
            (Outgoing::Write { range, .. }, left) => {
                let head = if left.is_none() { LINE } else { 0 };
                head + padded((range.len() - left.unwrap_or(0)).min(PIECE / 4))
            }
        }
    }
}

/// A fault of the peer, or of this node.
pub(super) enum LinkError {
    Nonsense(Nonsense),
    Node(Error),
}

impl From<Nonsense> for LinkError {
    fn from(nonsense: Nonsense) -> LinkError {
        LinkError::Nonsense(nonsense)
    }
}

impl From<Error> for LinkError {
    fn from(error: Error) -> LinkError {
        LinkError::Node(error)
    }
}

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

/// A message or a write that leaves by a link.
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

/// A message or a write that has come by a link.
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
    /// The peer's socket has ended, at this time.
    pub(super) left: Option<Instant>,
    /// The peer has ended, for this reason; what it has sent is still taken.
    pub(super) ended: Option<&'static str>,
    /// The engine was told of its end.
    pub(super) is_over: bool,
    /// The node's connection has ended, for this reason.
    pub(super) closed: Option<Reason>,
}

/// The descriptors that show the end of a peer.
pub(super) struct Ends {
    pub(super) socket: OwnedFd,
    /// Its process, where the kernel tells.
    pub(super) process: Option<OwnedFd>,
}

const NOT_OPEN: Nonsense = Nonsense("it writes where nothing is open to it");

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
            left: None,
            ended: None,
            is_over: false,
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
            // The last bytes were taken since the engine asked for them.
            None => wants_room && self.sender.taken() < self.posted && self.is_all_taken()?,
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
                        moved += LINE;
                        if length == 0 {
                            node.exposed(connection, key, 0, 0).ok_or(NOT_OPEN)?;
                            self.bell.ring_for_room();
                            return Ok((true, Some(Arrived::Written { landing, bytes: 0 })));
                        }
                        self.body = Some(Body { landing, key, length, at: 0 });
                    }
                }
                continue;
            };
            let piece = (body.length - body.at).min(here.min(PIECE) as u64) as usize;
            let into = node.exposed(connection, body.key, body.at, piece);
            self.receiver.read(0, into.ok_or(NOT_OPEN)?);
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

#[cfg(test)]
mod tests {
    use super::super::bell::{Bell, PeerBell};
    use super::super::ring;
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::AsFd;
    use std::time::Duration;
    use strandway_udp::{Completion, Config};

    fn node() -> Node {
        let planes = vec!["[::1]:0".parse().expect("an address")];
        Node::bind(Config { planes, ..Config::new(&[7; 32]).expect("long enough") }).expect("a node")
    }

    /// A node with a connection.
    fn connected() -> (Node, Connection, Node) {
        let (mut one, mut two) = (node(), node());
        let addresses = two.addresses().expect("bound");
        let addresses: Vec<_> = addresses.into_iter().map(strandway_udp::address::kept).collect();
        one.connect(&addresses).expect("calls");
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            assert!(Instant::now() < until, "they connect");
            if let Some(Completion::Connected { connection }) = one.wait(Duration::from_millis(1)).expect("sockets") {
                return (one, connection, two);
            }
            let _ = two.wait(Duration::from_millis(1));
        }
    }

    /// The parts of a peer for its end of a link.
    struct Made {
        file: OwnedFd,
        sender: Sender,
        bell: Bell,
    }

    fn made() -> Made {
        let (file, sender) = ring::create(ring::RING_MIN).expect("memory");
        Made { file, sender, bell: Bell::new().expect("memory") }
    }

    fn link(ours: Sender, theirs: &Made, connection: Connection) -> Link {
        let event = theirs.bell.event.as_fd().try_clone_to_owned().expect("a descriptor");
        let bell = PeerBell::open(&theirs.bell.file, event).expect("a bell");
        let socket = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).expect("a descriptor");
        let ends = Ends { socket, process: None };
        let receiver = ring::open(&theirs.file).expect("a ring");
        let mut link = Link::new([0; 16], ends, ours, receiver, bell);
        link.connection = Some(connection);
        link
    }

    /// Takes everything that comes.
    fn drain(link: &mut Link, node: &mut Node) -> Result<Vec<Arrived>, &'static str> {
        let mut all = Vec::new();
        loop {
            match link.receive(node, &mut Vec::new()) {
                Ok((_, Some(arrived))) => all.push(arrived),
                Ok((true, None)) => {}
                Ok((false, None)) => return Ok(all),
                Err(LinkError::Nonsense(nonsense)) => return Err(nonsense.0),
                Err(LinkError::Node(error)) => panic!("a defect of ours: {error}"),
            }
        }
    }

    #[test]
    fn messages_and_writes_longer_than_the_ring_arrive_in_order() {
        let (mut node, connection, _other) = connected();
        let (one, two) = (made(), made());
        let (from_one, from_two) = (one.sender, two.sender);
        let one = Made { sender: ring::create(ring::RING_MIN).expect("memory").1, ..one };
        let two = Made { sender: ring::create(ring::RING_MIN).expect("memory").1, ..two };
        let (mut sends, mut takes) = (link(from_one, &two, connection), link(from_two, &one, connection));
        let length = 300_007;
        let target = node.register(vec![0; length + 20]);
        let remote = node.expose(connection, target, 10..length + 10).expect("a key");
        let source = node.register((0..length).map(|i| (i % 251) as u8).collect());
        sends.post(Outgoing::Message(b"before".to_vec()), None);
        sends.post(Outgoing::Write { region: source, range: 0..length, remote, landing: 5 }, Some(Operation(9)));
        sends.post(Outgoing::Message(vec![3; MESSAGE_MAX]), None);
        // A receive of nothing, beyond the credit of short messages.
        let nothing = node.expose(connection, target, 10..10).expect("a key");
        let end = sends.post(Outgoing::Write { region: source, range: 0..0, remote: nothing, landing: 6 }, None);
        let (mut done, mut arrived) = (VecDeque::new(), Vec::new());
        while sends.is_crowded() {
            assert!(matches!(sends.send(&node, &mut done), Ok(true)));
            arrived.extend(drain(&mut takes, &mut node).expect("sense"));
        }
        arrived.extend(drain(&mut takes, &mut node).expect("sense"));
        let right = [
            Arrived::Message(b"before".to_vec()),
            Arrived::Written { landing: 5, bytes: length as u64 },
            Arrived::Message(vec![3; MESSAGE_MAX]),
            Arrived::Written { landing: 6, bytes: 0 },
        ];
        assert!(arrived == right && done == [Operation(9)]);
        assert_eq!((sends.is_taken(end), sends.is_all_taken()), (Ok(true), Ok(true)));
        let memory = node.memory(target).expect("there");
        assert!(memory[10..length + 10] == *node.memory(source).expect("there"));
        assert!(memory[..10].iter().chain(&memory[length + 10..]).all(|byte| *byte == 0), "nothing beside it");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_peer_that_scribbles_writes_nowhere_else_and_ends_only_its_link(
            lines in prop::collection::vec((0u32..4, any::<u32>(), 0u64..3, any::<u64>(), 0u64..400), 1..40),
            noise in prop::collection::vec(any::<u8>(), 0..3_000),
            lie in prop::option::of((any::<u64>(), any::<u64>())),
        ) {
            let (mut node, connection, _other) = connected();
            let target = node.register(vec![0; 300]);
            let remote = node.expose(connection, target, 100..200).expect("a key");
            let (ours, mut theirs) = (made(), made());
            let mut link = link(ours.sender, &theirs, connection);
            for (kind, landing, key, any, length) in lines {
                // Heads that are nearly right, some of them with a valid key.
                let mut head = [0; HEAD];
                head[..4].copy_from_slice(&kind.to_le_bytes());
                head[4..8].copy_from_slice(&(if kind == 2 { landing } else { 0 }).to_le_bytes());
                head[8..16].copy_from_slice(&(if key == 2 { any } else { length }).to_le_bytes());
                let key = match (kind, key) { (2, 0) => remote.key, (2, _) => any, _ => 0 };
                head[16..24].copy_from_slice(&key.to_le_bytes());
                theirs.sender.write(&head);
                theirs.sender.write(&noise[..noise.len().min(length as usize)]);
                theirs.sender.publish();
                if theirs.sender.position() > ring::RING_MIN as u64 / 2 {
                    break;
                }
            }
            if let Some((sent, taken)) = lie {
                theirs.sender.lie(sent, taken);
            }
            let source = node.register(vec![1; 100]);
            link.post(Outgoing::Write { region: source, range: 0..100, remote, landing: 1 }, None);
            let _ = link.send(&node, &mut VecDeque::new());
            let _ = drain(&mut link, &mut node);
            let _ = (link.is_ready(true), link.is_all_taken());
            let memory = node.memory(target).expect("there");
            prop_assert!(memory[..100].iter().chain(&memory[200..]).all(|byte| *byte == 0), "nothing beside it");
        }
    }
}

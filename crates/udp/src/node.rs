//! The node: sockets, memory and connections, driven by whoever calls [`Node::poll`] or [`Node::wait`].

use crate::clock::{Clock, duration, span};
use crate::config::{Config, Waiting};
use crate::error::{Error, Reason};
use crate::frame::{self, COOKIE, Descriptor, Frame, NOISE_HELLO, NOISE_WELCOME};
use crate::handshake::{Answer, COOKIE_SECONDS, Caller, Cookies, Terms};
use crate::memory::{Memory, Region, RemoteRegion};
use crate::secure::random;
use crate::session::{Opening, Session, SessionCounters, Surroundings};
use crate::socket::{Inbox, Plane, PlaneCounters};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, SocketAddrV6};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use strandway_proto::{Environment, Profile, Span, Time};

/// A connection of a node. It stays a valid name for nothing once the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    index: u32,
    generation: u32,
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
    /// A connection has ended. Its unfinished operations, of which there may or may not be anything at the peer, get no
    /// completion of their own; their memory is free again.
    Closed {
        /// This one.
        connection: Connection,
        /// Why.
        reason: Reason,
    },
}

/// What a node counts of datagrams that belong to no connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Datagrams that are none of this layout.
    pub malformed: u64,
    /// Datagrams for connections that do not exist.
    pub strays: u64,
    /// Hellos whose sender does not know the key.
    pub wrong_key: u64,
    /// Cookies given out.
    pub retries: u64,
    /// Handshakes begun by callers that know the key.
    pub handshakes: u64,
}

/// A connection that we have begun.
struct Calling {
    id: u64,
    caller: Caller,
    cookie: [u8; COOKIE],
    peers: Vec<SocketAddr>,
    began: Time,
    again: Time,
    tries: usize,
    hint: Option<Reason>,
}

enum State {
    Calling(Box<Calling>),
    Open(Box<Session>),
}

struct Slot {
    generation: u32,
    state: Option<State>,
    /// By which we are addressed.
    id: u64,
}

/// A hello that was answered: the same answer again, should the welcome be lost, and never a second connection.
struct Answered {
    at: Time,
    welcome: [u8; NOISE_WELCOME],
}

/// First wait for an answer to a hello; doubles up to 16 times that. Ours.
const HELLO_AGAIN: Span = Span::from_ms(50);

/// Receiving calls per plane and turn at the most, so that sending has its turn; ours.
const CALLS_PER_TURN: usize = 2;

/// A host on the wire: one socket per plane, registered memory, connections to peers.
///
/// A node lives on the thread that calls it: there is no other. Packets move in [`Node::poll`] and [`Node::wait`] and
/// nowhere else, so call one of them at least as often as peers expect answers (they give a node up after their
/// `peer_timeout`). For more cores run more nodes. A node is `Send`: a thread of its own takes one closure.
pub struct Node {
    config: Config,
    profile: Arc<Profile>,
    environment: Environment,
    terms: Terms,
    clock: Clock,
    cookies: Cookies,
    planes: Vec<Plane>,
    inbox: Option<Inbox>,
    memory: Memory,
    slots: Vec<Slot>,
    open: usize,
    ids: HashMap<u64, u32>,
    answered: HashMap<[u8; NOISE_HELLO], Answered>,
    completions: VecDeque<Completion>,
    operations: u64,
    counters: NodeCounters,
    /// The slot that is first in the next turn.
    turn: usize,
    last_turn: Time,
    /// How long to spin at present before sleeping.
    patience: Span,
}

impl Node {
    /// Opens a socket per plane.
    ///
    /// # Errors
    /// If the configuration or an address does not work; the message says what would.
    pub fn bind(config: Config) -> Result<Node, Error> {
        config.check()?;
        let planes: Vec<Plane> = config
            .planes
            .iter()
            .map(|&address| Plane::open(address, config.socket_buffer))
            .collect::<Result<_, _>>()?;
        let buffer = planes.iter().map(Plane::buffer).min().unwrap_or(0);
        let profile = config.wire_profile();
        let environment = config.environment(&profile, buffer);
        let terms = Terms::new(&profile, planes.len(), config.encrypt);
        let patience = match config.waiting {
            Waiting::Spin => Span(u64::MAX),
            Waiting::Sleep => Span::ZERO,
            Waiting::Adaptive(longest) => span(longest),
        };
        let clock = Clock::new();
        Ok(Node {
            profile: Arc::new(profile),
            environment,
            terms,
            cookies: Cookies::new()?,
            planes,
            inbox: Some(Inbox::new()),
            memory: Memory::default(),
            slots: Vec::new(),
            open: 0,
            ids: HashMap::new(),
            answered: HashMap::new(),
            completions: VecDeque::new(),
            operations: 0,
            counters: NodeCounters::default(),
            turn: 0,
            last_turn: clock.now(),
            patience,
            clock,
            config,
        })
    }

    /// Our address on each plane, ports filled in: what peers give to [`Node::connect`].
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        self.planes.iter().map(Plane::address).collect()
    }

    /// Takes a buffer into the node; only we can touch it so far.
    pub fn register(&mut self, buffer: Vec<u8>) -> Region {
        self.memory.register(buffer)
    }

    /// Gives a buffer back. Its keys are void.
    ///
    /// # Errors
    /// If it is not registered, or unfinished operations use it.
    pub fn deregister(&mut self, region: Region) -> Result<Vec<u8>, Error> {
        self.memory.deregister(region)
    }

    /// The bytes of a region. What peers write appears between calls of [`Node::poll`], never during.
    ///
    /// # Errors
    /// If it is not registered.
    pub fn memory(&self, region: Region) -> Result<&[u8], Error> {
        self.memory.bytes(region)
    }

    /// The same, to change them. What unfinished sends and writes read may go out either way.
    ///
    /// # Errors
    /// If it is not registered.
    pub fn memory_mut(&mut self, region: Region) -> Result<&mut [u8], Error> {
        self.memory.bytes_mut(region)
    }

    /// Allows the peer of one connection to write into a range of a region, until [`Node::revoke`], [`Node::deregister`] or
    /// the end of the connection.
    ///
    /// # Errors
    /// If the range is not within the region, or too many keys are given away.
    pub fn expose(
        &mut self,
        connection: Connection,
        region: Region,
        range: Range<usize>,
    ) -> Result<RemoteRegion, Error> {
        self.session(connection)?;
        self.memory.expose(region, &range, connection)
    }

    /// Takes a key back; false if it was void. A write under way that still names it ends its connection.
    pub fn revoke(&mut self, remote: RemoteRegion) -> bool {
        self.memory.revoke(remote.key)
    }

    /// Begins a connection; [`Completion::Connected`] or [`Completion::Closed`] follows. `peer`: its address on each plane, in
    /// the order of ours.
    ///
    /// # Errors
    /// If the number of addresses is not that of our planes, or too many connections are open.
    pub fn connect(&mut self, peer: &[SocketAddrV6]) -> Result<Connection, Error> {
        if peer.len() != self.planes.len() {
            let (theirs, ours) = (peer.len(), self.planes.len());
            return Err(Error::Config(format!(
                "{theirs} addresses for {ours} planes: give one for each plane, in order"
            )));
        }
        let id = self.fresh_id()?;
        let caller = Caller::new(&self.config.secret, id, &self.terms)?;
        let now = self.clock.now();
        let calling = Calling {
            id,
            caller,
            cookie: [0; COOKIE],
            peers: peer.iter().map(|&address| address.into()).collect(),
            began: now,
            again: now,
            tries: 0,
            hint: None,
        };
        self.occupy(id, State::Calling(Box::new(calling)))
    }

    /// Ends a connection and tells the peer, once: it may not hear it. No completion follows.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn close(&mut self, connection: Connection) -> Result<(), Error> {
        self.slot(connection)?;
        self.take_down(connection.index as usize, Reason::ByPeer, true);
        self.flush();
        Ok(())
    }

    /// Writes a range of a region of ours into the peer's memory, `at` bytes from the start of what its key opens. With an
    /// immediate the peer is told when it is there ([`Completion::Written`]); without, nobody there is.
    ///
    /// # Errors
    /// If the range or `at` does not fit, the connection is not established, or too many operations are unfinished.
    pub fn write(
        &mut self,
        connection: Connection,
        region: Region,
        range: Range<usize>,
        remote: RemoteRegion,
        at: u64,
        immediate: Option<u32>,
    ) -> Result<Operation, Error> {
        let end = at.saturating_add(range.len() as u64);
        if end > remote.bytes {
            return Err(Error::Range { end, bytes: remote.bytes });
        }
        self.post(connection, region, &range, Descriptor::Write { key: remote.key, start: at, immediate })
    }

    /// Sends a range of a region of ours into the next receive that the peer has posted; waits for that receive, and later
    /// sends and writes of this connection with it.
    ///
    /// # Errors
    /// As for [`Node::write`].
    pub fn send(&mut self, connection: Connection, region: Region, range: Range<usize>) -> Result<Operation, Error> {
        self.post(connection, region, &range, Descriptor::Send { number: 0 })
    }

    /// Makes room for one send of the peer; receives are filled in the order of posting. A send that is longer ends the
    /// connection.
    ///
    /// # Errors
    /// As for [`Node::write`].
    pub fn recv(&mut self, connection: Connection, region: Region, range: Range<usize>) -> Result<Operation, Error> {
        let place = self.memory.place(region, &range)?;
        let limit = self.config.operations_max;
        let operation = Operation(self.operations);
        let session = self.session_mut(connection)?;
        if session.receiving() >= limit {
            return Err(Error::Busy { limit });
        }
        session.receive(operation, place);
        self.memory.hold(place);
        self.operations += 1;
        Ok(operation)
    }

    fn post(
        &mut self,
        connection: Connection,
        region: Region,
        range: &Range<usize>,
        descriptor: Descriptor,
    ) -> Result<Operation, Error> {
        let place = self.memory.place(region, range)?;
        let limit = self.config.operations_max;
        let (operation, now) = (Operation(self.operations), self.clock.now());
        let session = self.session_mut(connection)?;
        if session.posted() >= limit {
            return Err(Error::Busy { limit });
        }
        let alone = session.posted() == 0;
        session.post(now, operation, place, descriptor);
        self.memory.hold(place);
        self.operations += 1;
        if alone {
            // Nobody waits before it, so it leaves now; what is posted while it is under way gathers for fuller batches.
            self.let_one_work(connection.index as usize, now, false);
            self.flush();
        }
        Ok(operation)
    }

    /// The oldest completion, if there is one; if not, moves packets once and looks again. Never waits.
    ///
    /// Packets move only when no completion is left, so that a node whose application does not take them holds back its
    /// peers rather than memory.
    pub fn poll(&mut self) -> Option<Completion> {
        if self.completions.is_empty() {
            self.work();
        }
        self.completions.pop_front()
    }

    /// The next completion; `None` if there is none within `timeout`. How it waits is configured ([`Waiting`]).
    ///
    /// # Errors
    /// If the system cannot wait for sockets.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Completion>, Error> {
        if let Some(completion) = self.completions.pop_front() {
            return Ok(Some(completion));
        }
        let began = self.clock.now();
        let until = began + span(timeout);
        let mut idle_since = began;
        loop {
            let moved = self.work();
            if let Some(completion) = self.completions.pop_front() {
                if let Waiting::Adaptive(longest) = self.config.waiting
                    && idle_since != began
                {
                    // Spinning was worth while.
                    self.patience = Span((self.patience.0 * 2).min(span(longest).0));
                }
                return Ok(Some(completion));
            }
            let now = self.clock.now();
            if now >= until {
                return Ok(None);
            }
            if moved {
                idle_since = now;
                continue;
            }
            if now.since(idle_since) < self.patience {
                if let Waiting::Adaptive(_) = self.config.waiting {
                    std::thread::yield_now();
                }
                continue;
            }
            if let Waiting::Adaptive(longest) = self.config.waiting {
                self.patience = Span((self.patience.0 / 2).max(span(longest).0 / 16));
            }
            self.sleep(now, until)?;
            idle_since = self.clock.now();
        }
    }

    /// Sleeps until a socket has something or a deadline has come.
    fn sleep(&mut self, now: Time, until: Time) -> Result<(), Error> {
        let mut at = until;
        let mut sends = false;
        for slot in &self.slots {
            match &slot.state {
                Some(State::Open(session)) => {
                    at = at.min(session.deadline());
                    sends |= session.wants_transmit();
                }
                Some(State::Calling(calling)) => at = at.min(calling.again),
                None => {}
            }
        }
        if at <= now {
            return Ok(());
        }
        let nanoseconds = at.since(now).0.div_ceil(1000);
        let timeout =
            Timespec { tv_sec: (nanoseconds / 1_000_000_000) as i64, tv_nsec: (nanoseconds % 1_000_000_000) as i64 };
        let mut sockets: Vec<PollFd<'_>> = self
            .planes
            .iter()
            .map(|plane| {
                let full = plane.is_blocked() || (sends && !plane.is_free());
                PollFd::new(plane, if full { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN })
            })
            .collect();
        let outcome = rustix::event::poll(&mut sockets, Some(&timeout));
        // Asleep, but attentive: the silence of a peer counts.
        self.last_turn = self.clock.now();
        match outcome {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::Wait(error.into())),
        }
    }

    /// Receives, lets connections work, sends; true if anything moved.
    fn work(&mut self) -> bool {
        let now = self.clock.now();
        let away = now.since(self.last_turn) > span(self.config.plane_timeout / 2);
        self.last_turn = now;
        let mut moved = false;
        let mut inbox = self.inbox.take().unwrap_or_else(Inbox::new);
        for plane in 0..self.planes.len() {
            for _ in 0..CALLS_PER_TURN {
                let count = self.planes[plane].receive(&mut inbox);
                inbox.each(count, |from, marked, datagram| self.handle(now, plane, from, marked, datagram));
                moved |= count > 0;
                if count < quinn_udp::BATCH_SIZE {
                    break;
                }
            }
        }
        self.inbox = Some(inbox);
        moved |= self.let_connections_work(away);
        self.flush();
        moved
    }

    fn let_connections_work(&mut self, away: bool) -> bool {
        let now = self.clock.now();
        let mut moved = false;
        let count = self.slots.len();
        for i in 0..count {
            let index = (self.turn + i) % count;
            moved |= self.let_one_work(index, now, away);
        }
        self.turn = (self.turn + 1) % count.max(1);
        if self.planes.iter().any(|plane| plane.too_large) {
            self.end_all(Reason::PayloadTooLarge);
        }
        moved
    }

    /// Timers and packets of the connection in a slot; true if it sent anything.
    fn let_one_work(&mut self, index: usize, now: Time, away: bool) -> bool {
        match &mut self.slots[index].state {
            Some(State::Open(session)) => {
                let mut around = Surroundings {
                    now,
                    planes: &mut self.planes,
                    memory: &mut self.memory,
                    completions: &mut self.completions,
                };
                let unconfirmed = !session.confirmed && session.age(now) > span(self.config.handshake_timeout);
                match session.work(&mut around, away) {
                    Err(reason) => self.end(index, reason, true),
                    Ok(_) if unconfirmed => self.end(index, Reason::NoAnswer, false),
                    Ok(sent) => return sent,
                }
            }
            Some(State::Calling(_)) => self.call(index, now),
            None => {}
        }
        false
    }

    fn end_all(&mut self, reason: Reason) {
        for plane in &mut self.planes {
            plane.too_large = false;
        }
        for index in 0..self.slots.len() {
            if self.slots[index].state.is_some() {
                self.end(index, reason, true);
            }
        }
    }

    fn flush(&mut self) {
        for plane in &mut self.planes {
            plane.flush();
        }
    }

    /// Says hello again, or gives up.
    fn call(&mut self, index: usize, now: Time) {
        let Some(State::Calling(calling)) = &mut self.slots[index].state else { return };
        if now.since(calling.began) > span(self.config.handshake_timeout) {
            let reason = calling.hint.unwrap_or(Reason::NoAnswer);
            return self.end(index, reason, true);
        }
        if calling.again > now {
            return;
        }
        // Another plane each time: one of them may be dead.
        let plane = calling.tries % self.planes.len();
        calling.tries += 1;
        let rounds = (calling.tries / self.planes.len()).min(4);
        calling.again = now + Span(HELLO_AGAIN.0 << rounds);
        let length = self.config.datagram();
        let hello = frame::hello(plane as u8, calling.id, &calling.cookie, &calling.caller.hello, length);
        self.planes[plane].push(calling.peers[plane], false, hello.len(), |out| out.extend_from_slice(&hello));
    }

    /// A datagram arrived.
    fn handle(&mut self, now: Time, plane: usize, from: SocketAddr, marked: bool, datagram: &mut [u8]) {
        let length = datagram.len();
        let sealed = match frame::decode(datagram) {
            Ok(Frame::Sealed(sealed)) => sealed,
            Ok(Frame::Hello { connection, cookie, noise, .. }) => {
                let (cookie, noise) = (*cookie, *noise);
                return self.handle_hello(now, plane, from, connection, &cookie, &noise, length);
            }
            Ok(Frame::Retry { connection, cookie }) => {
                if let Some((_, calling)) = self.calling(connection)
                    && calling.peers[plane] == from
                {
                    calling.cookie = *cookie;
                    calling.again = now;
                    calling.tries -= calling.tries.min(1);
                }
                return;
            }
            Ok(Frame::Welcome { connection, noise }) => {
                let noise = *noise;
                return self.handle_welcome(now, connection, &noise);
            }
            Ok(Frame::Refusal { connection, reason }) => {
                if let Some((_, calling)) = self.calling(connection)
                    && calling.peers[plane] == from
                {
                    calling.hint = Some(if reason == 2 { Reason::WrongVersion } else { Reason::WrongKey });
                }
                return;
            }
            Err(error) => {
                self.counters.malformed += 1;
                if let frame::FrameError::Version(_) = error
                    && length >= frame::HELLO
                    && let Some(id) = datagram.get(4..).and_then(|rest| rest.first_chunk())
                {
                    // Shorter than what caused it, and only for what is as long as a hello.
                    self.reply(plane, from, &frame::refusal(plane as u8, u64::from_be_bytes(*id), 2));
                }
                return;
            }
        };
        let Some(&index) = self.ids.get(&sealed.connection) else {
            self.counters.strays += 1;
            return;
        };
        let Some(State::Open(session)) = &mut self.slots[index as usize].state else {
            self.counters.strays += 1;
            return;
        };
        let mut around = Surroundings {
            now,
            planes: &mut self.planes,
            memory: &mut self.memory,
            completions: &mut self.completions,
        };
        if let Err(reason) = session.handle(&mut around, plane, from, marked, &sealed, datagram) {
            let tell = matches!(reason, Reason::RemoteAccess | Reason::TooLong | Reason::Violation);
            self.end(index as usize, reason, tell);
        }
    }

    fn reply(&mut self, plane: usize, to: SocketAddr, datagram: &[u8]) {
        // A full socket forgets it: nothing is kept for strangers.
        if self.planes[plane].is_free() {
            self.planes[plane].push(to, false, datagram.len(), |out| out.extend_from_slice(datagram));
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a datagram's parts and where it came from")]
    fn handle_hello(
        &mut self,
        now: Time,
        plane: usize,
        from: SocketAddr,
        id: u64,
        cookie: &[u8; COOKIE],
        noise: &[u8; NOISE_HELLO],
        length: usize,
    ) {
        if !self.config.accept || length < frame::HELLO {
            return;
        }
        if !self.cookies.holds(now, from, id, noise, cookie) {
            self.counters.retries += 1;
            let cookie = self.cookies.make(now, from, id, noise);
            return self.reply(plane, from, &frame::retry(plane as u8, id, &cookie));
        }
        if let Some(answered) = self.answered.get(noise) {
            let welcome = frame::welcome(plane as u8, id, &answered.welcome);
            return self.reply(plane, from, &welcome);
        }
        let Some(answer) = Answer::new(&self.config.secret, id, noise, &self.terms) else {
            self.counters.wrong_key += 1;
            return self.reply(plane, from, &frame::refusal(plane as u8, id, 1));
        };
        self.counters.handshakes += 1;
        // Twice a cookie's life, then no cookie can bring that hello back.
        let old = Span::from_ms(2_000 * COOKIE_SECONDS);
        self.answered.retain(|_, answered| now.since(answered.at) < old);
        let full = self.open >= self.config.connections_max || self.answered.len() >= 4 * self.config.connections_max;
        let verdict = answer.differ.or(full.then_some(Reason::PeerFull));
        let Ok(ours) = self.fresh_id() else { return };
        let Some((welcome, secrets)) = answer.finish(verdict, ours) else { return };
        if verdict.is_none() {
            let mut peers = vec![None; self.planes.len()];
            peers[plane] = Some(from);
            let Ok(seed) = random() else { return };
            let seed = u64::from_be_bytes(seed);
            let handle = self.next_handle();
            let opening = Opening {
                handle,
                remote: id,
                secrets: &secrets,
                calls: false,
                peers,
                profile: self.profile.clone(),
                environment: self.environment,
                seed,
            };
            let session = Session::new(now, &self.config, opening);
            if self.occupy(ours, State::Open(Box::new(session))).is_err() {
                return;
            }
        }
        if self.answered.len() < 4 * self.config.connections_max {
            self.answered.insert(*noise, Answered { at: now, welcome });
        }
        self.reply(plane, from, &frame::welcome(plane as u8, id, &welcome));
    }

    fn handle_welcome(&mut self, now: Time, id: u64, noise: &[u8; NOISE_WELCOME]) {
        let Some((index, calling)) = self.calling(id) else { return };
        let Some(outcome) = calling.caller.finish(noise) else {
            self.counters.malformed += 1;
            return;
        };
        let peers = calling.peers.iter().map(|&address| Some(address)).collect();
        match outcome {
            Err(reason) => self.end(index, reason, true),
            Ok((remote, secrets)) => {
                let Ok(seed) = random() else { return };
                let handle = Connection { index: index as u32, generation: self.slots[index].generation };
                let opening = Opening {
                    handle,
                    remote,
                    secrets: &secrets,
                    calls: true,
                    peers,
                    profile: self.profile.clone(),
                    environment: self.environment,
                    seed: u64::from_be_bytes(seed),
                };
                let session = Session::new(now, &self.config, opening);
                self.slots[index].state = Some(State::Open(Box::new(session)));
                self.completions.push_back(Completion::Connected { connection: handle });
            }
        }
    }

    fn calling(&mut self, id: u64) -> Option<(usize, &mut Calling)> {
        let index = *self.ids.get(&id)? as usize;
        match &mut self.slots[index].state {
            Some(State::Calling(calling)) => Some((index, calling)),
            _ => None,
        }
    }

    /// A number that nobody can guess and that we do not use yet.
    fn fresh_id(&self) -> Result<u64, Error> {
        loop {
            let id = u64::from_be_bytes(random()?);
            if !self.ids.contains_key(&id) {
                return Ok(id);
            }
        }
    }

    /// The handle that [`Node::occupy`] will give next.
    fn next_handle(&self) -> Connection {
        match self.slots.iter().position(|slot| slot.state.is_none()) {
            Some(index) => Connection { index: index as u32, generation: self.slots[index].generation },
            None => Connection { index: self.slots.len() as u32, generation: 0 },
        }
    }

    fn occupy(&mut self, id: u64, state: State) -> Result<Connection, Error> {
        let limit = self.config.connections_max;
        if self.open >= limit {
            return Err(Error::TooManyConnections { limit });
        }
        let handle = self.next_handle();
        if handle.index as usize == self.slots.len() {
            self.slots.push(Slot { generation: 0, state: None, id });
        }
        let slot = &mut self.slots[handle.index as usize];
        (slot.state, slot.id) = (Some(state), id);
        self.ids.insert(id, handle.index);
        self.open += 1;
        Ok(handle)
    }

    /// Ends the connection in a slot and tells the application; `tell`: the peer as well.
    fn end(&mut self, index: usize, reason: Reason, tell: bool) {
        if let Some(connection) = self.take_down(index, reason, tell) {
            self.completions.push_back(Completion::Closed { connection, reason });
        }
    }

    /// Takes the connection out of a slot: its handle, if the application knows of it.
    fn take_down(&mut self, index: usize, reason: Reason, tell: bool) -> Option<Connection> {
        let slot = &mut self.slots[index];
        let connection = Connection { index: index as u32, generation: slot.generation };
        let state = slot.state.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.ids.remove(&slot.id);
        self.open -= 1;
        self.memory.revoke_all(connection);
        let mut known = true;
        if let State::Open(mut session) = state {
            known = session.confirmed;
            if tell {
                let mut around = Surroundings {
                    now: self.clock.now(),
                    planes: &mut self.planes,
                    memory: &mut self.memory,
                    completions: &mut self.completions,
                };
                session.say_goodbye(&mut around, reason);
            }
            session.release(&mut self.memory);
        }
        known.then_some(connection)
    }

    fn slot(&self, connection: Connection) -> Result<&State, Error> {
        let slot = self.slots.get(connection.index as usize).filter(|slot| slot.generation == connection.generation);
        slot.and_then(|slot| slot.state.as_ref()).ok_or(Error::NoConnection)
    }

    fn session(&self, connection: Connection) -> Result<&Session, Error> {
        match self.slot(connection)? {
            State::Open(session) => Ok(session),
            State::Calling(_) => Err(Error::NotConnected),
        }
    }

    fn session_mut(&mut self, connection: Connection) -> Result<&mut Session, Error> {
        self.session(connection)?;
        match &mut self.slots[connection.index as usize].state {
            Some(State::Open(session)) => Ok(session),
            _ => Err(Error::NotConnected),
        }
    }

    /// What a connection has counted so far.
    ///
    /// # Errors
    /// If there is no such connection, or it is not established.
    pub fn connection_counters(&self, connection: Connection) -> Result<SessionCounters, Error> {
        self.session(connection).map(Session::counters)
    }

    /// The round trips that pings of a connection measured since the last call, at most 1,024 of them; the time that the
    /// other side takes to wake up included. Each plane is pinged four times per `plane_timeout` while anything is under way.
    ///
    /// # Errors
    /// As for [`Node::connection_counters`].
    pub fn take_round_trips(&mut self, connection: Connection) -> Result<Vec<Span>, Error> {
        self.session_mut(connection).map(Session::take_rtts)
    }

    /// What each plane has counted so far.
    pub fn plane_counters(&self) -> Vec<PlaneCounters> {
        self.planes.iter().map(|plane| plane.counters).collect()
    }

    /// What belongs to no connection.
    pub const fn counters(&self) -> NodeCounters {
        self.counters
    }

    /// Datagrams per sending call at the most; 1 where the kernel has no GSO.
    pub fn segments_per_send(&self) -> usize {
        self.planes.iter().map(Plane::segments).min().unwrap_or(1)
    }

    /// The time since the node was bound, on its own clock.
    pub fn uptime(&self) -> Duration {
        duration(self.clock.now().since(Time::ZERO))
    }
}

impl Drop for Node {
    /// Tells all peers, once.
    fn drop(&mut self) {
        for index in 0..self.slots.len() {
            self.take_down(index, Reason::ByPeer, true);
        }
        self.flush();
    }
}

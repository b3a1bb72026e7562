//! How connections begin: hellos and their answers, on both sides.

use super::answers::Answers;
use super::{Completion, Connection, Node, State};
use crate::address::{is_ipv4, shown};
use crate::clock::{earlier, span};
use crate::config::Config;
use crate::error::{Error, Reason};
use crate::frame::{self, COOKIE, NOISE_HELLO, NOISE_WELCOME};
use crate::handshake::{Answer, COOKIE_SECONDS, Caller, Cookies, Secrets, Terms};
use crate::plane::{Class, Destination, Owner};
use crate::secure::random;
use crate::session::{Session, SessionParams};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::Arc;
use strandway_proto::{PathId, Span, Time};

/// The first wait for an answer to a hello; it doubles up to 16 times that. Ours.
const HELLO_AGAIN: Span = Span::from_ms(50);
/// How long a hello is repeated with the same cookie: the cookie's life, less a second for the way.
const ATTEMPT: Span = Span::from_ms(1_000 * (COOKIE_SECONDS - 1));

/// The node remembers this number of answers to hellos for each of the connections it may have open: ours. More than
/// one, because a connection can end before the cookie of its hello expires.
const ANSWERS_PER_CONNECTION: usize = 4;

/// A connection that we have begun.
pub(super) struct Calling {
    pub(super) id: u64,
    pub(super) peers: Vec<SocketAddrV6>,
    /// The shard that it asks for. All its hellos name the same, since a cookie is valid for one shard.
    shard: u8,
    began: Time,
    again: Time,
    tries: usize,
    /// Per plane, once a cookie has come by it: the time when it came, and the hello that was made with it.
    attempts: Vec<Option<(Time, Caller)>>,
    /// May a retry trigger a hello at once? One may for each hello that a timer caused, so that forged retries at most
    /// double the number of hellos.
    may_retry: bool,
    pub(super) hint: Option<Reason>,
    /// The payload that was found for it.
    pub(super) payload: Option<u32>,
    /// The peer has said that it takes its own payload only.
    pub(super) told: bool,
    /// A cookie that waits for the payload, and its plane.
    pub(super) cookie: Option<(usize, [u8; COOKIE])>,
    /// When to go on with the search for the payload.
    pub(super) look: Time,
}

impl Calling {
    pub(super) fn new(now: Time, id: u64, peers: &[SocketAddrV6], shard: u8) -> Calling {
        Calling {
            id,
            peers: peers.to_vec(),
            shard,
            began: now,
            again: now,
            tries: 0,
            attempts: peers.iter().map(|_| None).collect(),
            may_retry: false,
            hint: None,
            payload: None,
            told: false,
            cookie: None,
            look: now,
        }
    }

    /// The hello with its payload leaves now: the next one is not due before the answer can have come.
    pub(super) fn wait_for_welcome(&mut self, now: Time) {
        self.again = self.again.max(now + HELLO_AGAIN);
    }

    /// The cookie of the hello that left by a plane.
    pub(super) fn used_cookie(&self, plane: usize) -> Option<[u8; COOKIE]> {
        Some(self.attempts.get(plane)?.as_ref()?.1.cookie)
    }

    /// Does it wait for its payload?
    pub(super) const fn waits(&self) -> bool {
        self.cookie.is_some()
    }

    /// The clock was set back.
    pub(super) fn go_back(&mut self, back: Span) {
        (self.began, self.again) = (earlier(self.began, back), earlier(self.again, back));
        self.look = earlier(self.look, back);
        self.attempts.iter_mut().flatten().for_each(|(since, _)| *since = earlier(*since, back));
    }

    /// When to look at it again, if a call may last `longest`.
    pub(super) fn deadline(&self, longest: Span) -> Time {
        let next = if self.waits() { self.look } else { self.again };
        next.min(self.began + longest + Span(1))
    }

    /// Is this the address of the peer that was called?
    pub(super) fn is_peer(&self, plane: usize, from: SocketAddrV6) -> bool {
        self.peers.get(plane) == Some(&from)
    }
}

/// The means of a node to greet and to be greeted.
pub(super) struct Greeting {
    pub(super) terms: Terms,
    pub(super) cookies: Cookies,
    /// Answers to hellos, so that a repeated hello gets the same one.
    pub(super) answered: Answers,
    /// Replies to strangers so far.
    pub(super) replies: u32,
}

impl Greeting {
    pub(super) fn new(config: &Config) -> Result<Greeting, Error> {
        let (profile, planes) = (&config.profile, config.planes.len());
        Ok(Greeting {
            terms: Terms::new(profile, config.payload, planes, config.protection, config.layout),
            cookies: Cookies::new()?,
            answered: Answers::new(ANSWERS_PER_CONNECTION * config.limits.connections),
            replies: 0,
        })
    }
}

/// Connections.
impl Node {
    /// Begins a connection; [`Completion::Connected`] or [`Completion::Closed`] follows. `peer`: its address on each
    /// plane, in the order of ours. If several nodes share these addresses ([`Node::bind_shards`]), successive calls
    /// ask for them in turn.
    ///
    /// # Errors
    /// If the addresses are not those of our planes in number and family, or too many connections are open.
    pub fn connect(&mut self, peer: &[SocketAddrV6]) -> Result<Connection, Error> {
        self.wish = self.wish.wrapping_add(1);
        self.connect_to_shard(peer, self.wish)
    }

    /// Begins a connection as [`Node::connect`] does, and asks for shard `shard` modulo the number of nodes that share
    /// the peer's addresses. A node that shares them with no other ignores the wish.
    ///
    /// # Errors
    /// As for [`Node::connect`].
    pub fn connect_to_shard(&mut self, peer: &[SocketAddrV6], shard: u8) -> Result<Connection, Error> {
        if peer.len() != self.planes.len() {
            let (theirs, ours) = (peer.len(), self.planes.len());
            return Err(Error::Config(format!(
                "{theirs} addresses for {ours} planes: give one for each plane, in order"
            )));
        }
        for (number, (ours, theirs)) in self.config.planes.iter().zip(peer).enumerate() {
            // A plane at `::` serves both families.
            if is_ipv4(*ours.ip()) != is_ipv4(*theirs.ip()) && *ours.ip() != Ipv6Addr::UNSPECIFIED {
                return Err(Error::Config(format!(
                    "plane {number} is at {}, the peer at {}: take addresses of one family, IPv4 or IPv6",
                    shown(*ours),
                    shown(*theirs)
                )));
            }
        }
        let id = self.fresh_id()?;
        let calling = Calling::new(self.clock.now(), id, peer, shard);
        self.occupy(id, State::Calling(Box::new(calling)))
    }

    /// Ends a connection and tells the peer with one datagram, which may be lost. No completion follows.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn close(&mut self, connection: Connection) -> Result<(), Error> {
        self.slot(connection)?;
        self.take_down(connection.index as usize, Reason::ByPeer, true);
        self.flush();
        Ok(())
    }

    /// Says hello again when it is time, or gives up.
    pub(super) fn call(&mut self, index: usize, now: Time) {
        let planes = self.planes.len();
        let Some(State::Calling(calling)) = &mut self.table.slots[index].state else { return };
        if now.since(calling.began) > span(self.config.timeouts.handshake) {
            let reason = calling.hint.unwrap_or(Reason::NoAnswer);
            return self.end(index, reason, true);
        }
        if calling.waits() {
            if calling.look <= now {
                self.find_payload(now, index);
            }
            return;
        }
        if calling.again > now {
            return;
        }
        // Another plane each time, since one of them may be dead.
        let plane = calling.tries % planes;
        calling.tries += 1;
        let rounds = (calling.tries / planes).min(4);
        calling.again = now + Span(HELLO_AGAIN.0 << rounds);
        calling.may_retry = true;
        calling.attempts[plane].take_if(|(since, _)| now.since(*since) > ATTEMPT);
        self.send_hello(index, plane, rounds);
    }

    /// Says hello on a plane, with its cookie if there is one.
    fn send_hello(&mut self, index: usize, plane: usize, rounds: usize) {
        let Some(State::Calling(calling)) = &self.table.slots[index].state else { return };
        let nothing = ([0; COOKIE], [0; NOISE_HELLO]);
        let (cookie, noise) = calling.attempts[plane].as_ref().map_or(nothing, |(_, one)| (one.cookie, one.hello));
        let hello =
            frame::hello(plane as u8, calling.id, calling.shard, &cookie, &noise, self.hello_bytes(calling.payload));
        let shard = Destination::requested_shard(calling.shard);
        let peer = calling.peers[plane];
        let path = self.config.routes.detour(peer, PathId::new(plane as u8, rounds as u32), &self.config.denied.parts);
        let (to, _) = self.config.routes.resolve(peer, path);
        self.send_opening(plane, (to, shard), Owner::Call(peer), &hello);
    }

    pub(super) fn handle_retry(&mut self, now: Time, plane: usize, from: SocketAddrV6, id: u64, cookie: &[u8; COOKIE]) {
        let Some((index, calling)) = self.calling(id) else { return };
        let known = calling.attempts.get(plane).and_then(Option::as_ref).is_some_and(|(_, one)| one.cookie == *cookie);
        if !calling.is_peer(plane, from) || known || !std::mem::take(&mut calling.may_retry) {
            return;
        }
        if !self.keep_cookie(now, index, plane, cookie) {
            self.answer_retry(now, index, plane, cookie);
        }
    }

    /// Says hello with a cookie that has come by a plane.
    pub(super) fn answer_retry(&mut self, now: Time, index: usize, plane: usize, cookie: &[u8; COOKIE]) {
        let (secret, terms) = (&self.config.secret, self.greeting.terms);
        let Some(State::Calling(calling)) = &mut self.table.slots[index].state else { return };
        let terms = Terms { payload: calling.payload.unwrap_or(terms.payload), ..terms };
        let Ok(caller) = Caller::new(secret, calling.id, cookie, &terms) else { return };
        calling.attempts[plane] = Some((now, caller));
        let rounds = calling.tries;
        self.send_hello(index, plane, rounds);
    }

    pub(super) fn reply(&mut self, plane: usize, to: SocketAddrV6, datagram: &[u8]) {
        // Over another path each time, since one of them may be dead.
        self.greeting.replies = self.greeting.replies.wrapping_add(1);
        let path = PathId::new(plane as u8, self.greeting.replies);
        let path = self.config.routes.detour(to, path, &self.config.denied.parts);
        let (to, _) = self.config.routes.resolve(to, path);
        let shard = u16::from(datagram[frame::OPENING_SHARD]);
        self.send_opening(plane, (to, shard), Owner::Nobody, datagram);
    }

    /// Sends a datagram that belongs to no connection yet. It leaves from the plane's own port, which receives the
    /// answers and which the hello was sent to.
    fn send_opening(&mut self, plane: usize, (to, shard): (SocketAddrV6, u16), owner: Owner, datagram: &[u8]) {
        // If the socket is full, the datagram is dropped: no state is kept for strangers, and callers repeat their
        // hellos.
        if self.planes[plane].has_room() {
            let destination = Destination { to, source: 0, shard, owner, late: false };
            self.planes[plane].push(destination, Class::Control, datagram.len(), |out| out.copy_from_slice(datagram));
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a datagram's parts and where it came from")]
    pub(super) fn handle_hello(
        &mut self,
        now: Time,
        plane: usize,
        from: SocketAddrV6,
        id: u64,
        cookie: &[u8; COOKIE],
        noise: &[u8; NOISE_HELLO],
        length: usize,
    ) {
        if !self.config.accept || length < frame::HELLO {
            return;
        }
        if !self.greeting.cookies.holds(now, from.into(), id, cookie) {
            self.counters.retries += 1;
            let cookie = self.greeting.cookies.make(now, from.into(), id);
            return self.reply(plane, from, &frame::retry(plane as u8, id, &cookie));
        }
        if let Some(welcome) = self.greeting.answered.get(noise) {
            let welcome = frame::welcome(plane as u8, id, welcome);
            return self.reply(plane, from, &welcome);
        }
        let found = self.probing.sizes.is_some();
        let any = |payload| found && self.config.takes_payload(payload);
        let Some(answer) = Answer::new(&self.config.secret, id, cookie, noise, &self.greeting.terms, any) else {
            self.counters.refuse(Reason::WrongKey);
            return self.reply(plane, from, &frame::refusal(frame::VERSION, plane as u8, id, 1));
        };
        self.counters.handshakes += 1;
        if self.table.open >= self.config.limits.connections {
            self.end_twins(id);
        }
        let full = self.table.open >= self.config.limits.connections;
        let verdict = answer.differ.or(full.then_some(Reason::PeerFull));
        let Ok(ours) = self.fresh_id() else { return };
        let payload = answer.payload;
        let said = if verdict == Some(Reason::OtherPayload) { self.config.payload.into() } else { ours };
        let Some((welcome, secrets)) = answer.finish(verdict, said) else { return };
        match verdict {
            Some(reason) => self.counters.refuse(reason),
            None => {
                let mut peers = vec![None; self.planes.len()];
                peers[plane] = Some(from);
                let handle = self.next_handle();
                let names = (ours, id);
                let Some(session) = self.open_session(now, handle, names, (&secrets, payload), false, peers) else {
                    return;
                };
                let monitor = session.monitor();
                if self.occupy(ours, State::Open(Box::new(session))).is_err() {
                    return self.monitors.leave(monitor, handle.index, false);
                }
                self.table.slots[handle.index as usize].hello = Some(*noise);
                self.table.unconfirmed.push(handle.index);
            }
        }
        self.greeting.answered.insert(now, *noise, welcome);
        self.reply(plane, from, &frame::welcome(plane as u8, id, &welcome));
    }

    pub(super) fn handle_welcome(&mut self, now: Time, plane: usize, id: u64, noise: &[u8; NOISE_WELCOME]) {
        let Some((index, calling)) = self.calling(id) else { return };
        let attempt = calling.attempts.get_mut(plane).and_then(Option::as_mut);
        let Some(outcome) = attempt.and_then(|(_, caller)| caller.finish(noise)) else {
            self.counters.malformed += 1;
            return;
        };
        let peers = calling.peers.iter().map(|&address| Some(address)).collect();
        let found = calling.payload;
        let payload = found.unwrap_or(self.config.payload);
        match outcome {
            Err((Reason::OtherPayload, theirs)) if found.is_some() => {
                self.take_their_payload(now, index, plane, theirs)
            }
            Err((reason, _)) => self.end(index, reason, true),
            Ok((remote, secrets)) => {
                let handle = Connection { index: index as u32, generation: self.table.slots[index].generation };
                let names = (id, remote);
                let Some(session) = self.open_session(now, handle, names, (&secrets, payload), true, peers) else {
                    return;
                };
                self.table.slots[index].state = Some(State::Open(Box::new(session)));
                self.make_ready(index as u32);
                self.completions.push_back(Completion::Connected { connection: handle });
            }
        }
    }

    fn open_session(
        &mut self,
        now: Time,
        handle: Connection,
        (local, remote): (u64, u64),
        (secrets, payload): (&Secrets, u32),
        calls: bool,
        peers: Vec<Option<SocketAddrV6>>,
    ) -> Option<Session> {
        let seed = u64::from_be_bytes(random().ok()?);
        let ways = match &mut self.probing.sizes {
            Some(sizes) => sizes.ways(&self.ways, &self.config, payload),
            None => &self.ways,
        };
        let way = ways.to(&peers);
        let (profile, environment, burst) = (Arc::clone(&way.profile), way.environment, way.burst);
        let ports = &self.ports.up;
        let opening =
            SessionParams { handle, local, remote, secrets, calls, peers, ports, profile, environment, burst, seed };
        Some(Session::new(now, &self.config, &mut self.monitors, opening))
    }

    /// Ends all unconfirmed connections of one caller. It said hello on several planes, and uses the connection of the
    /// first welcome.
    pub(super) fn end_twins(&mut self, caller: u64) {
        for i in (0..self.table.unconfirmed.len()).rev() {
            let index = self.table.unconfirmed[i] as usize;
            if let Some(State::Open(session)) = &self.table.slots[index].state
                && session.remote() == caller
            {
                self.end(index, Reason::NoAnswer, false);
            }
        }
    }

    pub(super) fn calling(&mut self, id: u64) -> Option<(usize, &mut Calling)> {
        let index = *self.table.ids.get(&id)? as usize;
        match &mut self.table.slots[index].state {
            Some(State::Calling(calling)) => Some((index, calling)),
            _ => None,
        }
    }
}

//! An established connection: an [`Endpoint`], keys, and the bytes that the engine knows only by name.

mod incoming;
mod pacer;
mod planes;
mod roaming;
mod trimmed;

use crate::clock::{EARLY, LIFE};
use crate::config::Config;
use crate::error::Reason;
use crate::frame::{Descriptor, HEADER, Kind, Sealed, encode_sealed};
use crate::handshake::Secrets;
use crate::memory::{Memory, Place};
use crate::node::{Completion, Connection, Operation};
use crate::plane::{Class, Destination, Owner, Plane, batch_of};
use crate::routes::Routes;
use crate::secure::{Opener, Sealer};
use crate::socket::Arrival;
use incoming::Incoming;
use pacer::Pacer;
use planes::Side;
use std::collections::VecDeque;
use std::net::SocketAddrV6;
use std::sync::Arc;
use strandway_proto::Letter;
use strandway_proto::packet::{Flags, Header};
use strandway_proto::profile::WireFormat;
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    Bytes, ConnectionId, ConnectionStats, Endpoint, Environment, Event, HostId, Message, MessageId, OpenConnection,
    Packet, PathId, Ports, Profile, Span, Time, wire,
};

/// Completions that wait for the application, beyond which letters are lost. Ours.
const LETTERS_MAX: usize = 4_096;

/// The engine's number for the only connection of its endpoint.
const ONLY: ConnectionId = ConnectionId(0);
/// Full batches that one connection sends before another has a turn; ours.
const TURN_BATCHES: usize = 2;
/// Measured round trips that wait to be taken at the most; ours. Newer ones are dropped.
const RTTS_MAX: usize = 1_024;

/// A send or write that is posted.
struct Posted {
    operation: Operation,
    place: Place,
    descriptor: Descriptor,
}

/// A posted receive.
struct Receive {
    operation: Operation,
    place: Place,
}

/// What one connection tells of itself.
#[derive(Clone, Debug, Default)]
pub struct SessionCounters {
    /// The engine's counters.
    pub engine: ConnectionStats,
    /// Datagrams that came twice, or too late to tell.
    pub repeated: u64,
    /// Datagrams with a wrong tag.
    pub forged: u64,
    /// Genuine datagrams that made no sense.
    pub malformed: u64,
    /// Bytes of payload sent, retransmissions included, per plane.
    pub sent_bytes: Vec<u64>,
    /// Bytes of payload sent for the first time.
    pub fresh_bytes: u64,
    /// Paths in use of each plane; empty if the profile does not keep them.
    pub active_paths: Vec<u32>,
    /// Bytes of payload that arrived for the first time, per plane.
    pub received_bytes: Vec<u64>,
    /// How often each plane was found silent.
    pub silences: Vec<u64>,
    /// How often our own port of each plane went down.
    pub port_losses: Vec<u64>,
    /// How often the kernel found no route to the peer's address on each plane.
    pub routes_lost: Vec<u64>,
    /// Is each plane in use at present?
    pub up: Vec<bool>,
    /// The last round trip that a ping measured, in picoseconds, wake-ups included; zero before the first.
    pub ping_rtt: Span,
    /// The engine's congestion window in wire bytes.
    pub window: Bytes,
}

pub(crate) struct Session {
    handle: Connection,
    /// What the node's clock shows when this session's own time is zero. The node sets its clock back now and then, and the
    /// session's time goes on: see [`crate::clock`].
    origin: i128,
    remote: u64,
    endpoint: Endpoint,
    format: WireFormat,
    /// The engine keeps a record of every path: what the pings of planes say is for people.
    engine_knows: bool,
    /// Packets that it sends before another connection has a turn: whole batches, since a system call costs the same for a
    /// batch that is not full.
    turn: usize,
    /// Where a window is more than a receiving socket holds.
    pacer: Option<Pacer>,
    sealer: Sealer,
    opener: Opener,
    /// The DSCP of datagrams that switches have cut, if they do.
    trimmed_dscp: Option<u8>,
    sides: Vec<Side>,
    plane_timeout: Span,
    peer_timeout: Span,
    heard: Time,
    /// Has the peer shown that it has the keys?
    pub(crate) confirmed: bool,
    /// When it must have done so.
    confirm_by: Time,
    /// Sends and writes that wait for a receive of the peer, in order.
    waiting: VecDeque<Posted>,
    /// Those that the engine has, in order.
    flying: VecDeque<Posted>,
    /// The engine's number for the first of them.
    first: u32,
    /// Sends that the engine has been given so far.
    sends: u32,
    /// Sends that the peer has room for so far.
    credits: u32,
    receives: VecDeque<Receive>,
    /// Number of the first receive that is not filled.
    receive_first: u32,
    /// Credits that the peer was told of.
    credits_told: u32,
    /// The peer's messages that have begun to arrive.
    incoming: Incoming,
    header: Vec<u8>,
    pings: u64,
    rtts: Vec<Span>,
    counters: SessionCounters,
}

/// Everything outside a session that it needs in order to work.
pub(crate) struct Surroundings<'a> {
    /// By the node's clock; within a session by its own.
    pub(crate) now: Time,
    pub(crate) routes: &'a Routes,
    pub(crate) planes: &'a mut [Plane],
    pub(crate) memory: &'a mut Memory,
    pub(crate) completions: &'a mut VecDeque<Completion>,
}

impl Surroundings<'_> {
    /// The same by another clock.
    fn at(&mut self, now: Time) -> Surroundings<'_> {
        Surroundings {
            now,
            routes: self.routes,
            planes: self.planes,
            memory: self.memory,
            completions: self.completions,
        }
    }
}

pub(crate) struct Opening<'a> {
    pub(crate) handle: Connection,
    pub(crate) remote: u64,
    pub(crate) secrets: &'a Secrets,
    pub(crate) calls: bool,
    pub(crate) peers: Vec<Option<SocketAddrV6>>,
    pub(crate) profile: Arc<Profile>,
    pub(crate) environment: Environment,
    /// Bytes that may leave at once, if a window is more.
    pub(crate) burst: Option<u64>,
    pub(crate) seed: u64,
}

impl Session {
    pub(crate) fn new(now: Time, config: &Config, opening: Opening<'_>) -> Session {
        // It begins late enough to look back.
        let origin = i128::from(now.0) - i128::from(EARLY.0);
        let now = Time::ZERO + EARLY;
        let Opening { handle, remote, secrets, calls, peers, profile, environment, burst, seed } = opening;
        let mut endpoint = Endpoint::new(HostId(u32::from(!calls)));
        let (format, window_psn) = (profile.wire, window_psn(&profile.reliability));
        let pacer = burst.map(|burst| Pacer::new(now, environment.base_rtt, environment.bdp(), burst));
        endpoint.open(
            now,
            OpenConnection {
                profile,
                environment,
                peer: HostId(u32::from(calls)),
                peer_connection: Some(ONLY),
                random: Random::new(seed, StreamKind::Connection, 0),
            },
        );
        let (ours, theirs) =
            if calls { (&secrets.from_caller, &secrets.to_caller) } else { (&secrets.to_caller, &secrets.from_caller) };
        let planes = peers.len();
        let engine_knows = !endpoint.planes(ONLY).is_empty();
        Session {
            handle,
            origin,
            remote,
            endpoint,
            format,
            engine_knows,
            turn: TURN_BATCHES * batch_of(config.datagram()),
            pacer,
            sealer: Sealer::new(ours, config.protection),
            opener: Opener::new(theirs, config.protection, 2 * u64::from(window_psn)),
            trimmed_dscp: config.trimming.then_some(config.control_dscp),
            sides: peers.into_iter().map(|peer| Side::new(peer, now)).collect(),
            plane_timeout: crate::clock::span(config.plane_timeout),
            peer_timeout: crate::clock::span(config.peer_timeout),
            heard: now,
            confirmed: calls,
            confirm_by: now + crate::clock::span(config.handshake_timeout),
            waiting: VecDeque::new(),
            flying: VecDeque::new(),
            first: 0,
            sends: 0,
            credits: 0,
            receives: VecDeque::new(),
            receive_first: 0,
            credits_told: 0,
            incoming: Incoming::new(config.incoming_max),
            header: Vec::with_capacity(64),
            pings: 0,
            rtts: Vec::new(),
            counters: SessionCounters {
                sent_bytes: vec![0; planes],
                received_bytes: vec![0; planes],
                silences: vec![0; planes],
                port_losses: vec![0; planes],
                routes_lost: vec![0; planes],
                ..SessionCounters::default()
            },
        }
    }

    pub(crate) fn counters(&self) -> SessionCounters {
        SessionCounters {
            engine: *self.endpoint.stats(ONLY),
            window: self.endpoint.window(ONLY),
            active_paths: self.endpoint.planes(ONLY).iter().map(|plane| plane.good + plane.skip).collect(),
            up: self.sides.iter().map(|side| side.is_used(false) && side.peer.is_some()).collect(),
            ..self.counters.clone()
        }
    }

    /// The round trips that pings measured since the last call.
    pub(crate) fn take_rtts(&mut self) -> Vec<Span> {
        std::mem::take(&mut self.rtts)
    }

    /// The peer's name for the connection.
    pub(crate) const fn remote(&self) -> u64 {
        self.remote
    }

    /// Unfinished sends and writes.
    pub(crate) fn posted(&self) -> usize {
        self.waiting.len() + self.flying.len()
    }

    /// Unfinished receives.
    pub(crate) fn receiving(&self) -> usize {
        self.receives.len()
    }

    /// The node's clock was set back.
    pub(crate) fn go_back(&mut self, back: Span) {
        self.origin -= i128::from(back.0);
    }

    /// A time of the node's clock as this session counts it.
    fn own(&self, now: Time) -> Time {
        Time((i128::from(now.0) - self.origin).clamp(0, i128::from(u64::MAX)) as u64)
    }

    pub(crate) fn post(&mut self, now: Time, operation: Operation, place: Place, descriptor: Descriptor) {
        let now = self.own(now);
        self.waiting.push_back(Posted { operation, place, descriptor });
        self.admit(now);
    }

    /// Sends a letter at the next turn.
    pub(crate) fn letter(&mut self, now: Time, letter: Letter) {
        let now = self.own(now);
        self.endpoint.send_letter(now, ONLY, letter);
    }

    pub(crate) fn receive(&mut self, operation: Operation, place: Place) {
        self.receives.push_back(Receive { operation, place });
    }

    /// Receives posted so far.
    fn granted(&self) -> u32 {
        self.receive_first.wrapping_add(self.receives.len() as u32)
    }

    /// Hands the engine what the peer has room for, in order.
    fn admit(&mut self, now: Time) {
        while let Some(posted) = self.waiting.front_mut() {
            if let Descriptor::Send { number } = &mut posted.descriptor {
                if self.sends == self.credits {
                    return;
                }
                *number = self.sends;
                self.sends = self.sends.wrapping_add(1);
            }
            let id = MessageId(self.first.wrapping_add(self.flying.len() as u32));
            self.endpoint.post(now, ONLY, Message { id, bytes: posted.place.len() as u64 });
            self.flying.extend(self.waiting.pop_front());
        }
    }

    /// A datagram for this connection arrived by `plane`.
    pub(crate) fn handle(
        &mut self,
        around: &mut Surroundings<'_>,
        plane: usize,
        arrival: &Arrival,
        sealed: &Sealed,
        datagram: &mut [u8],
    ) -> Result<(), Reason> {
        let around = &mut around.at(self.own(around.now));
        let (now, from, marked, length) = (around.now, arrival.from, arrival.is_marked(), datagram.len());
        if self.handle_trimmed(now, arrival, sealed, datagram) {
            return Ok(());
        }
        let newest = self.opener.is_newest(sealed.counter);
        let body = match self.opener.open(sealed.counter, datagram) {
            Ok(body) => &*body,
            Err(crate::secure::Refused::Repeated) => {
                self.counters.repeated += 1;
                return Ok(());
            }
            Err(crate::secure::Refused::Forged) => {
                self.counters.forged += 1;
                return Ok(());
            }
        };
        if !self.confirmed {
            self.confirmed = true;
            around.completions.push_back(Completion::Accepted { connection: self.handle, from: from.into() });
        }
        self.heard = now;
        let Some(side) = self.sides.get_mut(plane) else { return Ok(()) };
        side.heard = now;
        if (sealed.kind != Kind::Data || around.routes.data_tells_peer()) && side.peer != Some(from) {
            self.watch_address(around, plane, from, newest, length);
        }
        if newest {
            // Never more than operations_max receives are open, far from half the range.
            let ahead = sealed.credits.wrapping_sub(self.credits as u16);
            if ahead < 1 << 15 {
                self.credits = self.credits.wrapping_add(u32::from(ahead));
                self.admit(now);
            }
        }
        match sealed.kind {
            Kind::Data => self.handle_data(around, plane, marked, sealed, body)?,
            Kind::Control => match wire::decode(self.format, body) {
                Ok(packet) if !matches!(packet.header, Header::Data(_)) => {
                    // What is marked is the way of data; acknowledgements have no say.
                    let flags = Flags::NONE.with_if(marked && !packet.is_control(), Flags::CE);
                    self.endpoint.handle_packet(now, &complete(packet, sealed, flags, body.len()));
                }
                _ => self.counters.malformed += 1,
            },
            Kind::Ping => match body.first_chunk::<8>() {
                Some(number) => {
                    let path = PathId::new(plane as u8, sealed.path.entropy());
                    self.answer_ping(around, from, path, u64::from_be_bytes(*number));
                }
                None => self.counters.malformed += 1,
            },
            Kind::Pong => match body.first_chunk::<8>() {
                Some(number) => self.handle_pong(around, plane, from, u64::from_be_bytes(*number)),
                None => self.counters.malformed += 1,
            },
            Kind::Close => return Err(Reason::of_code(body.first().copied().unwrap_or(0))),
        }
        self.drain(around)
    }

    fn handle_data(
        &mut self,
        around: &mut Surroundings<'_>,
        plane: usize,
        marked: bool,
        sealed: &Sealed,
        body: &[u8],
    ) -> Result<(), Reason> {
        let Ok(packet) = wire::decode(self.format, body) else {
            self.counters.malformed += 1;
            return Ok(());
        };
        let Header::Data(data) = packet.header else {
            self.counters.malformed += 1;
            return Ok(());
        };
        let rest = &body[wire::header_bytes(self.format, &packet)..];
        let Ok(descriptor) = Descriptor::decode(rest) else {
            self.counters.malformed += 1;
            return Ok(());
        };
        let payload = &rest[descriptor.bytes()..];
        if payload.len() != usize::from(data.length) {
            self.counters.malformed += 1;
            return Ok(());
        }
        let before = self.endpoint.stats(ONLY).delivered;
        let flags = Flags::NONE.with_if(marked, Flags::CE);
        self.endpoint.handle_packet(around.now, &complete(packet, sealed, flags, body.len()));
        if self.endpoint.stats(ONLY).delivered == before {
            // A copy, or nothing that the engine keeps: what it once held may be in use for something else by now.
            return Ok(());
        }
        self.incoming.add(data.message.0, descriptor, payload.len())?;
        // Checked for packets without payload, too: their offset is the length that the application is told.
        let place = match descriptor {
            Descriptor::Send { number } => {
                let ahead = number.wrapping_sub(self.receive_first) as usize;
                let receive = self.receives.get(ahead).ok_or(Reason::Violation)?;
                receive.place.part(data.offset.get(), payload.len()).ok_or(Reason::TooLong)?
            }
            Descriptor::Write { key, start, .. } => {
                let start = start.checked_add(data.offset.get()).ok_or(Reason::RemoteAccess)?;
                around.memory.open(key, self.handle, start, payload.len()).ok_or(Reason::RemoteAccess)?
            }
        };
        around.memory.write(place, payload);
        self.counters.received_bytes[plane] += payload.len() as u64;
        Ok(())
    }

    /// What the engine has to tell, for the application.
    fn drain(&mut self, around: &mut Surroundings<'_>) -> Result<(), Reason> {
        let connection = self.handle;
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Sent { message, .. } => {
                    assert!(message.0 == self.first, "messages finish in the order of posting");
                    let Some(posted) = self.flying.pop_front() else { unreachable!("the engine finishes what it has") };
                    self.first = self.first.wrapping_add(1);
                    around.memory.release(posted.place);
                    around.completions.push_back(Completion::Sent { connection, operation: posted.operation });
                }
                Event::Received { message, bytes, .. } => match self.incoming.finish(message.0, bytes.0)? {
                    Descriptor::Send { number } => {
                        if number != self.receive_first || self.receives.is_empty() {
                            return Err(Reason::Violation);
                        }
                        let Some(receive) = self.receives.pop_front() else { return Err(Reason::Violation) };
                        self.receive_first = self.receive_first.wrapping_add(1);
                        around.memory.release(receive.place);
                        let (operation, bytes) = (receive.operation, bytes.0);
                        around.completions.push_back(Completion::Received { connection, operation, bytes });
                    }
                    Descriptor::Write { immediate: Some(immediate), .. } => {
                        let bytes = bytes.0;
                        around.completions.push_back(Completion::Written { connection, immediate, bytes });
                    }
                    Descriptor::Write { immediate: None, .. } => {}
                },
                // Whoever does not poll loses letters, as the network may.
                Event::Letter { letter, .. } => {
                    if around.completions.len() < LETTERS_MAX {
                        around.completions.push_back(Completion::Letter { connection, letter });
                    }
                }
                // Its retries are used up.
                Event::Failed { .. } | Event::Closed { .. } => return Err(Reason::PeerSilent),
            }
        }
        Ok(())
    }

    /// Timers, then packets while planes take them; true if anything was sent. `absence`: how long this node had no turn.
    pub(crate) fn work(&mut self, around: &mut Surroundings<'_>, absence: Span) -> Result<bool, Reason> {
        let around = &mut around.at(self.own(around.now));
        let now = around.now;
        if now > Time::ZERO + LIFE {
            return Err(Reason::Aged);
        }
        if !self.confirmed {
            // Nothing goes to a caller that has not shown its keys.
            return if now > self.confirm_by { Err(Reason::NoAnswer) } else { Ok(false) };
        }
        self.excuse(now, absence);
        if now.since(self.heard) > self.peer_timeout {
            return Err(Reason::PeerSilent);
        }
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        self.watch_planes(around);
        let mut sent = 0;
        while sent < self.turn && self.endpoint.wants_transmit() {
            let free = self.free(around.planes);
            if free == 0 {
                break;
            }
            let endpoint = &self.endpoint;
            let paced = self.pacer.as_mut().is_some_and(|pacer| !pacer.is_open(now, endpoint.window(ONLY).0));
            let data = if paced { 0 } else { free };
            let Some(packet) = self.endpoint.poll_transmit(now, Ports { data, control: free }) else { break };
            self.send_packet(around, &packet);
            sent += 1;
        }
        if self.credits_told != self.granted() {
            // Nothing carried the news of new receives: tell it.
            let up = (0..self.sides.len()).find(|&i| self.sides[i].is_used(false) && self.sides[i].peer.is_some());
            if let Some(plane) = up {
                self.ping(around, plane);
                sent += 1;
            }
        }
        self.drain(around)?;
        Ok(sent > 0)
    }

    fn header(&mut self, kind: Kind, path: PathId) -> Sealed {
        let granted = self.granted();
        self.credits_told = granted;
        Sealed { kind, path, credits: granted as u16, connection: self.remote, counter: self.sealer.next() }
    }

    fn send_packet(&mut self, around: &mut Surroundings<'_>, packet: &Packet) {
        let plane = usize::from(packet.path.port());
        let Some(to) = self.sides.get(plane).and_then(|side| side.peer) else { return };
        self.header.clear();
        // Its numbers fit every format: connection 0, offsets of 64 bits.
        if wire::encode(self.format, packet, &mut self.header).is_err() {
            self.counters.malformed += 1;
            return;
        }
        let mut transport = std::mem::take(&mut self.header);
        match packet.header {
            Header::Data(data) => {
                let header = self.header(Kind::Data, packet.path);
                let posted = &self.flying[data.message.0.wrapping_sub(self.first) as usize];
                posted.descriptor.encode(&mut transport);
                let payload = around.memory.read(posted.place, data.offset.get(), usize::from(data.length));
                let sealer = &mut self.sealer;
                let length = HEADER + transport.len() + payload.len() + sealer.tag_bytes();
                let (resolved, source) = around.routes.resolve(to, packet.path);
                let destination = Destination { to: resolved, source, owner: Owner::Peer(to) };
                around.planes[plane].push(destination, Class::Data, length, |out| {
                    let start = out.len();
                    encode_sealed(&header, out);
                    out.extend_from_slice(&transport);
                    out.extend_from_slice(payload);
                    sealer.seal(out, start);
                });
                if let Some(pacer) = &mut self.pacer {
                    pacer.spend(length as u64);
                }
                self.counters.sent_bytes[plane] += u64::from(data.length);
                if !packet.flags.has(Flags::RETRANSMITTED) {
                    self.counters.fresh_bytes += u64::from(data.length);
                }
            }
            // Probes travel in the class of data, and are marked like it.
            _ => {
                let class = if packet.is_control() { Class::Control } else { Class::Data };
                self.send(around, to, (Kind::Control, class), packet.path, &transport);
            }
        }
        self.header = transport;
    }

    fn send(
        &mut self,
        around: &mut Surroundings<'_>,
        to: SocketAddrV6,
        (kind, class): (Kind, Class),
        path: PathId,
        body: &[u8],
    ) {
        let header = self.header(kind, path);
        let sealer = &mut self.sealer;
        let length = HEADER + body.len() + sealer.tag_bytes();
        let (resolved, source) = around.routes.resolve_small(to, path);
        let destination = Destination { to: resolved, source, owner: Owner::Peer(to) };
        around.planes[usize::from(path.port())].push(destination, class, length, |out| {
            let start = out.len();
            encode_sealed(&header, out);
            out.extend_from_slice(body);
            sealer.seal(out, start);
        });
    }

    /// Sends a ping or a pong.
    fn send_number(&mut self, around: &mut Surroundings<'_>, to: SocketAddrV6, path: PathId, kind: Kind, number: u64) {
        self.send(around, to, (kind, Class::Control), path, &number.to_be_bytes());
    }

    fn send_small(&mut self, around: &mut Surroundings<'_>, path: PathId, kind: Kind, body: &[u8]) {
        if let Some(to) = self.sides[usize::from(path.port())].peer {
            self.send(around, to, (kind, Class::Control), path, body);
        }
    }

    /// Is something owed, to us or by us?
    fn is_active(&self) -> bool {
        self.posted() > 0 || !self.incoming.is_empty()
    }

    /// Does it have packets to send that no plane takes at present?
    pub(crate) fn wants_transmit(&self) -> bool {
        self.endpoint.wants_transmit()
    }

    /// Tells the peer that the connection ends; once on each plane, and nobody waits for an answer.
    pub(crate) fn say_goodbye(&mut self, around: &mut Surroundings<'_>, reason: Reason) {
        for plane in 0..self.sides.len() {
            self.send_small(around, PathId::new(plane as u8, 0), Kind::Close, &[reason.code()]);
        }
    }

    /// Gives back what unfinished operations held.
    pub(crate) fn release(self, memory: &mut Memory) {
        let places = self.waiting.iter().chain(&self.flying).map(|p| p.place);
        for place in places.chain(self.receives.iter().map(|r| r.place)) {
            memory.release(place);
        }
    }
}

/// Sequence numbers that a sender is ahead of the oldest packet that its receiver misses, at the most.
fn window_psn(reliability: &ReliabilityConfig) -> u32 {
    match reliability {
        ReliabilityConfig::SelectiveRepeat(config) => config.window_psn,
        ReliabilityConfig::MrcSack(config) => config.psn_range * 128,
        // It keeps to one path, where nothing overtakes.
        ReliabilityConfig::GoBackN(_) => 0,
    }
}

/// Puts what the datagram's outer part says into a packet.
fn complete(packet: Packet, sealed: &Sealed, flags: Flags, size: usize) -> Packet {
    let outer = wire::Outer {
        path: sealed.path,
        size: size.min(usize::from(u16::MAX)) as u16,
        flags,
        ..wire::Outer::default()
    };
    Packet { connection: ONLY, ..outer.complete(packet) }
}

#[cfg(test)]
mod hostile_peer;
#[cfg(test)]
mod tests;

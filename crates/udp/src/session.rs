//! An established connection: an [`Endpoint`], keys, and the payload bytes, which the engine knows only as message and
//! offset.

mod arriving;
mod codes;
mod incoming;
mod leaving;
mod mrc;
mod orders;
mod pacer;
mod partial;
mod planes;
mod posted;
mod reads;
mod roaming;
mod trimmed;
mod window;

use crate::clock::EARLY;
use crate::completion::Completion;
use crate::config::{Config, URGENT_MAX};
use crate::frame::Descriptor;
use crate::handles::{Connection, Operation};
use crate::handshake::Secrets;
use crate::layout::Layout;
use crate::memory::{Memory, Place};
use crate::peer_monitor::{self, PeerMonitors};
use crate::plane::{Plane, batch_of};
use crate::requests::Requests;
use crate::routes::Routes;
use crate::secure::{Opener, Sealer};
use crate::windows::Windows;
use codes::Codes;
use incoming::Incoming;
use mrc::Mrc;
pub(crate) use mrc::{Inner, queue_of};
use pacer::Pacer;
use partial::Partial;
use planes::{PlaneState, SilenceTimer};
use posted::{Posted, Purpose};
pub(crate) use reads::Wanted;
use reads::{Asked, Reading};
use std::collections::VecDeque;
use std::net::SocketAddrV6;
use std::sync::Arc;
use strandway_proto::ControlMessage;
use strandway_proto::packet::{Header, Part};
use strandway_proto::profile::WireFormat;
use strandway_proto::read::{ReadLimits, Reader, Target};
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    Bytes, ConnectionId, ConnectionStats, Endpoint, Environment, HostId, Message, MessageId, OpenConnection, Profile,
    Span, Time,
};

/// If more completions than this wait for the application, further control messages are dropped. Ours.
const LETTERS_MAX: usize = 4_096;

/// The engine's number for the only connection of its endpoint.
const ONLY: ConnectionId = ConnectionId(0);
/// Full batches that one connection sends per turn; ours.
const TURN_BATCHES: usize = 2;
/// The most measured round trips that wait to be taken; ours. Newer ones are dropped.
const RTTS_MAX: usize = 1_024;
/// Round trips that stay for those who watch: ours, enough for a 99th percentile to mean the worst but one or two.
const RECENT_MAX: usize = 256;

/// A posted receive.
struct Receive {
    operation: Operation,
    place: Place,
}

/// The payload of one packet, as a range of a message.
struct Piece {
    message: u32,
    /// Where in the message its payload starts; zero for parity, which belongs to no range.
    offset: u64,
    length: usize,
    parity: Option<Part>,
}

impl Piece {
    /// The piece that a header describes, where full packets carry `mtu` bytes; `None` for a header of a packet without
    /// payload.
    fn of(header: &Header, mtu: u64) -> Option<Piece> {
        match *header {
            Header::Data(data) => {
                let (message, length) = (data.message.0, usize::from(data.length));
                Some(Piece { message, offset: data.offset.get(), length, parity: None })
            }
            Header::Part(part) => Some(Piece {
                message: { part.message }.0,
                offset: if part.parity { 0 } else { u64::from(part.packet) * mtu },
                length: usize::from(part.length),
                parity: part.parity.then_some(part),
            }),
            _ => None,
        }
    }
}

/// Counters and state of one connection.
#[derive(Clone, Debug, Default)]
pub struct SessionCounters {
    /// The engine's counters.
    pub engine: ConnectionStats,
    /// Datagrams that came twice, and those too late to tell whether they had come before.
    pub repeated: u64,
    /// Datagrams with a wrong tag.
    pub forged: u64,
    /// Genuine datagrams that break the protocol.
    pub malformed: u64,
    /// Bytes of payload sent, retransmissions included, per plane.
    pub sent_bytes: Vec<u64>,
    /// Bytes of payload sent for the first time.
    pub fresh_bytes: u64,
    /// Paths in use of each plane; empty if the profile keeps no list of paths.
    pub active_paths: Vec<u32>,
    /// Bytes of payload that were lost and rebuilt from parity.
    pub rebuilt_bytes: u64,
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
    /// MRC's transport acknowledgements sent; other layouts have none.
    pub transport_acks_sent: u64,
    /// MRC's transport acknowledgements received; other layouts have none.
    pub transport_acks_received: u64,
    /// The last round trip that a ping measured, in picoseconds, wake-ups included; zero before the first.
    pub ping_rtt: Span,
    /// The engine's congestion window in wire bytes. Connections with one peer node share it, if the profile has one
    /// per destination.
    pub window: Bytes,
    /// Wire bytes that are in flight under it, of this connection.
    pub in_flight: Bytes,
}

pub(crate) struct Session {
    /// Changes of paths are told to the application.
    tells_paths: bool,
    handle: Connection,
    /// The node's time at which this session's own time is zero. The node sets its clock back now and then, while the
    /// session's time goes on: see [`crate::clock`].
    origin: i128,
    /// The id by which the peer addresses us, and the id by which we address the peer.
    local: u64,
    remote: u64,
    /// Did this side begin the connection?
    calls: bool,
    /// The number of its peer monitor, and whether this connection counts there as active.
    pub(crate) monitor: u32,
    pub(crate) counted: bool,
    endpoint: Endpoint,
    format: WireFormat,
    /// Must packets leave in order? RoCEv2's receivers take a later packet for the sign of a loss.
    in_order: bool,
    /// The engine keeps a state of every path, and decides by that. The result of pings goes only into the counters
    /// then.
    engine_knows: bool,
    /// Packets that it sends before another connection has a turn. Whole batches, since a system call costs the same
    /// for a batch that is not full.
    turn: usize,
    /// Present where a window is larger than the buffer of a receiving socket.
    pacer: Option<Pacer>,
    /// Does the profile have one window per destination?
    shares_window: bool,
    /// Wire bytes of this connection that are in flight in the shared window, if there is one.
    share: Option<u64>,
    /// It has something to send, and waits for its turn in the shared window.
    waits_for_turn: bool,
    /// Packets that it has sent in its present turn.
    turn_sent: usize,
    sealer: Sealer,
    opener: Opener,
    /// The DSCP of datagrams that switches have trimmed; `None` without trimming.
    trimmed_dscp: Option<u8>,
    sides: Vec<PlaneState>,
    plane_timeout: Span,
    peer_timeout: Span,
    /// When something genuine last came on this connection.
    heard: Time,
    doubt: SilenceTimer,
    /// Has the peer shown that it has the keys?
    pub(crate) confirmed: bool,
    /// The time by which the peer must have shown it.
    confirm_by: Time,
    /// Sends that wait for a receive of the peer, requests that wait for answers to others, and operations behind them,
    /// in order.
    waiting: VecDeque<Posted>,
    /// Messages that the engine has, in order.
    flying: VecDeque<Posted>,
    /// The engine's number for the first of `flying`.
    first: u32,
    /// Unfinished sends, writes and answers that are too long to be urgent.
    long: usize,
    /// Our requests to read the peer's memory, and those of them that have arrived.
    reader: Reader<Reading>,
    unanswered: usize,
    /// The peer's requests, and the number of answers among [`Session::flying`].
    target: Target<Asked>,
    answers: usize,
    /// Sends that were given to the engine so far.
    sends: u32,
    /// Sends for which the peer has posted receives so far.
    credits: u32,
    receives: VecDeque<Receive>,
    /// Number of the first receive that is not filled.
    receive_first: u32,
    /// Credits of which the peer was told.
    credits_told: u32,
    /// The peer's messages that have begun to arrive.
    incoming: Incoming<Descriptor>,
    /// Operations with an immediate that were posted so far, modulo 65,536.
    immediates: u16,
    /// Present if data travels in MRC's layout.
    mrc: Option<Box<Mrc>>,
    /// Traffic class of small and urgent datagrams.
    control_class: u8,
    /// Parity, if the profile's messages may have an erasure code.
    codes: Option<Box<Codes>>,
    /// The memory of streams and receives, if the reliability is `partial`; sends, writes and receives are not used
    /// then.
    partial: Option<Box<Partial>>,
    header: Vec<u8>,
    /// Payload bytes of a full packet.
    mtu: u64,
    /// Bytes of a full datagram.
    datagram: usize,
    rtts: Vec<Span>,
    /// The last round trips of pings with their planes, at most [`RECENT_MAX`], for those who watch.
    recent: VecDeque<(u8, Span)>,
    counters: SessionCounters,
}

/// The things outside a session that it needs while it works.
pub(crate) struct NodeContext<'a> {
    /// Time of the node's clock; inside a session, time of its own clock.
    pub(crate) now: Time,
    pub(crate) routes: &'a Routes,
    pub(crate) planes: &'a mut [Plane],
    pub(crate) memory: &'a mut Memory,
    pub(crate) completions: &'a mut VecDeque<Completion>,
    pub(crate) monitors: &'a mut PeerMonitors,
    pub(crate) windows: &'a mut Windows,
    pub(crate) requests: &'a mut Requests,
}

impl NodeContext<'_> {
    /// This context with a time of another clock.
    fn at(&mut self, now: Time) -> NodeContext<'_> {
        NodeContext {
            now,
            routes: self.routes,
            planes: self.planes,
            memory: self.memory,
            completions: self.completions,
            monitors: self.monitors,
            windows: self.windows,
            requests: self.requests,
        }
    }
}

pub(crate) struct SessionParams<'a> {
    pub(crate) handle: Connection,
    pub(crate) local: u64,
    pub(crate) remote: u64,
    pub(crate) secrets: &'a Secrets,
    pub(crate) calls: bool,
    pub(crate) peers: Vec<Option<SocketAddrV6>>,
    /// Which of our own ports are up.
    pub(crate) ports: &'a [bool],
    pub(crate) profile: Arc<Profile>,
    pub(crate) environment: Environment,
    /// Bytes that may leave at once, where a window is larger than that.
    pub(crate) burst: Option<u64>,
    pub(crate) seed: u64,
}

impl Session {
    pub(crate) fn new(now: Time, config: &Config, monitors: &mut PeerMonitors, opening: SessionParams<'_>) -> Session {
        // The session begins at time `EARLY`, so that it can subtract timeouts from the present time.
        let origin = i128::from(now.0) - i128::from(EARLY.0);
        let node_now = now;
        let now = Time::ZERO + EARLY;
        let SessionParams { handle, local, remote, secrets, calls, peers, ports, profile, environment, burst, seed } =
            opening;
        let known = peers.iter().copied();
        let monitor =
            monitors.begin(node_now, (peer_monitor::key(secrets), remote as u8), known, ports, handle.index, calls);
        let mut endpoint = Endpoint::new(HostId(u32::from(!calls)));
        let (format, window_psn) = (profile.wire, window_psn(&profile.reliability));
        let mtu = u64::from(profile.transport.mtu);
        let codes = Codes::new(&profile).map(Box::new);
        let partial = Partial::new(&profile).map(Box::new);
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
        endpoint.keep_ended(now, ONLY);
        let (ours, theirs) =
            if calls { (&secrets.from_caller, &secrets.to_caller) } else { (&secrets.to_caller, &secrets.from_caller) };
        let planes = peers.len();
        for (plane, _) in ports.iter().enumerate().filter(|(_, up)| !**up) {
            endpoint.handle_port(now, plane as u8, false);
        }
        let shares_window = endpoint.shares_window(ONLY);
        let engine_knows = !endpoint.planes(ONLY).is_empty();
        let reads = ReadLimits { reads: config.reads_max, bytes: config.read_bytes_max };
        let mut session = Session {
            tells_paths: config.path_events,
            handle,
            origin,
            local,
            remote,
            calls,
            monitor,
            counted: false,
            endpoint,
            format,
            in_order: format == WireFormat::Rocev2,
            engine_knows,
            turn: TURN_BATCHES * batch_of(config.datagram()),
            pacer,
            shares_window,
            share: None,
            waits_for_turn: false,
            turn_sent: 0,
            sealer: Sealer::new(ours, config.protection),
            opener: Opener::new(theirs, config.protection, (2 * u64::from(window_psn)).saturating_sub(64)),
            trimmed_dscp: config.trimming.then_some(config.control_dscp),
            sides: peers
                .iter()
                .enumerate()
                .map(|(i, &peer)| PlaneState::new(peer, ports.get(i).is_none_or(|&up| up)))
                .collect(),
            plane_timeout: crate::clock::span(config.plane_timeout),
            peer_timeout: crate::clock::span(config.peer_timeout),
            heard: now,
            doubt: SilenceTimer::default(),
            confirmed: calls,
            confirm_by: now + crate::clock::span(config.handshake_timeout),
            waiting: VecDeque::new(),
            flying: VecDeque::new(),
            first: 0,
            long: 0,
            reader: Reader::new(reads),
            unanswered: 0,
            target: Target::new(reads),
            answers: 0,
            sends: 0,
            credits: 0,
            receives: VecDeque::new(),
            receive_first: 0,
            credits_told: 0,
            incoming: Incoming::new(config.incoming_max),
            immediates: 0,
            mrc: match config.layout {
                Layout::Frame => None,
                Layout::Mrc { port } => Some(Box::new(Mrc::new(port, local, remote, calls, config.incoming_max))),
            },
            control_class: config.control_dscp << 2,
            codes,
            partial,
            header: Vec::with_capacity(64),
            mtu,
            datagram: config.datagram(),
            rtts: Vec::new(),
            recent: VecDeque::new(),
            counters: SessionCounters {
                sent_bytes: vec![0; planes],
                received_bytes: vec![0; planes],
                silences: vec![0; planes],
                port_losses: vec![0; planes],
                routes_lost: vec![0; planes],
                ..SessionCounters::default()
            },
        };
        if !config.denied.is_empty() {
            session.order(node_now, &config.routes, &config.denied, true);
        }
        session
    }

    pub(crate) fn counters(&self) -> SessionCounters {
        SessionCounters {
            engine: *self.endpoint.stats(ONLY),
            window: self.endpoint.window(ONLY),
            in_flight: self.endpoint.in_flight(ONLY),
            active_paths: self.endpoint.planes(ONLY).iter().map(|plane| plane.good + plane.skip).collect(),
            up: self.sides.iter().map(|side| side.is_used(false) && side.peer.is_some()).collect(),
            ..self.counters.clone()
        }
    }

    /// The round trips that pings measured since the last call.
    pub(crate) fn take_rtts(&mut self) -> Vec<Span> {
        std::mem::take(&mut self.rtts)
    }

    /// The last round trips of pings, with their planes. They stay.
    pub(crate) fn recent_rtts(&self) -> impl Iterator<Item = (u8, Span)> + '_ {
        self.recent.iter().copied()
    }

    /// The peer's name for the connection.
    pub(crate) const fn remote(&self) -> u64 {
        self.remote
    }

    /// Unfinished operations of ours other than receives.
    pub(crate) fn posted(&self) -> usize {
        let ours = self.waiting.len() + self.flying.len() - self.answers + self.unanswered();
        ours + self.partial.as_ref().map_or(0, |partial| partial.posted())
    }

    /// Unfinished receives.
    pub(crate) fn receiving(&self) -> usize {
        self.receives.len()
    }

    /// The node's clock was set back.
    pub(crate) fn go_back(&mut self, back: Span) {
        self.origin -= i128::from(back.0);
    }

    /// Converts a time of this session into one of the node's clock.
    fn by_node(&self, own: Time) -> Time {
        Time((i128::from(own.0) + self.origin).clamp(0, i128::from(u64::MAX)) as u64)
    }

    /// Converts a time of the node's clock into one of this session.
    fn own(&self, now: Time) -> Time {
        Time((i128::from(now.0) - self.origin).clamp(0, i128::from(u64::MAX)) as u64)
    }

    pub(crate) fn post(&mut self, now: Time, operation: Operation, place: Place, descriptor: Descriptor) {
        let now = self.own(now);
        let immediates = self.immediates;
        let has_immediate = !matches!(descriptor, Descriptor::Write { immediate: None, .. });
        self.immediates = immediates.wrapping_add(u16::from(has_immediate));
        self.long += usize::from(is_long(place));
        let purpose = Purpose::Operation(operation);
        self.waiting.push_back(Posted { purpose, place: Some(place), descriptor, immediates });
        self.admit(now);
    }

    /// Sends a control message at the next turn.
    pub(crate) fn control(&mut self, now: Time, control: ControlMessage) {
        let now = self.own(now);
        self.endpoint.send_control(now, ONLY, control);
    }

    pub(crate) fn receive(&mut self, operation: Operation, place: Place) {
        self.receives.push_back(Receive { operation, place });
    }

    /// Receives posted so far.
    fn granted(&self) -> u32 {
        self.receive_first.wrapping_add(self.receives.len() as u32)
    }

    /// Hands the engine, in order, the messages that the peer has room for.
    fn admit(&mut self, now: Time) {
        while let Some(posted) = self.waiting.front_mut() {
            if let Descriptor::Send { number } = &mut posted.descriptor {
                if self.sends == self.credits {
                    return;
                }
                *number = self.sends;
                self.sends = self.sends.wrapping_add(1);
            }
            if let Purpose::Request(number) = posted.purpose {
                let Some(next) = self.reader.poll_request() else { return };
                assert!(next == number, "requests leave in the order of posting");
            }
            let id = MessageId(self.first.wrapping_add(self.flying.len() as u32));
            self.endpoint.post(now, ONLY, Message { id, bytes: posted.bytes() });
            self.flying.extend(self.waiting.pop_front());
        }
    }

    /// Is an operation of ours unfinished, or a message of the peer incomplete?
    fn is_active(&self) -> bool {
        self.posted() > 0
            || !self.target.is_empty()
            || !self.incoming.is_empty()
            || self.mrc.as_ref().is_some_and(|mrc| mrc.is_receiving())
            || self.partial.as_ref().is_some_and(|partial| partial.is_active())
    }

    /// Releases the memory that unfinished operations hold.
    pub(crate) fn release(self, memory: &mut Memory) {
        let places = self.waiting.iter().chain(&self.flying).filter_map(|p| p.place);
        let places = places.chain(self.reader.iter().filter_map(|reading| reading.place));
        let partial = self.partial.iter().flat_map(|partial| partial.places());
        for place in places.chain(self.receives.iter().map(|r| r.place)).chain(partial) {
            memory.release(place);
        }
    }
}

/// Is an operation too long to be urgent?
fn is_long(place: Place) -> bool {
    place.len() > URGENT_MAX
}

/// The most packets under way on a connection whose reliability has no range of sequence numbers: ours, 3 s of 1 Gb/s
/// in datagrams of 1,500 B.
const ONE_WAY_RANGE: u32 = 1 << 18;

/// The most sequence numbers that a sender may be ahead of the oldest packet that its receiver misses.
fn window_psn(reliability: &ReliabilityConfig) -> u32 {
    // Go-back-N keeps to one path, so no packet overtakes another.
    reliability.range().unwrap_or(if reliability.is_one_way() { ONE_WAY_RANGE } else { 0 })
}

#[cfg(test)]
mod forged;
#[cfg(test)]
mod hostile_peer;
#[cfg(test)]
mod tests;

//! An established connection: an [`Endpoint`], keys, and the payload bytes, which the engine knows only as message and
//! offset.

mod arriving;
mod codes;
mod crypto;
mod incoming;
mod leaving;
mod mrc;
mod orders;
mod pacer;
mod partial;
mod paths;
mod phase;
mod planes;
mod posted;
mod reads;
mod receiving;
mod roaming;
mod sending;
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
use crate::plane::Plane;
use crate::requests::Requests;
use crate::routes::Routes;
use crate::windows::Windows;
use codes::Codes;
use crypto::Crypto;
use mrc::Mrc;
pub(crate) use mrc::{Inner, queue_of};
use pacer::Pacer;
use partial::Partial;
use paths::Paths;
use phase::Phase;
use posted::Purpose;
pub(crate) use reads::Wanted;
use receiving::Receiving;
use sending::Sending;
use std::collections::VecDeque;
use std::net::SocketAddrV6;
use std::sync::Arc;
use strandway_fabric::usid::Element;
use strandway_proto::ControlMessage;
use strandway_proto::packet::{Header, Part};
use strandway_proto::profile::WireFormat;
use strandway_proto::read::ReadLimits;
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    Bytes, ConnectionId, ConnectionStats, Endpoint, Environment, HostId, OpenConnection, Profile, Span, Time,
};

/// If more completions than this wait for the application, further control messages are dropped. Ours.
const LETTERS_MAX: usize = 4_096;

/// The engine's number for the only connection of its endpoint.
const ONLY: ConnectionId = ConnectionId(0);
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

/// A connection after its handshake. [`Session::handle`] takes what arrives, [`Session::work`] sends what is due, and
/// [`Session::deadline`] says when it must be called again even if nothing arrives.
pub(crate) struct Session {
    handle: Connection,
    /// The node's time at which this session's own time is zero. The node sets its clock back now and then, while the
    /// session's time goes on: see [`crate::clock`].
    origin: i128,
    /// The id by which the peer addresses us, and the id by which we address the peer.
    local: u64,
    remote: u64,
    /// Did this side begin the connection?
    calls: bool,
    phase: Phase,
    endpoint: Endpoint,
    format: WireFormat,
    /// Payload bytes of a full packet.
    mtu: u64,
    crypto: Crypto,
    sending: Sending,
    receiving: Receiving,
    paths: Paths,
    /// Present if data travels in MRC's layout.
    mrc: Option<Box<Mrc>>,
    /// Parity, if the profile's messages may have an erasure code.
    codes: Option<Box<Codes>>,
    /// The memory of streams and receives, if the reliability is `partial`; sends, writes and receives are not used
    /// then.
    partial: Option<Box<Partial>>,
    counters: SessionCounters,
}

/// The things outside a session that it needs while it works.
pub(crate) struct NodeContext<'a> {
    /// Time of the node's clock; inside a session, time of its own clock.
    pub(crate) now: Time,
    pub(crate) routes: &'a Routes,
    /// The parts of the fabric that are denied.
    pub(crate) denied: &'a [Element],
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
            denied: self.denied,
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
        let (format, mtu) = (profile.wire, u64::from(profile.transport.mtu));
        let crypto = Crypto::new(config, secrets, calls, window_psn(&profile.reliability));
        let (codes, partial) = (Codes::new(&profile).map(Box::new), Partial::new(&profile).map(Box::new));
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
        for (plane, _) in ports.iter().enumerate().filter(|(_, up)| !**up) {
            endpoint.handle_port(now, plane as u8, false);
        }
        let reads = ReadLimits { reads: config.limits.reads.reads, bytes: config.limits.reads.bytes };
        let mut sending = Sending::new(config, (format, config.datagram_of(mtu as u32)), reads, pacer);
        sending.window.shared = endpoint.shares_window(ONLY);
        let none = || vec![0; peers.len()];
        let mut session = Session {
            handle,
            origin,
            local,
            remote,
            calls,
            phase: Phase::new(now, calls, crate::clock::span(config.timeouts.handshake)),
            endpoint,
            format,
            mtu,
            crypto,
            sending,
            receiving: Receiving::new(config, reads),
            paths: Paths::new(config, &peers, ports, monitor),
            mrc: match config.layout {
                Layout::Frame | Layout::Uet => None,
                Layout::Mrc { port } => Some(Box::new(Mrc::new(port, local, remote, calls, config.limits.incoming))),
            },
            codes,
            partial,
            counters: SessionCounters {
                sent_bytes: none(),
                received_bytes: none(),
                silences: none(),
                port_losses: none(),
                routes_lost: none(),
                ..SessionCounters::default()
            },
        };
        if config.path_reports.counts {
            session.endpoint.tally_paths(ONLY);
        }
        if !config.denied.parts.is_empty() {
            session.order(node_now, &config.routes, &[], &config.denied.parts);
        }
        session
    }

    pub(crate) fn counters(&self) -> SessionCounters {
        SessionCounters {
            engine: *self.endpoint.observe().stats(ONLY),
            window: self.endpoint.observe().window(ONLY),
            in_flight: self.endpoint.observe().in_flight(ONLY),
            active_paths: self.endpoint.observe().planes(ONLY).iter().map(|plane| plane.good + plane.skip).collect(),
            up: self.paths.up().collect(),
            ..self.counters.clone()
        }
    }

    /// The round trips that pings measured since the last call.
    pub(crate) fn take_rtts(&mut self) -> Vec<Span> {
        self.paths.take_rtts()
    }

    /// The last round trips of pings, with their planes. They stay.
    pub(crate) fn recent_rtts(&self) -> impl Iterator<Item = (u8, Span)> + '_ {
        self.paths.recent_rtts()
    }

    /// Has the peer shown that it has the keys?
    pub(crate) const fn is_confirmed(&self) -> bool {
        self.phase.is_confirmed()
    }

    /// Payload bytes of a full packet.
    pub(crate) const fn payload(&self) -> u32 {
        self.mtu as u32
    }

    /// The number of its peer monitor.
    pub(crate) const fn monitor(&self) -> u32 {
        self.paths.monitor
    }

    /// Does its monitor count it as active?
    pub(crate) const fn is_counted(&self) -> bool {
        self.paths.counted
    }

    /// The peer's name for the connection.
    pub(crate) const fn remote(&self) -> u64 {
        self.remote
    }

    /// Unfinished operations of ours other than receives.
    pub(crate) fn posted(&self) -> usize {
        self.sending.posted() + self.partial.as_ref().map_or(0, |partial| partial.posted())
    }

    /// Unfinished receives.
    pub(crate) fn receiving(&self) -> usize {
        self.receiving.open()
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
        self.sending.push(Purpose::Operation(operation), Some(place), descriptor);
        self.sending.admit(now, &mut self.endpoint);
    }

    /// Sends a control message at the next turn.
    pub(crate) fn control(&mut self, now: Time, control: ControlMessage) {
        let now = self.own(now);
        self.endpoint.send_control(now, ONLY, control);
    }

    pub(crate) fn receive(&mut self, operation: Operation, place: Place) {
        self.receiving.push(operation, place);
    }

    /// Is an operation of ours unfinished, or a message of the peer incomplete?
    fn is_active(&self) -> bool {
        self.posted() > 0
            || self.receiving.is_active()
            || self.mrc.as_ref().is_some_and(|mrc| mrc.is_receiving())
            || self.partial.as_ref().is_some_and(|partial| partial.is_active())
    }

    /// Releases the memory that unfinished operations hold.
    pub(crate) fn release(self, memory: &mut Memory) {
        let partial = self.partial.iter().flat_map(|partial| partial.places());
        for place in self.sending.places().chain(self.receiving.places()).chain(partial) {
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
mod hostile_peer;
#[cfg(test)]
mod tests;

//! The ports of an endpoint's NIC. When a port goes down, its connections and its peers learn of it at once. A port
//! that comes back is used again only after it has stayed up for `port_hold` and peers have answered several probes in
//! a row through it.
//!
//! This is only for connections whose path selector is MRC's; without such a connection, nothing is stored or sent.

use super::pauses::Pauses;
use super::{Endpoint, PORTS_TIMER, has, redirected};
use crate::packet::{Answer, Flags, Header, HostId, Operation, Packet, PathId};
use crate::path::MrcConfig;
use crate::units::{Span, Time};
use std::cmp::Reverse;

/// The ports of our NIC. Sets of ports have one bit for each.
pub(super) struct Nic {
    /// `None` before the first change of a port.
    states: Option<Box<PortStates>>,
    /// The ports that may be used; all of them until the world reports a port down.
    pub(super) up: u32,
    /// The ports that there are.
    pub(super) all: u32,
    /// The ports that take no data at present.
    pub(super) blocked: u32,
    /// The pauses of the ports by PFC; `None` before the first one.
    pub(super) pauses: Option<Box<Pauses>>,
}

impl Nic {
    pub(super) const fn new() -> Nic {
        Nic { states: None, up: u32::MAX, all: 0, blocked: 0, pauses: None }
    }
}

/// The state of our ports, kept from the first change on.
pub(super) struct PortStates {
    /// Ports that came back and are not used yet.
    rising: Vec<Rising>,
    /// The number of the latest status.
    number: u16,
    /// The number of the latest probe of a port.
    probe: u16,
    peers: Vec<Peer>,
    config: MrcConfig,
    /// The valid entry in the endpoint's timer heap.
    timer: Time,
}

/// A port that came back and is not used yet.
struct Rising {
    port: u8,
    /// Before the first probe: when it has been up long enough. Between probes: when the next one may be sent. While a
    /// probe is on its way: when that probe has failed.
    at: Time,
    /// The time between a failed probe and the next one, and the minimum timeout of a probe; `None` before the first
    /// probe.
    interval: Option<Span>,
    /// The probe on its way: its number and path.
    asked: Option<(u16, PathId)>,
    /// The number of probes answered in a row.
    ok: u32,
    /// The index of the peer that gets the probes.
    peer: usize,
}

impl Rising {
    const fn new(port: u8, at: Time) -> Rising {
        Rising { port, at, interval: None, asked: None, ok: 0, peer: 0 }
    }
}

/// Is it the probe of a port? Probes of paths are never in the queue of control packets.
const fn is_probe(packet: &Packet) -> bool {
    matches!(packet.header, Header::Operation { operation: Operation::PathProbe, .. })
}

/// A host that must know the state of our ports.
struct Peer {
    host: HostId,
    /// A connection to it.
    connection: u32,
    acknowledged: bool,
    /// The number of times that the present status was sent.
    sent: u32,
    /// When to send it again.
    at: Time,
}

/// A status without an answer is sent again after twice this time, then four times, and so on. Ours: longer than any
/// round trip.
const AGAIN: Span = Span::from_ms(1);
/// After this many, only the periodic refresh is sent: a peer that has answered none of them is probably gone.
const TRIES: u32 = 8;

impl PortStates {
    fn next(&self) -> Time {
        let rising = self.rising.iter().map(|r| r.at);
        rising.chain(self.peers.iter().map(|p| p.at)).min().unwrap_or(Time::NEVER)
    }
}

impl Endpoint {
    /// A port of our NIC went down, or is up again. Connections stop using a port that is down at once, and peers are
    /// told. A port that is up again is used after `port_hold` and enough answered probes. The world that owns the
    /// ports calls this.
    pub fn handle_port(&mut self, now: Time, port: u8, up: bool) {
        if port >= 32 {
            return;
        }
        if self.nic.states.is_none() {
            let Some(config) = self.connections.awake().find_map(|(_, c)| c.mrc()) else { return };
            let (peers, rising, timer) = (Vec::new(), Vec::new(), Time::NEVER);
            self.nic.states = Some(Box::new(PortStates { rising, number: 0, probe: 0, peers, config, timer }));
        }
        let Some(ports) = &mut self.nic.states else { return };
        let bit = 1 << port;
        if up {
            if self.nic.up & bit == 0 && !ports.rising.iter().any(|r| r.port == port) {
                ports.rising.push(Rising::new(port, now + ports.config.port_hold));
            }
        } else {
            ports.rising.retain(|r| r.port != port);
            self.control.retain(|packet| !is_probe(packet) || packet.path.port() != port);
            if self.nic.up & bit != 0 {
                self.nic.up &= !bit;
                self.announce(now);
            }
        }
        self.raise(now);
        self.arm_ports(now);
    }

    /// The peers do not answer on these planes, one bit each, by probes of the world that owns the ports: sockets send
    /// pings. Connections that are awake stop using them, and start again when a later call leaves them out. Unlike a
    /// port that is down, this is not told to peers. If a connection has no other plane, it goes on using them.
    pub fn handle_silence(&mut self, now: Time, planes: u32) {
        self.connections.awake().for_each(|(_, connection)| connection.handle_silence(now, planes));
    }

    /// Probes the ports that have stayed up for long enough, and uses those again for which enough probes were
    /// answered.
    fn raise(&mut self, now: Time) {
        let Some(ports) = &mut self.nic.states else { return };
        let config = &ports.config;
        let mut ready = 0;
        for rising in &mut ports.rising {
            if rising.at > now && rising.ok < config.probe_successes {
                continue;
            }
            // If no other port is up, the port is used without probes: it can only help. Otherwise two hosts without
            // other ports could each wait for the other's answer for ever.
            let alone = self.nic.up & self.nic.all & !(1 << rising.port) == 0;
            if !config.port_probe || alone || ports.peers.is_empty() || rising.ok >= config.probe_successes {
                ready |= 1 << rising.port;
                continue;
            }
            let ask = |peer: usize| &ports.peers[peer % ports.peers.len()];
            let base_rtt = |peer: &Peer| self.connections[peer.connection as usize].base_rtt();
            let first = base_rtt(ask(rising.peer)).scaled(config.probe_first);
            if rising.asked.take().is_some() {
                // The probe was not answered. The fault may lie with that peer, so the next probe goes to another one.
                let interval = (rising.interval.unwrap_or(first) * 2).min(config.probe_max);
                *rising =
                    Rising { at: now + interval, interval: Some(interval), ok: 0, peer: rising.peer + 1, ..*rising };
                continue;
            }
            let peer = ask(rising.peer);
            let interval = *rising.interval.get_or_insert(first);
            // The timeout grows with `interval`, so that a peer which answers slowly (a sleeping host) gets more time.
            rising.at = now + base_rtt(peer).scaled(config.probe_timeout).max(interval);
            let connection = &mut self.connections[peer.connection as usize];
            let Some(path) = connection.plane_path(rising.port) else { continue };
            ports.probe = ports.probe.wrapping_add(1);
            rising.asked = Some((ports.probe, path));
            let header = Header::Operation { number: ports.probe, operation: Operation::PathProbe };
            self.control.push_if_room(connection.control(path, Flags::NONE, header));
        }
        if ready != 0 {
            ports.rising.retain(|r| ready >> r.port & 1 == 0);
            self.nic.up |= ready;
            self.announce(now);
        }
    }

    /// A probe was answered: counts the answer if it was the probe of a port.
    pub(super) fn handle_port_answer(&mut self, now: Time, answer: &Answer) {
        let Some(ports) = &mut self.nic.states else { return };
        let asked = Some((answer.number, answer.path));
        let Some(rising) = ports.rising.iter_mut().find(|r| r.asked == asked) else { return };
        rising.asked = None;
        rising.ok += 1;
        let peer = &ports.peers[rising.peer % ports.peers.len()];
        rising.at = now + self.connections[peer.connection as usize].base_rtt().scaled(ports.config.probe_first);
        self.raise(now);
        self.arm_ports(now);
    }

    /// Tells connections and peers that the set of ports has changed.
    fn announce(&mut self, now: Time) {
        let Some(ports) = &mut self.nic.states else { return };
        ports.number = ports.number.wrapping_add(1);
        ports.peers.clear();
        let up = self.nic.up;
        for (id, connection) in self.connections.awake() {
            connection.handle_ports(now, up);
            if connection.mrc().is_some() && !ports.peers.iter().any(|p| p.host == connection.peer()) {
                let host = connection.peer();
                ports.peers.push(Peer { host, connection: id as u32, acknowledged: false, sent: 0, at: now });
            }
        }
        for id in 0..self.connections.slots() {
            if self.connections.get(id).is_some() {
                self.settle(now, id as u32);
            }
        }
        self.report_ports(now);
    }

    /// Sends the present status to every peer whose time to send has come.
    fn report_ports(&mut self, now: Time) {
        let Some(ports) = &mut self.nic.states else { return };
        let refresh = self.nic.up != u32::MAX;
        let copies = ports.config.status_copies;
        for peer in &mut ports.peers {
            if peer.at > now {
                continue;
            }
            let connection = &mut self.connections[peer.connection as usize];
            let header = Header::Operation { number: ports.number, operation: Operation::PortStatus(self.nic.up) };
            let planes = (0..32u8).filter(|port| self.nic.up >> port & 1 == 1);
            for path in planes.filter_map(|port| connection.plane_path(port)).take(copies as usize).collect::<Vec<_>>()
            {
                self.control.push_if_room(connection.control(path, Flags::NONE, header));
            }
            peer.sent += 1;
            let again = Span(AGAIN.0 << peer.sent.min(TRIES)).min(ports.config.status_refresh);
            peer.at = match (peer.acknowledged || peer.sent > TRIES, refresh) {
                (false, _) => now + again,
                (true, true) => now + ports.config.status_refresh,
                (true, false) => Time::NEVER,
            };
        }
    }

    fn arm_ports(&mut self, now: Time) {
        let Some(ports) = &mut self.nic.states else { return };
        let next = ports.next();
        if next < ports.timer {
            let at = next.max(now + super::DEADLINE_MIN);
            ports.timer = at;
            self.timers.push(Reverse((at, PORTS_TIMER)));
        }
    }

    pub(super) fn handle_ports_timeout(&mut self, now: Time, at: Time) {
        let Some(ports) = &mut self.nic.states else { return };
        if ports.timer == at {
            ports.timer = Time::NEVER;
        }
        self.raise(now);
        self.report_ports(now);
        self.arm_ports(now);
    }

    /// The first control packet whose own port is free. Only a packet whose port is down may leave by another port,
    /// because it is not known here which planes lead to its peer. A port that is up but not used yet sends only its
    /// probes.
    pub(super) fn take_control_of(&mut self, free: u32) -> Option<Packet> {
        if free == 0 {
            return None;
        }
        let usable = free & self.nic.up;
        // A peer may name a port that our NIC does not have.
        let ports = self.nic.up & self.nic.all;
        let strange = |port: u8| usable != 0 && !has(ports, port);
        let may = |packet: &Packet| {
            let port = packet.path.port();
            if is_probe(packet) { has(free, port) } else { has(usable, port) || strange(port) }
        };
        let packet = self.control.take(free, ports, may)?;
        let stays = is_probe(&packet) || has(usable, packet.path.port());
        Some(if stays { packet } else { redirected(packet, usable) })
    }

    /// A peer reports which of its ports are up: passes this to all connections to it.
    pub(super) fn handle_port_status(&mut self, now: Time, id: u32, number: u16, up: u32) {
        let peer = self.connections[id as usize].peer();
        for other in 0..self.connections.slots() {
            if self.connections.get(other).is_some_and(|connection| connection.peer() == peer) {
                self.connections[other].handle_peer_ports(now, number, up);
                self.settle(now, other as u32);
            }
        }
        // The peer may now answer probes that it could not answer before, so rising ports are probed again at once. A
        // copy of the same status changes nothing more, because the new probe's interval is the first one.
        let Some(ports) = &mut self.nic.states else { return };
        let first = self.connections[id as usize].base_rtt().scaled(ports.config.probe_first);
        for rising in &mut ports.rising {
            if has(up, rising.port) && rising.interval.is_some_and(|interval| interval > first) {
                let peer = ports.peers.iter().position(|p| p.host == peer).unwrap_or(rising.peer);
                *rising = Rising { peer, ..Rising::new(rising.port, now) };
            }
        }
        self.raise(now);
        self.arm_ports(now);
    }

    /// A connection to this host is gone. If the status went over this connection, another one to the host takes its
    /// place; without one, the host gets no more status.
    pub(super) fn leave_peers(&mut self, id: u32, host: HostId) {
        let Some(ports) = &mut self.nic.states else { return };
        let Some(at) = ports.peers.iter().position(|p| p.connection == id) else { return };
        let mut others = self.connections.awake();
        let other = others.find(|(other, c)| *other != id as usize && c.peer() == host && c.mrc().is_some());
        match other {
            Some((other, _)) => ports.peers[at].connection = other as u32,
            None => drop(ports.peers.remove(at)),
        }
    }

    /// A peer has acknowledged our status.
    pub(super) fn handle_status_answer(&mut self, now: Time, id: u32, number: u16) {
        let host = self.connections[id as usize].peer();
        let Some(ports) = &mut self.nic.states else { return };
        let refresh = self.nic.up != u32::MAX;
        let every = ports.config.status_refresh;
        if let Some(peer) = ports.peers.iter_mut().find(|p| p.host == host)
            && number == ports.number
            && !peer.acknowledged
        {
            peer.acknowledged = true;
            peer.at = if refresh { now + every } else { Time::NEVER };
        }
        self.arm_ports(now);
    }
}

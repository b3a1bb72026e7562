//! What an endpoint does about its NIC's ports: its connections learn at once that one is down, and so do its peers.
//!
//! Only connections whose path selector is MRC's take part; without any, nothing is remembered or sent.

use super::{Endpoint, PORTS_TIMER};
use crate::packet::{Flags, Header, HostId, Operation, Packet};
use crate::path::MrcConfig;
use crate::units::{Span, Time};
use std::cmp::Reverse;

/// What is known of our ports, from the first change on.
pub(super) struct PortStates {
    /// Ports that came back and have to stay for a while first, and when that is over.
    rising: Vec<(Time, u8)>,
    /// The number of the latest status.
    number: u16,
    peers: Vec<Peer>,
    config: MrcConfig,
    /// The valid entry in the endpoint's timer heap.
    timer: Time,
}

/// One of the hosts that want to know.
struct Peer {
    host: HostId,
    /// A connection to it.
    connection: u32,
    acknowledged: bool,
    /// How often the present status was sent.
    sent: u32,
    /// When to send it again.
    at: Time,
}

/// Unanswered, a status goes again after this, then after twice as long, and so on. Ours: beyond any round trip.
const AGAIN: Span = Span::from_ms(1);
/// ... so often; a peer that answers none of these is gone, and the refresh will do.
const TRIES: u32 = 8;

/// Control packets that are looked at for one whose port is free. Ours: as many as wait during one packet's time.
const LOOKAHEAD: usize = 32;

impl PortStates {
    fn next(&self) -> Time {
        let rising = self.rising.iter().map(|r| r.0);
        rising.chain(self.peers.iter().map(|p| p.at)).min().unwrap_or(Time::NEVER)
    }
}

impl Endpoint {
    /// A port of our NIC went down, or is up again. Connections stop using it at once, and peers are told; a port that is up
    /// again is used once it has stayed so for a while. To be called by the world that owns the ports.
    pub fn handle_port(&mut self, now: Time, port: u8, up: bool) {
        if port >= 32 {
            return;
        }
        if self.ports.is_none() {
            let Some(config) = self.connections.iter().find_map(|c| c.mrc()) else { return };
            let (peers, rising) = (Vec::new(), Vec::new());
            self.ports = Some(Box::new(PortStates { rising, number: 0, peers, config, timer: Time::NEVER }));
        }
        let Some(ports) = &mut self.ports else { return };
        let bit = 1 << port;
        if up {
            if self.up & bit == 0 && !ports.rising.iter().any(|r| r.1 == port) {
                ports.rising.push((now + ports.config.port_hold, port));
            }
        } else {
            ports.rising.retain(|r| r.1 != port);
            if self.up & bit != 0 {
                self.up &= !bit;
                self.announce(now);
            }
        }
        self.raise(now);
        self.arm_ports(now);
    }

    /// Ports that have stayed up for long enough are used again.
    fn raise(&mut self, now: Time) {
        let Some(ports) = &mut self.ports else { return };
        let mut ready = 0;
        ports.rising.retain(|&(at, port)| {
            ready |= if at <= now { 1 << port } else { 0 };
            at > now
        });
        if ready != 0 {
            self.up |= ready;
            self.announce(now);
        }
    }

    /// The set of ports has changed: connections and peers must know.
    fn announce(&mut self, now: Time) {
        let Some(ports) = &mut self.ports else { return };
        ports.number = ports.number.wrapping_add(1);
        ports.peers.clear();
        let up = self.up;
        for (id, connection) in self.connections.iter_mut().enumerate() {
            connection.handle_ports(now, up);
            if connection.mrc().is_some() && !ports.peers.iter().any(|p| p.host == connection.peer()) {
                let host = connection.peer();
                ports.peers.push(Peer { host, connection: id as u32, acknowledged: false, sent: 0, at: now });
            }
        }
        for id in 0..self.connections.len() {
            self.settle(now, id as u32);
        }
        self.tell(now);
    }

    /// Sends the present status to every peer whose turn it is.
    fn tell(&mut self, now: Time) {
        let Some(ports) = &mut self.ports else { return };
        let refresh = self.up != u32::MAX;
        let copies = ports.config.status_copies;
        for peer in &mut ports.peers {
            if peer.at > now {
                continue;
            }
            let connection = &mut self.connections[peer.connection as usize];
            let header = Header::Operation { number: ports.number, operation: Operation::PortStatus(self.up) };
            let planes = (0..32u8).filter(|port| self.up >> port & 1 == 1);
            for path in planes.filter_map(|port| connection.plane_path(port)).take(copies as usize).collect::<Vec<_>>()
            {
                if self.control.len() < super::CONTROL_MAX {
                    self.control.push_back(connection.control(path, Flags::NONE, header));
                }
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
        let Some(ports) = &mut self.ports else { return };
        let next = ports.next();
        if next < ports.timer {
            let at = next.max(now + super::DEADLINE_MIN);
            ports.timer = at;
            self.timers.push(Reverse((at, PORTS_TIMER)));
        }
    }

    pub(super) fn handle_ports_timeout(&mut self, now: Time, at: Time) {
        let Some(ports) = &mut self.ports else { return };
        if ports.timer == at {
            ports.timer = Time::NEVER;
        }
        self.raise(now);
        self.tell(now);
        self.arm_ports(now);
    }

    /// The first control packet whose own port is free; only one whose port is down may leave by another, since we cannot tell
    /// here which planes lead to its peer. Few are looked at: a port is busy for one packet's time.
    pub(super) fn take_control_of(&mut self, free: u32) -> Option<Packet> {
        let may = |packet: &Packet| {
            let bit = 1u32.checked_shl(u32::from(packet.path.port())).unwrap_or(0);
            // A peer may have made a port up.
            free & bit != 0 || self.up & self.nic & bit == 0
        };
        let at = self.control.iter().take(LOOKAHEAD).position(may)?;
        self.control.remove(at)
    }

    /// A peer says which of its ports are up: all connections to it should know.
    pub(super) fn handle_port_status(&mut self, now: Time, id: u32, number: u16, up: u32) {
        let peer = self.connections[id as usize].peer();
        for other in 0..self.connections.len() {
            if self.connections[other].peer() == peer {
                self.connections[other].handle_peer_ports(now, number, up);
                self.settle(now, other as u32);
            }
        }
    }

    /// A peer has heard of our status.
    pub(super) fn handle_status_answer(&mut self, now: Time, id: u32, number: u16) {
        let host = self.connections[id as usize].peer();
        let Some(ports) = &mut self.ports else { return };
        let refresh = self.up != u32::MAX;
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

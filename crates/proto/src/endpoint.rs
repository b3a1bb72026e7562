//! A host: its connections, which of them is ready, and their timers.

mod contexts;
mod ports;

use crate::account::{Spent, Waits};
use crate::connection::{Connection, Polled};
use crate::environment::Environment;
use crate::message::Message;
use crate::packet::{Answer, ConnectionId, Header, HostId, MessageId, Operation, Packet, PathId, Ports};
use crate::path::{PathState, PlaneStates};
use crate::profile::Profile;
use crate::reliability::{Receiver, Reliability};
use crate::rng::Random;
use crate::stats::ConnectionStats;
use crate::units::{Bytes, Span, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

/// What the application learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message of ours is wholly acknowledged.
    Sent {
        /// On this connection.
        connection: ConnectionId,
        /// The application's number for it.
        message: MessageId,
    },
    /// A peer's message is wholly here.
    Received {
        /// On this connection.
        connection: ConnectionId,
        /// The peer's number for it.
        message: MessageId,
        /// Its length.
        bytes: Bytes,
    },
    /// A connection has used up its retries, or its peer ended it: what is not finished never will be, and nothing more is
    /// sent. Told once.
    Failed {
        /// This connection.
        connection: ConnectionId,
    },
}

/// What it takes to open a connection; both sides open their end with the same profile.
#[derive(Clone, Debug)]
pub struct OpenConnection {
    /// The protocol.
    pub profile: Arc<Profile>,
    /// The world it runs in.
    pub environment: Environment,
    /// The other host.
    pub peer: HostId,
    /// The connection as the other host numbers it.
    pub peer_connection: ConnectionId,
    /// Its random stream.
    pub random: Random,
}

/// A host's transport: told things (`post`, `handle_…`) and asked things (`poll_…`).
///
/// It owns no socket, clock, thread or payload. Time is an argument and never runs backwards. Inputs may pile up between
/// polls; polling late loses nothing and polling twice is harmless. `poll_transmit` is a *pull* for a port that is idle
/// now: the simulator asks when a port falls idle, a node on sockets asks until its batch is full.
pub struct Endpoint {
    host: HostId,
    connections: Vec<Connection>,
    /// Connections that may have something to send, each at most once, in round-robin order.
    ready: VecDeque<u32>,
    control: VecDeque<Packet>,
    /// Control packets sent since data last had a turn.
    streak: u32,
    control_burst: u32,
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    events: VecDeque<Event>,
    strays: u64,
    ports: Option<Box<ports::PortStates>>,
    /// The ports that may be used, one bit each; all of them until the world tells otherwise.
    up: u32,
    /// The ports that our NIC has.
    nic: u32,
    /// The ports that take no data at present, one bit each.
    blocked: u32,
    /// Some connection tells good planes from bad ones: control packets keep to theirs.
    planes_differ: bool,
    contexts: Vec<contexts::Context>,
    /// The first connection with messages to each host, where windows are shared.
    destinations: BTreeMap<contexts::Destination, u32>,
}

/// Is this port one of these?
#[inline]
fn has(ports: u32, port: u8) -> bool {
    // A peer may have made a port up.
    ports.checked_shr(u32::from(port)).unwrap_or(0) & 1 == 1
}

/// The packet, by the lowest of these ports.
fn redirected(packet: Packet, ports: u32) -> Packet {
    Packet { path: PathId::new(ports.trailing_zeros() as u8, packet.path.entropy()), ..packet }
}

/// Stands for the ports rather than a connection in the timer heap.
const PORTS_TIMER: u32 = u32::MAX;

/// Control packets that wait for a port at the most; beyond it the oldest acknowledgement is dropped, since later ones
/// say more.
const CONTROL_MAX: usize = 65_536;

/// How far ahead of now a deadline that has passed already is put, so that no policy can make time stand still. Far below any
/// round trip: ours.
const DEADLINE_MIN: Span = Span::from_ns(1);

impl Endpoint {
    /// A host without connections.
    pub fn new(host: HostId) -> Endpoint {
        Endpoint {
            host,
            connections: Vec::new(),
            ready: VecDeque::new(),
            control: VecDeque::new(),
            streak: 0,
            control_burst: 10,
            timers: BinaryHeap::new(),
            events: VecDeque::new(),
            strays: 0,
            ports: None,
            up: u32::MAX,
            nic: 0,
            blocked: 0,
            planes_differ: false,
            contexts: Vec::new(),
            destinations: BTreeMap::new(),
        }
    }

    /// Opens a connection and returns our number for it; numbers count up from 0.
    pub fn open(&mut self, open: OpenConnection) -> ConnectionId {
        let id = ConnectionId(self.connections.len() as u32);
        self.control_burst = open.profile.transport.control_burst;
        self.nic |= Ports::first(open.environment.ports).control;
        let peer = (open.peer, open.peer_connection);
        let mut connection = Connection::new(open.profile, &open.environment, self.host, peer, open.random);
        if self.up != u32::MAX {
            connection.handle_ports(Time::ZERO, self.up);
        }
        self.planes_differ |= connection.mrc().is_some();
        self.connections.push(connection);
        id
    }

    /// The application posts a message.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn post(&mut self, now: Time, to: ConnectionId, message: Message) {
        if self.connections[to.0 as usize].is_to_join() {
            self.join(to.0);
        }
        self.connections[to.0 as usize].post(now, message);
        self.settle(now, to.0);
    }

    /// A packet arrived.
    #[inline]
    pub fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let id = packet.connection.0;
        let Some(connection) = self.connections.get_mut(id as usize) else {
            self.strays += 1;
            return;
        };
        let control = &mut self.control;
        let mut reply = |packet: Packet| {
            if control.len() >= CONTROL_MAX {
                control.pop_front();
            }
            control.push_back(packet);
        };
        match &packet.header {
            Header::Data(data) => {
                connection.handle_data(now, packet, data, &mut reply);
                while let Some((message, bytes)) = connection.receiver.take_received() {
                    self.events.push_back(Event::Received {
                        connection: packet.connection,
                        message,
                        bytes: Bytes(bytes),
                    });
                }
                if connection.wants_idle_probe() {
                    self.settle(now, id);
                }
                return;
            }
            Header::Probe { number } => {
                connection.handle_probe(now, packet, *number, &mut reply);
                if connection.wants_idle_probe() {
                    self.settle(now, id);
                }
                return;
            }
            Header::Ack(ack) => {
                let context = self.lend(id);
                self.connections[id as usize].handle_ack(now, ack, packet.flags);
                self.take_back(id, context);
            }
            Header::Nack(nack) => {
                let context = self.lend(id);
                self.connections[id as usize].handle_nack(now, nack, packet.flags);
                self.take_back(id, context);
                if self.connections[id as usize].take_failure() {
                    self.events.push_back(Event::Failed { connection: packet.connection });
                }
            }
            Header::Cnp => connection.handle_notification(now),
            Header::Operation { number, operation } => {
                connection.handle_operation(now, packet, *number, *operation, &mut reply);
                if let Operation::PortStatus(up) = *operation {
                    self.handle_port_status(now, id, *number, up);
                }
                return self.settle(now, id);
            }
            Header::Answer(Answer { port_status: true, number, .. }) => {
                return self.handle_status_answer(now, id, *number);
            }
            Header::Answer(answer) => {
                connection.handle_answer(now, answer);
                self.handle_port_answer(now, answer);
            }
        }
        while let Some(message) = self.connections[id as usize].reliability.take_finished() {
            self.events.push_back(Event::Sent { connection: packet.connection, message: message.id });
        }
        self.settle(now, id);
    }

    /// Time has passed: to be called at [`Endpoint::poll_timeout`] or later.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(&Reverse((at, id))) = self.timers.peek() {
            if at > now {
                return;
            }
            self.timers.pop();
            if id == PORTS_TIMER {
                self.handle_ports_timeout(now, at);
                continue;
            }
            let connection = &mut self.connections[id as usize];
            if connection.timer == at {
                // The entry that it had set aside is still in the heap.
                connection.timer = std::mem::replace(&mut connection.timer_behind, Time::NEVER);
                let context = self.lend(id);
                self.connections[id as usize].handle_timeout(now);
                self.take_back(id, context);
                if self.connections[id as usize].take_failure() {
                    self.events.push_back(Event::Failed { connection: ConnectionId(id) });
                }
                self.settle(now, id);
            }
        }
    }

    /// After an input: puts a connection into the ready list and its deadline into the heap.
    #[inline]
    fn settle(&mut self, now: Time, id: u32) {
        let connection = &mut self.connections[id as usize];
        let shares = connection.context().is_some();
        if !connection.ready && connection.wants() && (!shares || connection.wants_at_once()) {
            connection.ready = true;
            self.ready.push_back(id);
        }
        if shares {
            self.queue_up(id);
        }
        self.keep_time(now, id);
        self.arm(now, id);
    }

    /// What a connection does from now on.
    #[inline]
    fn keep_time(&mut self, now: Time, id: u32) {
        let blocked = self.up & self.nic & !self.blocked == 0;
        let open = self.connections[id as usize].context().map(|c| self.contexts[c as usize].is_open);
        self.connections[id as usize].keep_time(now, open, blocked);
    }

    /// A port takes no data from now on, since PFC has paused it or it is down, or takes data again. The world must not offer
    /// such a port for data; this is for the accounts only.
    pub fn handle_blocked(&mut self, now: Time, port: u8, blocked: bool) {
        let bit = 1u32.checked_shl(u32::from(port)).unwrap_or(0);
        self.blocked = if blocked { self.blocked | bit } else { self.blocked & !bit };
        for i in 0..self.ready.len() {
            self.keep_time(now, self.ready[i]);
        }
    }

    #[inline]
    fn arm(&mut self, now: Time, id: u32) {
        let connection = &mut self.connections[id as usize];
        let deadline = connection.deadline(now);
        let deadline = if deadline > now { deadline } else { now + DEADLINE_MIN };
        if deadline < connection.timer {
            // Pacing comes and goes before the same retransmission timeout: that entry is kept, not pushed again.
            connection.timer_behind = connection.timer_behind.min(connection.timer);
            connection.timer = deadline;
            self.timers.push(Reverse((deadline, id)));
        }
    }

    /// A port is idle: the packet to fill it with, if there is one.
    ///
    /// Control packets go first, but after a burst of them data has a turn. Connections take turns packet by packet.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, free: Ports) -> Option<Packet> {
        let control_first = self.streak < self.control_burst || self.ready.is_empty() || free.data == 0;
        if control_first && let Some(packet) = self.take_control(free) {
            self.streak += 1;
            return Some(packet);
        }
        if free.data != 0 {
            let mut tries = self.ready.len();
            while tries > 0 {
                tries -= 1;
                let id = self.ready.pop_front()?;
                let context = self.lend(id);
                let polled = self.connections[id as usize].poll_transmit(now, free);
                self.take_back(id, context);
                match polled {
                    Polled::Packet(packet, more) => {
                        let goes_on = more && self.keeps_turn(id);
                        self.connections[id as usize].ready = goes_on;
                        if goes_on {
                            self.ready.push_back(id);
                        } else if more {
                            self.queue_up(id);
                        } else {
                            self.end_turn(id);
                        }
                        self.arm(now, id);
                        self.streak = 0;
                        return Some(packet);
                    }
                    Polled::Blocked => {
                        self.connections[id as usize].ready = false;
                        // Another one may have its turn instead.
                        tries += usize::from(self.end_turn(id));
                        self.arm(now, id);
                    }
                    Polled::NoPort => self.ready.push_back(id),
                }
            }
        }
        if control_first { None } else { self.take_control(free) }
    }

    /// A control packet leaves by the port that its data came in by, or else by the lowest free one; with MRC, whose idle planes
    /// may be the dead ones, by its own port only.
    #[inline]
    fn take_control(&mut self, free: Ports) -> Option<Packet> {
        if self.planes_differ {
            return self.take_control_of(free.control);
        }
        let free = free.control & self.up;
        if free == 0 {
            return None;
        }
        let packet = self.control.pop_front()?;
        Some(if has(free, packet.path.port()) { packet } else { redirected(packet, free) })
    }

    /// Is there anything that `poll_transmit` might give, ports and pace permitting?
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        !self.ready.is_empty() || !self.control.is_empty()
    }

    /// Is there a control packet to send?
    #[inline]
    pub fn wants_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// What the application should know, oldest first.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Endpoint::handle_timeout`]; may be early, never late. `None` when nothing is owed.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.peek().map(|&Reverse((at, _))| at)
    }

    /// Reads what handling a packet of this connection will need, so that it is in the cache by then. It changes nothing;
    /// the value means nothing.
    #[inline]
    pub fn touch(&self, connection: ConnectionId) -> u64 {
        self.connections.get(connection.0 as usize).map_or(0, Connection::touch)
    }

    /// As [`Endpoint::touch`], for the connection that is asked first when a port falls idle.
    #[inline]
    pub fn touch_ready(&self) -> u64 {
        self.ready.front().map_or(0, |&id| self.connections[id as usize].touch())
    }

    /// Our host number.
    pub const fn host(&self) -> HostId {
        self.host
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// The host at the other end of a connection.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn peer(&self, connection: ConnectionId) -> HostId {
        self.connections[connection.0 as usize].peer()
    }

    /// A connection's counters.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn stats(&self, connection: ConnectionId) -> &ConnectionStats {
        &self.connections[connection.0 as usize].stats
    }

    /// Where a connection's time went up to `now`, as a sender. The difference of two readings adds up to the time between
    /// them.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn spent(&mut self, now: Time, connection: ConnectionId) -> Spent {
        self.connections[connection.0 as usize].spent(now)
    }

    /// Has a connection something to send that it never sent yet, or that it has to send again?
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn has_unsent(&self, connection: ConnectionId) -> bool {
        let reliability = &self.connections[connection.0 as usize].reliability;
        reliability.has_next() || reliability.is_held()
    }

    /// What the data packets that came to a connection met on their way.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn waits(&self, connection: ConnectionId) -> Waits {
        self.connections[connection.0 as usize].waits()
    }

    /// A connection's profile.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn profile(&self, connection: ConnectionId) -> &Profile {
        self.connections[connection.0 as usize].profile()
    }

    /// A connection's congestion window in wire bytes.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn window(&self, connection: ConnectionId) -> Bytes {
        self.shared_window(connection.0).map_or_else(|| self.connections[connection.0 as usize].window(), Bytes)
    }

    /// What a connection's path selector holds against each path at present, in the selector's own units; empty if it keeps
    /// no such record.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn penalties(&self, connection: ConnectionId) -> Vec<u32> {
        self.connections[connection.0 as usize].penalties()
    }

    /// How the paths of each plane (NIC port) of a connection fare: how many are in use, in reserve, assumed bad or denied;
    /// empty if its path selector keeps no such record.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn planes(&self, connection: ConnectionId) -> Vec<PlaneStates> {
        self.connections[connection.0 as usize].planes()
    }

    /// Every path of a connection's set and its state; empty if its path selector keeps no such record.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn path_states(&self, connection: ConnectionId) -> Vec<PathState> {
        self.connections[connection.0 as usize].path_states()
    }

    /// Paths that a connection has taken out so far, those that came back, and those it kept because too few were left.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn path_turnover(&self, connection: ConnectionId) -> [u64; 3] {
        self.connections[connection.0 as usize].path_turnover()
    }

    /// The controller forbids a connection a path until it allows it again. False if the connection does not have it.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn deny_path(&mut self, now: Time, connection: ConnectionId, path: PathId) -> bool {
        self.connections[connection.0 as usize].deny_path(now, path)
    }

    /// The controller declares a connection's path good, whatever was held against it. False if the connection does not have
    /// it.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn allow_path(&mut self, now: Time, connection: ConnectionId, path: PathId) -> bool {
        let known = self.connections[connection.0 as usize].allow_path(now, path);
        self.settle(now, connection.0);
        known
    }

    /// A connection's wire bytes in flight.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn in_flight(&self, connection: ConnectionId) -> Bytes {
        self.connections[connection.0 as usize].reliability.in_flight()
    }

    /// The first PSN that a connection has not received.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn received_up_to(&self, connection: ConnectionId) -> u64 {
        self.connections[connection.0 as usize].receiver.cumulative()
    }

    /// Packets for connections that do not exist.
    pub const fn strays(&self) -> u64 {
        self.strays
    }
}

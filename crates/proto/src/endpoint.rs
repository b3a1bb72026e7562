//! The transport of one host: its connections, the list of those that are ready to send, and their timers.

mod cast;
mod contexts;
mod control;
mod credits;
mod event;
mod life;
mod observer;
mod partial;
mod paths;
mod pauses;
mod ports;
mod prefetch;
mod ready;
mod table;
mod telemetry;
mod trackers;
mod window;

use crate::connection::{Connection, Kind, Polled};
use crate::control_message::ControlMessage;
use crate::message::Message;
use crate::packet::{Answer, ConnectionId, Header, HostId, Operation, Packet, Part, PathId, Ports};
use crate::queue::push_small;
use crate::reliability::Receiver;
use crate::stats::ConnectionStats;
use crate::units::{Bytes, Span, Time};
use control::{CONTROL_MAX, ControlQueue};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

pub use event::{Event, Handled, OpenConnection};
pub use observer::{Census, Observer};
pub use prefetch::PrefetchStep;
pub use window::SharedWindow;

/// A host's transport: a state machine without socket, clock, thread or payload.
///
/// Its calls are of five kinds:
///
/// - *Set-up*: [`Endpoint::new`], [`Endpoint::open`], [`Endpoint::accept`], [`Endpoint::refuse`], [`Endpoint::close`],
///   and [`Endpoint::learn_from`], [`Endpoint::keep_records`], [`Endpoint::keep_ended`], [`Endpoint::tally_paths`] for
///   what is kept.
/// - *Inputs*, in which the world reports what has happened: [`Endpoint::handle_packet`] (or
///   [`Endpoint::handle_packet_with`] telemetry), [`Endpoint::handle_timeout`], [`Endpoint::handle_port`],
///   [`Endpoint::handle_blocked`], [`Endpoint::grant_window`].
/// - *Outputs*, for which the world asks: [`Endpoint::poll_transmit`], [`Endpoint::poll_event`],
///   [`Endpoint::poll_timeout`]; and, where they are used, [`Endpoint::take_telemetry`], [`Endpoint::take_window`],
///   [`Endpoint::take_ended`], [`Endpoint::take_path_event`].
/// - Calls of the *application*: [`Endpoint::post`], [`Endpoint::send_control`], [`Endpoint::cast`],
///   [`Endpoint::send_fragment`]; streams and receives of partial completion ([`Endpoint::begin_stream`],
///   [`Endpoint::expect`] and so on); a controller's [`Endpoint::deny_path`], [`Endpoint::allow_path`],
///   [`Endpoint::substitute_path`].
/// - *Observers*, which change nothing: those of [`Endpoint::observe`].
///
/// After inputs and calls of the application, the world asks for outputs: events until there are none, packets as long
/// as ports are idle, and then the time of the next timeout. Time is an argument and never runs backwards. Several
/// inputs may come between two polls; a late poll loses nothing, and a second poll does no harm. `poll_transmit`
/// returns a packet for a port that is idle now: the simulator calls it when a port becomes idle, a node on sockets
/// calls it until its batch is full.
pub struct Endpoint {
    host: HostId,
    connections: table::Connections,
    /// The kinds of connections opened last.
    kinds: Vec<Arc<Kind>>,
    /// The times at which to check whether a connection is still used, in order. Each connection that is awake and may
    /// sleep has one entry.
    waking: VecDeque<(Time, u32)>,
    /// The counters of closed connections, and of sleeping connections without records; `None` before the first.
    closed_stats: Option<Box<ConnectionStats>>,
    /// Sleeping connections keep their counters.
    keeps_records: bool,
    /// Connections that may have something to send, each at most once, in round-robin order.
    ready: ready::Ready,
    control: ControlQueue,
    /// Control packets sent since the last data packet.
    streak: u32,
    /// The smallest `control_burst` of all connections' profiles.
    control_burst: u32,
    /// Wire bytes of a control packet.
    control_size: u16,
    timers: Timers,
    events: VecDeque<Event>,
    strays: u64,
    nic: ports::Nic,
    /// Some connection uses MRC, which tells good planes from bad ones: each control packet leaves only by its own
    /// port.
    planes_differ: bool,
    contexts: Vec<contexts::Context>,
    /// Contexts without members.
    free_contexts: Vec<u32>,
    /// For each host, the first connection that posted messages to it, if windows are shared.
    destinations: contexts::Destinations,
    unconnected: cast::Unconnected,
    trackers: trackers::Trackers,
    /// The pace of credit that it gives; `None` before the first connection that uses credit.
    credits: Option<Box<credits::CreditPacer>>,
    /// The records that waiting answers take along; `None` before the first ones.
    echoes: Option<Box<telemetry::Echoes>>,
}

/// Why a port takes no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// PFC paused it.
    Paused,
    /// It is down.
    Down,
}

/// Is `port` in the set `ports`?
#[inline]
fn has(ports: u32, port: u8) -> bool {
    // A peer may name a port number that does not exist, 32 or larger.
    ports.checked_shr(u32::from(port)).unwrap_or(0) & 1 == 1
}

/// The timer heap: time and slot.
type Timers = BinaryHeap<Reverse<(Time, u32)>>;

/// Puts a connection's deadline into the heap if it is earlier than the connection's timer.
#[inline]
fn arm(timers: &mut Timers, connection: &mut Connection, now: Time, id: u32) {
    let deadline = connection.deadline(now);
    if deadline < connection.alarm.at {
        set_timer(timers, connection, if deadline > now { deadline } else { now + DEADLINE_MIN }, id);
    }
}

#[inline(never)]
fn set_timer(timers: &mut Timers, connection: &mut Connection, deadline: Time, id: u32) {
    if deadline < connection.alarm.at {
        // A pacing deadline often comes before the same retransmission timeout. The timeout's entry stays in the heap,
        // so it is not pushed again.
        connection.alarm.behind = connection.alarm.behind.min(connection.alarm.at);
        connection.alarm.at = deadline;
        timers.push(Reverse((deadline, id)));
    }
}

/// The packet with the lowest of `ports` as its port.
fn redirected(packet: Packet, ports: u32) -> Packet {
    Packet { path: PathId::new(ports.trailing_zeros() as u8, packet.path.entropy()), ..packet }
}

/// In the timer heap: an entry for the ports instead of a connection.
const PORTS_TIMER: u32 = u32::MAX;

/// In the timer heap: an entry for the pace of chunks.
const CASTS_TIMER: u32 = u32::MAX - 1;

/// A deadline that has already passed is set to this much after `now`, so that no policy can fire again and again at
/// the same instant. Ours: far below any round trip.
const DEADLINE_MIN: Span = Span::from_ns(1);

impl Endpoint {
    /// A host without connections.
    pub fn new(host: HostId) -> Endpoint {
        Endpoint {
            host,
            connections: table::Connections::default(),
            kinds: Vec::new(),
            waking: VecDeque::new(),
            closed_stats: None,
            keeps_records: true,
            ready: ready::Ready::new(),
            control: ControlQueue::default(),
            streak: 0,
            control_burst: u32::MAX,
            control_size: 0,
            timers: BinaryHeap::new(),
            events: VecDeque::new(),
            strays: 0,
            nic: ports::Nic::new(),
            planes_differ: false,
            contexts: Vec::new(),
            free_contexts: Vec::new(),
            destinations: contexts::Destinations::default(),
            unconnected: cast::Unconnected::default(),
            trackers: trackers::Trackers::default(),
            credits: None,
            echoes: None,
        }
    }

    /// The application posts a message. On a closed connection this does nothing; [`Event::Closed`] has reported the
    /// end.
    pub fn post(&mut self, now: Time, to: ConnectionId, message: Message) {
        let Some(slot) = self.connections.find(to) else { return };
        self.wake(now, slot);
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.is_to_join() {
            self.join(to.slot());
        }
        self.connections[slot].post(now, message);
        self.settle(now, to.slot());
    }

    /// A packet arrived. A chunk or a fragment belongs to no connection and counts as a stray here: the world must hand
    /// it to the host's program instead.
    #[inline]
    pub fn handle_packet(&mut self, now: Time, packet: &Packet) -> Handled {
        if let Header::Data(data) = &packet.header
            && let Some(connection) = self.connections.awake_at(packet.connection)
        {
            let control = &mut self.control;
            let before = if self.trackers.are_limited() { connection.receiver.held() } else { 0 };
            let fresh = connection.handle_data(now, packet, data, &mut |packet| control.push(packet));
            if self.trackers.are_limited() {
                self.trackers.change(before, connection.receiver.held());
                control.announce(self.trackers.range());
            }
            let settles = connection.wants_idle_probe();
            let wants_credit = connection.note_target(packet, data);
            while let Some((message, bytes)) = connection.receiver.take_received() {
                let connection = packet.connection;
                push_small(&mut self.events, Event::Received { connection, message, bytes: Bytes(bytes) });
            }
            if settles {
                self.settle(now, packet.connection.slot());
            }
            if wants_credit {
                self.want_credit(now, packet.connection.slot() as usize);
            }
            return if fresh { Handled::Fresh } else { Handled::Here };
        }
        self.handle_other(now, packet)
    }

    /// As [`Endpoint::handle_packet`], for all packets except data of an awake connection that carry our number.
    fn handle_other(&mut self, now: Time, packet: &Packet) -> Handled {
        if let Header::Chunk(_) | Header::Fragment(_) = packet.header {
            return self.stray();
        }
        let Some(slot) = self.connections.named_by(packet.source, packet.connection) else {
            return self.handle_unknown(now, packet);
        };
        if self.connections.get(slot).is_none() && !self.wake_for(now, slot, packet) {
            // A closing connection accepts no data.
            return if let Header::Data(_) | Header::Part(_) = packet.header { self.stray() } else { Handled::Here };
        }
        if let Header::Part(part) = &packet.header {
            return self.deliver_part(now, slot, packet, part);
        }
        if let Header::Data(_) = packet.header {
            // With our own number, `handle_packet` finds the connection at once.
            let ours = Packet { connection: self.connections.id(slot), ..*packet };
            return self.handle_packet(now, &ours);
        }
        self.deliver(now, slot, packet);
        Handled::Here
    }

    /// A part of a message arrived for the one-way connection in this slot.
    fn deliver_part(&mut self, now: Time, slot: usize, packet: &Packet, part: &Part) -> Handled {
        let connection = &mut self.connections[slot];
        let control = &mut self.control;
        let fresh = connection.handle_part(now, packet, part, &mut |packet| control.push(packet));
        while let Some((message, bytes)) = self.connections[slot].receiver.take_received() {
            let connection = self.connections.id(slot);
            self.events.push_back(Event::Received { connection, message, bytes: Bytes(bytes) });
        }
        self.settle(now, slot as u32);
        if fresh { Handled::Fresh } else { Handled::Here }
    }

    /// A packet other than data arrived for the connection in this slot.
    fn deliver(&mut self, now: Time, slot: usize, packet: &Packet) {
        let id = slot as u32;
        let connection = &mut self.connections[slot];
        let control = &mut self.control;
        let mut reply = |packet: Packet| control.push(packet);
        match &packet.header {
            Header::Data(_) | Header::Part(_) | Header::Chunk(_) | Header::Fragment(_) => {
                unreachable!("data takes another way")
            }
            Header::Probe { number } => {
                connection.handle_probe(now, packet, *number, &mut reply);
                if connection.wants_idle_probe() {
                    self.settle(now, id);
                }
                return;
            }
            Header::Ack(ack) => {
                let context = self.grant(id);
                self.connections[id as usize].handle_ack(now, ack, packet.flags);
                self.take_back(id, context);
            }
            Header::Nack(nack) => {
                let context = self.grant(id);
                self.connections[id as usize].handle_nack(now, nack, packet.flags);
                self.take_back(id, context);
                self.report_failure(slot);
            }
            Header::Control(control @ ControlMessage::Custom { .. }) => {
                let connection = self.connections.id(slot);
                return self.events.push_back(Event::Control { connection, control: *control });
            }
            Header::Control(message @ (ControlMessage::Credit { .. } | ControlMessage::CreditRequest { .. })) => {
                if connection.handle_credit(now, packet, *message) {
                    self.want_credit(now, slot);
                }
                return self.settle(now, id);
            }
            Header::Control(message) => {
                if !connection.is_one_way() {
                    connection.record.stats.invalid += 1;
                    return;
                }
                let context = self.grant(id);
                let control = &mut self.control;
                let connection = &mut self.connections[id as usize];
                connection.handle_control(now, packet, message, &mut |packet| control.push(packet));
                self.take_back(id, context);
                self.report_failure(slot);
            }
            Header::Cnp => connection.handle_notification(now),
            Header::Operation { operation: Operation::Close(_) | Operation::Closed, .. } => {
                return self.handle_end(now, slot, packet);
            }
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
        self.take_finished(slot);
        self.settle(now, id);
    }

    /// Queues an event for each message that a connection has finished.
    fn take_finished(&mut self, slot: usize) {
        while let Some(message) = self.connections[slot].take_finished() {
            let event = Event::Sent { connection: self.connections.id(slot), message: message.id };
            push_small(&mut self.events, event);
        }
    }

    /// Queues an event if a connection has given up.
    fn report_failure(&mut self, slot: usize) {
        if self.connections[slot].take_failure() {
            self.events.push_back(Event::Failed { connection: self.connections.id(slot) });
        }
    }

    /// Runs the timers that have ended. Call it at [`Endpoint::poll_timeout`] or later.
    pub fn handle_timeout(&mut self, now: Time) {
        self.connections.forget(now);
        self.send_to_sleep(now);
        while let Some(&Reverse((at, id))) = self.timers.peek() {
            if at > now {
                return;
            }
            self.timers.pop();
            if id == PORTS_TIMER {
                self.handle_ports_timeout(now, at);
                continue;
            }
            if id == CASTS_TIMER {
                // The next `poll_transmit` finds that the pace allows a chunk.
                continue;
            }
            if id == credits::CREDITS_TIMER {
                self.handle_credits_timeout(now);
                continue;
            }
            let Some(connection) = self.connections.get_mut(id as usize) else {
                self.handle_closing_timeout(now, at, id as usize);
                continue;
            };
            if connection.alarm.at == at {
                // The entry that it had set aside is still in the heap.
                connection.alarm.at = std::mem::replace(&mut connection.alarm.behind, Time::NEVER);
                let context = self.grant(id);
                if let Some(pauses) = &self.nic.pauses {
                    self.connections[id as usize].wait_for_pauses(now, |port, from| pauses.within(port, from, now));
                }
                let control = &mut self.control;
                self.connections[id as usize].handle_timeout(now, &mut |packet| control.push(packet));
                self.take_back(id, context);
                self.report_failure(id as usize);
                if self.connections[id as usize].is_one_way() {
                    self.take_finished(id as usize);
                }
                self.settle(now, id);
            }
        }
    }

    /// After an input: puts a connection into the ready list and its deadline into the heap.
    #[inline]
    fn settle(&mut self, now: Time, id: u32) {
        self.ready.ask_again(id);
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

    /// Updates the account of a connection's time.
    #[inline]
    fn keep_time(&mut self, now: Time, id: u32) {
        let blocked = self.nic.up & self.nic.all & !self.nic.blocked == 0;
        let open = self.connections[id as usize].context().map(|c| self.contexts[c as usize].is_open);
        self.connections[id as usize].keep_time(now, open, blocked);
    }

    /// A port stops or resumes (`None`) taking data. The world must not offer a blocked port for data. This call
    /// updates the accounts, and the retransmission timers of connections with one port do not run while PFC pauses
    /// that port.
    pub fn handle_blocked(&mut self, now: Time, port: u8, blocked: Option<Blocked>) {
        let bit = 1u32.checked_shl(u32::from(port)).unwrap_or(0);
        self.nic.blocked = if blocked.is_some() { self.nic.blocked | bit } else { self.nic.blocked & !bit };
        let paused = blocked == Some(Blocked::Paused);
        if bit != 0 && (paused || self.nic.pauses.is_some()) {
            self.nic.pauses.get_or_insert_default().set(now, port, paused);
        }
        for i in 0..self.ready.len() {
            let id = self.ready.at(i);
            self.ready.ask_again(id);
            self.keep_time(now, id);
        }
    }

    /// Sets the timer again after a connection's deadline may have become earlier.
    #[inline]
    fn arm(&mut self, now: Time, id: u32) {
        arm(&mut self.timers, &mut self.connections[id as usize], now, id);
    }

    /// The next packet for an idle port in `free`, if there is one.
    ///
    /// Control packets go first, but after `control_burst` of them one data packet goes. Connections take turns, one
    /// packet each.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, free: Ports) -> Option<Packet> {
        let mut packet = Packet::BLANK;
        self.poll_transmit_into(now, free, &mut packet).then_some(packet)
    }

    /// As [`Endpoint::poll_transmit`], but writes the packet to its place. False if there is none; then the place may
    /// hold anything.
    #[inline]
    pub fn poll_transmit_into(&mut self, now: Time, free: Ports, into: &mut Packet) -> bool {
        let no_data = self.ready.is_empty() && !self.unconnected.waiting;
        let control_first = self.streak < self.control_burst || no_data || free.data == 0;
        if control_first && self.take_control(free, into) {
            self.streak += 1;
            return true;
        }
        if free.data != 0 && self.take_data_or_chunk(now, free, into) {
            self.streak = 0;
            return true;
        }
        !control_first && self.take_control(free, into)
    }

    /// Connections and chunks take turns.
    #[inline]
    fn take_data_or_chunk(&mut self, now: Time, free: Ports, into: &mut Packet) -> bool {
        if self.unconnected.waiting {
            self.take_chunk_in_turn(now, free, into)
        } else {
            self.take_data(now, free, into)
        }
    }

    /// The packet of the first ready connection whose path leaves by a free port.
    #[inline]
    fn take_data(&mut self, now: Time, free: Ports, into: &mut Packet) -> bool {
        let mut tries = self.ready.len();
        while let Some(id) = self.ready.pop(free.data, &mut tries) {
            let connection = &mut self.connections[id as usize];
            if connection.sharing.is_some() {
                match self.poll_sharing(now, id, free, into) {
                    Polled::Packet { .. } => return true,
                    Polled::Blocked => {
                        // Another connection may now have the turn.
                        tries += usize::from(self.end_turn(id));
                        self.arm(now, id);
                    }
                    Polled::NoPort => {}
                }
                continue;
            }
            if let Some(credit) = &mut connection.credit {
                credit.sender.rivals = self.ready.len() as u32;
            }
            match connection.poll_transmit(now, free, into) {
                Polled::Packet { more } => {
                    if more {
                        self.ready.push_back(id);
                    } else {
                        connection.ready = false;
                    }
                    arm(&mut self.timers, connection, now, id);
                    return true;
                }
                Polled::Blocked => {
                    connection.ready = false;
                    arm(&mut self.timers, connection, now, id);
                }
                Polled::NoPort => match connection.only_port() {
                    Some(port) => self.ready.push_waiting(id, port),
                    None => self.ready.push_back(id),
                },
            }
        }
        false
    }

    /// A control packet leaves by the port by which its data arrived, or else by the lowest free port. With MRC it
    /// leaves only by its own port, because another plane may be idle because it is broken.
    #[inline]
    fn take_control(&mut self, free: Ports, into: &mut Packet) -> bool {
        if self.control.is_empty() {
            return false;
        }
        if self.planes_differ {
            return self.take_control_of(free.control).map(|packet| *into = packet).is_some();
        }
        let free = free.control & self.nic.up;
        if free == 0 {
            return false;
        }
        let Some(packet) = self.control.pop() else { return false };
        *into = packet;
        if !has(free, packet.path.port()) {
            *into = redirected(packet, free);
        }
        true
    }

    /// Could `poll_transmit` return a packet, if ports and pace allow it?
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        !self.ready.is_empty() || !self.control.is_empty() || self.unconnected.waiting
    }

    /// Is there a control packet to send?
    #[inline]
    pub fn wants_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// The next event for the application, oldest first.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Is there an event for the application?
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// When to call [`Endpoint::handle_timeout`]; may be early, never late. `None` if no timer runs.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.peek().map(|&Reverse((at, _))| at)
    }

    /// Our host number.
    pub const fn host(&self) -> HostId {
        self.host
    }
}

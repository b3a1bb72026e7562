//! A host: its connections, which of them is ready, and their timers.

mod cast;
mod contexts;
mod event;
mod life;
mod partial;
mod ports;
mod ready;
mod table;
mod watch;
mod window;

use crate::cast::{Casts, Fragments};
use crate::connection::{Connection, Kind, Polled};
use crate::letter::Letter;
use crate::message::Message;
use crate::packet::{Answer, ConnectionId, Header, HostId, Operation, Packet, Part, PathId, Ports};
use crate::reliability::Receiver;
use crate::stats::ConnectionStats;
use crate::units::{Bytes, Span, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

pub use event::{Event, Handled, OpenConnection};
pub use watch::Census;
pub use window::SharedWindow;

/// A host's transport: told things (`post`, `handle_…`) and asked things (`poll_…`).
///
/// It owns no socket, clock, thread or payload. Time is an argument and never runs backwards. Inputs may pile up between
/// polls; polling late loses nothing and polling twice is harmless. `poll_transmit` is a *pull* for a port that is idle
/// now: the simulator asks when a port falls idle, a node on sockets asks until its batch is full.
pub struct Endpoint {
    host: HostId,
    connections: table::Connections,
    /// The kinds of connections opened last.
    kinds: Vec<Arc<Kind>>,
    /// When to look whether a connection is still used, in order; each that may sleep and is awake is here once.
    waking: VecDeque<(Time, u32)>,
    /// What connections counted that are closed, or asleep without records.
    closed_stats: ConnectionStats,
    /// Connections that sleep keep what they counted.
    keeps_records: bool,
    /// Connections that may have something to send, each at most once, in round-robin order.
    ready: ready::Ready,
    control: VecDeque<Packet>,
    /// Control packets sent since data last had a turn.
    streak: u32,
    /// The least that any connection's profile allows.
    control_burst: u32,
    /// Wire bytes of a control packet.
    control_size: u16,
    timers: Timers,
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
    /// Contexts without members.
    free_contexts: Vec<u32>,
    /// The first connection with messages to each host, where windows are shared.
    destinations: BTreeMap<contexts::Destination, u32>,
    /// Chunks that are to leave without a connection, if there ever were any.
    casts: Option<Box<Casts>>,
    /// Fragments that are to leave, likewise.
    fragments: Option<Box<Fragments>>,
    /// There are chunks or fragments now.
    casting: bool,
    /// The next turn for data is that of chunks and fragments, where connections have data, too.
    casts_first: bool,
    /// The next turn among these is that of fragments.
    fragments_first: bool,
}

/// Is this port one of these?
#[inline]
fn has(ports: u32, port: u8) -> bool {
    // A peer may have made a port up.
    ports.checked_shr(u32::from(port)).unwrap_or(0) & 1 == 1
}

/// The timer heap: when, and which slot.
type Timers = BinaryHeap<Reverse<(Time, u32)>>;

/// A connection's deadline that is earlier than its timer goes into the heap.
#[inline]
fn arm(timers: &mut Timers, connection: &mut Connection, now: Time, id: u32) {
    let deadline = connection.deadline(now);
    if deadline < connection.timer {
        set_timer(timers, connection, if deadline > now { deadline } else { now + DEADLINE_MIN }, id);
    }
}

#[inline(never)]
fn set_timer(timers: &mut Timers, connection: &mut Connection, deadline: Time, id: u32) {
    if deadline < connection.timer {
        // Pacing comes and goes before the same retransmission timeout: that entry is kept, not pushed again.
        connection.timer_behind = connection.timer_behind.min(connection.timer);
        connection.timer = deadline;
        timers.push(Reverse((deadline, id)));
    }
}

/// A control packet waits for a port.
#[inline]
fn push_control(control: &mut VecDeque<Packet>, packet: Packet) {
    if control.len() >= CONTROL_MAX {
        control.pop_front();
    }
    control.push_back(packet);
}

/// The packet, by the lowest of these ports.
fn redirected(packet: Packet, ports: u32) -> Packet {
    Packet { path: PathId::new(ports.trailing_zeros() as u8, packet.path.entropy()), ..packet }
}

/// Stands for the ports rather than a connection in the timer heap.
const PORTS_TIMER: u32 = u32::MAX;

/// Stands for the pace of chunks.
const CASTS_TIMER: u32 = u32::MAX - 1;

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
            connections: table::Connections::default(),
            kinds: Vec::new(),
            waking: VecDeque::new(),
            closed_stats: ConnectionStats::NONE,
            keeps_records: true,
            ready: ready::Ready::new(),
            control: VecDeque::new(),
            streak: 0,
            control_burst: u32::MAX,
            control_size: 0,
            timers: BinaryHeap::new(),
            events: VecDeque::new(),
            strays: 0,
            ports: None,
            up: u32::MAX,
            nic: 0,
            blocked: 0,
            planes_differ: false,
            contexts: Vec::new(),
            free_contexts: Vec::new(),
            destinations: BTreeMap::new(),
            casts: None,
            fragments: None,
            casting: false,
            casts_first: false,
            fragments_first: false,
        }
    }

    /// The application posts a message. On a connection that is closed it does nothing: [`Event::Closed`] says so.
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

    /// A packet arrived. A chunk or a fragment belongs to no connection and is a stray here: worlds hand it to the host's program.
    #[inline]
    pub fn handle_packet(&mut self, now: Time, packet: &Packet) -> Handled {
        if let Header::Data(data) = &packet.header
            && let Some(connection) = self.connections.awake_at(packet.connection)
        {
            let control = &mut self.control;
            let fresh = connection.handle_data(now, packet, data, &mut |packet| push_control(control, packet));
            let settles = connection.wants_idle_probe();
            while let Some((message, bytes)) = connection.receiver.take_received() {
                let connection = packet.connection;
                self.events.push_back(Event::Received { connection, message, bytes: Bytes(bytes) });
            }
            if settles {
                self.settle(now, packet.connection.slot());
            }
            return if fresh { Handled::Fresh } else { Handled::Here };
        }
        self.handle_other(now, packet)
    }

    /// As [`Endpoint::handle_packet`], for everything but data of a connection that our number names and that is awake.
    fn handle_other(&mut self, now: Time, packet: &Packet) -> Handled {
        if let Header::Chunk(_) | Header::Fragment(_) = packet.header {
            return self.stray();
        }
        let Some(slot) = self.connections.named_by(packet.source, packet.connection) else {
            return self.handle_unknown(now, packet);
        };
        if self.connections.get(slot).is_none() && !self.rouse(now, slot, packet) {
            // A connection that is closing takes no data any more.
            return if let Header::Data(_) | Header::Part(_) = packet.header { self.stray() } else { Handled::Here };
        }
        if let Header::Part(part) = &packet.header {
            return self.deliver_part(now, slot, packet, part);
        }
        if let Header::Data(_) = packet.header {
            // By our own number, it takes the short way.
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
        let fresh = connection.handle_part(now, packet, part, &mut |packet| push_control(control, packet));
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
        let mut reply = |packet: Packet| push_control(control, packet);
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
                let context = self.lend(id);
                self.connections[id as usize].handle_ack(now, ack, packet.flags);
                self.take_back(id, context);
            }
            Header::Nack(nack) => {
                let context = self.lend(id);
                self.connections[id as usize].handle_nack(now, nack, packet.flags);
                self.take_back(id, context);
                self.look_for_failure(slot);
            }
            Header::Letter(letter @ Letter::Custom { .. }) => {
                let connection = self.connections.id(slot);
                return self.events.push_back(Event::Letter { connection, letter: *letter });
            }
            Header::Letter(letter) => {
                if !connection.is_one_way() {
                    connection.record.stats.invalid += 1;
                    return;
                }
                let context = self.lend(id);
                let control = &mut self.control;
                let connection = &mut self.connections[id as usize];
                connection.handle_letter(now, packet, letter, &mut |packet| push_control(control, packet));
                self.take_back(id, context);
                self.look_for_failure(slot);
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

    /// Tells of messages that a connection has finished.
    fn take_finished(&mut self, slot: usize) {
        while let Some(message) = self.connections[slot].take_finished() {
            self.events.push_back(Event::Sent { connection: self.connections.id(slot), message: message.id });
        }
    }

    /// Tells of a connection that has given up.
    fn look_for_failure(&mut self, slot: usize) {
        if self.connections[slot].take_failure() {
            self.events.push_back(Event::Failed { connection: self.connections.id(slot) });
        }
    }

    /// Time has passed: to be called at [`Endpoint::poll_timeout`] or later.
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
                // Whoever asks next finds that pace allows it.
                continue;
            }
            let Some(connection) = self.connections.get_mut(id as usize) else {
                self.handle_closing_timeout(now, at, id as usize);
                continue;
            };
            if connection.timer == at {
                // The entry that it had set aside is still in the heap.
                connection.timer = std::mem::replace(&mut connection.timer_behind, Time::NEVER);
                let context = self.lend(id);
                let control = &mut self.control;
                self.connections[id as usize].handle_timeout(now, &mut |packet| push_control(control, packet));
                self.take_back(id, context);
                self.look_for_failure(id as usize);
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
            let id = self.ready.at(i);
            self.ready.ask_again(id);
            self.keep_time(now, id);
        }
    }

    /// A connection's deadline may have come nearer.
    #[inline]
    fn arm(&mut self, now: Time, id: u32) {
        arm(&mut self.timers, &mut self.connections[id as usize], now, id);
    }

    /// A port is idle: the packet to fill it with, if there is one.
    ///
    /// Control packets go first, but after a burst of them data has a turn. Connections take turns packet by packet.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, free: Ports) -> Option<Packet> {
        let no_data = self.ready.is_empty() && !self.casting;
        let control_first = self.streak < self.control_burst || no_data || free.data == 0;
        if control_first && let Some(packet) = self.take_control(free) {
            self.streak += 1;
            return Some(packet);
        }
        if free.data != 0
            && let Some(packet) = self.take_data_or_chunk(now, free)
        {
            self.streak = 0;
            return Some(packet);
        }
        if control_first { None } else { self.take_control(free) }
    }

    /// Connections and chunks take turns.
    #[inline]
    fn take_data_or_chunk(&mut self, now: Time, free: Ports) -> Option<Packet> {
        if self.casting { self.take_chunk_in_turn(now, free) } else { self.take_data(now, free) }
    }

    /// The packet of the first connection that is ready and finds its way free.
    #[inline]
    fn take_data(&mut self, now: Time, free: Ports) -> Option<Packet> {
        let mut tries = self.ready.len();
        while let Some(id) = self.ready.pop(free.data, &mut tries) {
            let connection = &mut self.connections[id as usize];
            if connection.sharing.is_some() {
                match self.poll_sharing(now, id, free) {
                    Polled::Packet(packet, _) => return Some(packet),
                    Polled::Blocked => {
                        // Another one may have its turn instead.
                        tries += usize::from(self.end_turn(id));
                        self.arm(now, id);
                    }
                    Polled::NoPort => {}
                }
                continue;
            }
            match connection.poll_transmit(now, free) {
                Polled::Packet(packet, more) => {
                    if more {
                        self.ready.push_back(id);
                    } else {
                        connection.ready = false;
                    }
                    arm(&mut self.timers, connection, now, id);
                    return Some(packet);
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
        None
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
        !self.ready.is_empty() || !self.control.is_empty() || self.casting
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

    /// Reads what handling this packet will need, so that it is in the cache by then. It changes nothing; the value means
    /// nothing.
    #[inline]
    pub fn prefetch(&self, packet: &Packet) -> u64 {
        let Some(connection) = self.connections.get(packet.connection.slot() as usize) else { return 0 };
        if let Header::Data(_) = packet.header { connection.prefetch_receiver() } else { connection.prefetch_sender() }
    }

    /// As [`Endpoint::prefetch`], for the connection that is asked first when a port falls idle.
    #[inline]
    pub fn prefetch_ready(&self) -> u64 {
        let first = self.ready.first().and_then(|id| self.connections.get(id as usize));
        first.map_or(0, Connection::prefetch_sender)
    }

    /// Our host number.
    pub const fn host(&self) -> HostId {
        self.host
    }

    /// How many connections there are, those that are closing included.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Packets for connections that do not exist.
    pub const fn strays(&self) -> u64 {
        self.strays
    }
}

//! How connections begin, sleep, wake and end.
//!
//! The opener may send at once. If its peer has not opened the other end, packets carry the opener's number, and the
//! peer's world opens its end when the first of them arrives ([`Endpoint::accept`]). Either end may close; it repeats
//! its notice until the other end answers. After a connection that a peer opened is closed, its number is remembered
//! for the life of a packet, so that a late copy of its first packet does not open it again.

use super::table::{Closing, SlotState};
use super::{Endpoint, Event, Handled, OpenConnection};
use crate::connection::{DormantConnection, Kind};
use crate::control_message::ControlMessage;
use crate::packet::{ConnectionId, Flags, Header, Operation, Packet, PathId, Ports};
use crate::path::PathSelector;
use crate::reliability::Receiver;
use crate::units::{Span, Time};
use std::cmp::Reverse;
use std::sync::Arc;

/// The notice that a connection is closed is sent at most this many times. Ours: if half of all packets are lost, fewer
/// than one in a hundred such exchanges stay unanswered.
const TELL_MAX: u32 = 20;
/// The time between two notices doubles this many times.
const DOUBLINGS: u32 = 6;
/// An endpoint remembers this many kinds of connections, so that new connections share them.
const KINDS: usize = 16;

impl Endpoint {
    /// Copies the kinds of connections that another endpoint knows. This saves memory and time in a world with many
    /// endpoints.
    pub fn learn_from(&mut self, other: &Endpoint) {
        let room = (KINDS / 2).saturating_sub(self.kinds.len());
        self.kinds.extend(other.kinds.iter().take(room).cloned());
    }

    /// Opens a connection and returns our number for it. Numbers count up from 0; the slot of a closed connection is
    /// used again with another generation.
    ///
    /// A connection takes about 100 bytes until it is used. With MRC's paths or shared windows it takes its full size
    /// at once.
    ///
    /// # Panics
    /// If there are [`ConnectionId::SLOTS`] connections already.
    pub fn open(&mut self, now: Time, open: OpenConnection) -> ConnectionId {
        let slot = self.connections.reserve();
        let id = self.connections.id(slot);
        let name = open.peer_connection.unwrap_or_else(|| id.by_source());
        self.fill(now, slot, open, name);
        id
    }

    /// Opens our end of a connection that the peer has opened, after [`Handled::Unknown`]: `peer_connection` is the
    /// number that the unknown packet carried. The packet may then be handled again.
    ///
    /// # Panics
    /// If there is no peer's number, or as [`Endpoint::open`].
    pub fn accept(&mut self, now: Time, open: OpenConnection) -> ConnectionId {
        let name = open.peer_connection.expect("a connection that the peer has opened has its number");
        let peer = open.peer;
        if let Some(slot) = self.connections.named_by(peer, name.by_source()) {
            return self.connections.id(slot);
        }
        let slot = self.connections.reserve();
        self.connections.name(peer, name.by_source(), slot);
        self.fill(now, slot, open, name.by_receiver());
        self.connections.id(slot)
    }

    /// Refuses a connection that a peer has opened, after [`Handled::Unknown`]: the peer gets a notice that it is
    /// closed.
    pub fn refuse(&mut self, now: Time, packet: &Packet) {
        if packet.connection.is_by_source() {
            self.connections.mark_closed(now, packet.source, packet.connection);
            self.send_closed(packet, packet.connection.by_receiver());
        }
    }

    fn fill(&mut self, now: Time, slot: usize, open: OpenConnection, name: ConnectionId) {
        self.connections.forget(now);
        self.connections.lengthen_life(open.environment.packet_life);
        self.control_size = open.profile.transport.control as u16;
        self.control_burst = self.control_burst.min(open.profile.transport.control_burst);
        self.nic.all |= Ports::first(open.environment.ports).control;
        let kind = self.kind(open.profile, open.environment);
        let reliability = &kind.profile.reliability;
        self.trackers.open(reliability.trackers(), reliability.range().unwrap_or(0));
        self.control.announce(self.trackers.range());
        self.planes_differ |= kind.mrc.is_some();
        let sleeps = kind.sleep_after.is_some();
        *self.connections.state_mut(slot) =
            SlotState::Asleep(Box::new(DormantConnection::new(kind, (open.peer, name), open.random)));
        if !sleeps {
            self.wake(now, slot);
        }
    }

    /// The kind of connections with this profile in this environment: an existing one if there is one.
    fn kind(&mut self, profile: Arc<crate::Profile>, environment: crate::Environment) -> Arc<Kind> {
        if let Some(kind) = self.kinds.iter().find(|kind| kind.is(&profile, &environment)) {
            return Arc::clone(kind);
        }
        if self.kinds.len() == KINDS {
            self.kinds.remove(0);
        }
        let kind = Arc::new(Kind::new(profile, environment, &self.kinds));
        self.kinds.push(Arc::clone(&kind));
        kind
    }

    /// Wakes a connection that is about to be used.
    pub(super) fn wake(&mut self, now: Time, slot: usize) {
        let state = self.connections.state_mut(slot);
        let SlotState::Asleep(_) = state else { return };
        let SlotState::Asleep(dormant) = std::mem::replace(state, SlotState::Free) else { unreachable!("it sleeps") };
        let sleep_after = dormant.kind.sleep_after;
        let mut connection = Box::new(dormant.wake(self.host));
        if self.nic.up != u32::MAX {
            connection.handle_ports(now, self.nic.up);
        }
        if let Some(span) = sleep_after {
            connection.look_at = now + span;
            *state = SlotState::Awake(connection);
            self.waking.push_back((now + span, slot as u32));
            self.send_to_sleep(now);
        } else {
            *state = SlotState::Awake(connection);
        }
    }

    /// Checks the connections whose time to look has come: those unused for `sleep_after` go to sleep.
    #[inline]
    pub(super) fn send_to_sleep(&mut self, now: Time) {
        if self.waking.front().is_some_and(|(at, _)| *at <= now) {
            self.close_unused(now);
        }
    }

    #[cold]
    fn close_unused(&mut self, now: Time) {
        while let Some(&(at, slot)) = self.waking.front().filter(|(at, _)| *at <= now) {
            self.waking.pop_front();
            // The slot may hold another connection by now, which has its own entry.
            let Some(connection) = self.connections.get_mut(slot as usize).filter(|c| c.look_at == at) else {
                continue;
            };
            let Some(span) = connection.kind().sleep_after else { continue };
            let unused = connection.active_at() + span <= now;
            if unused && let Some(mut dormant) = connection.dormant(now) {
                if !self.keeps_records {
                    let record = dormant.take_record();
                    **self.closed_stats.get_or_insert_default() += record;
                }
                *self.connections.state_mut(slot as usize) = SlotState::Asleep(Box::new(dormant));
            } else {
                // The new entry goes to the end, so the entries stay in order of time.
                connection.look_at = now + span;
                self.waking.push_back((now + span, slot));
            }
        }
    }

    /// Closes a connection. The notice to the peer is repeated until the peer answers; then, or if it never answers,
    /// [`Event::Closed`] reports the end.
    ///
    /// Call it when the application needs no more messages: messages that are unfinished at either end stay unfinished.
    /// Closing a connection that is already closed or closing does nothing.
    pub fn close(&mut self, now: Time, id: ConnectionId) {
        let Some(slot) = self.connections.find(id) else { return };
        let unused = match self.connections.state(slot) {
            SlotState::Asleep(dormant) => dormant.is_unused() && dormant.peer_connection.is_by_source(),
            SlotState::Awake(_) => false,
            SlotState::Free | SlotState::Closing(_) => return,
        };
        if unused {
            // The peer has never heard of it.
            return self.end(now, slot);
        }
        self.wake(now, slot);
        self.leave(slot as u32);
        let SlotState::Awake(connection) = std::mem::replace(self.connections.state_mut(slot), SlotState::Free) else {
            unreachable!("it was woken")
        };
        **self.closed_stats.get_or_insert_default() += connection.record.stats;
        let (peer, name) = (connection.peer(), connection.peer_connection());
        let kind = Arc::clone(connection.kind());
        let accepted = self.connections.is_named(peer, name.by_source(), slot);
        let closing = Closing {
            peer,
            name,
            reply_to: if accepted { name.by_source() } else { id },
            path: connection.into_path(),
            size: kind.profile.transport.control as u16,
            tries: 0,
            timer: Time::NEVER,
            again: kind.profile.reliability.timeout(&kind.environment),
        };
        *self.connections.state_mut(slot) = SlotState::Closing(Box::new(closing));
        self.send_close(now, slot);
    }

    /// Sends a control message on a connection: one control packet, which is not sent again if it is lost. False if the
    /// connection is closed.
    pub fn send_control(&mut self, now: Time, id: ConnectionId, control: ControlMessage) -> bool {
        let Some(slot) = self.connections.find(id) else { return false };
        self.wake(now, slot);
        let all = self.nic.up & self.nic.all;
        let Some(connection) = self.connections.get_mut(slot) else { return false };
        let ports = Ports { data: all, control: all };
        let path = connection.draw_path(now, ports);
        let path = path.unwrap_or(PathId::new(all.trailing_zeros().min(31) as u8, 0));
        let packet = connection.control(path, Flags::NONE, Header::Control(control));
        self.queue_control(packet);
        true
    }

    /// Sends the peer the notice that a connection is closed, for the first time or again.
    fn send_close(&mut self, now: Time, slot: usize) {
        let all = self.nic.up & self.nic.all;
        let SlotState::Closing(closing) = self.connections.state_mut(slot) else { return };
        if closing.tries == TELL_MAX {
            return self.end(now, slot);
        }
        let path = closing.path.next(now, Ports { data: all, control: all });
        let wait = Span(closing.again.0 << closing.tries.min(DOUBLINGS));
        closing.tries += 1;
        closing.timer = now + wait;
        let packet = Packet {
            source: self.host,
            destination: closing.peer,
            connection: closing.name,
            path: path.unwrap_or(PathId::new(all.trailing_zeros().min(31) as u8, 0)),
            size: closing.size,
            flags: Flags::NONE,
            header: Header::Operation { number: closing.tries as u16, operation: Operation::Close(closing.reply_to) },
        };
        self.timers.push(Reverse((closing.timer, slot as u32)));
        self.queue_control(packet);
    }

    /// Runs the timer of a connection that is not awake.
    #[cold]
    pub(super) fn handle_closing_timeout(&mut self, now: Time, at: Time, slot: usize) {
        if matches!(self.connections.state(slot), SlotState::Closing(closing) if closing.timer == at) {
            self.send_close(now, slot);
        }
    }

    /// Handles a packet for a connection that is not awake: wakes a sleeping one. True if the packet may be handled
    /// now.
    #[cold]
    pub(super) fn wake_for(&mut self, now: Time, slot: usize, packet: &Packet) -> bool {
        if let SlotState::Asleep(_) = self.connections.state(slot) {
            self.wake(now, slot);
            return true;
        }
        if let Header::Operation { operation: Operation::Close(_) | Operation::Closed, .. } = packet.header {
            self.handle_end(now, slot, packet);
        }
        false
    }

    /// The peer closes a connection, or says that it has none.
    #[cold]
    pub(super) fn handle_end(&mut self, now: Time, slot: usize, packet: &Packet) {
        if self.observe().peer(self.connections.id(slot)) != packet.source {
            self.strays += 1;
            return;
        }
        if let Header::Operation { operation: Operation::Close(reply_to), .. } = packet.header {
            self.send_closed(packet, reply_to);
        }
        self.end(now, slot);
    }

    /// A packet of a connection that we do not have.
    #[cold]
    pub(super) fn handle_unknown(&mut self, now: Time, packet: &Packet) -> Handled {
        let id = packet.connection;
        let opens = id.is_by_source() && !self.connections.is_closed(packet.source, id);
        match packet.header {
            Header::Operation { operation: Operation::Close(reply_to), .. } => {
                if opens {
                    // The notice has overtaken the connection's first packets.
                    self.connections.mark_closed(now, packet.source, id);
                }
                self.send_closed(packet, reply_to);
                Handled::Here
            }
            Header::Data(_) | Header::Part(_) | Header::Probe { .. } | Header::Control(_) if opens => Handled::Unknown,
            // The peer may not know yet that the connection is closed.
            Header::Data(_) | Header::Part(_) | Header::Control(_) if id.is_by_source() => {
                self.send_closed(packet, id.by_receiver());
                self.stray()
            }
            _ => self.stray(),
        }
    }

    pub(super) fn stray(&mut self) -> Handled {
        self.strays += 1;
        Handled::Stray
    }

    /// Ends a connection: frees its slot.
    fn end(&mut self, now: Time, slot: usize) {
        self.leave(slot as u32);
        let id = self.connections.id(slot);
        let (peer, name) = match self.connections.release(slot) {
            SlotState::Awake(connection) => {
                **self.closed_stats.get_or_insert_default() += connection.record.stats;
                (connection.peer(), connection.peer_connection())
            }
            SlotState::Asleep(dormant) => {
                **self.closed_stats.get_or_insert_default() += *dormant.stats();
                (dormant.peer, dormant.peer_connection)
            }
            SlotState::Closing(closing) => (closing.peer, closing.name),
            SlotState::Free => unreachable!("a connection ends once"),
        };
        if self.connections.is_named(peer, name.by_source(), slot) {
            self.connections.mark_closed(now, peer, name.by_source());
        }
        self.events.push_back(Event::Closed { connection: id });
    }

    /// Removes a connection from everything that it shares with others.
    fn leave(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let (was_ready, host, is_mrc) = (connection.ready, connection.peer(), connection.mrc().is_some());
        if self.trackers.are_limited() {
            self.trackers.change(connection.receiver.held(), 0);
        }
        connection.ready = false;
        if was_ready {
            self.ready.remove(slot);
        }
        self.leave_context(slot);
        if is_mrc {
            self.leave_peers(slot, host);
        }
    }

    fn send_closed(&mut self, packet: &Packet, to: ConnectionId) {
        let Header::Operation { number, .. } = packet.header else { return self.send_closed_of(packet, to, 0) };
        self.send_closed_of(packet, to, number);
    }

    fn send_closed_of(&mut self, packet: &Packet, to: ConnectionId, number: u16) {
        let ports = self.nic.up & self.nic.all;
        let port = packet.path.port();
        let path = if super::has(ports, port) || ports == 0 {
            packet.path
        } else {
            PathId::new(ports.trailing_zeros() as u8, packet.path.entropy())
        };
        self.queue_control(Packet {
            source: self.host,
            destination: packet.source,
            connection: to,
            path,
            size: self.control_size,
            flags: Flags::NONE,
            header: Header::Operation { number, operation: Operation::Closed },
        });
    }

    pub(super) fn queue_control(&mut self, packet: Packet) {
        self.control.push(packet);
    }

    /// From now on, selective repeat sends a packet of this connection again after `timeout` without an acknowledgement,
    /// instead of the profile's time: for worlds that measure round trips, or wait longer for a silent peer. Nothing
    /// happens if the connection does not exist, or has another protocol.
    pub fn set_timeout(&mut self, now: Time, on: ConnectionId, timeout: Span) {
        let Some(slot) = self.connections.find(on) else { return };
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.set_timeout(now, timeout);
        self.settle(now, slot as u32);
    }

    /// Whether sleeping connections keep their counters and accounts; the default is true. Otherwise a connection
    /// counts from zero when it wakes, its earlier counts are added to [`Observer::closed_stats`](super::Observer::closed_stats), and it takes a
    /// fourth of the memory.
    pub fn keep_records(&mut self, keep: bool) {
        self.keeps_records = keep;
    }
}

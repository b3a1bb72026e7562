//! One connection: the only place that knows reliability, congestion control and path selection together. This file
//! sends packets; `arriving.rs` handles arriving ones.

mod arriving;
mod credit;
mod dormant;
mod kind;
mod paths;
mod record;
mod sharing;

use crate::account::{Doing, Wait};
use crate::congestion::{AnyCongestion, Congestion, LossKind, LossSample, Nscc};
use crate::credit::Credit;
use crate::message::{Message, Segment, Whole};
use crate::packet::{ConnectionId, Data, Flags, Header, HostId, Packet, Part, PathId, Ports, Psn};
use crate::path::{AnyPath, PathFeedback, PathManager, PathSelector};
use crate::profile::Profile;
use crate::reliability::{AnyReceiver, AnyReliability, Outlook, Receiver, Reliability};
use crate::rng::Random;
use crate::units::{Bytes, Span, Time};
pub use dormant::{Received, SentUpTo};

pub(crate) use dormant::DormantConnection;
use kind::Habits;
pub(crate) use kind::Kind;
use record::Record;
use sharing::Sharing;
use std::mem::offset_of;
use std::sync::Arc;

/// The result of asking a connection for a packet.
pub(crate) enum Polled {
    /// The one that was written; `more` says whether to ask again.
    Packet { more: bool },
    /// Nothing until the next acknowledgement or timeout.
    Blocked,
    /// There is a packet, but its path leaves by no free port.
    NoPort,
}

/// The behaviour of a connection while it has nothing to send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Idle {
    /// Nothing.
    Silent,
    /// It probes the paths that are bad.
    Probes,
    /// Nothing, for ever: it has failed, and the application has been told.
    Failed,
}

/// Control packets that an input calls for, in order.
pub(crate) type Replies<'a> = &'a mut dyn FnMut(Packet);

/// A connection's entries in the endpoint's timer heap.
#[derive(Clone, Copy)]
pub(crate) struct Alarm {
    /// The time of the valid entry.
    pub(crate) at: Time,
    /// The time of the entry that becomes valid when that one has ended.
    pub(crate) behind: Time,
}

/// Both directions of one connection. The fields that every packet needs come first, in two cache lines.
#[repr(C)]
pub(crate) struct Connection {
    /// The kind's profile. Connections share it, so it stays in the cache.
    profile: Arc<Profile>,
    /// The reliability's state as the connection needs it; read again after each call that may change it
    /// ([`Connection::refresh_outlook`]).
    outlook: Outlook,
    /// The congestion window in wire bytes. For a shared window: its value when this connection last used it.
    window: u64,
    /// The peer, and its number for the connection, which our packets carry.
    peer: (HostId, ConnectionId),
    /// A full packet, wire bytes.
    packet: u32,
    burst_path: PathId,
    /// The number of packets that may still follow the last one on its path.
    burst_left: u16,
    idle: Idle,
    /// Is it in the endpoint's ready list?
    pub(crate) ready: bool,
    habits: Habits,
    // The second cache line begins here.
    /// Its counters.
    pub(crate) record: Box<Record>,
    pace_at: Time,
    pub(crate) alarm: Alarm,
    /// Its state in a shared window; `None` before the first message, and if windows are not shared.
    pub(crate) sharing: Option<Box<Sharing>>,
    base_rtt: Span,
    host: HostId,
    /// The path by which the last part or control message came, on a one-way connection.
    control_path: PathId,
    /// When the endpoint checks whether it is still used.
    pub(crate) look_at: Time,
    pub(crate) reliability: AnyReliability,
    path: AnyPath,
    congestion: AnyCongestion,
    pub(crate) receiver: AnyReceiver,
    kind: Arc<Kind>,
    /// The receiver's credit, if congestion control uses it.
    pub(crate) credit: Option<Box<Credit>>,
    /// The random stream from its opening, for the path selector.
    random: Random,
}

const _: () = assert!(size_of::<Connection>() <= 1024, "an idle connection takes at most 1 KiB");

impl Connection {
    pub(crate) fn new(kind: Arc<Kind>, host: HostId, peer: (HostId, ConnectionId), random: Random) -> Connection {
        let (profile, environment) = (&kind.profile, &kind.environment);
        let congestion = profile.congestion.build(environment);
        let mut reliability = profile.reliability.build(&profile.transport, environment);
        let mut receiver = profile.reliability.build_receiver(&profile.transport, environment);
        if let Some((window_max_bdp, target)) = profile.congestion.envelope() {
            reliability.follow(environment, window_max_bdp, target);
        }
        if profile.congestion.wants_counts() {
            reliability.count_arrivals(environment);
            receiver.count_arrivals();
        }
        let mut path = profile.path.build(environment, random);
        if let Some(manager) = path.manager_mut() {
            manager.use_profile(&profile.evs);
        }
        Connection {
            window: congestion.window().0.max(kind.window_min),
            packet: environment.packet.0.min(u64::from(u32::MAX)) as u32,
            habits: kind.habits,
            host,
            profile: Arc::clone(profile),
            random,
            look_at: Time::NEVER,
            peer,
            base_rtt: environment.base_rtt,
            pace_at: Time::ZERO,
            control_path: PathId(0),
            record: Record::new(),
            outlook: reliability.outlook(),
            reliability,
            congestion,
            path,
            receiver,
            ready: false,
            idle: if kind.probes_idle { Idle::Probes } else { Idle::Silent },
            burst_path: PathId(0),
            burst_left: 0,
            alarm: Alarm { at: Time::NEVER, behind: Time::NEVER },
            sharing: None,
            credit: kind.credit.map(|terms| Box::new(Credit::new(&terms, &kind.environment))),
            kind,
        }
    }

    pub(crate) fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }

    /// The peer's number for it, as its packets carry it.
    pub(crate) fn peer_connection(&self) -> ConnectionId {
        self.peer.1
    }

    /// Connections of the same destination may share one window.
    pub(crate) fn destination(&self) -> (HostId, u64) {
        (self.peer.0, self.kind.fingerprint)
    }

    /// Its path selector; the connection itself is dropped.
    pub(crate) fn into_path(self) -> AnyPath {
        self.path
    }

    /// Its NSCC, if that is its congestion control.
    pub(crate) fn nscc(&mut self) -> Option<&mut Nscc> {
        if let AnyCongestion::Nscc(nscc) = &mut self.congestion { Some(nscc) } else { None }
    }

    /// Its NSCC, to read it, if that is its congestion control.
    pub(crate) fn kept_nscc(&self) -> Option<&Nscc> {
        if let AnyCongestion::Nscc(nscc) = &self.congestion { Some(nscc) } else { None }
    }

    /// Wire bytes in flight under the window: its own, and those of the connections that share the window.
    #[inline]
    pub(crate) fn in_flight(&self) -> Bytes {
        Bytes(self.outlook.in_flight + self.sharing.as_ref().map_or(0, |s| s.beside))
    }

    /// The congestion context that it shares with others.
    #[inline]
    pub(crate) fn context(&self) -> Option<u32> {
        self.sharing.as_ref().and_then(|s| s.context)
    }

    /// Its profile shares windows, but it has not joined a shared window yet.
    #[inline]
    pub(crate) fn is_to_join(&self) -> bool {
        self.sharing.is_none() && self.kind.shares_window
    }

    /// True if control messages replace acknowledgements.
    #[inline]
    pub(crate) fn is_one_way(&self) -> bool {
        self.habits.is_one_way
    }

    pub(crate) fn peer(&self) -> HostId {
        self.peer.0
    }

    /// The shortest round trip measured, or the environment's base RTT if none was shorter.
    pub(crate) fn base_rtt(&self) -> Span {
        self.base_rtt
    }

    pub(crate) fn window(&self) -> Bytes {
        Bytes(self.window)
    }

    /// Reads the reliability's outlook again, after it may have changed.
    #[inline]
    pub(crate) fn refresh_outlook(&mut self) {
        self.outlook = self.reliability.outlook();
    }

    /// Wire bytes of its own in flight.
    pub(crate) fn own_in_flight(&self) -> u64 {
        self.outlook.in_flight
    }

    /// Is there a packet to send, window permitting?
    pub(crate) fn has_next(&self) -> bool {
        self.outlook.has_next
    }

    /// Takes one of the messages that are wholly acknowledged.
    #[inline]
    pub(crate) fn take_finished(&mut self) -> Option<Message> {
        let finished = self.reliability.take_finished();
        if finished.is_some() {
            self.refresh_outlook();
        }
        finished
    }

    /// Reads the window again, after congestion control may have changed it or was replaced.
    #[inline]
    pub(crate) fn read_window(&mut self) {
        self.window = self.congestion.window().0.max(self.kind.window_min);
    }

    /// Calls `fetch` with the addresses of its fields that a data packet needs which arrives, or (not `arrives`) that
    /// the next data packet or an acknowledgement needs.
    #[inline]
    pub(crate) fn name_fields(&self, arrives: bool, fetch: impl Fn(*const u8)) {
        let all = std::ptr::from_ref(self).cast::<u8>();
        let lines = |from: usize, to: usize| {
            (0..(to - from).div_ceil(64)).for_each(|line| fetch(all.wrapping_add(from + 64 * line)))
        };
        let halves = [offset_of!(Connection, reliability), offset_of!(Connection, receiver), size_of::<Connection>()];
        lines(0, halves[0]);
        if arrives { lines(halves[1], halves[2]) } else { lines(halves[0], halves[1]) }
    }

    /// Calls `fetch` with the addresses of memory behind its pointers that the next packet will need: a data packet
    /// that arrives, or (not `arrives`) one to send or an acknowledgement.
    #[inline]
    pub(crate) fn name_parts(&self, arrives: bool, fetch: impl Fn(*const u8)) {
        let record = std::ptr::from_ref::<Record>(&self.record).cast::<u8>();
        (0..size_of::<Record>().div_ceil(64)).for_each(|line| fetch(record.wrapping_add(64 * line)));
        if arrives {
            self.receiver.name_memory(fetch);
        } else {
            self.reliability.name_memory(&fetch);
            self.path.name_memory(&fetch);
            if let Some(sharing) = &self.sharing {
                fetch(std::ptr::from_ref::<Sharing>(sharing).cast());
            }
        }
    }

    /// Calls `fetch` with the addresses of memory that holds the paths of the next packets.
    #[inline]
    pub(crate) fn name_paths(&self, fetch: impl Fn(*const u8)) {
        self.path.name_paths(fetch);
    }

    pub(crate) fn post(&mut self, now: Time, message: Message) {
        let clock = &mut self.record.clock;
        if self.outlook.in_flight == 0 && !self.outlook.has_next && !clock.doing.is_sending() {
            clock.turn_to(now, Doing::Idle);
        }
        self.reliability.open(message);
        self.refresh_outlook();
    }

    fn packet(&self, path: PathId, size: u16, flags: Flags, header: Header) -> Packet {
        Packet { source: self.host, destination: self.peer.0, connection: self.peer.1, path, size, flags, header }
    }

    pub(crate) fn control(&self, path: PathId, flags: Flags, header: Header) -> Packet {
        self.packet(path, self.profile.transport.control as u16, flags, header)
    }

    /// May one more packet be sent, by window and credit? Retransmissions of a fast recovery need no window, and nor
    /// does a packet when nothing is in flight.
    #[inline]
    pub(crate) fn window_open(&self) -> bool {
        let in_flight = self.in_flight().0;
        if !self.has_credit() {
            return false;
        }
        in_flight == 0 || in_flight + u64::from(self.packet) <= self.window || self.outlook.next_is_urgent
    }

    /// Decides in a fixed order: whether to send, by which path, and which packet. The path is drawn only when a packet
    /// will surely be sent, because each draw advances the spray. The packet is written into `into`.
    #[inline]
    pub(crate) fn poll_transmit(&mut self, now: Time, free: Ports, into: &mut Packet) -> Polled {
        let mut probes = false;
        if self.outlook.wants_probe {
            // If these ports have no good path, only a probe of a path can bring one back, so path probes come next.
            probes = true;
            if let Some(path) = self.path.next(now, free) {
                let Some(number) = self.reliability.take_probe(now) else {
                    unreachable!("a probe that is wanted is given")
                };
                self.refresh_outlook();
                self.record.stats.probes += 1;
                *into = self.control(path, Flags::NONE, Header::Probe { number });
                return Polled::Packet { more: true };
            }
        }
        if self.habits.watches_paths {
            probes |= self.path.wants_probe(self.is_active() || self.idle == Idle::Probes);
        }
        if probes && let Some(probe) = self.path.take_probe(now, free) {
            self.record.stats.probes += 1;
            *into = self.path_probe(probe);
            return Polled::Packet { more: true };
        }
        if !self.outlook.has_next || now < self.pace_at || !self.window_open() {
            let doing = self.doing(now, false, self.record.again);
            self.record.clock.turn_to(now, doing);
            return if probes { Polled::NoPort } else { Polled::Blocked };
        }
        let Some(path) = self.next_path(now, free) else {
            self.record.clock.turn_to(now, Doing::Line);
            return Polled::NoPort;
        };
        let header = self.profile.transport.header as u16;
        let Some((segment, outlook)) = self.reliability.send(now, path, header) else {
            unreachable!("a reliability that has a next packet gives it")
        };
        self.outlook = outlook;
        let size = header + segment.length;
        let bytes = Bytes(u64::from(size));
        self.path.on_sent(u32::from(size));
        let in_flight = self.in_flight();
        if self.habits.paces {
            self.pace(now, bytes, in_flight);
        }
        let more = self.outlook.has_next;
        let doing = match (more, segment.again) {
            (true, false) => Doing::Line,
            (true, true) => Doing::Recovery,
            (false, again) => self.doing(now, true, again),
        };
        let record = &mut *self.record;
        if let Some(paths) = &mut record.paths {
            paths.sent(path);
        }
        record.stats.sent += 1;
        record.stats.retransmitted += u64::from(segment.again);
        record.again = segment.again;
        record.clock.heard = now;
        record.clock.turn_to(now, doing);
        let target = self.spend_credit(now, bytes.0);
        let turn = self.profile.transport.ack_every.0;
        // MRC also asks while the window is smaller than the bytes that a receiver acknowledges together.
        let small = self.window < turn && self.kind.mrc.is_some();
        let full = small || !self.has_credit() || in_flight.0 + u64::from(self.packet) > self.window;
        let turn_ends = self.sharing.as_mut().is_some_and(|s| s.spend(segment.length, turn));
        let flags = Flags::NONE
            .with_if(segment.again, Flags::RETRANSMITTED)
            .with_if(segment.last, Flags::LAST)
            .with_if(segment.again || full || turn_ends || !more, Flags::ACK_REQUEST);
        let Segment { psn, message, offset, length, .. } = segment;
        let wait = Wait::default();
        match segment.whole {
            None => {
                let data = Data { psn: Psn::new(psn), message, offset, length, target, wait };
                *into = self.packet(path, size, flags, Header::Data(data));
            }
            Some(Whole { packet, packets, tail, parity, plan }) => {
                let sequence = psn as u32;
                let part = Part { sequence, message, packet, packets, tail, length, wait, parity, plan };
                *into = self.packet(path, size, flags, Header::Part(part));
            }
        }
        Polled::Packet { more }
    }

    /// Computes when the next packet may be sent, after one was sent.
    fn pace(&mut self, now: Time, bytes: Bytes, in_flight: Bytes) {
        self.congestion.on_sent(now, bytes, in_flight);
        self.pace_at = match self.congestion.rate(now) {
            // A sender that is behind its pace may catch up by at most `pace_slack`.
            Some(rate) => {
                let earliest = Time(now.0.saturating_sub(self.profile.transport.pace_slack.0));
                self.pace_at.max(earliest) + rate.time_for(bytes)
            }
            None => now,
        };
        self.read_window();
    }

    /// Draws a path for a packet that is not data.
    pub(crate) fn draw_path(&mut self, now: Time, ports: Ports) -> Option<PathId> {
        self.path.next(now, ports)
    }

    /// The path selector's choice, or its last one while a burst goes on.
    #[inline]
    fn next_path(&mut self, now: Time, free: Ports) -> Option<PathId> {
        let port = 1u32.checked_shl(u32::from(self.burst_path.port())).unwrap_or(0);
        if self.burst_left > 0 && free.data & port != 0 {
            self.burst_left -= 1;
            return Some(self.burst_path);
        }
        let mut path = self.path.next(now, free)?;
        // A retransmission takes another path than before, if there is one. Between two rounds of the selector the same
        // path may come twice in a row, but never three times, so two further draws suffice.
        if self.habits.retries_elsewhere
            && let Some(named) = self.reliability.retry_path()
        {
            for _ in 0..2 {
                path = if path == named { self.path.next(now, free).unwrap_or(path) } else { path };
            }
        }
        self.burst_left = (self.profile.transport.burst - 1) as u16;
        self.burst_path = path;
        Some(path)
    }

    /// Is there anything to send or on its way?
    #[inline]
    fn is_active(&self) -> bool {
        self.outlook.in_flight > 0 || self.outlook.has_next
    }

    /// Does it have something to send, if window and pace allow it?
    #[inline]
    pub(crate) fn wants(&self) -> bool {
        self.outlook.has_next || self.wants_probe()
    }

    /// Does it have something to send that needs no free window?
    pub(crate) fn wants_at_once(&self) -> bool {
        self.outlook.next_is_urgent || self.wants_probe()
    }

    /// Is a probe due, of the window or of a path?
    #[inline]
    fn wants_probe(&self) -> bool {
        if self.outlook.wants_probe {
            return true;
        }
        let active = self.idle == Idle::Probes || self.outlook.in_flight > 0;
        self.habits.watches_paths && self.path.wants_probe(active)
    }

    /// Does its path selector want a probe, even if there is nothing to send?
    #[inline]
    pub(crate) fn wants_idle_probe(&self) -> bool {
        self.habits.watches_paths && self.path.wants_probe(false)
    }

    /// Has it failed since this was last asked?
    pub(crate) fn take_failure(&mut self) -> bool {
        let news = self.reliability.failed() && self.idle != Idle::Failed;
        if news {
            self.idle = Idle::Failed;
        }
        news
    }

    /// When to call [`Connection::handle_timeout`].
    #[inline]
    pub(crate) fn deadline(&self, now: Time) -> Time {
        let mut deadline = self.outlook.deadline;
        if self.habits.watches_paths {
            let path = self.path.deadline();
            if path < deadline && (self.idle == Idle::Probes || self.is_active()) {
                deadline = path;
            }
        }
        if self.habits.is_one_way {
            deadline = deadline.min(self.receiver.deadline());
        }
        if let Some(credit) = &self.credit {
            deadline = deadline.min(credit.sender.deadline(self.outlook.has_next));
        }
        if self.pace_at > now && self.outlook.has_next { deadline.min(self.pace_at) } else { deadline }
    }

    /// Before a timeout: sets the retransmission timer later by the time in which the connection's port was paused.
    /// `paused` has that time since some instant, for a port.
    pub(crate) fn wait_for_pauses(&mut self, now: Time, paused: impl Fn(u8, Time) -> Span) {
        if self.outlook.deadline <= now
            && let Some(port) = self.only_port()
        {
            self.reliability.wait_for_pauses(now, &|from| paused(port, from));
            self.refresh_outlook();
        }
    }

    /// See [`crate::Endpoint::set_timeout`].
    pub(crate) fn set_timeout(&mut self, now: Time, timeout: Span) {
        self.reliability.set_timeout(now, timeout);
        self.refresh_outlook();
    }

    pub(crate) fn handle_timeout(&mut self, now: Time, reply: Replies<'_>) {
        if self.outlook.deadline <= now {
            self.reliability.on_timeout(now);
            self.refresh_outlook();
            self.take_losses(now);
        }
        if let Some(manager) = self.path.manager_mut().filter(|m| m.deadline() <= now) {
            manager.on_timeout(now);
        }
        self.ask_for_credit(now, reply);
        if self.habits.is_one_way {
            if self.receiver.deadline() <= now {
                self.receiver.on_timeout(now);
            }
            self.take_controls(now, reply);
        }
    }

    fn take_losses(&mut self, now: Time) {
        let mut timed_out = false;
        while let Some(lost) = self.reliability.take_lost() {
            if lost.path == self.burst_path {
                self.burst_left = 0;
            }
            if let Some(paths) = self.record.paths.as_mut().filter(|_| !matches!(lost.kind, LossKind::Trimmed { .. })) {
                paths.lost(lost.path);
            }
            match lost.kind {
                LossKind::TimedOut => {
                    timed_out = true;
                    self.path.on_feedback(now, lost.path, PathFeedback::TimedOut);
                }
                LossKind::Inferred => self.path.on_feedback(now, lost.path, PathFeedback::Lost),
                // The NACK has already reported the path (`handle_nack`).
                LossKind::Trimmed { .. } => {}
            }
            let in_flight = self.in_flight();
            self.congestion.on_loss(&LossSample { now, kind: lost.kind, bytes: lost.bytes, in_flight });
            self.read_window();
        }
        if timed_out {
            self.record.stats.timeouts += 1;
            self.record.clock.timed_out(now);
            if let Some(credit) = &mut self.credit {
                credit.sender.on_timeout(now);
            }
        }
    }
}

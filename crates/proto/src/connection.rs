//! One connection: the only file that knows reliability, congestion control and path selection together.

mod aside;
mod husk;
mod kind;
mod paths;
mod sharing;

use crate::account::{Doing, Wait};
use crate::congestion::{AckSample, AnyCongestion, Congestion, LossKind, LossSample, Nscc};
use crate::message::Message;
use crate::packet::{Ack, ConnectionId, Data, Flags, Header, HostId, Nack, NackReason, Packet, PathId, Ports, Psn};
use crate::path::{AnyPath, PathFeedback, PathSelector};
use crate::reliability::{AnyReceiver, AnyReliability, Receiver, Reliability, Settled};
use crate::rng::Random;
use crate::stats::ConnectionStats;
use crate::units::{Bytes, Span, Time};
pub use husk::{Received, SentUpTo};

use aside::Aside;
pub(crate) use husk::Husk;
pub(crate) use kind::Kind;
use sharing::Sharing;
use std::sync::Arc;

/// What came of asking a connection for a packet.
pub(crate) enum Polled {
    /// This one; `more` says whether to ask again.
    Packet(Packet, bool),
    /// Nothing until the next acknowledgement or timeout.
    Blocked,
    /// There is something, but no free port leads its way.
    NoPort,
}

/// What a connection does while it has nothing to send.
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

/// Both directions of one connection.
pub(crate) struct Connection {
    kind: Arc<Kind>,
    /// The stream of its opening, for the path selector.
    random: Random,
    peer: HostId,
    /// As its packets name it.
    peer_connection: ConnectionId,
    base_rtt: Span,
    pace_at: Time,
    /// What it needs from its first message or data packet on.
    aside: Option<Box<Aside>>,
    pub(crate) reliability: AnyReliability,
    congestion: AnyCongestion,
    path: AnyPath,
    pub(crate) receiver: AnyReceiver,
    pub(crate) stats: ConnectionStats,
    /// Is it in the endpoint's ready list?
    pub(crate) ready: bool,
    idle: Idle,
    /// Packets that may still follow the last one on its path.
    burst_left: u16,
    burst_path: PathId,
    /// Time of its valid entry in the endpoint's timer heap.
    pub(crate) timer: Time,
    /// Time of the entry that is valid when that one is gone.
    pub(crate) timer_behind: Time,
    /// What it takes to share a window; `None` before the first message, and where windows are not shared.
    pub(crate) sharing: Option<Box<Sharing>>,
}

const _: () = assert!(size_of::<Connection>() <= 1024, "an idle connection takes at most 1 KiB");

impl Connection {
    pub(crate) fn new(kind: Arc<Kind>, peer: (HostId, ConnectionId), random: Random) -> Connection {
        let (profile, environment) = (&kind.profile, &kind.environment);
        Connection {
            random,
            peer: peer.0,
            peer_connection: peer.1,
            base_rtt: environment.base_rtt,
            pace_at: Time::ZERO,
            aside: None,
            reliability: profile.reliability.build(&profile.transport, environment),
            congestion: profile.congestion.build(environment),
            path: profile.path.build(environment, random),
            receiver: profile.reliability.build_receiver(&profile.transport),
            stats: ConnectionStats::default(),
            ready: false,
            idle: if kind.probes_idle { Idle::Probes } else { Idle::Silent },
            burst_path: PathId(0),
            burst_left: 0,
            timer: Time::NEVER,
            timer_behind: Time::NEVER,
            sharing: None,
            kind,
        }
    }

    pub(crate) fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }

    /// The peer's number for it, as its packets carry it.
    pub(crate) fn peer_connection(&self) -> ConnectionId {
        self.peer_connection
    }

    /// Connections of the same destination may share one window.
    pub(crate) fn destination(&self) -> (HostId, u64) {
        (self.peer, self.kind.fingerprint)
    }

    /// Its path selector, when it needs it no longer.
    pub(crate) fn into_path(self) -> AnyPath {
        self.path
    }

    /// Its NSCC, if that is its congestion control.
    pub(crate) fn nscc(&mut self) -> Option<&mut Nscc> {
        if let AnyCongestion::Nscc(nscc) = &mut self.congestion { Some(nscc) } else { None }
    }

    /// Wire bytes in flight under the window: its own, and those of whom it shares it with.
    #[inline]
    pub(crate) fn in_flight(&self) -> Bytes {
        Bytes(self.reliability.in_flight().0 + self.sharing.as_ref().map_or(0, |s| s.beside))
    }

    /// The congestion context that it shares with others.
    #[inline]
    pub(crate) fn context(&self) -> Option<u32> {
        self.sharing.as_ref().and_then(|s| s.context)
    }

    /// Might it share its window, and has not looked with whom?
    #[inline]
    pub(crate) fn is_to_join(&self) -> bool {
        self.sharing.is_none() && self.kind.shares_window
    }

    pub(crate) fn peer(&self) -> HostId {
        self.peer
    }

    /// The shortest round trip seen, or what the world said.
    pub(crate) fn base_rtt(&self) -> Span {
        self.base_rtt
    }

    pub(crate) fn window(&self) -> Bytes {
        self.congestion.window()
    }

    /// Reads a field of each part that packets touch.
    #[inline]
    pub(crate) fn touch(&self) -> u64 {
        let parts = self.reliability.touch() ^ self.congestion.window().0 ^ self.receiver.touch();
        parts ^ self.stats.acks ^ self.stats.delivered ^ self.pace_at.0 ^ self.timer.0
    }

    pub(crate) fn post(&mut self, now: Time, message: Message) {
        let active = self.is_active();
        let aside = self.aside.get_or_insert_with(Aside::new);
        if !active && !aside.clock.doing.is_sending() {
            aside.clock.turn_to(now, Doing::Idle);
        }
        self.reliability.open(message);
    }

    fn packet(&self, path: PathId, size: u16, flags: Flags, header: Header) -> Packet {
        Packet {
            source: self.kind.host,
            destination: self.peer,
            connection: self.peer_connection,
            path,
            size,
            flags,
            header,
        }
    }

    pub(crate) fn control(&self, path: PathId, flags: Flags, header: Header) -> Packet {
        self.packet(path, self.kind.transport.control as u16, flags, header)
    }

    /// May one more packet leave? Retransmissions of a fast recovery may whatever the window says, and one packet may
    /// always be in flight.
    #[inline]
    pub(crate) fn window_open(&self) -> bool {
        let in_flight = self.in_flight().0;
        in_flight == 0
            || in_flight + self.kind.environment.packet.0 <= self.congestion.window().0
            || self.reliability.next_is_urgent()
    }

    /// Asks in a fixed order: may I send, which way, what. The path is drawn only when a packet is sure to follow, since
    /// drawing advances the spray.
    #[inline]
    pub(crate) fn poll_transmit(&mut self, now: Time, free: Ports) -> Polled {
        let mut probes = false;
        if self.reliability.wants_probe() {
            // Without a good path on these ports, only probes of paths can bring one back: they must have their turn.
            probes = true;
            if let Some(path) = self.path.next(now, free) {
                let Some(number) = self.reliability.take_probe(now) else {
                    unreachable!("a probe that is wanted is given")
                };
                self.stats.probes += 1;
                return Polled::Packet(self.control(path, Flags::NONE, Header::Probe { number }), true);
            }
        }
        probes |= self.path.wants_probe(self.is_active() || self.idle == Idle::Probes);
        if probes && let Some(probe) = self.path.take_probe(now, free) {
            self.stats.probes += 1;
            return Polled::Packet(self.path_probe(probe), true);
        }
        if !self.reliability.has_next() || now < self.pace_at || !self.window_open() {
            let again = self.aside.as_ref().is_some_and(|a| a.again);
            self.turn_to(now, self.doing(now, false, again));
            return if probes { Polled::NoPort } else { Polled::Blocked };
        }
        let Some(path) = self.next_path(now, free) else {
            self.turn_to(now, Doing::Line);
            return Polled::NoPort;
        };
        let Some(segment) = self.reliability.next(now) else {
            unreachable!("a reliability that has a next packet gives it")
        };
        let size = self.kind.transport.header as u16 + segment.length;
        let bytes = Bytes(u64::from(size));
        self.reliability.on_sent(now, &segment, path, bytes);
        let in_flight = self.in_flight();
        self.congestion.on_sent(now, bytes, in_flight);
        self.pace_at = match self.congestion.rate(now) {
            // What it fell behind by, up to the slack, it may catch up.
            Some(rate) => {
                let earliest = Time(now.0.saturating_sub(self.kind.transport.pace_slack.0));
                self.pace_at.max(earliest) + rate.time_for(bytes)
            }
            None => now,
        };
        self.stats.sent += 1;
        self.stats.retransmitted += u64::from(segment.again);
        let more = self.reliability.has_next();
        let doing = match (more, segment.again) {
            (true, false) => Doing::Line,
            (true, true) => Doing::Recovery,
            (false, again) => self.doing(now, true, again),
        };
        if let Some(aside) = &mut self.aside {
            aside.again = segment.again;
            aside.clock.heard = now;
            aside.clock.turn_to(now, doing);
        }
        let full = in_flight.0 + self.kind.environment.packet.0 > self.congestion.window().0;
        let turn = self.kind.transport.ack_every.0;
        let turn_ends = self.sharing.as_mut().is_some_and(|s| s.spend(segment.length, turn));
        let flags = Flags::NONE
            .with_if(segment.again, Flags::RETRANSMITTED)
            .with_if(segment.last, Flags::LAST)
            .with_if(segment.again || full || turn_ends || !more, Flags::ACK_REQUEST);
        let data = Data {
            psn: Psn::new(segment.psn),
            message: segment.message,
            offset: segment.offset,
            length: segment.length,
            wait: Wait::default(),
        };
        Polled::Packet(self.packet(path, size, flags, Header::Data(data)), more)
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
        // What goes again takes another path than it took, where there is one. Where a round ends and the next one
        // begins, a path may come twice in a row, but never three times.
        if self.kind.retries_elsewhere
            && let Some(named) = self.reliability.retry_path()
        {
            for _ in 0..2 {
                path = if path == named { self.path.next(now, free).unwrap_or(path) } else { path };
            }
        }
        self.burst_left = (self.kind.transport.burst - 1) as u16;
        self.burst_path = path;
        Some(path)
    }

    /// Is there anything to send or on its way?
    #[inline]
    fn is_active(&self) -> bool {
        self.reliability.in_flight().0 > 0 || self.reliability.has_next()
    }

    /// Does it have something to send, window and pace permitting?
    #[inline]
    pub(crate) fn wants(&self) -> bool {
        self.reliability.has_next() || self.wants_probe()
    }

    /// Does it have something to send that does not wait for the window?
    pub(crate) fn wants_at_once(&self) -> bool {
        self.reliability.next_is_urgent() || self.wants_probe()
    }

    /// Is a probe due, of the window or of a path?
    #[inline]
    fn wants_probe(&self) -> bool {
        let active = self.idle == Idle::Probes || self.reliability.in_flight().0 > 0;
        self.reliability.wants_probe() || self.path.wants_probe(active)
    }

    /// Does its path selector want a probe though there may be nothing to send?
    #[inline]
    pub(crate) fn wants_idle_probe(&self) -> bool {
        self.path.wants_probe(false)
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
        let mut deadline = self.reliability.deadline();
        let path = self.path.deadline();
        if path < deadline && (self.idle == Idle::Probes || self.is_active()) {
            deadline = path;
        }
        if self.pace_at > now && self.reliability.has_next() { deadline.min(self.pace_at) } else { deadline }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if self.reliability.deadline() <= now {
            self.reliability.on_timeout(now);
            self.take_losses(now);
        }
        if self.path.deadline() <= now {
            self.path.on_timeout(now);
        }
    }

    fn take_losses(&mut self, now: Time) {
        let mut timed_out = false;
        while let Some(lost) = self.reliability.take_lost() {
            if lost.path == self.burst_path {
                self.burst_left = 0;
            }
            match lost.kind {
                LossKind::TimedOut => {
                    timed_out = true;
                    self.path.on_feedback(now, lost.path, PathFeedback::TimedOut);
                }
                LossKind::Inferred => self.path.on_feedback(now, lost.path, PathFeedback::Lost),
                // Its NACK told.
                LossKind::Trimmed { .. } => {}
            }
            let in_flight = self.in_flight();
            self.congestion.on_loss(&LossSample { now, kind: lost.kind, bytes: lost.bytes, in_flight });
        }
        if timed_out {
            self.stats.timeouts += 1;
            if let Some(aside) = &mut self.aside {
                aside.clock.timed_out(now);
            }
        }
    }

    #[inline]
    pub(crate) fn handle_data(&mut self, now: Time, packet: &Packet, data: &Data, reply: Replies<'_>) {
        let whole = !packet.flags.has(Flags::TRIMMED);
        let arrival = self.receiver.on_data(data, packet.flags, packet.path);
        let waits = &mut self.aside.get_or_insert_with(Aside::new).waits;
        waits.arrived(data.wait);
        let Ok(arrival) = arrival else {
            self.stats.invalid += 1;
            waits.discarded += u64::from(whole);
            return;
        };
        let marked = packet.flags.has(Flags::CE);
        if arrival.fresh {
            self.stats.delivered += 1;
            self.stats.delivered_bytes += u64::from(data.length);
            waits.last_arrival = now;
        } else {
            self.stats.duplicates += u64::from(arrival.duplicate);
            waits.discarded += u64::from(whole && !arrival.duplicate);
        }
        self.stats.marked += u64::from(marked);
        self.stats.trimmed += u64::from(packet.flags.has(Flags::TRIMMED));
        let shunned = arrival.fresh && self.shuns(packet.path, marked);
        if let Some((ack, flags)) = arrival.ack {
            // The wire says one of both.
            let flags = if shunned { Flags(flags.0 & !Flags::MARKED.0).with(Flags::ALWAYS_SKIP) } else { flags };
            let path = self.path.reply_path(now, packet.path);
            reply(self.control(path, flags, Header::Ack(ack)));
        }
        if let Some((nack, flags)) = arrival.nack {
            let path = self.path.reply_path(now, packet.path);
            reply(self.control(path, flags, Header::Nack(nack)));
        }
        let interval = self.kind.transport.cnp_interval;
        if marked
            && interval > Span::ZERO
            && let Some(aside) = &mut self.aside
            && (aside.last_cnp == Time::NEVER || now.since(aside.last_cnp) >= interval)
        {
            aside.last_cnp = now;
            reply(self.control(packet.path, Flags::NONE, Header::Cnp));
        }
    }

    pub(crate) fn handle_probe(&mut self, now: Time, packet: &Packet, number: u32, reply: Replies<'_>) {
        let (ack, flags) = self.receiver.on_probe(number, packet.path, packet.flags.has(Flags::CE));
        let path = self.path.reply_path(now, packet.path);
        reply(self.control(path, flags, Header::Ack(ack)));
    }

    #[inline]
    pub(crate) fn handle_ack(&mut self, now: Time, ack: &Ack, flags: Flags) {
        let window = self.congestion.window();
        let Ok(settled) = self.reliability.on_ack(now, ack, flags, window) else {
            self.stats.invalid += 1;
            return;
        };
        let marked = flags.has(Flags::MARKED);
        self.stats.acks += 1;
        self.stats.acks_marked += u64::from(marked);
        let feedback = if marked { PathFeedback::Marked } else { PathFeedback::Good };
        let feedback = if flags.has(Flags::ALWAYS_SKIP) { PathFeedback::Shunned } else { feedback };
        if flags.has(Flags::PROBE_ANSWER) {
            self.path.on_probe_answer(now, ack.path, { ack.acked }.get(), feedback);
        } else {
            self.path.on_feedback(now, ack.path, feedback);
        }
        let settled = Settled { rtt: settled.rtt.map(|rtt| rtt.max(self.kind.transport.rtt_min)), ..settled };
        if let Some(rtt) = settled.rtt {
            self.path.on_delay(now, ack.path, Span(rtt.0.saturating_sub(self.base_rtt.0)));
        }
        self.after(now, settled, marked);
    }

    fn after(&mut self, now: Time, settled: Settled, marked: bool) {
        if let Some(rtt) = settled.rtt.filter(|&rtt| rtt < self.base_rtt) {
            self.base_rtt = rtt;
            self.reliability.on_base_rtt(rtt);
        }
        if settled.packets > 0
            && let Some(aside) = &mut self.aside
        {
            aside.clock.heard = now;
        }
        let in_flight = self.in_flight();
        self.congestion.on_ack(&AckSample {
            now,
            rtt: settled.rtt,
            bytes: settled.bytes,
            packets: settled.packets,
            marked,
            in_flight,
        });
        self.take_losses(now);
    }

    pub(crate) fn handle_nack(&mut self, now: Time, nack: &Nack, flags: Flags) {
        let Ok(settled) = self.reliability.on_nack(now, nack, flags) else {
            self.stats.invalid += 1;
            return;
        };
        self.stats.nacks += 1;
        let marked = flags.has(Flags::MARKED);
        // A trim at the last hop says nothing against the path: no other would have helped. Nor does a receiver's shortage.
        let elsewhere = flags.has(Flags::TRIMMED_AT_LAST_HOP) || nack.reason != NackReason::Missing;
        let feedback = match (elsewhere, marked) {
            (false, _) => PathFeedback::Trimmed,
            (true, true) => PathFeedback::Marked,
            (true, false) => PathFeedback::Good,
        };
        self.path.on_feedback(now, nack.path, feedback);
        if settled.packets > 0 {
            self.after(now, settled, marked);
        } else {
            self.take_losses(now);
        }
    }

    pub(crate) fn handle_notification(&mut self, now: Time) {
        self.stats.notifications += 1;
        self.congestion.on_notification(now);
    }
}

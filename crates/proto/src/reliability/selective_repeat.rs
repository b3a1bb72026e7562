//! Selective repeat: out-of-order placement, selective acknowledgements, and only the holes again.
//!
//! How losses are found is a parameter ([`LossDetection`]): trimmed packets' NACKs (UEC), reordering and probes for fabrics
//! without trimming (SLEEK, published with UEC's simulator by STrack's first author), or any hole at all (IRN). A
//! retransmission timeout backs all of them.

use super::scoreboard::{Scoreboard, State};
use super::{Arrival, Invalid, Lost, Receiver, Reliability, Settled};
use crate::bitmap::SlidingBitmap;
use crate::congestion::LossKind;
use crate::message::{Backlog, Message, Segment};
use crate::packet::{Ack, Data, Flags, MessageId, Nack, PathId, Psn, SackBits};
use crate::parameters;
use crate::profile::{Environment, TransportConfig};
use crate::units::{Bytes, Span, Time};
use std::collections::VecDeque;

/// How losses are found, timeouts aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossDetection {
    /// By NACKs of trimmed packets alone.
    Trimming,
    /// By the count of packets held out of order, and by probes (SLEEK).
    Reordering,
    /// By any packet ahead of a hole (IRN).
    Holes,
}

parameters! {
    /// Selective repeat.
    pub struct SelectiveRepeatConfig {
        /// Take any packet ahead of a hole for a loss, as single-path IRN may.
        holes: bool = false, 0.0..=1.0, "Mittal et al., SIGCOMM 2018 (IRN), section 3.1; off for sprayed profiles";
        /// Retransmission timeout; zero computes 15 us + 6 queues' drain time (floor `rto_min` without trimming).
        rto: Span = Span::ZERO, 0.0..=1.0e13, "UEC simulator: 15 us + 6 * queue / rate";
        /// The computed timeout is no shorter than this in a fabric without trimming.
        rto_min: Span = Span::from_us(100), 0.0..=1.0e13, "UEC simulator: default floor of its recovery without trimming";
        /// IRN: the timeout while at most `rto_low_packets` are in flight.
        rto_low: Span = Span::from_us(100), 1.0e6..=1.0e13, "Mittal et al., SIGCOMM 2018, section 4.1: RTO_low 100 us";
        /// IRN: the timeout otherwise.
        rto_high: Span = Span::from_us(320), 1.0e6..=1.0e13, "Mittal et al., SIGCOMM 2018, section 4.1: RTO_high 320 us";
        /// IRN: how many packets in flight call for the short timeout.
        rto_low_packets: u32 = 3, 0.0..=1000.0, "Mittal et al., SIGCOMM 2018, section 4.1: N = 3";
        /// IRN: at most this many bandwidth-delay products in flight; zero sets no such cap.
        flight_bdp: f64 = 0.0, 0.0..=1000.0, "Mittal et al., SIGCOMM 2018, section 3.2: BDP-FC, 1 BDP";
        /// No packet is sent so many sequence numbers ahead of the oldest one not acknowledged.
        window_psn: u32 = 16_384, 64.0..=4194304.0, "ours: bounds the receiver's bitmap (2 KiB) at many BDP";
    }
}

impl SelectiveRepeatConfig {
    /// The parameters of IRN.
    pub fn irn() -> SelectiveRepeatConfig {
        SelectiveRepeatConfig { holes: true, flight_bdp: 1.0, ..SelectiveRepeatConfig::default() }
    }
}

/// SLEEK: packets held out of order that mean a loss, at the least.
const REORDER_PACKETS_MIN: u64 = 5;

/// Probes build on no shorter round trip than this, whatever a peer makes us believe: ours, so that a forged acknowledgement
/// cannot make their timer run out again at the instant at which it ran out.
const BASE_RTT_MIN: Span = Span::from_ns(100);

/// The sender's half.
#[derive(Debug)]
pub struct SelectiveRepeat {
    backlog: Backlog,
    board: Scoreboard,
    repairs: VecDeque<u64>,
    /// Losses not yet taken, last found first.
    lost: Vec<Lost>,
    detection: LossDetection,
    rto: Span,
    rto_low: Span,
    rto_low_packets: u32,
    deadline: Time,
    window_psn: u32,
    flight_max: u64,
    packet: u64,
    /// Above the highest PSN known to have arrived.
    highest: u64,
    recovery: Option<Recovery>,
    /// The next PSN that this or the next episode of recovery may send again.
    mark: u64,
    /// Only where reordering tells of losses.
    probe: Option<Box<Probe>>,
    base_rtt: Span,
}

/// An episode of fast recovery.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    /// It ends when everything below is acknowledged.
    until: u64,
    /// Only what lies below may be sent again.
    bound: u64,
}

/// Probes of a fabric without trimming.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// When the next one is due; [`Time::NEVER`] while nothing is outstanding.
    at: Time,
    due: bool,
    number: u32,
    /// When the last one left.
    sent: Time,
    /// `next` when the last one left: what its answer can judge.
    covers: u64,
    /// However large the window, no more wire bytes than this must have come behind a hole for it to be a loss.
    window_max: u64,
}

impl Default for Probe {
    fn default() -> Probe {
        Probe { at: Time::NEVER, due: false, number: 0, sent: Time::ZERO, covers: 0, window_max: u64::MAX }
    }
}

impl SelectiveRepeat {
    /// Nothing sent.
    pub fn new(
        config: &SelectiveRepeatConfig,
        transport: &TransportConfig,
        environment: &Environment,
    ) -> SelectiveRepeat {
        let detection = match (config.holes, environment.trimming) {
            (true, _) => LossDetection::Holes,
            (false, true) => LossDetection::Trimming,
            (false, false) => LossDetection::Reordering,
        };
        let port_rate = crate::units::Rate(environment.rate.0 / u64::from(environment.ports.max(1)));
        let computed = Span::from_us(15) + port_rate.time_for(environment.queue) * 6;
        let computed = if environment.trimming { computed } else { computed.max(config.rto_min) };
        let rto = match detection {
            LossDetection::Holes => config.rto_high,
            _ if config.rto == Span::ZERO => computed,
            _ => config.rto,
        };
        let flight_max = if config.flight_bdp > 0.0 {
            ((environment.bdp().0 as f64 * config.flight_bdp) as u64).max(environment.packet.0)
        } else {
            u64::MAX
        };
        SelectiveRepeat {
            backlog: Backlog::new(transport.mtu),
            board: Scoreboard::default(),
            repairs: VecDeque::new(),
            lost: Vec::new(),
            detection,
            rto,
            rto_low: config.rto_low,
            rto_low_packets: config.rto_low_packets,
            deadline: Time::NEVER,
            window_psn: config.window_psn,
            flight_max,
            packet: environment.packet.0,
            highest: 0,
            recovery: None,
            mark: 0,
            probe: (detection == LossDetection::Reordering)
                .then(|| Box::new(Probe { window_max: environment.bdp().0 * 3 / 2, ..Probe::default() })),
            base_rtt: environment.base_rtt,
        }
    }

    #[inline]
    fn present_rto(&self) -> Span {
        let few = self.board.in_flight().0 <= u64::from(self.rto_low_packets) * self.packet;
        if self.detection == LossDetection::Holes && few { self.rto_low } else { self.rto }
    }

    fn lose(&mut self, psn: u64, kind: LossKind) {
        if let Some(sent) = self.board.lose(psn) {
            self.repairs.push_back(psn);
            self.lost.push(Lost { path: sent.path, bytes: Bytes(u64::from(sent.size)), kind });
        }
    }

    /// Drops repairs that an acknowledgement has made needless from the head of the queue.
    #[inline]
    fn prune_repairs(&mut self) {
        while let Some(&psn) = self.repairs.front() {
            if self.board.get(psn).is_some_and(|s| s.state == State::Lost) {
                return;
            }
            self.repairs.pop_front();
        }
    }

    #[inline]
    fn settle(&mut self, psn: u64, settled: &mut Settled) {
        if let Some(size) = self.board.acknowledge(psn) {
            settled.bytes += Bytes(u64::from(size));
            settled.packets += 1;
        }
    }

    fn enter_recovery(&mut self, from: u64, bound: u64) {
        self.recovery = Some(Recovery { until: self.board.next(), bound });
        self.mark = self.mark.max(from);
    }

    /// Sends again what the present episode says is missing.
    fn recover(&mut self, window: Bytes) {
        let Some(recovery) = self.recovery else { return };
        let una = self.board.una();
        let end = recovery.bound.min(una + (window.0 / self.packet).max(1)).min(self.board.next());
        let from = self.mark.max(una);
        for psn in from..end {
            self.lose(psn, LossKind::Inferred);
        }
        self.mark = self.mark.max(end);
    }

    fn detect_by_holes(&mut self, flags: Flags, window: Bytes) {
        if flags.has(Flags::HOLE) && self.recovery.is_none() {
            let una = self.board.una();
            self.mark = una;
            self.enter_recovery(una, una);
        }
        if let Some(recovery) = &mut self.recovery {
            recovery.bound = self.highest;
        }
        self.recover(Bytes(window.0.max(u64::from(self.window_psn) * self.packet)));
    }

    fn detect_by_reordering(&mut self, now: Time, ack: &Ack, flags: Flags, window: Bytes) {
        let una = self.board.una();
        // A probe that came back without much delay means that older data had the time to arrive.
        let judged =
            self.probe.as_ref().filter(|p| flags.has(Flags::PROBE_ANSWER) && now.since(p.sent) < self.base_rtt * 2);
        let judged = judged.map(|p| p.covers);
        self.arm_probe(now);
        if let Some(recovery) = &mut self.recovery {
            // A probe may tell of more than was known when the episode began.
            recovery.bound = recovery.bound.max(judged.unwrap_or(0));
        } else if let Some(covers) = judged {
            self.enter_recovery(una, covers);
        } else if u64::from(ack.out_of_order) >= self.reordering_allowed(window) && self.repairs.is_empty() {
            self.enter_recovery(una, self.highest);
        }
        self.recover(window);
    }

    /// As many packets held above a hole mean a loss: one and a half windows of them, at most the largest window.
    fn reordering_allowed(&self, window: Bytes) -> u64 {
        let most = self.probe.as_ref().map_or(u64::MAX, |p| p.window_max);
        ((window.0.saturating_mul(3) / 2).min(most) / self.packet).max(REORDER_PACKETS_MIN)
    }

    /// With nothing left to send, only a probe brings news of the tail; otherwise acknowledgements do for a while.
    fn arm_probe(&mut self, now: Time) {
        let Some(probe) = &mut self.probe else { return };
        probe.due = false;
        probe.at = if self.board.una() == self.board.next() {
            Time::NEVER
        } else if self.board.next() == self.backlog.end() {
            now + self.base_rtt * 2
        } else {
            now + self.base_rtt * 3
        };
    }
}

impl Reliability for SelectiveRepeat {
    fn open(&mut self, message: Message) {
        self.backlog.push(message);
    }

    #[inline]
    fn has_next(&self) -> bool {
        if !self.repairs.is_empty() {
            return true;
        }
        let next = self.board.next();
        next < self.backlog.end()
            && next - self.board.una() < u64::from(self.window_psn)
            && self.board.in_flight().0 < self.flight_max
    }

    fn next_is_urgent(&self) -> bool {
        self.recovery.is_some() && !self.repairs.is_empty()
    }

    #[inline]
    fn next(&mut self, _: Time) -> Option<Segment> {
        if let Some(psn) = self.repairs.pop_front() {
            return Some(Segment { again: true, ..self.backlog.segment(psn) });
        }
        self.has_next().then(|| self.backlog.segment(self.board.next()))
    }

    #[inline]
    fn on_sent(&mut self, now: Time, segment: &Segment, path: PathId, bytes: Bytes) {
        self.board.send(segment.psn, now, path, bytes.0 as u16);
        self.prune_repairs();
        if self.deadline == Time::NEVER {
            self.deadline = now + self.present_rto();
            self.arm_probe(now);
        }
    }

    #[inline]
    fn on_ack(&mut self, now: Time, ack: &Ack, flags: Flags, window: Bytes) -> Result<Settled, Invalid> {
        let una = self.board.una();
        let next = self.board.next();
        let cumulative = ack.cumulative.extend(una);
        if cumulative > next {
            return Err(Invalid::BeyondSent);
        }
        let base = ack.sack_base.extend(una);
        let bits = ack.sack.get();
        if bits != 0 && base + 64 - u64::from(bits.leading_zeros()) > next {
            return Err(Invalid::BeyondSent);
        }
        let mut settled = Settled::default();
        if flags.has(Flags::PROBE_ANSWER) {
            // It describes no data packet: its round trip is the probe's, which judges losses but not congestion.
            settled.rtt = None;
        } else if let Some(sent) = self.board.get(ack.acked.extend(una)) {
            let again = flags.has(Flags::RETRANSMITTED);
            if (sent.sends == 1 && !again) || (sent.sends == 2 && again) {
                settled.rtt = Some(now.since(sent.at));
            }
        }
        for psn in una..cumulative {
            self.settle(psn, &mut settled);
        }
        if cumulative > una {
            self.board.advance(cumulative);
            self.highest = self.highest.max(cumulative);
        }
        let mut rest = bits;
        while rest != 0 {
            let psn = base + u64::from(rest.trailing_zeros());
            rest &= rest - 1;
            if psn >= self.board.una() {
                self.settle(psn, &mut settled);
                self.highest = self.highest.max(psn + 1);
            }
        }
        if self.recovery.is_some_and(|r| self.board.una() >= r.until) {
            self.recovery = None;
        }
        match self.detection {
            LossDetection::Trimming => {}
            LossDetection::Holes => self.detect_by_holes(flags, window),
            LossDetection::Reordering => self.detect_by_reordering(now, ack, flags, window),
        }
        self.prune_repairs();
        if self.board.una() == self.board.next() {
            self.deadline = Time::NEVER;
            self.arm_probe(now);
        } else if self.detection == LossDetection::Holes {
            // The fewer are in flight, the shorter the timeout; what is too early is found to be.
            self.deadline = self.deadline.min(now + self.present_rto());
        }
        Ok(settled)
    }

    fn on_nack(&mut self, _: Time, nack: &Nack, flags: Flags) -> Result<Settled, Invalid> {
        let psn = nack.psn.extend(self.board.una());
        if psn >= self.board.next() {
            return Err(Invalid::BeyondSent);
        }
        self.lose(psn, LossKind::Trimmed { last_hop: flags.has(Flags::TRIMMED_AT_LAST_HOP) });
        Ok(Settled::default())
    }

    fn on_timeout(&mut self, now: Time) {
        if let Some(probe) = self.probe.as_mut().filter(|p| p.at <= now) {
            probe.due = true;
            probe.at = now + self.base_rtt * 5;
        }
        if now < self.deadline {
            return;
        }
        let rto = self.present_rto();
        let mut oldest = Time::NEVER;
        let mut found = false;
        for psn in self.board.una()..self.board.next() {
            let Some(&sent) = self.board.get(psn) else { continue };
            if sent.state != State::InFlight {
                continue;
            }
            let overdue = sent.at + rto <= now;
            // Fast recovery gets a packet that it has not tried yet, if it may judge it.
            let judged = self.recovery.is_some_and(|r| psn < r.bound);
            let spared = judged && sent.sends == 1 && self.detection == LossDetection::Reordering;
            if overdue && !spared {
                self.lose(psn, LossKind::TimedOut);
                found = true;
            } else {
                oldest = oldest.min(if overdue { now } else { sent.at });
            }
        }
        if found && self.detection == LossDetection::Holes {
            self.recovery = None;
        }
        self.deadline = if oldest != Time::NEVER {
            oldest + rto
        } else if self.board.una() == self.board.next() {
            Time::NEVER
        } else {
            now + rto
        };
    }

    #[inline]
    fn deadline(&self) -> Time {
        self.probe.as_ref().map_or(self.deadline, |p| self.deadline.min(p.at))
    }

    #[inline]
    fn take_lost(&mut self) -> Option<Lost> {
        self.lost.pop()
    }

    #[inline]
    fn wants_probe(&self) -> bool {
        self.probe.as_ref().is_some_and(|p| p.due)
    }

    #[inline]
    fn take_probe(&mut self, now: Time) -> Option<u32> {
        let probe = self.probe.as_mut().filter(|p| p.due)?;
        probe.due = false;
        probe.number = probe.number.wrapping_add(1);
        probe.sent = now;
        probe.covers = self.board.next();
        probe.at = now + self.base_rtt * 5;
        Some(probe.number)
    }

    #[inline]
    fn take_finished(&mut self) -> Option<Message> {
        let finished = self.backlog.pop_finished(self.board.una());
        if finished.is_some() && self.backlog.is_empty() {
            self.board.release();
            self.repairs = VecDeque::new();
            self.lost = Vec::new();
        }
        finished
    }

    #[inline]
    fn in_flight(&self) -> Bytes {
        self.board.in_flight()
    }

    #[inline]
    fn touch(&self) -> u64 {
        self.board.touch() ^ self.backlog.end()
    }

    fn on_base_rtt(&mut self, base_rtt: Span) {
        self.base_rtt = self.base_rtt.min(base_rtt.max(BASE_RTT_MIN));
    }
}

/// The receiver's half.
#[derive(Debug)]
pub struct SelectiveReceiver {
    bitmap: SlidingBitmap,
    unacknowledged: u64,
    received_bytes: u64,
    every: u64,
    ack_marked: bool,
    /// Report holes at once (IRN).
    holes: bool,
    started: bool,
    /// An acknowledgement was asked for while packets were missing; owed when they have come.
    request_open: bool,
    /// Last packets of messages that are here while earlier ones are missing: (PSN, message, bytes), in order.
    ends: Vec<(u64, MessageId, u64)>,
    done: VecDeque<(MessageId, u64)>,
}

impl SelectiveReceiver {
    /// Nothing received.
    pub fn new(config: &SelectiveRepeatConfig, transport: &TransportConfig) -> SelectiveReceiver {
        SelectiveReceiver {
            bitmap: SlidingBitmap::new(config.window_psn),
            unacknowledged: 0,
            received_bytes: 0,
            every: transport.ack_every.0,
            ack_marked: transport.ack_marked,
            holes: config.holes,
            started: false,
            request_open: false,
            ends: Vec::new(),
            done: VecDeque::new(),
        }
    }

    fn ack(&mut self, psn: u64, base: u64, flags: Flags, path: PathId) -> (Ack, Flags) {
        self.unacknowledged = 0;
        let ack = Ack {
            cumulative: Psn::new(self.bitmap.base()),
            sack_base: Psn::new(base),
            sack: SackBits::new(self.bitmap.window(base)),
            acked: Psn::new(psn),
            path,
            received: self.received_bytes.div_ceil(256) as u32,
            out_of_order: self.bitmap.count().min(0xffff) as u16,
        };
        let echo = Flags::NONE
            .with_if(flags.has(Flags::CE), Flags::MARKED)
            .with_if(flags.has(Flags::RETRANSMITTED), Flags::RETRANSMITTED);
        (ack, echo)
    }
}

impl Receiver for SelectiveReceiver {
    #[inline]
    fn on_data(&mut self, data: &Data, flags: Flags, path: PathId) -> Result<Arrival, Invalid> {
        let before = self.bitmap.base();
        let psn = data.psn.extend(before);
        if psn >= before + u64::from(self.bitmap.limit()) {
            return Err(Invalid::BeyondWindow);
        }
        let mut arrival = Arrival::default();
        if flags.has(Flags::TRIMMED) {
            if !self.bitmap.contains(psn) {
                let echo = Flags::NONE
                    .with_if(flags.has(Flags::CE), Flags::MARKED)
                    .with_if(flags.has(Flags::TRIMMED_AT_LAST_HOP), Flags::TRIMMED_AT_LAST_HOP);
                let nack = Nack { psn: Psn::new(psn), cumulative: Psn::new(before), path };
                arrival.nack = Some((nack, echo));
            }
            return Ok(arrival);
        }
        if !self.bitmap.insert(psn) {
            arrival.duplicate = true;
            let base = before.max(psn.saturating_sub(63));
            arrival.ack = Some(self.ack(psn, base, flags, path));
            return Ok(arrival);
        }
        arrival.fresh = true;
        self.received_bytes += u64::from(data.length);
        self.unacknowledged += u64::from(data.length);
        if flags.has(Flags::LAST) {
            let at = self.ends.partition_point(|&(p, _, _)| p < psn);
            self.ends.insert(at, (psn, data.message, data.end()));
        }
        let base = self.bitmap.base();
        if base > before {
            let complete = self.ends.partition_point(|&(p, _, _)| p < base);
            self.done.extend(self.ends.drain(..complete).map(|(_, message, bytes)| (message, bytes)));
        }
        let marked = self.ack_marked && flags.has(Flags::CE);
        let request = flags.has(Flags::ACK_REQUEST);
        let drained = self.request_open && self.bitmap.count() == 0;
        let hole = self.holes && psn > base;
        self.request_open = (self.request_open || request) && self.bitmap.count() > 0;
        if marked || request || drained || hole || !self.started || self.unacknowledged >= self.every {
            let from = if marked || request { psn } else { psn.saturating_sub(63).max(base + 1) };
            let (ack, echo) = self.ack(psn, from, flags, path);
            arrival.ack = Some((ack, echo.with_if(hole, Flags::HOLE)));
        }
        self.started = true;
        if !self.done.is_empty() && self.bitmap.count() == 0 {
            self.bitmap.release();
        }
        Ok(arrival)
    }

    fn on_probe(&mut self, path: PathId, marked: bool) -> (Ack, Flags) {
        let base = self.bitmap.base();
        let (ack, flags) = self.ack(base, base + 1, Flags::NONE.with_if(marked, Flags::CE), path);
        (ack, flags.with(Flags::PROBE_ANSWER))
    }

    #[inline]
    fn take_received(&mut self) -> Option<(MessageId, u64)> {
        self.done.pop_front()
    }

    fn cumulative(&self) -> u64 {
        self.bitmap.base()
    }

    #[inline]
    fn touch(&self) -> u64 {
        u64::from(self.bitmap.contains(self.bitmap.base() + 1)) ^ self.unacknowledged
    }
}

//! Selective repeat: packets are placed out of order, acknowledged selectively, and only missing packets are sent
//! again.
//!
//! There are four ways to find losses ([`LossDetection`]): NACKs for trimmed packets (UEC); reordering and probes, for
//! fabrics without trimming (SLEEK, published with UEC's simulator by STrack's first author); lateness (ours); or any
//! hole (IRN). Each of them also has a retransmission timeout.

mod config;
mod detect;
mod lateness;
mod order;
mod range;
mod receiver;
mod retries;

pub use config::{LossDetection, SelectiveRepeatConfig};
pub use receiver::SelectiveReceiver;
pub(super) use retries::Retry;

use super::scoreboard::{Scoreboard, State};
use super::{Invalid, Lost, Reliability, SentUpTo, Settled};
use crate::congestion::LossKind;
use crate::environment::{Environment, TransportConfig};
use crate::message::{Backlog, Message, Segment};
use crate::packet::{Ack, Flags, Nack, NackReason, PathId};
use crate::units::{Bytes, Span, Time};
use detect::{PROBES, Probe, Recovery};
use lateness::Lateness;
use order::PathOrder;
use range::Range;
use std::collections::VecDeque;

/// The smallest base RTT that the probe timer uses. Ours: a forged acknowledgement could otherwise set the base RTT to
/// zero, and the timer would fire again at the same instant for ever.
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
    /// The time in which the port was paused since the oldest packet in flight was sent, at a timeout.
    paused: Span,
    range: Range,
    recover_all: bool,
    flight_max: u64,
    packet: u32,
    /// Above the highest PSN known to have arrived.
    highest: u64,
    recovery: Option<Recovery>,
    /// The lowest PSN that this recovery or the next one may still send again.
    mark: u64,
    /// Only if losses are found by reordering or by lateness.
    probe: Option<Box<Probe>>,
    /// MRC's timers and budget of retries.
    retry: Option<Box<Retry>>,
    base_rtt: Span,
    /// The congestion control's target of the queueing delay, in base RTTs.
    target: f64,
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
            (false, false) if config.late > 0.0 => LossDetection::Lateness,
            (false, false) => LossDetection::Reordering,
        };
        SelectiveRepeat::build(config, detection, transport, environment)
    }

    /// As [`SelectiveRepeat::new`], with the way in which losses are found.
    pub(super) fn build(
        config: &SelectiveRepeatConfig,
        detection: LossDetection,
        transport: &TransportConfig,
        environment: &Environment,
    ) -> SelectiveRepeat {
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
            rto: config.timeout_of(detection == LossDetection::Holes, environment),
            rto_low: config.rto_low.max(environment.timeout_min()),
            rto_low_packets: config.rto_low_packets,
            deadline: Time::NEVER,
            paused: Span::ZERO,
            range: Range::fixed(config.window_psn),
            recover_all: config.recover_all,
            flight_max,
            packet: environment.packet.0.clamp(1, u64::from(u32::MAX)) as u32,
            highest: 0,
            recovery: None,
            mark: 0,
            probe: matches!(detection, LossDetection::Reordering | LossDetection::Lateness).then(|| {
                let late = Lateness::new(environment.base_rtt.scaled(config.late), config.late_spread);
                let order =
                    PathOrder::new(config.late_path, environment).filter(|_| detection == LossDetection::Lateness);
                Box::new(Probe { window_max: environment.bdp().0 * 3 / 2, late, order, ..Probe::default() })
            }),
            retry: None,
            base_rtt: environment.base_rtt,
            target: 1.0,
        }
    }

    /// See [`super::AnyReliability::follow`].
    pub(super) fn follow(&mut self, environment: &Environment, window_max_bdp: f64, target: f64) {
        if self.detection != LossDetection::Reordering {
            return;
        }
        self.target = target;
        if let Some(probe) = &mut self.probe {
            probe.window_max = (environment.bdp().0 as f64 * window_max_bdp) as u64;
        }
    }

    /// Sets the retransmission timeout. A timer that runs ends no later than a new one would.
    pub(super) fn set_timeout(&mut self, now: Time, timeout: Span) {
        self.rto = timeout;
        if self.deadline != Time::NEVER {
            self.deadline = self.deadline.min(now + timeout);
        }
    }

    /// A base RTT and the target: data that has not arrived in this time after it was sent is late.
    fn patience(&self) -> Span {
        self.base_rtt + self.base_rtt.scaled(self.target)
    }

    /// Calls `fetch` with the addresses of the window's entries.
    #[inline]
    pub(super) fn name_window(&self, fetch: impl Fn(*const u8)) {
        self.board.name_window(fetch);
    }

    /// The time from a probe to the next one, if the first is not answered.
    fn probe_again(&self) -> Span {
        let gap = self.probe.as_ref().map_or(Span::ZERO, |p| p.gap);
        if self.detection == LossDetection::Lateness { gap } else { self.base_rtt * 5 }
    }

    #[inline]
    fn present_rto(&self) -> Span {
        if let Some(retry) = &self.retry {
            return retry.timeout(self.rto);
        }
        let few = self.board.in_flight().0 <= u64::from(self.rto_low_packets) * u64::from(self.packet);
        if self.detection == LossDetection::Holes && few { self.rto_low } else { self.rto }
    }

    fn lose(&mut self, psn: u64, kind: LossKind) {
        if let Some(sent) = self.board.lose(psn) {
            self.repairs.push_back(psn);
            self.lost.push(Lost { path: sent.path, bytes: Bytes(u64::from(sent.size)), kind });
        }
    }

    /// Removes packets from the head of the repair queue that have been acknowledged meanwhile.
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
        let Some(size) = self.board.acknowledge(psn) else { return };
        settled.bytes += Bytes(u64::from(size));
        settled.packets += 1;
        if let Some(order) = self.probe.as_mut().and_then(|probe| probe.order.as_mut())
            && let Some(sent) = self.board.get(psn)
            // If it was sent twice, it is unknown which copy arrived.
            && sent.sends == 1
        {
            order.arrived(sent.path, sent.at);
        }
    }
}

impl Reliability for SelectiveRepeat {
    fn open(&mut self, message: Message) {
        if self.failed() {
            return;
        }
        self.backlog.push(message);
    }

    #[inline]
    fn has_next(&self) -> bool {
        if self.repair_place().is_some() {
            return true;
        }
        let next = self.board.next();
        next < self.backlog.end()
            && next - self.board.una() < u64::from(self.range.now)
            && self.board.in_flight().0 < self.flight_max
    }

    fn unsent(&self) -> u64 {
        self.backlog.end() - self.board.next() + self.repairs.len() as u64
    }

    fn is_held(&self) -> bool {
        !self.failed() && self.board.next() < self.backlog.end()
    }

    #[inline]
    fn next_is_urgent(&self) -> bool {
        self.recovery.is_some() && self.repair_place().is_some()
    }

    #[inline]
    fn next(&mut self, _: Time) -> Option<Segment> {
        if let Some(psn) = self.take_repair() {
            return Some(Segment { again: true, ..self.backlog.segment(psn) });
        }
        let psn = self.board.next();
        (psn < self.backlog.end()).then(|| self.backlog.segment(psn))
    }

    #[inline]
    fn on_sent(&mut self, now: Time, segment: &Segment, path: PathId, bytes: Bytes) {
        self.board.send(segment.psn, now, path, bytes.0 as u16);
        self.prune_repairs();
        if self.deadline == Time::NEVER {
            self.deadline = now + self.present_rto();
            self.arm_probe(now);
        }
        if self.detection == LossDetection::Lateness
            && let Some(probe) = &mut self.probe
        {
            // A later packet shows that an earlier one is late. When there is no more data, probes serve as later
            // packets, at short intervals first. On a path that keeps order, a probe must leave more than `slack` after
            // the last packet, or it shows nothing.
            probe.gap = match probe.gap_max {
                Span::ZERO => Span(self.base_rtt.0 / 2) + probe.order.as_ref().map_or(Span::ZERO, |order| order.slack),
                _ if self.board.next() == self.backlog.end() => self.base_rtt * 2,
                most => Span(most.0 / 2),
            };
            probe.at = now + probe.gap;
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
        self.range.on_range(ack.range);
        let mut settled = Settled::default();
        if flags.has(Flags::PROBE_ANSWER) {
            // The answer to a probe describes no data packet. Its round trip is used to find losses, not for congestion
            // control.
            settled.rtt = None;
        } else if let Some(sent) = self.board.get(ack.acked.extend(una)) {
            let again = flags.has(Flags::RETRANSMITTED);
            if (sent.sends == 1 && !again) || (sent.sends == 2 && again) {
                settled.rtt = Some(now.since(sent.at));
            }
        }
        if cumulative > una {
            if self.probe.as_ref().is_some_and(|probe| probe.order.is_some()) {
                for psn in una..cumulative {
                    self.settle(psn, &mut settled);
                }
            } else {
                (settled.bytes, settled.packets) = self.board.acknowledge_below(cumulative);
            }
            self.board.advance(cumulative);
            self.highest = self.highest.max(cumulative);
            if let Some(retry) = &mut self.retry {
                retry.reset();
            }
        }
        if self.detection == LossDetection::Lateness && !flags.has(Flags::PROBE_ANSWER) {
            // The bitmap may not cover the acknowledged packet itself.
            let acked = ack.acked.extend(una);
            if acked >= self.board.una() && acked < next {
                self.settle(acked, &mut settled);
                self.highest = self.highest.max(acked + 1);
            }
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
        if self.recovery.is_some_and(|r| self.board.una() >= r.until.get()) {
            self.recovery = None;
        }
        match self.detection {
            LossDetection::Trimming => {}
            LossDetection::Holes => self.detect_by_holes(flags, window),
            LossDetection::Reordering => self.detect_by_reordering(now, ack, flags, window),
            LossDetection::Lateness => self.detect_by_lateness(now, ack, flags, settled.rtt),
        }
        self.prune_repairs();
        if self.board.una() == self.board.next() {
            self.deadline = Time::NEVER;
            self.arm_probe(now);
        } else if self.detection == LossDetection::Holes {
            // Few packets in flight have the shorter timeout. If this deadline is too early for a packet, `on_timeout`
            // does not resend it.
            self.deadline = self.deadline.min(now + self.present_rto());
        }
        Ok(settled)
    }

    fn on_nack(&mut self, now: Time, nack: &Nack, flags: Flags) -> Result<Settled, Invalid> {
        let psn = nack.psn.extend(self.board.una());
        if psn >= self.board.next() {
            return Err(Invalid::BeyondSent);
        }
        match nack.reason {
            NackReason::Missing => {
                self.lose(psn, LossKind::Trimmed { last_hop: flags.has(Flags::TRIMMED_AT_LAST_HOP) });
            }
            NackReason::Fatal if self.retry.is_some() => self.give_up(),
            // The receiver was short of a resource: no loss on the path, but it counts against the retry budget.
            _ => {
                if let Some(sent) = self.board.lose(psn) {
                    self.repairs.push_back(psn);
                    self.charge(now, sent.at);
                }
            }
        }
        Ok(Settled::default())
    }

    fn on_timeout(&mut self, now: Time) {
        let again = self.probe_again();
        if let Some(probe) = self.probe.as_mut().filter(|p| p.at <= now) {
            probe.due = true;
            probe.at = now + again;
        }
        if now < self.deadline {
            return;
        }
        let rto = self.present_rto() + std::mem::take(&mut self.paused);
        let mut oldest = Time::NEVER;
        let mut found = false;
        let mut latest = Time::ZERO;
        for psn in self.board.una()..self.board.next() {
            let Some(&sent) = self.board.get(psn) else { continue };
            if sent.state != State::InFlight {
                continue;
            }
            let overdue = sent.at + rto <= now;
            // A packet that was sent once and that the fast recovery can judge is left to the fast recovery.
            let judged = self.recovery.is_some_and(|r| psn < r.bound);
            let spared = judged && sent.sends == 1 && self.detection == LossDetection::Reordering;
            if overdue && !spared {
                self.lose(psn, LossKind::TimedOut);
                found = true;
                latest = latest.max(sent.at);
            } else {
                oldest = oldest.min(if overdue { now } else { sent.at });
            }
        }
        if found && self.detection == LossDetection::Holes {
            self.recovery = None;
        }
        if found {
            self.charge(now, latest);
        }
        self.deadline = if oldest != Time::NEVER {
            oldest + rto
        } else if self.board.una() == self.board.next() {
            Time::NEVER
        } else {
            now + rto
        };
    }

    fn wait_for_pauses(&mut self, now: Time, paused: &dyn Fn(Time) -> Span) {
        if now < self.deadline {
            return;
        }
        // The packets that were sent last waited for fewer pauses: they are late no sooner than the oldest one.
        let flying = (self.board.una()..self.board.next()).filter_map(|psn| self.board.get(psn));
        let oldest = flying.filter(|sent| sent.state == State::InFlight).map(|sent| sent.at).min();
        let Some(oldest) = oldest else { return };
        let lag = paused(oldest);
        let due = oldest + self.present_rto() + lag;
        if lag > Span::ZERO && due > now {
            self.deadline = due;
        } else {
            self.paused = lag;
        }
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
        let again = self.probe_again();
        let probe = self.probe.as_mut().filter(|p| p.due)?;
        probe.due = false;
        probe.number = probe.number.wrapping_add(1) & probe.numbers;
        let sent = probe.sent.get_or_insert_with(|| Box::new([(Time::ZERO, 0); PROBES]));
        sent[probe.number as usize % PROBES] = (now, self.board.next());
        probe.at = now + again;
        // Without answers, probes become rarer.
        let most = if probe.gap_max == Span::ZERO { self.base_rtt * 4 } else { probe.gap_max };
        probe.gap = (again * 2).min(most);
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
    fn retry_path(&self) -> Option<PathId> {
        let psn = *self.repairs.get(self.repair_place()?)?;
        self.board.get(psn).map(|sent| sent.path)
    }

    fn failed(&self) -> bool {
        self.retry.as_ref().is_some_and(|retry| retry.failed())
    }

    fn rest(&self) -> Option<SentUpTo> {
        let settled = self.board.una() == self.board.next() && self.repairs.is_empty() && self.lost.is_empty();
        if !settled || !self.backlog.is_empty() || self.failed() {
            return None;
        }
        let newest = self.probe.as_ref().map_or(0, |probe| probe.late.newest());
        Some(SentUpTo { next: self.board.next(), newest })
    }

    fn resume(&mut self, from: SentUpTo) {
        self.board = Scoreboard::starting_at(from.next);
        self.backlog.abandon(from.next);
        (self.highest, self.mark) = (from.next, from.next);
        if let Some(probe) = &mut self.probe {
            probe.late.start_from(from.newest);
        }
    }

    fn on_base_rtt(&mut self, base_rtt: Span) {
        self.base_rtt = self.base_rtt.min(base_rtt.max(BASE_RTT_MIN));
    }
}

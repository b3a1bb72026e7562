//! Go-back-N, as classic RoCEv2 reliable connections do it.
//!
//! The receiver accepts packets in order only. It sends one NACK for the first packet that arrives ahead of a hole, and
//! the sender starts again from the hole. Structure: InfiniBand architecture, reliable connection;
//! `docs/protocols/rocev2.md`.

use super::scoreboard::Scoreboard;
use super::{
    AnyReceiver, AnyReliability, Arrival, Invalid, Lost, Received, Receiver, Reliability, ReliabilityPolicy, SentUpTo,
    Settled,
};
use crate::congestion::LossKind;
use crate::environment::{Environment, TransportConfig};
use crate::host::HostTraits;
use crate::message::{Backlog, Message, Segment};
use crate::packet::{Ack, Data, Flags, Header, MessageId, Nack, NackReason, PathId, Psn, SackBits};
use crate::parameters;
use crate::profile::SwitchConfig;
use crate::units::{Bytes, Span, Time};
use std::collections::VecDeque;

parameters! {
    /// Go-back-N.
    pub struct GoBackNConfig {
        /// Start again from the oldest packet after this long without an acknowledgement; at least two base RTTs.
        rto: Span = Span::from_ms(1), 1.0e6..=1.0e13, "ours: real NICs use 4.096 us * 2^14 = 67 ms, too long for runs of milliseconds";
    }
}

impl ReliabilityPolicy for GoBackNConfig {
    fn build(&self, transport: &TransportConfig, environment: &Environment) -> AnyReliability {
        AnyReliability::GoBackN(GoBackN::new(self, transport, environment))
    }
    fn build_receiver(&self, transport: &TransportConfig, _environment: &Environment) -> AnyReceiver {
        AnyReceiver::GoBackN(GoBackNReceiver::new(transport))
    }
    fn timeout(&self, environment: &Environment) -> Span {
        self.rto.max(environment.timeout_min())
    }
    fn adapt_to(&mut self, host: &HostTraits, _transport: &TransportConfig, _switch: &SwitchConfig) {
        self.rto = self.rto.max(host.timer_slack);
    }
}

/// The sender's half.
#[derive(Debug)]
pub struct GoBackN {
    backlog: Backlog,
    board: Scoreboard,
    /// The next PSN to send; falls back to the hole on a NACK or timeout.
    cursor: u64,
    rto: Span,
    deadline: Time,
    /// When the timer began.
    since: Time,
    /// Losses not yet taken, last found first.
    lost: Vec<Lost>,
}

impl GoBackN {
    /// Nothing sent.
    pub fn new(config: &GoBackNConfig, transport: &TransportConfig, environment: &Environment) -> GoBackN {
        GoBackN {
            backlog: Backlog::new(transport.mtu),
            board: Scoreboard::default(),
            cursor: 0,
            rto: config.timeout(environment),
            deadline: Time::NEVER,
            since: Time::ZERO,
            lost: Vec::new(),
        }
    }

    fn settle(&mut self, now: Time, cumulative: u64) -> Settled {
        let mut settled = Settled::default();
        for psn in self.board.una()..cumulative {
            if let Some(size) = self.board.acknowledge(psn) {
                settled.bytes += Bytes(u64::from(size));
                settled.packets += 1;
            }
        }
        if cumulative > self.board.una() {
            self.board.advance(cumulative);
            self.start_timer(now);
        }
        self.cursor = self.cursor.max(cumulative);
        if self.board.una() == self.board.next() {
            self.deadline = Time::NEVER;
        }
        settled
    }

    fn start_timer(&mut self, now: Time) {
        (self.since, self.deadline) = (now, now + self.rto);
    }

    /// All packets from `psn` on count as lost and are sent again.
    fn go_back(&mut self, psn: u64, kind: LossKind) {
        for psn in psn..self.cursor {
            if let Some(sent) = self.board.lose(psn) {
                self.lost.push(Lost { path: sent.path, bytes: Bytes(u64::from(sent.size)), kind });
            }
        }
        self.cursor = psn;
    }
}

impl Reliability for GoBackN {
    fn open(&mut self, message: Message) {
        self.backlog.push(message);
    }

    fn has_next(&self) -> bool {
        self.cursor < self.backlog.end() && self.cursor - self.board.una() < Psn::MODULUS / 4
    }

    fn unsent(&self) -> u64 {
        self.backlog.end() - self.cursor
    }

    fn is_held(&self) -> bool {
        self.cursor < self.backlog.end()
    }

    fn next(&mut self, _: Time) -> Option<Segment> {
        let segment = (self.cursor < self.backlog.end()).then(|| self.backlog.segment(self.cursor))?;
        Some(Segment { again: self.cursor < self.board.next(), ..segment })
    }

    fn on_sent(&mut self, now: Time, segment: &Segment, path: PathId, bytes: Bytes) {
        self.board.send(segment.psn, now, path, bytes.0 as u16);
        self.cursor = segment.psn + 1;
        if self.deadline == Time::NEVER {
            self.start_timer(now);
        }
    }

    fn on_ack(&mut self, now: Time, ack: &Ack, flags: Flags, _: Bytes) -> Result<Settled, Invalid> {
        let cumulative = ack.cumulative.extend(self.board.una());
        if cumulative > self.board.next() {
            return Err(Invalid::BeyondSent);
        }
        let acked = ack.acked.extend(self.board.una());
        let rtt = match self.board.get(acked) {
            Some(sent) if sent.sends == 1 && !flags.has(Flags::RETRANSMITTED) => Some(now.since(sent.at)),
            _ => None,
        };
        Ok(Settled { rtt, ..self.settle(now, cumulative) })
    }

    fn on_nack(&mut self, now: Time, nack: &Nack, _: Flags) -> Result<Settled, Invalid> {
        let hole = nack.psn.extend(self.board.una());
        if hole > self.board.next() {
            return Err(Invalid::BeyondSent);
        }
        if hole < self.board.una() {
            return Ok(Settled::default());
        }
        let settled = self.settle(now, hole);
        self.go_back(hole, LossKind::Inferred);
        Ok(settled)
    }

    fn on_timeout(&mut self, now: Time) {
        if now < self.deadline {
            return;
        }
        self.go_back(self.board.una(), LossKind::TimedOut);
        self.start_timer(now);
    }

    fn wait_for_pauses(&mut self, now: Time, paused: &dyn Fn(Time) -> Span) {
        if now >= self.deadline {
            self.deadline = self.since + self.rto + paused(self.since);
        }
    }

    fn deadline(&self) -> Time {
        self.deadline
    }

    fn take_lost(&mut self) -> Option<Lost> {
        self.lost.pop()
    }

    fn take_finished(&mut self) -> Option<Message> {
        let finished = self.backlog.pop_finished(self.board.una());
        if finished.is_some() && self.backlog.is_empty() {
            self.board.release();
            self.lost = Vec::new();
        }
        finished
    }

    fn in_flight(&self) -> Bytes {
        self.board.in_flight()
    }

    fn rest(&self) -> Option<SentUpTo> {
        let done = self.backlog.is_empty() && self.board.una() == self.board.next() && self.lost.is_empty();
        done.then(|| SentUpTo { next: self.board.next(), newest: 0 })
    }

    fn resume(&mut self, from: SentUpTo) {
        self.board = Scoreboard::starting_at(from.next);
        self.backlog.abandon(from.next);
        self.cursor = from.next;
    }
}

/// The receiver's half.
#[derive(Debug)]
pub struct GoBackNReceiver {
    expected: u64,
    nack_sent: bool,
    unacknowledged: u64,
    received_bytes: u64,
    every: u64,
    ack_marked: bool,
    done: VecDeque<(MessageId, u64)>,
}

impl GoBackNReceiver {
    /// Nothing received.
    pub fn new(transport: &TransportConfig) -> GoBackNReceiver {
        GoBackNReceiver {
            expected: 0,
            nack_sent: false,
            unacknowledged: 0,
            received_bytes: 0,
            every: transport.ack_every.0,
            ack_marked: transport.ack_marked,
            done: VecDeque::new(),
        }
    }

    fn ack(&mut self, psn: u64, flags: Flags, path: PathId) -> (Ack, Flags) {
        self.unacknowledged = 0;
        let ack = Ack {
            cumulative: Psn::new(self.expected),
            sack_base: Psn::new(self.expected),
            sack: SackBits::default(),
            acked: Psn::new(psn),
            path,
            received: self.received_bytes.div_ceil(256) as u32,
            out_of_order: 0,
            range: 0,
        };
        let echo = Flags::NONE
            .with_if(flags.has(Flags::CE), Flags::MARKED)
            .with_if(flags.has(Flags::RETRANSMITTED), Flags::RETRANSMITTED);
        (ack, echo)
    }
}

impl Receiver for GoBackNReceiver {
    fn on_data(
        &mut self,
        data: &Data,
        flags: Flags,
        path: PathId,
        answer: &mut Option<(Header, Flags)>,
    ) -> Result<Arrival, Invalid> {
        let psn = data.psn.extend(self.expected);
        let mut arrival = Arrival::default();
        if psn > self.expected || flags.has(Flags::TRIMMED) {
            // One NACK per hole: later packets ahead of it are dropped without an answer.
            if psn >= self.expected && !self.nack_sent {
                self.nack_sent = true;
                let hole = Psn::new(self.expected);
                let echo = Flags::NONE.with_if(flags.has(Flags::CE), Flags::MARKED);
                let nack = Nack { psn: hole, cumulative: hole, path, reason: NackReason::Missing };
                *answer = Some((Header::Nack(nack), echo));
            }
            return Ok(arrival);
        }
        if psn < self.expected {
            arrival.duplicate = true;
            let (ack, echo) = self.ack(psn, flags, path);
            *answer = Some((Header::Ack(ack), echo));
            return Ok(arrival);
        }
        arrival.fresh = true;
        self.expected += 1;
        self.nack_sent = false;
        self.received_bytes += u64::from(data.length);
        self.unacknowledged += u64::from(data.length);
        let last = flags.has(Flags::LAST);
        if last {
            self.done.push_back((data.message, data.end()));
        }
        let marked = self.ack_marked && flags.has(Flags::CE);
        if last || marked || flags.has(Flags::ACK_REQUEST) || self.unacknowledged >= self.every {
            let (ack, echo) = self.ack(psn, flags, path);
            *answer = Some((Header::Ack(ack), echo));
        }
        Ok(arrival)
    }

    fn on_probe(&mut self, number: u32, path: PathId, marked: bool) -> (Ack, Flags) {
        let (ack, flags) = self.ack(u64::from(number), Flags::NONE.with_if(marked, Flags::CE), path);
        (ack, flags.with(Flags::PROBE_ANSWER))
    }

    fn take_received(&mut self) -> Option<(MessageId, u64)> {
        self.done.pop_front()
    }

    fn cumulative(&self) -> u64 {
        self.expected
    }

    fn rest(&self) -> Option<Received> {
        let done = self.done.is_empty() && !self.nack_sent;
        done.then_some(Received { next: self.expected, bytes: self.received_bytes })
    }

    fn resume(&mut self, from: Received) {
        self.expected = from.next;
        self.received_bytes = from.bytes;
    }
}

//! The end of a context that sends messages: it opens and closes it.

use super::timer::Timer;
use super::{Event, ONLY, Operation, Shared, write};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use strandway_proto::packet::{Data, Flags, Header, Psn};
use strandway_proto::{Endpoint, Event as EngineEvent, Message, MessageId, Packet, Ports, Span, Time};
use strandway_wire::uet::codes::{ControlKind, NackCode, Opcode, ReturnCode};
use strandway_wire::uet::pds::{Ack, Context, Control, Mode, Nack, Refused, Wish};
use strandway_wire::uet::ses::{Place, Standard};
use strandway_wire::uet::{self, Conversation, Datagram, Pds, Ses};

/// A message that is being sent.
pub(super) struct Posted {
    opcode: Opcode,
    key: u64,
    offset: u64,
    header_data: Option<u64>,
    bytes: Arc<Vec<u8>>,
    operation: Operation,
    /// The peer refused it; it counts as sent all the same.
    refused: bool,
}

impl Posted {
    pub(super) fn new(opcode: Opcode, key: u64, offset: u64, header_data: Option<u64>, bytes: Arc<Vec<u8>>) -> Posted {
        Posted { opcode, key, offset, header_data, bytes, operation: Operation(0), refused: false }
    }
}

/// How far the end of a context is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It takes operations.
    Open,
    /// It waits until all operations have arrived.
    Draining,
    /// The close was sent.
    Closing { sends: u32, at: Time },
    /// It can be forgotten.
    Ended,
}

pub(super) struct Initiator {
    pub(super) peer: SocketAddr,
    /// Our number of the context.
    local: u16,
    /// The peer's number, once it has answered.
    remote: Option<u16>,
    start: u32,
    endpoint: Endpoint,
    /// Messages that have not arrived, from number `first` on.
    posted: VecDeque<Posted>,
    first: u32,
    /// Packets of all messages.
    packets: u64,
    /// Packets that have arrived without a hole.
    acknowledged: u64,
    /// Packets that have been sent, some of them perhaps in vain.
    sent: u64,
    /// The hole for which all packets behind it were sent again.
    went_back: Option<u64>,
    /// Clears that the peer has asked for.
    clears: u32,
    stage: Stage,
    heard: Time,
    timer: Timer,
}

impl Initiator {
    pub(super) fn new(
        now: Time,
        peer: SocketAddr,
        local: u16,
        start: u32,
        endpoint: Endpoint,
        timeout: Span,
    ) -> Initiator {
        Initiator {
            peer,
            local,
            remote: None,
            start,
            endpoint,
            posted: VecDeque::new(),
            first: 0,
            packets: 0,
            acknowledged: 0,
            sent: 0,
            went_back: None,
            clears: 0,
            stage: Stage::Open,
            heard: now,
            timer: Timer::new(timeout),
        }
    }

    pub(super) fn post(&mut self, now: Time, operation: Operation, posted: Posted) {
        if self.posted.is_empty() {
            self.heard = now;
        }
        let payload = u64::from(self.endpoint.observe().profile(ONLY).transport.mtu);
        let bytes = posted.bytes.len() as u64;
        self.packets += bytes.div_ceil(payload).max(1);
        let id = MessageId(self.first.wrapping_add(self.posted.len() as u32));
        self.posted.push_back(Posted { operation, ..posted });
        self.endpoint.post(now, ONLY, Message { id, bytes });
    }

    pub(super) fn close(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Draining;
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    fn conversation(&self, mode: Mode, message: u64) -> Conversation {
        Conversation {
            source: self.local,
            target: self.remote.unwrap_or(0),
            mode,
            start: self.start,
            opening: self.remote.is_none(),
            acknowledged: self.acknowledged,
            received: 0,
            message,
        }
    }

    /// An acknowledgement or a NACK.
    pub(super) fn handle(&mut self, now: Time, datagram: &Datagram<'_>, shared: &mut Shared) {
        self.timer.on_heard();
        match &datagram.pds {
            Pds::Ack(ack) => self.handle_ack(now, ack, datagram, shared),
            Pds::Nack(nack) => self.handle_nack(now, nack, datagram, shared),
            _ => shared.counters.malformed += 1,
        }
    }

    fn handle_ack(&mut self, now: Time, ack: &Ack, datagram: &Datagram<'_>, shared: &mut Shared) {
        if self.remote.is_some_and(|remote| remote != ack.source) {
            shared.counters.strays += 1;
            return;
        }
        // The close has the number behind the last packet.
        let near = self.acknowledged as u32;
        let ahead = ack.cumulative.wrapping_sub(self.start).wrapping_add(1).wrapping_sub(near) as i32;
        let next = self.acknowledged.saturating_add_signed(ahead.into());
        let closes = matches!(self.stage, Stage::Closing { .. }) && next == self.packets + 1;
        if next > self.packets && !closes {
            shared.counters.malformed += 1;
            return;
        }
        (self.remote, self.heard) = (Some(ack.source), now);
        if ack.wish == Wish::Clear {
            self.clears = self.clears.saturating_add(1);
        }
        if closes {
            self.stage = Stage::Ended;
            shared.events.push_back(Event::Closed { peer: self.peer });
            return;
        }
        if let Ses::Response(response) = datagram.ses {
            self.judge(response.message, response.answer.code, shared);
        }
        if let Some(psn) = ack.acked_psn().filter(|_| !ack.retransmitted) {
            let psn = Psn::new(psn.wrapping_sub(self.start).into()).extend(self.acknowledged);
            self.timer.on_acked(now, psn);
        }
        self.hand_over(now, datagram);
        self.acknowledged = self.acknowledged.max(next);
        self.drain(shared);
    }

    /// The outcome of a message. A response "nothing to return" belongs to a repetition.
    fn judge(&mut self, message: u16, code: ReturnCode, shared: &mut Shared) {
        if matches!(code, ReturnCode::OK | ReturnCode::NULL) {
            return;
        }
        let index = usize::from(message.wrapping_sub(self.first as u16));
        if let Some(posted) = self.posted.get_mut(index).filter(|posted| !posted.refused) {
            posted.refused = true;
            shared.events.push_back(Event::Refused { operation: posted.operation, code });
        }
    }

    fn handle_nack(&mut self, now: Time, nack: &Nack, datagram: &Datagram<'_>, shared: &mut Shared) {
        self.heard = now;
        match nack.code {
            NackCode::UNKNOWN_CONTEXT if matches!(self.stage, Stage::Closing { .. }) => {
                // The acknowledgement of the close was lost, and the peer has forgotten the context since.
                self.stage = Stage::Ended;
                shared.events.push_back(Event::Closed { peer: self.peer });
            }
            NackCode::UNKNOWN_CONTEXT
            | NackCode::HEADER_MISMATCH
            | NackCode::CLOSING
            | NackCode::CLOSING_IN_ERROR
            | NackCode::RESPONSE_UNAVAILABLE
            | NackCode::INVALID_SYN
            | NackCode::MODE_MISMATCH
            | NackCode::NEW_START_PSN
            | NackCode::UNEXPECTED
            | NackCode::EXPERIMENTAL_FATAL => {
                self.stage = Stage::Ended;
                shared.events.push_back(Event::Broken { peer: self.peer, code: Some(nack.code) });
            }
            NackCode::OUT_OF_ORDER | NackCode::BEYOND_WINDOW => self.go_back(now, nack),
            // Trims are sent again at once; for all others the timeout comes.
            _ => self.hand_over(now, datagram),
        }
    }

    /// The peer drops packets behind a hole, as in ROD and in SUET's go-back-N: then the hole and all behind it are sent
    /// again, in order, once for each hole. If that fails, the timeout comes.
    fn go_back(&mut self, now: Time, nack: &Nack) {
        let Refused::Packet { psn, source, target } = nack.about else { return };
        let refused = Psn::new(psn.wrapping_sub(self.start).into()).extend(self.acknowledged);
        let hole = self.acknowledged;
        if refused <= hole || refused >= self.sent || self.went_back == Some(hole) {
            return;
        }
        self.went_back = Some(hole);
        for psn in hole..self.sent {
            let about = Refused::Packet { psn: self.start.wrapping_add(psn as u32), source, target };
            let lost = Nack { code: NackCode::TRIMMED, about, ..*nack };
            self.hand_over(now, &Datagram { pds: Pds::Nack(lost), ses: Ses::None, payload: &[] });
        }
    }

    fn hand_over(&mut self, now: Time, datagram: &Datagram<'_>) {
        let cumulative = Psn::new(self.acknowledged);
        let read = uet::interpret(&datagram.pds, &datagram.ses, 0, self.start, MessageId(0), cumulative);
        if let Some(packet) = read {
            self.endpoint.handle_packet(now, &packet);
        }
    }

    fn drain(&mut self, shared: &mut Shared) {
        while let Some(event) = self.endpoint.poll_event() {
            if let EngineEvent::Sent { .. } = event
                && let Some(posted) = self.posted.pop_front()
            {
                self.first = self.first.wrapping_add(1);
                if !posted.refused {
                    shared.events.push_back(Event::Completed { operation: posted.operation });
                }
            }
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time, shared: &mut Shared) {
        if self.stage == Stage::Ended {
            return;
        }
        if self.waits() && now.since(self.heard) >= shared.config.patience {
            self.stage = Stage::Ended;
            shared.events.push_back(Event::Broken { peer: self.peer, code: None });
            return;
        }
        if self.endpoint.poll_timeout().is_some_and(|at| self.timer.end(at) <= now) {
            self.endpoint.handle_timeout(now);
            self.timer.on_timeout(now);
        }
    }

    /// Does it wait for an answer?
    fn waits(&self) -> bool {
        !self.posted.is_empty() || matches!(self.stage, Stage::Closing { .. })
    }

    pub(super) fn poll_timeout(&self, shared: &Shared) -> Option<Time> {
        let patience = self.waits().then(|| self.heard + shared.config.patience);
        let close = match self.stage {
            Stage::Closing { at, .. } => Some(at),
            _ => None,
        };
        let again = self.endpoint.poll_timeout().map(|at| self.timer.end(at));
        [patience, close, again].into_iter().flatten().min()
    }

    /// Appends its next datagram; false if it has none.
    pub(super) fn poll_transmit(&mut self, now: Time, shared: &mut Shared, out: &mut Vec<u8>) -> bool {
        if self.clears > 0 {
            self.clears -= 1;
            let cleared = self.start.wrapping_add(self.acknowledged as u32).wrapping_sub(1);
            write(&self.control(ControlKind::CLEAR, 0, cleared, false), out);
            return true;
        }
        while let Some(packet) = self.endpoint.poll_transmit(now, Ports::first(1)) {
            if self.write_packet(now, &packet, shared, out) {
                return true;
            }
        }
        let close = self.poll_close(now, shared);
        close.inspect(|close| write(close, out)).is_some()
    }

    fn poll_close(&mut self, now: Time, shared: &Shared) -> Option<Datagram<'static>> {
        let sends = match self.stage {
            Stage::Draining if self.posted.is_empty() && self.remote.is_some() => 0,
            // It was never used.
            Stage::Draining if self.packets == 0 => {
                self.stage = Stage::Ended;
                return None;
            }
            Stage::Closing { sends, at } if at <= now => sends,
            _ => return None,
        };
        if sends == 0 {
            self.heard = now;
        }
        let wait = Span(shared.config.timeout.0.saturating_mul(1 << sends.min(10)));
        self.stage = Stage::Closing { sends: sends + 1, at: now + wait };
        let psn = self.start.wrapping_add(self.packets as u32);
        Some(self.control(ControlKind::CLOSE, psn, 0, sends > 0))
    }

    fn control(&self, kind: ControlKind, psn: u32, payload: u32, retransmitted: bool) -> Datagram<'static> {
        let control = Control {
            kind,
            mode: Mode::Unordered,
            retransmitted,
            ack_request: kind == ControlKind::CLOSE,
            opaque: 0,
            psn,
            source: self.local,
            target: Context::Known(self.remote.unwrap_or(0)),
            payload,
        };
        Datagram { pds: Pds::Control(control), ses: Ses::None, payload: &[] }
    }

    /// Appends an engine's packet; false if UET has none for it.
    fn write_packet(&mut self, now: Time, packet: &Packet, shared: &mut Shared, out: &mut Vec<u8>) -> bool {
        let Header::Data(data) = packet.header else {
            let conversation = self.conversation(Mode::Unordered, 0);
            let Ok((pds, ses, _)) = uet::translate(packet, &conversation) else { return false };
            let may_leave = shared.config.probes && self.remote.is_some();
            if may_leave {
                write(&Datagram { pds, ses, payload: &[] }, out);
            }
            return may_leave;
        };
        let (psn, again) = (data.psn.extend(self.acknowledged), packet.flags.has(Flags::RETRANSMITTED));
        shared.counters.retransmissions += u64::from(again);
        self.sent = self.sent.max(psn + 1);
        self.timer.on_sent(now, psn, again);
        let datagram = self.datagram(packet, &data, shared);
        datagram.inspect(|datagram| write(datagram, out)).is_some()
    }

    /// The datagram of a data packet.
    fn datagram(&self, packet: &Packet, data: &Data, shared: &Shared) -> Option<Datagram<'_>> {
        let posted = self.posted.get(data.message.0.wrapping_sub(self.first) as usize)?;
        let conversation = self.conversation(shared.config.mode, posted.bytes.len() as u64);
        let (pds, ses, length) = uet::translate(packet, &conversation).ok()?;
        let Ses::Standard(standard) = ses else { return None };
        let mut common = standard.common;
        common.opcode = posted.opcode;
        [common.process, common.index] = shared.config.process;
        let place = match standard.place {
            Place::First { .. } => Place::First { header_data: posted.header_data.unwrap_or(0) },
            later => later,
        };
        let standard = Standard {
            common,
            has_header_data: posted.header_data.is_some(),
            offset: posted.offset,
            initiator: 0,
            key: posted.key,
            place,
            ..standard
        };
        let from = data.offset.get() as usize;
        let payload = posted.bytes.get(from..from + length)?;
        Some(Datagram { pds, ses: Ses::Standard(standard), payload })
    }
}

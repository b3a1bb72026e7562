//! The end of a context that sends messages and asks for reads: it opens and closes it.

use super::flow::Flow;
use super::{Arrival, Event, Operation, Shared, write};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use strandway_proto::packet::{Data, Flags, Header, Psn};
use strandway_proto::{Event as EngineEvent, Handled, MessageId, Packet, Span, Time};
use strandway_wire::uet::codes::{ControlKind, NackCode, Opcode, ReturnCode};
use strandway_wire::uet::pds::{Ack, Context, Control, Mode, Nack, Request, Wish};
use strandway_wire::uet::ses::{DataResponse, Place, Standard};
use strandway_wire::uet::{self, Datagram, Pds, Ses};

/// Packets of responses whose times of arrival are kept; ours, as many as a bitmap has bits.
const ARRIVALS: usize = 64;

/// A message that is being sent, or the request of a read.
pub(super) struct Posted {
    opcode: Opcode,
    key: u64,
    offset: u64,
    header_data: Option<u64>,
    bytes: Arc<Vec<u8>>,
    /// Bytes of the message, or of the memory to read.
    length: u32,
    operation: Operation,
    /// The peer refused it; it counts as sent all the same.
    refused: bool,
}

impl Posted {
    pub(super) fn new(opcode: Opcode, key: u64, offset: u64, header_data: Option<u64>, bytes: Arc<Vec<u8>>) -> Posted {
        let length = bytes.len() as u32;
        Posted { opcode, key, offset, header_data, bytes, length, operation: Operation(0), refused: false }
    }

    pub(super) fn read(key: u64, offset: u64, length: u32) -> Posted {
        Posted { length, ..Posted::new(Opcode::READ, key, offset, None, Arc::default()) }
    }
}

/// A read whose bytes have not all arrived.
struct Reading {
    operation: Operation,
    bytes: Vec<u8>,
    received: usize,
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
    flow: Flow,
    /// Messages that have not arrived, from number `first` on.
    posted: VecDeque<Posted>,
    first: u32,
    /// Reads by the number of their request.
    readings: BTreeMap<u16, Reading>,
    /// When packets of responses arrived, by their number modulo the length.
    arrivals: [(u64, Time); ARRIVALS],
    /// Clears that the peer has asked for, or may have asked for in vain.
    clears: u32,
    /// Clears that were sent since a read's data came last, without being asked for; and when the next one is due.
    repeated: (u32, Time),
    stage: Stage,
    heard: Time,
}

impl Initiator {
    pub(super) fn new(now: Time, peer: SocketAddr, local: u16, flow: Flow) -> Initiator {
        Initiator {
            peer,
            local,
            remote: None,
            flow,
            posted: VecDeque::new(),
            first: 0,
            readings: BTreeMap::new(),
            arrivals: [(u64::MAX, now); ARRIVALS],
            clears: 0,
            repeated: (0, now),
            stage: Stage::Open,
            heard: now,
        }
    }

    /// Takes an operation; false if it is a read, and too many reads are under way.
    pub(super) fn post(&mut self, now: Time, operation: Operation, posted: Posted) -> bool {
        let id = self.first.wrapping_add(self.posted.len() as u32);
        if posted.opcode == Opcode::READ {
            if self.readings.contains_key(&(id as u16)) {
                return false;
            }
            let reading = Reading { operation, bytes: vec![0; posted.length as usize], received: 0 };
            self.readings.insert(id as u16, reading);
        }
        if self.posted.is_empty() {
            self.heard = now;
        }
        self.flow.post(now, MessageId(id), posted.bytes.len() as u64);
        self.posted.push_back(Posted { operation, ..posted });
        true
    }

    pub(super) fn close(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Draining;
        }
    }

    /// Has the peer answered?
    pub(super) fn is_answered(&self) -> bool {
        self.remote.is_some()
    }

    /// Bytes that may be in flight.
    pub(super) fn window(&self) -> u64 {
        self.flow.window()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Does a datagram with these numbers of the context come from its target?
    pub(super) fn is_of(&self, from: SocketAddr, source: u16) -> bool {
        self.peer == from && self.remote == Some(source)
    }

    /// An acknowledgement or a NACK, or data of a read, or a probe for it.
    pub(super) fn handle(&mut self, now: Time, arrival: Arrival, datagram: &Datagram<'_>, shared: &mut Shared) {
        match (&datagram.pds, &datagram.ses) {
            (Pds::Ack(ack), _) => self.handle_ack(now, ack, datagram, shared),
            (Pds::Nack(nack), _) => self.handle_nack(now, nack, datagram, shared),
            (Pds::Request(request), Ses::DataResponse(response)) => {
                self.handle_data(now, arrival, request, response, datagram, shared);
            }
            (Pds::Control(Control { kind: ControlKind::PROBE, .. }), _) => self.flow.handle_probe(now, datagram),
            _ => shared.counters.malformed += 1,
        }
    }

    fn handle_ack(&mut self, now: Time, ack: &Ack, datagram: &Datagram<'_>, shared: &mut Shared) {
        if self.remote.is_some_and(|remote| remote != ack.source) {
            shared.counters.strays += 1;
            return;
        }
        // The close has the number behind the last packet.
        let (reported, packets) = (self.flow.reported(ack), self.flow.packets());
        let closes = matches!(self.stage, Stage::Closing { .. }) && reported == packets + 1;
        if reported > packets && !closes {
            shared.counters.malformed += 1;
            return;
        }
        (self.remote, self.heard) = (Some(ack.source), now);
        shared.counters.marks += u64::from(ack.marked);
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
        self.flow.handle_ack(now, ack, datagram);
        self.drain(shared);
    }

    /// Data of a read: it goes to its place.
    fn handle_data(
        &mut self,
        now: Time,
        arrival: Arrival,
        request: &Request,
        response: &DataResponse,
        datagram: &Datagram<'_>,
        shared: &mut Shared,
    ) {
        self.heard = now;
        let (next, payload) = (self.flow.received(), datagram.payload);
        let psn = Psn::new(request.psn.wrapping_sub(self.flow.start()).into()).extend(next);
        let (start, number, next) = (self.flow.start(), MessageId(response.message.into()), Psn::new(next));
        let read = uet::interpret(&datagram.pds, &datagram.ses, payload.len(), start, number, next);
        let Some(mut packet) = read else { return };
        packet.flags = packet.flags.with_if(arrival.marked, Flags::CE);
        self.arrivals[psn as usize % ARRIVALS] = (psn, now);
        self.repeated = (0, now);
        let handled = self.flow.handle_data(now, &packet);
        // The engine tells of each message; a read counts its bytes itself.
        while self.flow.poll_event().is_some() {}
        if handled != Handled::Fresh {
            return;
        }
        let code = response.answer.code;
        if code != ReturnCode::OK {
            if let Some(Reading { operation, .. }) = self.readings.remove(&response.request) {
                shared.events.push_back(Event::Refused { operation, code });
            }
            return;
        }
        let Some(reading) = self.readings.get_mut(&response.request) else { return };
        let from = response.offset as usize;
        let Some(place) = reading.bytes.get_mut(from..from.saturating_add(payload.len())) else { return };
        place.copy_from_slice(payload);
        reading.received += payload.len();
        shared.counters.received += payload.len() as u64;
        if reading.received >= reading.bytes.len()
            && let Some(Reading { operation, bytes, .. }) = self.readings.remove(&response.request)
        {
            shared.events.push_back(Event::Read { operation, bytes });
        }
    }

    /// The outcome of a message. A response "nothing to return" belongs to a repetition.
    fn judge(&mut self, message: u16, code: ReturnCode, shared: &mut Shared) {
        if matches!(code, ReturnCode::OK | ReturnCode::NULL) {
            return;
        }
        let index = usize::from(message.wrapping_sub(self.first as u16));
        if let Some(posted) = self.posted.get_mut(index).filter(|posted| !posted.refused) {
            posted.refused = true;
            if self.readings.remove(&message).is_none() && posted.opcode == Opcode::READ {
                // The answer has said it already.
                return;
            }
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
            _ => self.flow.handle_nack(now, nack, datagram),
        }
    }

    fn drain(&mut self, shared: &mut Shared) {
        while let Some(event) = self.flow.poll_event() {
            if let EngineEvent::Sent { .. } = event
                && let Some(posted) = self.posted.pop_front()
            {
                self.first = self.first.wrapping_add(1);
                // A read ends when its bytes have arrived.
                if !posted.refused && posted.opcode != Opcode::READ {
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
        self.flow.handle_timeout(now);
        if self.clear_due(shared).is_some_and(|at| at <= now) {
            self.clears = self.clears.max(1);
            self.repeated = (self.repeated.0 + 1, now);
        }
    }

    /// When to send a clear that nobody has asked for: a target answers the first read of a context once it has got a
    /// clear, which may be lost. If data are on their way, the clear is in vain.
    fn clear_due(&self, shared: &Shared) -> Option<Time> {
        let (count, since) = self.repeated;
        let waits = !self.readings.is_empty() && self.posted.is_empty() && self.remote.is_some();
        let wait = Span(shared.config.timeout.0.saturating_mul(1 << count.min(10)));
        waits.then(|| since.max(self.heard) + wait)
    }

    /// Does it wait for an answer?
    fn waits(&self) -> bool {
        !self.posted.is_empty() || !self.readings.is_empty() || matches!(self.stage, Stage::Closing { .. })
    }

    pub(super) fn poll_timeout(&self, shared: &Shared) -> Option<Time> {
        let patience = self.waits().then(|| self.heard + shared.config.patience);
        let close = match self.stage {
            Stage::Closing { at, .. } => Some(at),
            _ => None,
        };
        [patience, close, self.clear_due(shared), self.flow.poll_timeout()].into_iter().flatten().min()
    }

    /// Appends its next datagram; false if it has none.
    pub(super) fn poll_transmit(&mut self, now: Time, shared: &mut Shared, out: &mut Vec<u8>) -> bool {
        if self.clears > 0 {
            self.clears -= 1;
            let cleared = self.flow.start().wrapping_add(self.flow.acknowledged() as u32).wrapping_sub(1);
            write(&self.control(ControlKind::CLEAR, 0, cleared, false), out);
            return true;
        }
        while let Some(packet) = self.flow.poll_transmit(now, shared) {
            if self.write_packet(now, &packet, shared, out) {
                return true;
            }
        }
        let close = self.poll_close(now, shared);
        close.inspect(|close| write(close, out)).is_some()
    }

    fn poll_close(&mut self, now: Time, shared: &Shared) -> Option<Datagram<'static>> {
        let sends = match self.stage {
            Stage::Draining if self.posted.is_empty() && self.readings.is_empty() && self.remote.is_some() => 0,
            // It was never used.
            Stage::Draining if self.flow.packets() == 0 => {
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
        let psn = self.flow.start().wrapping_add(self.flow.packets() as u32);
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
    fn write_packet(&mut self, now: Time, packet: &Packet, shared: &Shared, out: &mut Vec<u8>) -> bool {
        let datagram = match packet.header {
            Header::Data(data) => self.datagram(packet, &data, shared),
            _ => self.answer(now, packet, shared),
        };
        datagram.inspect(|datagram| write(datagram, out)).is_some()
    }

    /// The datagram of an acknowledgement or a probe.
    fn answer(&self, now: Time, packet: &Packet, shared: &Shared) -> Option<Datagram<'static>> {
        let remote = self.remote?;
        if matches!(packet.header, Header::Probe { .. }) && !shared.config.probes {
            return None;
        }
        let arrived = match packet.header {
            Header::Ack(ack) => {
                let psn = { ack.acked }.extend(self.flow.received());
                Some(self.arrivals[psn as usize % ARRIVALS]).filter(|(of, _)| *of == psn).map(|(_, at)| at)
            }
            _ => None,
        };
        let conversation = self.flow.conversation([self.local, remote], Mode::Unordered, 0);
        let pds = self.flow.acknowledgement(now, packet, &conversation, shared.config.acks, arrived).ok()?;
        Some(Datagram { pds, ses: Ses::None, payload: &[] })
    }

    /// The datagram of a data packet.
    fn datagram(&self, packet: &Packet, data: &Data, shared: &Shared) -> Option<Datagram<'_>> {
        let posted = self.posted.get(data.message.0.wrapping_sub(self.first) as usize)?;
        let numbers = [self.local, self.remote.unwrap_or(0)];
        let mut conversation = self.flow.conversation(numbers, shared.config.mode, posted.length.into());
        conversation.opening = self.remote.is_none();
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

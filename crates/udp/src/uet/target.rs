//! The end of a context that receives messages.

use super::{Acks, Event, ONLY, Shared, nack, write, written};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use strandway_proto::packet::{Flags, Header, Psn};
use strandway_proto::{Endpoint, Event as EngineEvent, Handled, MessageId, Packet, Ports, Time};
use strandway_wire::uet::codes::{ControlKind, NackCode, Opcode, ResponseOpcode, ReturnCode};
use strandway_wire::uet::pds::{Ack, Cause, Control, Mode, Request, Wish};
use strandway_wire::uet::ses::{Answer, Place, Response, Standard};
use strandway_wire::uet::{self, Conversation, Datagram, Pds, Ses};

/// Packets whose responses are kept, from 512 below the next one to 512 above it; ours. A repetition brings its
/// message's number again.
const CAUSES: u64 = 1_024;

/// A message that is arriving.
struct Incoming {
    opcode: Opcode,
    key: u64,
    offset: u64,
    header_data: Option<u64>,
    length: u32,
    received: u32,
    /// The message itself, if it is a send.
    bytes: Vec<u8>,
    code: ReturnCode,
}

/// The message that a packet belongs to, for its response.
#[derive(Clone, Copy)]
struct Outcome {
    /// The packet.
    psn: u64,
    message: u16,
    length: u32,
    code: ReturnCode,
}

/// Bytes of memory that a message needs until it is delivered.
fn held(standard: &Standard) -> usize {
    let is_send = matches!(standard.common.opcode, Opcode::SEND | Opcode::TAGGED_SEND);
    if is_send { standard.length as usize } else { 0 }
}

/// The outcome of a message.
fn judge(standard: &Standard, shared: &Shared) -> ReturnCode {
    match (standard.common.opcode, shared.regions.get(&standard.key)) {
        (Opcode::SEND | Opcode::TAGGED_SEND, _) => ReturnCode::OK,
        (Opcode::WRITE, None) => ReturnCode::BAD_KEY,
        (Opcode::WRITE, Some(region)) if region.has(standard.offset, standard.length) => ReturnCode::OK,
        (Opcode::WRITE, Some(_)) => ReturnCode::BAD_ADDRESS,
        _ => ReturnCode::UNSUPPORTED_OPERATION,
    }
}

pub(super) struct Target {
    pub(super) peer: SocketAddr,
    /// Our number of the context, and the peer's.
    numbers: [u16; 2],
    start: u32,
    mode: Mode,
    endpoint: Endpoint,
    /// Messages by the engine's number.
    messages: BTreeMap<u32, Incoming>,
    /// Messages whose packets are still coming, by the peer's number, which it uses again.
    coming: BTreeMap<u16, u32>,
    next: u32,
    /// By the packet's number, modulo its length.
    causes: Vec<Option<Outcome>>,
    ended: bool,
    heard: Time,
}

impl Target {
    pub(super) fn new(
        now: Time,
        numbers: [u16; 2],
        peer: SocketAddr,
        start: u32,
        mode: Mode,
        endpoint: Endpoint,
    ) -> Target {
        Target {
            peer,
            numbers,
            start,
            mode,
            endpoint,
            messages: BTreeMap::new(),
            coming: BTreeMap::new(),
            next: 0,
            causes: vec![None; CAUSES as usize],
            ended: false,
            heard: now,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The context's first sequence number.
    pub(super) fn start(&self) -> u32 {
        self.start
    }

    /// When a datagram of the peer came last.
    pub(super) fn heard(&self) -> Time {
        self.heard
    }

    /// Has a message begun that is not delivered?
    pub(super) fn is_receiving(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Bytes of messages that it holds.
    pub(super) fn held(&self) -> usize {
        self.messages.values().map(|incoming| incoming.bytes.len()).sum()
    }

    /// Responses that it keeps.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.causes.iter().flatten().count()
    }

    /// A request or a control packet. Returns an answer of its own.
    pub(super) fn handle(&mut self, now: Time, datagram: &Datagram<'_>, shared: &mut Shared) -> Option<Vec<u8>> {
        self.heard = now;
        match (&datagram.pds, &datagram.ses) {
            (Pds::Request(request), Ses::Standard(standard)) => {
                let refused = self.handle_request(now, request, standard, datagram, shared).err()?;
                shared.counters.nacks_sent += 1;
                Some(nack(request.psn, self.numbers, refused))
            }
            (Pds::Control(control), _) => self.handle_control(now, control, datagram, shared),
            _ => {
                shared.counters.malformed += 1;
                None
            }
        }
    }

    fn handle_control(
        &mut self,
        now: Time,
        control: &Control,
        datagram: &Datagram<'_>,
        shared: &mut Shared,
    ) -> Option<Vec<u8>> {
        let next = self.endpoint.observe().received_up_to(ONLY);
        match control.kind {
            // Nothing is kept.
            ControlKind::CLEAR | ControlKind::NO_OPERATION => None,
            ControlKind::CLOSE if control.psn == self.start.wrapping_add(next as u32) => {
                self.ended = true;
                let [source, target] = self.numbers;
                let ack = Ack {
                    marked: false,
                    retransmitted: control.retransmitted,
                    cause: Cause::Packet(0),
                    wish: Wish::None,
                    cumulative: control.psn,
                    source,
                    target,
                    congestion: None,
                    expected: None,
                };
                Some(written(&Datagram { pds: Pds::Ack(ack), ses: Ses::None, payload: &[] }))
            }
            // Something before it is missing: it comes again.
            ControlKind::CLOSE => None,
            ControlKind::PROBE => {
                let read = uet::interpret(&datagram.pds, &datagram.ses, 0, self.start, MessageId(0), Psn::new(next))?;
                self.endpoint.handle_packet(now, &read);
                None
            }
            _ => {
                shared.counters.nacks_sent += 1;
                Some(nack(control.psn, self.numbers, NackCode::UNEXPECTED))
            }
        }
    }

    /// # Errors
    /// The code of a NACK.
    fn handle_request(
        &mut self,
        now: Time,
        request: &Request,
        standard: &Standard,
        datagram: &Datagram<'_>,
        shared: &mut Shared,
    ) -> Result<(), NackCode> {
        if request.mode != self.mode {
            return Err(NackCode::MODE_MISMATCH);
        }
        if request.start_psn().is_some_and(|start| start != self.start) {
            return Err(NackCode::INVALID_SYN);
        }
        let next = self.endpoint.observe().received_up_to(ONLY);
        let psn = Psn::new(request.psn.wrapping_sub(self.start).into()).extend(next);
        if self.mode == Mode::Ordered && psn > next {
            return Err(NackCode::OUT_OF_ORDER);
        }
        let known = self.coming.get(&standard.message).copied();
        let begun = known.filter(|_| psn >= next).and_then(|number| self.messages.get(&number));
        let code = begun.map_or_else(|| judge(standard, shared), |incoming| incoming.code);
        if begun.is_none() && psn >= next && held(standard) > shared.config.incoming_max - shared.incoming {
            return Err(NackCode::NO_RESOURCE);
        }
        if psn < next + CAUSES / 2 {
            let outcome = Outcome { psn, message: standard.message, length: standard.length, code };
            self.causes[(psn % CAUSES) as usize] = Some(outcome);
        }
        let (payload, number) = (datagram.payload, known.unwrap_or(self.next));
        let (length, cumulative) = (payload.len(), Psn::new(next));
        let read = uet::interpret(&datagram.pds, &datagram.ses, length, self.start, MessageId(number), cumulative);
        let Some(mut packet) = read else { return Ok(()) };
        // SUET never asks for acknowledgements, and expects them at both ends of a message.
        let is_end = standard.last || matches!(standard.place, Place::First { .. });
        packet.flags = packet.flags.with_if(is_end, Flags::ACK_REQUEST);
        if self.endpoint.handle_packet(now, &packet) == Handled::Fresh {
            if known.is_none() {
                self.begin(standard, code, shared);
            }
            self.place(number, standard, payload, shared);
        }
        self.drain(shared);
        Ok(())
    }

    /// A message begins with whichever packet of it comes first: all have its length and place.
    fn begin(&mut self, standard: &Standard, code: ReturnCode, shared: &mut Shared) {
        let bytes = vec![0; held(standard)];
        shared.incoming += bytes.len();
        let incoming = Incoming {
            opcode: standard.common.opcode,
            key: standard.key,
            offset: standard.offset,
            header_data: None,
            length: standard.length,
            received: 0,
            bytes,
            code,
        };
        self.messages.insert(self.next, incoming);
        self.coming.insert(standard.message, self.next);
        self.next = self.next.wrapping_add(1);
    }

    /// Puts a payload where it belongs. Its packet came for the first time.
    fn place(&mut self, number: u32, standard: &Standard, payload: &[u8], shared: &mut Shared) {
        let Some(incoming) = self.messages.get_mut(&number) else { return };
        let at = match standard.place {
            Place::First { header_data } => {
                incoming.header_data = standard.has_header_data.then_some(header_data);
                0
            }
            Place::Later { offset } => offset as usize,
        };
        // A peer may change its mind about a message's length or place; the first packet counts.
        let end = at + payload.len();
        if end <= incoming.length as usize && incoming.code == ReturnCode::OK {
            let place = match (incoming.opcode, shared.regions.get_mut(&incoming.key)) {
                (Opcode::WRITE, Some(region)) => region.place(incoming.offset, at..end),
                (Opcode::WRITE, None) => None,
                _ => incoming.bytes.get_mut(at..end),
            };
            if let Some(place) = place {
                place.copy_from_slice(payload);
            }
        }
        incoming.received = incoming.received.saturating_add(payload.len() as u32);
        if incoming.received >= incoming.length {
            // The peer may use the number again once all of it is acknowledged.
            self.coming.remove(&standard.message);
        }
    }

    fn drain(&mut self, shared: &mut Shared) {
        while let Some(event) = self.endpoint.poll_event() {
            let EngineEvent::Received { message, .. } = event else { continue };
            let Some(incoming) = self.messages.remove(&message.0) else { continue };
            shared.incoming -= incoming.bytes.len();
            if incoming.code != ReturnCode::OK || incoming.received != incoming.length {
                // A read has no payload, and packets of a peer may contradict each other.
                self.coming.retain(|_, number| *number != message.0);
                continue;
            }
            let (from, header_data) = (self.peer, incoming.header_data);
            shared.events.push_back(match incoming.opcode {
                Opcode::WRITE => Event::Written {
                    from,
                    key: incoming.key,
                    offset: incoming.offset,
                    bytes: incoming.length,
                    header_data,
                },
                opcode => {
                    let tag = (opcode == Opcode::TAGGED_SEND).then_some(incoming.key);
                    Event::Message { from, tag, header_data, bytes: incoming.bytes }
                }
            });
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self, shared: &Shared) -> Option<Time> {
        let patience = self.is_receiving().then(|| self.heard + shared.config.patience);
        [patience, self.endpoint.poll_timeout()].into_iter().flatten().min()
    }

    /// Appends its next datagram; false if it has none.
    pub(super) fn poll_transmit(&mut self, now: Time, shared: &mut Shared, out: &mut Vec<u8>) -> bool {
        while let Some(packet) = self.endpoint.poll_transmit(now, Ports::first(1)) {
            if let Some(datagram) = self.datagram(&packet, shared) {
                write(&datagram, out);
                return true;
            }
        }
        false
    }

    /// An answer of the engine.
    fn datagram(&self, packet: &Packet, shared: &Shared) -> Option<Datagram<'static>> {
        let received = self.endpoint.observe().received_up_to(ONLY);
        let [source, target] = self.numbers;
        let conversation = Conversation {
            source,
            target,
            mode: self.mode,
            start: self.start,
            opening: false,
            acknowledged: 0,
            received,
            message: 0,
        };
        let (mut pds, mut ses, _) = uet::translate(packet, &conversation).ok()?;
        if let (Pds::Ack(ack), Header::Ack(engine)) = (&mut pds, packet.header) {
            if shared.config.acks == Acks::Plain {
                ack.congestion = None;
            }
            let cause = { engine.acked }.extend(received);
            let outcome = self.causes[(cause % CAUSES) as usize].filter(|outcome| outcome.psn == cause);
            if let (Cause::Packet(_), Some(outcome)) = (ack.cause, outcome) {
                let answer = Answer { list: 0, opcode: ResponseOpcode::DEFAULT, code: outcome.code, job: 0 };
                ses =
                    Ses::Response(Response { answer, message: outcome.message, generation: 0, length: outcome.length });
            }
        }
        Some(Datagram { pds, ses, payload: &[] })
    }
}

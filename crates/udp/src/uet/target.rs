//! The end of a context that receives messages, and answers reads.

use super::flow::Flow;
use super::{Arrival, Event, Shared, nack, write, written};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use strandway_proto::packet::{Data, Flags, Header, Psn};
use strandway_proto::{Event as EngineEvent, Handled, MessageId, Packet, Time};
use strandway_wire::uet::codes::{ControlKind, NackCode, Opcode, ResponseOpcode, ReturnCode};
use strandway_wire::uet::pds::{Ack, Cause, Context, Control, Mode, Nack, Request, Wish};
use strandway_wire::uet::ses::{Answer, DataResponse, Place, Response, Standard};
use strandway_wire::uet::{self, Datagram, Pds, Ses};

/// Packets whose responses are kept, from 512 below the next one to 512 above it; ours. A repetition brings its
/// message's number again.
const CAUSES: u64 = 1_024;

/// A message that is arriving.
struct Incoming {
    opcode: Opcode,
    /// The peer's number.
    message: u16,
    key: u64,
    offset: u64,
    header_data: Option<u64>,
    length: u32,
    received: u32,
    /// The message itself, if it is a send; of a read, room for the bytes.
    bytes: Vec<u8>,
    code: ReturnCode,
}

/// The bytes that a read asked for, or none and the reason.
struct Answering {
    /// The number of its request.
    request: u16,
    bytes: Vec<u8>,
    code: ReturnCode,
}

/// The message that a packet belongs to, for its response.
#[derive(Clone, Copy)]
struct Outcome {
    /// The packet, and when it came.
    psn: u64,
    at: Time,
    message: u16,
    length: u32,
    code: ReturnCode,
}

/// Bytes of memory that a message needs until it is delivered or answered.
fn held(standard: &Standard, code: ReturnCode) -> usize {
    let keeps = matches!(standard.common.opcode, Opcode::SEND | Opcode::TAGGED_SEND | Opcode::READ);
    if keeps && code == ReturnCode::OK { standard.length as usize } else { 0 }
}

/// The outcome of a message.
fn judge(standard: &Standard, shared: &Shared) -> ReturnCode {
    match (standard.common.opcode, shared.regions.get(&standard.key)) {
        (Opcode::SEND | Opcode::TAGGED_SEND, _) => ReturnCode::OK,
        (Opcode::WRITE | Opcode::READ, None) => ReturnCode::BAD_KEY,
        (Opcode::WRITE | Opcode::READ, Some(region)) => {
            if region.has(standard.offset, standard.length) {
                ReturnCode::OK
            } else {
                ReturnCode::BAD_ADDRESS
            }
        }
        _ => ReturnCode::UNSUPPORTED_OPERATION,
    }
}

pub(super) struct Target {
    pub(super) peer: SocketAddr,
    /// Our number of the context, and the peer's.
    numbers: [u16; 2],
    mode: Mode,
    flow: Flow,
    /// Messages by the engine's number.
    messages: BTreeMap<u32, Incoming>,
    /// Messages whose packets are still coming, by the peer's number, which it uses again.
    coming: BTreeMap<u16, u32>,
    next: u32,
    /// By the packet's number, modulo its length.
    causes: Vec<Option<Outcome>>,
    /// Answers to reads that have not arrived, from number `first` on.
    answers: VecDeque<Answering>,
    first: u32,
    /// Reads whose answers wait until the peer has proven that it receives at its address: it has named our number of
    /// the context. Without that, a request under a false address would send a victim many times its bytes.
    unproven: Vec<Incoming>,
    is_proven: bool,
    ended: bool,
    heard: Time,
}

impl Target {
    pub(super) fn new(now: Time, numbers: [u16; 2], peer: SocketAddr, mode: Mode, flow: Flow) -> Target {
        Target {
            peer,
            numbers,
            mode,
            flow,
            messages: BTreeMap::new(),
            coming: BTreeMap::new(),
            next: 0,
            causes: vec![None; CAUSES as usize],
            answers: VecDeque::new(),
            first: 0,
            unproven: Vec::new(),
            is_proven: false,
            ended: false,
            heard: now,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The context's first sequence number.
    pub(super) fn start(&self) -> u32 {
        self.flow.start()
    }

    /// When a datagram of the peer came last.
    pub(super) fn heard(&self) -> Time {
        self.heard
    }

    /// Has a message begun that is not delivered, or does an answer wait for its arrival?
    pub(super) fn is_busy(&self) -> bool {
        !self.messages.is_empty() || !self.answers.is_empty() || !self.unproven.is_empty()
    }

    /// Bytes of messages and answers that it holds.
    pub(super) fn held(&self) -> usize {
        let incoming = self.messages.values().chain(&self.unproven);
        let incoming: usize = incoming.map(|incoming| incoming.bytes.len()).sum();
        incoming + self.answers.iter().map(|answering| answering.bytes.len()).sum::<usize>()
    }

    /// Responses that it keeps.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.causes.iter().flatten().count()
    }

    /// A request or a control packet. Returns an answer of its own.
    pub(super) fn handle(
        &mut self,
        now: Time,
        arrival: Arrival,
        datagram: &Datagram<'_>,
        shared: &mut Shared,
    ) -> Option<Vec<u8>> {
        self.heard = now;
        if let Pds::Request(Request { target: Context::Known(_), .. })
        | Pds::Control(Control { target: Context::Known(_), .. }) = datagram.pds
        {
            self.is_proven = true;
            for read in std::mem::take(&mut self.unproven) {
                self.answer_read(now, read, shared);
            }
        }
        match (&datagram.pds, &datagram.ses) {
            (Pds::Request(request), Ses::Standard(standard)) => {
                let refused = self.handle_request(now, arrival, request, standard, datagram, shared).err()?;
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

    /// An acknowledgement or a NACK of an answer to a read.
    pub(super) fn handle_reply(&mut self, now: Time, datagram: &Datagram<'_>, shared: &mut Shared) {
        self.heard = now;
        match &datagram.pds {
            Pds::Ack(ack) if ack.source == self.numbers[1] && self.flow.reported(ack) <= self.flow.packets() => {
                shared.counters.marks += u64::from(ack.marked);
                self.flow.handle_ack(now, ack, datagram);
                self.drain(now, shared);
            }
            Pds::Nack(nack @ Nack { code: NackCode::TRIMMED | NackCode::TRIMMED_LAST_HOP, .. }) => {
                self.flow.handle_nack(now, nack, datagram);
            }
            _ => shared.counters.strays += 1,
        }
    }

    fn handle_control(
        &mut self,
        now: Time,
        control: &Control,
        datagram: &Datagram<'_>,
        shared: &mut Shared,
    ) -> Option<Vec<u8>> {
        let next = self.flow.received();
        match control.kind {
            // Nothing is kept.
            ControlKind::CLEAR | ControlKind::NO_OPERATION => None,
            ControlKind::CLOSE if control.psn == self.start().wrapping_add(next as u32) => {
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
                self.flow.handle_probe(now, datagram);
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
        arrival: Arrival,
        request: &Request,
        standard: &Standard,
        datagram: &Datagram<'_>,
        shared: &mut Shared,
    ) -> Result<(), NackCode> {
        if request.mode != self.mode {
            return Err(NackCode::MODE_MISMATCH);
        }
        if request.start_psn().is_some_and(|start| start != self.start()) {
            return Err(NackCode::INVALID_SYN);
        }
        let next = self.flow.received();
        let psn = Psn::new(request.psn.wrapping_sub(self.start()).into()).extend(next);
        if self.mode == Mode::Ordered && psn > next {
            return Err(NackCode::OUT_OF_ORDER);
        }
        let known = self.coming.get(&standard.message).copied();
        let begun = known.filter(|_| psn >= next).and_then(|number| self.messages.get(&number));
        let code = begun.map_or_else(|| judge(standard, shared), |incoming| incoming.code);
        if begun.is_none() && psn >= next && held(standard, code) > shared.config.incoming_max - shared.incoming {
            return Err(NackCode::NO_RESOURCE);
        }
        if psn < next + CAUSES / 2 {
            let outcome = Outcome { psn, at: now, message: standard.message, length: standard.length, code };
            self.causes[(psn % CAUSES) as usize] = Some(outcome);
        }
        let (payload, number) = (datagram.payload, known.unwrap_or(self.next));
        let (length, cumulative) = (payload.len(), Psn::new(next));
        let read = uet::interpret(&datagram.pds, &datagram.ses, length, self.start(), MessageId(number), cumulative);
        let Some(mut packet) = read else { return Ok(()) };
        // SUET never asks for acknowledgements, and expects them at both ends of a message.
        let is_end = standard.last || matches!(standard.place, Place::First { .. });
        packet.flags = packet.flags.with_if(is_end, Flags::ACK_REQUEST).with_if(arrival.marked, Flags::CE);
        if self.flow.handle_data(now, &packet) == Handled::Fresh {
            shared.counters.received += length as u64;
            if known.is_none() {
                self.begin(standard, code, shared);
            }
            self.place(number, standard, payload, shared);
        }
        self.drain(now, shared);
        Ok(())
    }

    /// A message begins with whichever packet of it comes first: all have its length and place.
    fn begin(&mut self, standard: &Standard, code: ReturnCode, shared: &mut Shared) {
        let bytes = vec![0; held(standard, code)];
        shared.incoming += bytes.len();
        let incoming = Incoming {
            opcode: standard.common.opcode,
            message: standard.message,
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

    fn drain(&mut self, now: Time, shared: &mut Shared) {
        while let Some(event) = self.flow.poll_event() {
            match event {
                EngineEvent::Received { message, .. } => {
                    if let Some(incoming) = self.messages.remove(&message.0) {
                        self.deliver(now, message.0, incoming, shared);
                    }
                }
                EngineEvent::Sent { .. } => {
                    if let Some(answering) = self.answers.pop_front() {
                        self.first = self.first.wrapping_add(1);
                        shared.incoming -= answering.bytes.len();
                    }
                }
                _ => {}
            }
        }
    }

    /// A message is there as a whole.
    fn deliver(&mut self, now: Time, number: u32, incoming: Incoming, shared: &mut Shared) {
        if incoming.opcode == Opcode::READ {
            self.coming.retain(|_, known| *known != number);
            if self.is_proven {
                self.answer_read(now, incoming, shared);
            } else {
                self.unproven.push(incoming);
            }
            return;
        }
        shared.incoming -= incoming.bytes.len();
        if incoming.code != ReturnCode::OK || incoming.received != incoming.length {
            // Packets of a peer may contradict each other.
            self.coming.retain(|_, known| *known != number);
            return;
        }
        let (from, header_data) = (self.peer, incoming.header_data);
        shared.events.push_back(match incoming.opcode {
            Opcode::WRITE => {
                let Incoming { key, offset, length: bytes, .. } = incoming;
                Event::Written { from, key, offset, bytes, header_data }
            }
            opcode => {
                let tag = (opcode == Opcode::TAGGED_SEND).then_some(incoming.key);
                Event::Message { from, tag, header_data, bytes: incoming.bytes }
            }
        });
    }

    /// Sends the bytes that a read asks for, as they are now, or the reason why there are none: the response in the
    /// acknowledgement of its request may be lost.
    fn answer_read(&mut self, now: Time, incoming: Incoming, shared: &mut Shared) {
        let Incoming { mut bytes, message, key, offset, mut code, .. } = incoming;
        let region = shared.regions.get_mut(&key);
        match region.and_then(|region| region.place(offset, 0..bytes.len())) {
            Some(place) => bytes.copy_from_slice(place),
            None if code == ReturnCode::OK => {
                // The memory is another one since.
                shared.incoming -= bytes.len();
                (bytes, code) = (Vec::new(), ReturnCode::BAD_ADDRESS);
            }
            None => {}
        }
        let id = self.first.wrapping_add(self.answers.len() as u32);
        self.flow.post(now, MessageId(id), bytes.len() as u64);
        self.answers.push_back(Answering { request: message, bytes, code });
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.flow.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self, shared: &Shared) -> Option<Time> {
        let patience = self.is_busy().then(|| self.heard + shared.config.patience);
        [patience, self.flow.poll_timeout()].into_iter().flatten().min()
    }

    /// Appends its next datagram; `None` if it has none. True: it is data of an answer.
    pub(super) fn poll_transmit(&mut self, now: Time, shared: &mut Shared, out: &mut Vec<u8>) -> Option<bool> {
        while let Some(packet) = self.flow.poll_transmit(now, shared) {
            let datagram = match packet.header {
                Header::Data(data) => self.data(&packet, &data),
                _ => self.reply(now, &packet, shared),
            };
            if let Some(datagram) = datagram {
                write(&datagram, out);
                return Some(matches!(packet.header, Header::Data(_)));
            }
        }
        None
    }

    /// A packet of an answer to a read.
    fn data(&self, packet: &Packet, data: &Data) -> Option<Datagram<'_>> {
        let answering = self.answers.get(data.message.0.wrapping_sub(self.first) as usize)?;
        let length = answering.bytes.len() as u32;
        let conversation = self.flow.conversation(self.numbers, self.mode, length.into());
        let (pds, _, payload) = uet::translate(packet, &conversation).ok()?;
        let from = data.offset.get() as usize;
        let response = DataResponse {
            answer: Answer { list: 0, opcode: ResponseOpcode::WITH_DATA, code: answering.code, job: 0 },
            message: data.message.0 as u16,
            generation: 0,
            request: answering.request,
            length,
            offset: from as u32,
        };
        Some(Datagram { pds, ses: Ses::DataResponse(response), payload: answering.bytes.get(from..from + payload)? })
    }

    /// An acknowledgement, a NACK or a probe of the engine.
    fn reply(&self, now: Time, packet: &Packet, shared: &Shared) -> Option<Datagram<'static>> {
        if matches!(packet.header, Header::Probe { .. }) && !shared.config.probes {
            return None;
        }
        let outcome = match packet.header {
            Header::Ack(ack) => {
                let cause = { ack.acked }.extend(self.flow.received());
                self.causes[(cause % CAUSES) as usize].filter(|outcome| outcome.psn == cause)
            }
            _ => None,
        };
        let conversation = self.flow.conversation(self.numbers, self.mode, 0);
        let arrived = outcome.map(|outcome| outcome.at);
        let mut pds = self.flow.acknowledgement(now, packet, &conversation, shared.config.acks, arrived).ok()?;
        if let (Pds::Ack(ack), false) = (&mut pds, self.unproven.is_empty()) {
            // Its clear names our number.
            ack.wish = Wish::Clear;
        }
        let ses = match (&pds, outcome) {
            (Pds::Ack(Ack { cause: Cause::Packet(_), .. }), Some(outcome)) => {
                let answer = Answer { list: 0, opcode: ResponseOpcode::DEFAULT, code: outcome.code, job: 0 };
                Ses::Response(Response { answer, message: outcome.message, generation: 0, length: outcome.length })
            }
            _ => Ses::None,
        };
        Some(Datagram { pds, ses, payload: &[] })
    }
}

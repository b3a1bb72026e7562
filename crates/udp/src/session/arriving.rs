//! Arriving datagrams of a connection: they are opened and handed to the engine, their payload is written to its place,
//! and the application gets its completions.

use super::codes::Codes;
use super::{LETTERS_MAX, NodeContext, ONLY, Piece, Purpose, Session};
use crate::completion::Completion;
use crate::error::Reason;
use crate::frame::{Descriptor, Kind, PROOF, Sealed};
use crate::memory::Place;
use crate::socket::Arrival;
use strandway_proto::packet::Flags;
use strandway_proto::path::PathEvent;
use strandway_proto::repair::EndedGroup;
use strandway_proto::{Event, Handled, Packet, PathId};
use strandway_wire as wire;

impl Session {
    /// A datagram for this connection arrived by `plane`. Its body is decrypted where it arrived: nothing that is not
    /// authenticated reaches registered memory.
    pub(crate) fn handle(
        &mut self,
        around: &mut NodeContext<'_>,
        plane: usize,
        arrival: &Arrival,
        sealed: &Sealed,
        datagram: &mut [u8],
    ) -> Result<(), Reason> {
        let around = &mut around.at(self.own(around.now));
        let (now, from, marked, length) = (around.now, arrival.from, arrival.is_marked(), datagram.len());
        if self.handle_trimmed(now, arrival, sealed, datagram) {
            return Ok(());
        }
        let Some((body, newest)) = self.crypto.open(sealed.counter, datagram, &mut self.counters) else {
            return Ok(());
        };
        let node_now = self.by_node(now);
        if self.phase.handle_arrival(now) {
            around.monitors.confirm(node_now, self.paths.monitor);
            around.completions.push_back(Completion::Accepted { connection: self.handle, from: from.into() });
        }
        self.open_mrc();
        around.monitors.handle_arrival(node_now, self.paths.monitor, plane);
        let Some(side) = self.paths.planes.get(plane) else { return Ok(()) };
        if (sealed.kind != Kind::Data || around.routes.data_tells_peer()) && side.peer != Some(from) {
            self.watch_address(around, plane, from, newest, length);
        }
        if newest && self.sending.note_credits(sealed.credits) {
            self.sending.admit(now, &mut self.endpoint);
        }
        match sealed.kind {
            // Data has another layout there.
            Kind::Data if self.mrc.is_some() => self.counters.malformed += 1,
            Kind::Data => self.handle_data(around, plane, marked, sealed, body)?,
            Kind::Control => match wire::decode(self.format, body) {
                Ok(packet) if !packet.header.has_payload() => {
                    // A mark says something about the path of data only; marks on acknowledgements are ignored.
                    let flags = Flags::NONE.with_if(marked && !packet.is_control(), Flags::CE);
                    let packet = complete(packet, sealed, flags, body.len());
                    let shares = self.borrow_window(around);
                    self.endpoint.handle_packet(now, &packet);
                    if shares {
                        self.return_window(around);
                        around.windows.wake(self.paths.monitor);
                    }
                }
                _ => self.counters.malformed += 1,
            },
            Kind::Ping => match body.first_chunk::<8>() {
                Some(number) => {
                    let path = PathId::new(plane as u8, sealed.path.entropy());
                    let proof = body[8..].first_chunk::<PROOF>();
                    self.answer_ping(around, from, path, u64::from_be_bytes(*number), proof);
                }
                None => self.counters.malformed += 1,
            },
            Kind::Pong => match body.first_chunk::<8>() {
                Some(number) => {
                    let proof = body[8..].first_chunk::<PROOF>();
                    self.handle_pong(around, plane, from, u64::from_be_bytes(*number), proof);
                }
                None => self.counters.malformed += 1,
            },
            Kind::Close => return Err(Reason::of_code(body.first().copied().unwrap_or(0))),
            // These kinds belong to groups, whose datagrams are not sent to a connection's number.
            Kind::Chunk | Kind::Word | Kind::Fragment => self.counters.malformed += 1,
        }
        self.drain(around)
    }

    fn handle_data(
        &mut self,
        around: &mut NodeContext<'_>,
        plane: usize,
        marked: bool,
        sealed: &Sealed,
        body: &[u8],
    ) -> Result<(), Reason> {
        let Ok(packet) = wire::decode(self.format, body) else {
            self.counters.malformed += 1;
            return Ok(());
        };
        let rest = &body[wire::header_bytes(self.format, &packet)..];
        let flags = Flags::NONE.with_if(marked, Flags::CE);
        if self.is_partial() {
            self.handle_part(around, plane, &complete(packet, sealed, flags, body.len()), rest);
            return Ok(());
        }
        let Some(piece) = Piece::of(&packet.header, self.mtu) else {
            self.counters.malformed += 1;
            return Ok(());
        };
        let Ok(descriptor) = Descriptor::decode(rest) else {
            self.counters.malformed += 1;
            return Ok(());
        };
        let payload = &rest[descriptor.bytes()..];
        if payload.len() != piece.length || !(payload.is_empty() || descriptor.has_payload()) {
            self.counters.malformed += 1;
            return Ok(());
        }
        let handled = self.endpoint.handle_packet(around.now, &complete(packet, sealed, flags, body.len()));
        if handled != Handled::Fresh {
            // A copy, or a packet that the engine does not keep: its place may be in use for something else by now.
            return Ok(());
        }
        if let Some(part) = &piece.parity {
            // It says where its message belongs, in case no other packet of the message arrives.
            self.receiving.incoming.add(piece.message, descriptor, 0)?;
            if let Some(codes) = &mut self.codes {
                codes.keep(part, payload);
            }
            return self.rebuild(around);
        }
        self.receiving.incoming.add(piece.message, descriptor, payload.len())?;
        // Checked for packets without payload, too: the application is told their offset as the message's length.
        if descriptor.has_payload() {
            let place = self.place(around, descriptor, piece.offset, payload.len())?;
            around.memory.write(place, payload);
        }
        self.counters.received_bytes[plane] += payload.len() as u64;
        self.rebuild(around)
    }

    /// Where a range of a message's bytes belongs.
    pub(super) fn place(
        &self,
        around: &mut NodeContext<'_>,
        descriptor: Descriptor,
        offset: u64,
        length: usize,
    ) -> Result<Place, Reason> {
        match descriptor {
            Descriptor::Send { number } => self.receiving.place(number, offset, length),
            Descriptor::Write { key, start, .. } => {
                let start = start.checked_add(offset).ok_or(Reason::RemoteAccess)?;
                around.memory.open(key, self.handle, start, length).ok_or(Reason::RemoteAccess)
            }
            Descriptor::Answer { number } => self.place_of_answer(number, offset, length),
            Descriptor::Read { .. }
            | Descriptor::Atomic { .. }
            | Descriptor::Word { .. }
            | Descriptor::Refusal { .. } => Err(Reason::Violation),
        }
    }

    /// Rebuilds the missing data of those groups of coded messages that have ended.
    #[inline]
    fn rebuild(&mut self, around: &mut NodeContext<'_>) -> Result<(), Reason> {
        if self.codes.is_none() { Ok(()) } else { self.rebuild_ended(around) }
    }

    fn rebuild_ended(&mut self, around: &mut NodeContext<'_>) -> Result<(), Reason> {
        while let Some(ended) = self.endpoint.take_ended(ONLY) {
            let Some(mut codes) = self.codes.take() else { return Ok(()) };
            let outcome = self.rebuild_group(around, &mut codes, &ended);
            codes.forget(&ended);
            self.codes = Some(codes);
            outcome?;
        }
        Ok(())
    }

    fn rebuild_group(
        &mut self,
        around: &mut NodeContext<'_>,
        codes: &mut Codes,
        ended: &EndedGroup,
    ) -> Result<(), Reason> {
        let Some(range) = codes.to_rebuild(ended) else { return Ok(()) };
        let descriptor = self.receiving.incoming.descriptor(ended.message.0).ok_or(Reason::Violation)?;
        let place = self.place(around, descriptor, range.start, (range.end - range.start) as usize)?;
        codes.rebuild(ended, around.memory.bytes_at(place)).ok_or(Reason::Violation)?;
        self.receiving.incoming.add(ended.message.0, descriptor, ended.missing as usize)?;
        self.counters.rebuilt_bytes += ended.missing;
        Ok(())
    }

    /// Passes the engine's events on to the application.
    pub(super) fn drain(&mut self, around: &mut NodeContext<'_>) -> Result<(), Reason> {
        let connection = self.handle;
        while self.paths.tells && around.completions.len() < LETTERS_MAX {
            let Some(event) = self.endpoint.take_path_event(ONLY) else { break };
            let event = PathEvent { at: self.by_node(event.at), ..event };
            around.completions.push_back(Completion::Path { connection, event });
        }
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Sent { .. } if self.is_partial() => self.handle_injected(around),
                Event::Sent { message, .. } => {
                    let posted = self.sending.finish(message);
                    if let Some(place) = posted.place {
                        around.memory.release(place);
                    }
                    match posted.purpose {
                        Purpose::Operation(operation) => {
                            around.completions.push_back(Completion::Sent { connection, operation });
                        }
                        Purpose::Request(number) => self.note_arrival(number),
                        Purpose::Answer(bytes) => self.finish_answer(around, bytes),
                    }
                }
                Event::Received { bytes, .. } if self.mrc.is_some() => self.finish_write(around, bytes.0)?,
                Event::Received { message, bytes, .. } => match self.receiving.incoming.finish(message.0, bytes.0)? {
                    Descriptor::Send { number } => self.fill_receive(around, number, bytes.0)?,
                    Descriptor::Write { immediate: Some(immediate), .. } => {
                        let bytes = bytes.0;
                        around.completions.push_back(Completion::Written { connection, immediate, bytes });
                    }
                    Descriptor::Write { immediate: None, .. } => {}
                    request @ (Descriptor::Read { .. } | Descriptor::Atomic { .. }) => {
                        self.handle_read_request(around, request)?;
                    }
                    answer @ (Descriptor::Answer { number }
                    | Descriptor::Word { number, .. }
                    | Descriptor::Refusal { number, .. }) => self.finish_request(around, number, answer, bytes.0)?,
                },
                // Beyond this limit control messages are dropped, as the network may drop them.
                Event::Control { control, .. } => {
                    if around.completions.len() < LETTERS_MAX {
                        around.completions.push_back(Completion::Control { connection, control });
                    }
                }
                Event::Cast { .. } => unreachable!("a session casts no chunks"),
                // The retries of the connection are used up.
                Event::Failed { .. } | Event::Closed { .. } => return Err(Reason::PeerSilent),
            }
        }
        Ok(())
    }
}

impl Session {
    /// The send of this number, of `bytes` bytes, fills the next receive.
    pub(super) fn fill_receive(&mut self, around: &mut NodeContext<'_>, number: u32, bytes: u64) -> Result<(), Reason> {
        let receive = self.receiving.fill(number)?;
        around.memory.release(receive.place);
        let (connection, operation) = (self.handle, receive.operation);
        around.completions.push_back(Completion::Received { connection, operation, bytes });
        Ok(())
    }
}

/// Adds the fields of the datagram's outer part to a packet.
pub(super) fn complete(packet: Packet, sealed: &Sealed, flags: Flags, size: usize) -> Packet {
    let outer = wire::Outer {
        path: sealed.path,
        size: size.min(usize::from(u16::MAX)) as u16,
        flags,
        ..wire::Outer::default()
    };
    Packet { connection: ONLY, ..outer.complete(packet) }
}

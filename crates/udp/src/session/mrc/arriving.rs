//! Arriving datagrams of MRC's layout.

use super::super::{NodeContext, ONLY, Session};
use super::memory::{Asks, Claim};
use super::{MAILBOX, MUTE_MAX, RECEIVE};
use crate::completion::Completion;
use crate::error::Reason;
use crate::frame::Descriptor;
use crate::memory::Place as Landing;
use crate::socket::Arrival;
use strandway_proto::packet::{
    Ack, Answer, Data, Flags, Header, HostId, MessageId, Nack, Offset, Operation, Psn, SackBits, Wait,
};
use strandway_proto::{Handled, Packet, PathId, Time};
use strandway_wire::ocp::{self, Body, Cause, Datagram, Place, Sack, Skip, Trimmed, Write};

/// A datagram behind its outer header, with its payload and its length in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Inner<'a> {
    pub(crate) datagram: &'a Datagram,
    pub(crate) payload: &'a [u8],
    pub(crate) bytes: usize,
}

/// A packet for the engine.
fn packet(path: PathId, bytes: usize, flags: Flags, header: Header) -> Packet {
    let size = bytes.min(usize::from(u16::MAX)) as u16;
    Packet { source: HostId(0), destination: HostId(0), connection: ONLY, path, size, flags, header }
}

fn beyond(psn: Psn, distance: i16) -> Psn {
    Psn::new(u64::from(psn.get()).wrapping_add_signed(i64::from(distance)))
}

impl Session {
    /// Does the peer of this connection send from this inner address, on this plane?
    pub(crate) fn is_from(&self, plane: usize, source: [u8; 16]) -> bool {
        self.paths.peer(plane).is_some_and(|peer| peer.ip().octets() == source)
    }

    /// A datagram for this connection's queue pair arrived by `plane`.
    pub(crate) fn handle_mrc(
        &mut self,
        around: &mut NodeContext<'_>,
        plane: usize,
        arrival: &Arrival,
        inner: Inner<'_>,
    ) -> Result<(), Reason> {
        if !self.phase.is_confirmed() || self.mrc.is_none() || !self.is_from(plane, inner.datagram.source) {
            self.counters.malformed += 1;
            return Ok(());
        }
        let around = &mut around.at(self.own(around.now));
        let now = around.now;
        self.phase.handle_arrival(now);
        around.monitors.handle_arrival(self.by_node(now), self.paths.monitor, plane);
        // Marks are in the outer header. On acknowledgements they say nothing about the path of data.
        let path = ocp::path_of(inner.datagram.entropy);
        let marked = Flags::NONE.with_if(arrival.is_marked(), Flags::CE);
        match &inner.datagram.body {
            Body::Write(write) => self.handle_write(around, plane, path, marked, inner, write)?,
            Body::Sack(sack) => {
                let (ack, flags) = self.ack_of(sack, inner.datagram.retransmission);
                self.hand_over(around, &packet(path, inner.bytes, flags, Header::Ack(ack)));
            }
            Body::Nack(nack) => {
                let cumulative = self.mrc.as_ref().map_or(Psn::new(0), |mrc| beyond(mrc.cumulative, 1));
                let flags = Flags::NONE.with_if(nack.at_last_hop, Flags::TRIMMED_AT_LAST_HOP);
                let path_lost = ocp::path_of(nack.entropy);
                let header = Header::Nack(Nack { psn: nack.psn, cumulative, path: path_lost, reason: nack.reason });
                self.hand_over(around, &packet(path, inner.bytes, flags, header));
            }
            Body::Probe(probe) => {
                if let Some(mrc) = &mut self.mrc {
                    mrc.ticks.note_probe(Asks::Probe, probe.number, probe.stamp.tick);
                }
                let header = Header::Probe { number: u32::from(probe.number) };
                self.hand_over(around, &packet(path, inner.bytes, marked, header));
            }
            // SACKs complete operations. A transport acknowledgement adds only a refusal.
            Body::TransportAck(ack) => {
                self.counters.transport_acks_received += 1;
                if !ack.accepts() {
                    return Err(Reason::RemoteAccess);
                }
            }
            // These go to QP 2.
            Body::Request(_) | Body::Response(_) => self.counters.malformed += 1,
        }
        self.drain(around)
    }

    /// Hands the engine a packet that may concern a shared window.
    fn hand_over(&mut self, around: &mut NodeContext<'_>, packet: &Packet) {
        let shares = self.borrow_window(around);
        self.endpoint.handle_packet(around.now, packet);
        if shares {
            self.return_window(around);
            around.windows.wake(self.paths.monitor);
        }
    }

    fn ack_of(&mut self, sack: &Sack, retransmission: bool) -> (Ack, Flags) {
        if let Some(mrc) = &mut self.mrc {
            mrc.cumulative = sack.cumulative;
        }
        let flags = match sack.skip {
            Skip::None => Flags::NONE,
            Skip::Once => Flags::MARKED,
            Skip::Always => Flags::ALWAYS_SKIP,
        };
        let (acked, answer) = match sack.cause {
            Cause::Packet(distance) => (beyond(sack.cumulative, distance), false),
            Cause::Probe(number) => (Psn::new(u64::from(number)), true),
        };
        let ack = Ack {
            cumulative: beyond(sack.cumulative, 1),
            sack_base: beyond(sack.cumulative, sack.base),
            sack: SackBits::new(sack.bits),
            acked,
            path: ocp::path_of(sack.entropy),
            received: sack.received,
            out_of_order: sack.out_of_order,
            range: sack.range,
        };
        (ack, flags.with_if(answer, Flags::PROBE_ANSWER).with_if(retransmission, Flags::RETRANSMITTED))
    }

    fn handle_write(
        &mut self,
        around: &mut NodeContext<'_>,
        plane: usize,
        path: PathId,
        marked: Flags,
        Inner { datagram, payload, bytes }: Inner<'_>,
        write: &Write,
    ) -> Result<(), Reason> {
        let Some(mrc) = &mut self.mrc else { return Ok(()) };
        let (is_last, length) = (matches!(write.place, Place::Last | Place::Only), payload.len() as u64);
        // Only the last packet tells how long its message is; the engine reads the offset of no other one.
        let offset = match write.place {
            Place::First | Place::Middle => 0,
            Place::Only if length != u64::from(write.message_bytes) => u64::MAX,
            Place::Only => 0,
            Place::Last => u64::from(write.message_bytes).checked_sub(length).unwrap_or(u64::MAX),
        };
        if offset == u64::MAX || length > u64::from(write.message_bytes) {
            self.counters.malformed += 1;
            return Ok(());
        }
        let message = mrc.claims.message(write.messages);
        if let Some(stamp) = write.stamp {
            mrc.ticks.note_packet(datagram.psn.get(), stamp.tick);
        }
        let flags = marked
            .with_if(is_last, Flags::LAST)
            .with_if(datagram.ack_request, Flags::ACK_REQUEST)
            .with_if(datagram.retransmission, Flags::RETRANSMITTED);
        let data = Data {
            psn: datagram.psn,
            message: MessageId(message as u32),
            offset: Offset::new(offset),
            length: payload.len() as u16,
            target: 0,
            wait: Wait::default(),
        };
        let before = self.endpoint.observe().received_up_to(ONLY);
        let psn = datagram.psn.extend(before);
        let handled = self.endpoint.handle_packet(around.now, &packet(path, bytes, flags, Header::Data(data)));
        if handled != Handled::Fresh {
            if psn < before {
                // The sender may have missed the transport acknowledgement.
                mrc.due = Some(path);
            }
            return Ok(());
        }
        mrc.received += bytes as u64;
        if is_last || datagram.ack_request {
            mrc.owed.insert(psn);
        }
        let receive = (write.key == MAILBOX).then_some((write.address >> RECEIVE) as u32);
        let claim = Claim { key: write.key, bytes: write.message_bytes, receive };
        mrc.claims.add(message, claim, write.immediate, payload.len())?;
        let outcome = self.landing(around, write, payload.len());
        if let Err(Reason::RemoteAccess) = outcome {
            self.refuse_access(around, path);
        }
        around.memory.write(outcome?, payload);
        self.counters.received_bytes[plane] += payload.len() as u64;
        let next = self.endpoint.observe().received_up_to(ONLY);
        if let Some(mrc) = &mut self.mrc
            && mrc.owed.first().is_some_and(|psn| *psn < next)
        {
            // One acknowledgement covers all that is below.
            mrc.owed = mrc.owed.split_off(&next);
            mrc.due = Some(path);
        }
        Ok(())
    }

    /// Where the payload of a packet belongs.
    fn landing(&self, around: &mut NodeContext<'_>, write: &Write, length: usize) -> Result<Landing, Reason> {
        let descriptor = match write.key {
            MAILBOX => Descriptor::Send { number: (write.address >> RECEIVE) as u32 },
            key => Descriptor::Write { key: u64::from(key), start: write.address, immediate: None },
        };
        let offset = if write.key == MAILBOX { write.address & u64::from(u32::MAX) } else { 0 };
        self.place(around, descriptor, offset, length)
    }

    /// The peer's next message is complete; its last packet says that it has `bytes` bytes.
    pub(in crate::session) fn finish_write(&mut self, around: &mut NodeContext<'_>, bytes: u64) -> Result<(), Reason> {
        let Some(mrc) = &mut self.mrc else { return Ok(()) };
        let (claim, immediate) = mrc.claims.finish(bytes)?;
        match (claim.receive, immediate) {
            (Some(number), _) => self.fill_receive(around, number, bytes)?,
            (None, Some(immediate)) => {
                around.completions.push_back(Completion::Written { connection: self.handle, immediate, bytes });
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// A switch left this of a packet of ours to receive: it is requested again. `at_last_hop`: it was the last switch.
    pub(crate) fn handle_trimmed_mrc(&mut self, now: Time, arrival: &Arrival, trimmed: &Trimmed, at_last_hop: bool) {
        let now = self.own(now);
        let Some(mrc) = &mut self.mrc else { return };
        if !self.phase.is_confirmed() {
            return;
        }
        if let Some(stamp) = trimmed.stamp {
            mrc.ticks.note_packet(trimmed.psn.get(), stamp.tick);
        }
        let flags = Flags::TRIMMED
            .with_if(arrival.is_marked(), Flags::CE)
            .with_if(at_last_hop, Flags::TRIMMED_AT_LAST_HOP)
            .with_if(trimmed.retransmission, Flags::RETRANSMITTED);
        let data = Data {
            psn: trimmed.psn,
            message: MessageId(0),
            offset: Offset::new(0),
            length: 0,
            target: 0,
            wait: Wait::default(),
        };
        let path = ocp::path_of(trimmed.entropy);
        self.endpoint.handle_packet(now, &packet(path, ocp::TRIMMED, flags, Header::Data(data)));
    }

    /// The peer's NIC asks something that concerns all its connections. Only the first one of them `answers`.
    pub(crate) fn handle_request(
        &mut self,
        around: &mut NodeContext<'_>,
        path: PathId,
        number: u16,
        request: &ocp::Request,
        answers: bool,
    ) -> Result<(), Reason> {
        let around = &mut around.at(self.own(around.now));
        let Some(mrc) = &mut self.mrc else { return Ok(()) };
        let asks = if request.ports.is_some() { Asks::Status } else { Asks::Path };
        mrc.ticks.note_probe(asks, number, request.stamp.tick);
        if !answers {
            if mrc.mute.len() >= MUTE_MAX {
                mrc.mute.remove(0);
            }
            mrc.mute.push(number);
        }
        // The wire has no bit for port 31, which no node has.
        let operation = request.ports.map_or(Operation::PathProbe, Operation::PortStatus);
        let header = Header::Operation { number, operation };
        self.hand_over(around, &packet(path, ocp::FIXED, Flags::NONE, header));
        self.drain(around)
    }

    /// The peer's NIC answers a request of this connection's engine, which left by `answer.path`.
    pub(crate) fn handle_response(
        &mut self,
        around: &mut NodeContext<'_>,
        path: PathId,
        answer: Answer,
    ) -> Result<(), Reason> {
        let around = &mut around.at(self.own(around.now));
        self.hand_over(around, &packet(path, ocp::FIXED, Flags::NONE, Header::Answer(answer)));
        self.drain(around)
    }
}

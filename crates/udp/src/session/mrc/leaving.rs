//! Leaving datagrams of MRC's layout.

use super::super::posted::Posted;
use super::super::{NodeContext, ONLY, Piece, Session};
use super::memory::Asks;
use super::{MAILBOX, RECEIVE, RECEIVED_UNIT, tick};
use crate::frame::Descriptor;
use crate::memory;
use crate::plane::{Class, OuterPacket, Owner};
use crate::socket::ECT;
use std::net::SocketAddrV6;
use strandway_proto::packet::{Data, Flags, Header, Operation, Psn};
use strandway_proto::{Packet, PathId};
use strandway_wire::ocp::{
    self, Body, Cause, Datagram, NIC_QUEUE, Nack, Place, Probe, Request, Response, Sack, Skip, Stamp, TransportAck,
    Write,
};

/// The distance of a PSN above another one; the nearest one that 16 bits hold.
fn above(psn: Psn, from: Psn) -> i16 {
    let distance = i64::from(psn.get()) - i64::from(from.get());
    let half = (Psn::MODULUS / 2) as i64;
    let wrapped = (distance + 3 * half).rem_euclid(2 * half) - half;
    wrapped.clamp(i64::from(i16::MIN), i64::from(i16::MAX)) as i16
}

/// The PSN before this one.
fn before(psn: Psn) -> Psn {
    Psn::new(u64::from(psn.get()) + Psn::MODULUS - 1)
}

impl Session {
    /// Sends a packet that [`super::Mrc::carries`].
    pub(in crate::session) fn send_mrc(&mut self, around: &mut NodeContext<'_>, to: SocketAddrV6, packet: &Packet) {
        let Some(mrc) = &mut self.mrc else { return };
        let (mut queue, mut psn) = (mrc.queues[1], Psn::new(0));
        let stamp = Stamp { tick: tick(around.now), coarse: false };
        let (mut payload, mut piece) = (None, None);
        let body = match &packet.header {
            Header::Data(data) => {
                psn = data.psn;
                piece = Piece::of(&packet.header, self.mtu);
                let Some(posted) = self.sending.get(data.message.0) else { return };
                payload = posted.place.map(|place| (place, data.offset.get(), usize::from(data.length)));
                Body::Write(write_of(posted, data, packet.flags, stamp))
            }
            Header::Ack(ack) => {
                let cumulative = before(ack.cumulative);
                psn = cumulative;
                let acked = { ack.acked };
                let is_probe = packet.flags.has(Flags::PROBE_ANSWER);
                let number = acked.get() as u16;
                Body::Sack(Sack {
                    skip: match (packet.flags.has(Flags::ALWAYS_SKIP), packet.flags.has(Flags::MARKED)) {
                        (true, _) => Skip::Always,
                        (false, true) => Skip::Once,
                        (false, false) => Skip::None,
                    },
                    cause: if is_probe { Cause::Probe(number) } else { Cause::Packet(above(acked, cumulative)) },
                    entropy: ocp::entropy_of(ack.path),
                    queues: mrc.queues.map(|queue| queue as u16),
                    cumulative,
                    range: { ack.range },
                    base: above(ack.sack_base, cumulative),
                    bits: { ack.sack }.get(),
                    tick: if is_probe {
                        mrc.ticks.of_probe(Asks::Probe, number)
                    } else {
                        mrc.ticks.of_packet(acked.get())
                    },
                    out_of_order: { ack.out_of_order }.min(0x7fff),
                    restore: false,
                    penalty: 0,
                    received: (mrc.received.div_ceil(RECEIVED_UNIT) & 0xff_ffff) as u32,
                })
            }
            Header::Nack(nack) => {
                psn = nack.psn;
                Body::Nack(Nack {
                    reason: nack.reason,
                    at_last_hop: packet.flags.has(Flags::TRIMMED_AT_LAST_HOP),
                    entropy: ocp::entropy_of(nack.path),
                    queues: mrc.queues.map(|queue| queue as u16),
                    psn: nack.psn,
                    tick: mrc.ticks.of_packet(nack.psn.get()),
                })
            }
            Header::Probe { number } => {
                let queues = mrc.queues.map(|queue| queue as u16);
                Body::Probe(Probe { number: *number as u16, queues, stamp })
            }
            Header::Operation { number, operation } => {
                let ports = match operation {
                    Operation::PortStatus(mask) => Some(mask & (u32::MAX >> 1)),
                    Operation::PathProbe => None,
                    // Sessions have their own ending.
                    Operation::Close(_) | Operation::Closed => return,
                };
                let wire = around.requests.ask(self.handle, *number, ports.is_some(), packet.path);
                (queue, psn) = (NIC_QUEUE, Psn::new(u64::from(wire)));
                Body::Request(Request { ports, stamp })
            }
            Header::Answer(answer) => {
                if let Some(at) = mrc.mute.iter().position(|number| *number == answer.number && answer.port_status) {
                    mrc.mute.swap_remove(at);
                    return;
                }
                (queue, psn) = (NIC_QUEUE, Psn::new(u64::from(answer.number)));
                let asks = if answer.port_status { Asks::Status } else { Asks::Path };
                let tick = mrc.ticks.of_probe(asks, answer.number);
                Body::Response(Response { port_status: answer.port_status, tick })
            }
            _ => return,
        };
        let class = if packet.is_control() { Class::Control } else { Class::Data };
        let flags = [Flags::ACK_REQUEST, Flags::RETRANSMITTED].map(|flag| packet.flags.has(flag));
        self.send_inner(around, to, (packet.path, class), (queue, psn, flags), body, payload);
        if let Some(piece) = piece {
            let plane = usize::from(packet.path.port());
            self.counters.sent_bytes[plane] += piece.length as u64;
            if !packet.flags.has(Flags::RETRANSMITTED) {
                self.counters.fresh_bytes += piece.length as u64;
            }
        }
    }

    fn send_inner(
        &mut self,
        around: &mut NodeContext<'_>,
        to: SocketAddrV6,
        (path, class): (PathId, Class),
        (queue, psn, [ack_request, retransmission]): (u32, Psn, [bool; 2]),
        body: Body,
        payload: Option<(memory::Place, u64, usize)>,
    ) {
        let Some(port) = self.mrc.as_ref().map(|mrc| mrc.port) else { return };
        // The engine chooses the paths of data.
        let path = if class == Class::Control { around.routes.detour(to, path, around.denied) } else { path };
        let plane = &mut around.planes[usize::from(path.port())];
        let class = match class {
            Class::Data | Class::Urgent => ECT,
            Class::Control => self.sending.control_class,
        };
        let entropy = ocp::entropy_of(path);
        let (source, destination) = (plane.ip().octets(), to.ip().octets());
        let datagram = Datagram { source, destination, class, entropy, queue, psn, ack_request, retransmission, body };
        let payload = payload.map_or(&[][..], |(place, offset, length)| around.memory.read(place, offset, length));
        let mut inner = plane.take_buffer();
        if ocp::write(&datagram, port, payload, &mut inner).is_err() {
            self.counters.malformed += 1;
            return;
        }
        if let Some(pacer) = &mut self.sending.pacer
            && let Body::Write(_) = datagram.body
        {
            pacer.spend(inner.len() as u64);
        }
        let (outer, _) = around.routes.resolve(to, path);
        let packet = OuterPacket { to: *outer.ip(), label: entropy >> 16, class, owner: Owner::Peer(to) };
        plane.push_inner(packet, inner);
    }

    /// Sends the transport acknowledgement that is due.
    pub(in crate::session) fn send_transport(&mut self, around: &mut NodeContext<'_>) -> bool {
        let Some(mrc) = &mut self.mrc else { return false };
        let Some(path) = mrc.due else { return false };
        let Some(to) = self.paths.peer(usize::from(path.port())) else {
            mrc.due = None;
            return false;
        };
        if !around.planes[usize::from(path.port())].is_free() {
            return false;
        }
        mrc.due = None;
        self.send_nack(around, to, path, TransportAck::ACCEPTED);
        true
    }

    /// Tells the peer that its operation named memory that it may not write.
    pub(super) fn refuse_access(&mut self, around: &mut NodeContext<'_>, path: PathId) {
        if let Some(to) = self.paths.peer(usize::from(path.port())) {
            self.send_nack(around, to, path, TransportAck::REMOTE_ACCESS);
        }
    }

    fn send_nack(&mut self, around: &mut NodeContext<'_>, to: SocketAddrV6, path: PathId, syndrome: u8) {
        let Some(mrc) = &self.mrc else { return };
        let completed = (mrc.claims.completed % Psn::MODULUS) as u32;
        let next = self.endpoint.observe().received_up_to(ONLY);
        let (queue, psn) = (mrc.queues[1], before(Psn::new(next)));
        let body = Body::TransportAck(TransportAck { syndrome, completed });
        self.counters.transport_acks_sent += 1;
        self.send_inner(around, to, (path, Class::Control), (queue, psn, [false; 2]), body, None);
    }
}

/// The headers of a packet of data.
fn write_of(posted: &Posted, data: &Data, flags: Flags, stamp: Stamp) -> Write {
    let (key, start, immediate) = match posted.descriptor {
        Descriptor::Send { number } => (MAILBOX, u64::from(number) << RECEIVE, Some(number)),
        // The peer's keys have 32 bits in this layout.
        Descriptor::Write { key, start, immediate } => (key as u32, start, immediate),
        _ => unreachable!("the node refuses reads in this layout"),
    };
    let is_last = flags.has(Flags::LAST);
    let place = match (data.offset.get() == 0, is_last) {
        (true, true) => Place::Only,
        (true, false) => Place::First,
        (false, true) => Place::Last,
        (false, false) => Place::Middle,
    };
    Write {
        place,
        immediate: immediate.filter(|_| is_last),
        immediates: if immediate.is_some() { posted.immediates } else { 0 },
        messages: data.message.0 as u16,
        stamp: Some(stamp),
        address: start.wrapping_add(data.offset.get()),
        key,
        message_bytes: posted.bytes() as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_proto::Time;

    #[test]
    fn distances_wrap_and_stop_at_sixteen_bits() {
        let psn = Psn::new;
        assert_eq!(above(psn(5), psn(3)), 2);
        assert_eq!(above(psn(3), psn(5)), -2);
        assert_eq!(above(psn(1), psn(Psn::MODULUS - 1)), 2);
        assert_eq!(above(psn(Psn::MODULUS - 1), psn(1)), -2);
        assert_eq!((above(psn(100_000), psn(0)), above(psn(0), psn(100_000))), (i16::MAX, i16::MIN));
        assert_eq!(before(psn(0)).get(), 0xff_ffff);
        assert_eq!(tick(Time(128_000 * 65_537 + 5)), 1);
    }
}

//! Leaving datagrams of a connection: packets of the engine with their payload, pings and pongs, sealed and handed to a
//! plane.

use super::phase::Phase;
use super::{Mrc, NodeContext, ONLY, Piece, Session};
use crate::clock::LIFE;
use crate::error::Reason;
use crate::frame::{HEADER, Kind, PROOF, Sealed};
use crate::plane::{Class, Destination, Owner};
use std::net::SocketAddrV6;
use strandway_proto::packet::{Flags, Header};
use strandway_proto::{Packet, PathId, Ports, Span, Time};
use strandway_wire as wire;

/// A short turn is this part of a whole one: ours, one full batch.
const BRISK: usize = 2;

impl Session {
    /// Runs timers, then sends packets while planes take them; true if anything was sent. `absence`: how long this node
    /// had no turn. `brisk`: its turn is a short one, because the node expects urgent datagrams.
    pub(crate) fn work(&mut self, around: &mut NodeContext<'_>, absence: Span, brisk: bool) -> Result<bool, Reason> {
        let around = &mut around.at(self.own(around.now));
        let now = around.now;
        if now > Time::ZERO + LIFE {
            return Err(Reason::Aged);
        }
        if let Phase::Unconfirmed { until } = self.phase {
            // Nothing is sent to a caller that has not shown its keys.
            return if now > until { Err(Reason::NoAnswer) } else { Ok(false) };
        }
        self.phase.excuse(now, absence, &self.paths.timeouts);
        self.find_silence(around)?;
        let shares = self.borrow_window(around);
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        let turn = if brisk { self.sending.turn.div_ceil(BRISK) } else { self.sending.turn };
        let mut may_send = !shares || self.may_send(around);
        let (mut sent, mut hindered) = (0, false);
        // In MRC's layout data waits until the peer has answered a ping, and so has the connection, too.
        let is_open = self.mrc.as_ref().is_none_or(|mrc| mrc.open);
        let mut free = if is_open { self.paths.free(around.planes) } else { 0 };
        sent += usize::from(self.send_transport(around));
        while sent < turn && self.endpoint.wants_transmit() {
            let endpoint = &self.endpoint;
            let paced =
                self.sending.pacer.as_mut().is_some_and(|pacer| !pacer.is_open(now, endpoint.observe().window(ONLY).0));
            hindered = free == 0 || paced;
            if free == 0 {
                break;
            }
            let data = if paced || !(may_send || endpoint.has_urgent(ONLY)) { 0 } else { free };
            let Some(packet) = self.endpoint.poll_transmit(now, Ports { data, control: free }) else { break };
            self.send_packet(around, &packet);
            // Only the plane that took it may have become full.
            let port = packet.path.port();
            if !around.planes[usize::from(port)].is_free() {
                free &= !(1 << port);
            }
            sent += 1;
            may_send &= !shares || !self.ends_turn();
        }
        if shares {
            self.return_window(around);
            self.end_work(around, hindered || sent == turn);
        }
        if self.receiving.owes_credits() {
            // No packet carried the number of new receives: a ping does.
            sent += usize::from(self.send_credits(around));
        }
        self.drain(around)?;
        Ok(sent > 0)
    }

    fn header(&mut self, kind: Kind, path: PathId, urgent: bool) -> Sealed {
        let (credits, counter) = (self.receiving.take_credits(), self.crypto.sealer.next());
        Sealed { kind, urgent, path, credits, connection: self.remote, counter }
    }

    fn send_packet(&mut self, around: &mut NodeContext<'_>, packet: &Packet) {
        let plane = usize::from(packet.path.port());
        let Some(to) = self.paths.peer(plane) else { return };
        if self.mrc.is_some() && Mrc::carries(&packet.header) {
            return self.send_mrc(around, to, packet);
        }
        self.sending.header.clear();
        // All numbers fit every format: the connection is 0, offsets have 64 bits.
        if wire::encode(self.format, packet, &mut self.sending.header).is_err() {
            self.counters.malformed += 1;
            return;
        }
        match Piece::of(&packet.header, self.mtu) {
            Some(piece) => self.send_data(around, to, packet, &piece),
            // Probes travel in the class of data, and switches mark them like data.
            None => {
                let class = if packet.is_control() { Class::Control } else { Class::Data };
                let transport = std::mem::take(&mut self.sending.header);
                self.send(around, to, (Kind::Control, class), packet.path, &transport);
                self.sending.header = transport;
            }
        }
    }

    /// Sends a packet of data, whose transport header is written: it is sealed from where its payload lies.
    #[inline]
    fn send_data(&mut self, around: &mut NodeContext<'_>, to: SocketAddrV6, packet: &Packet, piece: &Piece) {
        let plane = usize::from(packet.path.port());
        let mut urgent = false;
        let place = match (&self.partial, &packet.header) {
            // The part's header says where its payload lies.
            (Some(partial), Header::Part(part)) => Some(partial.source(part).expect("a stream that sends is open")),
            _ => {
                let posted = self.sending.get(piece.message).expect("the engine sends messages that it has");
                let (descriptor, place) = (posted.descriptor, posted.place);
                urgent = self.sending.is_urgent(posted);
                descriptor.encode(&mut self.sending.header);
                place
            }
        };
        let memory = &*around.memory;
        let header = self.header(Kind::Data, packet.path, urgent);
        let class = if urgent { Class::Urgent } else { Class::Data };
        let payload = match (&piece.parity, &mut self.codes) {
            (Some(part), Some(codes)) => codes.parity(place.map_or(&[][..], |place| memory.read_all(place)), part),
            _ => place.map_or(&[][..], |place| memory.read(place, piece.offset, piece.length)),
        };
        let (sealer, transport) = (&mut self.crypto.sealer, &self.sending.header);
        let head = HEADER + transport.len();
        let length = head + payload.len() + sealer.tag_bytes();
        let (resolved, source) = around.routes.resolve(to, packet.path);
        let shard = Destination::shard_of(self.remote);
        let destination =
            Destination { to: resolved, source, shard, owner: Owner::Peer(to), late: !self.sending.in_order };
        around.planes[plane].push(destination, class, length, |out| {
            out[..HEADER].copy_from_slice(&header.to_bytes());
            out[HEADER..head].copy_from_slice(transport);
            sealer.seal_from(out, head, payload);
        });
        if let Some(pacer) = &mut self.sending.pacer {
            pacer.spend(length as u64);
        }
        self.counters.sent_bytes[plane] += piece.length as u64;
        if !packet.flags.has(Flags::RETRANSMITTED) && piece.parity.is_none() {
            self.counters.fresh_bytes += piece.length as u64;
        }
    }

    fn send(
        &mut self,
        around: &mut NodeContext<'_>,
        to: SocketAddrV6,
        (kind, class): (Kind, Class),
        path: PathId,
        body: &[u8],
    ) {
        let path = around.routes.detour(to, path, around.denied);
        let header = self.header(kind, path, false);
        let sealer = &mut self.crypto.sealer;
        let length = HEADER + body.len() + sealer.tag_bytes();
        let (resolved, source) = around.routes.resolve_small(to, path);
        let shard = Destination::shard_of(self.remote);
        let destination = Destination { to: resolved, source, shard, owner: Owner::Peer(to), late: false };
        around.planes[usize::from(path.port())].push(destination, class, length, |out| {
            out[..HEADER].copy_from_slice(&header.to_bytes());
            sealer.seal_from(out, HEADER, body);
        });
    }

    /// Sends a ping or a pong.
    pub(super) fn send_number(
        &mut self,
        around: &mut NodeContext<'_>,
        to: SocketAddrV6,
        path: PathId,
        kind: Kind,
        number: u64,
        proof: Option<[u8; PROOF]>,
    ) {
        let mut body = [0; 8 + PROOF];
        body[..8].copy_from_slice(&number.to_be_bytes());
        let body = match proof {
            Some(proof) => {
                body[8..].copy_from_slice(&proof);
                &body[..]
            }
            None => &body[..8],
        };
        self.send(around, to, (kind, Class::Control), path, body);
    }

    /// Sends a ping that is padded with zeros to the length of a full packet.
    pub(super) fn send_full_ping(&mut self, around: &mut NodeContext<'_>, to: SocketAddrV6, path: PathId, number: u64) {
        let mut body = vec![0; self.sending.datagram.saturating_sub(HEADER + self.crypto.sealer.tag_bytes()).max(8)];
        body[..8].copy_from_slice(&number.to_be_bytes());
        self.send(around, to, (Kind::Ping, Class::Control), path, &body);
    }

    pub(super) fn send_small(&mut self, around: &mut NodeContext<'_>, path: PathId, kind: Kind, body: &[u8]) {
        if let Some(to) = self.paths.peer(usize::from(path.port())) {
            self.send(around, to, (kind, Class::Control), path, body);
        }
    }

    /// Does it have packets to send that no plane takes at present?
    pub(crate) fn wants_transmit(&self) -> bool {
        self.owes_transport()
            || self.endpoint.wants_control()
            || (self.endpoint.wants_transmit() && !self.sending.window.waits)
    }

    /// Tells the peer that the connection ends: one datagram on each plane, without waiting for an answer.
    pub(crate) fn send_goodbye(&mut self, around: &mut NodeContext<'_>, reason: Reason) {
        for plane in 0..self.paths.planes.len() {
            self.send_small(around, PathId::new(plane as u8, 0), Kind::Close, &[reason.code()]);
        }
    }
}

//! A naive observer of both endpoints, and the conditions that must hold.

use super::pair::{LIMIT, Pair};
use std::collections::{BTreeMap, BTreeSet};
use strandway_proto::packet::{Data, Flags};
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::{Bytes, ConnectionId, Event, Message, MessageId, Packet, Ports, Span};

/// The observer's knowledge of one direction of one connection.
#[derive(Default)]
pub(super) struct Flow {
    pub(super) posted: Vec<Message>,
    /// PSN behind the last packet of each message.
    pub(super) ends: Vec<u64>,
    pub(super) next: u64,
    /// Sent and not acknowledged: wire bytes, and what the packet carried.
    pub(super) unacked: BTreeMap<u64, u16>,
    pub(super) unacked_bytes: u64,
    pub(super) carried: Vec<(MessageId, u64, u16)>,
    /// The endpoint's latest value.
    pub(super) in_flight: u64,
    pub(super) arrived: BTreeSet<u64>,
    pub(super) arrived_up_to: u64,
    pub(super) received: usize,
    pub(super) finished: usize,
}

impl Flow {
    pub(super) fn forget(&mut self, psn: u64) {
        if let Some(bytes) = self.unacked.remove(&psn) {
            self.unacked_bytes -= u64::from(bytes);
        }
    }
    pub(super) fn forget_below(&mut self, psn: u64) {
        while let Some((&first, _)) = self.unacked.first_key_value().filter(|(p, _)| **p < psn) {
            self.forget(first);
        }
    }
}

impl Pair<'_> {
    /// Checks a data packet that was sent: its contents, and whether it was allowed.
    pub(super) fn note_data(&mut self, side: usize, packet: &Packet, data: &Data, (in_flight, window): (u64, u64)) {
        let transport = &self.world.profile.transport;
        let flow = &mut self.flows[side][packet.connection.0 as usize];
        let psn = u64::from(data.psn.get());
        let index = flow.ends.partition_point(|&end| end <= psn);
        let message = flow.posted[index];
        let first = if index == 0 { 0 } else { flow.ends[index - 1] };
        let offset = (psn - first) * u64::from(transport.mtu);
        assert_eq!((data.message, data.offset.get()), (message.id, offset), "psn {psn} carries what it should");
        assert_eq!(u64::from(data.length), (message.bytes - offset).min(u64::from(transport.mtu)));
        assert_eq!(u32::from(packet.size), transport.header + u32::from(data.length));
        assert_eq!(packet.flags.has(Flags::LAST), psn + 1 == flow.ends[index]);
        let again = packet.flags.has(Flags::RETRANSMITTED);
        assert_eq!(again, psn < flow.next, "psn {psn} says whether it was sent before");
        if again {
            assert!(flow.unacked.contains_key(&psn), "psn {psn} is sent again though it is acknowledged");
            assert!(packet.flags.has(Flags::ACK_REQUEST), "a retransmission asks for an acknowledgement");
        } else {
            assert_eq!(psn, flow.next, "new packets leave in order");
            flow.next += 1;
            flow.carried.push((data.message, offset, data.length));
            flow.unacked.insert(psn, packet.size);
            flow.unacked_bytes += u64::from(packet.size);
        }
        let full = self.world.environment.packet.0;
        let selective = matches!(self.world.profile.reliability, ReliabilityConfig::SelectiveRepeat(_));
        let urgent = again && selective && (!self.world.environment.trimming || self.is_irn());
        assert!(
            urgent || in_flight == 0 || in_flight + full <= window,
            "psn {psn} leaves with {in_flight} in flight and a window of {window}"
        );
        let now_in_flight = self.sides[side].endpoint.observe().in_flight(packet.connection).0;
        assert_eq!(now_in_flight, in_flight + u64::from(packet.size), "what is sent is in flight");
    }

    fn is_irn(&self) -> bool {
        matches!(&self.world.profile.reliability, ReliabilityConfig::SelectiveRepeat(c) if c.holes)
    }

    pub(super) fn record(&mut self, side: usize, event: Event) {
        match event {
            Event::Received { connection, message, bytes } => {
                let flow = &mut self.flows[1 - side][connection.0 as usize];
                let posted = flow.posted[flow.received];
                assert_eq!(
                    (message, bytes),
                    (posted.id, Bytes(posted.bytes)),
                    "messages arrive once, in order and whole"
                );
                assert!(
                    flow.arrived_up_to >= flow.ends[flow.received],
                    "{message:?} is complete though packets are missing"
                );
                flow.received += 1;
            }
            Event::Control { .. } => panic!("nobody wrote a letter"),
            Event::Cast { .. } => panic!("nobody cast anything"),
            Event::Sent { connection, message } => {
                let flow = &mut self.flows[side][connection.0 as usize];
                assert_eq!(message, flow.posted[flow.finished].id, "messages finish once and in order");
                flow.finished += 1;
                assert!(flow.finished <= flow.received, "{message:?} is finished though the peer does not have it");
                self.finished_count += 1;
                self.finished = self.now;
            }
            Event::Failed { connection } | Event::Closed { connection } => {
                panic!("{connection:?} of side {side} gives up at {}", self.now)
            }
        }
    }

    /// Checks the conditions that must hold after every step.
    pub(super) fn check(&mut self) {
        for side in 0..2 {
            let endpoint = &self.sides[side].endpoint;
            let mut owed = false;
            for (connection, flow) in self.flows[side].iter_mut().enumerate() {
                let id = ConnectionId(connection as u32);
                let in_flight = endpoint.observe().in_flight(id).0;
                assert!(in_flight <= flow.unacked_bytes, "{in_flight} in flight, but {} unsettled", flow.unacked_bytes);
                let stats = endpoint.observe().stats(id);
                if stats.nacks == 0
                    && stats.timeouts == 0
                    && stats.retransmitted == 0
                    && self.world.environment.trimming
                    && !matches!(&self.world.profile.reliability, ReliabilityConfig::SelectiveRepeat(c) if c.holes)
                    && !matches!(&self.world.profile.reliability, ReliabilityConfig::MrcSack(_))
                {
                    assert_eq!(in_flight, flow.unacked_bytes, "without losses, in flight is what is not acknowledged");
                }
                flow.in_flight = in_flight;
                owed |= flow.finished < flow.posted.len();
            }
            if owed {
                let deadline = endpoint.poll_timeout();
                assert!(deadline.is_some() || endpoint.wants_transmit(), "work is owed, but no deadline stands");
                let flies = self.flows[side].iter().any(|f| f.in_flight > 0);
                assert!(deadline.is_some() || !flies, "packets are in flight, but no deadline stands");
            }
        }
        for connection in 0..self.world.connections {
            for side in 0..2 {
                let up_to = self.sides[side].endpoint.observe().received_up_to(ConnectionId(connection));
                assert_eq!(
                    up_to,
                    self.flows[1 - side][connection as usize].arrived_up_to,
                    "what arrived counts as arrived"
                );
            }
        }
    }

    /// At the end, old deadlines run out and no new ones are set.
    pub(super) fn check_idle(&mut self) {
        for (side, s) in self.sides.iter_mut().enumerate() {
            let mut last = self.now;
            while let Some(at) = s.endpoint.poll_timeout() {
                assert!(at <= LIMIT, "an idle endpoint sets new deadlines");
                last = last.max(at);
                s.endpoint.handle_timeout(last);
                assert!(!s.endpoint.wants_transmit(), "an idle endpoint has nothing to send");
            }
            assert!(
                last.since(self.now) <= Span::from_ms(10),
                "an idle endpoint keeps deadlines for {}",
                last.since(self.now)
            );
            let free = Ports::first(self.world.environment.ports);
            assert_eq!(s.endpoint.poll_transmit(last, free), None);
            assert_eq!(s.endpoint.poll_event(), None);
            assert!(self.flows[side].iter().all(|f| f.unacked.is_empty() && f.in_flight == 0));
        }
    }
}

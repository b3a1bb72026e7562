//! The engine of one end of a context, and what this end sends by it: messages at the initiator, data of reads at the
//! target.

use super::timer::Timer;
use super::{Acks, ONLY, Shared};
use strandway_proto::packet::{Data, Flags, Header, NackReason, Psn};
use strandway_proto::{Endpoint, Handled, Message, MessageId, Packet, Ports, Span, Time};
use strandway_wire::WireError;
use strandway_wire::uet::codes::NackCode;
use strandway_wire::uet::pds::{Ack, Cause, Congestion, Mode, Nack, Nscc, Refused, State};
use strandway_wire::uet::{self, Conversation, Datagram, Pds, Ses};

/// The unit of the service time in acknowledgements.
const SERVICE_UNIT: Span = Span::from_ns(128);
/// Where an acknowledgement without a bitmap has it: beyond all packets, so that nothing in it seems to be missing.
const NO_BITMAP: u64 = 1 << 22;

/// An engine with one connection, in the numbers of its context.
pub(super) struct Flow {
    endpoint: Endpoint,
    timer: Timer,
    /// The timeout that the engine has.
    timeout: Span,
    /// The context's first sequence number, in both directions.
    start: u32,
    /// Packets of all messages.
    packets: u64,
    /// Packets that have arrived without a hole.
    acknowledged: u64,
    /// Packets that have been sent, some of them perhaps in vain.
    sent: u64,
    /// The hole for which all packets behind it were sent again.
    went_back: Option<u64>,
    /// The number of the last probe.
    probe: u32,
    /// The latest time that the engine was given.
    latest: Time,
}

impl Flow {
    pub(super) fn new(now: Time, endpoint: Endpoint, start: u32, timeout: Span) -> Flow {
        Flow {
            endpoint,
            timer: Timer::new(timeout),
            timeout,
            start,
            packets: 0,
            acknowledged: 0,
            sent: 0,
            went_back: None,
            probe: 0,
            latest: now,
        }
    }

    /// The context's first sequence number.
    pub(super) fn start(&self) -> u32 {
        self.start
    }

    /// Packets of all messages that were posted.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Packets that have arrived at the peer without a hole.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Bytes with headers that may be in flight.
    pub(super) fn window(&self) -> u64 {
        self.endpoint.observe().window(ONLY).0
    }

    /// Packets that have arrived here without a hole.
    pub(super) fn received(&self) -> u64 {
        self.endpoint.observe().received_up_to(ONLY)
    }

    /// Sends a message.
    pub(super) fn post(&mut self, now: Time, id: MessageId, bytes: u64) {
        self.latest = self.latest.max(now);
        let payload = u64::from(self.endpoint.observe().profile(ONLY).transport.mtu);
        self.packets += bytes.div_ceil(payload).max(1);
        self.endpoint.post(now, ONLY, Message { id, bytes });
    }

    /// A packet of the peer's has arrived.
    pub(super) fn handle_data(&mut self, now: Time, packet: &Packet) -> Handled {
        self.latest = self.latest.max(now);
        self.endpoint.handle_packet(self.latest, packet)
    }

    /// A probe of the peer's has arrived.
    pub(super) fn handle_probe(&mut self, now: Time, datagram: &Datagram<'_>) {
        let next = Psn::new(self.received());
        if let Some(packet) = uet::interpret(&datagram.pds, &datagram.ses, 0, self.start, MessageId(0), next) {
            self.handle_data(now, &packet);
        }
    }

    /// The number of packets without a hole that an acknowledgement reports.
    pub(super) fn reported(&self, ack: &Ack) -> u64 {
        let near = self.acknowledged as u32;
        let ahead = ack.cumulative.wrapping_sub(self.start).wrapping_add(1).wrapping_sub(near) as i32;
        self.acknowledged.saturating_add_signed(ahead.into())
    }

    /// An acknowledgement that reports no packet beyond the last one.
    pub(super) fn handle_ack(&mut self, now: Time, ack: &Ack, datagram: &Datagram<'_>) {
        let (reported, service) = (self.reported(ack), service_time(ack));
        self.timer.on_heard();
        if let Some(psn) = ack.acked_psn().filter(|_| !ack.retransmitted) {
            let psn = Psn::new(psn.wrapping_sub(self.start).into()).extend(self.acknowledged);
            self.timer.on_acked(now, psn);
        }
        // Timeouts wait for the peer, too; congestion control wants the network's round trip, so the peer says how long
        // it took itself.
        let now = Time(now.0.saturating_sub(service.0)).max(self.latest);
        self.follow(now);
        self.hand_over(now, datagram);
        self.acknowledged = self.acknowledged.max(reported);
    }

    /// A NACK that leaves the context as it is.
    pub(super) fn handle_nack(&mut self, now: Time, nack: &Nack, datagram: &Datagram<'_>) {
        self.timer.on_heard();
        self.follow(now);
        match nack.code {
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
        self.latest = self.latest.max(now);
        for psn in hole..self.sent {
            let about = Refused::Packet { psn: self.start.wrapping_add(psn as u32), source, target };
            let pds = Pds::Nack(Nack { code: NackCode::TRIMMED, about, ..*nack });
            let read = uet::interpret(&pds, &Ses::None, 0, self.start, MessageId(0), Psn::new(hole));
            let Some(mut packet) = read else { continue };
            if let Header::Nack(engine) = &mut packet.header {
                // One packet is lost, and for the others there was no room at the peer: no reason for a smaller window.
                engine.reason = NackReason::NoResource;
            }
            self.endpoint.handle_packet(self.latest, &packet);
        }
    }

    fn hand_over(&mut self, now: Time, datagram: &Datagram<'_>) {
        let cumulative = Psn::new(self.acknowledged);
        let read = uet::interpret(&datagram.pds, &datagram.ses, 0, self.start, MessageId(0), cumulative);
        let Some(mut packet) = read else { return };
        if let (Header::Ack(engine), Pds::Ack(ack)) = (&mut packet.header, &datagram.pds) {
            if ack.congestion.is_none() {
                engine.sack_base = Psn::new(self.acknowledged + NO_BITMAP);
            }
            if let Cause::Probe(number) = ack.cause {
                // UET has 16 bits of the number.
                let ago = (self.probe as u16).wrapping_sub(number);
                engine.acked = Psn::new(self.probe.wrapping_sub(ago.into()).into());
            }
        }
        self.latest = self.latest.max(now);
        self.endpoint.handle_packet(self.latest, &packet);
    }

    /// Tells the engine the timeout.
    fn follow(&mut self, now: Time) {
        let timeout = self.timer.timeout();
        if timeout != self.timeout {
            self.timeout = timeout;
            self.endpoint.set_timeout(now, ONLY, timeout);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.endpoint.poll_timeout()
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        let timeouts = |endpoint: &Endpoint| endpoint.observe().stats(ONLY).timeouts;
        let before = timeouts(&self.endpoint);
        self.latest = self.latest.max(now);
        self.endpoint.handle_timeout(now);
        if timeouts(&self.endpoint) != before {
            self.timer.on_timeout(now);
            self.follow(now);
        }
    }

    /// The engine's next event.
    pub(super) fn poll_event(&mut self) -> Option<strandway_proto::Event> {
        self.endpoint.poll_event()
    }

    /// The engine's next packet.
    pub(super) fn poll_transmit(&mut self, now: Time, shared: &mut Shared) -> Option<Packet> {
        self.latest = self.latest.max(now);
        let packet = self.endpoint.poll_transmit(now, Ports::first(1))?;
        match packet.header {
            Header::Data(data) => self.on_sent(now, &packet, &data, shared),
            Header::Probe { number } => self.probe = number,
            _ => {}
        }
        Some(packet)
    }

    fn on_sent(&mut self, now: Time, packet: &Packet, data: &Data, shared: &mut Shared) {
        let (psn, again) = (data.psn.extend(self.acknowledged), packet.flags.has(Flags::RETRANSMITTED));
        shared.counters.retransmissions += u64::from(again);
        shared.counters.sent += u64::from(data.length);
        shared.counters.sent_again += if again { data.length.into() } else { 0 };
        self.sent = self.sent.max(psn + 1);
        self.timer.on_sent(now, psn, again);
    }

    /// The state of a conversation whose peer has a context's number.
    pub(super) fn conversation(&self, [source, target]: [u16; 2], mode: Mode, message: u64) -> Conversation {
        Conversation {
            source,
            target,
            mode,
            start: self.start,
            opening: false,
            acknowledged: self.acknowledged,
            received: self.received(),
            message,
        }
    }

    /// An acknowledgement of the engine's. `arrived`: when the packet came that causes it, if that is known.
    ///
    /// # Errors
    /// If a number does not fit.
    pub(super) fn acknowledgement(
        &self,
        now: Time,
        packet: &Packet,
        conversation: &Conversation,
        acks: Acks,
        arrived: Option<Time>,
    ) -> Result<Pds, WireError> {
        let (mut pds, ..) = uet::translate(packet, conversation)?;
        if let Pds::Ack(ack) = &mut pds {
            match &mut ack.congestion {
                Some(Congestion { state: State::Nscc(nscc), .. }) if acks == Acks::Selective => {
                    let took = arrived.map_or(0, |at| now.since(at).0 / SERVICE_UNIT.0);
                    nscc.service_time = took.min(u16::MAX.into()) as u16;
                }
                _ => ack.congestion = None,
            }
        }
        Ok(pds)
    }
}

/// The time from the arrival of a packet to the departure of its acknowledgement, as far as the peer tells.
fn service_time(ack: &Ack) -> Span {
    match ack.congestion {
        // The largest value means that it was longer.
        Some(Congestion { state: State::Nscc(Nscc { service_time, .. }), .. }) if service_time != u16::MAX => {
            SERVICE_UNIT * u64::from(service_time)
        }
        _ => Span::ZERO,
    }
}

//! The scheme between two endpoints without sockets: this file provides the time and the wire.

use crate::courier::{Courier, End};
use crate::{BYTES, LOSS, ROUND_TRIP, profile};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use strandway_proto::partial::Progress;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    Bytes, ConnectionId, ControlMessage, Endpoint, Environment, Event, HostId, Message, MessageId, OpenConnection,
    Ports, Rate, Span, Time,
};

const ONLY: ConnectionId = ConnectionId(0);

/// An endpoint, and the present time.
struct Here<'a>(&'a mut Endpoint, Time);

impl End for Here<'_> {
    fn expect(&mut self) -> u64 {
        self.0.expect(self.1, ONLY, BYTES as u64).expect("a slot")
    }
    fn begin(&mut self) -> Option<u64> {
        let message = Message { id: MessageId(42), bytes: BYTES as u64 };
        let stream = self.0.begin_stream(self.1, ONLY, message).ok()?;
        self.0.push_stream(self.1, ONLY, stream, 0..u32::MAX, false);
        Some(stream)
    }
    fn again(&mut self, stream: u64, chunks: Range<u32>) {
        self.0.push_stream(self.1, ONLY, stream, chunks, true);
    }
    fn end(&mut self, stream: u64) {
        self.0.end_stream(self.1, ONLY, stream);
    }
    fn progress(&self, receive: u64) -> &Progress {
        self.0.progress(ONLY, receive).expect("it is open")
    }
    fn send(&mut self, control: ControlMessage) {
        self.0.send_control(self.1, ONLY, control);
    }
}

fn endpoint(host: u32, rate: Rate) -> Endpoint {
    let profile = Arc::new(profile());
    let environment = Environment {
        rate,
        ports: 1,
        base_rtt: ROUND_TRIP,
        packet: profile.packet_bytes(),
        trimming: false,
        uplinks: [1, 0],
        paths_in_order: 0,
        queue: Bytes(1 << 20),
        packet_life: Span::from_ms(100),
    };
    let random = Random::new(1, StreamKind::Connection, u64::from(host));
    let (peer, peer_connection) = (HostId(1 - host), Some(ONLY));
    let mut endpoint = Endpoint::new(HostId(host));
    endpoint.open(Time::ZERO, OpenConnection { profile, environment, peer, peer_connection, random });
    endpoint
}

/// One message over a wire that loses packets.
pub fn run() {
    let rate = Rate::from_gbps(10);
    let mut ends = [0, 1].map(|host| endpoint(host, rate));
    let mut sender = Courier::sender(ROUND_TRIP);
    let mut receiver = Courier::receiver(&mut Here(&mut ends[1], Time::ZERO), ROUND_TRIP);
    let mut random = Random::new(7, StreamKind::Fault, 0);
    let (mut now, mut air, mut count, mut lost) = (Time::ZERO, BTreeMap::new(), 0u64, 0);
    while !sender.done && now < Time::ZERO + Span::from_ms(2_000) {
        sender.send(&mut Here(&mut ends[0], now));
        for (end, endpoint) in ends.iter_mut().enumerate() {
            let mut at = now;
            while let Some(packet) = endpoint.poll_transmit(now, Ports::first(1)) {
                at = at + rate.time_for(packet.bytes());
                count += 1;
                if random.chance(LOSS) {
                    lost += 1;
                } else {
                    air.insert((at + Span(ROUND_TRIP.0 / 2), count), (1 - end, packet));
                }
            }
        }
        // The next event: a packet arrives, a timer ends, or the receiver looks.
        let timers = ends.iter().filter_map(Endpoint::poll_timeout).min().unwrap_or(Time::NEVER);
        let arrival = air.first_key_value().map_or(Time::NEVER, |(&(at, _), _)| at);
        now = now.max(arrival.min(timers).min(receiver.look_at));
        ends.iter_mut().for_each(|endpoint| endpoint.handle_timeout(now));
        while let Some(entry) = air.first_entry().filter(|entry| entry.key().0 <= now) {
            let (end, packet) = entry.remove();
            ends[end].handle_packet(now, &packet);
        }
        while let Some(event) = ends[0].poll_event() {
            if let Event::Control { control, .. } = event {
                sender.handle_control(&mut Here(&mut ends[0], now), control);
            }
        }
        if receiver.look_at <= now {
            receiver.handle_timeout(&mut Here(&mut ends[1], now), now);
        }
    }
    let receive = receiver.number.expect("it was posted");
    let progress = ends[1].complete(now, ONLY, receive).expect("it is open");
    assert!(sender.done && progress.is_whole(), "the message did not get through");
    println!("without sockets: {BYTES} bytes are there after {now}; {lost} of {count} packets were lost");
}

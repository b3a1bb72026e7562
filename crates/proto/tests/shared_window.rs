//! Connections to one destination share one window. Together they never have more bytes in flight than a single
//! connection would have. Every connection gets its turn to send.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandway_proto::congestion::{CongestionConfig, NsccConfig};
use strandway_proto::packet::{Flags, Header};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    Bytes, ConnectionId, Endpoint, Environment, Event, HostId, Message, MessageId, OpenConnection, Packet, Ports,
    Profile, Rate, Span, Time,
};

const RTT: Span = Span::from_us(10);
const PACKET: u64 = 4160;
const PORTS: Ports = Ports { data: 1, control: 1 };

/// Two hosts with `connections` connections between them, which share a window or have one each.
fn hosts(connections: u32, gbps: u64, shared: bool) -> [Endpoint; 2] {
    let congestion = CongestionConfig::Nscc(NsccConfig { per_destination: shared, ..NsccConfig::default() });
    let profile = Arc::new(Profile { congestion, ..Profile::preset("mrc").expect("a preset") });
    let environment = Environment {
        rate: Rate::from_gbps(gbps),
        ports: 1,
        base_rtt: RTT,
        packet: Bytes(PACKET),
        trimming: true,
        uplinks: [0; 2],
        paths_in_order: 0,
        queue: Bytes(1_000_000),
        packet_life: Span::from_ms(10),
    };
    [0, 1].map(|host| {
        let mut endpoint = Endpoint::new(HostId(host));
        for c in 0..connections {
            endpoint.open(
                Time::ZERO,
                OpenConnection {
                    profile: Arc::clone(&profile),
                    environment,
                    peer: HostId(1 - host),
                    peer_connection: Some(ConnectionId(c)),
                    random: Random::new(7, StreamKind::Connection, u64::from(host + 2 * c)),
                },
            );
        }
        endpoint
    })
}

/// The result of a run.
struct Outcome {
    /// When each message was wholly acknowledged.
    finished: BTreeMap<u32, Time>,
    /// The most that was ever in flight, wire bytes.
    most: u64,
}

/// Sends messages over one link at the NIC's rate and a wire of half a round trip each way. `fate`: the numbers of
/// packets, out of 256, that are lost, trimmed and marked.
fn run(connections: u32, gbps: u64, sizes: &[u64], fate: [u8; 3], seed: u64, shared: bool) -> Outcome {
    let [mut a, mut b] = hosts(connections, gbps, shared);
    let mut random = Random::new(seed, StreamKind::Workload, 0);
    let rate = Rate::from_gbps(gbps);
    let mut wire: BTreeMap<(Time, u64), (bool, Packet)> = BTreeMap::new();
    let mut outcome = Outcome { finished: BTreeMap::new(), most: 0 };
    let (mut now, mut count) = (Time::ZERO, 0);
    for (i, &bytes) in sizes.iter().enumerate() {
        a.post(now, ConnectionId(i as u32 % connections), Message { id: MessageId(i as u32), bytes });
    }
    let mut free = [now; 2];
    while outcome.finished.len() < sizes.len() {
        for (side, endpoint) in [&mut a, &mut b].into_iter().enumerate() {
            while free[side] <= now
                && let Some(mut packet) = endpoint.poll_transmit(now, PORTS)
            {
                free[side] = now + rate.time_for(Bytes(u64::from(packet.size)));
                let [lost, trimmed, marked] = fate.map(u32::from);
                let luck = random.below(256);
                let is_data = matches!(packet.header, Header::Data(_));
                if is_data {
                    let in_flight: u64 =
                        (0..connections).map(|c| endpoint.observe().in_flight(ConnectionId(c)).0).sum();
                    let window =
                        (0..connections).map(|c| endpoint.observe().window(ConnectionId(c)).0).max().unwrap_or(0);
                    assert!(
                        !shared || in_flight <= window.max(PACKET),
                        "{in_flight} bytes in flight, the window is {window}"
                    );
                    outcome.most = outcome.most.max(in_flight);
                    if luck < trimmed {
                        packet.size = 64;
                        packet.flags = packet.flags.with(Flags::TRIMMED);
                    } else if luck < trimmed + marked {
                        packet.flags = packet.flags.with(Flags::CE);
                    }
                }
                if luck < 256 - lost {
                    wire.insert((free[side] + Span(RTT.0 / 2), count), (side == 0, packet));
                    count += 1;
                }
            }
        }
        let timers = [&a, &b].map(|e| e.poll_timeout().unwrap_or(Time::NEVER));
        let idle = [&a, &b].into_iter().zip(free).filter(|(e, _)| e.wants_transmit()).map(|(_, at)| at);
        let arrival = wire.first_key_value().map_or(Time::NEVER, |(k, _)| k.0);
        let next = idle.filter(|&at| at > now).chain(timers).chain([arrival]).min().unwrap_or(Time::NEVER);
        assert!(
            next < Time(1_000_000_000_000),
            "stalled at {now:?} with {} of {}",
            outcome.finished.len(),
            sizes.len()
        );
        now = now.max(next);
        while let Some(entry) = wire.first_entry().filter(|e| e.key().0 <= now) {
            let (to_b, packet) = entry.remove();
            if to_b { &mut b } else { &mut a }.handle_packet(now, &packet);
        }
        a.handle_timeout(now);
        b.handle_timeout(now);
        while b.poll_event().is_some() {}
        while let Some(event) = a.poll_event() {
            if let Event::Sent { message, .. } = event {
                outcome.finished.insert(message.0, now);
            }
        }
    }
    outcome
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn together_they_never_exceed_the_window_and_all_finish(
        connections in 1u32..20,
        gbps in prop::sample::select(vec![10u64, 100, 800]),
        sizes in prop::collection::vec(1u64..300_000, 1..40),
        fate in (0u8..20, 0u8..30, 0u8..120),
        seed in 0u64..1000,
    ) {
        let outcome = run(connections, gbps, &sizes, [fate.0, fate.1, fate.2], seed, true);
        prop_assert_eq!(outcome.finished.len(), sizes.len());
    }
}

#[test]
fn sixteen_connections_have_one_window_between_them_and_take_turns() {
    let one = run(1, 100, &[16_000_000], [0; 3], 1, true);
    let sixteen = run(16, 100, &[1_000_000; 16], [0; 3], 1, true);
    assert!(sixteen.most <= one.most, "{} and {} bytes in flight", sixteen.most, one.most);
    let last = |outcome: &Outcome| outcome.finished.values().max().copied().unwrap_or_default();
    let (first, end) = (sixteen.finished.values().min().copied().unwrap_or_default(), last(&sixteen));
    assert!(end.0 <= last(&one).0 * 101 / 100, "{end:?} against {:?}", last(&one));
    assert!(first.0 >= end.0 * 95 / 100, "the first was done at {first:?}, the last at {end:?}");
}

#[test]
fn with_a_window_each_sixteen_connections_take_sixteen_times_as_much() {
    assert_eq!(first_flight(16, true), first_flight(1, true));
    assert_eq!(first_flight(16, false), 16 * first_flight(1, false));
}

/// The most in flight before anything is heard.
fn first_flight(connections: u32, shared: bool) -> u64 {
    let [mut a, _] = hosts(connections, 10, shared);
    for c in 0..connections {
        a.post(Time::ZERO, ConnectionId(c), Message { id: MessageId(c), bytes: 1_000_000 });
    }
    while a.poll_transmit(Time::ZERO, PORTS).is_some() {}
    (0..connections).map(|c| a.observe().in_flight(ConnectionId(c)).0).sum()
}

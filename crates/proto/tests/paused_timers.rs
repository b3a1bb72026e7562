//! Retransmission timers do not run while PFC pauses the port of their connection; while it is down they do.

use std::sync::Arc;
use strandway_proto::packet::{ConnectionId, Header, Psn};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Bytes, Rate, Span, Time};
use strandway_proto::{Blocked, Endpoint, Environment, HostId, Message, MessageId, OpenConnection, Ports, Profile};

const FREE: Ports = Ports { data: 1, control: 1 };

/// A sender that has sent one message of a packet at 0.
fn sent(name: &str) -> Endpoint {
    let profile = Arc::new(Profile::preset(name).expect("a preset"));
    let environment = Environment {
        rate: Rate::from_gbps(100),
        ports: 1,
        base_rtt: Span::from_us(5),
        packet: profile.packet_bytes(),
        trimming: profile.switch.trimming,
        uplinks: [4, 0],
        paths_in_order: 0,
        queue: Bytes(100_000),
        packet_life: Span::from_ms(10),
    };
    let random = Random::new(1, StreamKind::Connection, 0);
    let mut endpoint = Endpoint::new(HostId(0));
    let peer_connection = Some(ConnectionId(0));
    let open = OpenConnection { profile, environment, peer: HostId(1), peer_connection, random };
    let connection = endpoint.open(Time::ZERO, open);
    endpoint.post(Time::ZERO, connection, Message { id: MessageId(1), bytes: 1000 });
    assert!(endpoint.poll_transmit(Time::ZERO, FREE).is_some());
    endpoint
}

/// When the packet is sent again.
fn again(endpoint: &mut Endpoint) -> Time {
    for _ in 0..1000 {
        let now = endpoint.poll_timeout().expect("a timer runs");
        endpoint.handle_timeout(now);
        if let Some(packet) = endpoint.poll_transmit(now, FREE)
            && matches!(packet.header, Header::Data(data) if data.psn == Psn::new(0))
        {
            return now;
        }
    }
    panic!("it is never sent again");
}

#[test]
fn a_pause_delays_the_timeout_by_its_length() {
    let us = |us: u64| Time::ZERO + Span::from_us(us);
    for name in ["rocev2", "rocev2_sr"] {
        let timeout = again(&mut sent(name)).since(Time::ZERO);
        // Two pauses of 30 us and 20 us, the second one around the first deadline.
        let pauses = |blocked: Blocked| {
            let mut endpoint = sent(name);
            endpoint.handle_blocked(us(10), 0, Some(blocked));
            endpoint.handle_blocked(us(40), 0, None);
            endpoint.handle_blocked(Time::ZERO + (timeout - Span::from_us(5)), 0, Some(blocked));
            let mut expired = Time::ZERO;
            while expired < Time::ZERO + timeout {
                expired = endpoint.poll_timeout().expect("a timer runs");
                endpoint.handle_timeout(expired);
            }
            let lost = endpoint.wants_transmit();
            endpoint.handle_blocked(Time::ZERO + timeout + Span::from_us(15), 0, None);
            (lost, again(&mut endpoint))
        };
        assert_eq!(pauses(Blocked::Paused), (false, Time::ZERO + timeout + Span::from_us(50)), "{name}");
        assert!(pauses(Blocked::Down).0, "{name}: the timer of a port that is down expires");
    }
}

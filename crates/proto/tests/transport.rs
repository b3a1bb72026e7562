//! Parameters of the transport that hosts with kernel sockets use.

use std::sync::Arc;
use strandway_proto::packet::{Flags, Header};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    Bytes, ConnectionId, Endpoint, Environment, HostId, Message, MessageId, OpenConnection, Packet, PathId, Ports,
    Profile, Rate, Span, Time,
};

const ONLY: ConnectionId = ConnectionId(0);

/// An endpoint of this many ports with one connection, and nothing to send yet.
fn opened(name: &str, ports: u8, trimming: bool, change: impl FnOnce(&mut Profile)) -> Endpoint {
    let mut profile = Profile::preset(name).expect("a preset");
    change(&mut profile);
    let environment = Environment {
        rate: Rate::from_gbps(100),
        ports,
        base_rtt: Span::from_us(100),
        packet: profile.packet_bytes(),
        trimming,
        uplinks: [0; 2],
        paths_in_order: 0,
        queue: Bytes(1 << 20),
        packet_life: Span::from_ms(10),
    };
    let mut endpoint = Endpoint::new(HostId(0));
    let random = Random::new(1, StreamKind::Connection, 0);
    let (profile, peer) = (Arc::new(profile), HostId(1));
    endpoint.open(Time::ZERO, OpenConnection { profile, environment, peer, peer_connection: Some(ONLY), random });
    endpoint
}

fn endpoint(name: &str, change: impl FnOnce(&mut Profile)) -> Endpoint {
    let mut endpoint = opened(name, 2, true, change);
    endpoint.post(Time::ZERO, ONLY, Message { id: MessageId(0), bytes: 1 << 20 });
    endpoint
}

fn paths(endpoint: &mut Endpoint, free: u32, count: usize) -> Vec<PathId> {
    let ports = Ports { data: free, control: free };
    (0..count).map(|_| endpoint.poll_transmit(Time::ZERO, ports).expect("the window is open").path).collect()
}

/// How many packets in a row have one path, runs at the end left out.
fn runs(paths: &[PathId]) -> Vec<usize> {
    let mut runs: Vec<usize> = paths.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
    runs.pop();
    runs
}

#[test]
fn a_burst_goes_one_way() {
    let mut usual = endpoint("uec", |_| {});
    assert!(runs(&paths(&mut usual, 0b11, 64)).iter().all(|&run| run == 1), "one packet each, unless told otherwise");
    let mut burst = endpoint("uec", |profile| profile.transport.burst = 4);
    let taken = paths(&mut burst, 0b11, 64);
    assert!(runs(&taken).iter().all(|&run| run == 4), "{taken:?}");
}

#[test]
fn a_burst_ends_when_its_port_is_busy() {
    let mut burst = endpoint("uec", |profile| profile.transport.burst = 100);
    let first = paths(&mut burst, 0b11, 3);
    let other = 0b11 & !(1 << first[0].port());
    let rest = paths(&mut burst, other, 3);
    assert!(first.iter().all(|path| *path == first[0]));
    assert!(rest.iter().all(|path| *path == rest[0] && path.port() != first[0].port()), "{first:?} {rest:?}");
}

#[test]
fn a_late_host_catches_up() {
    // DCQCN's first notification halves the rate.
    let packet = Rate::from_gbps(50).time_for(Profile::preset("rocev2").expect("a preset").packet_bytes());
    let leave = |slack: Span| {
        let mut endpoint = endpoint("rocev2", |profile| profile.transport.pace_slack = slack);
        let ports = Ports { data: 0b11, control: 0b11 };
        let first = endpoint.poll_transmit(Time::ZERO, ports).expect("the line rate does not pace");
        endpoint.handle_packet(Time::ZERO, &Packet { header: Header::Cnp, ..first });
        // Asked after ten packets' time only: how many leave at once?
        let now = Time::ZERO + packet * 10;
        std::iter::from_fn(|| endpoint.poll_transmit(now, ports)).count() as u64
    };
    assert_eq!(leave(Span::ZERO), 1, "without slack, the pace starts anew");
    assert_eq!(leave(packet * 5), 6);
}

#[test]
fn no_round_trip_counts_as_shorter_than_the_least() {
    let window = |least: Span| {
        let mut sender = endpoint("uec", |profile| profile.transport.rtt_min = least);
        let mut receiver = endpoint("uec", |_| {});
        let ports = Ports { data: 1, control: 1 };
        let mut now = Time::ZERO;
        for _ in 0..50 {
            now = now + Span::from_us(1);
            let packet = sender.poll_transmit(now, ports).expect("the window is open");
            let last = packet.flags.with(Flags::ACK_REQUEST);
            now = now + Span::from_us(4);
            receiver.handle_packet(now, &Packet { flags: last, ..packet });
            let ack = std::iter::from_fn(|| receiver.poll_transmit(now, Ports { data: 0, control: 1 }))
                .find(|p| matches!(p.header, Header::Ack(_)))
                .expect("an acknowledgement was asked for");
            sender.handle_packet(now, &ack);
        }
        sender.observe().window(ONLY)
    };
    let (short, floored) = (window(Span::ZERO), window(Span::from_us(100)));
    assert!(floored.0 > 10 * short.0, "the window is for the round trip that is believed: {short:?}, {floored:?}");
}

/// When the world offers only one port, the losses that were counted against that port's paths must not lock the port
/// for ever.
#[test]
fn the_only_port_that_is_offered_is_used_again_once_it_works() {
    let mut sender = endpoint("mrc", |_| {});
    let mut receiver = endpoint("mrc", |_| {});
    let ports = Ports { data: 0b10, control: 0b10 };
    let mut now = Time::ZERO;
    let mut deliver = |sender: &mut Endpoint, receiver: &mut Endpoint, works: bool, for_: Span| {
        let until = now + for_;
        while now < until {
            now = now + Span::from_us(10);
            for endpoint in [&mut *sender, &mut *receiver] {
                if endpoint.poll_timeout().is_some_and(|at| at <= now) {
                    endpoint.handle_timeout(now);
                }
            }
            for _ in 0..8 {
                if let Some(packet) = sender.poll_transmit(now, ports).filter(|_| works) {
                    receiver.handle_packet(now, &packet);
                }
                // The receiver's own message does not matter here.
                let answer = receiver.poll_transmit(now, Ports { data: 0, control: 0b10 });
                if let Some(packet) = answer.filter(|_| works) {
                    sender.handle_packet(now, &packet);
                }
            }
        }
    };
    deliver(&mut sender, &mut receiver, false, Span::from_ms(200));
    assert_eq!(sender.observe().planes(ONLY)[1].good, 0, "every path of that port is assumed bad");
    assert!(sender.observe().planes(ONLY)[0].good > 0, "and nothing is known against the other, which is not offered");
    deliver(&mut sender, &mut receiver, true, Span::from_ms(400));
    assert_eq!(receiver.observe().stats(ONLY).delivered_bytes, 1 << 20, "{:?}", sender.observe().planes(ONLY));
}

/// Two of three planes are dead, and there are too few paths to take any of them out. The turns among the planes must
/// not fall into step with the retries: the last packet would then take a dead plane for ever.
#[test]
fn a_packet_gets_through_by_the_one_plane_that_works() {
    for bytes in [1_000, 4_096, 5_000, 9_000, 20_000, 50_000] {
        let build = || {
            opened("mrc", 3, false, |profile| {
                if let strandway_proto::path::PathConfig::Mrc(config) = &mut profile.path {
                    config.active_min = 1.0;
                }
            })
        };
        let (mut sender, mut receiver) = (build(), build());
        sender.post(Time::ZERO, ONLY, Message { id: MessageId(0), bytes });
        let all = Ports { data: 0b111, control: 0b111 };
        let mut now = Time::ZERO;
        while now < Time::ZERO + Span::from_ms(3_000) {
            now = now + Span::from_us(20);
            for endpoint in [&mut sender, &mut receiver] {
                if endpoint.poll_timeout().is_some_and(|at| at <= now) {
                    endpoint.handle_timeout(now);
                }
            }
            while let Some(packet) = sender.poll_transmit(now, all) {
                if packet.path.port() == 1 {
                    receiver.handle_packet(now, &packet);
                }
            }
            while let Some(packet) = receiver.poll_transmit(now, all) {
                if packet.path.port() == 1 {
                    sender.handle_packet(now, &packet);
                }
            }
        }
        assert_eq!(receiver.observe().stats(ONLY).delivered_bytes, bytes, "{:?}", sender.observe().stats(ONLY));
    }
}

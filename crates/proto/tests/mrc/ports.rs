//! Ports that go down and come back, ours and the peer's.

use super::pair_support::{Outage, Outcome, Post, RTT, Sent, check};
use super::{lone, planes};
use std::collections::BTreeSet;
use strandway_proto::packet::{Data, Flags, Header, Offset, Operation, Psn, Wait};
use strandway_proto::path::{MrcConfig, PathConfig};
use strandway_proto::{ConnectionId, HostId, MessageId, Packet, PathId, Ports, Profile, Span, Time};

#[test]
fn invented_port_states_of_peers_do_not_hold_up_acknowledgements() {
    let mut endpoint = lone(Profile::preset("mrc").expect("a preset"), 2);
    for psn in 0..200u32 {
        let data = Data {
            psn: Psn::new(u64::from(psn)),
            message: MessageId(0),
            offset: Offset::new(0),
            length: 4096,
            target: 0,
            wait: Wait::default(),
        };
        endpoint.handle_packet(
            Time::ZERO,
            &Packet {
                source: HostId(1),
                destination: HostId(0),
                connection: ConnectionId(0),
                path: PathId::new((psn * 7) as u8, psn),
                size: 4160,
                flags: Flags::CE,
                header: Header::Data(data),
            },
        );
    }
    let sent = std::iter::from_fn(|| endpoint.poll_transmit(Time::ZERO, Ports::first(2)));
    assert!(sent.filter(|p| matches!(p.header, Header::Ack(_))).count() >= 200);
}

#[test]
fn a_port_that_goes_down_is_left_at_once_by_both_sides_and_used_again_after_it_has_stayed_up() {
    let mut world = planes().packets(60_000);
    let (from, until) = (Time(100_000_000), Time(1_500_000_000));
    world.outages = vec![Outage { side: 1, port: 2, from, until }];
    world.posts.push(Post { side: 1, connection: 0, bytes: 100_000_000, at: Time::ZERO });
    let outcome = check(&world, "", "delivered 84415");
    let hold = MrcConfig::default().port_hold;
    let by_port = |side: usize| outcome.sent.iter().filter(move |s| s.side == side && s.packet.path.port() == 2);
    // The side with the port stops at once, the other side when the port status arrives: half a round trip and a packet
    // later.
    let down = |at: Time| at >= from && at < until + hold;
    let wrong: Vec<_> = by_port(1).filter(|s| down(s.at)).collect();
    assert!(wrong.is_empty(), "{} {:?}", wrong.len(), &wrong[..3]);
    let late: Vec<Time> = by_port(0).filter(|s| down(s.at) && !s.packet.is_control()).map(|s| s.at).collect();
    assert!(late.iter().all(|&at| at < from + RTT), "{:?}", late.last());
    // Three copies over the planes that are up.
    let told = |at: Time| {
        let status = |s: &&Sent| {
            let told = matches!(s.packet.header, Header::Operation { operation: Operation::PortStatus(_), .. });
            told && s.side == 1 && s.at >= at && s.at < at + RTT
        };
        outcome.sent.iter().filter(status).map(|s| s.packet.path.port()).collect::<BTreeSet<u8>>()
    };
    assert_eq!(told(from), BTreeSet::from([0, 1, 3]));
    // Then it is probed, a round trip after each answer, and used after the third answer.
    let probes: Vec<Time> = by_port(1).filter(|s| s.at >= until + hold && is_probe(s)).map(|s| s.at).take(3).collect();
    let again = probes[2] + RTT.scaled(0.9);
    assert!(by_port(1).filter(|s| s.at < again).all(|s| s.at < from || is_probe(s)));
    assert!(again < until + hold + RTT * 6 && probes.windows(2).all(|w| w[1] - w[0] > RTT), "{probes:?}");
    assert_eq!(told(again), BTreeSet::from([0, 1, 2]));
    for side in [0, 1] {
        assert!(by_port(side).any(|s| s.at > again && s.data().is_some()), "it is used again");
    }
    // The packets lost with the port were found without a timeout, and no path was assumed bad for long.
    assert!(outcome.stats.timeouts <= 2, "{:?}", outcome.stats);
}

#[test]
fn a_flapping_port_is_not_used_before_it_holds() {
    let mut world = planes().packets(30_000);
    let outage = |i: u64| {
        let from = Time(100_000_000 + i * 300_000_000);
        Outage { side: 0, port: 1, from, until: from + Span::from_us(50) }
    };
    world.outages = (0..4).map(outage).collect();
    let outcome = check(&world, "", "delivered 30000");
    let last = outage(3).until + MrcConfig::default().port_hold;
    let used = |from: Time, until: Time| {
        outcome.data().filter(|(s, _)| s.packet.path.port() == 1 && s.at >= from && s.at < until).count()
    };
    assert_eq!(used(outage(0).from, last), 0);
    assert!(used(last, Time::NEVER) > 0 || outcome.finished < last + RTT);
}

/// A probe from NIC to NIC.
fn is_probe(sent: &Sent) -> bool {
    matches!(sent.packet.header, Header::Operation { operation: Operation::PathProbe, .. })
}

/// When data left by this port at this time or later, side by side.
fn used(outcome: &Outcome, port: u8, from: Time) -> [Vec<Time>; 2] {
    let by =
        |side| move |s: &&Sent| s.side == side && s.at >= from && s.packet.path.port() == port && s.data().is_some();
    [0, 1].map(|side| outcome.sent.iter().filter(by(side)).map(|s| s.at).collect())
}

#[test]
fn a_port_that_comes_back_to_a_plane_that_is_dead_is_not_used_before_the_plane_answers() {
    const FROM: Time = Time(100_000_000);
    const ALIVE: Time = Time(3_000_000_000);
    let mut world = planes().packets(60_000);
    world.outages = vec![Outage { side: 0, port: 1, from: FROM, until: FROM + Span::from_us(50) }];
    world.dead = |at, packet| packet.path.port() == 1 && (FROM..ALIVE).contains(&at);
    let outcome = check(&world, "", "delivered 60000");
    let [data, _] = used(&outcome, 1, FROM);
    let probes: Vec<Time> =
        outcome.sent.iter().filter(|s| s.side == 0 && s.packet.path.port() == 1 && is_probe(s)).map(|s| s.at).collect();
    assert!(data[0] >= ALIVE, "{} is too early", data[0]);
    // The probes become rarer, so that it comes back after at most twice the time.
    let dead = probes.iter().filter(|at| (FROM..ALIVE).contains(at)).count();
    assert!((5..10).contains(&dead), "{probes:?}");
    assert!(data[0] < ALIVE + (ALIVE - FROM), "{}", data[0]);
    // Only the packets in flight were lost with it.
    let trusting = world.with(|profile| {
        profile.path = PathConfig::Mrc(MrcConfig { port_probe: false, ..MrcConfig::default() });
    });
    let lost = check(&trusting, "", "delivered 60000").stats.retransmitted;
    assert!(lost >= outcome.stats.retransmitted * 2, "{lost} and {}", outcome.stats.retransmitted);
}

#[test]
fn two_ports_of_one_plane_that_come_back_one_after_the_other_do_not_wait_for_each_other() {
    let from = Time(100_000_000);
    let late = Time(2_000_000_000);
    // A short hold, or the first one's next probe would come within it.
    let port_hold = Span::from_us(50);
    let mut world = planes().packets(60_000).with(|profile| {
        profile.path = PathConfig::Mrc(MrcConfig { port_hold, ..MrcConfig::default() });
    });
    world.posts.push(Post { side: 1, connection: 0, bytes: 240_000_000, at: Time::ZERO });
    world.outages = vec![
        Outage { side: 0, port: 1, from, until: from + Span::from_us(50) },
        Outage { side: 1, port: 1, from, until: late },
    ];
    let outcome = check(&world, "", "");
    // The later probe is answered by a NIC that does not use that plane yet. Its port status is new to the other side.
    let ready = late + port_hold;
    for data in used(&outcome, 1, from) {
        assert!(data[0] > ready && data[0] < ready + RTT * 16, "{}", data[0]);
    }
}

#[test]
fn two_nics_whose_only_ports_come_back_together_go_on() {
    let mut world = planes().ports(1).packets(6000);
    let outage = |side| Outage { side, port: 0, from: Time(100_000_000), until: Time(200_000_000) };
    world.outages = vec![outage(0), outage(1)];
    let outcome = check(&world, "", "delivered 6000");
    assert!(used(&outcome, 0, Time(200_000_000))[0].len() > 3000);
}

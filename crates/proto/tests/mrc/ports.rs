//! What is done about ports that go down and come back, ours and the peer's.

use super::pair_support::{Outage, Post, RTT, Sent, check};
use super::{lone, planes};
use std::collections::BTreeSet;
use strandway_proto::packet::{Data, Flags, Header, Offset, Operation, Psn};
use strandway_proto::path::MrcConfig;
use strandway_proto::{ConnectionId, HostId, MessageId, Packet, PathId, Ports, Profile, Span, Time};

#[test]
fn what_peers_make_up_about_ports_does_not_hold_up_acknowledgements() {
    let mut endpoint = lone(Profile::preset("mrc").expect("a preset"), 2);
    for psn in 0..200u32 {
        let data = Data { psn: Psn::new(u64::from(psn)), message: MessageId(0), offset: Offset::new(0), length: 4096 };
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
    // The side whose port it is stops at once, the other one when the news comes: half a round trip and a packet later.
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
    assert_eq!(told(until + hold), BTreeSet::from([0, 1, 2]));
    assert!(by_port(0).any(|s| s.at > until + hold && !s.packet.is_control()), "it is used again");
    assert!(by_port(1).any(|s| s.at > until + hold && !s.packet.is_control()), "it is used again");
    // What was lost with the port was found without a timeout, and no path was blamed for long.
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

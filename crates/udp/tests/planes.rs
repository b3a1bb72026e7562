//! Several planes: one connection uses all of them, and loses nothing when one falls silent.

use super::support::{self, PATIENCE, Pair, config, over_ipv4, pattern};
use std::time::{Duration, Instant};
use strandway_proto::Span;
use strandway_udp::impair::Impairment;
use strandway_udp::{Completion, Config, Reason, Routes, SessionCounters, Timeouts};

/// Writes rounds of `bytes` until `enough` returns true; each round is checked byte by byte.
fn write_rounds(pair: &mut Pair, bytes: usize, mut enough: impl FnMut(&mut Pair, u32) -> bool) -> u32 {
    let (inbox, remote) = pair.exposed(bytes);
    let mut round = 0;
    loop {
        let source = pattern(u64::from(round) + 100, bytes);
        let outbox = pair.client.register(source.clone());
        pair.client.write(pair.ends[0], outbox, 0..bytes, remote, 0, Some(round)).expect("posted");
        let Completion::Written { immediate, bytes: written, .. } = pair.next(1) else { panic!("only writes come") };
        assert_eq!((immediate, written), (round, bytes as u64), "each round is told of once, in order");
        assert!(pair.server.memory(inbox).expect("registered") == source, "round {round}");
        assert!(matches!(pair.next(0), Completion::Sent { .. }));
        pair.client.deregister(outbox).expect("free again");
        round += 1;
        if enough(pair, round) {
            return round;
        }
    }
}

#[test]
fn one_connection_uses_every_plane() {
    for planes in [2, 4] {
        // Nothing is lost here; on a busy machine a short timeout would count late packets as lost and blame the path.
        let config = Config { retransmit_min: Span::from_ms(500), ..config("uec", planes) };
        let mut pair = Pair::new(config, None, 0);
        write_rounds(&mut pair, 2_000_000, |_, round| round == 2);
        let client = pair.client.observe().connection_counters(pair.ends[0]).expect("open");
        let sent = &client.sent_bytes;
        let received = pair.server.observe().connection_counters(pair.ends[1]).expect("open").received_bytes;
        assert_eq!(received.iter().sum::<u64>(), 4_000_000, "every byte counts once");
        for (plane, (&sent, &received)) in sent.iter().zip(&received).enumerate() {
            let fair = 4_000_000 / planes as u64;
            assert!(
                sent > fair / 2 && received > fair / 2,
                "plane {plane} of {planes}: {sent}, {received} of {fair}; {client:?} {:?} {:?}",
                pair.client.observe().plane_counters(),
                pair.server.observe().connection_counters(pair.ends[1])
            );
        }
    }
}

#[test]
fn one_connection_uses_every_plane_of_ipv4() {
    over_ipv4(one_connection_uses_every_plane);
}

#[test]
fn nodes_that_send_from_several_ports_meet() {
    let config = Config { routes: Routes::SourcePorts(8), ..config("uec", 1) };
    let mut pair = Pair::new(config, None, 0);
    write_rounds(&mut pair, 500_000, |_, round| round == 4);
}

#[test]
fn nodes_that_send_from_several_ports_meet_over_ipv4() {
    over_ipv4(nodes_that_send_from_several_ports_meet);
}

#[test]
fn a_plane_that_goes_silent_and_comes_back_costs_no_byte() {
    for profile in ["uec", "strack_fast", "mrc"] {
        let mut pair = Pair::new(config(profile, 3), Some(Impairment::default()), 7);
        write_rounds(&mut pair, 300_000, |_, round| round == 3);
        pair.wires[1].silence(true);
        let cut = Instant::now();
        write_rounds(&mut pair, 300_000, |pair, _| {
            let now = pair.client.observe().connection_counters(pair.ends[0]).expect("open");
            assert!(cut.elapsed() < PATIENCE, "the silence is found out: {:?} {:?}", now.up, now.active_paths);
            // Engines that keep a state of every path obey it, too: they have good paths left on this plane.
            now.up == [true, false, true]
        });
        // From here on the dead plane carries nothing, so no packet is sent again because of it.
        let before = pair.client.observe().connection_counters(pair.ends[0]).expect("open");
        let is_so = |now: &SessionCounters| now.up == [true, false, true] && now.silences == before.silences;
        write_rounds(&mut pair, 300_000, |pair, round| {
            let now = pair.client.observe().connection_counters(pair.ends[0]).expect("open");
            assert!(cut.elapsed() < PATIENCE, "the other planes are used: {:?}", now.sent_bytes);
            let used = [0, 2].iter().all(|&plane| now.sent_bytes[plane] > before.sent_bytes[plane]);
            round >= 3 && (used || !is_so(&now))
        });
        let after = pair.client.observe().connection_counters(pair.ends[0]).expect("open");
        if is_so(&after) {
            assert_eq!(after.sent_bytes[1], before.sent_bytes[1], "{profile}");
        }
        pair.wires[1].silence(false);
        let healed = Instant::now();
        write_rounds(&mut pair, 300_000, |pair, _| {
            let now = pair.client.observe().connection_counters(pair.ends[0]).expect("open");
            assert!(healed.elapsed() < PATIENCE, "the plane is taken back: {:?}", now.up);
            now.up == [true; 3] && now.sent_bytes[1] > after.sent_bytes[1]
        });
    }
}

#[test]
fn a_plane_of_ipv4_that_goes_silent_and_comes_back_costs_no_byte() {
    over_ipv4(a_plane_that_goes_silent_and_comes_back_costs_no_byte);
}

#[test]
fn small_messages_go_on_by_whichever_plane_is_left() {
    for left in 0..3 {
        let mut pair = Pair::new(config("uec", 3), Some(Impairment::default()), 13);
        write_rounds(&mut pair, 64, |_, round| round == 3);
        (0..3).filter(|&plane| plane != left).for_each(|plane| pair.wires[plane].silence(true));
        let cut = Instant::now();
        write_rounds(&mut pair, 64, |pair, round| {
            let up = pair.client.observe().connection_counters(pair.ends[0]).expect("open").up;
            assert!(cut.elapsed() < PATIENCE, "the silence is found out: {up:?}");
            (0..3).all(|plane| up[plane] == (plane == left)) && round >= 200
        });
        assert!(pair.server.observe().plane_counters()[left].urgent > 100);
    }
}

/// Of fifty pings some are lost, but almost never four in a row on one plane.
#[test]
fn pings_that_are_lost_at_random_silence_no_plane() {
    let config = Config {
        timeouts: Timeouts { plane: Duration::from_millis(400), ..Timeouts::default() },
        ..config("strack_fast", 2)
    };
    let mut pair = Pair::new(config, Some(Impairment { loss: 0.03, ..Impairment::default() }), 11);
    let until = Instant::now() + Duration::from_millis(2_500);
    write_rounds(&mut pair, 300_000, |_, _| Instant::now() > until);
    let client = pair.client.observe().connection_counters(pair.ends[0]).expect("open");
    assert_eq!((client.up, client.silences), (vec![true; 2], vec![0; 2]));
}

#[test]
fn a_connection_is_established_although_its_first_plane_is_dead() {
    let config = config("uec", 2);
    let mut server = strandway_udp::Node::bind(config.clone()).expect("sockets");
    let mut client = strandway_udp::Node::bind(config).expect("sockets");
    let mut addresses: Vec<_> = server.addresses().expect("bound").into_iter().map(support::v6).collect();
    let deaf = std::net::UdpSocket::bind(support::local()).expect("a socket");
    addresses[0] = support::v6(deaf.local_addr().expect("bound"));
    let connection = client.connect(&addresses).expect("a call");
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        server.poll();
        if let Some(told) = client.poll() {
            return assert_eq!(told, Completion::Connected { connection });
        }
    }
    panic!("no connection by the second plane");
}

/// Data leaves from many ports, answers go to one.
#[test]
fn many_source_ports_on_several_planes_leave_every_plane_in_use() {
    let mut config = config("uec", 2);
    config.routes = strandway_udp::Routes::SourcePorts(16);
    let mut pair = Pair::new(config, None, 0);
    write_rounds(&mut pair, 2_000_000, |_, round| round == 10);
    let client = pair.client.observe().connection_counters(pair.ends[0]).expect("open");
    assert_eq!((client.up, client.silences), (vec![true; 2], vec![0; 2]));
    assert!(client.sent_bytes.iter().all(|&bytes| bytes > 5_000_000), "{:?}", client.sent_bytes);
}

/// The path of a plane becomes narrower without a word: small datagrams pass, full ones are lost.
#[test]
fn a_plane_that_loses_full_packets_only_is_given_up_and_taken_back() {
    let mut pair = Pair::new(config("uec", 2), Some(Impairment::default()), 17);
    write_rounds(&mut pair, 300_000, |_, round| round == 3);
    pair.wires[1].change(Impairment { widest: 1_000, ..Impairment::default() });
    let cut = Instant::now();
    write_rounds(&mut pair, 300_000, |pair, _| {
        let now = pair.client.observe().connection_counters(pair.ends[0]).expect("open");
        assert!(cut.elapsed() < PATIENCE, "the narrow path is found out: {now:?}");
        now.up == [true, false]
    });
    pair.wires[1].change(Impairment::default());
    let healed = Instant::now();
    write_rounds(&mut pair, 300_000, |pair, _| {
        let now = pair.client.observe().connection_counters(pair.ends[0]).expect("open");
        assert!(healed.elapsed() < PATIENCE, "the plane is taken back: {now:?}");
        now.up == [true, true]
    });
}

#[test]
fn a_connection_whose_only_path_loses_full_packets_ends_and_says_so() {
    let mut pair = Pair::new(config("uec", 1), Some(Impairment::default()), 19);
    pair.wires[0].change(Impairment { widest: 1_000, ..Impairment::default() });
    let (_, remote) = pair.exposed(100_000);
    let outbox = pair.client.register(pattern(3, 100_000));
    pair.client.write(pair.ends[0], outbox, 0..100_000, remote, 0, None).expect("posted");
    let connection = pair.ends[0];
    assert_eq!(pair.next(0), Completion::Closed { connection, reason: Reason::PayloadTooLarge });
}

//! Real sockets on loopback with a bad wire between them: every byte arrives, once, where it belongs.

use super::support::{self, PATIENCE, Pair, config, over_ipv4, pattern};
use std::time::{Duration, Instant};
use strandway_udp::impair::Impairment;
use strandway_udp::{Completion, Config, Protection, Reason, Timeouts, Waiting};

const BAD: Impairment = Impairment {
    loss: 0.05,
    duplicate: 0.03,
    reorder: 0.05,
    hold: Duration::from_micros(300),
    delay: Duration::ZERO,
    corrupt: 0.0,
    mark: 0.0,
    trim: 0.0,
    widest: 0,
};

/// Writes of many sizes, back to back, into one region; and sends among them.
fn messages_arrive_intact(profile: &str, encrypt: bool) {
    let mut config = config(profile, 1);
    config.protection = if encrypt { Protection::Encrypted } else { Protection::Authenticated };
    let mut pair = Pair::new(config, Some(BAD), 1);
    let sizes = [0, 1, 63, 64, 1_343, 1_344, 1_345, 4_096, 10_000, 100_000, 5, 300_000];
    let total: usize = sizes.iter().sum();
    let source = pattern(3, total);
    let outbox = pair.client.register(source.clone());
    let (inbox, remote) = pair.exposed(total + 64);
    let controls = pair.server.register(vec![0; 3 * 2_000]);
    for i in 0..3 {
        pair.server.recv(pair.ends[1], controls, i * 2_000..(i + 1) * 2_000).expect("room");
    }
    let mut at = 0;
    let mut expected = Vec::new();
    for (i, size) in sizes.into_iter().enumerate() {
        let range = at..at + size;
        pair.client.write(pair.ends[0], outbox, range, remote, at as u64, Some(i as u32)).expect("posted");
        expected.push((Some(i as u32), size as u64));
        if i % 4 == 1 {
            pair.client.send(pair.ends[0], outbox, 0..1_500 + i).expect("posted");
            expected.push((None, 1_500 + i as u64));
        }
        at += size;
    }
    for (want, size) in expected {
        match (pair.next(1), want) {
            (Completion::Written { immediate, bytes, .. }, Some(i)) => assert_eq!((immediate, bytes), (i, size)),
            (Completion::Received { bytes, .. }, None) => assert_eq!(bytes, size),
            (other, want) => panic!("{other:?} where {want:?} was due"),
        }
    }
    for _ in 0..sizes.len() + 3 {
        assert!(matches!(pair.next(0), Completion::Sent { .. }));
    }
    assert_eq!(pair.within(1, Duration::from_millis(50)), None, "each message is told of once");
    let inbox = pair.server.memory(inbox).expect("registered");
    assert!(inbox[..total] == source[..], "every byte is where it was written to");
    assert!(inbox[total..] == [0; 64], "and none is beyond");
    let controls = pair.server.memory(controls).expect("registered");
    for (i, length) in [(0, 1_501), (1, 1_505), (2, 1_509)] {
        assert!(controls[i * 2_000..][..length] == source[..length], "send {i}");
        assert!(controls[i * 2_000 + length..][..2_000 - length].iter().all(|&byte| byte == 0));
    }
    let wire = pair.wires[0].counters();
    assert!(wire.lost > 0 && wire.duplicated > 0 && wire.held > 0, "the wire was bad: {wire:?}");
    let server = pair.server.observe().connection_counters(pair.ends[1]).expect("open");
    assert!(server.repeated > 0, "copies of datagrams are refused: {server:?}");
    let client = pair.client.observe().connection_counters(pair.ends[0]).expect("open");
    assert!(client.engine.retransmitted > 0, "lost packets were sent again: {client:?}");
}

#[test]
fn uec_delivers_every_byte_over_a_bad_wire_by_its_recovery_without_trimming() {
    messages_arrive_intact("uec", false);
}

#[test]
fn uec_delivers_every_byte_over_a_bad_wire_of_ipv4() {
    over_ipv4(uec_delivers_every_byte_over_a_bad_wire_by_its_recovery_without_trimming);
}

#[test]
fn strack_fast_delivers_every_byte_over_a_bad_wire_encrypted() {
    messages_arrive_intact("strack_fast", true);
}

#[test]
fn rocev2_delivers_every_byte_over_a_bad_wire() {
    messages_arrive_intact("rocev2", false);
}

#[test]
fn mrc_delivers_every_byte_over_a_bad_wire() {
    messages_arrive_intact("mrc", true);
}

#[test]
fn the_schemes_of_sdr_deliver_every_byte_over_a_bad_wire() {
    for profile in ["sdr_sr", "sdr_nack"] {
        messages_arrive_intact(profile, true);
    }
}

/// The send leaves when there is room for it, long after the peer's last datagram; that must not count as silence.
#[test]
fn a_send_that_waited_for_its_receive_is_not_given_up() {
    for profile in ["sdr_sr", "sdr_mds"] {
        let mut pair = Pair::new(config(profile, 1), None, 1);
        let outbox = pair.client.register(pattern(1, 100));
        pair.client.send(pair.ends[0], outbox, 0..100).expect("posted");
        pair.run(Duration::from_millis(20));
        let inbox = pair.server.register(vec![0; 100]);
        pair.server.recv(pair.ends[1], inbox, 0..100).expect("room");
        assert!(matches!(pair.next(1), Completion::Received { bytes: 100, .. }), "{profile}");
        assert!(matches!(pair.next(0), Completion::Sent { .. }), "{profile}");
    }
}

/// Packets that parity repairs are never sent again, and the rebuilt bytes equal the lost ones.
#[test]
fn parity_rebuilds_in_place_what_the_wire_lost() {
    for profile in ["sdr_xor", "sdr_mds"] {
        for (loss, bytes) in [(0.01, 3_000_000), (0.2, 700_001), (0.05, 1)] {
            let lossy = Impairment { loss, ..Impairment::default() };
            // On a busy machine packets are late, so the fallback waits for a round trip that is longer than the
            // message takes.
            let mut config = config(profile, 1);
            config.base_rtt = strandway_proto::Span::from_ms(200);
            let mut pair = Pair::new(config, Some(lossy), 11);
            let source = pattern(7, bytes + 100);
            let outbox = pair.client.register(source.clone());
            let (inbox, remote) = pair.exposed(bytes + 100);
            let sent = pair.server.register(vec![0; 5_000]);
            pair.server.recv(pair.ends[1], sent, 0..5_000).expect("room");
            pair.client.write(pair.ends[0], outbox, 0..bytes, remote, 10, Some(1)).expect("posted");
            pair.client.send(pair.ends[0], outbox, 50..150.min(bytes + 100)).expect("posted");
            pair.client.write(pair.ends[0], outbox, 0..0, remote, 0, Some(2)).expect("posted");
            assert!(matches!(pair.next(1), Completion::Written { immediate: 1, .. }));
            assert!(matches!(pair.next(1), Completion::Received { .. }));
            assert!(matches!(pair.next(1), Completion::Written { immediate: 2, bytes: 0, .. }));
            let got = pair.server.memory(inbox).expect("registered");
            assert!(got[10..10 + bytes] == source[..bytes], "{profile}: every byte is right, rebuilt or not");
            assert!(got[..10] == [0; 10] && got[10 + bytes..].iter().all(|&b| b == 0), "{profile}: and none beyond");
            for _ in 0..3 {
                assert!(matches!(pair.next(0), Completion::Sent { .. }));
            }
            let server = pair.server.observe().connection_counters(pair.ends[1]).expect("open");
            if bytes > 1 {
                assert!(server.rebuilt_bytes > 0, "{profile}: {server:?}");
            }
        }
    }
}

#[test]
fn a_flipped_bit_is_found_and_its_datagram_sent_again() {
    let corrupt = Impairment { corrupt: 0.1, ..Impairment::default() };
    let mut pair = Pair::new(config("uec", 1), Some(corrupt), 5);
    let source = pattern(9, 200_000);
    let outbox = pair.client.register(source.clone());
    let (inbox, remote) = pair.exposed(200_000);
    pair.client.write(pair.ends[0], outbox, 0..200_000, remote, 0, None).expect("posted");
    assert!(matches!(pair.next(0), Completion::Sent { .. }));
    assert!(pair.server.memory(inbox).expect("registered") == source);
    let counters = pair.server.observe().connection_counters(pair.ends[1]).expect("open");
    let node = pair.server.observe().counters();
    assert!(counters.forged + node.strays + node.malformed > 0, "{counters:?}");
}

#[test]
fn marks_go_all_the_way_to_the_congestion_control_and_back() {
    let mark = Impairment { mark: 1.0, ..Impairment::default() };
    let mut pair = Pair::new(config("uec", 1), Some(mark), 5);
    let outbox = pair.client.register(vec![1; 100_000]);
    let (_, remote) = pair.exposed(100_000);
    pair.client.write(pair.ends[0], outbox, 0..100_000, remote, 0, None).expect("posted");
    assert!(matches!(pair.next(0), Completion::Sent { .. }));
    assert!(pair.wires[0].counters().marked > 0, "{:?}", pair.wires[0].counters());
    let received = pair.server.observe().connection_counters(pair.ends[1]).expect("open").engine;
    assert_eq!(received.marked, received.delivered + received.duplicates, "data leaves as ECT and is marked");
    let sent = pair.client.observe().connection_counters(pair.ends[0]).expect("open").engine;
    assert!(sent.acks > 0 && sent.acks_marked == sent.acks, "acknowledgements echo it: {sent:?}");
}

#[test]
fn marks_of_ipv4_go_all_the_way_to_the_congestion_control_and_back() {
    over_ipv4(marks_go_all_the_way_to_the_congestion_control_and_back);
}

/// Timers so slow that every kind of recovery except NACKs would take seconds.
fn only_nacks(profile: &str, protection: Protection) -> strandway_udp::Config {
    let slow = strandway_proto::Span::from_ms(5_000);
    let mut config = config(profile, 1);
    (config.trimming, config.protection) = (true, protection);
    (config.retransmit_min, config.late_min) = (slow, slow);
    config
}

#[test]
fn trimmed_packets_are_asked_for_and_sent_again_without_a_timeout() {
    for profile in ["uec", "mrc"] {
        for protection in [Protection::None, Protection::Authenticated, Protection::Encrypted] {
            let trim = Impairment { trim: 0.2, ..Impairment::default() };
            let mut pair = Pair::new(only_nacks(profile, protection), Some(trim), 3);
            let source = pattern(4, 300_000);
            let outbox = pair.client.register(source.clone());
            let (inbox, remote) = pair.exposed(300_000);
            // Messages of no, few and many bytes: short packets are trimmed as well.
            for range in [0..0, 0..1, 1..50, 50..50, 50..90_000, 90_000..300_000] {
                let at = range.start as u64;
                pair.client.write(pair.ends[0], outbox, range, remote, at, None).expect("posted");
            }
            for _ in 0..6 {
                assert!(matches!(pair.next(0), Completion::Sent { .. }), "{profile}, {protection:?}");
            }
            assert!(pair.server.memory(inbox).expect("registered") == source, "{profile}, {protection:?}");
            let cut = pair.wires[0].counters().trimmed;
            let theirs = pair.server.observe().connection_counters(pair.ends[1]).expect("open");
            let ours = pair.client.observe().connection_counters(pair.ends[0]).expect("open").engine;
            let seen = (theirs.engine.trimmed, ours.nacks, ours.retransmitted, ours.timeouts);
            assert!(cut > 10, "{profile}, {protection:?}: {cut}");
            assert_eq!(seen, (cut, cut, cut, 0), "{profile}, {protection:?}");
            assert_eq!((theirs.forged, theirs.malformed, theirs.repeated), (0, 0, 0), "{profile}, {protection:?}");
        }
    }
}

#[test]
fn trimmed_packets_of_ipv4_are_asked_for_again() {
    over_ipv4(trimmed_packets_are_asked_for_and_sent_again_without_a_timeout);
}

#[test]
fn a_host_that_expects_no_trimming_loses_what_is_cut_and_no_more() {
    let trim = Impairment { trim: 0.1, ..Impairment::default() };
    let mut pair = Pair::new(config("mrc", 1), Some(trim), 3);
    let source = pattern(4, 200_000);
    let outbox = pair.client.register(source.clone());
    let (inbox, remote) = pair.exposed(200_000);
    pair.client.write(pair.ends[0], outbox, 0..200_000, remote, 0, None).expect("posted");
    assert!(matches!(pair.next(0), Completion::Sent { .. }));
    assert!(pair.server.memory(inbox).expect("registered") == source);
    let theirs = pair.server.observe().connection_counters(pair.ends[1]).expect("open");
    assert_eq!(theirs.engine.trimmed, 0);
    assert!(theirs.forged > 0, "a cut datagram has no tag: {theirs:?}");
}

#[test]
fn a_peer_that_dies_is_reported_and_the_node_goes_on() {
    let mut config = config("uec", 1);
    config.timeouts.peer = Duration::from_millis(300);
    let mut pair = Pair::new(config.clone(), Some(Impairment::default()), 1);
    // A second connection to the same server, without the wire.
    let address = support::v6(pair.server.addresses().expect("bound")[0]);
    let other = pair.client.connect(&[address]).expect("a call");
    assert_eq!(pair.next(0), Completion::Connected { connection: other });
    assert!(matches!(pair.next(1), Completion::Accepted { .. }));
    let outbox = pair.client.register(vec![1; 100_000]);
    let (_, remote) = pair.exposed(100_000);
    pair.wires[0].silence(true);
    pair.client.write(pair.ends[0], outbox, 0..100_000, remote, 0, None).expect("posted");
    let dead = Completion::Closed { connection: pair.ends[0], reason: Reason::PeerSilent };
    assert_eq!(pair.next(0), dead);
    assert_eq!(pair.next(1), Completion::Closed { connection: pair.ends[1], reason: Reason::PeerSilent });
    assert!(pair.client.memory(outbox).is_ok() && pair.client.deregister(outbox).is_ok(), "its memory is free again");
    assert!(pair.client.observe().connection_counters(other).is_ok(), "the other connection lives");
    assert_eq!(pair.within(0, Duration::from_millis(400)), None);
}

#[test]
fn a_peer_that_dies_while_nothing_is_under_way_is_reported_to_a_node_that_sleeps() {
    for waiting in [Waiting::Sleep, Waiting::Spin] {
        let mut config = config("uec", 1);
        config.timeouts.peer = Duration::from_millis(300);
        config.waiting = waiting;
        let mut pair = Pair::new(config, Some(Impairment::default()), 1);
        pair.run(Duration::from_millis(20));
        pair.wires[0].silence(true);
        let told = pair.client.wait(PATIENCE).expect("it can wait");
        assert_eq!(
            told,
            Some(Completion::Closed { connection: pair.ends[0], reason: Reason::PeerSilent }),
            "{waiting:?}"
        );
    }
}

#[test]
fn a_host_that_is_too_busy_for_its_node_still_finds_out_who_is_gone() {
    let config =
        Config { timeouts: Timeouts { peer: Duration::from_secs(1), ..Timeouts::default() }, ..config("uec", 1) };
    let mut pair = Pair::new(config, Some(Impairment::default()), 1);
    pair.run(Duration::from_millis(20));
    pair.wires[0].silence(true);
    let until = Instant::now() + PATIENCE;
    let told = loop {
        // One turn every 30 ms.
        std::thread::sleep(Duration::from_millis(30));
        match pair.client.poll() {
            None if Instant::now() < until => {}
            told => break told,
        }
    };
    assert_eq!(told, Some(Completion::Closed { connection: pair.ends[0], reason: Reason::PeerSilent }));
}

#[test]
fn a_node_that_nobody_asked_for_long_does_not_blame_its_peer() {
    let mut config = config("uec", 1);
    config.timeouts.peer = Duration::from_millis(200);
    let mut pair = Pair::new(config, None, 1);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(pair.within(0, Duration::from_millis(100)), None);
    assert!(pair.client.observe().connection_counters(pair.ends[0]).is_ok());
    assert!(pair.server.observe().connection_counters(pair.ends[1]).is_ok());
}

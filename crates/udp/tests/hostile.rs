//! A stranger without the key can send any datagram: it costs the node little, and other peers nothing.

use super::support::{PATIENCE, Pair, config, local, pattern, v6};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::net::{SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};
use strandway_udp::frame::{HELLO, Kind, Sealed, VERSION, encode_sealed};
use strandway_udp::{Completion, Config, Node, Timeouts};

/// Bytes that resemble a datagram: random ones after a valid first byte.
fn datagrams() -> impl Strategy<Value = Vec<u8>> {
    let kinds =
        prop_oneof![Just(VERSION << 4), Just(0x30), Just(0)].prop_flat_map(|v| (0u8..16).prop_map(move |k| v | k));
    (kinds, prop::collection::vec(any::<u8>(), 0..1_500)).prop_map(|(first, mut rest)| {
        rest.insert(0, first);
        // Fields that must be zero are zero in many cases.
        if rest.len() > 4 && rest[4] & 1 == 0 {
            rest[1..4].fill(0);
        }
        rest
    })
}

fn settle(node: &mut Node) {
    let until = Instant::now() + Duration::from_millis(2);
    while Instant::now() < until {
        assert_eq!(node.poll(), None, "strangers cause no completions");
    }
}

#[test]
fn a_stranger_gets_no_connection_no_memory_and_less_than_it_sent() {
    // The friend's node is not polled meanwhile, and must not be given up for that.
    let mut pair =
        Pair::new(Config { timeouts: Timeouts { peer: PATIENCE, ..Timeouts::default() }, ..config("uec", 1) }, None, 0);
    let (inbox, _) = pair.exposed(4_096);
    let address = pair.server.addresses().expect("bound")[0];
    let stranger = UdpSocket::bind(local()).expect("a socket");
    stranger.set_nonblocking(true).expect("a socket");
    let mut runner = TestRunner::deterministic();
    let (mut sent, mut got) = (0, 0);
    let batches = prop::collection::vec(datagrams(), 1..20);
    for _ in 0..64 {
        for datagram in batches.new_tree(&mut runner).expect("a batch").current() {
            sent += stranger.send_to(&datagram, address).expect("loopback takes it");
        }
        settle(&mut pair.server);
        let mut buffer = [0; 2_048];
        while let Ok(length) = stranger.recv(&mut buffer) {
            got += length;
        }
    }
    assert!(got < sent / 2, "{got} bytes for {sent}");
    assert!(pair.server.memory(inbox).expect("registered").iter().all(|&byte| byte == 0));
    assert_eq!(pair.server.observe().counters().handshakes, 1, "the friend's");
    // The friend is served as before.
    let outbox = pair.client.register(pattern(1, 4_096));
    let room = pair.server.register(vec![0; 4_096]);
    pair.server.recv(pair.ends[1], room, 0..4_096).expect("room");
    pair.client.send(pair.ends[0], outbox, 0..4_096).expect("posted");
    assert!(matches!(pair.next(1), Completion::Received { .. }));
    assert_eq!(pair.server.memory(room).expect("registered"), pattern(1, 4_096));
}

#[test]
fn hellos_from_one_address_or_many_leave_nothing_behind() {
    let mut node = Node::bind(config("uec", 1)).expect("sockets");
    let address = node.addresses().expect("bound")[0];
    let stranger = UdpSocket::bind(local()).expect("a socket");
    for i in 0..2_000_u64 {
        let mut hello = vec![VERSION << 4 | 1, 0, 0, 0];
        hello.extend_from_slice(&i.to_be_bytes());
        hello.resize(HELLO, i as u8);
        stranger.send_to(&hello, address).expect("loopback takes it");
        if i % 50 == 0 {
            settle(&mut node);
        }
    }
    settle(&mut node);
    let counters = node.observe().counters();
    assert!(counters.retries > 1_000, "each was answered with a cookie: {counters:?}");
    assert_eq!((counters.handshakes, counters.wrong_key), (0, 0), "and with nothing more");
}

#[test]
fn a_forger_who_guesses_numbers_reaches_no_connection() {
    let mut pair = Pair::new(config("uec", 1), None, 0);
    let address: SocketAddrV6 = v6(pair.server.addresses().expect("bound")[0]);
    let stranger = UdpSocket::bind(local()).expect("a socket");
    let before = pair.server.observe().counters();
    for counter in [0, 1, 2, 1 << 22, 1 << 24, u64::MAX] {
        let mut bytes = Vec::new();
        let path = strandway_proto::PathId(0);
        encode_sealed(
            &Sealed { kind: Kind::Close, urgent: false, path, credits: 0, connection: counter, counter },
            &mut bytes,
        );
        bytes.resize(64, 0);
        stranger.send_to(&bytes, address).expect("loopback takes it");
    }
    pair.run(Duration::from_millis(20));
    assert!(pair.server.observe().counters().strays >= before.strays + 6, "no number can be guessed");
    assert!(pair.server.observe().connection_counters(pair.ends[1]).is_ok(), "the connection lives");
}

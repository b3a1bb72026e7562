//! Reads of a peer's memory and atomic operations on it: every byte, once, and refusals that name what is wrong.

use super::support::{PATIENCE, Pair, config, pattern};
use std::time::{Duration, Instant};
use strandway_proto::Profile;
use strandway_proto::reliability::ReliabilityConfig;
use strandway_udp::impair::Impairment;
use strandway_udp::{
    Completion, Config, Error, Limits, Operation, ReadLimits, Reason, Refusal, Region, RemoteRegion, Rights, Timeouts,
};

/// Registers these bytes at the server, and opens them to the client.
fn shown(pair: &mut Pair, bytes: Vec<u8>, rights: Rights) -> (Region, RemoteRegion) {
    let length = bytes.len();
    let region = pair.server.register(bytes);
    (region, pair.server.expose_for(pair.ends[1], region, 0..length, rights).expect("a key"))
}

fn read(pair: &mut Pair, into: Region, at: usize, length: usize, remote: RemoteRegion, from: u64) -> Operation {
    pair.client.read(pair.ends[0], into, at..at + length, remote, from).expect("posted")
}

/// Reads of many sizes both ways at once, among writes, until all have ended.
fn reads_bring_every_byte(config: Config, impairment: Option<Impairment>) {
    let profile = config.profile.name.clone();
    let mut pair = Pair::new(config, impairment, 5);
    let sizes = [0, 1, 64, 1_343, 1_344, 4_097, 100_000, 8, 300_000];
    let total: usize = sizes.iter().sum();
    let (source, back) = (pattern(3, total), pattern(4, total));
    let (theirs, remote) = shown(&mut pair, source.clone(), Rights::READ | Rights::WRITE);
    let (into, outbox) = (pair.client.register(vec![0; total + 8]), pair.client.register(back.clone()));
    // The server reads the client's memory at the same time.
    let lent = pair.client.expose_for(pair.ends[0], outbox, 0..total, Rights::READ).expect("a key");
    let copy = pair.server.register(vec![0; total]);
    let mut at = 0;
    let mut expected = Vec::new();
    for size in sizes {
        expected.push((read(&mut pair, into, at, size, remote, at as u64), size as u64));
        pair.server.read(pair.ends[1], copy, at..at + size, lent, at as u64).expect("posted");
        at += size;
    }
    let connection = pair.ends[0];
    for (operation, bytes) in expected {
        assert_eq!(pair.next(0), Completion::Read { connection, operation, bytes }, "{profile}");
    }
    for _ in sizes {
        assert!(matches!(pair.next(1), Completion::Read { .. }), "{profile}");
    }
    assert!(pair.client.memory(into).expect("registered")[..total] == source[..], "{profile}");
    assert!(pair.client.memory(into).expect("registered")[total..] == [0; 8], "{profile}: none is beyond");
    assert!(pair.server.memory(copy).expect("registered") == back, "{profile}");
    // A read sees what the operations before it have written.
    pair.client.write(connection, outbox, 0..5_000, remote, 7, None).expect("posted");
    let operation = read(&mut pair, into, 0, 5_000, remote, 7);
    assert!(matches!(pair.next(0), Completion::Sent { .. } | Completion::Read { .. }), "{profile}");
    assert!(matches!(pair.next(0), Completion::Sent { .. } | Completion::Read { .. }), "{profile}");
    assert!(operation > Operation(0) && pair.client.memory(into).expect("registered")[..5_000] == back[..5_000]);
    assert_eq!(pair.within(0, Duration::from_millis(20)), None, "{profile}: each read is told of once");
    // Answers have let go of all memory when they are acknowledged.
    let until = Instant::now() + PATIENCE;
    while pair.server.deregister(theirs).is_err() {
        assert!(Instant::now() < until, "{profile}: the memory is still in use");
        pair.run(Duration::from_millis(1));
    }
}

#[test]
fn reads_bring_every_byte_with_every_profile() {
    for profile in Profile::NAMES {
        reads_bring_every_byte(config(profile, 2), None);
    }
}

const BAD: Impairment = Impairment {
    loss: 0.05,
    duplicate: 0.05,
    reorder: 0.05,
    hold: Duration::from_micros(300),
    delay: Duration::ZERO,
    corrupt: 0.0,
    mark: 0.0,
    trim: 0.0,
    widest: 0,
};

#[test]
fn reads_bring_every_byte_over_a_bad_wire() {
    for profile in ["uec", "strack", "mrc", "rocev2_sr"] {
        reads_bring_every_byte(config(profile, 2), Some(BAD));
    }
}

#[test]
fn atomic_operations_happen_once_over_a_bad_wire() {
    for profile in ["uec", "rocev2"] {
        let mut pair = Pair::new(config(profile, 1), Some(BAD), 9);
        let (words, remote) = shown(&mut pair, vec![0; 24], Rights::ATOMIC);
        let connection = pair.ends[0];
        for i in 0..300 {
            let operation = pair.client.fetch_add(connection, remote, 8, i).expect("posted");
            let word = i * i.saturating_sub(1) / 2;
            assert_eq!(pair.next(0), Completion::Fetched { connection, operation, word }, "{profile}");
        }
        let sum = 300 * 299 / 2;
        for (expected, new, word) in [(1, 2, sum), (sum, 77, sum), (77, u64::MAX, 77)] {
            let operation = pair.client.compare_swap(connection, remote, 8, expected, new).expect("posted");
            assert_eq!(pair.next(0), Completion::Fetched { connection, operation, word }, "{profile}");
        }
        pair.client.fetch_add(connection, remote, 8, 5).expect("posted");
        assert!(matches!(pair.next(0), Completion::Fetched { word: u64::MAX, .. }), "{profile}");
        let bytes = pair.server.memory(words).expect("registered");
        assert_eq!(bytes[8..16], 4u64.to_ne_bytes(), "{profile}: the sum wraps");
        assert_eq!((&bytes[..8], &bytes[16..]), (&[0; 8][..], &[0; 8][..]), "{profile}: no other word has changed");
    }
}

#[test]
fn many_small_reads_are_under_way_at_once() {
    let mut pair = Pair::new(config("uec", 1), None, 0);
    let source = pattern(8, 64 * 3_000);
    let (_, remote) = shown(&mut pair, source.clone(), Rights::READ);
    let into = pair.client.register(vec![0; source.len()]);
    let posted: Vec<Operation> = (0..3_000).map(|i| read(&mut pair, into, 64 * i, 64, remote, 64 * i as u64)).collect();
    let connection = pair.ends[0];
    for operation in posted {
        assert_eq!(pair.next(0), Completion::Read { connection, operation, bytes: 64 }, "in the order of posting");
    }
    assert!(pair.client.memory(into).expect("registered") == source);
}

#[test]
fn a_read_without_the_right_key_range_or_right_is_refused_and_the_connection_goes_on() {
    let mut pair = Pair::new(config("uec", 1), None, 0);
    let (region, remote) = shown(&mut pair, pattern(1, 100), Rights::READ);
    let (_, writable) = shown(&mut pair, vec![0; 100], Rights::WRITE);
    let revoked = pair.server.expose_for(pair.ends[1], region, 0..100, Rights::READ | Rights::ATOMIC).expect("a key");
    assert!(pair.server.revoke(revoked));
    let into = pair.client.register(vec![9; 100]);
    let connection = pair.ends[0];
    // Mistakes that this side sees.
    let refused = pair.client.read(connection, into, 0..10, writable, 0);
    assert!(matches!(refused, Err(Error::NoRight)) && refused.unwrap_err().to_string().contains("another right"));
    assert!(matches!(pair.client.fetch_add(connection, remote, 0, 1), Err(Error::NoRight)));
    for (at, length) in [(100, 1), (91, 10), (u64::MAX, 10)] {
        let refused = pair.client.read(connection, into, 0..length, remote, at);
        assert!(matches!(refused, Err(Error::Range { bytes: 100, .. })), "{refused:?}");
    }
    assert!(matches!(pair.client.fetch_add(connection, revoked, 93, 1), Err(Error::Range { end: 101, bytes: 100 })));
    let shown_only = pair.client.show(&[0; 8]);
    assert!(matches!(pair.client.read(connection, shown_only, 0..8, remote, 0), Err(Error::ReadOnly)));
    // Mistakes that only the peer sees.
    let claim = |remote: RemoteRegion| RemoteRegion { rights: Rights::READ, bytes: u64::MAX, ..remote };
    let wrong = RemoteRegion { key: remote.key ^ 1, ..remote };
    for (claimed, at, refusal, word) in [
        (wrong, 0, Refusal::NoKey, "wrong"),
        (revoked, 0, Refusal::NoKey, "taken it back"),
        (claim(writable), 0, Refusal::NoRight, "another right"),
        (claim(remote), 91, Refusal::Range, "range"),
        (claim(remote), u64::MAX - 10, Refusal::Range, "range"),
    ] {
        let operation = read(&mut pair, into, 0, 10, claimed, at);
        assert_eq!(pair.next(0), Completion::Refused { connection, operation, refusal });
        assert!(refusal.to_string().contains(word), "{refusal}");
    }
    assert_eq!(pair.client.memory(into).expect("registered"), [9; 100]);
    let operation = read(&mut pair, into, 0, 100, remote, 0);
    assert_eq!(pair.next(0), Completion::Read { connection, operation, bytes: 100 });
    // A write needs its own right.
    let claimed = RemoteRegion { rights: Rights::WRITE, ..remote };
    pair.client.write(connection, into, 0..4, claimed, 0, None).expect("posted");
    assert_eq!(pair.next(0), Completion::Closed { connection, reason: Reason::RemoteAccess });
}

fn reads(reads: usize, bytes: u64) -> Limits {
    Limits { reads: ReadLimits { reads, bytes }, ..Limits::default() }
}

#[test]
fn a_node_keeps_to_its_limits_whatever_a_peer_asks_for() {
    // The reader waits by itself.
    let mut narrow = config("uec", 1);
    (narrow.limits.reads.reads, narrow.limits.reads.bytes) = (3, 100_000);
    let mut pair = Pair::new(narrow, None, 0);
    let (_, remote) = shown(&mut pair, pattern(2, 60_000), Rights::READ);
    let into = pair.client.register(vec![0; 60_000]);
    let posted: Vec<Operation> = (0..50).map(|_| read(&mut pair, into, 0, 60_000, remote, 0)).collect();
    let connection = pair.ends[0];
    for operation in posted {
        assert_eq!(pair.next(0), Completion::Read { connection, operation, bytes: 60_000 });
    }
    // It does not wait, and the peer refuses what is too much.
    let server = strandway_udp::Node::bind(Config { limits: reads(2, 1), ..config("uec", 1) }).expect("sockets");
    let mut client =
        strandway_udp::Node::bind(Config { limits: reads(4, ReadLimits::DEFAULT.bytes), ..config("uec", 1) })
            .expect("sockets");
    let address = super::support::v6(server.addresses().expect("bound")[0]);
    let connection = client.connect(&[address]).expect("a call");
    let mut pair = Pair::of(client, server, connection);
    let (_, remote) = shown(&mut pair, pattern(2, 300_000), Rights::READ);
    let into = pair.client.register(vec![0; 300_000]);
    let posted: Vec<Operation> = (0..20).map(|_| read(&mut pair, into, 0, 300_000, remote, 0)).collect();
    let (mut done, mut refused) = (0, 0);
    for _ in &posted {
        match pair.next(0) {
            Completion::Read { .. } => done += 1,
            Completion::Refused { refusal: Refusal::TooMany, .. } => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(done >= 2 && done + refused == 20, "{done} done, {refused} refused");
    assert!(pair.client.read(connection, into, 0..1, remote, 0).is_ok(), "the connection goes on");
}

#[test]
fn a_peer_that_dies_ends_reads_on_both_sides_and_gives_all_memory_back() {
    let short = || Config {
        timeouts: Timeouts { peer: Duration::from_millis(300), ..Timeouts::default() },
        ..config("uec", 1)
    };
    for dead in [0, 1] {
        let mut pair = Pair::new(short(), None, 0);
        let (source, remote) = shown(&mut pair, vec![1; 8 << 20], Rights::READ);
        let into = pair.client.register(vec![0; 8 << 20]);
        for _ in 0..4 {
            read(&mut pair, into, 0, 8 << 20, remote, 0);
        }
        pair.pump();
        // One side does nothing more; the other one has to notice.
        let until = Instant::now() + PATIENCE;
        let closed = loop {
            let node = if dead == 0 { &mut pair.server } else { &mut pair.client };
            match node.wait(Duration::from_millis(10)).expect("it waits") {
                Some(Completion::Closed { reason, .. }) => break reason,
                Some(Completion::Read { .. }) | None => assert!(Instant::now() < until, "it did not notice"),
                Some(other) => panic!("{other:?}"),
            }
        };
        assert_eq!(closed, Reason::PeerSilent);
        let (node, region) = if dead == 0 { (&mut pair.server, source) } else { (&mut pair.client, into) };
        assert_eq!(node.deregister(region).expect("unused").len(), 8 << 20);
    }
}

#[test]
fn nodes_that_acknowledge_nothing_have_no_reads() {
    let mut partial = config("sdr_sr", 1);
    partial.profile.reliability = ReliabilityConfig::named("partial").expect("a name");
    let mut pair = Pair::new(partial, None, 0);
    let (_, remote) = shown(&mut pair, vec![1; 8], Rights::READ);
    let into = pair.client.register(vec![0; 8]);
    assert!(matches!(pair.client.read(pair.ends[0], into, 0..8, remote, 0), Err(Error::IsPartial)));
}

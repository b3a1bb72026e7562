//! Payloads that are found: each connection has the largest packets that pass on its planes.

use super::support::{Pair, config, over_ipv4, pattern, v6};
use std::net::SocketAddrV6;
use strandway_udp::impair::{Impairment, Wire};
use strandway_udp::{Completion, Config, Connection, Node, Reason};

/// Bytes of IPv6 and UDP headers.
const HEADERS: usize = 48;

/// A node that finds payloads.
fn finder(config: Config) -> Node {
    let mut node = Node::bind(config).expect("sockets");
    node.find_payloads().expect("no connection yet");
    node
}

/// Wires to a node, one per plane, that pass packets of this many bytes.
fn wires(server: &Node, widest: &[usize]) -> (Vec<Wire>, Vec<SocketAddrV6>) {
    let addresses = server.addresses().expect("bound").into_iter().map(v6);
    let wire = |(to, widest): (SocketAddrV6, &usize)| {
        let impairment = Impairment { widest: widest - HEADERS, ..Impairment::default() };
        Wire::to(to, impairment, 1).expect("sockets")
    };
    let wires: Vec<Wire> = addresses.zip(widest).map(wire).collect();
    let fronts = wires.iter().map(Wire::front).collect();
    (wires, fronts)
}

/// Writes a megabyte, and returns the payloads of both ends.
fn write(pair: &mut Pair) -> [u32; 2] {
    let (inbox, remote) = pair.exposed(1 << 20);
    let source = pattern(3, 1 << 20);
    let outbox = pair.client.register(source.clone());
    pair.client.write(pair.ends[0], outbox, 0..1 << 20, remote, 0, None).expect("posted");
    assert!(matches!(pair.next(0), Completion::Sent { .. }));
    assert!(pair.server.memory(inbox).expect("registered") == source);
    let payload = |node: &Node, end: Connection| node.observe().payload(end).expect("open");
    [payload(&pair.client, pair.ends[0]), payload(&pair.server, pair.ends[1])]
}

/// The payload that two nodes find over planes that pass packets of this many bytes. A megabyte must pass, except with
/// profiles that have streams only.
fn found(config: Config, widest: &[usize]) -> u32 {
    let writes = config.profile.name != "sdr_auto";
    let (mut client, server) = (finder(config.clone()), finder(config));
    let (wires, fronts) = wires(&server, widest);
    let connection = client.connect(&fronts).expect("a call");
    let mut pair = Pair::of(client, server, connection);
    pair.wires = wires;
    if writes {
        let [ours, theirs] = write(&mut pair);
        assert_eq!(ours, theirs, "both ends have the same payload");
    }
    pair.client.observe().payload(connection).expect("open")
}

#[test]
fn a_narrow_hop_that_drops_silently_is_found_and_the_narrowest_plane_decides() {
    for (profile, planes, widest) in [
        ("uec", &[1_500][..], 1_500),
        ("mrc", &[4_000], 4_000),
        ("strack_fast", &[9_000, 1_500], 1_500),
        ("sdr_auto", &[1_400, 9_000], 1_400),
    ] {
        let ours = config(profile, planes.len());
        let overhead = ours.overhead();
        let packet = found(ours, planes) + overhead;
        assert!(packet <= widest && packet + 200 > widest, "{profile}: packets of {packet} bytes where {widest} pass");
    }
}

#[test]
fn loopback_has_the_largest_payload_that_is_found() {
    for ipv4 in [false, true] {
        let test = || {
            let (mut client, server) = (finder(config("uec", 1)), finder(config("uec", 1)));
            let to: Vec<SocketAddrV6> = server.addresses().expect("bound").into_iter().map(v6).collect();
            let connection = client.connect(&to).expect("a call");
            assert_eq!(write(&mut Pair::of(client, server, connection)), [15_900; 2]);
        };
        if ipv4 { over_ipv4(test) } else { test() }
    }
}

#[test]
fn a_search_serves_all_calls_to_a_peer_and_later_ones() {
    let (mut client, server) = (finder(config("uec", 1)), finder(config("uec", 1)));
    let (wires, fronts) = wires(&server, &[1_500]);
    let first: Vec<Connection> = (0..20).map(|_| client.connect(&fronts).expect("a call")).collect();
    let mut pair = Pair::of(client, server, first[0]);
    pair.wires = wires;
    for _ in 1..20 {
        assert!(matches!(pair.next(0), Completion::Connected { .. }));
    }
    let lost = pair.wires[0].counters().lost;
    assert!((1..=2 * 3 * 12).contains(&lost), "one search loses at most two copies of three rounds: {lost}");
    let later = pair.client.connect(&fronts).expect("a call");
    assert_eq!(pair.next(0), Completion::Connected { connection: later });
    assert_eq!(pair.wires[0].counters().lost, lost, "the size is known");
    let payloads = first.iter().chain([&later]).map(|one| pair.client.observe().payload(*one).expect("open"));
    let payloads: Vec<u32> = payloads.collect();
    assert!(payloads.iter().all(|payload| *payload == payloads[0] && *payload > 1_300), "{payloads:?}");
    assert!(pair.client.find_payloads().is_err(), "connections are open");
}

#[test]
fn a_path_that_becomes_narrower_ends_the_connection_and_the_next_one_fits() {
    let (mut client, server) = (finder(config("uec", 1)), finder(config("uec", 1)));
    let (wires, fronts) = wires(&server, &[9_000]);
    let connection = client.connect(&fronts).expect("a call");
    let mut pair = Pair::of(client, server, connection);
    pair.wires = wires;
    assert!(write(&mut pair)[0] > 8_700);
    pair.wires[0].change(Impairment { widest: 1_500 - HEADERS, ..Impairment::default() });
    let (_, remote) = pair.exposed(1 << 20);
    let outbox = pair.client.register(vec![7; 1 << 20]);
    pair.client.write(connection, outbox, 0..1 << 20, remote, 0, None).expect("posted");
    let closed = pair.next(0);
    assert_eq!(closed, Completion::Closed { connection, reason: Reason::PayloadTooLarge });
    let next = pair.client.connect(&fronts).expect("a call");
    assert_eq!(pair.next(0), Completion::Connected { connection: next });
    let payload = pair.client.observe().payload(next).expect("open");
    assert!((1_300..1_500).contains(&payload), "{payload}");
}

#[test]
fn a_payload_that_either_side_fixes_is_that_of_the_connection() {
    let fixed = |payload: u32| Node::bind(Config { payload, ..config("uec", 1) }).expect("sockets");
    let find = || finder(config("uec", 1));
    for (mut client, server) in [(fixed(4_096), find()), (find(), fixed(4_096))] {
        let to: Vec<SocketAddrV6> = server.addresses().expect("bound").into_iter().map(v6).collect();
        let connection = client.connect(&to).expect("a call");
        let mut pair = Pair::of(client, server, connection);
        assert_eq!(write(&mut pair), [4_096; 2]);
    }
}

#[test]
fn a_peers_own_payload_that_does_not_pass_ends_the_call() {
    let mut server = Node::bind(Config { payload: 4_096, ..config("uec", 1) }).expect("sockets");
    let (_wires, fronts) = wires(&server, &[1_500]);
    let mut client = finder(config("uec", 1));
    let connection = client.connect(&fronts).expect("a call");
    let closed = loop {
        assert_eq!(server.poll(), None);
        if let Some(completion) = client.poll() {
            break completion;
        }
    };
    assert_eq!(closed, Completion::Closed { connection, reason: Reason::PayloadTooLarge });
}

#[test]
fn a_peer_that_answers_no_probe_gets_the_payload_of_the_configuration() {
    // Nothing of 1,280 bytes passes, but small datagrams and those of this payload do.
    let ours = Config { payload: 512, ..config("uec", 1) };
    let (mut client, server) = (finder(ours.clone()), finder(ours));
    let (wires, fronts) = wires(&server, &[1_000]);
    let connection = client.connect(&fronts).expect("a call");
    let mut pair = Pair::of(client, server, connection);
    pair.wires = wires;
    assert_eq!(write(&mut pair), [512; 2]);
}

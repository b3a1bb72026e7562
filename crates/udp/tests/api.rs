//! The promises of the calls: order, room, keys, bounds, and errors that name a remedy.

use super::support::{PATIENCE, Pair, config, local, v6};
use std::time::{Duration, Instant};
use strandway_udp::{Completion, Config, Error, Node, Protection, Reason, RemoteRegion, Waiting};

#[test]
fn a_send_waits_for_a_receive_and_holds_back_what_comes_after_it() {
    let mut pair = Pair::new(config("uec", 1), None, 0);
    let outbox = pair.client.register(b"onetwothree".to_vec());
    let (inbox, remote) = pair.exposed(5);
    let first = pair.client.send(pair.ends[0], outbox, 0..3).expect("posted");
    let second = pair.client.send(pair.ends[0], outbox, 3..6).expect("posted");
    let third = pair.client.write(pair.ends[0], outbox, 6..11, remote, 0, None).expect("posted");
    assert_eq!(pair.within(0, Duration::from_millis(30)), None, "the peer has posted no receive");
    let controls = pair.server.register(vec![0; 8]);
    let connection = pair.ends[0];
    pair.server.recv(pair.ends[1], controls, 0..4).expect("room");
    assert_eq!(pair.next(0), Completion::Sent { connection, operation: first });
    assert_eq!(pair.within(0, Duration::from_millis(30)), None, "room for one");
    assert_eq!(pair.server.memory(inbox).expect("registered"), [0; 5], "the write waits behind the send");
    pair.server.recv(pair.ends[1], controls, 4..8).expect("room");
    assert_eq!(pair.next(0), Completion::Sent { connection, operation: second });
    assert_eq!(pair.next(0), Completion::Sent { connection, operation: third });
    assert_eq!(pair.server.memory(controls).expect("registered"), b"one\0two\0");
    assert_eq!(pair.server.memory(inbox).expect("registered"), b"three");
}

#[test]
fn a_send_that_is_longer_than_its_receive_ends_the_connection_on_both_sides() {
    let mut pair = Pair::new(config("uec", 1), None, 0);
    let outbox = pair.client.register(vec![1; 9]);
    let room = pair.server.register(vec![0; 16]);
    pair.server.recv(pair.ends[1], room, 0..8).expect("room");
    pair.client.send(pair.ends[0], outbox, 0..9).expect("posted");
    assert_eq!(pair.next(1), Completion::Closed { connection: pair.ends[1], reason: Reason::TooLong });
    assert_eq!(pair.next(0), Completion::Closed { connection: pair.ends[0], reason: Reason::TooLong });
    assert_eq!(pair.server.memory(room).expect("registered"), [0; 16], "not a byte of it was written");
}

#[test]
fn a_write_without_the_right_key_or_beyond_the_bounds_harms_nobody() {
    for case in ["key", "bounds", "revoked", "other connection"] {
        let mut pair = Pair::new(config("uec", 1), None, 0);
        let outbox = pair.client.register(vec![1; 100]);
        let (inbox, real) = pair.exposed(100);
        let mut from = pair.ends[0];
        let claimed = match case {
            "key" => RemoteRegion { key: real.key ^ 1, ..real },
            "bounds" => RemoteRegion { bytes: 1_000, ..real },
            "revoked" => {
                assert!(pair.server.revoke(real));
                real
            }
            _ => {
                let address = v6(pair.server.addresses().expect("bound")[0]);
                from = pair.client.connect(&[address]).expect("a call");
                assert_eq!(pair.next(0), Completion::Connected { connection: from });
                assert!(matches!(pair.next(1), Completion::Accepted { .. }));
                real
            }
        };
        pair.client.write(from, outbox, 0..100, claimed, u64::from(case == "bounds"), None).expect("posted");
        assert_eq!(pair.next(0), Completion::Closed { connection: from, reason: Reason::RemoteAccess }, "{case}");
        assert!(matches!(pair.next(1), Completion::Closed { reason: Reason::RemoteAccess, .. }), "{case}");
        assert_eq!(pair.server.memory(inbox).expect("registered"), [0; 100], "{case}");
    }
}

#[test]
fn nodes_that_do_not_fit_each_other_say_why() {
    type Change = fn(&mut Config);
    let cases: [(&str, Change, Reason); 5] = [
        ("key", |c| c.secret = strandway_udp::Secret::new(&[8; 32]).expect("long enough"), Reason::WrongKey),
        ("payload", |c| c.payload = 1_000, Reason::OtherPayload),
        ("encryption", |c| c.protection = Protection::Authenticated, Reason::OtherProtection),
        ("profile", |c| *c = config("strack", 1), Reason::OtherProfile),
        ("a parameter", |c| c.profile.transport.ack_marked = false, Reason::OtherProfile),
    ];
    for (name, change, reason) in cases {
        let mut server = Node::bind(config("uec", 1)).expect("sockets");
        let mut theirs = config("uec", 1);
        change(&mut theirs);
        theirs.timeouts.handshake = Duration::from_millis(150);
        let mut client = Node::bind(theirs).expect("sockets");
        let address = v6(server.addresses().expect("bound")[0]);
        let connection = client.connect(&[address]).expect("a call");
        let told = loop {
            assert_eq!(server.poll(), None, "{name}: the server's application is not bothered");
            if let Some(completion) = client.poll() {
                break completion;
            }
        };
        assert_eq!(told, Completion::Closed { connection, reason }, "{name}");
        assert!(!reason.to_string().is_empty());
    }
}

#[test]
fn a_control_that_reads_records_of_switches_is_refused_by_nodes() {
    let mut ours = config("rocev2", 1);
    ours.profile.choose_congestion(strandway_proto::congestion::CongestionConfig::named("hpcc").expect("a control"));
    let Err(Error::Config(said)) = Node::bind(ours).map(drop) else { panic!("it was accepted") };
    assert!(said.contains("`hpcc` needs records of switches") && said.contains("dcqcn or swift"), "{said}");
}

#[test]
fn a_full_node_refuses_and_says_so() {
    let mut ours = config("uec", 1);
    ours.limits.connections = 1;
    let mut pair = Pair::new(ours, None, 0);
    let mut client = Node::bind(config("uec", 1)).expect("sockets");
    let address = v6(pair.server.addresses().expect("bound")[0]);
    let connection = client.connect(&[address]).expect("a call");
    let told = loop {
        pair.pump();
        if let Some(completion) = client.poll() {
            break completion;
        }
    };
    assert_eq!(told, Completion::Closed { connection, reason: Reason::PeerFull });
    let full = pair.client.connect(&[address]).expect_err("one connection is all that it may have");
    assert!(matches!(full, Error::TooManyConnections { limit: 1 }), "{full}");
}

#[test]
fn a_missing_listener_is_reported_in_time() {
    let mut config = config("uec", 1);
    config.timeouts.handshake = Duration::from_millis(100);
    let mut client = Node::bind(config).expect("sockets");
    // The port is bound, so that no other process answers there, and never read.
    let deaf = std::net::UdpSocket::bind(local()).expect("a socket");
    let connection = client.connect(&[v6(deaf.local_addr().expect("bound"))]).expect("a call");
    let told = client.wait(PATIENCE).expect("it can wait");
    assert_eq!(told, Some(Completion::Closed { connection, reason: Reason::NoAnswer }));
}

#[test]
fn a_goodbye_is_heard_and_a_closed_connection_is_gone() {
    let mut pair = Pair::new(config("uec", 1), None, 0);
    pair.client.close(pair.ends[0]).expect("open");
    assert_eq!(pair.next(1), Completion::Closed { connection: pair.ends[1], reason: Reason::ByPeer });
    assert_eq!(pair.within(0, Duration::from_millis(20)), None, "the closing side gets no completion");
    assert!(matches!(pair.client.close(pair.ends[0]), Err(Error::NoConnection)));
    let region = pair.client.register(vec![0; 4]);
    assert!(matches!(pair.client.send(pair.ends[0], region, 0..4), Err(Error::NoConnection)));
}

#[test]
fn bad_calls_say_what_would_be_a_good_one() {
    let taken = Node::bind(config("uec", 1)).expect("sockets");
    let mut again = config("uec", 1);
    again.planes = vec![v6(taken.addresses().expect("bound")[0])];
    let said = |error: Error| error.to_string();
    assert!(said(Node::bind(again).err().expect("taken")).contains("choose another port"));
    assert!(said(Node::bind(config("uec", 0)).err().expect("no plane")).contains("give 1 to 8 local addresses"));
    assert!(said(Config::new(b"short").expect_err("short")).contains("head -c 32"));
    let named = config("uec", 1).profile("infiniband").expect_err("none");
    assert!(said(named).contains("strack_fast"), "it lists those there are");
    let mut node = taken;
    let region = node.register(vec![0; 10]);
    let connection = node.connect(&[local()]).expect("a call");
    assert!(matches!(node.send(connection, region, 0..11), Err(Error::Range { end: 11, bytes: 10 })));
    assert!(said(node.send(connection, region, 0..10).expect_err("early")).contains("wait for Completion::Connected"));
    assert!(node.connect(&[]).is_err_and(|error| said(error).contains("one for each plane")));
}

#[test]
fn unfinished_operations_are_limited() {
    let mut ours = config("uec", 1);
    ours.limits.operations = 3;
    let mut pair = Pair::new(ours, None, 0);
    let outbox = pair.client.register(vec![1; 8]);
    for _ in 0..3 {
        pair.client.send(pair.ends[0], outbox, 0..8).expect("within the limit");
        pair.client.recv(pair.ends[0], outbox, 0..8).expect("within the limit");
    }
    assert!(matches!(pair.client.send(pair.ends[0], outbox, 0..8), Err(Error::Busy { limit: 3 })));
    assert!(matches!(pair.client.recv(pair.ends[0], outbox, 0..8), Err(Error::Busy { limit: 3 })));
    assert!(matches!(pair.client.deregister(outbox), Err(Error::RegionInUse)));
}

#[test]
fn another_thread_ends_a_wait_whether_the_node_sleeps_spins_or_has_not_begun() {
    for waiting in [Waiting::Sleep, Waiting::Spin, Waiting::Adaptive(Duration::from_micros(50))] {
        let mut node = Node::bind(Config { waiting, ..config("uec", 1) }).expect("sockets");
        let waker = node.waker().expect("a descriptor");
        waker.wake();
        let began = Instant::now();
        assert_eq!(node.wait(PATIENCE).expect("it waits"), None, "called before");
        for _ in 0..200 {
            std::thread::scope(|scope| {
                let waker = waker.clone();
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_micros(100));
                    waker.wake();
                });
                assert_eq!(node.wait(PATIENCE).expect("it waits"), None);
            });
        }
        assert!(began.elapsed() < PATIENCE, "{waiting:?}: {:?}", began.elapsed());
        // No call is left to be answered, so nothing wakes it now.
        let began = Instant::now();
        assert_eq!(node.wait(Duration::from_millis(50)).expect("it waits"), None);
        assert!(began.elapsed() >= Duration::from_millis(50), "{waiting:?} woke up for nothing");
    }
}

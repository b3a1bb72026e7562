//! Strangers, and attackers that record or forge datagrams of a handshake: they take no connection, plane or slot from
//! other peers, and a node sends them less than they sent.

use super::support::{PATIENCE, Pair, config, in_namespace, local, pattern, v6};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, sendto, socket as raw};
use std::net::{SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};
use strandway_udp::frame::{COOKIE, HELLO, REFUSAL, RETRY, VERSION};
use strandway_udp::{Completion, Config, Node, Reason, Timeouts};

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(local()).expect("a socket");
    socket.set_nonblocking(true).expect("a socket");
    socket
}

/// A datagram that arrives at a socket and satisfies `enough`, while the node works; `None` when the time is up.
fn receive(node: &mut Node, socket: &UdpSocket, time: Duration, enough: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let until = Instant::now() + time;
    let mut bytes = [0; 65_536];
    while Instant::now() < until {
        node.poll();
        if let Ok(length) = socket.recv(&mut bytes)
            && enough(&bytes[..length])
        {
            return Some(bytes[..length].to_vec());
        }
        std::thread::yield_now();
    }
    None
}

fn kind(datagram: &[u8]) -> u8 {
    datagram[0] & 15
}

/// A retry with a cookie of our choice for a hello.
fn retry(hello: &[u8], cookie: u8) -> Vec<u8> {
    let mut retry = hello[..RETRY].to_vec();
    retry[0] = VERSION << 4 | 2;
    retry[12..].fill(cookie);
    retry
}

/// The hello of a caller with the key, recorded by an attacker that lured the caller to its address and gave it a
/// cookie.
fn recorded(config: &Config) -> Vec<u8> {
    let tap = socket();
    let mut caller = Node::bind(config.clone()).expect("sockets");
    caller.connect(&[v6(tap.local_addr().expect("bound"))]).expect("a call");
    let first = receive(&mut caller, &tap, PATIENCE, |_| true).expect("a hello");
    assert!(first[12..HELLO].iter().all(|&byte| byte == 0), "nothing that the key made, before there is a cookie");
    tap.send_to(&retry(&first, 9), caller.addresses().expect("bound")[0]).expect("loopback takes it");
    receive(&mut caller, &tap, PATIENCE, |hello| hello[12..12 + COOKIE] == [9; COOKIE]).expect("a hello with a cookie")
}

/// Sends a recorded hello to a node from our address, with a cookie that the node gave; returns the node's answer.
fn replay(hello: &[u8], to: &mut Node, from: &UdpSocket) -> Option<Vec<u8>> {
    let address = to.addresses().expect("bound")[0];
    let mut hello = hello[..HELLO].to_vec();
    let openings = |bytes: &[u8]| [2, 3, 9].contains(&kind(bytes));
    from.send_to(&hello, address).expect("loopback takes it");
    let retry = receive(to, from, PATIENCE, openings)?;
    assert_eq!((kind(&retry), retry.len()), (2, RETRY), "a cookie of its own first");
    hello[12..12 + COOKIE].copy_from_slice(&retry[12..]);
    from.send_to(&hello, address).expect("loopback takes it");
    receive(to, from, PATIENCE, openings)
}

fn call(node: &mut Node, config: &Config) -> (Node, Completion) {
    let mut caller = Node::bind(config.clone()).expect("sockets");
    caller.connect(&[v6(node.addresses().expect("bound")[0])]).expect("a call");
    let until = Instant::now() + PATIENCE;
    loop {
        node.poll();
        if let Some(done) = caller.poll() {
            return (caller, done);
        }
        assert!(Instant::now() < until, "no outcome");
    }
}

#[test]
fn a_recorded_hello_opens_no_connection_anywhere() {
    let mut config = config("uec", 1);
    config.limits.connections = 2;
    let mut node = Node::bind(config.clone()).expect("sockets");
    let replayer = socket();
    for _ in 0..4 {
        let answer = replay(&recorded(&config), &mut node, &replayer).expect("an answer");
        assert_eq!((kind(&answer), answer.len()), (9, REFUSAL), "it was made for another cookie");
    }
    assert_eq!((node.observe().counters().handshakes, node.observe().counters().wrong_key), (0, 4));
    // No slot is taken.
    let friends: Vec<_> = (0..2).map(|_| call(&mut node, &config)).collect();
    assert!(friends.iter().all(|(_, done)| matches!(done, Completion::Connected { .. })));
}

/// A hello that a node accepted is replayed by its sender, or by a host that shares the sender's address.
#[test]
fn an_unconfirmed_caller_is_sent_less_than_it_sent() {
    for ports in [0_u16, 4] {
        let mut config = config("uec", 1);
        config.timeouts.handshake = Duration::from_millis(300);
        if ports > 0 {
            config.routes = strandway_udp::Routes::SourcePorts(ports);
        }
        let mut node = Node::bind(config.clone()).expect("sockets");
        let mut caller = Node::bind(config).expect("sockets");
        let (front, back) = (socket(), socket());
        caller.connect(&[v6(front.local_addr().expect("bound"))]).expect("a call");
        let to = node.addresses().expect("bound")[0];
        let (mut sent, mut got, mut welcomes, mut bytes) = (0, 0, 0, [0; 2_048]);
        let until = Instant::now() + Duration::from_millis(500);
        while Instant::now() < until {
            node.poll();
            caller.poll();
            while let Ok((length, from)) = front.recv_from(&mut bytes) {
                sent += back.send_to(&bytes[..length], to).expect("loopback takes it");
                assert!(caller.addresses().expect("bound")[0] == from);
            }
            while let Ok(length) = back.recv(&mut bytes) {
                got += length;
                welcomes += usize::from(kind(&bytes) == 3);
                assert!([2, 3].contains(&kind(&bytes)), "a retry or a welcome and nothing else");
                if kind(&bytes) == 2 {
                    let caller = caller.addresses().expect("bound")[0];
                    front.send_to(&bytes[..length], caller).expect("loopback takes it");
                }
            }
        }
        assert!(welcomes > 0 && got < sent, "{welcomes} welcomes, {got} bytes for {sent}");
    }
}

#[test]
fn one_retry_makes_one_hello() {
    let forger = socket();
    let mut caller = Node::bind(config("uec", 1)).expect("sockets");
    caller.connect(&[v6(forger.local_addr().expect("bound"))]).expect("a call");
    let to = caller.addresses().expect("bound")[0];
    let (mut hello, mut hellos, mut bytes) = (None::<Vec<u8>>, 0, [0; 65_536]);
    let until = Instant::now() + Duration::from_millis(800);
    while Instant::now() < until {
        for cookie in 0..=255 {
            if let Some(hello) = &hello {
                forger.send_to(&retry(hello, cookie), to).expect("loopback takes it");
            }
            caller.poll();
            while let Ok(length) = forger.recv(&mut bytes) {
                hellos += 1;
                hello = Some(bytes[..length].to_vec());
            }
        }
    }
    // A timer sends hellos at 0, 100, 300 and 700 ms; each may cause one more.
    assert!((2..=10).contains(&hellos), "{hellos} hellos");
}

#[test]
fn short_connections_are_not_refused_however_many() {
    let mut config = config("uec", 1);
    config.limits.connections = 4;
    let mut node = Node::bind(config.clone()).expect("sockets");
    let mut caller = Node::bind(config).expect("sockets");
    let to = [v6(node.addresses().expect("bound")[0])];
    for i in 0..40 {
        let connection = caller.connect(&to).expect("a call");
        let until = Instant::now() + PATIENCE;
        let (mut connected, mut accepted) = (false, false);
        while !(connected && accepted) {
            accepted |= matches!(node.poll(), Some(Completion::Accepted { .. }));
            if let Some(done) = caller.poll() {
                assert_eq!(done, Completion::Connected { connection }, "connection {i}");
                connected = true;
            }
            assert!(Instant::now() < until, "connection {i}");
        }
        caller.close(connection).expect("open");
        while !matches!(node.poll(), Some(Completion::Closed { .. })) {
            assert!(Instant::now() < until, "connection {i} is not over");
        }
    }
    assert_eq!(node.observe().connections(), 0);
}

/// Welcomes are lost until the answering node has given the caller up.
#[test]
fn a_caller_who_is_more_patient_than_the_node_still_gets_a_connection() {
    let mut config = config("uec", 1);
    config.timeouts.handshake = Duration::from_millis(200);
    let mut node = Node::bind(config.clone()).expect("sockets");
    config.timeouts.handshake = PATIENCE;
    let mut caller = Node::bind(config).expect("sockets");
    let (front, back) = (socket(), socket());
    let to = node.addresses().expect("bound")[0];
    let connection = caller.connect(&[v6(front.local_addr().expect("bound"))]).expect("a call");
    let (mut first, mut accepted, mut connected, mut bytes) = (None, false, false, [0; 65_536]);
    let until = Instant::now() + PATIENCE;
    while !(accepted && connected) {
        match caller.poll() {
            None => {}
            done => connected |= done == Some(Completion::Connected { connection }),
        }
        accepted |= matches!(node.poll(), Some(Completion::Accepted { .. }));
        while let Ok(length) = front.recv(&mut bytes) {
            back.send_to(&bytes[..length], to).expect("loopback takes it");
        }
        while let Ok(length) = back.recv(&mut bytes) {
            let is_late = |first: Instant| first.elapsed() > Duration::from_millis(500);
            if kind(&bytes) != 3 || is_late(*first.get_or_insert_with(Instant::now)) {
                front.send_to(&bytes[..length], caller.addresses().expect("bound")[0]).expect("loopback takes it");
            }
        }
        assert!(Instant::now() < until, "accepted {accepted}, connected {connected}");
    }
    assert!(node.observe().counters().handshakes >= 2, "the first one was given up");
}

#[test]
fn a_caller_of_another_version_is_told_so() {
    let mut node = Node::bind(config("uec", 1)).expect("sockets");
    let stranger = socket();
    let mut hello = vec![(VERSION + 1) << 4 | 1, 0, 0, 0];
    hello.resize(HELLO, 7);
    stranger.send_to(&hello, node.addresses().expect("bound")[0]).expect("loopback takes it");
    let refusal = receive(&mut node, &stranger, PATIENCE, |_| true).expect("an answer");
    assert_eq!((refusal[0], refusal[2], refusal.len()), ((VERSION + 1) << 4 | 9, 2, REFUSAL), "in its own version");
    // A node that we call may answer in its own version: the caller is told so, too.
    let mut caller = Node::bind(Config {
        timeouts: Timeouts { handshake: Duration::from_millis(200), ..Timeouts::default() },
        ..config("uec", 1)
    })
    .expect("sockets");
    let connection = caller.connect(&[v6(stranger.local_addr().expect("bound"))]).expect("a call");
    let hello = receive(&mut caller, &stranger, PATIENCE, |_| true).expect("a hello");
    let refusal = [&[(VERSION + 1) << 4 | 9, 0, 2, 0], &hello[4..12]].concat();
    stranger.send_to(&refusal, caller.addresses().expect("bound")[0]).expect("loopback takes it");
    let told = caller.wait(PATIENCE).expect("it can wait");
    assert_eq!(told, Some(Completion::Closed { connection, reason: Reason::WrongVersion }));
}

#[test]
fn an_address_without_a_route_is_nobody_elses_trouble() {
    if !in_namespace("an_address_without_a_route_is_nobody_elses_trouble") {
        return;
    }
    for profile in ["uec", "mrc"] {
        let mut pair = Pair::new(config(profile, 2), None, 0);
        let nowhere: SocketAddrV6 = "[2001:db8::1]:9".parse().expect("an address");
        for _ in 0..3 {
            pair.client.connect(&[nowhere, nowhere]).expect("a call");
            pair.run(Duration::from_millis(150));
        }
        assert!(
            pair.client.observe().plane_counters().iter().any(|plane| plane.refused > 0),
            "the kernel has no route"
        );
        let friend = pair.client.observe().connection_counters(pair.ends[0]).expect("open");
        assert_eq!((&friend.port_losses, &friend.routes_lost), (&vec![0; 2], &vec![0; 2]));
        assert_eq!((pair.client.observe().ports_up(), friend.up), (&[true; 2][..], vec![true; 2]));
    }
}

#[test]
fn a_peer_without_a_route_loses_that_plane_until_there_is_one_and_others_keep_it() {
    if !in_namespace("a_peer_without_a_route_loses_that_plane_until_there_is_one_and_others_keep_it") {
        return;
    }
    let ip = |arguments: &str| {
        let done = Command::new("ip").args(arguments.split(' ')).status().expect("ip runs");
        assert!(done.success(), "ip {arguments}");
    };
    for address in ["fd00::1", "fd00::2", "fd00::3"] {
        ip(&format!("-6 addr add {address}/128 dev lo nodad"));
    }
    let at = |address: &str| format!("[{address}]:0").parse::<SocketAddrV6>().expect("an address");
    let bind = |first: &str| Config { planes: vec![at(first), local()], ..config("uec", 2) };
    let mut client = Node::bind(bind("fd00::1")).expect("sockets");
    let mut servers = ["fd00::2", "fd00::3"].map(|address| Node::bind(bind(address)).expect("sockets"));
    let ends = [0, 1].map(|i| {
        let to: Vec<_> = servers[i].addresses().expect("bound").into_iter().map(v6).collect();
        client.connect(&to).expect("a call")
    });
    let mut until = |client: &mut Node, what: &str, enough: &dyn Fn(&Node) -> bool| {
        let until = Instant::now() + PATIENCE;
        while !enough(client) {
            client.poll();
            for server in &mut servers {
                server.poll();
            }
            assert!(Instant::now() < until, "{what}: {:?}", ends.map(|end| client.observe().connection_counters(end)));
        }
    };
    let up =
        |node: &Node, end: usize| node.observe().connection_counters(ends[end]).map_or(vec![], |counters| counters.up);
    until(&mut client, "both are open", &|node| (0..2).all(|end| up(node, end) == [true; 2]));
    ip("-6 route add unreachable fd00::2/128 metric 1 table 7");
    ip("-6 rule add to fd00::2 lookup 7 pref 1");
    ip("-6 rule del lookup local");
    ip("-6 rule add lookup local pref 2");
    until(&mut client, "the plane is lost", &|node| up(node, 0) == [false, true]);
    assert_eq!(up(&client, 1), [true; 2], "and only for that peer");
    let counters = client.observe().connection_counters(ends[0]).expect("open");
    assert_eq!((counters.routes_lost[0], counters.port_losses[0]), (1, 0));
    ip("-6 rule del to fd00::2 lookup 7 pref 1");
    until(&mut client, "the plane is back", &|node| up(node, 0) == [true; 2]);
}

/// A forged ICMPv6 "packet too big" for a datagram that was never sent: any host can send it, and it must have no
/// effect.
#[test]
fn a_forged_packet_too_big_changes_nothing() {
    if !in_namespace("a_forged_packet_too_big_changes_nothing") {
        return;
    }
    let mut ours = config("uec", 1);
    ours.payload = 4_096;
    let mut pair = Pair::new(ours, None, 0);
    let port = |node: &Node| node.addresses().expect("bound")[0].port();
    let (ours, theirs) = (port(&pair.client), port(&pair.server));
    let loopback = std::net::Ipv6Addr::LOCALHOST.octets();
    // Type 2, an MTU of 1,280 bytes, and the IPv6 and UDP headers of the datagram that was supposedly too big.
    let mut error = vec![2, 0, 0, 0, 0, 0, 5, 0, 0x60, 0, 0, 0, 5, 120, 17, 60];
    error.extend(loopback);
    error.extend(loopback);
    for word in [ours, theirs, 1_400, 0] {
        error.extend(word.to_be_bytes());
    }
    error.resize(120, 0);
    let forger =
        raw(AddressFamily::Inet6, SockType::Raw, SockFlag::empty(), SockProtocol::IcmpV6).expect("we are root");
    let to = SockaddrIn6::from(SocketAddrV6::new(loopback.into(), 0, 0, 0));
    let (inbox, remote) = pair.exposed(1 << 20);
    for round in 0..10 {
        sendto(forger.as_raw_fd(), &error, &to, MsgFlags::empty()).expect("it leaves");
        let source = pattern(round, 1 << 20);
        let outbox = pair.client.register(source.clone());
        pair.client.write(pair.ends[0], outbox, 0..1 << 20, remote, 0, None).expect("posted");
        assert!(matches!(pair.next(0), Completion::Sent { .. }), "round {round}");
        assert!(pair.server.memory(inbox).expect("registered") == source);
    }
    assert_eq!(pair.client.observe().plane_counters()[0].refused, 0);
}

#[test]
fn a_quiet_connection_is_hardly_pinged() {
    let mut ours = config("uec", 2);
    ours.timeouts.peer = Duration::from_secs(3);
    let mut pair = Pair::new(ours, None, 0);
    let sent = |pair: &Pair| {
        [&pair.client, &pair.server].map(|node| node.observe().plane_counters().iter().map(|p| p.sent).sum::<u64>())
    };
    pair.run(Duration::from_millis(300));
    let before = sent(&pair);
    pair.run(Duration::from_secs(2));
    let after = sent(&pair);
    // A ping and a pong per plane and quarter of the timeout, from both sides: 2 s / 0.75 s, times 4.
    assert!((0..2).all(|i| after[i] - before[i] <= 40), "{before:?} to {after:?} datagrams");
}

//! Several connections between the same two nodes: they share one peer monitor, and each still ends on its own.

use super::support::{self, PATIENCE, config, v6};
use std::time::{Duration, Instant};
use strandway_udp::impair::{Impairment, Wire};
use strandway_udp::{Completion, Config, Connection, Node, Reason, Timeouts};

/// Two nodes with connections, over wires.
struct Many {
    caller: Node,
    server: Option<Node>,
    wires: Vec<Wire>,
    /// Each connection at the caller and at the server.
    ends: Vec<[Connection; 2]>,
    told: [Vec<Completion>; 2],
}

impl Many {
    fn new(config: &Config, count: usize) -> Many {
        let [caller, server] = [(); 2].map(|()| Node::bind(config.clone()).expect("sockets"));
        let to = server.addresses().expect("bound").into_iter().map(v6);
        let wires = to.map(|to| Wire::to(to, Impairment::default(), 1).expect("sockets")).collect();
        let mut many = Many { caller, server: Some(server), wires, ends: Vec::new(), told: [Vec::new(), Vec::new()] };
        (0..count).for_each(|_| many.open());
        many
    }

    fn open(&mut self) {
        let to: Vec<_> = self.wires.iter().map(Wire::front).collect();
        let ours = self.caller.connect(&to).expect("a call");
        self.until(0, |told| *told == Completion::Connected { connection: ours });
        let accepted = self.until(1, |told| matches!(told, Completion::Accepted { .. }));
        let Completion::Accepted { connection: theirs, .. } = accepted else { panic!("just seen") };
        self.ends.push([ours, theirs]);
    }

    fn pump(&mut self) {
        self.told[0].extend(self.caller.poll());
        if let Some(server) = &mut self.server {
            self.told[1].extend(server.poll());
        }
        std::thread::yield_now();
    }

    fn until(&mut self, side: usize, wanted: impl Fn(&Completion) -> bool) -> Completion {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.told[side].iter().position(&wanted) {
                return self.told[side].remove(at);
            }
            assert!(Instant::now() < until, "nothing of the kind: {:?}", self.told[side]);
            self.pump();
        }
    }

    fn settle(&mut self, what: &str, enough: impl Fn(&Many) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !enough(self) {
            assert!(Instant::now() < until, "{what}");
            self.pump();
        }
    }

    fn run(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.pump();
        }
    }

    /// The number of peers that each of the two nodes watches.
    fn peers(&self) -> [usize; 2] {
        [self.caller.observe().peers(), self.server.as_ref().map_or(0, |node| node.observe().peers())]
    }

    fn ups(&self, side: usize) -> Vec<Vec<bool>> {
        let node = if side == 0 { &self.caller } else { self.server.as_ref().expect("there") };
        let up = |end: &[Connection; 2]| {
            node.observe().connection_counters(end[side]).map_or(vec![], |counters| counters.up)
        };
        self.ends.iter().map(up).collect()
    }

    /// Datagrams that both nodes send within `time`.
    fn sent_in(&mut self, time: Duration) -> u64 {
        let sent = |many: &Many| {
            let nodes = [Some(&many.caller), many.server.as_ref()];
            nodes
                .into_iter()
                .flatten()
                .flat_map(|node| node.observe().plane_counters())
                .map(|plane| plane.sent)
                .sum::<u64>()
        };
        let before = sent(self);
        self.run(time);
        sent(self) - before
    }
}

#[test]
fn connections_between_two_nodes_are_watched_as_one() {
    let mut many = Many::new(&config("uec", 2), 12);
    many.settle("one peer on either side", |many| many.peers() == [1, 1]);
    many.settle("each knows every address", |many| (0..2).all(|i| many.ups(i) == vec![vec![true; 2]; 12]));
    // A plane falls silent: this is found once for all of them.
    let outbox = many.caller.register(vec![0; 8]);
    many.caller.send(many.ends[3][0], outbox, 0..8).expect("posted");
    many.wires[1].silence(true);
    many.settle("all of the caller's have left the plane", |many| many.ups(0) == vec![vec![true, false]; 12]);
    many.wires[1].silence(false);
    many.settle("and come back", |many| many.ups(0) == vec![vec![true; 2]; 12]);
    // After some connections end, in any order, the others are still watched.
    for at in [0, 5, 11, 2] {
        many.caller.close(many.ends[at][0]).expect("open");
        many.until(1, |told| matches!(told, Completion::Closed { .. }));
    }
    assert_eq!(many.peers(), [1, 1]);
    let left = many.ends[7][0];
    for end in many.ends.clone() {
        let _ = many.caller.close(end[0]);
    }
    assert!(many.caller.close(left).is_err());
    many.settle("no peer is watched", |many| many.peers() == [0, 0]);
}

#[test]
fn many_active_connections_are_pinged_hardly_more_than_one() {
    let sent = [1, 64].map(|count| {
        let mut many = Many::new(
            &Config { timeouts: Timeouts { peer: Duration::from_secs(8), ..Timeouts::default() }, ..config("uec", 2) },
            count,
        );
        let outbox = many.caller.register(vec![0; 8]);
        // Each send waits for a receive that is never posted.
        for end in many.ends.clone() {
            many.caller.send(end[0], outbox, 0..8).expect("posted");
        }
        many.settle("one peer on either side", |many| many.peers() == [1, 1]);
        many.run(Duration::from_millis(200));
        many.sent_in(Duration::from_secs(2))
    });
    assert!(sent[0] > 100, "an active connection is watched: {sent:?}");
    assert!(sent[1] < 2 * sent[0], "datagrams of one and of 64: {sent:?}");
}

#[test]
fn idle_connections_send_next_to_nothing() {
    let mut many = Many::new(&config("uec", 2), 100);
    many.settle("one peer on either side", |many| many.peers() == [1, 1]);
    many.run(Duration::from_millis(200));
    // Both nodes on both planes: a ping each 750 ms, and its answer.
    let sent = many.sent_in(Duration::from_secs(3));
    assert!((8..100).contains(&sent), "{sent} datagrams in 3 s");
}

#[test]
fn a_peer_that_is_gone_ends_all_its_connections() {
    let mut many = Many::new(
        &Config { timeouts: Timeouts { peer: Duration::from_millis(700), ..Timeouts::default() }, ..config("uec", 2) },
        10,
    );
    many.wires.iter().for_each(|wire| wire.silence(true));
    for side in 0..2 {
        for _ in 0..10 {
            many.until(side, |told| matches!(told, Completion::Closed { reason: Reason::PeerSilent, .. }));
        }
    }
    assert_eq!((many.peers(), many.caller.observe().connections()), ([0, 0], 0));
}

/// The peer has ended one of several connections, and its message was lost. The other connections show that the peer
/// lives.
#[test]
fn a_connection_that_only_one_side_has_ends_and_the_others_stay() {
    let mut many = Many::new(
        &Config { timeouts: Timeouts { peer: Duration::from_millis(900), ..Timeouts::default() }, ..config("uec", 1) },
        5,
    );
    many.settle("one peer on either side", |many| many.peers() == [1, 1]);
    many.wires[0].silence(true);
    let [ours, theirs] = many.ends[2];
    many.server.as_mut().expect("there").close(theirs).expect("open");
    many.run(Duration::from_millis(50));
    many.wires[0].silence(false);
    let outbox = many.caller.register(vec![0; 8]);
    many.caller.send(ours, outbox, 0..8).expect("posted");
    let ended = many.until(0, |told| matches!(told, Completion::Closed { .. }));
    assert_eq!(ended, Completion::Closed { connection: ours, reason: Reason::PeerSilent });
    many.run(Duration::from_secs(2));
    assert_eq!((many.caller.observe().connections(), many.peers()), (4, [1, 1]), "{:?}", many.told);
}

/// A node that is started again has the addresses of the old one, but is another node.
#[test]
fn a_node_that_was_started_again_does_not_speak_for_the_one_before() {
    // Longer than a busy machine holds up a node.
    let config =
        Config { timeouts: Timeouts { peer: Duration::from_secs(5), ..Timeouts::default() }, ..config("uec", 1) };
    let mut many = Many::new(&config, 3);
    many.settle("the three are watched as one", |many| many.peers() == [1, 1]);
    many.wires[0].silence(true);
    let server = many.server.take().expect("there");
    let planes = server.addresses().expect("bound").into_iter().map(v6).collect();
    drop(server);
    many.run(Duration::from_millis(50));
    many.wires[0].silence(false);
    many.server = Some(Node::bind(Config { planes, ..config }).expect("the port is free again"));
    let before = std::mem::take(&mut many.ends);
    many.open();
    many.settle("the new one is another peer", |many| many.peers() == [2, 1]);
    for _ in 0..3 {
        let ended = many.until(0, |told| matches!(told, Completion::Closed { .. }));
        let Completion::Closed { connection, reason } = ended else { panic!("just seen") };
        assert!(before.iter().any(|end| end[0] == connection) && reason == Reason::PeerSilent);
    }
    many.open();
    many.settle("the new ones are watched as one", |many| many.peers() == [1, 1]);
    assert_eq!(many.caller.observe().connections(), 2);
}

/// Each side begins connections, and all of them lead to the same node.
#[test]
fn connections_that_either_side_began_are_watched_as_one() {
    let [mut first, mut second] = [(); 2].map(|()| Node::bind(config("uec", 2)).expect("sockets"));
    let addresses =
        [&first, &second].map(|node| -> Vec<_> { node.addresses().expect("bound").into_iter().map(v6).collect() });
    first.connect(&addresses[1]).expect("a call");
    let until = Instant::now() + PATIENCE;
    let mut told = 0;
    while told < 2 || first.observe().peers() != 1 || second.observe().peers() != 1 {
        told += usize::from(first.poll().is_some()) + usize::from(second.poll().is_some());
        if told == 2 {
            // The first connection is there: now one in the other direction, and another one.
            told += 1;
            second.connect(&addresses[0]).expect("a call");
            first.connect(&addresses[1]).expect("a call");
        }
        assert!(Instant::now() < until);
    }
    while told < 7 || first.observe().peers() != 1 || second.observe().peers() != 1 {
        told += usize::from(first.poll().is_some()) + usize::from(second.poll().is_some());
        assert!(
            Instant::now() < until,
            "{told} completions, {} and {} peers",
            first.observe().peers(),
            second.observe().peers()
        );
    }
}

/// The caller's addresses change under way, as behind a router that was started again: every connection moves on its
/// own, and all of them share one peer monitor again.
#[test]
fn connections_that_move_together_are_watched_as_one_again() {
    let config = config("uec", 1);
    let [mut caller, mut server] = [(); 2].map(|()| Node::bind(config.clone()).expect("sockets"));
    let home = caller.addresses().expect("bound")[0];
    let to = server.addresses().expect("bound")[0];
    let socket = || {
        let socket = std::net::UdpSocket::bind(support::local()).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        socket
    };
    let (front, mut back) = (socket(), socket());
    let at = v6(front.local_addr().expect("bound"));
    let until = Instant::now() + PATIENCE;
    let mut bytes = [0; 65_536];
    // Moves all waiting datagrams once; returns the completions of both nodes.
    let mut pump = |caller: &mut Node, server: &mut Node, back: &std::net::UdpSocket| {
        let told = [caller.poll(), server.poll()];
        while let Ok(length) = front.recv(&mut bytes) {
            back.send_to(&bytes[..length], to).expect("loopback takes it");
        }
        while let Ok(length) = back.recv(&mut bytes) {
            front.send_to(&bytes[..length], home).expect("loopback takes it");
        }
        assert!(Instant::now() < until, "{} and {} peers", caller.observe().peers(), server.observe().peers());
        told
    };
    let mut ends = Vec::new();
    for _ in 0..6 {
        let ours = caller.connect(&[at]).expect("a call");
        let (mut connected, mut theirs) = (false, None);
        while !connected || theirs.is_none() {
            let [first, second] = pump(&mut caller, &mut server, &back);
            connected |= first == Some(Completion::Connected { connection: ours });
            if let Some(Completion::Accepted { connection, .. }) = second {
                theirs = Some(connection);
            }
        }
        ends.push([ours, theirs.expect("checked above")]);
    }
    while (caller.observe().peers(), server.observe().peers()) != (1, 1) {
        pump(&mut caller, &mut server, &back);
    }
    back = socket();
    // Each connection sends from the new address, and is answered there.
    let outbox = caller.register(vec![1; 8]);
    let room = server.register(vec![0; 8]);
    for [ours, theirs] in ends {
        server.recv(theirs, room, 0..8).expect("room");
        caller.send(ours, outbox, 0..8).expect("posted");
        let (mut sent, mut received) = (false, false);
        while !(sent && received) {
            let [first, second] = pump(&mut caller, &mut server, &back);
            sent |= matches!(first, Some(Completion::Sent { .. }));
            received |= matches!(second, Some(Completion::Received { .. }));
        }
    }
    while (caller.observe().peers(), server.observe().peers()) != (1, 1) {
        pump(&mut caller, &mut server, &back);
    }
    assert_eq!((caller.observe().connections(), server.observe().connections()), (6, 6));
}

/// The datagram that announces a new receive is lost in some cases. Its connection asks again by itself, although the
/// pings of the peer monitor go by other connections in turn. If it waited for seconds each time, this test would take
/// minutes.
#[test]
fn lost_news_of_receives_is_told_again_soon() {
    let mut many = Many::new(&config("uec", 1), 8);
    many.settle("one peer on either side", |many| many.peers() == [1, 1]);
    many.wires[0].change(Impairment { loss: 0.15, ..Impairment::default() });
    let outbox = many.caller.register(vec![0; 8]);
    let room = many.server.as_mut().expect("there").register(vec![0; 8]);
    let began = Instant::now();
    for round in 0..400 {
        let [ours, theirs] = many.ends[round % 8];
        many.caller.send(ours, outbox, 0..8).expect("posted");
        // The send waits until the next receive is announced.
        many.pump();
        many.server.as_mut().expect("there").recv(theirs, room, 0..8).expect("room");
        many.until(0, |told| matches!(told, Completion::Sent { .. }));
        many.until(1, |told| matches!(told, Completion::Received { .. }));
        assert!(began.elapsed() < PATIENCE, "{round} rounds in a minute");
    }
    assert_eq!((many.caller.observe().connections(), many.peers()), (8, [1, 1]), "no peer is given up");
}

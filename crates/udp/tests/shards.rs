//! Connections spread over threads, by one port: each thread carries data, and all bytes arrive, once.

use super::support::{self, PATIENCE, config, local, over_ipv4, pattern, v6};
use std::collections::VecDeque;
use std::net::{SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};
use strandway_proto::ControlMessage;
use strandway_udp::frame::VERSION;
use strandway_udp::{Completion, Config, Connection, Error, Membership, Node, Protection};

const BYTES: usize = 200_000;

fn addresses(node: &Node) -> Vec<SocketAddrV6> {
    node.addresses().expect("bound").into_iter().map(v6).collect()
}

/// A host with several shards and one that calls, all moved by one thread.
struct Host {
    nodes: Vec<Node>,
    /// Completions of each node: the shards, then the caller.
    told: Vec<VecDeque<Completion>>,
}

impl Host {
    fn new(config: &Config, shards: usize) -> Host {
        let mut nodes = Node::bind_shards(config, shards).expect("sockets");
        nodes.push(
            Node::bind(Config { planes: vec![local(); config.planes.len()], ..config.clone() }).expect("sockets"),
        );
        Host { told: nodes.iter().map(|_| VecDeque::new()).collect(), nodes }
    }

    fn shards(&self) -> usize {
        self.nodes.len() - 1
    }

    fn caller(&mut self) -> &mut Node {
        self.nodes.last_mut().expect("there is one")
    }

    fn pump(&mut self) {
        for (node, told) in self.nodes.iter_mut().zip(&mut self.told) {
            told.extend(node.poll());
        }
    }

    /// Moves packets until a node has told this, and returns it.
    fn until(&mut self, which: usize, wanted: impl Fn(&Completion) -> bool) -> Completion {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.told[which].iter().position(&wanted) {
                return self.told[which].remove(at).expect("found above");
            }
            let nodes: Vec<_> =
                self.nodes.iter().map(|node| (node.observe().counters(), node.observe().plane_counters())).collect();
            assert!(Instant::now() < until, "nothing comes: {nodes:#?}");
            self.pump();
        }
    }

    fn run(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.pump();
        }
    }

    /// Connects the caller to a shard: the caller's end and the shard's.
    fn connect(&mut self, shard: usize) -> [Connection; 2] {
        let peer = addresses(&self.nodes[0]);
        let ours = self.caller().connect_to_shard(&peer, shard as u8).expect("a call");
        let Completion::Accepted { connection, .. } =
            self.until(shard, |told| matches!(told, Completion::Accepted { .. }))
        else {
            panic!("it was accepted")
        };
        self.until(self.shards(), |told| *told == Completion::Connected { connection: ours });
        [ours, connection]
    }

    /// Writes bytes of a pattern on each of these connections with shards at the same time, and compares what has
    /// arrived.
    fn write_all(&mut self, ends: &[(usize, [Connection; 2])], seed: u64) {
        let mut under_way = Vec::new();
        for (i, &(shard, [ours, theirs])) in ends.iter().enumerate() {
            let bytes = pattern(seed + i as u64, BYTES);
            let inbox = self.nodes[shard].register(vec![0; BYTES]);
            let remote = self.nodes[shard].expose(theirs, inbox, 0..BYTES).expect("a key");
            let outbox = self.caller().register(bytes.clone());
            let before = self.received(shard, theirs);
            self.caller().write(ours, outbox, 0..BYTES, remote, 0, Some(i as u32)).expect("posted");
            under_way.push((shard, theirs, inbox, bytes, before));
        }
        for (i, (shard, theirs, inbox, bytes, before)) in under_way.into_iter().enumerate() {
            let mine =
                |told: &Completion| matches!(told, Completion::Written { connection, .. } if *connection == theirs);
            let told = self.until(shard, mine);
            let whole = Completion::Written { connection: theirs, immediate: i as u32, bytes: BYTES as u64 };
            assert_eq!(told, whole);
            assert!(self.nodes[shard].memory(inbox).expect("registered") == bytes, "connection {i}");
            assert_eq!(self.received(shard, theirs) - before, BYTES as u64, "each byte arrives once");
        }
    }

    fn received(&self, shard: usize, connection: Connection) -> u64 {
        self.nodes[shard].observe().connection_counters(connection).expect("open").received_bytes.iter().sum()
    }
}

#[test]
fn one_port_serves_three_shards_and_each_gets_the_connections_that_ask_for_it() {
    for protection in [Protection::Encrypted, Protection::None] {
        let mut host = Host::new(&Config { protection, ..config("uec", 2) }, 3);
        for shard in 1..3 {
            assert_eq!(addresses(&host.nodes[shard]), addresses(&host.nodes[0]), "a peer sees one port per plane");
            assert_eq!(host.nodes[shard].shard(), shard as u8);
        }
        // In turn: the caller's first connection goes to any of them.
        let peer = addresses(&host.nodes[0]);
        for _ in 0..6 {
            host.caller().connect(&peer).expect("a call");
        }
        for shard in 0..3 {
            for _ in 0..2 {
                host.until(shard, |told| matches!(told, Completion::Accepted { .. }));
            }
        }
        let mut ends: Vec<_> = [2, 1, 0, 0, 1, 2].map(|shard| (shard, host.connect(shard))).into();
        host.write_all(&ends, 1);
        // Connections with one shard are watched as one peer. Shards do not know of each other.
        let until = Instant::now() + PATIENCE;
        while host.nodes.iter().map(|node| node.observe().peers()).ne([1, 1, 1, 3]) {
            assert!(
                Instant::now() < until,
                "{:?}",
                host.nodes.iter().map(|node| node.observe().peers()).collect::<Vec<_>>()
            );
            host.pump();
        }
        for node in &host.nodes {
            assert_eq!((node.observe().counters().strays, node.observe().counters().malformed), (0, 0));
        }
        // When a connection ends, those of other shards go on.
        let (shard, [ours, _]) = ends.remove(0);
        host.caller().close(ours).expect("open");
        host.until(shard, |told| matches!(told, Completion::Closed { .. }));
        host.write_all(&ends, 10);
    }
}

#[test]
fn one_port_of_ipv4_serves_three_shards() {
    over_ipv4(one_port_serves_three_shards_and_each_gets_the_connections_that_ask_for_it);
}

#[test]
fn forged_numbers_of_shards_and_connections_do_no_harm() {
    let mut host = Host::new(&config("uec", 1), 3);
    let ends: Vec<_> = (0..3).map(|shard| (shard, host.connect(shard))).collect();
    let stranger = UdpSocket::bind(local()).expect("a socket");
    let to = addresses(&host.nodes[0])[0];
    for shard in 0..=u8::MAX {
        for kind in 1..13 {
            // Numbers that end with every byte, wishes for every shard, urgent data, and datagrams that end before the
            // byte.
            let mut datagram = vec![shard; 1_400];
            (datagram[0], datagram[1]) = (VERSION << 4 | kind, u8::from(kind == 4 && shard % 2 == 1));
            for length in [1, 8, 24, 124, 1_400] {
                stranger.send_to(&datagram[..length], to).expect("sent");
            }
        }
        host.pump();
    }
    host.write_all(&ends, 1);
    let strays: Vec<u64> = host.nodes[..3].iter().map(|node| node.observe().counters().strays).collect();
    assert!(strays.iter().all(|&strays| strays > 0), "{strays:?}");
    for (node, accepted) in host.nodes.iter().zip([1, 1, 1, 3]) {
        assert_eq!(node.observe().connections(), accepted);
        assert_eq!(
            (node.observe().counters().handed_over, node.observe().counters().undelivered),
            (0, 0),
            "the kernel does as we do"
        );
    }
}

#[test]
fn a_host_may_come_back_with_another_number_of_shards() {
    let mut here = config("uec", 1);
    here.timeouts.peer = Duration::from_millis(500);
    let mut host = Host::new(&here, 3);
    host.connect(2);
    here.planes = addresses(&host.nodes[0]);
    assert!(matches!(Node::bind_shards(&here, 2), Err(Error::Socket { .. })), "the port is in use");
    assert!(matches!(Node::bind(here.clone()), Err(Error::Socket { .. })));
    for (shards, which) in [(2, 0), (1, 0), (4, 2)] {
        host.nodes.drain(..host.shards());
        let mut nodes = Node::bind_shards(&here, shards).expect("the port is free again");
        nodes.extend(host.nodes.pop());
        host = Host { told: nodes.iter().map(|_| VecDeque::new()).collect(), nodes };
        let caller = host.shards();
        host.until(caller, |told| matches!(told, Completion::Closed { .. }));
        // A wish is one modulo the number of shards.
        let peer = addresses(&host.nodes[0]);
        host.caller().connect_to_shard(&peer, 2).expect("a call");
        host.until(which, |told| matches!(told, Completion::Accepted { .. }));
        host.until(caller, |told| matches!(told, Completion::Connected { .. }));
    }
    for wrong in [0, 257] {
        assert!(matches!(Node::bind_shards(&config("uec", 1), wrong), Err(Error::Config(_))));
    }
}

#[test]
fn control_messages_of_a_team_reach_the_first_shard_whatever_their_sender_is_called() {
    let mut host = Host::new(&config("uec", 2), 2);
    let members = vec![addresses(&host.nodes[0]), addresses(&host.nodes[2])];
    for secret in 0..16 {
        let membership = |rank| Membership {
            team: 7,
            secret: [secret; 32],
            rank,
            members: members.clone(),
            port: Some(47_998),
            trees: 1,
        };
        // The number of a member is derived from the secret, so its last byte differs from team to team.
        let theirs = host.nodes[0].join(&membership(0)).expect("a group");
        let ours = host.caller().join(&membership(1)).expect("a group");
        assert!(matches!(host.nodes[1].join(&membership(0)), Err(Error::Config(_))), "only the first shard has teams");
        host.caller()
            .send_control_to_member(ours, 0, ControlMessage::Custom { kind: 9, words: [3; 4] }, false)
            .expect("said");
        host.until(0, |told| matches!(told, Completion::Word { group, from: 1, .. } if *group == theirs));
        host.nodes[0].leave(theirs).expect("joined");
        host.caller().leave(ours).expect("joined");
    }
    host.run(Duration::from_millis(1));
}

#[test]
fn an_older_kernel_has_shards_that_hand_over() {
    // There the kernel chooses a thread by addresses and ports, so one of them may carry most.
    support::run_without_features(&[
        "one_port_serves_three_shards_and_each_gets_the_connections_that_ask_for_it",
        "one_port_of_ipv4_serves_three_shards",
        "a_host_may_come_back_with_another_number_of_shards",
    ]);
}

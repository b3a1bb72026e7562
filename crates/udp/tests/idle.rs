//! Connections without work cost almost nothing.

use super::support::{PATIENCE, config, v6};
use std::io::Write;
use std::time::{Duration, Instant};
use strandway_udp::{Completion, Config, Connection, Node, Timeouts, Waiting};

/// Two nodes in this thread.
struct Two {
    caller: Node,
    server: Node,
}

impl Two {
    fn new(config: &Config) -> Two {
        let [caller, server] = [(); 2].map(|()| Node::bind(config.clone()).expect("sockets"));
        Two { caller, server }
    }

    /// Opens a connection; returns its handles at both ends.
    fn open(&mut self) -> [Connection; 2] {
        let to: Vec<_> = self.server.addresses().expect("bound").into_iter().map(v6).collect();
        let connection = self.caller.connect(&to).expect("a call");
        let until = Instant::now() + PATIENCE;
        let (mut connected, mut accepted) = (false, None);
        loop {
            match self.caller.poll() {
                Some(told) => connected |= told == Completion::Connected { connection },
                None if connected && accepted.is_some() => break,
                None => {}
            }
            if let Some(Completion::Accepted { connection, .. }) = self.server.poll() {
                accepted = Some(connection);
            }
            assert!(Instant::now() < until, "no connection");
        }
        [connection, accepted.expect("checked above")]
    }

    /// Lets both sleep and wake for a while.
    fn wait(&mut self, time: Duration) {
        std::thread::scope(|scope| {
            for node in [&mut self.caller, &mut self.server] {
                scope.spawn(move || {
                    let until = Instant::now() + time;
                    while let Some(left) = until.checked_duration_since(Instant::now()) {
                        assert_eq!(node.wait(left).expect("it can wait"), None, "nothing happens");
                    }
                });
            }
        });
    }

    fn visits(&self) -> u64 {
        self.caller.observe().counters().visits + self.server.observe().counters().visits
    }
}

#[test]
fn a_turn_looks_at_connections_that_have_something_to_do_and_at_no_others() {
    let mut two = Two::new(&Config {
        waiting: Waiting::Sleep,
        timeouts: Timeouts { peer: PATIENCE * 8, ..Timeouts::default() },
        ..config("uec", 1)
    });
    let ends: Vec<_> = (0..200).map(|_| two.open()).collect();
    let room = two.server.register(vec![0; 8]);
    let outbox = two.caller.register(vec![1; 8]);
    two.wait(Duration::from_millis(300));
    let before = two.visits();
    let [from, to] = ends[77];
    let began = Instant::now();
    for _ in 0..500 {
        two.server.recv(to, room, 0..8).expect("room");
        two.caller.send(from, outbox, 0..8).expect("posted");
        let (mut sent, mut received) = (false, false);
        while !(sent && received) {
            sent |= matches!(two.caller.poll(), Some(Completion::Sent { .. }));
            received |= matches!(two.server.poll(), Some(Completion::Received { .. }));
            assert!(began.elapsed() < PATIENCE, "a message is lost");
        }
    }
    let visits = two.visits() - before;
    // A few visits per message for the connection that works. If all 200 connections were visited in each of at least
    // 1,000 turns, there would be 200,000.
    assert!(visits < 40_000, "{visits} visits for 500 messages");
}

#[test]
fn a_node_that_slept_does_not_read_sockets_that_the_kernel_said_were_empty() {
    let mut node = Node::bind(Config { waiting: Waiting::Sleep, ..config("uec", 3) }).expect("sockets");
    let waits = 20;
    for _ in 0..waits {
        assert_eq!(node.wait(Duration::from_millis(1)).expect("it can wait"), None, "nobody calls");
    }
    for plane in node.observe().plane_counters() {
        // Before it sleeps, a node reads a plane's own socket and the one of urgent datagrams.
        assert!(plane.receive_calls <= 2 * waits, "{} calls in {waits} waits", plane.receive_calls);
    }
}

#[test]
fn a_turn_after_a_watched_descriptor_reads_what_came_meanwhile() {
    let two = &mut Two::new(&Config { waiting: Waiting::Sleep, ..config("uec", 2) });
    let to: Vec<_> = two.server.addresses().expect("bound").into_iter().map(v6).collect();
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    two.server.watch(std::sync::Arc::new(reader.into()));
    writer.write_all(b"x").expect("room");
    assert_eq!(two.server.wait(PATIENCE).expect("it can wait"), None, "the pipe ends the sleep");
    // The application looks at the pipe, and a caller comes meanwhile.
    two.caller.connect(&to).expect("a call");
    two.caller.poll();
    let received = |node: &Node| node.observe().plane_counters().iter().map(|plane| plane.received).sum::<u64>();
    assert_eq!(received(&two.server), 0);
    two.server.poll();
    assert!(received(&two.server) > 0, "the turn reads its sockets");
}

//! Connections between the same two nodes share one congestion window, if their profile has one per destination
//! (`mrc`).

use super::support::{self, PATIENCE, pattern, v6};
use std::net::SocketAddrV6;
use std::time::{Duration, Instant};
use strandway_proto::{Rate, Span};
use strandway_udp::impair::{Impairment, Wire};
use strandway_udp::{Completion, Config, Connection, Node, Region, RemoteRegion, SessionCounters};

const ROUND_TRIP: Duration = Duration::from_millis(40);

/// A path of 40 ms that holds 250 kB at its rate.
fn config(profile: &str) -> Config {
    let mut config = support::config(profile, 1);
    config.rate = Rate(50_000_000);
    config.base_rtt = Span::from_ms(40);
    config
}

struct Many {
    caller: Node,
    server: Node,
    inbox: Region,
    wires: Vec<Wire>,
    ends: Vec<Connection>,
    remotes: Vec<RemoteRegion>,
    told: Vec<Completion>,
}

impl Many {
    fn new(config: &Config, count: usize, bytes: usize) -> Many {
        Many::over(config, count, bytes, Impairment { delay: ROUND_TRIP / 2, ..Impairment::default() })
    }

    /// Opens `count` connections over a bad wire. Each connection gets its own range of one region.
    fn over(config: &Config, count: usize, bytes: usize, impairment: Impairment) -> Many {
        let [mut caller, mut server] = [(); 2].map(|()| Node::bind(config.clone()).expect("sockets"));
        let to = server.addresses().expect("bound").into_iter().map(v6);
        let wires: Vec<Wire> = to.map(|to| Wire::to(to, impairment, 1).expect("sockets")).collect();
        let fronts: Vec<SocketAddrV6> = wires.iter().map(Wire::front).collect();
        let inbox = server.register(vec![0; bytes * count]);
        let (mut ends, mut remotes, until) = (Vec::new(), Vec::new(), Instant::now() + PATIENCE);
        while remotes.len() < count || caller.observe().peers() > 1 || server.observe().peers() > 1 {
            // One after the other, so that keys and connections are in one order.
            if ends.len() == remotes.len() && ends.len() < count {
                ends.push(caller.connect(&fronts).expect("a call"));
            }
            caller.poll();
            if let Some(Completion::Accepted { connection, .. }) = server.poll() {
                let at = remotes.len() * bytes;
                remotes.push(server.expose(connection, inbox, at..at + bytes).expect("a key"));
            }
            assert!(Instant::now() < until, "{} peers, {} connections", caller.observe().peers(), remotes.len());
        }
        Many { caller, server, inbox, wires, ends, remotes, told: Vec::new() }
    }

    fn pump(&mut self) {
        self.told.extend(self.caller.poll());
        self.server.poll();
        std::thread::yield_now();
    }

    fn counters(&self) -> Vec<SessionCounters> {
        self.ends.iter().map(|&end| self.caller.observe().connection_counters(end).expect("open")).collect()
    }

    /// All connections send `bytes` each. Returns the most bytes that were in flight at a time, all connections
    /// together, and the least bytes that any connection had sent when the first one finished.
    fn transfer(&mut self, bytes: usize) -> (u64, u64) {
        let outbox = self.caller.register(vec![1; bytes]);
        for (&end, &remote) in self.ends.iter().zip(&self.remotes) {
            self.caller.write(end, outbox, 0..bytes, remote, 0, None).expect("posted");
        }
        let (mut most, mut least, until) = (0, None, Instant::now() + PATIENCE);
        while self.told.iter().filter(|told| matches!(told, Completion::Sent { .. })).count() < self.ends.len() {
            self.pump();
            let counters = self.counters();
            most = most.max(counters.iter().map(|one| one.in_flight.0).sum());
            if least.is_none() && self.told.iter().any(|told| matches!(told, Completion::Sent { .. })) {
                least = counters.iter().map(|one| one.fresh_bytes).min();
            }
            assert!(Instant::now() < until, "{counters:#?}");
        }
        self.told.clear();
        self.caller.deregister(outbox).expect("free");
        (most, least.expect("one was the first"))
    }
}

#[test]
fn connections_to_one_node_share_one_window_and_take_turns() {
    const COUNT: usize = 6;
    const BYTES: usize = 400_000;
    let mut alone = Many::new(&config("mrc"), 1, BYTES);
    let (one, _) = alone.transfer(BYTES);
    let mut many = Many::new(&config("mrc"), COUNT, BYTES);
    let (most, least) = many.transfer(BYTES);
    let window = many.counters().iter().map(|one| one.window.0).max().expect("some");
    // One packet may be in flight even if the window is smaller.
    assert!(most <= one.max(window) + 2_000, "{most} bytes were in flight; of a connection that is alone, {one}");
    assert!(least > BYTES as u64 / 2, "when the first had finished, the last had sent {least}");
    // Once more, with fewer connections: the bytes in flight of those that ended do not hold the others up.
    for end in many.ends.drain(2..).collect::<Vec<_>>() {
        many.caller.close(end).expect("open");
    }
    assert!(many.transfer(BYTES).0 <= one.max(window) + 2_000);
    // The last connection has a window of its own again.
    let last = many.ends.pop().expect("two are left");
    many.caller.close(last).expect("open");
    many.transfer(BYTES);
}

#[test]
fn windows_are_shared_by_profiles_that_say_so_and_no_others() {
    let mut many = Many::new(&config("uec"), 4, 400_000);
    let (most, _) = many.transfer(400_000);
    let window = many.counters().iter().map(|one| one.window.0).max().expect("some");
    assert!(most > 2 * window, "four windows of at most {window}: {most}");
}

/// A connection that ends in the middle of its turn leaves it to others.
#[test]
fn a_connection_that_is_closed_while_it_sends_holds_nobody_up() {
    let mut many = Many::new(&config("mrc"), 4, 2_000_000);
    let outbox = many.caller.register(vec![1; 2_000_000]);
    for i in 0..4 {
        many.caller.write(many.ends[i], outbox, 0..2_000_000, many.remotes[i], 0, None).expect("posted");
    }
    for _ in 0..3 {
        let until = Instant::now() + ROUND_TRIP * 2;
        while Instant::now() < until {
            many.pump();
        }
        let end = many.ends.remove(0);
        many.caller.close(end).expect("open");
        many.remotes.remove(0);
    }
    let until = Instant::now() + PATIENCE;
    while many.told.is_empty() {
        many.pump();
        assert!(Instant::now() < until, "{:#?}", many.counters());
    }
    assert!(matches!(many.told[..], [Completion::Sent { connection, .. }] if connection == many.ends[0]));
}

/// Losses, duplicates, packets out of order, and a plane that falls silent for a while: every connection gets all of
/// its bytes through.
#[test]
fn every_byte_arrives_over_a_bad_wire_while_the_window_is_shared() {
    const COUNT: usize = 5;
    const BYTES: usize = 150_001;
    let bad = Impairment {
        loss: 0.03,
        duplicate: 0.03,
        reorder: 0.05,
        hold: Duration::from_millis(3),
        delay: Duration::from_millis(1),
        ..Impairment::default()
    };
    let mut config = Config { planes: vec![support::local(); 2], ..config("mrc") };
    config.base_rtt = Span::from_ms(2);
    let mut many = Many::over(&config, COUNT, BYTES, bad);
    let source = pattern(3, COUNT * BYTES);
    let outbox = many.caller.register(source.clone());
    for (i, (&end, &remote)) in many.ends.iter().zip(&many.remotes).enumerate() {
        many.caller.write(end, outbox, i * BYTES..(i + 1) * BYTES, remote, 0, None).expect("posted");
    }
    let (began, until) = (Instant::now(), Instant::now() + PATIENCE);
    while many.told.len() < COUNT {
        many.pump();
        many.wires[1].silence((20..120).contains(&began.elapsed().as_millis()));
        assert!(Instant::now() < until, "{:#?}", many.counters());
    }
    assert!(many.told.iter().all(|told| matches!(told, Completion::Sent { .. })), "{:?}", many.told);
    assert!(many.server.memory(many.inbox).expect("registered") == source);
    assert!(many.counters().iter().all(|one| one.in_flight.0 == 0));
}

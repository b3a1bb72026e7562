//! Tests from within a node: its clock, and the sizes of its tables.

use super::*;
use crate::address::kept;
use crate::limits::Limits;
use std::time::Duration;
use strandway_proto::Time;

const DAY: Duration = Duration::from_secs(86_400);

/// Two nodes, and their completions so far.
struct Two {
    nodes: [Node; 2],
    told: [Vec<Completion>; 2],
}

impl Two {
    /// Lets both work until one of them has a wanted completion; forgets the completions before it.
    fn until(&mut self, which: usize, wanted: impl Fn(&Completion) -> bool) -> Completion {
        let began = std::time::Instant::now();
        loop {
            for (node, told) in self.nodes.iter_mut().zip(&mut self.told) {
                told.extend(node.poll());
            }
            if let Some(at) = self.told[which].iter().position(&wanted) {
                return self.told[which].drain(..=at).next_back().expect("found above");
            }
            assert!(began.elapsed() < Duration::from_secs(60), "nothing comes");
        }
    }
}

#[test]
fn a_node_outlives_its_clock_and_a_connection_ends_before_its_own() {
    let config = Config::new(&[7; 32]).expect("long enough").plane("[::1]:0".parse().expect("an address"));
    let nodes = [(); 2].map(|()| Node::bind(config.clone()).expect("sockets"));
    let address = kept(nodes[1].addresses().expect("bound")[0]);
    let mut two = Two { nodes, told: Default::default() };
    // Both have been running for a long time.
    two.nodes.iter_mut().for_each(|node| node.clock.make_older(DAY * 95));
    let old = two.nodes[0].connect(&[address]).expect("a call");
    two.until(1, |told| matches!(told, Completion::Accepted { .. }));
    // The connection has unfinished work all the time.
    let region = two.nodes[0].register(vec![0; 8]);
    two.nodes[0].send(old, region, 0..8).expect("posted");
    for days in [99, 2, 90] {
        two.nodes.iter_mut().for_each(|node| node.clock.make_older(DAY * days));
        // The old connection stays open, and a new one can be opened.
        let new = two.nodes[0].connect(&[address]).expect("a call");
        two.until(0, |told| *told == Completion::Connected { connection: new });
        two.until(1, |told| matches!(told, Completion::Accepted { .. }));
        two.nodes[0].close(new).expect("open");
        two.until(1, |told| matches!(told, Completion::Closed { .. }));
        assert!(two.nodes[0].observe().connection_counters(old).is_ok(), "{days}");
    }
    assert!(two.nodes.iter().all(|node| node.clock.now() < Time::ZERO + span(DAY * 100)));
    assert!(two.nodes[0].observe().uptime() >= DAY * 286);
    two.nodes.iter_mut().for_each(|node| node.clock.make_older(DAY * 10));
    let ended = two.until(0, |told| matches!(told, Completion::Closed { .. }));
    assert_eq!(ended, Completion::Closed { connection: old, reason: Reason::Aged });
    let new = two.nodes[0].connect(&[address]).expect("a call");
    two.until(0, |told| *told == Completion::Connected { connection: new });
}

#[test]
fn connections_that_are_over_leave_nothing_behind() {
    let config = Config {
        limits: Limits { connections: 4, ..Limits::default() },
        ..Config::new(&[7; 32]).expect("long enough")
    };
    let config = config.plane("[::1]:0".parse().expect("an address"));
    let nodes = [(); 2].map(|()| Node::bind(config.clone()).expect("sockets"));
    let address = kept(nodes[1].addresses().expect("bound")[0]);
    let mut two = Two { nodes, told: Default::default() };
    for round in 0..400 {
        let ours = two.nodes[0].connect(&[address]).expect("a call");
        two.until(0, |told| *told == Completion::Connected { connection: ours });
        let Completion::Accepted { connection: theirs, .. } =
            two.until(1, |told| matches!(told, Completion::Accepted { .. }))
        else {
            panic!("it was accepted")
        };
        let (closes, hears, which) = if round % 2 == 0 { (0, 1, ours) } else { (1, 0, theirs) };
        two.nodes[closes].close(which).expect("open");
        two.until(hears, |told| matches!(told, Completion::Closed { .. }));
    }
    for node in &two.nodes {
        assert_eq!(
            (
                node.table.open,
                node.observe().peers(),
                node.table.ids.len(),
                node.table.unconfirmed.len(),
                node.turns.deadlines.len()
            ),
            (0, 0, 0, 0, 0)
        );
        assert!(
            node.table.slots.len() <= 4
                && node.table.free.len() == node.table.slots.len()
                && node.turns.ready.len() <= 4
        );
        assert!(node.greeting.answered.len() <= 4 * 4, "{} answers", node.greeting.answered.len());
    }
}

#[test]
fn a_plane_whose_socket_is_full_at_times_is_not_silent() {
    let at = || "[::1]:0".parse().expect("an address");
    let config = Config::new(&[7; 32]).expect("long enough").plane(at()).plane(at());
    let nodes = [(); 2].map(|()| Node::bind(config.clone()).expect("sockets"));
    let to: Vec<_> = nodes[1].addresses().expect("bound").into_iter().map(kept).collect();
    let mut two = Two { nodes, told: Default::default() };
    let connection = two.nodes[0].connect(&to).expect("a call");
    two.until(1, |told| matches!(told, Completion::Accepted { .. }));
    let region = two.nodes[0].register(vec![0; 8]);
    two.nodes[0].send(connection, region, 0..8).expect("posted");
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_millis(400) {
        // The last turn's datagrams filled its socket; they have left since.
        two.nodes[0].planes[0].fill_socket();
        for node in &mut two.nodes {
            node.poll();
        }
    }
    let counters = two.nodes[0].observe().connection_counters(connection).expect("open");
    assert_eq!((counters.up, counters.silences), (vec![true; 2], vec![0; 2]));
}

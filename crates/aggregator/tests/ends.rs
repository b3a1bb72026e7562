//! Ranks that end right after an operation: what one of them was told has succeeded has succeeded at all, although
//! control messages between them are lost.

use super::common::{Running, SILENCE, esa, numbers, options, reduce, run, sums, switch, systems};
use crate::support::{config, v6};
use std::net::SocketAddrV6;
use std::time::Duration;
use strandway_group::aggregation::{By, NetworkOptions, Why};
use strandway_group::{GroupError, Options, Team};
use strandway_proto::Rate;
use strandway_udp::Node;
use strandway_udp::impair::{Impairment, Wire};

/// The ranks of a team whose control messages to each other get lost; each ends as soon as `each` has returned.
fn lossy<T: Send>(ranks: u32, loss: f64, seed: u64, each: impl Fn(&mut Team) -> T + Sync) -> Vec<T> {
    let mut config = config("uec", 1);
    (config.timeouts.peer, config.timeouts.handshake) = (SILENCE, SILENCE);
    let nodes: Vec<Node> = (0..ranks).map(|_| Node::bind(config.clone()).expect("sockets")).collect();
    let at: Vec<SocketAddrV6> = nodes.iter().map(|node| v6(node.addresses().expect("bound")[0])).collect();
    let impairment = Impairment { loss, ..Impairment::default() };
    // Each rank reaches each other one by a wire of its own.
    let wires: Vec<Vec<Option<Wire>>> = (0..ranks)
        .map(|from| {
            let wire =
                |to: u32| Wire::to(at[to as usize], impairment, seed + u64::from(10 * from + to)).expect("sockets");
            (0..ranks).map(|to| (to != from).then(|| wire(to))).collect()
        })
        .collect();
    let options = Options { no_multicast: true, patience: Duration::from_secs(30), ..Options::new(Rate::from_gbps(1)) };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(nodes)
            .map(|(rank, node)| {
                let seen = |(to, wire): (usize, &Option<Wire>)| vec![wire.as_ref().map_or(at[to], Wire::front)];
                let members: Vec<Vec<SocketAddrV6>> = wires[rank as usize].iter().enumerate().map(seen).collect();
                let each = &each;
                scope.spawn(move || {
                    let mut team = Team::form(node, rank, members, options, &|| false).expect("it forms");
                    let done = each(&mut team);
                    team.end(&|| false).expect("it ends");
                    done
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn an_operation_that_succeeded_at_one_rank_succeeds_at_all_even_if_each_ends_at_once() {
    for (seed, system) in (0..).zip(systems()).cycle().take(10) {
        let serving = Running::start(switch(system, 1));
        let admission = serving.admissions[0];
        let done = lossy(3, 0.3, 100 * seed, |team| {
            let mut network = team.join_switch(options(admission, 1), &|| false)?;
            let mut buffer = numbers(team.rank(), 1_000, 1);
            let reduced = team.all_reduce(&mut network, &mut buffer, &|| false)?;
            assert_eq!(reduced.by, By::Switch);
            assert_eq!(buffer, sums(3, 1_000, 1));
            Ok::<(), GroupError>(())
        });
        let failed: Vec<String> = done.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
        assert!(failed.is_empty(), "{}: {failed:?}", system.name());
    }
}

#[test]
fn a_ring_s_sums_and_a_barrier_reach_all_ranks_even_if_each_ends_at_once() {
    for seed in 0..4 {
        let serving = Running::start(switch(esa(), 1));
        let admission = serving.admissions[0];
        let stopped = std::sync::Mutex::new(Some(serving));
        let done = lossy(3, 0.2, 1_000 + 100 * seed, |team| {
            let mut network = team.join_switch(options(admission, 1), &|| false)?;
            team.barrier(&|| false)?;
            if team.rank() == 0 {
                drop(stopped.lock().expect("no panic").take());
            }
            let mut buffer = numbers(team.rank(), 3_000, 2);
            team.all_reduce(&mut network, &mut buffer, &|| false)?;
            assert_eq!(buffer, sums(3, 3_000, 2));
            Ok::<(), GroupError>(())
        });
        let failed: Vec<String> = done.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
        assert!(failed.is_empty(), "{failed:?}");
    }
}

#[test]
fn ranks_that_have_their_sums_wait_for_one_that_is_still_at_work() {
    let switch = Running::start(switch(esa(), 1));
    let admission = switch.admissions[0];
    let ways = run(3, |mut team| {
        // Nothing that the switch sends arrives at one rank, which finds out when its patience is over, and that is
        // longer.
        let deaf = team.rank() == 1;
        let loss = if deaf { 1.0 } else { 0.0 };
        let mut network =
            team.join_switch(NetworkOptions { loss, ..options(admission, 1) }, &|| false).expect("it lets us in");
        team.set_patience(Duration::from_secs(if deaf { 10 } else { 4 }));
        reduce(&mut team, &mut network, 1_000, 1).by
    });
    assert_eq!(ways, [By::Ring { rank: 1, why: Why::Stalled }; 3]);
}

//! Teams of real nodes in one process, with a thread for each rank.

use super::support::{self, cast_address, config, in_multicast_namespace, over_ipv4, pattern, v6};
use std::net::SocketAddrV6;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use strandway_collective::{Algorithm, Schedule};
use strandway_group::bench::{Bench, Method, Row};
use strandway_group::{Done, GroupError, Options, Team, What};
use strandway_proto::Rate;
use strandway_udp::{Config, Node};

fn two_planes(address: SocketAddrV6) -> Config {
    let mut config = config("uec", 2);
    config.planes = vec![address; 2];
    config
}

fn options() -> Options {
    Options { trees: 2, port: 47_998, ..Options::new(Rate::from_gbps(1)) }
}

/// Runs `each` as every rank of a team, each on its own thread; returns the results.
fn run<T: Send>(
    ranks: u32,
    address: SocketAddrV6,
    options: impl Fn(u32) -> Options + Sync,
    each: impl Fn(Result<Team, GroupError>) -> T + Sync,
) -> Vec<T> {
    let nodes: Vec<Node> = (0..ranks).map(|_| Node::bind(two_planes(address)).expect("sockets")).collect();
    let members: Vec<Vec<SocketAddrV6>> =
        nodes.iter().map(|node| node.addresses().expect("bound").into_iter().map(v6).collect()).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(nodes)
            .map(|(rank, node)| {
                let (members, options, each) = (members.clone(), options(rank), &each);
                scope.spawn(move || each(Team::form(node, rank, members, options, &|| false)))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Ports that a process which does not share them has.
fn taken(ports: std::ops::Range<u16>) -> Vec<std::net::UdpSocket> {
    ports.map(|port| std::net::UdpSocket::bind(("::", port)).expect("a free port")).collect()
}

#[test]
fn a_team_steps_over_ports_that_are_taken() {
    if !in_multicast_namespace("a_team_steps_over_ports_that_are_taken") {
        return;
    }
    let form = || run(3, cast_address(), |_| options(), |team| team.map(|team| team.multicast_planes()));
    let mut others = taken(47_998..48_001);
    assert_eq!(form().into_iter().map(|planes| planes.expect("it forms")).collect::<Vec<_>>(), [0b11; 3]);
    others.extend(taken(48_001..47_998 + Options::PORTS));
    for failed in form() {
        let error = failed.expect_err("no port is left").to_string();
        assert!(error.contains("UDP ports 47998 to 48013 are taken"), "{error}");
    }
}

#[test]
fn a_team_without_multicast_leaves_the_port_alone() {
    if !in_multicast_namespace("a_team_without_multicast_leaves_the_port_alone") {
        return;
    }
    let _others = taken(47_998..47_998 + Options::PORTS);
    let all = pattern(5, 100_000);
    // One rank says so; the others would use it.
    let counts = run(
        3,
        cast_address(),
        |rank| Options { no_multicast: rank == 1, ..options() },
        |team| {
            let mut team = team.expect("it forms");
            assert_eq!(team.multicast_planes(), 0);
            let mine = if team.rank() == 0 { all.clone() } else { vec![0; all.len()] };
            let region = team.node_mut().register(mine);
            let whole = 0..all.len();
            team.multicast(What::Broadcast { root: 0 }, region, whole, &|| false).expect("a chain does it");
            assert!(team.node().memory(region).expect("there") == all, "rank {}", team.rank());
            team.rank()
        },
    );
    assert_eq!(counts, [0, 1, 2]);
}

#[test]
fn everybody_gets_every_share_and_every_broadcast() {
    if !in_multicast_namespace("everybody_gets_every_share_and_every_broadcast") {
        return;
    }
    let all = pattern(3, 300_001);
    let counts = run(
        5,
        cast_address(),
        |_| options(),
        |team| {
            let mut team = team.expect("it forms");
            assert_eq!((team.multicast_planes(), team.ranks()), (0b11, 5));
            let layout = team.layout(What::AllGather, all.len() as u64).expect("few chunks");
            let mut done = Vec::new();
            for round in 0..3 {
                let mut mine = vec![0; all.len()];
                let (first, length) = layout.share(team.rank());
                let own = first as usize..(first + length) as usize;
                mine[own.clone()].copy_from_slice(&all[own]);
                let region = team.node_mut().register(mine);
                done.push(team.multicast(What::AllGather, region, 0..all.len(), &|| false).expect("it works"));
                assert!(team.node().memory(region).expect("there") == all, "rank {} round {round}", team.rank());
                let root = round % team.ranks();
                let wanted = pattern(u64::from(round) + 9, 50_000);
                let mine = if team.rank() == root { wanted.clone() } else { vec![0; wanted.len()] };
                let region = team.node_mut().register(mine);
                done.push(
                    team.multicast(What::Broadcast { root }, region, 0..wanted.len(), &|| false).expect("it works"),
                );
                assert!(team.node().memory(region).expect("there") == wanted, "rank {} round {round}", team.rank());
                team.node_mut().deregister(region).expect("free");
            }
            done
        },
    );
    assert!(counts.iter().flatten().all(|done: &Done| done.complete <= done.closed && done.complete > Duration::ZERO));
}

#[test]
fn everybody_gets_every_share_and_every_broadcast_over_ipv4() {
    over_ipv4(everybody_gets_every_share_and_every_broadcast);
}

#[test]
fn where_nothing_carries_multicast_the_team_says_so_and_chunks_go_from_rank_to_rank() {
    // Loopback carries no multicast.
    let ways = [Method::Multicast(What::AllGather), Method::Multicast(What::Broadcast { root: 1 })];
    let rows = run(
        4,
        support::local(),
        |_| options(),
        |team| {
            let mut team = team.expect("it forms");
            assert_eq!(team.multicast_planes(), 0);
            let mut rows: Vec<Row> = Vec::new();
            for way in ways {
                let bench = Bench { way, first: 1_000, last: 300_000, factor: 300, warmup: 0, runs: 2, check: true };
                bench.run(&mut team, &|| false, |row| rows.push(*row)).expect("it runs");
            }
            rows
        },
    );
    assert!(rows.iter().all(|rows| rows.len() == 4 && rows.iter().all(|row| row.right == Some(true))), "{rows:?}");
}

#[test]
fn ranks_that_were_started_differently_are_named() {
    let odd = |rank| Options { trees: if rank == 2 { 3 } else { 2 }, patience: Duration::from_secs(5), ..options() };
    let errors = run(3, support::local(), odd, |team| team.err().map(|error| error.to_string()));
    let first = errors[0].as_deref().expect("rank 0 finds out");
    assert_eq!(first, "rank 2 has a number of trees of 3, rank 0 has 2: start all ranks alike");
    assert!(errors.iter().all(Option::is_some));
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let node = Node::bind(two_planes(support::local())).expect("sockets");
    let ours: Vec<SocketAddrV6> = node.addresses().expect("bound").into_iter().map(v6).collect();
    let members = vec![ours.clone(), ours];
    let options = Options { patience: Duration::from_millis(300), ..options() };
    let began = Instant::now();
    let error = Team::form(node, 0, members, options, &|| false).err().expect("no rank comes");
    assert!(matches!(&error, GroupError::Missing { ranks, .. } if ranks == &[1]), "{error}");
    assert!(began.elapsed() >= Duration::from_millis(300));
}

#[test]
fn a_team_of_one_ends_at_once() {
    let began = Instant::now();
    let ends = run(1, support::local(), |_| options(), |team| team?.end(&|| began.elapsed() > Duration::from_secs(20)));
    assert!(matches!(ends[..], [Ok(())]), "{ends:?}");
}

#[test]
fn a_rank_that_does_not_come_to_a_collective_is_named_alone() {
    let (formed, over) = (Barrier::new(3), Barrier::new(3));
    let missing = run(
        3,
        support::local(),
        |_| options(),
        |team| {
            let mut team = team.expect("it forms");
            formed.wait();
            let mut missing = vec![1];
            if team.rank() != 1 {
                // Rank 0 sends to rank 1, and rank 2 receives from it.
                team.set_patience(Duration::from_secs(5));
                let ring = Schedule::new(Algorithm::RingAllReduce, 3, 3_000, 1).expect("a ring");
                missing = match team.prepare(ring, &|| false) {
                    Err(GroupError::Missing { ranks, .. }) => ranks,
                    other => panic!("{:?}", other.map(drop)),
                };
            }
            over.wait();
            missing
        },
    );
    assert_eq!(missing, [[1]; 3]);
}

#[test]
fn a_rank_that_dies_is_named_by_all_others() {
    if !in_multicast_namespace("a_rank_that_dies_is_named_by_all_others") {
        return;
    }
    let formed = Barrier::new(4);
    let named = run(
        4,
        cast_address(),
        |_| options(),
        |team| {
            let mut team = team.expect("it forms");
            formed.wait();
            if team.rank() == 2 {
                return 2;
            }
            team.set_patience(Duration::from_millis(800));
            let region = team.node_mut().register(vec![0; 100_000]);
            match team.multicast(What::AllGather, region, 0..100_000, &|| false) {
                Err(GroupError::Dead { rank }) => {
                    // From then on the call fails at once.
                    let again = team.multicast(What::AllGather, region, 0..100_000, &|| false);
                    assert!(matches!(again, Err(GroupError::Dead { rank: 2 })));
                    rank
                }
                other => panic!("{other:?}"),
            }
        },
    );
    assert_eq!(named, [2; 4]);
}

#[test]
fn collectives_of_messages_and_of_multicast_give_what_arithmetic_says() {
    if !in_multicast_namespace("collectives_of_messages_and_of_multicast_give_what_arithmetic_says") {
        return;
    }
    let ways = [
        Method::Messages(Algorithm::RingAllReduce),
        Method::Messages(Algorithm::HalvingDoubling),
        Method::Messages(Algorithm::RingReduceScatter),
        Method::Messages(Algorithm::RingAllGather),
        Method::Messages(Algorithm::RecursiveDoubling),
        Method::Messages(Algorithm::LinearAllGather),
        Method::Messages(Algorithm::AllToAll { window: 2 }),
        Method::Multicast(What::AllGather),
        Method::Multicast(What::Broadcast { root: 3 }),
    ];
    let rows = run(
        4,
        cast_address(),
        |_| options(),
        |team| {
            let mut team = team.expect("it forms");
            let mut rows: Vec<(usize, Row)> = Vec::new();
            for (which, way) in ways.into_iter().enumerate() {
                let bench = Bench { way, first: 64, last: 65_536, factor: 32, warmup: 1, runs: 5, check: true };
                assert_eq!(bench.sizes().collect::<Vec<_>>(), [64, 2_048, 65_536]);
                bench.run(&mut team, &|| false, |row| rows.push((which, *row))).expect("it runs");
            }
            rows
        },
    );
    for (rank, rows) in rows.iter().enumerate() {
        assert_eq!(rows.len(), 3 * ways.len());
        for (which, row) in rows {
            assert_eq!(row.right, Some(true), "rank {rank}: {:?} {row:?}", ways[*which]);
            assert!(row.min <= row.p50 && row.p50 <= row.max && row.min > Duration::ZERO);
        }
    }
}

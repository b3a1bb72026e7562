//! Teams that add up by a switch, in one process: exact sums under losses, and what happens when somebody dies.

#[path = "../../udp/tests/support/mod.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod support;

use std::net::SocketAddrV6;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use strandway_group::aggregation::{
    By, InNetwork, JobConfig, NetworkOptions, Reduced, Switch, SwitchConfig, SwitchStatus, Why,
};
use strandway_group::{GroupError, Options, Team};
use strandway_proto::Rate;
use strandway_switch::{Esa, ResultPath, System};
use strandway_udp::Node;
use support::{config, v6};

const KEY: &[u8] = b"a key that the workers of a job know";

fn esa() -> System {
    System::Esa(Esa::default())
}

fn systems() -> [System; 5] {
    let via = |results| System::Esa(Esa { results, ..Esa::default() });
    [
        esa(),
        via(ResultPath::ViaServer),
        via(ResultPath::ViaServerFree),
        System::Atp,
        System::SwitchMl { strict_order: true },
    ]
}

fn job(number: u16) -> JobConfig {
    JobConfig { number, key: [KEY, &number.to_be_bytes()].concat(), share: 0.75 }
}

fn switch(system: System, jobs: u16) -> SwitchConfig {
    let config = SwitchConfig::new("[::1]:0".parse().expect("an address"), system);
    SwitchConfig { jobs: (1..=jobs).map(job).collect(), slots: 256, socket_buffer: 4 << 20, ..config }
}

/// A switch that serves on a thread until it is dropped.
struct Running {
    stop: std::sync::Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<SwitchStatus>>,
    doors: Vec<SocketAddrV6>,
}

impl Running {
    fn start(config: SwitchConfig) -> Running {
        let jobs: Vec<u16> = config.jobs.iter().map(|job| job.number).collect();
        let mut switch = Switch::start(config).expect("it starts");
        let doors = jobs.iter().map(|&job| switch.door(job).expect("a door")).collect();
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let ended = std::sync::Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                switch.turn(Duration::from_millis(5)).expect("sockets work");
            }
            switch.status()
        });
        Running { stop, thread: Some(thread), doors }
    }

    fn end(mut self) -> SwitchStatus {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it runs").join().expect("no panic")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn options(door: SocketAddrV6, number: u16) -> NetworkOptions {
    NetworkOptions { lanes: 64, window: 64, ..NetworkOptions::new(door, job(number).key) }
}

/// Runs `each` as every rank of a team, on a thread of its own; what they return.
fn run<T: Send>(ranks: u32, each: impl Fn(Team) -> T + Sync) -> Vec<T> {
    let nodes: Vec<Node> = (0..ranks).map(|_| Node::bind(config("uec", 1)).expect("sockets")).collect();
    let members: Vec<Vec<SocketAddrV6>> =
        nodes.iter().map(|node| node.addresses().expect("bound").into_iter().map(v6).collect()).collect();
    let options = Options { no_multicast: true, patience: Duration::from_secs(8), ..Options::new(Rate::from_gbps(1)) };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(nodes)
            .map(|(rank, node)| {
                let (members, each) = (members.clone(), &each);
                scope.spawn(move || each(Team::form(node, rank, members, options, &|| false).expect("it forms")))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// A rank's number at a place: a multiple of 1/64, so that sums are exact as integers and as floats.
fn number(rank: u32, place: usize, round: u32) -> f32 {
    let mixed = (place as u32).wrapping_mul(2_654_435_761).wrapping_add(rank * 97 + round * 31) >> 16;
    (mixed % 1_024) as f32 / 64.0 - 8.0
}

fn numbers(rank: u32, length: usize, round: u32) -> Vec<f32> {
    (0..length).map(|place| number(rank, place, round)).collect()
}

fn sums(ranks: u32, length: usize, round: u32) -> Vec<f32> {
    (0..length).map(|place| (0..ranks).map(|rank| number(rank, place, round)).sum()).collect()
}

fn reduce(team: &mut Team, network: &mut InNetwork, length: usize, round: u32) -> Reduced {
    let (rank, ranks) = (team.rank(), team.ranks());
    let mut buffer = numbers(rank, length, round);
    let reduced = team.all_reduce(network, &mut buffer, &|| false).expect("it works");
    let right = sums(ranks, length, round);
    let wrong = buffer.iter().zip(&right).position(|(a, b)| a != b);
    assert_eq!(wrong, None, "rank {rank} round {round} {}: {wrong:?}", reduced.by);
    reduced
}

#[test]
fn all_systems_add_buffers_of_any_length_exactly() {
    for system in systems() {
        let switch = Running::start(switch(system, 1));
        let door = switch.doors[0];
        run(3, |mut team| {
            let mut network = team.join_switch(options(door, 1), &|| false).expect("it lets us in");
            assert_eq!(network.system(), Some(system.name()));
            for (round, length) in [1, 63, 64, 65, 10_000, 0, 40_001].into_iter().enumerate() {
                let reduced = reduce(&mut team, &mut network, length, round as u32);
                assert_eq!((reduced.by, reduced.floats), (By::Switch, 0), "{}", system.name());
            }
            let mut halves: Vec<u16> = (0..500).map(|i| (number(team.rank(), i, 0).to_bits() >> 16) as u16).collect();
            let right: Vec<f32> = (0..500)
                .map(|i| (0..3).map(|rank| f32::from_bits(number(rank, i, 0).to_bits() & 0xffff_0000)).sum())
                .collect();
            team.all_reduce_bf16(&mut network, &mut halves, &|| false).expect("it works");
            let near =
                |(half, sum): (&u16, &f32)| (f32::from_bits(u32::from(*half) << 16) - sum).abs() <= sum.abs() / 256.0;
            assert!(halves.iter().zip(&right).all(near));
        });
        let status = switch.end();
        let counts = status.ports[0].jobs[&1].2;
        assert!(counts.completed + counts.server_completed >= 700, "{}: {counts:?}", system.name());
        assert_eq!((status.ports[0].refused, status.ports[0].odd), (0, 0));
    }
}

#[test]
fn sums_are_exact_while_fragments_are_lost() {
    for system in systems() {
        for (loss, ports) in [(0.003, 1), (0.03, 2)] {
            let switch = Running::start(SwitchConfig { loss, ports, ..switch(system, 1) });
            let door = switch.doors[0];
            run(3, |mut team| {
                let options = NetworkOptions { loss, ..options(door, 1) };
                let mut network = team.join_switch(options, &|| false).expect("it lets us in");
                for round in 0..3 {
                    let reduced = reduce(&mut team, &mut network, 64 * 700 + 5, round);
                    assert_eq!(reduced.by, By::Switch, "{} loses {loss}", system.name());
                }
            });
        }
    }
}

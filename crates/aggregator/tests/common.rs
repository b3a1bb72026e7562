//! Switches on threads, teams of threads, and buffers whose sums are known.

use crate::support::{config, local, v6};
use std::net::SocketAddrV6;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strandway_aggregator::{JobConfig, Switch, SwitchConfig, SwitchStatus};
use strandway_group::aggregation::{By, InNetwork, NetworkOptions, Reduced};
use strandway_group::{Options, Team};
use strandway_proto::Rate;
use strandway_switch::{Esa, ResultPath, System};
use strandway_udp::Node;

pub(crate) const KEY: &[u8] = b"a key that the workers of a job know";

/// Longer than a busy machine keeps a thread waiting. Switches and ranks of these tests that end say so.
pub(crate) const SILENCE: Duration = Duration::from_secs(20);

pub(crate) fn esa() -> System {
    System::Esa(Esa::default())
}

pub(crate) fn systems() -> [System; 5] {
    let via = |results| System::Esa(Esa { results, ..Esa::default() });
    [
        esa(),
        via(ResultPath::ViaServer),
        via(ResultPath::ViaServerFree),
        System::Atp,
        System::SwitchMl { strict_order: true },
    ]
}

pub(crate) fn job(number: u16) -> JobConfig {
    JobConfig { number, key: [KEY, &number.to_be_bytes()].concat(), share: 0.75 }
}

pub(crate) fn switch(system: System, jobs: u16) -> SwitchConfig {
    let config = SwitchConfig::new(local(), system);
    SwitchConfig { jobs: (1..=jobs).map(job).collect(), slots: 256, silence: SILENCE, socket_buffer: 4 << 20, ..config }
}

/// A switch that serves on a thread until it is dropped.
pub(crate) struct Running {
    stop: std::sync::Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<SwitchStatus>>,
    pub(crate) admissions: Vec<SocketAddrV6>,
}

impl Running {
    pub(crate) fn start(config: SwitchConfig) -> Running {
        let jobs: Vec<u16> = config.jobs.iter().map(|job| job.number).collect();
        let mut switch = Switch::start(config).expect("it starts");
        let admissions = jobs.iter().map(|&job| switch.admission(job).expect("an admission address")).collect();
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let ended = std::sync::Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                switch.turn(Duration::from_millis(5)).expect("sockets work");
            }
            switch.status()
        });
        Running { stop, thread: Some(thread), admissions }
    }

    pub(crate) fn end(mut self) -> SwitchStatus {
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

pub(crate) fn options(admission: SocketAddrV6, number: u16) -> NetworkOptions {
    let patience = Duration::from_secs(10);
    NetworkOptions {
        elements: 64,
        window: 64,
        patience,
        silence: SILENCE,
        ..NetworkOptions::new(admission, job(number).key)
    }
}

/// Asserts that a team of two cannot join, and that `enough` accepts what its ranks say. A rank has its reason only
/// when its patience ends, and on a busy machine no answer comes in a short time: so the patience grows.
pub(crate) fn assert_refused(options: &NetworkOptions, enough: impl Fn(&[Option<String>]) -> bool) {
    let mut errors = Vec::new();
    for tenths in [4, 16, 64, 128] {
        let options = NetworkOptions { patience: Duration::from_millis(100 * tenths), ..options.clone() };
        errors = run(2, |mut team| team.join_switch(options.clone(), &|| false).err().map(|error| error.to_string()));
        assert!(errors.iter().all(Option::is_some), "nobody is let in");
        if enough(&errors) {
            return;
        }
    }
    panic!("{errors:?}");
}

/// Runs `each` as every rank of a team, each on its own thread; returns the results.
pub(crate) fn run<T: Send>(ranks: u32, each: impl Fn(Team) -> T + Sync) -> Vec<T> {
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
pub(crate) fn number(rank: u32, place: usize, round: u32) -> f32 {
    let mixed = (place as u32).wrapping_mul(2_654_435_761).wrapping_add(rank * 97 + round * 31) >> 16;
    (mixed % 1_024) as f32 / 64.0 - 8.0
}

pub(crate) fn numbers(rank: u32, length: usize, round: u32) -> Vec<f32> {
    (0..length).map(|place| number(rank, place, round)).collect()
}

pub(crate) fn sums(ranks: u32, length: usize, round: u32) -> Vec<f32> {
    (0..length).map(|place| (0..ranks).map(|rank| number(rank, place, round)).sum()).collect()
}

pub(crate) fn reduce(team: &mut Team, network: &mut InNetwork, length: usize, round: u32) -> Reduced {
    let (rank, ranks) = (team.rank(), team.ranks());
    let mut buffer = numbers(rank, length, round);
    let reduced = team.all_reduce(network, &mut buffer, &|| false).expect("it works");
    let right = sums(ranks, length, round);
    let wrong = buffer.iter().zip(&right).position(|(a, b)| a != b);
    assert_eq!(wrong, None, "rank {rank} round {round} {}: {wrong:?}", reduced.by);
    reduced
}

/// The number of rounds in which a lost switch is tried again twice: after 16 operations, and after 32 more.
pub(crate) const ROUNDS: u32 = 53;

/// Runs rounds until the switch adds again, of which round 3 is long; how each was added. `begun` is called after each
/// of them at rank 0.
pub(crate) fn rounds(team: &mut Team, network: &mut InNetwork, begun: impl Fn(u32)) -> Vec<By> {
    let mut ways = Vec::new();
    for round in 0..ROUNDS {
        let length = if round == 3 { 64 * 20_000 } else { 64 * 200 };
        ways.push(reduce(team, network, length, round).by);
        if team.rank() == 0 {
            begun(round);
        }
        if round == 17 {
            // By the next attempt, the switch is there again.
            std::thread::sleep(Duration::from_millis(700));
        }
        if round > 17 && ways.last() == Some(&By::Switch) {
            break;
        }
    }
    ways
}

/// A port such that the ports around it, and those 1,000 above, are probably free: all below 32,768, from where on the
/// kernel gives ports to sockets that ask for any.
pub(crate) fn some_ports(test: u16) -> SocketAddrV6 {
    let port = 20_000 + (std::process::id() % 570) as u16 * 20 + test;
    format!("[::1]:{port}").parse().expect("an address")
}

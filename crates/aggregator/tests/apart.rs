//! Parameter servers in processes of their own: exact sums, also while one is killed and started again.

use super::common::{
    Running, SILENCE, assert_refused, esa, job, options, reduce, rounds, run, some_ports, switch, systems,
};
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use strandway_aggregator::{Esa, ParameterServer, ResultPath, ServerConfig, SwitchConfig};
use strandway_group::aggregation::{By, NetworkOptions, Why};
use strandway_proto::aggregate::Counts;
use strandway_switch::System;

/// A parameter server that serves on a thread until it is dropped.
struct Serving {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Counts>>,
}

impl Serving {
    fn start(admission: SocketAddrV6, number: u16, loss: f64) -> Serving {
        let config = ServerConfig::new("[::1]:0".parse().expect("an address"), admission, job(number).key);
        let mut server = ParameterServer::start(ServerConfig { loss, silence: SILENCE, ..config }).expect("it starts");
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                server.turn(Duration::from_millis(5)).expect("sockets work");
            }
            server.counts()
        });
        Serving { stop, thread: Some(thread) }
    }

    fn end(mut self) -> Counts {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it runs").join().expect("no panic")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn apart(system: System, jobs: u16) -> SwitchConfig {
    SwitchConfig { server_apart: true, ..switch(system, jobs) }
}

/// All systems that have servers.
fn served() -> impl Iterator<Item = System> {
    systems().into_iter().filter(|system| !matches!(system, System::SwitchMl { .. }))
}

#[test]
fn a_server_apart_completes_what_the_switch_does_not() {
    for system in served() {
        for (loss, ports) in [(0.0, 1), (0.02, 2)] {
            let serving = Running::start(SwitchConfig { loss, ports, slots: 24, ..apart(system, 2) });
            let servers = [0, 1].map(|at| Serving::start(serving.admissions[at], at as u16 + 1, loss));
            std::thread::scope(|scope| {
                for (number, ranks) in [(1, 2), (2, 3)] {
                    let admission = serving.admissions[usize::from(number) - 1];
                    scope.spawn(move || {
                        run(ranks, |mut team| {
                            let options = NetworkOptions { loss, ..options(admission, number) };
                            let mut network = team.join_switch(options, &|| false).expect("it lets us in");
                            network.set_priority(100 * number as u8);
                            for round in 0..3 {
                                let reduced = reduce(&mut team, &mut network, 64 * 250 + 3, round);
                                assert_eq!(reduced.by, By::Switch, "{} loses {loss}", system.name());
                            }
                            let mut wide = vec![3e8; 200];
                            let reduced = team.all_reduce(&mut network, &mut wide, &|| false).expect("it works");
                            assert_eq!((reduced.by, reduced.floats), (By::Switch, 4));
                            assert_eq!(wide, [3e8 * ranks as f32; 200]);
                        });
                    });
                }
            });
            let completed = servers.map(|server| server.end().server_completed);
            assert!(completed.iter().all(|&completed| completed >= 4), "{}: {completed:?}", system.name());
            let status = serving.end();
            let here = status.ports.iter().flat_map(|port| port.jobs.values()).map(|job| job.2.server_completed);
            assert_eq!(here.sum::<u64>(), 0, "the switch has no server");
            assert_eq!(status.ports.iter().map(|port| port.odd).sum::<u64>(), 0);
        }
    }
}

#[test]
fn a_server_below_the_parent_serves_racks() {
    for system in served() {
        let parent = Running::start(SwitchConfig { racks: true, loss: 0.01, ..apart(system, 1) });
        let admission = parent.admissions[0];
        let above = SocketAddrV6::new(*admission.ip(), admission.port() - 1, 0, 0);
        let rack = Running::start(SwitchConfig { parent: Some(above), loss: 0.01, ..switch(system, 1) });
        let _server = Serving::start(admission, 1, 0.01);
        let admissions = [rack.admissions[0], rack.admissions[0], admission];
        run(3, |mut team| {
            let options = NetworkOptions { loss: 0.01, ..options(admissions[team.rank() as usize], 1) };
            let mut network = team.join_switch(options, &|| false).expect("it lets us in");
            for round in 0..3 {
                assert_eq!(reduce(&mut team, &mut network, 64 * 300, round).by, By::Switch, "{}", system.name());
            }
        });
    }
}

/// Runs rounds while the server is killed in the middle of round 3, and started again if `back`; how each round was
/// added.
fn a_server_dies(system: System, test: u16, back: bool) -> Vec<By> {
    let config = SwitchConfig { address: some_ports(test), loss: 0.01, ..apart(system, 1) };
    let serving = Running::start(config);
    let admission = serving.admissions[0];
    let (tell, told) = channel::<u32>();
    let tell = Mutex::new(tell);
    std::thread::scope(|scope| {
        let first = Serving::start(admission, 1, 0.01);
        scope.spawn(move || {
            let mut server = Some(first);
            while let Ok(round) = told.recv() {
                if round == 2 {
                    std::thread::sleep(Duration::from_millis(30));
                    drop(server.take());
                    std::thread::sleep(Duration::from_millis(300));
                    server = back.then(|| Serving::start(admission, 1, 0.01));
                }
            }
        });
        let ways = run(3, |mut team| {
            let options = NetworkOptions { loss: 0.01, ..options(admission, 1) };
            let mut network = team.join_switch(options, &|| false).expect("it lets us in");
            if back {
                return rounds(&mut team, &mut network, |round| {
                    tell.lock().expect("no panic").send(round).expect("it listens");
                });
            }
            let mut ways = Vec::new();
            for round in 0..5 {
                ways.push(reduce(&mut team, &mut network, if round == 3 { 64 * 20_000 } else { 64 * 200 }, round).by);
                if team.rank() == 0 {
                    tell.lock().expect("no panic").send(round).expect("it listens");
                }
            }
            ways
        });
        drop(tell);
        ways.into_iter().next().expect("rank 0")
    })
}

#[test]
fn esa_goes_on_with_a_server_that_is_killed_and_started_again_in_the_middle_of_an_operation() {
    let via = System::Esa(Esa { results: ResultPath::ViaServer, ..Esa::default() });
    for (test, system) in (0..).zip([esa(), via]) {
        let ways = a_server_dies(system, 60 + 3 * test, true);
        assert!(ways.iter().all(|way| *way == By::Switch), "{}: {ways:?}", system.name());
    }
}

#[test]
fn atp_begins_again_by_the_ring_when_its_server_is_killed_and_uses_the_next_one() {
    let ways = a_server_dies(System::Atp, 70, true);
    assert_eq!(ways[..3], [By::Switch; 3]);
    assert!(matches!(ways[3], By::Ring { why: Why::Gone, .. }), "{:?}", ways[3]);
    assert_eq!(ways.last(), Some(&By::Switch), "{ways:?}");
}

#[test]
fn sums_are_exact_by_the_ring_if_the_server_stays_away() {
    for (test, system) in (0..).zip([esa(), System::Atp]) {
        let ways = a_server_dies(system, 80 + 3 * test, false);
        assert!(ways[3..].iter().all(|way| matches!(way, By::Ring { .. })), "{}: {ways:?}", system.name());
    }
}

#[test]
fn a_session_without_its_server_and_a_server_without_a_place_say_so() {
    let serving = Running::start(apart(esa(), 1));
    let admission = serving.admissions[0];
    let said = "the job's parameter server has not joined: start `strandway switch server`";
    assert_refused(&options(admission, 1), |errors| errors.iter().flatten().any(|error| error.contains(said)));
    let plain = Running::start(switch(esa(), 1));
    let config = ServerConfig::new("[::1]:0".parse().expect("an address"), plain.admissions[0], job(1).key);
    let mut server = ParameterServer::start(config).expect("it starts");
    let until = std::time::Instant::now() + Duration::from_secs(30);
    let mut events = Vec::new();
    while events.is_empty() && std::time::Instant::now() < until {
        events = server.turn(Duration::from_millis(5)).expect("sockets work");
    }
    assert!(format!("{events:?}").contains("OwnServer"), "{events:?}");
}

//! Peers with a job's key send arbitrary messages and leave at any moment. They can end only themselves.

use crate::hostile::{LANES, SILENCE, SLOTS, SetAtEnd, honest, join, key, way};
use crate::leaver::{Leaver, rounds, spoiled};
use crate::{JobConfig, ParameterServer, ServerConfig, Switch, SwitchConfig};
use std::net::SocketAddrV6;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use strandway_group::aggregation::message::{BYTES, Join, Layout, Message, Refusal, Welcome};
use strandway_group::aggregation::switch_connection::{Apart, SwitchAccess, SwitchConnection};
use strandway_group::aggregation::terms;
use strandway_proto::rng::{Random, StreamKind};
use strandway_switch::{Esa, System};
use strandway_udp::{Completion, Node, Reason};

/// The address of a switch with these ports free around it.
fn loopback() -> SocketAddrV6 {
    "[::1]:0".parse().expect("an address")
}

fn of(system: System) -> SwitchConfig {
    let jobs = [1, 2].map(|number| JobConfig { number, key: key(number), share: 0.5 });
    SwitchConfig {
        jobs: jobs.into(),
        slots: SLOTS,
        elements: LANES,
        silence: SILENCE,
        ..SwitchConfig::new(loopback(), system)
    }
}

/// A message that a peer of an admission address might send, or nearly one.
fn anything(random: &mut Random) -> Vec<u8> {
    let mut one = |of: &[u32]| of[random.below(of.len() as u32) as usize];
    let wish = Join {
        worker: one(&[0, 0, 1, 2, 31, 0xffff]) as u16,
        workers: one(&[2, 2, 2, 1, 3, 0, 33, 1_024, 0xffff]) as u16,
        elements: one(&[u32::from(LANES), u32::from(LANES), 1, 0, 257]) as u16,
        window: one(&[16, 16, 0, u32::MAX]),
        epoch: one(&[1, 1, 2, 0, u32::MAX]),
        token: [one(&[3, 3, 4]) as u8; 16],
        exponents: one(&[0, 0, 1]) == 1,
        scatter: one(&[0, 0, 1]) == 1,
    };
    let workers = one(&[1, 2, 2, 33, 1_024]) as usize;
    let welcome = Welcome {
        system: one(&[1, 1, 2, 3, 0, 9]) as u8,
        job: one(&[1, 1, 0]) as u16,
        elements: one(&[u32::from(LANES), u32::from(LANES), 0, 0xffff]) as u16,
        rack: one(&[0, 0, 1, 255]) as u8,
        window: one(&[16, 1, 0, u32::MAX]),
        slots: one(&[SLOTS, SLOTS, 0, u32::MAX]),
        up: [7; 32],
        down: [8; 32],
        layout: Layout { racks: vec![one(&[0, 0, 1, 255]) as u8; workers], top: one(&[0, 1, 255]) as u8 },
        rtt: one(&[2_000, 0, u32::MAX]),
        ports: vec![9; one(&[1, 1, 16]) as usize],
        scatter: one(&[0, 0, 1]) == 1,
    };
    let message = match one(&[0, 0, 0, 1, 1, 1, 1, 2, 3, 4]) {
        0 => Message::Join(wish),
        1 => Message::Pass(wish),
        2 => Message::Serve { port: one(&[9, 0]) as u16 },
        3 => Message::Welcome(Box::new(welcome)),
        _ => Message::Refused(Refusal::Busy),
    };
    spoiled(random, message.encode(), BYTES)
}

fn words(random: &mut Random) -> Vec<Vec<u8>> {
    let count = [1, 1, 1, 2, 3, 40][random.below(6) as usize];
    (0..count).map(|_| anything(random)).collect()
}

/// Cuts the connection of a completion by chance, so that it ends in the turn in which the completion arrives. On a
/// real path, a goodbye can arrive in one batch with the messages before it.
fn cut(node: &mut Node, completion: &Completion, random: &mut Random) -> Option<Completion> {
    let (Completion::Accepted { connection, .. }
    | Completion::Connected { connection }
    | Completion::Received { connection, .. }
    | Completion::Sent { connection, .. }) = *completion
    else {
        return None;
    };
    let cut = random.chance(0.2) && node.close(connection).is_ok();
    cut.then_some(Completion::Closed { connection, reason: Reason::ByPeer })
}

/// Serves the admission addresses once, as [`Switch::turn`] does, and cuts connections of job 1.
fn serve_once(what: &str, switch: &mut Switch, random: &mut Random) {
    for admission in &mut switch.admissions {
        while let Some(completion) = admission.node.wait(Duration::ZERO).expect("sockets work") {
            let closed = if admission.number() == 1 { cut(&mut admission.node, &completion, random) } else { None };
            for completion in [Some(completion), closed].into_iter().flatten() {
                let handled = admission.handle_completion(&switch.setup, completion);
                handled.unwrap_or_else(|error| panic!("{what}: a peer has ended the switch: {error}"));
            }
        }
    }
}

/// Serves these switches while peers attack the admission addresses of job 1 at all of them. The last switch has the
/// honest workers.
fn attack(what: &str, mut switches: Vec<Switch>, server_apart: bool, few: u32) {
    let admissions: Vec<SocketAddrV6> =
        switches.iter().map(|switch| switch.admission(1).expect("an admission address")).collect();
    let last = switches.last().expect("a switch").admission(2).expect("an admission address");
    let above = switches[0].admission(2).expect("an admission address");
    let mut leaver = Leaver::new(terms::admission(&key(1), loopback(), SILENCE).expect("a key"), 11);
    let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _over = SetAtEnd(&over);
        let _stop = SetAtEnd(&stop);
        if server_apart {
            scope.spawn(|| {
                let mut server =
                    ParameterServer::start(ServerConfig::new(loopback(), above, key(2))).expect("it starts");
                while !over.load(Ordering::Relaxed) {
                    server.turn(Duration::from_millis(2)).expect("it serves on");
                }
            });
            while !switches[0].status().jobs[1].server {
                switches[0].turn(Duration::from_millis(1)).expect("sockets work");
            }
        }
        let workers = scope.spawn(|| honest(last, &stop));
        let mut cuts = Random::new(5, StreamKind::Workload, 1);
        let mut serve = || switches.iter_mut().for_each(|switch| serve_once(what, switch, &mut cuts));
        for round in 0..rounds(few) {
            let words = words(&mut leaver.random);
            leaver.call(&[admissions[round as usize % admissions.len()]], &words, BYTES, &mut serve);
        }
        stop.store(true, Ordering::Relaxed);
        while !workers.is_finished() {
            serve();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(workers.join().expect("their sums are right") > 0, "{what}");
    });
    assert!(leaver.spoke >= rounds(few) / 3, "{what}: {} peers have spoken", leaver.spoke);
    for switch in &switches {
        assert_eq!(switch.status().jobs[1].sessions, 1, "{what}: the other job has one session");
    }
}

#[test]
fn a_peer_that_says_anything_and_leaves_ends_no_switch_and_no_other_job() {
    for system in [System::Esa(Esa::default()), System::Atp, System::SwitchMl { strict_order: true }] {
        let start = |config| vec![Switch::start(config).expect("it starts")];
        attack(system.name(), start(of(system)), false, 60);
        attack(&format!("{} with racks", system.name()), start(SwitchConfig { racks: true, ..of(system) }), false, 120);
        if !matches!(system, System::SwitchMl { .. }) {
            let config = SwitchConfig { server_apart: true, ..of(system) };
            attack(&format!("{} with a server apart", system.name()), start(config), true, 60);
        }
    }
}

/// A switch that takes racks, and the address that racks use for it. A rack finds the admission address of a job by the
/// job's number.
fn start_top(system: System) -> (Switch, SocketAddrV6) {
    let mut base = (0..50).map(|at| 23_000 + (std::process::id() as u16 % 500) * 16 + 4 * at);
    let top = base.find_map(|port| {
        let address = SocketAddrV6::new(*loopback().ip(), port, 0, 0);
        Switch::start(SwitchConfig { racks: true, address, ..of(system) }).ok()
    });
    let top = top.expect("some ports are free");
    let one = top.admission(1).expect("an admission address");
    let parent = SocketAddrV6::new(*one.ip(), one.port() - 1, 0, 0);
    (top, parent)
}

#[test]
fn a_switch_counts_the_racks_of_a_session() {
    let (top, parent) = start_top(System::Atp);
    let rack = || Switch::start(SwitchConfig { parent: Some(parent), ..of(System::Atp) }).expect("it starts");
    let mut switches = [top, rack(), rack()];
    let admissions = [1, 2].map(|rack: usize| switches[rack].admission(1).expect("an admission address"));
    std::thread::scope(|scope| {
        let joining = [0, 1].map(|worker: u16| {
            scope.spawn(move || {
                let key = key(1);
                let line =
                    SwitchConnection::open(&way(admissions[usize::from(worker)], &key), join(worker, 2), &|| false);
                line.unwrap_or_else(|apart| panic!("{apart}"))
            })
        });
        while !joining.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            switches.iter_mut().for_each(|switch| drop(switch.turn(Duration::from_millis(1)).expect("sockets work")));
        }
        let lines = joining.map(|thread| thread.join().expect("it joins"));
        let status = switches[0].status();
        assert_eq!((status.jobs[0].racks, status.jobs[0].workers), (2, 2));
        drop(lines);
    });
}

#[test]
fn a_peer_that_says_anything_and_leaves_ends_neither_a_rack_nor_its_parent() {
    for system in [System::Esa(Esa::default()), System::Atp, System::SwitchMl { strict_order: true }] {
        let (top, parent) = start_top(system);
        let rack = Switch::start(SwitchConfig { parent: Some(parent), ..of(system) }).expect("it starts");
        attack(&format!("{} in two levels", system.name()), vec![top, rack], false, 90);
    }
}

#[test]
fn a_parent_that_says_anything_and_leaves_does_not_end_its_rack() {
    let mut parent = Leaver::new(terms::admission(&key(1), loopback(), SILENCE).expect("a key"), 12);
    let address = SocketAddrV6::new(*loopback().ip(), parent.addresses()[0].port() - 1, 0, 0);
    let mut rack =
        Switch::start(SwitchConfig { parent: Some(address), ..of(System::Esa(Esa::default())) }).expect("it starts");
    let admission = rack.admission(1).expect("an admission address");
    let mut cuts = Random::new(5, StreamKind::Workload, 2);
    for round in 0..rounds(100) {
        let mut worker = Node::bind(terms::admission(&key(1), loopback(), SILENCE).expect("a key")).expect("a node");
        let mut connection = worker.connect(&[admission]).expect("a connection");
        let (out, inbox) = (
            worker.register(Message::Join(Join { epoch: round + 1, ..join(0, 2) }).encode()),
            worker.register(vec![0; BYTES]),
        );
        let words = words(&mut parent.random);
        parent.answer(&words, BYTES, &mut || {
            match worker.poll() {
                Some(Completion::Connected { .. }) => {
                    worker.recv(connection, inbox, 0..BYTES).expect("it is connected");
                    worker.send(connection, out, 0..BYTES).expect("it is connected");
                }
                Some(Completion::Closed { .. } | Completion::Received { .. }) => {
                    // The worker was cut off, or refused: it asks again.
                    let _ = worker.close(connection);
                    connection = worker.connect(&[admission]).expect("a connection");
                }
                _ => {}
            }
            serve_once("the parent", &mut rack, &mut cuts);
        });
    }
    assert!(parent.spoke >= rounds(100) / 4, "{} parents have spoken", parent.spoke);
}

#[test]
fn a_switch_that_says_anything_and_leaves_does_not_end_a_parameter_server() {
    let mut switch = Leaver::new(terms::admission(&key(1), loopback(), SILENCE).expect("a key"), 13);
    let admission = switch.addresses()[0];
    let mut server = ParameterServer::start(ServerConfig::new(loopback(), admission, key(1))).expect("it starts");
    let mut cuts = Random::new(5, StreamKind::Workload, 3);
    for _ in 0..rounds(60) {
        let words = words(&mut switch.random);
        switch.answer(&words, BYTES, &mut || {
            server.call();
            while let Some(completion) = server.node.wait(Duration::ZERO).expect("sockets work") {
                let closed = cut(&mut server.node, &completion, &mut cuts);
                for completion in [Some(completion), closed].into_iter().flatten() {
                    let handled = server.handle_completion(completion);
                    handled.unwrap_or_else(|error| panic!("the switch has ended the server: {error}"));
                }
            }
        });
    }
    assert!(switch.spoke >= rounds(60) / 4, "{} switches have spoken", switch.spoke);
}

#[test]
fn a_parameter_server_takes_no_terms_that_no_switch_offers() {
    let address = loopback();
    let mut server = ParameterServer::start(ServerConfig::new(address, address, key(1))).expect("it starts");
    let welcome = |slots: u32, ports: usize, window: u32, elements: u16| Welcome {
        system: System::Atp.number(),
        job: 1,
        elements,
        rack: 0,
        window,
        slots,
        up: [7; 32],
        down: [8; 32],
        layout: Layout::flat(2),
        rtt: 2_000,
        ports: vec![9; ports],
        scatter: false,
    };
    let unsound = [
        (0, 1, 16, 64),
        ((1 << 22) + 1, 1, 16, 64),
        (u32::MAX, 1, 16, 64),
        (1 << 20, 5, 16, 64),
        (256, 1, 0, 64),
        (256, 1, 4_097, 64),
        (256, 1, u32::MAX, 64),
        (256, 1, 16, 0),
        (256, 1, 16, 2_049),
        (1 << 22, 1, 16, 257),
    ];
    for (slots, ports, window, elements) in unsound {
        assert!(
            !server.begin(&welcome(slots, ports, window, elements)),
            "{slots} slots, {window} fragments, {elements} elements"
        );
    }
    for (slots, ports, window, elements) in [(1 << 20, 4, 4_096, 256), (1 << 19, 1, 4_096, 2_048), (2, 1, 1, 1)] {
        assert!(server.begin(&welcome(slots, ports, window, elements)));
    }
}

/// The reason with which a switch refuses each of these requests; `None` for a welcome. Serves until all have an
/// answer.
fn answers_to(config: SwitchConfig, wishes: &[Join]) -> Vec<Option<Refusal>> {
    let mut switch = Switch::start(config).expect("it starts");
    let admission = switch.admission(1).expect("an admission address");
    std::thread::scope(|scope| {
        let asking: Vec<_> = wishes
            .iter()
            .map(|&wish| {
                scope.spawn(move || match SwitchConnection::open(&way(admission, &key(1)), wish, &|| false) {
                    Ok((_line, _welcome)) => None,
                    Err(Apart::Refused(reason)) => Some(reason),
                    Err(apart) => panic!("{apart}"),
                })
            })
            .collect();
        while !asking.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            switch.turn(Duration::from_millis(1)).expect("sockets work");
        }
        asking.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn a_worker_has_a_number_below_that_of_all_workers() {
    for (racks, most) in [(false, 32), (true, 1_024)] {
        let config = SwitchConfig { racks, ..of(System::Atp) };
        for (worker, workers) in [(2, 2), (3, 2), (0, 0), (most, most), (0, most + 1), (0xffff, 0xffff)] {
            let said = answers_to(config.clone(), &[Join { worker, workers, ..join(0, 2) }]);
            assert_eq!(said, [Some(Refusal::TooLarge)], "worker {worker} of {workers}");
        }
        assert_eq!(answers_to(config, &[join(0, 1)]), [None]);
    }
}

#[test]
fn a_worker_asks_again_if_the_switch_was_silent_for_a_while() {
    let mut switch = Switch::start(SwitchConfig { racks: true, ..of(System::Atp) }).expect("it starts");
    let admission = switch.admission(1).expect("an admission address");
    let ask = |worker: u16| {
        let key = key(1);
        let way = SwitchAccess { silence: Duration::from_millis(500), ..way(admission, &key) };
        SwitchConnection::open(&way, join(worker, 2), &|| false).map(drop)
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| ask(0));
        let until = Instant::now() + Duration::from_secs(60);
        while switch.status().jobs[0].joined == 0 {
            assert!(Instant::now() < until, "a worker is there");
            switch.turn(Duration::from_millis(1)).expect("sockets work");
        }
        // The worker waits for the other one, and gets no answer.
        std::thread::sleep(Duration::from_millis(1_500));
        let second = scope.spawn(|| ask(1));
        while !first.is_finished() || !second.is_finished() {
            switch.turn(Duration::from_millis(1)).expect("sockets work");
        }
        for asking in [first, second] {
            asking.join().expect("no panic").unwrap_or_else(|apart| panic!("{apart}"));
        }
    });
}

#[test]
fn a_rack_that_takes_no_answers_is_cut_off() {
    let mut switch = Switch::start(SwitchConfig { racks: true, ..of(System::Atp) }).expect("it starts");
    let admission = switch.admission(1).expect("an admission address");
    let mut rack = Node::bind(terms::admission(&key(1), loopback(), SILENCE).expect("a key")).expect("a node");
    let connection = rack.connect(&[admission]).expect("a connection");
    // Each request is refused, and the rack posts no receive for an answer.
    let wish = Message::Pass(Join { elements: 0, ..join(0, 2) }).encode();
    let until = Instant::now() + Duration::from_secs(20);
    let mut sent = 0;
    let ended = loop {
        assert!(Instant::now() < until, "{sent} wishes have arrived, and the rack is still there");
        switch.turn(Duration::ZERO).expect("sockets work");
        match rack.poll() {
            Some(Completion::Connected { .. } | Completion::Sent { .. }) => {
                sent += 1;
                let out = rack.register(wish.clone());
                // If the peer has been cut off already, `Closed` follows.
                let _ = rack.send(connection, out, 0..BYTES);
            }
            Some(Completion::Closed { reason, .. }) => break reason,
            _ => {}
        }
        if sent > 40 {
            panic!("{sent} wishes without taking an answer");
        }
    };
    assert_eq!(ended, Reason::ByPeer);
    assert!(sent > 8, "some answers may be on their way: {sent}");
}

//! Two levels of switches: racks that add up their workers, and a switch that adds up racks.

use super::common::{Running, esa, options, reduce, rounds, run, some_ports, switch, systems};
use std::net::SocketAddrV6;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;
use strandway_aggregator::SwitchConfig;
use strandway_group::aggregation::{By, NetworkOptions, Why};
use strandway_switch::System;

/// A switch that takes racks.
fn top(system: System, jobs: u16) -> SwitchConfig {
    SwitchConfig { racks: true, ..switch(system, jobs) }
}

/// The settings of a rack below this switch. Job 1 is at the port of the switch plus 1.
fn rack(system: System, jobs: u16, admission: SocketAddrV6) -> SwitchConfig {
    let parent = SocketAddrV6::new(*admission.ip(), admission.port() - 1, 0, 0);
    SwitchConfig { parent: Some(parent), ..switch(system, jobs) }
}

/// Each rank's switch: some of them below racks, some at the top itself.
fn places(racks: &[&Running], top: &Running, pattern: &[usize], job: usize) -> Vec<SocketAddrV6> {
    pattern.iter().map(|&rack| racks.get(rack).map_or(top.admissions[job], |rack| rack.admissions[job])).collect()
}

#[test]
fn racks_and_their_parent_add_buffers_of_any_length_exactly() {
    for system in systems() {
        // Two racks of two workers; then one rack beside two workers of the parent; then all workers in one rack.
        for (at, pattern) in (0..).zip([&[0, 0, 1, 1][..], &[0, 9, 0, 9], &[1, 1]]) {
            let parent = Running::start(top(system, 1));
            let racks = [0, 1].map(|_| Running::start(rack(system, 1, parent.admissions[0])));
            let admissions = places(&[&racks[0], &racks[1]], &parent, pattern, 0);
            run(pattern.len() as u32, |mut team| {
                let admission = admissions[team.rank() as usize];
                let mut network = team.join_switch(options(admission, 1), &|| false).expect("it lets us in");
                for (round, length) in [1, 63, 65, 10_000, 0, 40_001].into_iter().enumerate() {
                    let reduced = reduce(&mut team, &mut network, length, round as u32);
                    assert_eq!((reduced.by, reduced.floats), (By::Switch, 0), "{} {pattern:?}", system.name());
                }
            });
            let status = parent.end();
            assert_eq!((status.ports[0].refused, status.ports[0].odd), (0, 0), "{}", system.name());
            if at == 0 {
                // The parent gets one fragment for two workers, and a few beside them.
                let elements = status.ports[0].element_bytes;
                let whole = 4 * 64 * (1 + 1 + 2 + 157 + 626);
                assert!(elements >= 2 * whole && elements < 3 * whole, "{}: {elements} of {whole}", system.name());
            }
        }
    }
}

#[test]
fn sums_of_racks_are_exact_while_fragments_are_lost_at_every_hop() {
    for system in systems() {
        for (loss, ports) in [(0.003, 1), (0.02, 2)] {
            let parent = Running::start(SwitchConfig { loss, ports, ..top(system, 1) });
            let racks =
                [0, 1].map(|_| Running::start(SwitchConfig { loss, ports, ..rack(system, 1, parent.admissions[0]) }));
            let admissions = places(&[&racks[0], &racks[1]], &parent, &[0, 0, 1, 9], 0);
            run(4, |mut team| {
                let options = NetworkOptions { loss, ..options(admissions[team.rank() as usize], 1) };
                let mut network = team.join_switch(options, &|| false).expect("it lets us in");
                for round in 0..3 {
                    let reduced = reduce(&mut team, &mut network, 64 * 500 + 5, round);
                    assert_eq!(reduced.by, By::Switch, "{} loses {loss}", system.name());
                }
            });
        }
    }
}

#[test]
fn two_jobs_with_racks_share_few_slots_and_get_their_own_sums() {
    for (test, system) in (0..).zip(systems()) {
        let address = some_ports(90 + 5 * test);
        let parent = Running::start(SwitchConfig { address, slots: 24, ..top(system, 2) });
        let racks = [0, 1].map(|_| Running::start(SwitchConfig { slots: 24, ..rack(system, 2, parent.admissions[0]) }));
        std::thread::scope(|scope| {
            for number in [1, 2] {
                let admissions = places(&[&racks[0], &racks[1]], &parent, &[0, 1, 1, 0], usize::from(number) - 1);
                scope.spawn(move || {
                    run(4, |mut team| {
                        let options = options(admissions[team.rank() as usize], number);
                        let mut network = team.join_switch(options, &|| false).expect("it lets us in");
                        network.set_priority(100 * number as u8);
                        for round in 0..3 {
                            let reduced = reduce(&mut team, &mut network, 64 * 200, round + 10 * u32::from(number));
                            assert_eq!(reduced.by, By::Switch, "{}", system.name());
                        }
                    });
                });
            }
        });
    }
}

#[test]
fn numbers_that_would_overflow_are_added_as_floats_through_racks() {
    let parent = Running::start(top(esa(), 1));
    let racks = [0, 1].map(|_| Running::start(rack(esa(), 1, parent.admissions[0])));
    let admissions = places(&[&racks[0], &racks[1]], &parent, &[0, 1, 1], 0);
    run(3, |mut team| {
        let mut network =
            team.join_switch(options(admissions[team.rank() as usize], 1), &|| false).expect("it lets us in");
        let mut buffer = vec![team.rank() as f32; 640];
        if team.rank() == 1 {
            buffer[70] = 3e8;
        }
        let reduced = team.all_reduce(&mut network, &mut buffer, &|| false).expect("it works");
        assert_eq!((reduced.by, reduced.floats), (By::Switch, 1));
        assert!(buffer.iter().enumerate().all(|(at, &sum)| sum == if at == 70 { 3e8 + 2.0 } else { 3.0 }));
    });
}

/// `dies`: the place of the switch that is killed in round 3 and started again: 0 and 1 are racks, 2 is the parent.
fn a_switch_dies(system: System, dies: usize, test: u16) {
    let addresses = [0, 3, 6].map(|at| some_ports(test + at));
    let parent = Running::start(SwitchConfig { address: addresses[2], ..top(system, 1) });
    let config = |place: usize| {
        let admission = SocketAddrV6::new(*addresses[2].ip(), addresses[2].port() + 1, 0, 0);
        let below = SwitchConfig { address: addresses[place], ..rack(system, 1, admission) };
        if place == 2 { SwitchConfig { address: addresses[2], ..top(system, 1) } } else { below }
    };
    let switches = [Running::start(config(0)), Running::start(config(1)), parent];
    let admissions = [0, 1, 1, 0].map(|place| switches[place].admissions[0]);
    let (tell, told) = channel::<u32>();
    let tell = Mutex::new(tell);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut switches = switches.map(Some);
            while let Ok(round) = told.recv() {
                if round == 2 {
                    // In the middle of the next round.
                    std::thread::sleep(Duration::from_millis(30));
                    drop(switches[dies].take());
                    std::thread::sleep(Duration::from_millis(300));
                    switches[dies] = Some(Running::start(config(dies)));
                }
            }
        });
        run(4, |mut team| {
            let admission = admissions[team.rank() as usize];
            let mut network = team.join_switch(options(admission, 1), &|| false).expect("it lets us in");
            let ways = rounds(&mut team, &mut network, |round| {
                tell.lock().expect("no panic").send(round).expect("it listens");
            });
            assert_eq!(ways[..3], [By::Switch; 3], "{}", system.name());
            assert!(matches!(ways[3], By::Ring { why: Why::Gone | Why::Stalled, .. }), "{:?}", ways[3]);
            assert_eq!(ways.last(), Some(&By::Switch), "{}: {ways:?}", system.name());
        });
        drop(tell);
    });
}

#[test]
fn a_rack_that_dies_is_replaced_by_the_ring_and_used_again_when_it_is_back() {
    for (test, system) in (0..).zip([esa(), System::Atp, System::SwitchMl { strict_order: true }]) {
        a_switch_dies(system, 1, 130 + 10 * test);
    }
}

#[test]
fn a_parent_that_dies_is_replaced_by_the_ring_and_used_again_when_it_is_back() {
    for (test, system) in (0..).zip([esa(), System::Atp, System::SwitchMl { strict_order: true }]) {
        a_switch_dies(system, 2, 160 + 10 * test);
    }
}

#[test]
fn a_rack_without_its_parent_or_unlike_it_says_so() {
    let said = |admission: SocketAddrV6| {
        let errors = run(2, |mut team| {
            let hasty = NetworkOptions { patience: Duration::from_millis(1_500), ..options(admission, 1) };
            team.join_switch(hasty, &|| false).err().map(|error| error.to_string())
        });
        errors.into_iter().flatten().collect::<Vec<_>>().join("\n")
    };
    let address = some_ports(190);
    let alone = Running::start(rack(esa(), 1, SocketAddrV6::new(*address.ip(), address.port() + 1, 0, 0)));
    let words = said(alone.admissions[0]);
    assert!(words.contains("the switch does not reach its parent"), "{words}");
    let plain = Running::start(SwitchConfig { address, ..switch(esa(), 1) });
    let below = Running::start(rack(esa(), 1, plain.admissions[0]));
    let words = said(below.admissions[0]);
    assert!(words.contains("the switch's parent takes no racks: start it with --racks"), "{words}");
    drop(plain);
    let parent = Running::start(top(System::Atp, 1));
    for unlike in [
        rack(esa(), 1, parent.admissions[0]),
        SwitchConfig { slots: 128, ..rack(System::Atp, 1, parent.admissions[0]) },
    ] {
        let below = Running::start(unlike);
        let words = said(below.admissions[0]);
        assert!(words.contains("the switch and its parent differ in system, slots or ports"), "{words}");
    }
}

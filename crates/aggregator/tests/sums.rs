//! Teams that add up by a switch, in one process: exact sums under losses, and the deaths of switches and ranks.

use super::common::{
    Running, assert_refused, esa, number, numbers, options, reduce, run, some_ports, sums, switch, systems,
};
use super::support::over_ipv4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use strandway_aggregator::SwitchConfig;
use strandway_group::GroupError;
use strandway_group::aggregation::{By, NetworkOptions, Why};
use strandway_switch::System;

#[test]
fn all_systems_add_buffers_of_any_length_exactly() {
    for system in systems() {
        let switch = Running::start(switch(system, 1));
        let admission = switch.admissions[0];
        run(3, |mut team| {
            let mut network = team.join_switch(options(admission, 1), &|| false).expect("it lets us in");
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
fn all_systems_add_buffers_exactly_over_ipv4() {
    over_ipv4(all_systems_add_buffers_of_any_length_exactly);
}

#[test]
fn sums_are_exact_while_fragments_are_lost() {
    for system in systems() {
        for (loss, ports) in [(0.003, 1), (0.03, 2)] {
            let switch = Running::start(SwitchConfig { loss, ports, ..switch(system, 1) });
            let admission = switch.admissions[0];
            run(3, |mut team| {
                let options = NetworkOptions { loss, ..options(admission, 1) };
                let mut network = team.join_switch(options, &|| false).expect("it lets us in");
                for round in 0..3 {
                    let reduced = reduce(&mut team, &mut network, 64 * 700 + 5, round);
                    assert_eq!(reduced.by, By::Switch, "{} loses {loss}", system.name());
                }
            });
        }
    }
}

/// A million fragments for each of five loss shares: `cargo test --release -p strandway-aggregator --test all sums:: --
/// --ignored`.
#[test]
#[ignore = "minutes"]
fn a_million_fragments_a_seed_are_added_exactly_while_fragments_are_lost() {
    for system in [esa(), System::Atp, System::SwitchMl { strict_order: true }] {
        for loss in [0.0, 0.003, 0.01, 0.02, 0.03] {
            let switch = Running::start(SwitchConfig { loss, slots: 1_024, ..switch(system, 1) });
            let admission = switch.admissions[0];
            run(4, |mut team| {
                let options = NetworkOptions { loss, window: 256, ..options(admission, 1) };
                let mut network = team.join_switch(options, &|| false).expect("it lets us in");
                for round in 0..5 {
                    assert_eq!(reduce(&mut team, &mut network, 64 * 50_000, round).by, By::Switch);
                }
            });
            eprintln!("{} {loss}: {:?}", system.name(), switch.end().ports[0].received);
        }
    }
}

#[test]
fn two_jobs_share_few_slots_and_get_their_own_sums() {
    for system in systems() {
        let switch = Running::start(SwitchConfig { slots: 24, ..switch(system, 2) });
        std::thread::scope(|scope| {
            for (number, ranks) in [(1, 2), (2, 4)] {
                let admission = switch.admissions[usize::from(number) - 1];
                scope.spawn(move || {
                    run(ranks, |mut team| {
                        let mut network =
                            team.join_switch(options(admission, number), &|| false).expect("it lets us in");
                        network.set_priority(100 * number as u8);
                        for round in 0..4 {
                            let reduced = reduce(&mut team, &mut network, 64 * 300, round + 10 * u32::from(number));
                            assert_eq!(reduced.by, By::Switch, "{}", system.name());
                        }
                    });
                });
            }
        });
        let status = switch.end();
        assert!(status.ports[0].jobs.len() == 2 && status.jobs.iter().all(|job| job.sessions == 1));
    }
}

#[test]
fn numbers_that_would_overflow_are_added_as_floats_or_by_the_ring() {
    for system in systems() {
        let switch = Running::start(switch(system, 1));
        let admission = switch.admissions[0];
        run(3, |mut team| {
            let mut network = team.join_switch(options(admission, 1), &|| false).expect("it lets us in");
            let mut buffer = numbers(team.rank(), 64 * 20, 0);
            let mut right = sums(3, 64 * 20, 0);
            if team.rank() == 1 {
                (buffer[70], buffer[700]) = (3e8, f32::INFINITY);
            }
            let of = |place| [0, 1, 2].map(|rank| if rank == 1 { 3e8 } else { number(rank, place, 0) });
            right[70] = of(70).iter().sum();
            right[700] = f32::INFINITY;
            let reduced = team.all_reduce(&mut network, &mut buffer, &|| false).expect("it works");
            if let System::SwitchMl { .. } = system {
                assert_eq!(reduced.by, By::Ring { rank: 1, why: Why::Overflow });
                right[70] = buffer[70];
            } else {
                assert_eq!((reduced.by, reduced.floats), (By::Switch, 2), "{}", system.name());
            }
            assert_eq!(buffer, right, "{}", system.name());
            assert_eq!(reduce(&mut team, &mut network, 1_000, 1).by, By::Switch, "and on");
        });
    }
}

#[test]
fn ranks_that_come_late_or_differ_are_waited_for_or_named() {
    let switch = Running::start(switch(esa(), 1));
    let admission = switch.admissions[0];
    run(3, |mut team| {
        let mut network = team.join_switch(options(admission, 1), &|| false).expect("it lets us in");
        if team.rank() == 1 {
            std::thread::sleep(Duration::from_millis(400));
        }
        assert_eq!(reduce(&mut team, &mut network, 64 * 500, 0).by, By::Switch);
        let length = if team.rank() == 2 { 65 } else { 64 };
        let error = team.all_reduce(&mut network, &mut vec![1.0; length], &|| false).expect_err("they differ");
        assert_eq!(
            error.to_string(),
            "ranks 0 and 2 call with buffers of different lengths: all must have the same one"
        );
        assert_eq!(reduce(&mut team, &mut network, 64 * 50, 1).by, By::Switch, "a new session");
    });
}

#[test]
fn a_switch_that_dies_is_replaced_by_the_ring_and_used_again_when_it_is_back() {
    for (test, system) in (1..).zip([esa(), System::Atp, System::SwitchMl { strict_order: true }]) {
        let config = SwitchConfig { address: some_ports(test), ..switch(system, 1) };
        let first = Running::start(config.clone());
        let admission = first.admissions[0];
        let (tell, told) = channel::<u32>();
        let tell = std::sync::Mutex::new(tell);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut switch = Some(first);
                while let Ok(round) = told.recv() {
                    if round == 2 {
                        // In the middle of the next round.
                        std::thread::sleep(Duration::from_millis(30));
                        drop(switch.take());
                        std::thread::sleep(Duration::from_millis(300));
                        switch = Some(Running::start(config.clone()));
                    }
                }
            });
            run(3, |mut team| {
                let mut network = team.join_switch(options(admission, 1), &|| false).expect("it lets us in");
                let mut ways = Vec::new();
                for round in 0..24 {
                    let length = if round == 3 { 64 * 20_000 } else { 64 * 200 };
                    ways.push(reduce(&mut team, &mut network, length, round).by);
                    if team.rank() == 0 {
                        tell.lock().expect("no panic").send(round).expect("it listens");
                    }
                }
                assert_eq!(ways[..3], [By::Switch; 3], "{}", system.name());
                assert!(matches!(ways[3], By::Ring { why: Why::Gone | Why::Stalled, .. }), "{:?}", ways[3]);
                assert_eq!(ways[23], By::Switch, "{}: {ways:?}", system.name());
            });
            drop(tell);
        });
    }
}

#[test]
fn a_worker_that_dies_is_named_and_nobody_hangs() {
    for system in [esa(), System::SwitchMl { strict_order: true }] {
        let switch = Running::start(switch(system, 1));
        let admission = switch.admissions[0];
        let began = Instant::now();
        run(3, |mut team| {
            let mut network = team.join_switch(options(admission, 1), &|| false).expect("it lets us in");
            reduce(&mut team, &mut network, 64 * 100, 0);
            if team.rank() == 2 {
                return;
            }
            let mut buffer = numbers(team.rank(), 64 * 1_000, 1);
            let error = team.all_reduce(&mut network, &mut buffer, &|| false).expect_err("rank 2 has gone");
            assert!(
                matches!(error, GroupError::Dead { .. } | GroupError::Missing { .. }),
                "rank {}: {error}",
                team.rank()
            );
            assert_eq!(buffer, numbers(team.rank(), 64 * 1_000, 1), "the buffer is unchanged");
        });
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}

/// Is set when this goes out of scope, also by a panic: a thread that waits for it then ends, and the test fails
/// instead of hanging.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn datagrams_of_strangers_are_counted_and_change_nothing() {
    let switch = Running::start(switch(esa(), 1));
    let admission = switch.admissions[0];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let socket = std::net::UdpSocket::bind("[::1]:0").expect("a socket");
            let mut seed = 1u64;
            while !stop.load(Ordering::Relaxed) {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let mut bytes: Vec<u8> = (0..seed >> 54).map(|i| (seed >> (i % 56)) as u8).collect();
                if let Some(first) = bytes.first_mut() {
                    *first = strandway_udp::frame::VERSION << 4 | 12;
                }
                // The bytes go to the admission address, as an example of the switch's ports.
                let _ = socket.send_to(&bytes, admission);
            }
        });
        let _stop = SetAtEnd(&stop);
        run(2, |mut team| {
            let mut network = team.join_switch(options(admission, 1), &|| false).expect("it lets us in");
            for round in 0..5 {
                assert_eq!(reduce(&mut team, &mut network, 64 * 500, round).by, By::Switch);
            }
        });
    });
}

#[test]
fn a_wrong_key_and_a_busy_job_are_told() {
    let switch = Running::start(switch(esa(), 1));
    let admission = switch.admissions[0];
    let wrong = NetworkOptions { key: vec![1; 32], ..options(admission, 1) };
    let all = |errors: &[Option<String>], said: &str| errors.iter().flatten().all(|error| error.contains(said));
    assert_refused(&wrong, |errors| all(errors, "key is wrong"));
    run(2, |mut team| {
        let _network = team.join_switch(options(admission, 1), &|| false).expect("it lets us in");
        // Rank 1 waits as long as rank 0's other team may take.
        team.set_patience(Duration::from_secs(120));
        team.barrier(&|| false).expect("all are in");
        if team.rank() == 0 {
            let busy = "another team uses the job: end it, or take another job's key";
            let said = |errors: &[Option<String>]| errors.iter().all(|error| error.as_deref() == Some(busy));
            assert_refused(&options(admission, 1), said);
        }
        team.barrier(&|| false).expect("all are still in");
    });
}

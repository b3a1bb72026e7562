//! Process groups on loopback: every collective against arithmetic, and ranks that fail.

mod calls;
mod casts;
mod chaos;
mod ends;
mod files;
mod hostile;
mod hosts;
mod killed;
mod local;
mod networks;
mod remains;
mod rendezvous;
mod support;
mod watched;

use std::thread;
use std::time::{Duration, Instant};
use strandway_group::process::{BufferRange, CollectiveCall, Element, Failure, Group, ProcessOptions, Reduction};
use support::{inout, lent, planes, ranks, result, with};

fn number(rank: u32, place: usize) -> i64 {
    (place as i64 * 31 + i64::from(rank) * 17) % 101 - 50
}

fn numbers(rank: u32, length: usize) -> Vec<i64> {
    (0..length).map(|place| number(rank, place)).collect()
}

/// Every collective at several sizes, against arithmetic.
fn check_collectives(group: &Group, lengths: &[usize]) {
    let (rank, ranks) = (group.rank(), group.ranks());
    for &length in lengths {
        let sum: Vec<i64> = (0..length).map(|place| (0..ranks).map(|r| number(r, place)).sum()).collect();
        let all: Vec<i64> = (0..ranks).flat_map(|r| numbers(r, length)).collect();
        let mut buffer = numbers(rank, length);
        group.all_reduce(&mut buffer, Reduction::Sum).expect("all_reduce");
        assert!(buffer == sum, "all_reduce of {length} by {ranks}");
        let root = ranks - 1;
        let mut buffer = numbers(rank, length);
        group.reduce(&mut buffer, Reduction::Sum, root).expect("reduce");
        assert!(buffer == if rank == root { sum.clone() } else { numbers(rank, length) }, "reduce of {length}");
        let mut buffer = numbers(rank, length);
        group.broadcast(&mut buffer, root).expect("broadcast");
        assert!(buffer == numbers(root, length), "broadcast of {length} by {ranks}");
        let mut gathered = vec![0; all.len()];
        group.all_gather(&numbers(rank, length), &mut gathered).expect("all_gather");
        assert!(gathered == all, "all_gather of {length} by {ranks}");
        let mut own = vec![0; length];
        group.scatter(if rank == root { &all } else { &[] }, &mut own, root).expect("scatter");
        assert!(own == numbers(rank, length), "scatter of {length}");
        let mut gathered = if rank == root { vec![0; all.len()] } else { Vec::new() };
        group.gather(&own, &mut gathered, root).expect("gather");
        assert!(rank != root || gathered == all, "gather of {length}");
        // Block b of everybody, from a buffer that all have alike but for the rank.
        let input: Vec<i64> = (0..ranks).flat_map(|b| numbers(rank * 7 + b, length)).collect();
        let before = input.clone();
        let mut block = vec![0; length];
        group.reduce_scatter(&input, &mut block, Reduction::Sum).expect("reduce_scatter");
        let right: Vec<i64> = (0..length).map(|place| (0..ranks).map(|r| number(r * 7 + rank, place)).sum()).collect();
        assert!(block == right && input == before, "reduce_scatter of {length} by {ranks}");
        let mut exchanged = vec![0; input.len()];
        group.all_to_all(&input, &mut exchanged).expect("all_to_all");
        let right: Vec<i64> = (0..ranks).flat_map(|r| numbers(r * 7 + rank, length)).collect();
        assert!(exchanged == right, "all_to_all of {length} by {ranks}");
        group.barrier().expect("barrier");
    }
}

#[test]
fn every_collective_is_right_at_every_size() {
    for (count, shared_memory) in [(1, true), (2, true), (3, true), (4, true), (2, false), (3, false)] {
        let options = ProcessOptions { shared_memory, ..planes(1) };
        with(count, &options, |_, group| check_collectives(&group, &[0, 1, 7, 1_000, 5_003, 200_001]));
    }
}

/// The options of a group that takes this algorithm wherever it can; blocks are cut into short parts.
fn by(algorithm: &str) -> ProcessOptions {
    let mut options = planes(1);
    options.tuning.algorithms = algorithm.parse().expect("an algorithm");
    options.tuning.lengths.part = 20_032;
    options
}

#[test]
fn every_algorithm_is_right_at_every_size() {
    for algorithm in ["ring", "halving-doubling", "tree", "pat"] {
        for count in [2, 3, 4] {
            with(count, &by(algorithm), |_, group| check_collectives(&group, &[0, 1, 7, 1_000, 5_003, 60_001]));
        }
    }
}

/// Sums of floating-point numbers depend on the order of additions: it must be one for all ranks and all runs.
#[test]
fn every_algorithm_gives_all_ranks_the_same_bits_in_every_run() {
    for algorithm in ["direct", "ring", "halving-doubling", "tree"] {
        let run = || {
            with(4, &by(algorithm), |_, group| {
                let rank = group.rank();
                let of = |place: usize| number(rank, place) as f32 * [1e-6, 1.0, 1e6][place % 3] + 0.3;
                let mut numbers: Vec<f32> = (0..40_000).map(of).collect();
                group.all_reduce(&mut numbers, Reduction::Average).expect("an average");
                let mut scaled: Vec<f32> = (0..100).map(of).collect();
                group.all_reduce(&mut scaled, Reduction::ScaledSum(f64::from(rank))).expect("a scaled sum");
                let wanted = |place: usize| -> f64 {
                    let of = |r: u32| f64::from(number(r, place) as f32 * [1e-6, 1.0, 1e6][place % 3] + 0.3);
                    (0..4).map(|r| f64::from(r) * of(r)).sum()
                };
                let near = |(place, got): (usize, &f32)| (f64::from(*got) - wanted(place)).abs() <= 1e3 * 1e-2;
                assert!(scaled.iter().enumerate().all(near), "{scaled:?}");
                numbers.iter().chain(&scaled).map(|number| number.to_bits()).collect::<Vec<u32>>()
            })
        };
        let (first, second) = (run(), run());
        assert!(first.iter().chain(&second).all(|bits| *bits == first[0]), "{algorithm}");
    }
}

#[test]
fn averages_and_factors_over_short_floats() {
    ranks(3, 1, |group| {
        let rank = group.rank();
        let mut short = vec![half::bf16::from_f32(rank as f32); 70_000];
        group.all_reduce(&mut short, Reduction::Average).expect("average");
        assert!(short.iter().all(|x| x.to_f32() == 1.0));
        let input: Vec<f32> = vec![rank as f32 + 1.0; 3 * 9_000];
        let mut output = vec![0.0f32; 9_000];
        group.reduce_scatter(&input, &mut output, Reduction::ScaledSum(f64::from(rank))).expect("scaled");
        assert!(output.iter().all(|x| *x == 2.0 + 6.0));
        assert!(input.iter().all(|x| *x == rank as f32 + 1.0), "the input is the caller's");
        let error = group.all_reduce(&mut [1i64], Reduction::Average).expect_err("whole numbers");
        assert!(error.to_string().contains("avg is not defined for int64"), "{error}");
    });
}

#[test]
fn sends_meet_receives_by_tag_and_in_order() {
    ranks(3, 1, |group| {
        let rank = group.rank();
        for length in [3, 50_000] {
            if rank == 0 {
                let (mut one, mut two) = (vec![0i64; length], vec![0i64; length]);
                // The second tag first; then from anybody.
                assert_eq!(group.recv(&mut two, Some(1), 2).expect("tag 2"), 1);
                assert_eq!(group.recv(&mut one, Some(1), 1).expect("tag 1"), 1);
                assert!(one == numbers(1, length) && two == numbers(2, length));
                let from = group.recv(&mut one, None, 3).expect("from anybody");
                assert!(one == numbers(from, length));
                let next = group.recv(&mut one, None, 3).expect("from the other one");
                assert_eq!(from + next, 3);
            } else {
                let (one, two, three) = (numbers(1, length), numbers(2, length), numbers(rank, length));
                if rank == 1 {
                    let first = group.start_send(0, 1, lent(one), None).expect("begun");
                    group.send(&two, 0, 2).expect("sent");
                    first.wait().expect("sent");
                }
                group.send(&three, 0, 3).expect("sent");
            }
            group.barrier().expect("barrier");
        }
        if rank == 0 {
            let error = group.recv(&mut [0i64; 2], Some(1), 9).expect_err("another length");
            assert!(error.to_string().contains("rank 1 sends 24 bytes"), "{error}");
        } else if rank == 1 {
            group.send(&[1i64; 3], 0, 9).expect("sent");
        }
    });
}

#[test]
fn many_at_once_and_groups_of_groups() {
    ranks(4, 2, |group| {
        let rank = group.rank();
        let half = group.split(Some(rank % 2), 10 - rank).expect("split").expect("a color");
        assert_eq!((half.ranks(), half.rank()), (2, u32::from(rank < 2)), "by key");
        let none = group.split((rank == 0).then_some(0), 0).expect("split");
        assert_eq!(none.map(|alone| alone.ranks()), (rank == 0).then_some(1));
        let works: Vec<_> = (0..40)
            .map(|i| {
                let numbers = vec![i64::from(rank); 1 + i * 700];
                let outputs = (0..2).map(|r| BufferRange::whole(1 + r, size_of_val(numbers.as_slice()))).collect();
                let results = [result(numbers.len()), result(numbers.len())];
                let input = Some(BufferRange::whole(0, size_of_val(numbers.as_slice())));
                let mut buffers = vec![lent(numbers)];
                buffers.extend(results);
                let job = CollectiveCall::AllGather { input, outputs };
                half.start(job, buffers, Element::I64, Reduction::Sum, None).expect("fits")
            })
            .collect();
        let mut sum = [i64::from(rank)];
        group.all_reduce(&mut sum, Reduction::Sum).expect("beside them");
        assert_eq!(sum, [6]);
        works.iter().for_each(|work| assert_eq!(work.wait(), Ok(None)));
    });
}

#[test]
fn a_rank_that_calls_differently_is_named() {
    let errors = ranks(2, 1, |group| {
        let mut numbers = vec![1i64; if group.rank() == 0 { 5 } else { 6 }];
        group.all_reduce(&mut numbers, Reduction::Sum).expect_err("lengths differ").to_string()
    });
    assert!(errors.iter().any(|error| error.contains("call all ranks alike")), "{errors:?}");
}

#[test]
fn a_rank_that_leaves_is_named_and_one_that_is_late_is_waited_for() {
    let outcomes = ranks(3, 1, |group| {
        group.barrier().expect("all are here");
        match group.rank() {
            2 => None,
            1 => {
                thread::sleep(Duration::from_millis(700));
                Some(group.barrier().map_err(|failure| failure.to_string()))
            }
            _ => Some(group.barrier().map_err(|failure| failure.to_string())),
        }
    });
    let errors: Vec<String> =
        outcomes.into_iter().flatten().map(|outcome| outcome.expect_err("rank 2 has gone")).collect();
    assert!(
        errors.iter().all(|error| error.contains("rank 2 at ") && error.contains("Connection closed by peer")),
        "{errors:?}"
    );
}

#[test]
fn those_that_are_left_go_on_without_the_one_that_has_gone() {
    let sums = ranks(3, 1, |group| {
        group.barrier().expect("all are here");
        if group.rank() == 1 {
            return None;
        }
        let mut numbers = vec![1i64; 1_000];
        group.all_reduce(&mut numbers, Reduction::Sum).expect_err("rank 1 has gone");
        assert!(group.shrink(&[]).is_err() && group.shrink(&[7]).is_err() && group.shrink(&[group.rank()]).is_err());
        let rest = group.shrink(&[1]).expect("two are left");
        assert_eq!((rest.rank(), rest.ranks()), (group.rank() / 2, 2));
        let mut numbers = vec![1i64; 100_000];
        rest.all_reduce(&mut numbers, Reduction::Sum).expect("as good as any group");
        rest.barrier().expect("to the end");
        Some(numbers[0])
    });
    assert_eq!(sums, [Some(2), None, Some(2)]);
}

#[test]
fn the_time_of_a_collective_is_over_and_the_group_goes_on() {
    ranks(2, 1, |group| {
        let mut numbers = [1i64];
        if group.rank() == 0 {
            group.set_timeout(Duration::from_millis(300));
            let began = Instant::now();
            let error = group.recv(&mut numbers, Some(1), 5).expect_err("nobody sends");
            assert!(
                matches!(&error, Failure::TimedOut { waiting, .. } if waiting[0].starts_with("rank 1 at ")),
                "{error}"
            );
            assert!(error.to_string().contains("recv timed out after 0.3 s"), "{error}");
            assert!((0.25..2.0).contains(&began.elapsed().as_secs_f64()));
            group.set_timeout(Duration::from_secs(20));
        } else {
            thread::sleep(Duration::from_millis(600));
        }
        group.barrier().expect("the group is as good as before");
    });
}

#[test]
fn an_abort_ends_what_waits_at_once() {
    ranks(2, 1, |group| {
        group.barrier().expect("all are here");
        if group.rank() == 0 {
            let waiting = group.start_recv(Some(1), 0, result(100_000), None).expect("begun");
            thread::sleep(Duration::from_millis(100));
            assert!(!waiting.is_ended());
            let began = Instant::now();
            group.abort();
            assert_eq!(waiting.wait(), Err(Failure::Aborted));
            assert!(began.elapsed() < Duration::from_millis(500));
            assert_eq!(group.barrier(), Err(Failure::Aborted));
        } else {
            thread::sleep(Duration::from_millis(600));
        }
    });
}

#[test]
fn work_goes_on_while_nobody_waits_and_while_several_threads_wait() {
    ranks(2, 1, |group| {
        let whole = |numbers: &[i64]| CollectiveCall::AllReduce(BufferRange::whole(0, size_of_val(numbers)));
        for length in [10, 100_000] {
            // No thread waits.
            let numbers = numbers(group.rank(), length);
            let job = whole(&numbers);
            let work = group.start(job, vec![inout(numbers)], Element::I64, Reduction::Sum, None).expect("fits");
            let until = Instant::now() + Duration::from_secs(10);
            while !work.is_ended() {
                assert!(Instant::now() < until, "it goes on by itself");
                thread::sleep(Duration::from_millis(1));
            }
            work.wait().expect("summed");
            // One looks again and again.
            let job = CollectiveCall::AllReduce(BufferRange::whole(0, 8 * length));
            let work = group.start(job, vec![result(length)], Element::I64, Reduction::Sum, None).expect("fits");
            while work.wait_for(Duration::ZERO).is_none() {
                assert!(Instant::now() < until, "it goes on");
            }
            // Several threads wait for one work, and another thread calls on.
            let late =
                group.start(CollectiveCall::Barrier, Vec::new(), Element::U8, Reduction::Sum, None).expect("fits");
            let works: Vec<_> = (0..4)
                .map(|_| {
                    thread::spawn({
                        let late = late.clone();
                        move || late.wait().map(drop)
                    })
                })
                .collect();
            for _ in 0..200 {
                let mut word = [1i64];
                group.all_reduce(&mut word, Reduction::Sum).expect("summed");
                assert_eq!(word, [2]);
            }
            for work in works {
                work.join().expect("no panic").expect("all came");
            }
        }
    });
}

/// The lines of a rank's recording, as JSON texts.
fn lines_of(folder: &std::path::Path, rank: u32) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join(format!("rank-{rank}.jsonl"))).expect("a recording");
    text.lines().map(str::to_string).collect()
}

#[test]
fn a_recording_has_every_call_with_its_group_begin_end_and_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = by("all_reduce=ring");
    options.record = Some(folder.path().join("run"));
    with(2, &options, |_, group| {
        let mut numbers = vec![1.0f32; 5_000];
        group.all_reduce(&mut numbers, Reduction::Sum).expect("a sum");
        group.broadcast(&mut numbers, 1).expect("a broadcast");
        if group.rank() == 0 {
            group.send(&numbers, 1, 9).expect("sent");
        } else {
            group.recv(&mut numbers, None, 9).expect("received");
        }
    });
    for rank in 0..2 {
        let lines = lines_of(&folder.path().join("run"), rank);
        assert!(
            lines[0].starts_with(&format!("{{\"strandway_recording\":1,\"rank\":{rank},\"ranks\":2,")),
            "{lines:?}"
        );
        let has = |parts: &[&str]| lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(has(&["\"members\":["]));
        assert!(has(&["\"post\":0", "\"what\":\"all_reduce\",\"bytes\":20000,\"root\":0,\"algorithm\":\"ring\""]));
        assert!(has(&["\"post\":1", "\"what\":\"broadcast\",\"bytes\":20000,\"root\":1,\"algorithm\":\"direct\""]));
        let message = if rank == 0 { "\"to\":1,\"tag\":9" } else { "\"from\":null,\"tag\":9" };
        assert!(has(&["\"post\":2", "\"bytes\":20000", message]), "{lines:?}");
        for call in 0..3 {
            assert!(has(&[&format!("{{\"start\":{call},")]), "{lines:?}");
            assert!(has(&[&format!("{{\"end\":{call},"), "\"failed\":false"]), "{lines:?}");
            assert!(has(&[&format!("{{\"wait\":{call},"), "\"ended\":true"]), "{lines:?}");
        }
    }
}

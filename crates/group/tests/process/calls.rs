//! Calls that do not belong together fail at all ranks, and later calls are right.

use super::support::{inout, lent, ranks, result};
use std::thread;
use std::time::{Duration, Instant};
use strandway_group::process::{BufferRange, CollectiveCall, Element, Failure, Group, Reduction};

/// The sums of ten calls, which are right only if the ranks' calls meet as they were made.
fn sums_are_right(group: &Group) {
    for i in 0..10i64 {
        let mut sum = [i * 100 + i64::from(group.rank())];
        group.all_reduce(&mut sum, Reduction::Sum).expect("as good as before");
        assert_eq!(sum, [200 * i + 1], "sum {i} at rank {}", group.rank());
    }
}

#[test]
fn a_call_that_is_refused_at_one_rank_fails_at_all_and_later_sums_are_right() {
    ranks(2, 1, |group| {
        let error = if group.rank() == 0 {
            group.all_gather(&[1i64], &mut [0i64; 3]).expect_err("three for two ranks")
        } else {
            let error = group.all_gather(&[1i64], &mut [0i64; 2]).expect_err("rank 0 was refused");
            assert!(matches!(&error, Failure::Told { by: 0, .. }), "{error}");
            error
        };
        assert!(error.to_string().contains("the output has 24 bytes"), "{error}");
        sums_are_right(group);
        if group.rank() == 1 {
            group.refuse("the caller's own reason");
        } else {
            let error = group.barrier().expect_err("rank 1 was refused").to_string();
            assert!(error.contains("the caller's own reason"), "{error}");
        }
        sums_are_right(group);
    });
}

#[test]
fn ranks_that_call_differently_hear_at_once_who_called_what() {
    type Call = fn(&Group) -> Result<(), Failure>;
    let calls: [(&str, Call); 8] = [
        ("all_reduce of float32 by sum", |group| group.all_reduce(&mut [1.0f32], Reduction::Sum)),
        ("all_reduce of float32 by max", |group| group.all_reduce(&mut [1.0f32], Reduction::Max)),
        ("all_reduce of int32 by sum", |group| group.all_reduce(&mut [1i32], Reduction::Sum)),
        ("broadcast of int32 with root 0", |group| group.broadcast(&mut [1i32], 0)),
        ("broadcast of int32 with root 1", |group| group.broadcast(&mut [1i32], 1)),
        ("all_gather of int32", |group| group.all_gather(&[1i32], &mut [0i32; 2])),
        ("gather of int32 with root 0", |group| {
            group.gather(&[1i32], &mut [0i32; 2][..2 - 2 * group.rank() as usize], 0)
        }),
        ("barrier", |group| group.barrier()),
    ];
    for (one, (ours, call)) in calls.into_iter().enumerate() {
        for (theirs, other) in calls.into_iter().skip(one + 1) {
            ranks(2, 1, move |group| {
                let began = Instant::now();
                let mine = if group.rank() == 0 { call } else { other };
                // A root may have gone on before the other rank looks; it hears in its next call.
                let error = mine(group).and_then(|()| group.barrier()).and_then(|()| group.barrier());
                let error = error.expect_err("the ranks differ").to_string();
                let named = [ours, theirs].into_iter().filter(|call| error.contains(call)).count();
                assert!(named > 0 && error.contains("call all ranks alike"), "{ours} and {theirs}: {error}");
                assert!(began.elapsed() < Duration::from_secs(5), "{error}");
                // The others hear before this one leaves.
                thread::sleep(Duration::from_millis(20));
            });
        }
    }
}

#[test]
fn a_result_in_memory_that_may_not_be_written_is_refused() {
    let (one, two, half) =
        (BufferRange::whole(0, 32), BufferRange { buffer: 1, bytes: 0..32 }, |at: usize| 16 * at..16 * at + 16);
    let blocks = vec![two.clone(), BufferRange { buffer: 1, bytes: 32..64 }];
    let halves = |buffer| (0..2).map(|at| BufferRange { buffer, bytes: half(at) }).collect::<Vec<_>>();
    // The ranks that have a result, as bits.
    let jobs = [
        (CollectiveCall::AllReduce(one.clone()), 3),
        (CollectiveCall::Reduce { at: one.clone(), root: 0 }, 1),
        (CollectiveCall::Broadcast { at: one.clone(), root: 0 }, 2),
        (CollectiveCall::AllGather { input: Some(one.clone()), outputs: blocks.clone() }, 3),
        (CollectiveCall::ReduceScatter { inputs: blocks.clone(), output: one.clone() }, 3),
        (CollectiveCall::AllToAll { inputs: halves(0), outputs: halves(1) }, 3),
        (CollectiveCall::Gather { input: one.clone(), outputs: blocks.clone(), root: 0 }, 1),
        (CollectiveCall::Scatter { inputs: blocks, output: one, root: 0 }, 3),
    ];
    ranks(2, 1, move |group| {
        for (job, results) in jobs.clone() {
            let name = format!("{job:?}");
            let begun = group.start(job, vec![lent(vec![1; 4]), lent(vec![1; 8])], Element::I64, Reduction::Sum, None);
            if results >> group.rank() & 1 == 1 {
                let error = begun.err().unwrap_or_else(|| panic!("{name} is refused")).to_string();
                assert!(error.contains("a result needs memory that may be written"), "{name}: {error}");
            }
        }
        thread::sleep(Duration::from_millis(20));
    });
}

#[test]
fn ranks_that_disagreed_once_get_no_later_result() {
    // Rank 0 leaves out the first call, as after an error of a layer above: its later calls meet those before them.
    let gather: fn(&Group) -> Result<(), Failure> = |group| group.all_gather(&[1i64], &mut [0i64; 3]);
    let long: fn(&Group) -> Result<(), Failure> = |group| group.all_reduce(&mut [1i64; 7], Reduction::Sum);
    let huge: fn(&Group) -> Result<(), Failure> = |group| group.all_reduce(&mut vec![1i64; 300_000], Reduction::Sum);
    for left_out in [gather, long, huge] {
        ranks(3, 1, move |group| {
            let mut errors = Vec::new();
            if group.rank() != 0 {
                errors.extend(left_out(group).err());
            }
            for _ in 0..5 {
                errors.extend(group.all_reduce(&mut [1i64], Reduction::Sum).err());
            }
            let due = if group.rank() == 0 { 5 } else { 6 };
            assert_eq!(errors.len(), due, "rank {}: {errors:?}", group.rank());
            let alike = errors.iter().filter(|error| error.to_string().contains("call all ranks alike")).count();
            // Rank 0 ends one call earlier: the last one of the others may hear of that.
            assert!(alike >= 5, "{errors:?}");
            thread::sleep(Duration::from_millis(100));
        });
    }
}

#[test]
fn a_twin_of_a_group_has_numbers_of_its_own() {
    ranks(3, 1, |group| {
        let begin = |group: &Group, reduction: Reduction| {
            let job = CollectiveCall::AllReduce(BufferRange { buffer: 0, bytes: 0..16 });
            group.start(job, vec![inout(vec![1, 2])], Element::I64, reduction, None).expect("begun")
        };
        let (twin, other) = (group.twin(1), group.twin(2));
        // Every rank mixes the calls of the three groups in another order.
        let mut works = Vec::new();
        for turn in 0..30 {
            match (turn + group.rank()) % 3 {
                0 => works.push(begin(group, Reduction::Sum)),
                1 => works.push(begin(&twin, Reduction::Max)),
                _ => works.push(begin(&other, Reduction::Min)),
            }
        }
        for work in works {
            work.wait().expect("each group's calls meet each other");
        }
        group.barrier().expect("to the end");
    });
}

#[test]
fn a_send_that_was_given_up_meets_no_later_receive() {
    for length in [10, 100_000] {
        ranks(2, 1, move |group| {
            if group.rank() == 0 {
                let late = group.start_send(1, 4, lent(vec![1; length]), Some(Duration::from_millis(200)));
                let outcome = late.expect("begun").wait();
                // A short one may be on its way already.
                assert!(outcome.is_ok() || matches!(outcome, Err(Failure::TimedOut { .. })), "{outcome:?}");
                assert!(length == 10 || outcome.is_err());
                group.barrier().expect("after it");
                group.send(&vec![2i64; length], 1, 4).expect("the next one");
                let mut back = vec![0i64; length];
                group.recv(&mut back, Some(1), 4).expect("and back");
            } else {
                thread::sleep(Duration::from_millis(400));
                group.barrier().expect("after it");
                let mut numbers = vec![0i64; length];
                group.recv(&mut numbers, Some(0), 4).expect("one of the two");
                if length == 10 && numbers[0] == 1 {
                    group.recv(&mut numbers, Some(0), 4).expect("the other one");
                }
                assert_eq!(numbers, vec![2i64; length]);
                group.send(&numbers, 0, 4).expect("and back");
            }
            group.barrier().expect("to the end");
        });
    }
}

#[test]
fn a_receive_that_was_given_up_takes_no_later_message() {
    for length in [10, 100_000] {
        ranks(2, 1, move |group| {
            if group.rank() == 1 {
                let late = group.start_recv(Some(0), 4, result(length), Some(Duration::from_millis(100)));
                assert!(matches!(late.expect("begun").wait(), Err(Failure::TimedOut { .. })));
                group.barrier().expect("after it");
                let mut numbers = vec![0i64; length];
                group.recv(&mut numbers, Some(0), 4).expect("arrives");
                assert_eq!(numbers, vec![7i64; length]);
            } else {
                group.barrier().expect("after it");
                group.send(&vec![7i64; length], 1, 4).expect("taken");
            }
            group.barrier().expect("to the end");
        });
    }
}

#[test]
fn a_send_whose_receiver_leaves_the_group_fails_at_once() {
    ranks(2, 1, |group| {
        let part = group.split(Some(0), 0).expect("split").expect("a color");
        if group.rank() == 0 {
            let outcome = part.start_send(1, 4, lent(vec![1; 100_000]), None).expect("begun").wait();
            assert!(matches!(outcome, Err(Failure::Told { by: 1, .. })), "{outcome:?}");
        } else {
            thread::sleep(Duration::from_millis(100));
            drop(part);
        }
        group.barrier().expect("the other group goes on");
    });
}

#[test]
fn averages_of_short_floats_do_not_overflow() {
    ranks(2, 1, |group| {
        let mut numbers = [half::f16::from_f32(60_000.0); 9];
        group.all_reduce(&mut numbers, Reduction::Average).expect("averaged");
        assert!(numbers.iter().all(|x| x.to_f32() == 60_000.0), "{numbers:?}");
    });
}

#[test]
fn operations_under_way_are_reported_with_the_ranks_that_they_wait_for() {
    ranks(2, 1, |group| {
        if group.rank() == 0 {
            let waiting = group.start_recv(Some(1), 9, result(4), None).expect("begun");
            let report = group.waiting();
            assert_eq!(report.len(), 1);
            assert!(report[0].what == "recv" && report[0].ranks[0].starts_with("rank 1 at "), "{report:?}");
            group.barrier().expect("now it comes");
            waiting.wait().expect("received");
            assert!(group.waiting().is_empty());
        } else {
            group.barrier().expect("now it comes");
            group.send(&[1i64; 4], 0, 9).expect("sent");
        }
        group.barrier().expect("to the end");
    });
}

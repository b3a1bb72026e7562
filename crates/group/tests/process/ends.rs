//! Messages that were reported as done have arrived, and a fast rank waits for a busy one.

use super::support::{inout, lent, planes, ranks, result, with};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use strandway_group::process::{
    BufferRange, CollectiveCall, Element, Failure, Group, Process, ProcessOptions, Reduction,
};

/// A credit of eight messages of 8,000 bytes.
fn small_credit() -> ProcessOptions {
    ProcessOptions { credit: 1 << 16, ..planes(1) }
}

const LENGTH: usize = 1_000;

#[test]
fn the_last_message_of_a_process_arrives() {
    for round in 0..10 {
        let work = move |process: &Process, group: Group| {
            let mut word = [0i64; 12];
            if group.rank() == 0 {
                word = [round; 12];
                // Its first message is its last one, and the connection may not be there yet.
                if round % 2 == 0 {
                    group.send(&word, 1, 7).expect("sent");
                } else {
                    group.broadcast(&mut word, 0).expect("sent");
                }
                drop(group);
                process.close().expect("all has arrived");
            } else {
                thread::sleep(Duration::from_millis(30));
                if round % 2 == 0 {
                    group.recv(&mut word, Some(0), 7).expect("it arrives");
                } else {
                    group.broadcast(&mut word, 0).expect("it arrives");
                }
            }
            word[11]
        };
        assert_eq!(with(2, &planes(1), work), [round, round]);
    }
}

#[test]
fn a_receive_from_anybody_ends_when_all_others_have_left() {
    let outcomes = ranks(3, 1, |group| {
        group.barrier().expect("all are here");
        (group.rank() == 0).then(|| group.recv(&mut [0i64; 4], None, 3))
    });
    assert!(matches!(&outcomes[0], Some(Err(Failure::Gone { .. }))), "{:?}", outcomes[0]);
}

#[test]
fn sends_to_a_busy_rank_wait_at_their_sender_and_all_arrive_in_order() {
    const COUNT: usize = 400;
    with(2, &small_credit(), |_, group| {
        if group.rank() == 0 {
            let works: Vec<_> = (0..COUNT)
                .map(|i| group.start_send(1, 5, lent(vec![i as i64; LENGTH]), None).expect("begun"))
                .collect();
            // A call that has nothing to do with them goes on.
            group.barrier().expect("beside them");
            let ended = works.iter().filter(|work| work.is_ended()).count();
            assert!(ended <= 8, "{ended} of {COUNT} are away, and nobody has asked for any");
            group.barrier().expect("beside them");
            works.iter().for_each(|work| assert_eq!(work.wait(), Ok(None)));
        } else {
            group.barrier().expect("before any receive");
            thread::sleep(Duration::from_millis(200));
            group.barrier().expect("before any receive");
            let mut numbers = vec![0i64; LENGTH];
            for i in 0..COUNT {
                group.recv(&mut numbers, Some(0), 5).expect("arrives");
                assert!(numbers.iter().all(|x| *x == i as i64), "message {i}");
            }
        }
        group.barrier().expect("to the end");
    });
}

#[test]
fn a_root_waits_for_ranks_that_are_busy_elsewhere() {
    const COUNT: usize = 400;
    let done = Arc::new(AtomicUsize::new(0));
    with(2, &small_credit(), move |_, group| {
        let mut numbers = vec![0i64; LENGTH];
        group.barrier().expect("all are here");
        if group.rank() == 1 {
            // Until the root has stopped.
            let until = Instant::now() + Duration::from_secs(10);
            let mut last = usize::MAX;
            while std::mem::replace(&mut last, done.load(Ordering::Relaxed)) != done.load(Ordering::Relaxed)
                || last == 0
            {
                assert!(Instant::now() < until, "it stops");
                thread::sleep(Duration::from_millis(200));
            }
            assert!(last <= 9, "{last} broadcasts are over, and nobody has called any here");
        }
        for i in 0..COUNT {
            if group.rank() == 0 {
                numbers.fill(i as i64);
            }
            group.broadcast(&mut numbers, 0).expect("arrives");
            assert!(numbers.iter().all(|x| *x == i as i64), "broadcast {i}");
            if group.rank() == 0 {
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
        group.barrier().expect("to the end");
    });
}

#[test]
fn calls_without_credit_hold_up_no_other_group_and_have_the_right_sums() {
    with(3, &small_credit(), |_, group| {
        let rank = group.rank();
        let other = group.split(Some(0), rank).expect("split").expect("a color");
        let begin = |i: usize| {
            let job = CollectiveCall::AllReduce(BufferRange::whole(0, 8 * LENGTH));
            let numbers = vec![i as i64 * 10 + i64::from(rank); LENGTH];
            group.start(job, vec![inout(numbers)], Element::I64, Reduction::Sum, None).expect("fits")
        };
        let mut sum = [i64::from(rank)];
        let early = if rank == 0 { (0..60).map(begin).collect() } else { Vec::new() };
        other.all_reduce(&mut sum, Reduction::Sum).expect("in the other group");
        assert_eq!(sum, [3]);
        let works = if rank == 0 { early } else { (0..60).map(begin).collect() };
        works.iter().for_each(|work| assert_eq!(work.wait(), Ok(None)));
        // In place, as sums are added while messages wait for credit.
        for i in 0..60i64 {
            let mut numbers = vec![i + i64::from(rank); LENGTH];
            group.all_reduce(&mut numbers, Reduction::Sum).expect("summed");
            assert!(numbers.iter().all(|x| *x == 3 * i + 3), "sum {i} at rank {rank}");
        }
        group.barrier().expect("to the end");
    });
}

#[test]
fn a_message_without_credit_arrives_when_its_receiver_asks_for_it() {
    with(2, &small_credit(), |_, group| {
        let other = group.split(Some(0), group.rank()).expect("split").expect("a color");
        let begin = |i: i64| {
            let job = CollectiveCall::Broadcast { at: BufferRange::whole(0, 8 * LENGTH), root: 0 };
            group.start(job, vec![inout(vec![i; LENGTH])], Element::I64, Reduction::Sum, None).expect("fits")
        };
        let began = Instant::now();
        // More than the credit, for calls that rank 1 makes later.
        let early: Vec<_> = if group.rank() == 0 { (0..20).map(begin).collect() } else { Vec::new() };
        for i in 0..20 {
            let mut numbers = vec![if group.rank() == 0 { i } else { -1 }; LENGTH];
            other.broadcast(&mut numbers, 0).expect("rank 1 asks for it");
            assert_eq!(numbers, vec![i; LENGTH]);
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert!(early.iter().filter(|work| work.is_ended()).count() < 20, "rank 1 has called none of them");
        let works = if group.rank() == 0 { early } else { (0..20).map(begin).collect() };
        works.iter().for_each(|work| assert_eq!(work.wait(), Ok(None)));
        group.barrier().expect("to the end");
    });
}

#[test]
fn sums_in_place_are_right_while_messages_wait_for_credit() {
    const COUNT: usize = 60;
    with(3, &small_credit(), |_, group| {
        let rank = group.rank();
        if rank == 2 {
            thread::sleep(Duration::from_millis(300));
        }
        let mut all: Vec<Vec<i64>> = (0..COUNT).map(|i| vec![(i * 10) as i64 + i64::from(rank); LENGTH]).collect();
        let works: Vec<_> = all
            .iter_mut()
            .map(|numbers| {
                let job = CollectiveCall::AllReduce(BufferRange::whole(0, 8 * LENGTH));
                let buffer = super::support::shared(numbers);
                group.start(job, vec![buffer], Element::I64, Reduction::Sum, None).expect("fits")
            })
            .collect();
        works.iter().for_each(|work| assert_eq!(work.wait(), Ok(None)));
        for (i, numbers) in all.iter().enumerate() {
            assert!(numbers.iter().all(|x| *x == (30 * i + 3) as i64), "sum {i} at rank {rank}");
        }
        group.barrier().expect("to the end");
    });
}

#[test]
fn thousands_of_receives_at_once_end() {
    const COUNT: u32 = 2_000;
    ranks(2, 1, |group| {
        // Their number is what is tested, not the speed of a busy machine.
        group.set_timeout(Duration::from_secs(120));
        let other = 1 - group.rank();
        let mut works: Vec<_> =
            (0..COUNT).map(|tag| group.start_recv(Some(other), tag, result(2_001), None).expect("begun")).collect();
        works.extend((0..COUNT).map(|tag| group.start_send(other, tag, lent(vec![1; 2_001]), None).expect("begun")));
        for work in works {
            work.wait().expect("met");
        }
    });
}

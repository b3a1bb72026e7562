//! When a worker asks, and how often.

use super::*;
use crate::job::Job;
use crate::tests::{flat, shape};
use crate::worker::WorkerSettings;
use std::sync::Arc;
use strandway_proto::HostId;
use strandway_proto::packet::Header;
use strandway_proto::program::{Act, Program};

const WINDOW: u32 = 64;

fn at(us: u64) -> Time {
    Time::ZERO + Span::from_us(us)
}

/// A worker of ESA that has sent a window of keys at the beginning. A round trip is 10 us, its timer 1 ms.
fn worker() -> (Arc<Job>, Worker) {
    let workers = (0..4).map(HostId).collect();
    let shape = crate::job::Shape { window: WINDOW, ..shape(1) };
    let job = Arc::new(Job::new(shape, &flat(8, 8), workers, HostId(7)).expect("a job"));
    let settings = WorkerSettings {
        recovery: Recovery::Remind,
        window: WINDOW,
        out_of_order: 3,
        halves: false,
        timeout: Span::from_ms(1),
        retain: 1 << 20,
    };
    let mut worker = Worker::new(&job, 0, settings);
    worker.produce(at(0), u64::from(WINDOW), 1);
    assert_eq!(sent(&mut worker).len(), WINDOW as usize);
    (job, worker)
}

/// Kinds and keys of the packets that it sends now.
fn sent(worker: &mut Worker) -> Vec<(Kind, u32)> {
    let acts = std::iter::from_fn(|| worker.poll_act());
    acts.filter_map(|act| match act {
        Act::Send { packet, .. } => match packet.header {
            Header::Fragment(fragment) => Some((fragment.kind, fragment.number)),
            _ => None,
        },
        _ => None,
    })
    .collect()
}

fn handle(job: &Job, worker: &mut Worker, time: Time, kind: Kind, key: u64) {
    let packet = job.packet(job.server(), job.workers()[0], 0, job.fragment(kind, key));
    worker.handle_packet(time, &packet);
}

#[test]
fn the_first_timeout_asks_for_one_key_and_each_further_one_for_twice_as_many() {
    let (_, mut worker) = worker();
    let mut asked = Vec::new();
    for _ in 0..8 {
        let due = worker.poll_timeout();
        worker.handle_timeout(due);
        asked.push(sent(&mut worker).len());
    }
    assert_eq!(asked[..3], [1, 2, 4]);
    assert!(asked.iter().all(|asked| *asked <= ASKED_MAX as usize) && asked.iter().sum::<usize>() > 32, "{asked:?}");
}

#[test]
fn a_stall_of_others_does_not_make_the_timer_longer() {
    let (job, mut worker) = worker();
    // Results take 20 us, then another worker stops for 30 ms.
    (0..32).for_each(|key| handle(&job, &mut worker, at(20), Kind::Result, key));
    assert_eq!(worker.timeout, Span::from_ms(1));
    worker.handle_timeout(at(1_020));
    assert_eq!(sent(&mut worker), [(Kind::Remind, job.fragment(Kind::Remind, 32).number)]);
    // The server waits for the other worker, too: nothing was lost, so the next timeout asks for one key, too.
    handle(&job, &mut worker, at(1_030), Kind::Hold, 32);
    worker.handle_timeout(at(2_030));
    assert_eq!(sent(&mut worker).len(), 1);
    assert_eq!(worker.timeout, Span::from_ms(1));
    (32..64).for_each(|key| handle(&job, &mut worker, at(30_000), Kind::Result, key));
    assert_eq!(worker.timeout, Span::from_ms(1), "the least of a window counts");
}

#[test]
fn a_key_that_others_passed_is_asked_for_by_the_time_of_the_path_and_again_if_no_answer_comes() {
    let (job, mut worker) = worker();
    (0..WINDOW.into()).filter(|key| *key != 5).for_each(|key| handle(&job, &mut worker, at(20), Kind::Result, key));
    let mut times = Vec::new();
    while times.len() < 4 {
        let due = worker.poll_timeout();
        assert!(due < Time::NEVER);
        worker.handle_timeout(due);
        times.extend(sent(&mut worker).into_iter().map(|(kind, _)| (kind, due)));
    }
    // A round trip takes 10 us.
    assert_eq!(times, [30, 60, 120, 240].map(|us| (Kind::Remind, at(us))));
}

#[test]
fn a_question_is_answered_once_in_the_time_of_the_path() {
    let (job, mut worker) = worker();
    let answers = |worker: &mut Worker, us| {
        handle(&job, worker, at(us), Kind::Solicit, 3);
        sent(worker).len()
    };
    assert_eq!([answers(&mut worker, 50), answers(&mut worker, 55), answers(&mut worker, 59)], [1, 0, 0]);
    assert_eq!(answers(&mut worker, 61), 1, "the answer must have been lost");
}

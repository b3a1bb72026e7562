//! A server's questions, and its beginning in the middle of a job.

use super::questions::{FLUSH_MAX, answer_timeout};
use super::*;
use crate::job::Shape;
use crate::tests::{flat, shape};
use strandway_proto::units::Span;

fn job() -> Arc<Job> {
    let workers = (0..4).map(strandway_proto::HostId).collect();
    let shape = Shape { first: 1 << 40, ..shape(1) };
    Arc::new(Job::new(shape, &flat(8, 8), workers, strandway_proto::HostId(7)).expect("a job"))
}

/// A packet of a worker about a key, on its way to the server.
fn packet(job: &Arc<Job>, kind: Kind, key: u64, worker: u16) -> Packet {
    let fragment = Fragment { workers: 1 << worker, racks: 1, sender: worker, ..job.fragment(kind, key) };
    job.packet(job.workers()[usize::from(worker)], job.server(), 0, fragment)
}

/// The kinds of the packets that the server sends now.
fn sent(server: &mut Server) -> Vec<Kind> {
    let acts = std::iter::from_fn(|| server.poll_act());
    acts.filter_map(|act| match act {
        Act::Send { packet: Packet { header: Header::Fragment(fragment), .. }, .. } => Some(fragment.kind),
        _ => None,
    })
    .collect()
}

#[test]
fn reminders_of_all_workers_within_a_round_trip_cause_one_question() {
    let job = job();
    let key = job.shape.first;
    let mut server = Server::new(&job, Rules::Cover { flush_timer: true }, 1);
    let remind = |server: &mut Server, at: u64, worker| {
        server.handle_packet(Time::ZERO + Span::from_us(at), &packet(&job, Kind::Remind, key, worker));
        sent(server)
    };
    assert_eq!(remind(&mut server, 100, 0), [Kind::Flush]);
    for worker in 1..4 {
        assert_eq!(remind(&mut server, 100 + u64::from(worker), worker), [], "worker {worker}");
    }
    // The switch has nothing: all are asked, and all of them are known to wait.
    let miss = packet(&job, Kind::FlushMiss, key, 0);
    server.handle_packet(Time::ZERO + Span::from_us(105), &miss);
    assert_eq!(sent(&mut server), [Kind::Solicit; 4]);
    // A round trip is 10 us.
    assert_eq!(remind(&mut server, 120, 2), [Kind::Flush], "the answers must have been lost");
}

#[test]
fn a_part_that_is_known_already_does_not_make_questions_frequent() {
    let job = job();
    let key = job.shape.first;
    let mut server = Server::new(&job, Rules::Cover { flush_timer: true }, 1);
    let part = packet(&job, Kind::Partial, key, 0);
    server.handle_packet(Time::ZERO, &part);
    // The same part comes again just before each question, as from a worker that is asked again and again.
    let mut times = Vec::new();
    while times.len() < 5 {
        let due = server.poll_timeout();
        server.handle_packet(due, &part);
        server.handle_timeout(due);
        times.extend(sent(&mut server).iter().map(|_| due));
    }
    let gaps: Vec<Span> = times.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert_eq!(gaps, [40, 80, 160, 320].map(Span::from_us));
}

/// Reminders of all workers about this key, and the switch has nothing: what the server asks.
fn asked(server: &mut Server, job: &Arc<Job>, at: Time, key: u64) -> Vec<Kind> {
    for worker in 0..4 {
        server.handle_packet(at, &packet(job, Kind::Remind, key, worker));
    }
    server.handle_packet(at, &packet(job, Kind::FlushMiss, key, 0));
    sent(server).into_iter().filter(|kind| *kind != Kind::Flush).collect()
}

#[test]
fn a_worker_has_a_bounded_number_of_questions_to_answer() {
    let job = job();
    let first = job.shape.first;
    let mut server = Server::new(&job, Rules::Cover { flush_timer: true }, 1);
    let all: usize = (0..100).map(|key| asked(&mut server, &job, Time::ZERO, first + key).len()).sum();
    assert_eq!(all, 4 * 64);
    // Each answer makes room for one more question.
    let answer = |worker: u16| {
        let fragment = Fragment { marks: Marks::RESEND.with(Marks::BYPASS), ..job.fragment(Kind::Data, first) };
        let fragment = Fragment { workers: 1 << worker, racks: 1, sender: worker, ..fragment };
        job.packet(job.workers()[usize::from(worker)], job.server(), 0, fragment)
    };
    server.handle_packet(Time::ZERO + Span::from_us(300), &answer(2));
    assert_eq!(asked(&mut server, &job, Time::ZERO + Span::from_us(300), first + 200), [Kind::Solicit]);
    // The other workers' answers complete the key, which ends its questions.
    (0..4).filter(|worker| *worker != 2).for_each(|worker| {
        server.handle_packet(Time::ZERO + Span::from_us(310), &answer(worker));
    });
    sent(&mut server);
    assert_eq!(asked(&mut server, &job, Time::ZERO + Span::from_us(320), first + 201), [Kind::Solicit; 3]);
    assert!(server.answers.get().is_some_and(|time| time > Span::from_us(300)), "it knows how long answers take");
}

#[test]
fn questions_about_a_key_become_rare_on_slow_paths_too() {
    let times = |rtt: Span, answers: Option<Span>| {
        let mut before = Span::ZERO;
        std::iter::from_fn(move || {
            before = answer_timeout(before, rtt, answers);
            Some(before)
        })
    };
    let fast: Vec<Span> = times(Span::from_us(10), Some(Span::from_us(30))).take(9).collect();
    assert_eq!(fast[..3], [20, 40, 80].map(Span::from_us));
    assert_eq!(fast[8], FLUSH_MAX);
    let slow: Vec<Span> = times(Span::from_ms(2), Some(Span::from_ms(3))).take(7).collect();
    assert_eq!(slow, [4, 8, 16, 32, 64, 64, 64].map(Span::from_ms));
    // A queue at a worker's port that is longer than the round trip: known, and not known yet.
    let queue: Vec<Span> = times(Span::from_us(50), Some(Span::from_ms(300))).take(16).collect();
    assert_eq!(queue[15], Span::from_ms(1_200));
    let unknown: Vec<Span> = times(Span::from_us(50), None).take(16).collect();
    assert_eq!(unknown[15], Span::from_ms(64));
}

#[test]
fn a_server_that_begins_in_the_middle_keeps_the_keys_under_way() {
    let job = job();
    let now = job.shape.first + 100_000;
    let window = u64::from(job.shape.window);
    let stored = |server: Server| {
        let mut server = server.within(24 * window);
        for key in [now, now - window] {
            server.handle_packet(Time::ZERO, &packet(&job, Kind::Remind, key, 1));
        }
        server.entries()
    };
    let new = || Server::new(&job, Rules::Cover { flush_timer: true }, 1);
    assert_eq!((stored(new()), stored(new().resumed())), (0, 2));
    // Keys that all workers have done are not kept.
    let mut server = new().resumed().within(24 * window);
    for key in [now, now - 2 * window - 1, now + 30 * window] {
        server.handle_packet(Time::ZERO, &packet(&job, Kind::Remind, key, 1));
    }
    assert_eq!(server.entries(), 1);
}

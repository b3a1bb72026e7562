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
fn questions_about_a_key_become_rare_on_slow_paths_too() {
    let times = |rtt: Span| {
        let mut before = Span::ZERO;
        std::iter::from_fn(move || {
            before = answer_timeout(before, rtt);
            Some(before)
        })
    };
    let fast: Vec<Span> = times(Span::from_us(10)).take(9).collect();
    assert_eq!(fast[..3], [20, 40, 80].map(Span::from_us));
    assert_eq!(fast[8], FLUSH_MAX);
    let slow: Vec<Span> = times(Span::from_ms(2)).take(7).collect();
    assert_eq!(slow, [4, 8, 16, 32, 64, 64, 64].map(Span::from_ms));
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

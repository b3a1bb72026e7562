//! One-sided reads: requests, and the flows that answer them.

use super::support::{leaf_spine, plain, run};
use strandway_fabric::plan::{FlowPlan, Start};
use strandway_fabric::{Measurements, Plan};
use strandway_proto::Time;
use strandway_proto::read::{REQUEST_BYTES, ReadLimits};

/// Host 0 reads `count` times `bytes` bytes from host 3, all at once: first the requests, then the answers.
fn reads(count: u32, bytes: u64) -> Plan {
    let mut plan = plain(leaf_spine(4, 2, 1), &[(0, 3, REQUEST_BYTES), (3, 0, bytes)]);
    let [request, answer] = [0, 1].map(|i| plan.flows[i]);
    let answers = (0..count).map(|i| FlowPlan { start: Start::Asked(i), ..answer });
    plan.flows = (0..count).map(|_| request).chain(answers).collect();
    plan
}

fn received(measured: &Measurements, flow: u32) -> Time {
    measured.flows[flow as usize].received.expect("arrived")
}

/// The most intervals that contain one instant.
fn most_at_once(intervals: impl Iterator<Item = (Time, Time)>) -> i64 {
    let mut edges: Vec<(Time, i64)> = intervals.flat_map(|(from, to)| [(from, 1), (to, -1)]).collect();
    edges.sort_unstable();
    let counts = edges.into_iter().scan(0, |open, (_, step)| {
        *open += step;
        Some(*open)
    });
    counts.max().unwrap_or(0)
}

#[test]
fn an_answer_starts_when_its_request_arrives() {
    let measured = run(&reads(1, 10_000));
    assert_eq!(measured.flows[0].started, Some(Time::ZERO));
    assert_eq!(measured.flows[1].started, Some(received(&measured, 0)));
    assert!(received(&measured, 1) > received(&measured, 0));
}

#[test]
fn requests_wait_at_the_reader_and_answers_at_the_target() {
    let ReadLimits { reads: most, bytes: most_bytes } = ReadLimits::DEFAULT;
    for (count, bytes) in [(3_000, 64), (200, 1_000_000)] {
        let measured = run(&reads(count, bytes));
        let started = |flow: u32| measured.flows[flow as usize].started.expect("posted");
        let asked = most_at_once((0..count).map(|i| (started(i), received(&measured, count + i))));
        assert_eq!(asked, i64::from(count).min(most as i64), "requests under way");
        let finished = |flow: u32| measured.flows[flow as usize].finished.expect("acknowledged");
        let answers = most_at_once((count..2 * count).map(|i| (started(i), finished(i))));
        assert!(answers as u64 * bytes <= most_bytes, "{answers} answers of {bytes} bytes under way");
        assert!(bytes < 1_000_000 || answers as u64 * bytes > most_bytes - bytes, "as many as may be: {answers}");
        // Answers leave in the order of requests.
        assert!((1..count).all(|i| started(count + i) >= started(count + i - 1)));
    }
}

#[test]
fn reads_are_alike_on_any_number_of_threads() {
    let plan = reads(300, 5_000);
    let one = run(&plan);
    for threads in [2, 3] {
        assert_eq!(run(&Plan { threads, ..plan.clone() }).flows, one.flows, "{threads} threads");
    }
}

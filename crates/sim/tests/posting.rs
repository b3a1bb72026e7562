//! The time that a host needs to post a message.

use super::support::{completions, fat_tree, plan, preset, run};
use strandway_fabric::Measurements;
use strandway_fabric::plan::ConnectionPlan;
use strandway_proto::HostId;
use strandway_proto::Span;

/// Host 0 sends a message of 1,000 bytes to each of three hosts, and host 9 one to host 14.
fn flows() -> [(u32, u32, u64); 4] {
    [(0, 5, 1000), (0, 13, 1000), (0, 11, 1000), (9, 14, 1000)]
}

fn with(cost: Span, threads: usize) -> Measurements {
    let mut plan = plan(fat_tree(4), preset("uec"), &flows());
    plan.ports.message_cost = cost;
    plan.threads = threads;
    run(&plan)
}

fn times(m: &Measurements) -> Vec<u64> {
    m.flows.iter().map(|flow| flow.completion().expect("it ends").0).collect()
}

#[test]
fn messages_of_a_host_leave_one_cost_after_the_other() {
    let (free, costly) = (times(&with(Span::ZERO, 1)), times(&with(Span::from_us(7), 1)));
    // At no cost the three messages of host 0 share its port for 85 ns each; with 7 us each one finds it idle.
    let packet = 85_120;
    let alone = free[0];
    assert_eq!(free[1..3], [alone + packet, alone + 2 * packet]);
    assert_eq!(costly[..3], [alone + 7_000_000, alone + 14_000_000, alone + 21_000_000]);
    assert_eq!(costly[3], free[3] + 7_000_000, "a host waits for its own messages only");
}

#[test]
fn a_cost_changes_no_totals_and_threads_change_nothing() {
    let (one, many) = (with(Span::from_ns(300), 1), with(Span::from_ns(300), 4));
    assert_eq!(one.digest, many.digest);
    assert_eq!(one.packets.retransmitted, 0);
}

#[test]
fn messages_of_one_connection_keep_their_order() {
    let mut plan = plan(fat_tree(4), preset("uec"), &[(0, 13, 4000), (0, 13, 4000)]);
    plan.connections = vec![ConnectionPlan { source: HostId(0), destination: HostId(13), profile: 0 }];
    plan.flows[1].connection = 0;
    plan.ports.message_cost = Span::from_us(1);
    let m = run(&plan);
    let (slowest, _) = completions(&m);
    let ends = times(&m);
    assert_eq!(ends[1] - ends[0], 1_000_000, "{slowest}");
}

//! The work of receiving: threads that take packets from a queue at each host.

use super::support::{completions, fat_tree, fixed, permutation, plan, preset, run};
use strandway_fabric::plan::ReceiveSettings;
use strandway_fabric::{Measurements, Plan};
use strandway_proto::Span;
use strandway_proto::reliability::ReliabilityConfig;

/// A flow of 4 MB at 100 Gb/s, which is 3 million packets a second. Its timeout is longer than the work of a window.
fn flow() -> Plan {
    let mut profile = fixed(1.5);
    if let ReliabilityConfig::SelectiveRepeat(config) = &mut profile.reliability {
        config.rto = Span::from_ms(10);
    }
    plan(fat_tree(4), profile, &[(0, 13, 4_096_000)])
}

fn with(mut plan: Plan, threads: u32, queue: u32) -> Measurements {
    plan.ports.receive = Some(ReceiveSettings::new(threads, 0.5, 0.0, ReceiveSettings::CHUNK, queue));
    run(&plan)
}

#[test]
fn a_flow_has_the_rate_of_its_receivers_threads_or_of_the_link() {
    let (link, _) = completions(&run(&flow()));
    for (threads, us) in [(1, 2000.0), (2, 1000.0), (4, 500.0)] {
        let (slowest, _) = completions(&with(flow(), threads, 8192));
        assert!((us..us + 30.0).contains(&slowest), "{threads}: {slowest}");
    }
    let (many, _) = completions(&with(flow(), 16, 8192));
    assert!(many < link + 1.0, "{many} beside {link}");
}

#[test]
fn packets_beyond_the_queue_are_discarded_and_sent_again() {
    let m = with(plan(fat_tree(4), preset("uec"), &[(0, 13, 4_096_000)]), 1, 8);
    assert!(m.packets.discarded > 0 && m.packets.retransmitted > 0, "{}", m.packets.discarded);
    assert!(m.flows[0].completion().is_some(), "it ends in spite of them");
}

#[test]
fn work_changes_no_totals() {
    let flows = permutation(16, 500_000, 3);
    let m = with(plan(fat_tree(4), preset("uec"), &flows), 3, 8192);
    assert!(m.flows.iter().all(|flow| flow.completion().is_some()));
    assert_eq!(m.packets.discarded, 0);
}

#[test]
fn threads_in_a_crowd_are_slower() {
    let per = |threads, knee| ReceiveSettings::new(threads, 1.0, knee, 16, 1).per_packet.0;
    assert_eq!((per(1, 0.0), per(10, 0.0)), (1_000_000, 100_000));
    assert_eq!(per(100, 100.0), 20_000);
}

#[test]
fn packets_of_short_chunks_take_longer() {
    let per = |chunk| ReceiveSettings::new(1, 1.0, 0.0, chunk, 1).per_packet.0;
    assert_eq!([1, 4, 16, 64].map(per), [1_500_000, 1_166_666, 1_000_000, 916_666]);
}

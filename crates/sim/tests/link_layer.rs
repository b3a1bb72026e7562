//! The link layer of Ultra Ethernet: links that repeat what they lose (LLR), and links with credit (CBFC).

use super::support::{bdp, completions, fat_tree, fault, link, permutation, plan, preset, run};
use strandway_fabric::fault::FaultKind;
use strandway_fabric::loss::Burst;
use strandway_fabric::topology::LinkId;
use strandway_fabric::{Measurements, Plan};
use strandway_proto::Bytes;

fn all_links(plan: &Plan) -> Vec<LinkId> {
    (0..plan.topology.links()).map(LinkId).collect()
}

fn lossy(mut plan: Plan, probability: f64) -> Plan {
    plan.faults = vec![fault(&all_links(&plan), FaultKind::Loss { probability, burst: Burst::NONE }, 0, u64::MAX)];
    plan
}

fn lost(m: &Measurements) -> u64 {
    m.links.iter().map(|l| u64::from(l.lost)).sum()
}

#[test]
fn links_that_repeat_lose_nothing_and_cost_a_link_round_trip_per_loss() {
    let flow = || plan(fat_tree(4), preset("uec"), &[(0, 13, 2_000_000)]);
    let (clean, _) = completions(&run(&flow()));
    let without = run(&lossy(flow(), 1e-2));
    let mut with = lossy(flow(), 1e-2);
    with.ports.llr = true;
    let with = run(&with);
    assert!(lost(&without) > 10 && without.packets.retransmitted > 10, "{}", lost(&without));
    assert_eq!((lost(&with), with.packets.retransmitted), (0, 0));
    // 490 packets over six links: about 29 are lost once, 5 of them on the first link and 5 on the last one, which have no
    // reserve. A loss there costs 2 us and a packet of 333 ns.
    let (slowest, _) = completions(&with);
    assert!(slowest > clean + 2.3 && slowest < clean + 40.0, "{slowest} beside {clean}");
    assert!(slowest < completions(&without).0, "{slowest} beside {:?}", completions(&without));
}

#[test]
fn a_packet_that_is_lost_once_comes_a_link_round_trip_later_in_order() {
    let mut plan = plan(fat_tree(4), preset("uec"), &[(0, 13, 40_960)]);
    let first = link(&plan.topology, "host0", "leaf0");
    plan.ports.llr = true;
    let (clean, _) = completions(&run(&plan));
    // The first transmissions of the first packet fall into this time, and its repetition does not.
    plan.faults = vec![fault(&[first], FaultKind::Loss { probability: 1.0, burst: Burst::NONE }, 0, 100_000)];
    let m = run(&plan);
    let (late, _) = completions(&m);
    // 2 us for the request's round trip, and 4,160 B at 100 Gb/s.
    assert!((late - clean - 2.3328).abs() < 1e-6, "{late} beside {clean}");
    assert_eq!(m.packets.retransmitted, 0);
}

#[test]
fn a_link_that_is_dead_is_given_up() {
    let mut plan = plan(fat_tree(4), preset("uec"), &[(0, 13, 40_960)]);
    plan.ports.llr = true;
    let first = link(&plan.topology, "host0", "leaf0");
    plan.faults = vec![fault(&[first], FaultKind::Loss { probability: 1.0, burst: Burst::NONE }, 0, u64::MAX)];
    let m = run(&plan);
    assert!(m.flows[0].completion().is_none() && lost(&m) > 0, "{} lost", lost(&m));
}

/// With credit of `packets` packets for each input port.
fn with_credit(mut plan: Plan, packets: u64) -> Plan {
    plan.ports.cbfc = Some(Bytes(4160 * packets));
    plan.ports.trim = None;
    plan.ports.data_queue = Bytes(1 << 40);
    plan
}

#[test]
fn credit_of_links_drops_nothing_and_bounds_every_buffer() {
    let topology = fat_tree(4);
    // A link's round trip has 25,000 B.
    let enough = 25_000u64.div_ceil(4160) + 4;
    let flows: Vec<(u32, u32, u64)> = (0..15).map(|from| (from, 15, 1_000_000)).collect();
    let m = run(&with_credit(plan(topology.clone(), preset("uec"), &flows), enough));
    let counted = |of: fn(&strandway_fabric::measure::LinkCounters) -> u64| m.links.iter().map(of).sum::<u64>();
    assert_eq!((counted(|l| u64::from(l.dropped)), counted(|l| u64::from(l.trimmed))), (0, 0));
    // The ports of a leaf have at most the buffers of its other three input ports behind them.
    let longest = m.links.iter().map(|l| l.queue_max.0).max().unwrap_or(0);
    assert!(longest <= 3 * enough * 4160, "{longest} B");
    let ideal = 15.0 * 245.0 * 4160.0 * 8.0 / 100e3;
    assert!((ideal..ideal * 1.1).contains(&completions(&m).0), "{:?} of {ideal}", completions(&m));
    assert!(bdp(&topology) < 3 * enough * 4160 * 4, "buffers of a path are longer than the fabric's BDP");
}

#[test]
fn a_link_without_enough_credit_runs_below_its_rate() {
    let one =
        |packets| completions(&run(&with_credit(plan(fat_tree(4), preset("uec"), &[(0, 13, 2_000_000)]), packets))).0;
    let (enough, half) = (one(12), one(4));
    // Four packets per 2 us and their own time on the first link: 66 of 100 Gb/s or less.
    assert!(half > 1.4 * enough, "{half} beside {enough}");
}

#[test]
fn packets_lost_on_links_give_their_credit_back() {
    let flows = permutation(16, 1_000_000, 1);
    for llr in [false, true] {
        let mut plan = with_credit(lossy(plan(fat_tree(4), preset("uec"), &flows), 1e-2), 12);
        plan.ports.llr = llr;
        let m = run(&plan);
        assert!(m.flows.iter().all(|flow| flow.completion().is_some()), "llr {llr}: {:?}", completions(&m));
        assert_eq!(lost(&m) == 0, llr);
    }
}

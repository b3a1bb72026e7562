//! Receiver credit (RCCC): incasts without a surplus of packets, and grants that get lost.

use super::support::{completions, fat_tree, fault, plan, preset, run};
use strandway_fabric::fault::FaultKind;
use strandway_fabric::loss::Burst;
use strandway_fabric::topology::LinkId;
use strandway_fabric::{Measurements, Plan};
use strandway_proto::Profile;
use strandway_proto::congestion::{CongestionConfig, NsccConfig};

/// The congestion controls that use credit: alone, and beside NSCC.
fn with_credit() -> [(&'static str, Profile); 2] {
    let both = CongestionConfig::Nscc(NsccConfig { receiver_credit: true, ..NsccConfig::default() });
    let alone = CongestionConfig::named("rccc").expect("a name");
    [("alone", alone), ("with NSCC", both)].map(|(name, congestion)| {
        let mut profile = Profile { congestion, ..preset("uec") };
        profile.switch.ecn_last_hop = false;
        (name, profile)
    })
}

/// 15 hosts send 2 MB each to the last one of 16, at 100 Gb/s.
fn incast(profile: Profile) -> Plan {
    let flows: Vec<(u32, u32, u64)> = (0..15).map(|from| (from, 15, 2_000_000)).collect();
    plan(fat_tree(4), profile, &flows)
}

fn fastest(m: &Measurements) -> f64 {
    m.flows.iter().filter_map(|f| f.completion()).map(|c| c.as_us()).fold(f64::INFINITY, f64::min)
}

#[test]
fn an_incast_is_shared_evenly_and_takes_the_time_of_its_bytes() {
    let (without, _) = completions(&run(&incast(preset("uec"))));
    for (name, profile) in with_credit() {
        let m = run(&incast(profile));
        let (slowest, _) = completions(&m);
        // 15 times 2.03 MB at 100 Gb/s are 2,437 us.
        assert!(slowest < 2_437.0 * 1.03, "{name}: {slowest}");
        assert!(slowest < without * 1.01, "{name}: {slowest} beside {without}");
        assert!(fastest(&m) > slowest * 0.9, "{name}: {} and {slowest}", fastest(&m));
        // Only the first windows are too much: 15 of 1.5 BDP for a queue of one.
        let trimmed = m.links.iter().map(|l| u64::from(l.trimmed)).sum::<u64>();
        assert!(trimmed < 15 * 60, "{name}: {trimmed} packets trimmed");
    }
}

#[test]
fn a_flow_alone_has_the_whole_link_but_for_the_pace() {
    for (name, profile) in with_credit() {
        let (slowest, _) = completions(&run(&plan(fat_tree(4), profile, &[(0, 13, 2_000_000)])));
        assert!((172.0..180.0).contains(&slowest), "{name}: {slowest}");
    }
}

#[test]
fn senders_whose_grants_get_lost_ask_for_credit() {
    for (name, profile) in with_credit() {
        let mut plan = incast(profile);
        let links: Vec<LinkId> = (0..plan.topology.links()).map(LinkId).collect();
        plan.faults = vec![fault(&links, FaultKind::Loss { probability: 0.01, burst: Burst::NONE }, 0, u64::MAX)];
        let m = run(&plan);
        assert!(m.flows.iter().all(|flow| flow.completion().is_some()), "{name}: {:?}", completions(&m));
        assert!(completions(&m).0 < 2.0 * 2_437.0, "{name}: {:?}", completions(&m));
    }
}

//! Sites joined by long links: times to the picosecond, losses with their mean, in bursts, in one direction, the same
//! on any number of threads.

use super::support::*;
use std::collections::BTreeSet;
use strandway_fabric::fault::FaultKind;
use strandway_fabric::loss::Burst;
use strandway_fabric::measure::Measurements;
use strandway_fabric::plan::{CapturePlan, Start, TriggerPlan};
use strandway_fabric::topology::{Level, LongLink, SitesShape, Topology};
use strandway_fabric::{LinkId, Plan};
use strandway_proto::{Bytes, Rate, Span, Time};
use strandway_sim::{Control, simulate};

/// Sites of `hosts` hosts at 400 Gb/s, `ms` milliseconds apart one way.
fn sites(sites: u32, hosts: u32, planes: u8, bundle: u32, ms: u64) -> Topology {
    let shape = SitesShape { sites, hosts_per_site: hosts, planes, bundle };
    let local = Level { rate: Rate::from_gbps(400), latency: Span::from_us(1) };
    let level = Level { rate: Rate::from_gbps(400), latency: Span::from_ms(ms) };
    let long = LongLink { level, queue: Bytes(1 << 30) };
    Topology::of_sites(shape, local, vec![long; shape.pairs().count()], Span::ZERO).expect("a valid shape")
}

fn lost(plan: &Plan, m: &Measurements, from: &str, to: &str) -> (u64, u64) {
    let counters = &m.links[link(&plan.topology, from, to).0 as usize];
    (counters.lost.into(), counters.packets)
}

#[test]
fn a_packet_takes_exactly_as_long_as_its_links() {
    for ms in [1, 12, 400] {
        let topology = sites(2, 1, 1, 1, ms);
        let m = simulate(&plain(topology.clone(), &[(0, 1, 4096)]), &Control::new());
        let flow = &m.flows[0];
        // 83.2 ns on each of three links, 1 us twice, and the long way.
        let way = 3 * 83_200 + 2_000_000 + ms * 1_000_000_000;
        assert_eq!(flow.received, Some(Time(way)), "{ms} ms");
        assert_eq!(flow.finished, Some(Time(way + 3 * 1_280 + 2_000_000 + ms * 1_000_000_000)));
        assert_eq!(topology.base_rtt(Bytes(4160), Bytes(64)).0, flow.finished.expect("it ended").0);
    }
}

#[test]
fn a_train_of_packets_beyond_32_bits_of_picoseconds_and_bytes_arrives_in_step() {
    // 300,000 packets over 50 ms at 400 Gb/s, 1.25 GB in flight: no packet waits, so the delay of the last one is given
    // by its place in the order.
    let count = 300_000u64;
    let mut plan = plain(sites(2, 1, 1, 1, 50), &[(0, 1, count * 4096)]);
    let profile = std::sync::Arc::get_mut(&mut plan.profiles[0]).expect("not shared yet");
    let strandway_proto::reliability::ReliabilityConfig::SelectiveRepeat(config) = &mut profile.reliability else {
        panic!("uec repeats selectively")
    };
    config.window_psn = 1 << 20;
    let m = simulate(&plan, &Control::new());
    let way = (count - 1) * 83_200 + 3 * 83_200 + 2_000_000 + 50_000_000_000;
    assert_eq!(m.flows[0].received, Some(Time(way)));
    assert_eq!(m.packets.sent, count);
}

/// Twelve times 16 MiB from site 0 to site 1, with these losses on the named links from and to site 0.
fn lossy(probability: f64, burst: Burst, links: impl Fn(&Topology) -> Vec<LinkId>) -> (Plan, Measurements) {
    let flows: Vec<_> = (0..12).map(|h| (h, h + 12, 16 << 20)).collect();
    let topology = sites(2, 12, 1, 1, 1);
    let struck = links(&topology);
    let mut plan = plan(topology, preset("rocev2_sr"), &flows);
    plan.faults = vec![fault(&struck, FaultKind::Loss { probability, burst }, 0, u64::MAX)];
    let m = simulate(&plan, &Control::new());
    assert!(m.flows.iter().all(|f| f.finished.is_some()));
    (plan, m)
}

#[test]
fn independent_losses_have_their_mean_and_spare_the_other_direction() {
    let (plan, m) = lossy(0.01, Burst::NONE, |t| vec![link(t, "site0", "site1")]);
    let (lost_there, sent) = lost(&plan, &m, "site0", "site1");
    assert!(sent > 40_000, "{sent}");
    // Four standard deviations.
    let (mean, four) = (sent as f64 * 0.01, 4.0 * (sent as f64 * 0.01 * 0.99).sqrt());
    assert!((lost_there as f64 - mean).abs() < four, "{lost_there} of {sent}, not {mean} +- {four}");
    assert_eq!(lost(&plan, &m, "site1", "site0").0, 0);
}

#[test]
fn bursts_have_their_mean_and_last_as_long_as_they_should() {
    let (share, length) = (0.2, Span::from_us(10));
    let (mut plan, _) = lossy(0.0, Burst::NONE, |t| vec![link(t, "site0", "site1")]);
    let there = link(&plan.topology, "site0", "site1");
    let behind: Vec<LinkId> = (12..24).map(|h| link(&plan.topology, "site1", &format!("host{h}"))).collect();
    plan.faults =
        vec![fault(&[there], FaultKind::Loss { probability: share, burst: Burst::Time(length) }, 0, u64::MAX)];
    plan.capture = Some(CapturePlan { links: [vec![there], behind].concat(), limit: 1_000_000 });
    let m = simulate(&plan, &Control::new());

    // The ports after the long link are as fast as it is, so that packets leave them at once: 1 ms after their last
    // bit.
    let arrived: BTreeSet<u64> = m.captured.iter().filter(|c| c.link != there).map(|c| c.at.0).collect();
    let left = m.captured.iter().filter(|c| c.link == there);
    let fates: Vec<(u64, bool)> =
        left.map(|c| (c.at.0, !arrived.contains(&(c.at.0 + u64::from(c.packet.size) * 20 + 1_000_000_000)))).collect();
    let lost = fates.iter().filter(|(_, lost)| *lost).count();
    assert_eq!(lost, m.links[there.0 as usize].lost as usize, "packets arrive when they should");

    // Such a process forgets its state after 8 us. So the number of independent observations is the time in which
    // packets passed, divided by 8 us.
    let busy = fates.windows(2).map(|w| (w[1].0 - w[0].0).min(83_200)).sum::<u64>() as f64;
    let memory = length.0 as f64 * (1.0 - share);
    let deviation = (2.0 * share * (1.0 - share) * memory / busy).sqrt();
    let measured = lost as f64 / fates.len() as f64;
    assert!((measured - share).abs() < 4.0 * deviation, "{measured}, not {share} +- 4 x {deviation}");
    assert!(deviation < share / 8.0, "{deviation}: too few bursts to tell");

    // Bursts that begin and end while the link is busy, from the first packet lost to the first that is not. Gaps cut
    // some of the longer ones off.
    let mut runs = Vec::new();
    let mut since = None;
    for pair in fates.windows(2) {
        let ((before, was), (at, is)) = (pair[0], pair[1]);
        match since {
            _ if at - before > 100_000 => since = None,
            None if is && !was => since = Some(at),
            Some(from) if !is => {
                runs.push((at - from) as f64);
                since = None;
            }
            _ => {}
        }
    }
    let mean = runs.iter().sum::<f64>() / runs.len() as f64;
    let spread = 4.0 * length.0 as f64 / (runs.len() as f64).sqrt();
    assert!((mean - length.0 as f64).abs() < spread, "{mean} ps over {} bursts, not {length} +- {spread}", runs.len());
    assert!(runs.len() > 100, "{} bursts", runs.len());
}

#[test]
fn sites_give_the_same_digest_on_any_number_of_threads() {
    let topology = sites(4, 4, 2, 2, 3);
    let flows = permutation(16, 3_000_000, 3);
    let mut plan = plan(topology, preset("uec"), &flows);
    let long: Vec<LinkId> = plan.topology.long_links().map(|(link, _)| link).collect();
    plan.faults = vec![
        fault(&long[..20], FaultKind::Loss { probability: 0.01, burst: Burst::Time(Span::from_us(50)) }, 0, u64::MAX),
        fault(&long[20..], FaultKind::Loss { probability: 0.001, burst: Burst::NONE }, 0, u64::MAX),
    ];
    let digests: Vec<u64> = [1, 2, 7]
        .into_iter()
        .map(|threads| {
            plan.threads = threads;
            let m = simulate(&plan, &Control::new());
            assert!(m.packets.lost > 0 && m.flows.iter().all(|f| f.finished.is_some()));
            m.digest
        })
        .collect();
    assert_eq!(digests, [digests[0]; 3]);
}

#[test]
fn entropy_spreads_over_parallel_long_links_and_routing_leaves_a_dead_one() {
    let topology = sites(2, 2, 1, 4, 2);
    let mut plan = plan(topology, preset("uec"), &[(0, 2, 8_000_000)]);
    let all = plan.topology.links_between(plan.topology.leaf(0, 0), plan.topology.leaf(1, 0));
    assert_eq!(all.len(), 4);
    let packets = |m: &Measurements| -> Vec<u64> { all.iter().map(|l| m.links[l.0 as usize].packets).collect() };
    let m = simulate(&plan, &Control::new());
    assert!(packets(&m).iter().all(|&n| n > 200), "{:?}", packets(&m));
    plan.faults = vec![fault(&[all[2]], FaultKind::Down { visible: Some(Span::ZERO) }, 0, u64::MAX)];
    let m = simulate(&plan, &Control::new());
    assert_eq!(packets(&m)[2], 0, "{:?}", packets(&m));
    assert!(m.flows[0].finished.is_some());
}

#[test]
fn news_of_a_flow_needs_the_way_to_the_other_site() {
    let topology = sites(2, 2, 1, 1, 3);
    let mut plan = plain(topology, &[(0, 1, 4096), (2, 3, 4096), (1, 0, 4096)]);
    plan.triggers = vec![TriggerPlan { needed: 1 }, TriggerPlan { needed: 1 }];
    // The first flow within site 0 releases one within site 1, and one that its own receiver posts.
    plan.flows[0].on_received = Some(0);
    plan.flows[0].on_sent = Some(1);
    plan.flows[1].start = Start::On(0, Span::ZERO);
    plan.flows[2].start = Start::On(1, Span::ZERO);
    let m = simulate(&plan, &Control::new());
    let received = m.flows[0].received.expect("it arrived");
    assert_eq!(m.flows[1].started, Some(received + Span::from_ms(3) + Span::from_us(2)));
    let finished = m.flows[0].finished.expect("it ended");
    assert_eq!(m.flows[2].started, Some(finished + Span::from_us(1)));
}

//! Faults, losses and triggers by arithmetic.

use super::arithmetic::*;
use super::support::*;
use strandway_fabric::fault::FaultKind;
use strandway_fabric::loss::Burst;
use strandway_fabric::measure::End;
use strandway_fabric::plan::{Start, TriggerPlan};
use strandway_fabric::topology::Shape;
use strandway_proto::packet::Flags;
use strandway_proto::{Span, Time};

#[test]
fn a_degraded_link_takes_longer_by_its_fraction_while_it_lasts() {
    let topology = leaf_spine(4, 2, 1);
    let slow = link(&topology, "leaf0", "spine0");
    let healthy = 4 * (TX + LINK);
    for (fraction, times) in [(0.25, 4), (0.5, 2), (0.1, 10)] {
        let mut plan = plain(topology.clone(), &[(0, 3, 4096)]);
        plan.faults = vec![fault(&[slow], FaultKind::Degraded { fraction }, 0, u64::MAX)];
        let m = run(&plan);
        assert_eq!(received(&m, 0), healthy + (times - 1) * TX, "a fraction of {fraction}");
        // Only a packet whose transmission begins during the fault is slowed down.
        for (from, until, late) in [
            (TX + LINK + 1, u64::MAX, 0),
            (TX + LINK, u64::MAX, 0),
            (TX + LINK - 1, u64::MAX, (times - 1) * TX),
            (0, TX + LINK - 1, 0),
        ] {
            plan.faults = vec![fault(&[slow], FaultKind::Degraded { fraction }, from, until)];
            assert_eq!(received(&run(&plan), 0), healthy + late, "from {from} until {until}");
        }
    }
}

#[test]
fn a_link_that_goes_down_silently_loses_what_is_on_its_way() {
    let topology = leaf_spine(4, 2, 1);
    let nic = link(&topology, "host0", "leaf0");
    let mut plan = plain(topology, &[(0, 3, 4096)]);
    let arrival = TX + LINK;
    for (from, until, lost) in [(arrival, u64::MAX, 0), (arrival - 1, arrival, 1), (0, 1, 1), (TX / 2, TX, 1)] {
        plan.faults = vec![fault(&[nic], FaultKind::Down { visible: None }, from, until)];
        let m = run(&plan);
        assert_eq!(
            (m.packets.lost, u64::from(m.links[nic.0 as usize].lost)),
            (lost, lost),
            "from {from} until {until}"
        );
        assert_eq!(m.end, End::Finished, "what was lost is sent again");
    }
    // A packet that begins at the instant when the link is up again is not lost.
    plan.flows[0].start = Start::At(Time(5 * US));
    plan.faults = vec![fault(&[nic], FaultKind::Down { visible: None }, 0, 5 * US)];
    assert_eq!(run(&plan).packets.lost, 0);
    plan.faults = vec![fault(&[nic], FaultKind::Down { visible: None }, 0, 5 * US + 1)];
    assert_eq!(run(&plan).packets.lost, 1);
}

#[test]
fn a_nic_leaves_a_port_alone_from_the_instant_its_link_is_seen_down() {
    let two_planes = Shape { hosts: 4, planes: 2, hosts_per_leaf: 2, spines: 2, leaf_bundle: 1, pods: None };
    let topology = fabric(two_planes, [400; 3], [0; 3]);
    let nic = [link(&topology, "host0", "leaf0.p0"), link(&topology, "host0", "leaf0.p1")];
    let mut plan = plain(topology, &[(0, 1, 400 * 4096)]);
    let (down, up) = (3 * US + 12_345, 9 * US);
    plan.faults = vec![fault(&[nic[0]], FaultKind::Down { visible: Some(Span::from_us(100)) }, down, up)];
    capture(&mut plan, &nic);
    let m = run(&plan);
    let on = |plane: usize, from: u64, until: u64| {
        let here = m.captured.iter().filter(|c| c.link == nic[plane] && (from..until).contains(&c.at.0));
        here.filter(whole_data).count() as u64
    };
    assert_eq!(on(0, down, up), 0, "nothing leaves by the dead port");
    assert_eq!(on(0, 0, down), down.div_ceil(TX), "it was busy before");
    assert!(on(1, down, up) >= (up - down) / TX - 1, "the other port stays busy");
    assert!(on(0, up, u64::MAX) > 0, "it is used again");
    assert_eq!(m.end, End::Finished);
}

#[test]
fn ecmp_avoids_a_dead_link_once_routing_knows() {
    let topology = leaf_spine(4, 2, 2);
    let dead = link(&topology, "leaf0", "spine0");
    let run_with = |visible: Option<Span>| {
        let mut plan = plain(topology.clone(), &[(0, 3, 2000 * 4096)]);
        let kind = FaultKind::Down { visible };
        plan.faults = vec![fault(&[dead], kind, 20 * US, u64::MAX)];
        capture(&mut plan, &[dead]);
        let m = run(&plan);
        assert_eq!(m.end, End::Finished, "{visible:?}");
        let after = m.captured.iter().filter(|c| c.at.0 >= 20 * US).count();
        (m.packets.lost, after)
    };
    // Routing knows at once. So only packets that are on the link at that time can be lost: the link takes 1 us and
    // carries every other packet of host 0.
    let on_the_way = (LINK + TX).div_ceil(TX);
    let (at_once, after) = run_with(Some(Span::ZERO));
    assert!(at_once <= on_the_way, "{at_once} lost");
    assert_eq!(after, 0, "the switch sends nothing by a port it knows to be down");
    // Routing knows after 10 us. So about half of the 120 packets of that time are lost as well.
    let (later, after) = run_with(Some(Span::from_us(10)));
    assert_eq!(after, 0);
    let offered = 10 * US / TX;
    assert!(
        later > at_once + offered / 4 && later < at_once + offered * 3 / 4,
        "{later} lost, {at_once} of them at once"
    );
    // If no switch knows, every packet on this link is lost.
    let (silent, after) = run_with(None);
    assert!(silent > later && after > 0, "{silent} lost");
}

#[test]
fn random_loss_is_as_frequent_as_it_should_be() {
    let topology = leaf_spine(4, 2, 1);
    let lossy = link(&topology, "leaf0", "spine0");
    let mut plan = plain(topology, &[(0, 3, 5000 * 4096)]);
    plan.faults = vec![fault(&[lossy], FaultKind::Loss { probability: 0.01, burst: Burst::NONE }, 0, u64::MAX)];
    let m = run(&plan);
    // 50 losses in 5,000 packets (and in the few that are sent again) are expected; the standard deviation is 7.
    assert!((22..=85).contains(&m.packets.lost), "{}", m.packets.lost);
    assert_eq!((m.packets.lost, m.end), (u64::from(m.links[lossy.0 as usize].lost), End::Finished));
    plan.faults = vec![fault(&[lossy], FaultKind::Loss { probability: 0.0, burst: Burst::NONE }, 0, u64::MAX)];
    assert_eq!(run(&plan).packets.lost, 0);
}

#[test]
fn bursty_loss_is_as_frequent_and_comes_in_runs_as_long_as_it_should() {
    let topology = leaf_spine(4, 2, 1);
    let (before, lossy) = (link(&topology, "host0", "leaf0"), link(&topology, "leaf0", "spine0"));
    let after = link(&topology, "spine0", "leaf1");
    let mut plan = plain(topology, &[(0, 3, 40_000 * 4096)]);
    plan.faults = vec![fault(&[lossy], FaultKind::Loss { probability: 0.02, burst: Burst::Packets(8.0) }, 0, u64::MAX)];
    capture(&mut plan, &[before, after]);
    let m = run(&plan);
    let data = |link| m.captured.iter().filter(move |c| c.link == link && !c.packet.is_control());
    let sent: Vec<_> =
        data(before).filter(|c| !c.packet.flags.has(Flags::RETRANSMITTED)).map(|c| c.packet.header).collect();
    let arrived: std::collections::HashSet<_> =
        data(after).filter(|c| !c.packet.flags.has(Flags::RETRANSMITTED)).map(|c| c.packet.header).collect();
    let lost: Vec<bool> = sent.iter().map(|header| !arrived.contains(header)).collect();
    let total = lost.iter().filter(|l| **l).count();
    let runs = (0..lost.len()).filter(|&i| lost[i] && (i == 0 || !lost[i - 1])).count();
    // 800 losses in 40,000 packets are expected, in 100 runs. The standard deviation of a run's length is as large as
    // its mean.
    assert!((450..=1200).contains(&total), "{total} lost");
    let length = total as f64 / runs as f64;
    assert!((5.5..11.0).contains(&length), "runs of {length:.1}");
}

// ---- Triggers and ends
// -------------------------------------------------------------------------------------------------

#[test]
fn a_flow_starts_when_its_trigger_fires_at_its_own_host() {
    // Flow 0: 0 -> 3. Flow 1 follows it at its sender, flow 2 at its receiver.
    for delay in [0, 1, 777_777] {
        let mut plan = plain(leaf_spine(4, 2, 1), &[(0, 3, 10_000), (0, 2, 4096), (3, 1, 4096)]);
        plan.triggers = vec![TriggerPlan { needed: 1 }, TriggerPlan { needed: 1 }];
        (plan.flows[0].on_sent, plan.flows[0].on_received) = (Some(0), Some(1));
        plan.flows[1].start = Start::On(0, Span(delay));
        plan.flows[2].start = Start::On(1, Span(delay));
        let m = run(&plan);
        assert_eq!(m.flows[1].started, Some(Time(finished(&m, 0) + delay)));
        assert_eq!(m.flows[2].started, Some(Time(received(&m, 0) + delay)));
        // The flows 0 -> 2 and 3 -> 1 meet no other traffic on their way.
        assert_eq!(received(&m, 1), finished(&m, 0) + delay + 4 * (TX + LINK));
        // Host 3 must first send an acknowledgement.
        assert_eq!(received(&m, 2), received(&m, 0) + delay.max(TX_ACK) + 4 * (TX + LINK));
    }
}

#[test]
fn a_barrier_opens_with_its_last_flow_and_news_takes_the_shortest_link() {
    for threads in [1, 2, 3] {
        // The flows 0 -> 2 and 4 -> 6 (the longer one) must end before 8 -> 10 and 10 -> 8 begin. Each host has a leaf
        // of its own.
        let flows = [(0, 2, 4096), (4, 6, 40_960), (8, 10, 4096), (10, 8, 4096)];
        let mut plan = plain(leaf_spine(12, 2, 1), &flows);
        plan.threads = threads;
        plan.triggers = vec![TriggerPlan { needed: 2 }];
        for flow in &mut plan.flows[..2] {
            flow.on_sent = Some(0);
        }
        for flow in &mut plan.flows[2..] {
            flow.start = Start::On(0, Span(5_000));
        }
        let m = run(&plan);
        let last = finished(&m, 0).max(finished(&m, 1));
        assert_eq!(last, 9 * TX + 4 * (TX + LINK) + 4 * (TX_ACK + LINK));
        // The first waiting flow is released at its host. A signal from there releases the other one.
        assert_eq!(m.flows[2].started, Some(Time(last + LINK + 5_000)));
        assert_eq!(m.flows[3].started, Some(Time(last + 2 * LINK + 5_000)));
        assert_eq!(m.end, End::Finished);
    }
}

#[test]
fn a_run_that_cannot_finish_ends_at_its_time_limit_with_the_unfinished_flows_known() {
    let topology = leaf_spine(4, 2, 2);
    let uplinks = [link(&topology, "leaf0", "spine0"), link(&topology, "leaf0", "spine1")];
    for kind in [
        FaultKind::Down { visible: None },
        FaultKind::Down { visible: Some(Span::from_us(1)) },
        FaultKind::Loss { probability: 1.0, burst: Burst::NONE },
    ] {
        for profile in ["uec", "rocev2", "rocev2_sr"] {
            let mut plan = plan(topology.clone(), preset(profile), &[(0, 3, 100_000), (0, 1, 100_000), (3, 0, 4096)]);
            plan.faults = vec![fault(&uplinks, kind, 0, u64::MAX)];
            plan.time_limit = Time(3_000 * US);
            let m = run(&plan);
            assert_eq!((m.end, m.simulated), (End::TimeLimit, Time(3_000 * US)), "{profile}, {kind:?}");
            let done: Vec<bool> = m.flows.iter().map(|f| f.finished.is_some()).collect();
            assert_eq!(done, [false, true, false], "{profile}, {kind:?}");
            // The data of 3 -> 0 arrives; only its acknowledgement does not.
            assert!(m.flows[2].received.is_some() && m.flows[0].received.is_none());
        }
    }
}

#[test]
fn the_limit_itself_belongs_to_the_run() {
    let mut plan = plain(leaf_spine(4, 2, 1), &[(0, 3, 4096)]);
    let end = 4 * (TX + LINK) + 4 * (TX_ACK + LINK);
    for (limit, expected) in [(end, End::Finished), (end - 1, End::TimeLimit), (end + 1, End::Finished)] {
        plan.time_limit = Time(limit);
        let m = run(&plan);
        assert_eq!((m.end, m.simulated), (expected, Time(limit.min(end))));
    }
}

#[test]
fn a_trigger_that_is_never_pulled_stalls_the_run() {
    let mut plan = plain(leaf_spine(4, 2, 1), &[(0, 3, 4096), (1, 2, 4096)]);
    plan.triggers = vec![TriggerPlan { needed: 2 }];
    plan.flows[0].on_sent = Some(0);
    plan.flows[1].start = Start::On(0, Span::ZERO);
    let m = run(&plan);
    assert_eq!(m.end, End::Stalled);
    assert!(m.flows[0].finished.is_some() && m.flows[1].started.is_none());
}

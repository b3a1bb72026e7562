//! Cases that can be calculated by hand: the simulated time equals the calculated time to the picosecond.
//!
//! A full packet is 4,096 B of payload and 64 B of headers; at 400 Gb/s a byte takes 20 ps, at 100 Gb/s 80 ps. Every
//! link takes 1 us unless a test says otherwise.

use super::support::*;
use std::sync::Arc;
use strandway_fabric::measure::{Captured, End};
use strandway_fabric::plan::{EcnSettings, PfcSettings, SharedSettings, Start, TrimSettings};
use strandway_fabric::topology::{Level, Pods, Shape, Topology};
use strandway_proto::packet::{Flags, Header};
use strandway_proto::{Bytes, HostId, Rate, Span, Time};

/// The bytes on the wire of a full packet and of an acknowledgement.
pub(crate) const PACKET: u64 = 4160;
pub(crate) const ACK: u64 = 64;
/// The time to send each of them at 400 Gb/s.
pub(crate) const TX: u64 = PACKET * 20;
pub(crate) const TX_ACK: u64 = ACK * 20;
/// One link's propagation.
pub(crate) const LINK: u64 = US;

/// Links of these rates (Gb/s) and 1 us; switches of this latency (ps), by level.
pub(crate) fn fabric(shape: Shape, gbps: [u64; 3], inside: [u64; 3]) -> Topology {
    let levels = gbps.map(|g| Level { rate: Rate::from_gbps(g), latency: Span::from_us(1) });
    Topology::new(shape, levels, inside.map(Span)).expect("a valid shape")
}

/// `hosts` in leaves of `hosts_per_leaf` below one spine.
pub(crate) fn shape(hosts: u32, hosts_per_leaf: u32) -> Shape {
    Shape { hosts, planes: 1, hosts_per_leaf, spines: 1, leaf_bundle: 1, pods: None }
}

pub(crate) fn received(m: &strandway_fabric::Measurements, flow: usize) -> u64 {
    m.flows[flow].received.expect("it arrived").0
}

pub(crate) fn finished(m: &strandway_fabric::Measurements, flow: usize) -> u64 {
    m.flows[flow].finished.expect("it finished").0
}

pub(crate) fn whole_data(c: &&Captured) -> bool {
    matches!(c.packet.header, Header::Data(_)) && !c.packet.flags.has(Flags::TRIMMED)
}

// ---- Packets and links
// -------------------------------------------------------------------------------------------------

#[test]
fn one_packet_takes_its_transmission_and_the_delay_of_every_link_and_switch() {
    let inside = [300_000, 500_000, 700_000];
    let pods = Some(Pods { leaves_per_pod: 2, cores_per_spine: 2, core_bundle: 1 });
    let tree = Shape { hosts: 16, planes: 1, hosts_per_leaf: 2, spines: 2, leaf_bundle: 1, pods };
    for (gbps, ps) in [(100, 80), (200, 40), (400, 20), (800, 10), (1600, 5)] {
        for (to, links, switches) in
            [(1, 2, inside[0]), (2, 4, 2 * inside[0] + inside[1]), (15, 6, 2 * inside[0] + 2 * inside[1] + inside[2])]
        {
            for (bytes, wire) in [(4096, 4160), (1000, 1064), (1, 65), (0, 64)] {
                let m = run(&plain(fabric(tree, [gbps; 3], inside), &[(0, to, bytes)]));
                let there = links * (wire * ps + LINK) + switches;
                assert_eq!(received(&m, 0), there, "{bytes} B over {links} links at {gbps} Gb/s");
                assert_eq!(finished(&m, 0), there + links * (ACK * ps + LINK) + switches, "and back");
                assert_eq!((m.end, m.packet_hops), (End::Finished, 2 * links));
            }
        }
    }
    // Leaf-spine, and the topology's own figures.
    let topology = fabric(shape(4, 2), [400; 3], inside);
    let m = run(&plain(topology.clone(), &[(0, 3, 4096)]));
    assert_eq!(received(&m, 0), 4 * (TX + LINK) + 2 * 300_000 + 500_000);
    assert_eq!(received(&m, 0), topology.one_way(Bytes(PACKET), 4).0);
    assert_eq!(finished(&m, 0), topology.base_rtt(Bytes(PACKET), Bytes(ACK)).0);
}

#[test]
fn every_level_has_its_own_rate() {
    // Host links at 400 Gb/s, leaf to tier 1 at 800, tier 1 to core at 1600.
    let pods = Some(Pods { leaves_per_pod: 2, cores_per_spine: 2, core_bundle: 1 });
    let tree = Shape { hosts: 16, planes: 1, hosts_per_leaf: 2, spines: 2, leaf_bundle: 1, pods };
    let m = run(&plain(fabric(tree, [400, 800, 1600], [0; 3]), &[(0, 15, 4096)]));
    assert_eq!(received(&m, 0), 6 * LINK + 2 * PACKET * (20 + 10 + 5));
    // A rate at which a byte takes no whole number of picoseconds: 4,160 B at 300 Gb/s are 110,933.3 ps, rounded up.
    let m = run(&plain(fabric(tree, [300; 3], [0; 3]), &[(0, 1, 4096)]));
    assert_eq!(received(&m, 0), 2 * (110_934 + LINK));
}

#[test]
fn a_switch_that_cuts_through_waits_for_64_bytes_and_the_last_link_for_all() {
    let pods = Some(Pods { leaves_per_pod: 2, cores_per_spine: 2, core_bundle: 1 });
    let tree = Shape { hosts: 16, planes: 1, hosts_per_leaf: 2, spines: 2, leaf_bundle: 1, pods };
    let topology = fabric(tree, [400; 3], [0; 3]).with_cut_through().expect("links of one rate");
    let m = run(&plain(topology.clone(), &[(0, 15, 4096)]));
    assert_eq!(received(&m, 0), 6 * LINK + 5 * 64 * 20 + TX);
    assert_eq!(received(&m, 0), topology.one_way(Bytes(PACKET), 6).0);
    assert_eq!(finished(&m, 0), topology.base_rtt(Bytes(PACKET), Bytes(ACK)).0);
    // Many packets follow one another as fast as the link allows.
    let m = run(&plain(topology, &[(0, 15, 40 * 4096)]));
    assert_eq!(received(&m, 0), 6 * LINK + 5 * 64 * 20 + 40 * TX);
    let said = fabric(tree, [400, 800, 1600], [0; 3]).with_cut_through().expect_err("links of several rates");
    assert!(said.contains("equally fast"), "{said}");
}

#[test]
fn packets_follow_each_other_through_store_and_forward_switches() {
    for n in [2u64, 10, 40] {
        // The last packet leaves after n - 1 others; from then on it never waits.
        let m = run(&plain(leaf_spine(4, 2, 1), &[(0, 3, n * 4096)]));
        assert_eq!(received(&m, 0), (n - 1) * TX + 4 * (TX + LINK), "{n} packets");
        assert_eq!(finished(&m, 0), received(&m, 0) + 4 * (TX_ACK + LINK));
        // With a short last packet: 100 B of payload and 64 B of headers, 3,280 ps per link.
        let m = run(&plain(leaf_spine(4, 2, 1), &[(0, 3, n * 4096 + 100)]));
        // The short packet catches up with the packet before it at every switch, and waits until that one is sent.
        assert_eq!(received(&m, 0), n * TX + 3 * (TX + LINK) + 3280 + LINK, "{n} packets and a bit");
        // A middle link four times slower determines the rate: it sends n packets without a gap.
        let m = run(&plain(fabric(shape(4, 2), [400, 100, 100], [0; 3]), &[(0, 3, n * 4096)]));
        assert_eq!(received(&m, 0), (TX + LINK) + n * 4 * TX + LINK + (4 * TX + LINK) + (TX + LINK));
    }
}

#[test]
fn two_flows_share_a_link_packet_by_packet() {
    let n = 10;
    let topology = leaf_spine(4, 4, 1);
    let mut plan = plain(topology.clone(), &[(0, 2, n * 4096), (1, 2, n * 4096)]);
    let last = link(&topology, "leaf0", "host2");
    capture(&mut plan, &[last]);
    let m = run(&plan);
    // Both first packets reach the leaf together; the port then sends 2n packets on end, host 0's first.
    let first = TX + LINK;
    assert_eq!(received(&m, 0), first + (2 * n - 1) * TX + LINK);
    assert_eq!(received(&m, 1), first + 2 * n * TX + LINK);
    for (i, c) in m.captured.iter().filter(whole_data).enumerate() {
        assert_eq!((c.packet.source, c.at), (HostId(i as u32 % 2), Time(first + i as u64 * TX)));
    }
    // With packet k of either host (from 0), 2 (k + 1) packets have arrived and k have left: arrivals come before
    // departures of the same instant.
    assert_eq!(m.links[last.0 as usize].queue_max, Bytes((n + 1) * PACKET));
    // The second flow begins 100 ns later. The two flows take turns from its first packet on, and the link is never
    // idle.
    plan.flows[1].start = Start::At(Time(100_000));
    let m = run(&plan);
    assert_eq!(received(&m, 0).max(received(&m, 1)), first + 2 * n * TX + LINK);
}

// ---- Queues
// ------------------------------------------------------------------------------------------------------------

#[test]
fn control_overtakes_data_but_not_the_packet_on_the_wire() {
    // Hosts 0 and 1 fill the port to host 2. Host 2 sends a packet to host 3, and its acknowledgement comes through
    // that port.
    let n = 40;
    let begin = 500_000;
    let mut plan = plain(leaf_spine(4, 4, 1), &[(0, 2, n * 4096), (1, 2, n * 4096), (2, 3, 4096)]);
    plan.flows[2].start = Start::At(Time(begin));
    let acknowledged = begin + 2 * (TX + LINK);
    let at_leaf = acknowledged + TX_ACK + LINK;
    let first = TX + LINK;
    // The port is busy from `first` on; the acknowledgement goes in between two data packets.
    let turns = (at_leaf - first).div_ceil(TX);
    assert!(turns < 2 * n, "data still waits");
    let m = run(&plan);
    assert_eq!(finished(&m, 2), first + turns * TX + TX_ACK + LINK);
    // In a single queue, the acknowledgement waits for all data before it: two packets for each `TX` that has begun.
    plan.ports.priority = false;
    let before = 2 * ((at_leaf - first) / TX + 1);
    let m = run(&plan);
    assert_eq!(finished(&m, 2), first + before * TX + TX_ACK + LINK);
}

/// Each of eight hosts sends one packet to a ninth host, and all packets reach the leaf at the same time.
fn burst_of_eight() -> strandway_fabric::Plan {
    let flows: Vec<_> = (0..8).map(|host| (host, 8, 4096)).collect();
    plain(leaf_spine(9, 9, 1), &flows)
}

#[test]
fn ecn_marks_from_the_very_packet_that_crosses_the_threshold() {
    // The first packet leaves at once, and seven wait. They leave with 6, 5, .. 0 packets behind them; they joined the
    // queue as its 1st, 2nd, .. 7th packet.
    for (threshold, at_dequeue, marked) in [
        (3 * PACKET, true, 1..5),
        (3 * PACKET + 1, true, 1..4),
        (3 * PACKET - 1, true, 1..5),
        (6 * PACKET, true, 1..2),
        (6 * PACKET + 1, true, 1..1),
        (3 * PACKET, false, 3..8),
        (3 * PACKET + 1, false, 4..8),
        (7 * PACKET, false, 7..8),
        (7 * PACKET + 1, false, 8..8),
    ] {
        for priority in [true, false] {
            let mut plan = burst_of_eight();
            let step = Bytes(threshold);
            plan.ports.priority = priority;
            plan.ports.ecn = Some(EcnSettings { low: step, high: step, probability: 1.0, at_dequeue, last_hop: true });
            let m = run(&plan);
            let seen: Vec<usize> = (0..8).filter(|&f| m.connections[f].marked == 1).collect();
            assert_eq!(
                seen,
                marked.clone().collect::<Vec<_>>(),
                "{threshold} B, at dequeue {at_dequeue}, classes {priority}"
            );
            assert_eq!(m.packets.marked, seen.len() as u64);
        }
    }
}

#[test]
fn without_marking_at_the_last_hop_only_queues_above_a_choice_of_paths_mark() {
    let mut plan = burst_of_eight();
    plan.ports.ecn =
        Some(EcnSettings { low: Bytes(0), high: Bytes(0), probability: 1.0, at_dequeue: true, last_hop: false });
    assert_eq!(run(&plan).packets.marked, 0, "all wait at the port to their receiver");
    // Two hosts over one uplink: the queue is at the uplink.
    let flows = [(0, 2, 100 * 4096), (1, 3, 100 * 4096)];
    let mut plan = plain(leaf_spine(4, 2, 1), &flows);
    plan.ports.ecn =
        Some(EcnSettings { low: Bytes(0), high: Bytes(1), probability: 1.0, at_dequeue: true, last_hop: false });
    let m = run(&plan);
    assert!(m.packets.marked > 150, "{}", m.packets.marked);
    let uplink = link(&plan.topology, "leaf0", "spine0");
    assert_eq!(u64::from(m.links[uplink.0 as usize].marked), m.packets.marked);
}

#[test]
fn marking_between_two_thresholds_follows_its_probability() {
    // The queue is always between the thresholds: it has at most 1,000 packets (4,160,000 B). The probability rises
    // from 0 to 0.5.
    let n = 1000u64;
    let mut plan = plain(leaf_spine(3, 3, 1), &[(0, 2, n * 4096), (1, 2, n * 4096)]);
    let high = Bytes((n + 1) * PACKET);
    plan.ports.ecn = Some(EcnSettings { low: Bytes(0), high, probability: 0.5, at_dequeue: true, last_hop: true });
    let m = run(&plan);
    // The queue grows evenly until it is full and then shrinks evenly. So a quarter of the 2,000 packets is marked on
    // average; the standard deviation is below 21.
    assert!((400..=600).contains(&m.packets.marked), "{}", m.packets.marked);
}

#[test]
fn a_packet_is_trimmed_exactly_when_the_queue_is_full_and_its_header_goes_ahead() {
    for (queue, trimmed) in
        [(7 * PACKET, 0u64), (3 * PACKET, 4), (3 * PACKET + PACKET - 1, 4), (3 * PACKET - 1, 5), (PACKET, 6)]
    {
        let mut plan = burst_of_eight();
        plan.ports.trim = Some(TrimSettings { size: 64 });
        plan.ports.data_queue = Bytes(queue);
        // The run ends before a packet is sent again.
        plan.time_limit = Time(3 * US);
        let last = link(&plan.topology, "leaf0", "host8");
        capture(&mut plan, &[last]);
        let m = run(&plan);
        assert_eq!((m.packets.trimmed, m.packets.nacks, m.packets.dropped), (trimmed, trimmed, 0), "{queue} B");
        // The first packet is on the wire. All headers follow it, and then the packets that wait whole.
        let begin = TX + LINK;
        for (i, c) in m.captured[..8].iter().enumerate() {
            let i = i as u64;
            let is_header = (1..=trimmed).contains(&i);
            let headers = i.saturating_sub(1).min(trimmed);
            let whole = if i == 0 {
                0
            } else if is_header {
                1
            } else {
                i - trimmed
            };
            assert_eq!(c.at, Time(begin + headers * TX_ACK + whole * TX), "packet {i} of {queue} B");
            assert_eq!(c.packet.flags.has(Flags::TRIMMED), is_header);
            assert_eq!(c.packet.flags.has(Flags::TRIMMED_AT_LAST_HOP), is_header);
            assert_eq!(c.packet.size, if is_header { 64 } else { 4160 });
        }
        assert_eq!(m.links[last.0 as usize].queue_max, Bytes(queue / PACKET * PACKET), "{queue} B");
        plan.time_limit = Time(1000 * US);
        assert_eq!(run(&plan).end, End::Finished);
    }
    // Without trimming the same packets are dropped.
    let mut plan = burst_of_eight();
    plan.ports.data_queue = Bytes(3 * PACKET);
    plan.time_limit = Time(6 * US);
    assert_eq!(run(&plan).packets.dropped, 4);
    plan.ports.priority = false;
    assert_eq!(run(&plan).packets.dropped, 4);
}

#[test]
fn a_full_control_queue_drops_headers() {
    let mut plan = burst_of_eight();
    plan.ports.trim = Some(TrimSettings { size: 64 });
    plan.ports.data_queue = Bytes(3 * PACKET);
    plan.ports.control_queue = Bytes(3 * 64 - 1);
    plan.time_limit = Time(3 * US);
    let m = run(&plan);
    assert_eq!((m.packets.trimmed, m.packets.dropped), (2, 2));
}

#[test]
fn a_shared_buffer_lends_each_queue_a_share_of_what_is_free() {
    // Packet i (counted from 0) finds i packets in the buffer; from i = 1 on, one of them is on the wire. So with
    // packet i its queue has i packets, and the packet is let in if i <= alpha * (10 - i).
    for (alpha, accepted) in [(0.5, 4), (1.0, 6), (2.0, 7), (8.0, 8)] {
        let mut plan = burst_of_eight();
        plan.ports.shared = Some(SharedSettings { buffer: Bytes(10 * PACKET), alpha });
        plan.time_limit = Time(6 * US);
        let m = run(&plan);
        assert_eq!(m.packets.dropped, 8 - accepted, "alpha {alpha}");
        assert_eq!(m.packets.delivered, accepted);
    }
    // Packets in other ports count too. Four packets go to host 8 and three to host 7, in the order of their links;
    // alpha is 1. With a buffer of 8 packets, port 8 takes packet i if i <= 8 - i, so it takes all four. Port 7 then
    // finds 4, 5 and 6 packets in the buffer: it takes its first packet because 1 <= 4, its second (the first is on the
    // wire) because 1 <= 3, and its third because 2 <= 2. With a buffer of 7, the last packet is dropped; with 5, the
    // fourth and the last.
    let flows: Vec<_> = (0..7).map(|h| (h, if h < 4 { 8 } else { 7 }, 4096)).collect();
    for (buffer, dropped) in [(8, 0), (7, 1), (5, 2)] {
        let mut plan = plain(leaf_spine(9, 9, 1), &flows);
        plan.ports.shared = Some(SharedSettings { buffer: Bytes(buffer * PACKET), alpha: 1.0 });
        plan.time_limit = Time(6 * US);
        assert_eq!(run(&plan).packets.dropped, dropped, "a buffer of {buffer} packets");
    }
}

// ---- PFC
// ---------------------------------------------------------------------------------------------------------------

/// Host 0 (400 Gb/s) sends 38 packets over uplinks of 100 Gb/s. XOFF is at five packets and XON at two.
fn paused(headroom_packets: u64) -> strandway_fabric::Plan {
    let mut plan = plain(fabric(shape(4, 2), [400, 100, 100], [0; 3]), &[(0, 3, 38 * 4096)]);
    let mut profile = (*plan.profiles[0]).clone();
    // Acknowledgements must not delay pause frames, so only the first and the last packet are acknowledged.
    profile.transport.ack_every = Bytes(1_000_000_000);
    plan.profiles = vec![Arc::new(profile)];
    plan.ports.pfc = Some(PfcSettings {
        xoff: Bytes(5 * PACKET),
        xon: Bytes(2 * PACKET),
        headroom: Bytes(headroom_packets * PACKET),
    });
    let nic = link(&plan.topology, "host0", "leaf0");
    capture(&mut plan, &[nic]);
    plan
}

/// Packet k (counted from 0) is at the leaf at `TX + LINK + k * TX`. One packet leaves for each four that arrive. When
/// packet 6 arrives, seven packets have arrived and one has left. So six are held: for the first time more than five.
const XOFF_AT: u64 = TX + LINK + 6 * TX;

#[test]
fn pfc_pauses_exactly_at_xoff_and_resumes_exactly_at_xon() {
    let plan = paused(20);
    let m = run(&plan);
    let starts: Vec<u64> = m.captured.iter().filter(whole_data).map(|c| c.at.0).collect();
    // The pause frame has 64 B and takes one link's delay. Then the NIC finishes the packet on its wire and sends no
    // other.
    let stop = XOFF_AT + TX_ACK + LINK;
    let sent = stop.div_ceil(TX);
    assert_eq!(sent, 32, "packets that had begun by then");
    assert_eq!(starts[..32], (0..32).map(|k| k * TX).collect::<Vec<_>>());
    // Two packets are left when 30 have gone through the uplink, which needs four `TX` for each.
    let resume = TX + LINK + 30 * 4 * TX + TX_ACK + LINK;
    assert_eq!(starts[32], resume);
    assert_eq!(starts[33..], (1..6).map(|k| resume + k * TX).collect::<Vec<_>>());
    let nic = link(&plan.topology, "host0", "leaf0").0 as usize;
    assert_eq!((m.packets.pauses, m.links[nic].paused), (1, Span(resume - stop)));
    assert_eq!((m.packets.dropped, m.end), (0, End::Finished));
}

#[test]
fn pfc_loses_nothing_with_headroom_for_what_is_on_its_way_and_something_with_a_packet_less() {
    // The last of the 32 packets arrives 31 `TX` after the first. By then seven packets have left: 25 are held, 20
    // above XOFF.
    for (headroom, dropped) in [(20, 0), (19, 1), (18, 2)] {
        let mut plan = paused(headroom);
        plan.time_limit = Time(6 * US);
        assert_eq!(run(&plan).packets.dropped, dropped, "headroom for {headroom} packets");
    }
}

#[test]
fn a_pause_frame_waits_for_the_packet_on_its_wire() {
    // Host 1 sends to host 0 and begins 40 ns later than host 0. So at XOFF, the port to host 0 needs 40 ns more for
    // the packet on its wire.
    let mut plan = paused(40);
    let mut connection = plan.connections[0];
    (connection.source, connection.destination) = (HostId(1), HostId(0));
    plan.connections.push(connection);
    let mut flow = plan.flows[0];
    (flow.connection, flow.start, flow.bytes) = (1, Start::At(Time(40_000)), 20 * 4096);
    plan.flows.push(flow);
    let m = run(&plan);
    let starts: Vec<u64> = m.captured.iter().filter(whole_data).map(|c| c.at.0).collect();
    // Apart from the pause, the NIC sends its data without a gap.
    let resume = starts.windows(2).find(|w| w[1] - w[0] > 3 * TX).expect("a pause")[1];
    let nic = link(&plan.topology, "host0", "leaf0").0 as usize;
    assert_eq!(Time(resume) - Time(XOFF_AT + 40_000 + TX_ACK + LINK), m.links[nic].paused);
    assert_eq!((m.packets.pauses, m.packets.dropped), (1, 0));
}

#[test]
fn pfc_with_a_shared_buffer_pauses_at_the_dynamic_threshold() {
    // There is no reserve, alpha is 1, and the buffer has 11 packets. When 6 packets are held, 5 are free: for the
    // first time, more are held than free.
    let mut plan = paused(20);
    plan.ports.shared = Some(SharedSettings { buffer: Bytes(11 * PACKET), alpha: 1.0 });
    plan.ports.pfc = plan.ports.pfc.map(|p| PfcSettings { xoff: Bytes(0), xon: Bytes(PACKET), ..p });
    let m = run(&plan);
    let nic = link(&plan.topology, "host0", "leaf0").0 as usize;
    let starts: Vec<u64> = m.captured.iter().filter(whole_data).map(|c| c.at.0).collect();
    let resume = starts.windows(2).find(|w| w[1] - w[0] > 3 * TX).expect("a pause")[1];
    assert_eq!(Time(resume) - Time(XOFF_AT + TX_ACK + LINK), m.links[nic].paused);
    // The NIC resumes one packet below the threshold: n packets are held, with n <= (11 - n) - 1. So n is 5 of the 32
    // packets, when 27 have gone.
    assert_eq!(resume, TX + LINK + 27 * 4 * TX + TX_ACK + LINK);
    assert_eq!((m.packets.dropped, m.end), (0, End::Finished));
}

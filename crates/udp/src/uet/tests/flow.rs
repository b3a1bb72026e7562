//! Losses that are found before the timeout, marks and delay, service times, reads.

use super::*;
use strandway_proto::Rate;
use strandway_wire::uet::pds::State;

/// Sends `bytes` while these datagrams of the sender are lost. Returns the time until all has arrived, and the sender's
/// counters.
fn send(config: &Config, bytes: usize, drops: &[usize]) -> (Span, Counters) {
    let mut pair = Pair::new([config.clone(), config.clone()], 0, 1);
    (pair.drops, pair.delay) = (drops.to_vec(), Span::from_us(100));
    let (began, mut at) = (pair.now, pair.now);
    pair.nodes[0].send(pair.now, address(1), None, pattern(bytes, 1));
    while pair.events[0].is_empty() {
        at = pair.now;
        assert!(pair.step(), "the message stays on its way");
    }
    assert_eq!(pair.events[0], [Event::Completed { operation: Operation(1) }]);
    (at.since(began), pair.nodes[0].counters())
}

#[test]
fn losses_are_found_by_bitmaps_and_acknowledged_packets_before_the_timeout() {
    for acks in [Acks::Plain, Acks::Selective] {
        let config = Config { acks, ..Config::default() };
        let (took, counters) = send(&config, 600_000, &[20]);
        assert!(took < config.timeout, "{took:?} {acks:?}");
        // Nothing is sent in vain.
        assert_eq!((counters.retransmissions, counters.nacks_received), (1, 0), "{acks:?}");
    }
    let config = Config::default();
    let (took, counters) = send(&config, 600_000, &[20, 21, 60, 200, 201, 202]);
    assert!(took < config.timeout, "{took:?}");
    assert_eq!(counters.retransmissions, 6);
}

#[test]
fn the_loss_of_a_last_packet_is_found_by_a_probe() {
    for probes in [false, true] {
        let config = Config { probes, ..Config::default() };
        // 36 packets, of which the last two are lost. Without a probe, nothing tells that those before them have arrived.
        let (took, counters) = send(&config, 50_000, &[34, 35]);
        assert_eq!(took < config.timeout, probes, "{took:?}");
        assert_eq!(counters.retransmissions == 2, probes, "{counters:?}");
    }
}

/// The window of a sender after a message whose packets take `delay`, marked or not.
fn window(delay: Span, marks: bool) -> (u64, Counters) {
    let control = Control::Nscc { rate: Rate::from_gbps(10), base_rtt: Span::from_us(100) };
    let config = Config { control, window: 512, ..Config::default() };
    let mut pair = Pair::new([config.clone(), config], 0, 1);
    (pair.delay, pair.marks) = (delay, marks);
    pair.nodes[0].send(pair.now, address(1), None, pattern(3_000_000, 1));
    while pair.events[0].is_empty() && pair.step() {}
    assert_eq!(pair.events[0], [Event::Completed { operation: Operation(1) }]);
    (pair.nodes[0].window(address(1)).expect("an open context"), pair.nodes[0].counters())
}

#[test]
fn nscc_follows_marks_and_delay() {
    // 1.5 times 10 Gb/s and 100 us.
    let (most, counters) = window(Span::from_us(50), false);
    assert_eq!((most, counters.marks, counters.retransmissions), (187_500, 0, 0));
    // Marks without delay belong to one path; delay without marks is not yet a reason.
    assert_eq!(window(Span::from_us(50), true).0, most);
    assert_eq!(window(Span::from_us(180), false).0, most);
    let (less, counters) = window(Span::from_us(180), true);
    assert!(less < most / 2, "{less}");
    assert!(counters.marks > 100 && counters.retransmissions == 0, "{counters:?}");
}

#[test]
fn an_acknowledgement_has_the_mark_and_the_service_time() {
    let mut nodes = [1, 2].map(|seed| Uet::new(Config { seed, ..Config::default() }));
    let now = Time::ZERO + Span::from_ms(1);
    nodes[0].send(now, address(1), None, vec![0; 8]);
    let (_, request) = nodes[0].poll_transmit(now).expect("a request");
    // It waits 3 us in the kernel and 7.24 us in the node.
    let arrival = Arrival { marked: true, age: Span::from_us(3) };
    nodes[1].handle_arrival(now + Span::from_us(20), address(0), arrival, &request);
    let (_, answer) = nodes[1].poll_transmit(now + Span::from_ns(27_240)).expect("an acknowledgement");
    let Pds::Ack(ack) = uet::decode(&answer).expect("a datagram").pds else { panic!("an acknowledgement") };
    let State::Nscc(nscc) = ack.congestion.expect("a state").state else { panic!("NSCC") };
    assert_eq!((ack.marked, nscc.service_time), (true, 80));
    nodes[0].handle_datagram(now + Span::from_us(40), address(1), &answer);
    assert_eq!(nodes[0].counters().marks, 1);
}

#[test]
fn data_of_reads_and_messages_take_turns_and_a_read_gets_what_was_there() {
    let mut pair = Pair::new([Config::default(), Config::default()], 8, 3);
    for node in &mut pair.nodes {
        node.register(7, 0, pattern(200_000, 5));
    }
    let mut operations = Vec::new();
    for round in 0..20 {
        for node in [0, 1] {
            let (now, to) = (pair.now, address(1 - node));
            operations.push((node, pair.nodes[node].read(now, to, 7, round * 1_000, 100_000), round));
            pair.nodes[node].send(now, to, None, pattern(3_000, 1));
        }
    }
    for node in [0, 1] {
        pair.nodes[node].close(address(1 - node));
    }
    pair.run();
    for (node, operation, round) in operations {
        let bytes = pattern(200_000, 5)[round as usize * 1_000..][..100_000].to_vec();
        assert!(pair.events[node].contains(&Event::Read { operation, bytes }), "read {round} of node {node}");
    }
    for events in &pair.events {
        let messages = events.iter().filter(|event| matches!(event, Event::Message { .. })).count();
        assert_eq!(messages, 20);
    }
    assert_eq!(pair.nodes.each_ref().map(|node| (node.contexts(), node.shared.incoming)), [([0, 0], 0); 2]);
}

/// Reads 100,000 bytes, while this datagram of the reader is lost.
fn read(drop: usize) -> (Vec<Event>, usize) {
    let mut pair = Pair::new([Config::default(), Config::default()], 0, 1);
    pair.nodes[1].register(7, 0, pattern(100_000, 5));
    pair.drops = vec![drop];
    pair.nodes[0].read(pair.now, address(1), 7, 0, 100_000);
    pair.nodes[0].close(address(1));
    pair.run();
    (pair.events[0].clone(), pair.sent[0].len())
}

#[test]
fn a_reader_proves_that_it_receives_before_it_gets_data() {
    let events =
        [Event::Read { operation: Operation(1), bytes: pattern(100_000, 5) }, Event::Closed { peer: address(1) }];
    // The request, the clear, or an acknowledgement of data is lost.
    for drop in [usize::MAX, 0, 1, 2, 3] {
        assert_eq!(read(drop).0, events, "without datagram {drop}");
    }
    // A request under a false address is acknowledged, and no more.
    let mut target = Uet::new(Config::default());
    target.register(7, 0, pattern(100_000, 5));
    let mut now = Time::ZERO + Span::from_ms(1);
    let mut other = Uet::new(Config::default());
    other.read(now, address(1), 7, 0, 100_000);
    let (_, request) = other.poll_transmit(now).expect("a request");
    let mut sent = 0;
    for _ in 0..1_000 {
        target.handle_datagram(now, address(0), &request);
        target.handle_timeout(now);
        while let Some((_, bytes)) = target.poll_transmit(now) {
            assert!(bytes.len() <= request.len());
            sent += 1;
        }
        now = now + Span::from_ms(1);
    }
    assert_eq!(sent, 1_000, "one answer to each");
    target.handle_timeout(now + Config::default().patience);
    assert_eq!((target.contexts(), target.shared.incoming), ([0, 0], 0));
}

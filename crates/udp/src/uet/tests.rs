//! Two nodes and a bad wire, refusals, and datagrams that are none.

mod flow;

use super::*;
use proptest::prelude::*;

/// Two nodes, and datagrams on their way with the time of their arrival.
struct Pair {
    nodes: [Uet; 2],
    now: Time,
    wire: Vec<(Time, usize, Vec<u8>)>,
    random: Random,
    /// Datagrams of a hundred that are lost, doubled, and late.
    loss: u32,
    events: [Vec<Event>; 2],
    /// All datagrams, by sender.
    sent: [Vec<Vec<u8>>; 2],
    /// Datagrams of node 0 that are lost, by their place in the order.
    drops: Vec<usize>,
    /// The way of a datagram, and whether switches mark it.
    delay: Span,
    marks: bool,
}

fn address(node: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9_000 + node as u16))
}

impl Pair {
    fn new(configs: [Config; 2], loss: u32, seed: u64) -> Pair {
        Pair {
            nodes: configs.map(Uet::new),
            now: Time::ZERO + Span::from_ms(1),
            wire: Vec::new(),
            random: Random::new(seed, StreamKind::Connection, 9),
            loss,
            events: [Vec::new(), Vec::new()],
            sent: [Vec::new(), Vec::new()],
            drops: Vec::new(),
            delay: Span::from_us(20),
            marks: false,
        }
    }

    /// Moves everything that can move now, then the time to the next arrival or timer. False if nothing is left.
    fn step(&mut self) -> bool {
        for from in [0, 1] {
            self.nodes[from].handle_timeout(self.now);
            while let Some((to, bytes)) = self.nodes[from].poll_transmit(self.now) {
                assert_eq!(to, address(1 - from));
                self.sent[from].push(bytes.clone());
                let copies = match self.random.below(100) {
                    _ if from == 0 && self.drops.contains(&(self.sent[0].len() - 1)) => 0,
                    draw if draw < self.loss => 0,
                    draw if draw < 2 * self.loss => 2,
                    _ => 1,
                };
                for _ in 0..copies {
                    let late = if self.random.below(100) < self.loss { 300 } else { 0 };
                    self.wire.push((self.now + self.delay + Span::from_us(late), 1 - from, bytes.clone()));
                }
            }
            while let Some(event) = self.nodes[from].poll_event() {
                self.events[from].push(event);
            }
        }
        self.wire.sort_by_key(|(at, ..)| *at);
        let timers = self.nodes.iter().filter_map(Uet::poll_timeout);
        let Some(next) = timers.chain(self.wire.first().map(|(at, ..)| *at)).min() else { return false };
        self.now = self.now.max(next);
        while self.wire.first().is_some_and(|(at, ..)| *at <= self.now) {
            let (_, to, bytes) = self.wire.remove(0);
            let arrival = Arrival { marked: self.marks, age: Span::ZERO };
            self.nodes[to].handle_arrival(self.now, address(1 - to), arrival, &bytes);
        }
        true
    }

    fn run(&mut self) {
        for _ in 0..200_000 {
            if !self.step() {
                return;
            }
        }
        panic!("it does not end: {:?}", self.nodes.each_ref().map(Uet::counters));
    }
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|i| (i * 7) as u8 ^ seed).collect()
}

/// Messages of all lengths, a write and reads cross the wire in both directions, and the contexts close.
fn exchange(configs: [Config; 2], loss: u32, seed: u64) -> [Counters; 2] {
    let mut pair = Pair::new(configs, loss, seed);
    pair.nodes[1].register(0x42, 0x1000, vec![0; 100_000]);
    let lengths = [1, 0, 1_416, 1_417, 52, 60_000, 4_096];
    let mut expected = Vec::new();
    for (i, length) in lengths.into_iter().enumerate() {
        let tag = (i % 2 == 1).then_some(i as u64);
        expected.push((tag, pattern(length, i as u8)));
        pair.nodes[0].send(pair.now, address(1), tag, pattern(length, i as u8));
    }
    let write = pair.nodes[0].write(pair.now, address(1), 0x42, 0x1010, Some(77), pattern(50_000, 9));
    let reads = [(0x10, 50_000), (0x20, 0), (0x30, 1_416)];
    let reads =
        reads.map(|(at, length)| (pair.nodes[0].read(pair.now, address(1), 0x42, 0x1000 + at, length), at, length));
    let refused = [(0x43, ReturnCode::BAD_KEY), (0x42, ReturnCode::BAD_ADDRESS)]
        .map(|(key, code)| (pair.nodes[0].read(pair.now, address(1), key, 0, 500), code));
    pair.nodes[1].send(pair.now, address(0), None, pattern(3_000, 3));
    pair.nodes[0].close(address(1));
    pair.nodes[1].close(address(0));
    pair.run();
    let arrived: Vec<(Option<u64>, Vec<u8>)> = pair.events[1]
        .iter()
        .filter_map(|event| match event {
            Event::Message { from, tag, header_data: None, bytes } if *from == address(0) => {
                Some((*tag, bytes.clone()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(arrived, expected, "messages arrive once, in order");
    let (from, key, offset) = (address(0), 0x42, 0x1010);
    assert!(pair.events[1].contains(&Event::Written { from, key, offset, bytes: 50_000, header_data: Some(77) }));
    assert_eq!(pair.nodes[1].memory(0x42).expect("memory")[0x10..0x10 + 50_000], pattern(50_000, 9));
    for (operation, at, length) in reads {
        // A read finds what was written before.
        let bytes = pattern(50_000, 9)[at as usize - 0x10..][..length as usize].to_vec();
        assert!(pair.events[0].contains(&Event::Read { operation, bytes }), "{at}");
    }
    for (operation, code) in refused {
        let told = pair.events[0].iter().filter(|event| **event == Event::Refused { operation, code }).count();
        assert_eq!(told, 1, "{operation:?}");
    }
    let (from, bytes) = (address(1), pattern(3_000, 3));
    assert!(pair.events[0].contains(&Event::Message { from, tag: None, header_data: None, bytes }));
    let completed: Vec<u64> = pair.events[0]
        .iter()
        .filter_map(|event| match event {
            Event::Completed { operation } => Some(operation.0),
            _ => None,
        })
        .collect();
    assert_eq!((completed, write.0), ((1..=8).collect(), 8));
    for (node, events) in pair.events.iter().enumerate() {
        assert!(events.contains(&Event::Closed { peer: address(1 - node) }), "{events:?}");
    }
    // A lost acknowledgement of a close leaves nothing behind either.
    assert_eq!(pair.nodes.each_ref().map(Uet::contexts), [[0, 0]; 2]);
    assert_eq!(pair.nodes.each_ref().map(|node| node.shared.incoming), [0, 0]);
    pair.nodes.each_ref().map(Uet::counters)
}

#[test]
fn messages_cross_a_good_wire_without_retransmissions() {
    for mode in [Mode::Unordered, Mode::Ordered] {
        for acks in [Acks::Plain, Acks::Selective] {
            let config = Config { mode, acks, ..Config::default() };
            let counters = exchange([config.clone(), config], 0, 1);
            assert_eq!(counters.map(|c| c.retransmissions + c.malformed + c.nacks_sent + c.strays), [0, 0]);
        }
    }
}

#[test]
fn messages_cross_a_bad_wire() {
    for seed in 0..20 {
        for mode in [Mode::Unordered, Mode::Ordered] {
            for (acks, probes) in [(Acks::Plain, false), (Acks::Selective, false), (Acks::Selective, true)] {
                let config = Config { mode, acks, probes, seed, ..Config::default() };
                let counters = exchange([config.clone(), config], 8, seed);
                assert!(counters[0].retransmissions > 0);
            }
        }
    }
}

#[test]
fn a_hole_in_an_ordered_context_is_filled_before_the_timeout() {
    for acks in [Acks::Plain, Acks::Selective] {
        let config = Config { mode: Mode::Ordered, acks, ..Config::default() };
        let mut pair = Pair::new([config.clone(), config.clone()], 0, 1);
        pair.drops = vec![10, 40, 300];
        let (began, mut at) = (pair.now, pair.now);
        pair.nodes[0].send(pair.now, address(1), None, pattern(600_000, 1));
        while pair.events[0].is_empty() {
            at = pair.now;
            assert!(pair.step(), "the message stays on its way");
        }
        assert_eq!(pair.events[0], [Event::Completed { operation: Operation(1) }]);
        assert!(at.since(began) < config.timeout, "{:?} {acks:?}", at.since(began));
        // Each hole is answered by many NACKs, and costs one window of packets.
        let counters = pair.nodes[0].counters();
        assert!(counters.nacks_received > 3 && counters.retransmissions <= 3 * 128, "{counters:?}");
    }
}

#[test]
fn a_peer_that_starts_again_opens_its_first_context_anew() {
    let mut pair = Pair::new([Config::default(), Config::default()], 0, 1);
    pair.nodes[0].send(pair.now, address(1), None, pattern(100, 1));
    for _ in 0..20 {
        pair.step();
    }
    assert_eq!((pair.events[1].len(), pair.nodes[1].contexts()), (1, [0, 1]));
    // It comes back at the same address, with the same number of its context, and has forgotten the old one.
    pair.nodes[0] = Uet::new(Config { seed: 2, ..Config::default() });
    pair.nodes[0].send(pair.now, address(1), None, pattern(100, 2));
    pair.nodes[0].close(address(1));
    let first = pair.nodes[0].poll_transmit(pair.now).expect("a request").1;
    // A late packet could look the same while the old context is in use.
    pair.nodes[1].handle_datagram(pair.now, address(0), &first);
    let (_, refused) = pair.nodes[1].poll_transmit(pair.now).expect("an answer");
    let Pds::Nack(nack) = uet::decode(&refused).expect("a datagram").pds else { panic!("a NACK") };
    assert_eq!(nack.code, NackCode::INVALID_SYN);
    pair.now = pair.now + RESTART;
    pair.nodes[1].handle_datagram(pair.now, address(0), &first);
    pair.run();
    let (from, bytes) = (address(0), pattern(100, 2));
    assert_eq!(pair.events[1][1], Event::Message { from, tag: None, header_data: None, bytes });
    assert_eq!(pair.nodes.each_ref().map(Uet::contexts), [[0, 0]; 2]);
}

#[test]
fn a_node_that_is_bound_again_is_not_taken_for_its_predecessor() {
    let bind = || Node::bind(SocketAddr::from(([127, 0, 0, 1], 0)), Config::default()).expect("a free port");
    let first = |mut node: Node| {
        let now = node.now();
        node.uet().send(now, address(1), None, vec![0; 8]);
        let (_, bytes) = node.uet().poll_transmit(now).expect("a request");
        let Pds::Request(request) = uet::decode(&bytes).expect("a datagram").pds else { panic!("a request") };
        (request.psn, request.source)
    };
    assert_ne!(first(bind()), first(bind()), "the default seed alone decides");
}

#[test]
fn responses_are_kept_for_packets_near_the_next_one_only() {
    let (mut node, mut other) = (Uet::new(Config::default()), Uet::new(Config::default()));
    let now = Time::ZERO + Span::from_ms(1);
    other.send(now, address(0), None, vec![0; 8]);
    let (_, mut request) = other.poll_transmit(now).expect("a request");
    node.handle_datagram(now, address(1), &request);
    let psn = u32::from_be_bytes(request[4..8].try_into().expect("four bytes"));
    // Beyond every window, without SYN.
    let Pds::Request(first) = uet::decode(&request).expect("a datagram").pds else { panic!("a request") };
    request[1] &= !4;
    let number = *node.targets.keys().next().expect("a context");
    request[10..12].copy_from_slice(&number.to_be_bytes());
    for ahead in (0..1 << 24).step_by(4_001) {
        request[4..8].copy_from_slice(&psn.wrapping_add(ahead).to_be_bytes());
        node.handle_datagram(now, address(1), &request);
    }
    assert_eq!((first.source, node.contexts()), (1, [0, 1]));
    assert_eq!(node.targets[&number].kept(), 1);
}

#[test]
fn memory_that_is_not_there_is_refused_and_the_context_goes_on() {
    let mut pair = Pair::new([Config::default(), Config::default()], 0, 1);
    pair.nodes[1].register(1, 0, vec![0; 100]);
    let node = &mut pair.nodes[0];
    let (now, to) = (pair.now, address(1));
    let wrong = [node.write(now, to, 2, 0, None, vec![1; 8]), node.write(now, to, 1, 96, None, vec![1; 8])];
    let wrong = [wrong[0], wrong[1], node.read(now, to, 2, 0, 8), node.read(now, to, 1, 93, 8)];
    let right = node.write(now, to, 1, 92, None, vec![1; 8]);
    node.close(to);
    pair.run();
    let expected = [
        Event::Refused { operation: wrong[0], code: ReturnCode::BAD_KEY },
        Event::Refused { operation: wrong[1], code: ReturnCode::BAD_ADDRESS },
        Event::Refused { operation: wrong[2], code: ReturnCode::BAD_KEY },
        Event::Refused { operation: wrong[3], code: ReturnCode::BAD_ADDRESS },
        Event::Completed { operation: right },
        Event::Closed { peer: to },
    ];
    assert_eq!(pair.events[0], expected);
    assert_eq!(pair.nodes[1].memory(1).expect("memory")[88..], [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn a_silent_peer_breaks_the_context_and_a_message_too_long_waits_in_vain() {
    let mut pair = Pair::new([Config::default(), Config::default()], 100, 1);
    pair.nodes[0].send(pair.now, address(1), None, vec![0; 8]);
    pair.run();
    assert_eq!(pair.events[0], [Event::Broken { peer: address(1), code: None }]);
    assert_eq!(pair.nodes[0].contexts(), [0, 0]);
    // Repetitions become rarer: 5 ms, 10 ms and so on to 1 s, for 30 s.
    assert!((30..50).contains(&pair.sent[0].len()), "{} datagrams", pair.sent[0].len());
    let small = Config { incoming_max: 1_000, ..Config::default() };
    let mut pair = Pair::new([Config::default(), small], 0, 1);
    pair.nodes[0].send(pair.now, address(1), None, vec![0; 2_000]);
    for _ in 0..100 {
        pair.step();
    }
    assert!(pair.nodes[1].counters().nacks_sent > 1 && pair.events[1].is_empty());
    assert_eq!(pair.nodes[1].shared.incoming, 0);
}

#[test]
fn a_context_that_does_not_exist_is_refused_and_a_repeated_close_is_answered_again() {
    let mut pair = Pair::new([Config::default(), Config::default()], 0, 1);
    pair.nodes[0].send(pair.now, address(1), None, vec![0; 8]);
    pair.nodes[0].close(address(1));
    pair.run();
    let close = pair.sent[0].iter().find(|bytes| bytes[0] >> 3 == 11).expect("a close").clone();
    let request = pair.sent[0][0].clone();
    let node = &mut pair.nodes[1];
    node.handle_datagram(pair.now, address(0), &close);
    let (_, again) = node.poll_transmit(pair.now).expect("an answer");
    let Pds::Ack(ack) = uet::decode(&again).expect("a datagram").pds else { panic!("an acknowledgement") };
    let Pds::Control(control) = uet::decode(&close).expect("a datagram").pds else { panic!("a close") };
    assert_eq!((ack.cumulative, ack.target), (control.psn, control.source));
    // Nor does a late packet open the context again.
    node.handle_datagram(pair.now, address(0), &request);
    assert_eq!((node.poll_transmit(pair.now), node.contexts()), (None, [0, 0]));
    // From another port it is another peer.
    node.handle_datagram(pair.now, address(5), &close);
    let (to, refused) = node.poll_transmit(pair.now).expect("an answer");
    let Pds::Nack(nack) = uet::decode(&refused).expect("a datagram").pds else { panic!("a NACK") };
    assert_eq!((to, nack.code), (address(5), NackCode::UNKNOWN_CONTEXT));
}

#[test]
fn contexts_of_peers_are_bounded() {
    let config = Config { contexts_max: 2, ..Config::default() };
    let mut node = Uet::new(config);
    let now = Time::ZERO + Span::from_ms(1);
    let mut other = Uet::new(Config::default());
    other.send(now, address(0), None, vec![0; 8]);
    let (_, first) = other.poll_transmit(now).expect("a request");
    for peer in 1..=3 {
        node.handle_datagram(now, address(peer), &first);
    }
    assert_eq!(node.contexts(), [0, 2]);
    assert_eq!(node.counters().nacks_sent, 1);
    // After a long silence one of them makes room.
    let later = now + Config::default().patience;
    node.handle_datagram(later, address(3), &first);
    assert_eq!((node.contexts(), node.counters().nacks_sent), ([0, 2], 1));
}

#[test]
fn nodes_on_sockets_exchange_messages() {
    let bind = || Node::bind(SocketAddr::from(([127, 0, 0, 1], 0)), Config::default()).expect("a free port");
    let (mut a, mut b) = (bind(), bind());
    let (from, to) = (a.address().expect("an address"), b.address().expect("an address"));
    let now = a.now();
    a.uet().send(now, to, Some(5), pattern(100_000, 1));
    a.uet().close(to);
    let (mut events, started) = ([Vec::new(), Vec::new()], std::time::Instant::now());
    while !events[0].contains(&Event::Closed { peer: to }) {
        assert!(started.elapsed().as_secs() < 30, "{events:?}");
        for (node, events) in [&mut a, &mut b].into_iter().zip(&mut events) {
            node.turn(std::time::Duration::from_millis(1)).expect("a socket");
            events.extend(std::iter::from_fn(|| node.uet().poll_event()));
        }
    }
    let bytes = pattern(100_000, 1);
    assert_eq!(events[1], [Event::Message { from, tag: Some(5), header_data: None, bytes }]);
    assert_eq!(events[0].first(), Some(&Event::Completed { operation: Operation(1) }));
}

proptest! {
    #[test]
    fn no_datagram_makes_a_node_panic(
        datagrams in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..90), 2u8..13, 0u8..7, 0u16..4), 1..40,
        ),
    ) {
        let mut node = Uet::new(Config { incoming_max: 10_000, ..Config::default() });
        node.register(0, 0, vec![0; 100]);
        let mut now = Time::ZERO + Span::from_ms(1);
        node.send(now, address(0), None, vec![1; 5_000]);
        node.read(now, address(0), 0, 0, 5_000);
        for (mut bytes, kind, next, number) in datagrams {
            now = now + Span::from_us(100);
            if bytes.len() >= 12 {
                // Types and contexts that exist, so that what lies behind is reached.
                bytes[0] = kind << 3 | next >> 1;
                bytes[1] = bytes[1] & 0x3c | next << 7;
                bytes[10..12].copy_from_slice(&number.to_be_bytes());
            }
            if bytes.len() >= 22 {
                (bytes[12], bytes[13]) = (bytes[12] & 0xf, bytes[13] & 0x3f);
                bytes[20..22].fill(0);
            }
            node.handle_datagram(now, address(0), &bytes);
            node.handle_timeout(now);
            while node.poll_transmit(now).is_some() {}
            while node.poll_event().is_some() {}
        }
    }
}

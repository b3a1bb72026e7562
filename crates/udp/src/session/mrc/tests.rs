//! Two sessions in MRC's layout and a bad wire between them, without the kernel.

use super::super::*;
use super::Inner;
use crate::layout::Protection;
use crate::socket::Arrival;
use proptest::prelude::*;
use std::time::Duration;
use strandway_proto::PathId;
use strandway_proto::rng::Random;
use strandway_wire::ocp::{self, Body, Datagram};

const MESSAGES: usize = 5;
const BYTES: usize = 20_001;
/// The DSCP of control packets, and of trimmed ones.
const CONTROL: u8 = 48;

/// Percentages of packets.
#[derive(Clone, Copy, Debug)]
struct Fate {
    lost: u32,
    twice: u32,
    late: u32,
    marked: u32,
    trimmed: u32,
    damaged: u32,
}

struct End {
    session: Session,
    planes: Vec<Plane>,
    memory: Memory,
    monitors: PeerMonitors,
    windows: Windows,
    requests: crate::requests::Requests,
    completions: VecDeque<Completion>,
    /// Datagrams that are still on their way to the other side, with their traffic class.
    way: Vec<(u8, Vec<u8>)>,
}

macro_rules! around {
    ($side:expr, $now:expr, $routes:expr) => {
        NodeContext {
            now: $now,
            routes: $routes,
            denied: &[],
            planes: &mut $side.planes,
            memory: &mut $side.memory,
            completions: &mut $side.completions,
            monitors: &mut $side.monitors,
            windows: &mut $side.windows,
            requests: &mut $side.requests,
        }
    };
}

fn config() -> Config {
    let mut config = Config::new(&[1; 32]).expect("long enough").profile("mrc").expect("a preset");
    config.planes = vec!["[::1]:0".parse().expect("an address")];
    (config.layout, config.protection, config.trimming) = (Layout::MRC, Protection::None, true);
    config
}

impl End {
    /// `None` if this process may not open raw sockets.
    fn new(calls: bool) -> Option<End> {
        let config = config();
        let planes = vec![Plane::open(config.planes[0], &config).ok()?];
        let profile = Arc::new(config.wire_profile());
        let environment = config.environment(&profile, 1 << 22);
        let secrets = Secrets { from_caller: [1; 32], to_caller: [2; 32] };
        let mut monitors = PeerMonitors::new(Span::from_ms(40), Span::from_ms(600_000));
        let (local, remote) = if calls { (0x456, 0x123) } else { (0x123, 0x456) };
        let opening = SessionParams {
            handle: Connection::test(0),
            local,
            remote,
            ports: &[],
            secrets: &secrets,
            calls,
            peers: vec![Some(config.planes[0])],
            profile,
            environment,
            burst: None,
            seed: 1 + u64::from(calls),
        };
        let mut session = Session::new(Time::ZERO, &config, &mut monitors, opening);
        session.phase.handle_arrival(Time::ZERO + EARLY);
        session.open_mrc();
        Some(End {
            session,
            planes,
            memory: Memory::new(true),
            monitors,
            windows: Windows::default(),
            requests: crate::requests::Requests::default(),
            completions: VecDeque::new(),
            way: Vec::new(),
        })
    }

    /// Works, and puts what leaves on its way.
    fn work(&mut self, now: Time, random: &mut Random, fate: Fate) {
        let routes = Routes::default();
        self.session.work(&mut around!(self, now, &routes), Span::ZERO, false).expect("it stays open");
        for (packet, mut inner) in self.planes[0].take_inner() {
            assert_eq!(packet.label, ocp::read(&inner, ocp::PORT).expect("valid").0.entropy >> 16);
            let mut chance = |percent: u32| random.below(100) < percent;
            if chance(fate.lost) {
                continue;
            }
            let mut class = packet.class;
            if chance(fate.damaged) {
                // A byte of the address that the packet is for, which the ICRC covers.
                inner[30] ^= 0x10;
            } else if class >> 2 != CONTROL && chance(fate.trimmed) && inner[48] < 0xd0 {
                inner.truncate(ocp::TRIMMED);
                class = CONTROL << 2 | 2;
            }
            if chance(fate.marked) && class & 3 != 0 {
                class |= 3;
            }
            if chance(fate.twice) {
                self.way.push((class, inner.clone()));
            }
            let at = if chance(fate.late) { self.way.len() / 2 } else { self.way.len() };
            self.way.insert(at, (class, inner));
        }
    }

    /// As the node does it.
    fn take(&mut self, now: Time, class: u8, bytes: &[u8]) {
        let routes = Routes::default();
        let from = "[::1]:0".parse().expect("an address");
        let arrival = Arrival { from, class, age: Duration::ZERO };
        match ocp::read(bytes, ocp::PORT) {
            Ok((datagram, payload)) => {
                let path = ocp::path_of(datagram.entropy);
                let number = datagram.psn.get() as u16;
                match &datagram.body {
                    // Each side probes the paths of its answers.
                    Body::Request(request) => {
                        assert_eq!((datagram.queue, request.ports), (ocp::NIC_QUEUE, None));
                        let mut around = around!(self, now, &routes);
                        self.session.handle_request(&mut around, path, number, request, true).expect("it stays open");
                    }
                    Body::Response(response) => {
                        assert_eq!((datagram.queue, response.tick > 0), (ocp::NIC_QUEUE, true));
                        let (_, answer) = self.requests.answer(number, response.port_status).expect("it was asked");
                        let mut around = around!(self, now, &routes);
                        self.session.handle_response(&mut around, path, answer).expect("it stays open");
                    }
                    _ => {
                        let inner = Inner { datagram: &datagram, payload, bytes: bytes.len() };
                        let mut around = around!(self, now, &routes);
                        self.session.handle_mrc(&mut around, 0, &arrival, inner).expect("it stays open");
                    }
                }
            }
            Err(_) if arrival.dscp() == CONTROL => {
                if let Ok(trimmed) = ocp::read_trimmed(bytes, ocp::PORT) {
                    self.session.handle_trimmed_mrc(now, &arrival, &trimmed, false);
                }
            }
            // The ICRC is wrong.
            Err(_) => {}
        }
    }
}

/// Writes messages over a wire with this fate; returns the datagrams that the receiver sent.
fn transfer(fate: Fate, seed: u64) -> Option<Vec<Datagram>> {
    let (mut a, mut b) = (End::new(true)?, End::new(false)?);
    let mut random = Random::new(seed, StreamKind::Connection, 7);
    let source: Vec<u8> = (0..MESSAGES * BYTES).map(|i| (i * 7 % 251) as u8).collect();
    let outbox = a.memory.register(source.clone());
    let inbox = b.memory.register(vec![0; MESSAGES * BYTES]);
    let remote = b.memory.expose(inbox, &(0..MESSAGES * BYTES), b.session.handle).expect("a key");
    let mut now = Time::ZERO;
    for i in 0..MESSAGES {
        let place = a.memory.place(outbox, &(i * BYTES..(i + 1) * BYTES)).expect("within");
        a.memory.hold(place);
        let start = (i * BYTES) as u64;
        let immediate = (i % 2 == 1).then_some(i as u32);
        a.session.post(now, Operation(i as u64), place, Descriptor::Write { key: remote.key, start, immediate });
    }
    let (mut sent, mut written, mut answers) = (0, Vec::new(), Vec::new());
    for step in 0..100_000 {
        now = now + Span::from_us(50);
        a.work(now, &mut random, fate);
        for (class, bytes) in std::mem::take(&mut a.way) {
            b.take(now, class, &bytes);
        }
        b.work(now, &mut random, Fate { trimmed: 0, ..fate });
        for (class, bytes) in std::mem::take(&mut b.way) {
            answers.extend(ocp::read(&bytes, ocp::PORT).ok().map(|(datagram, _)| datagram));
            a.take(now, class, &bytes);
        }
        sent += a.completions.drain(..).filter(|told| matches!(told, Completion::Sent { .. })).count();
        for told in b.completions.drain(..) {
            let Completion::Written { immediate, bytes, .. } = told else { panic!("{told:?}") };
            assert_eq!(bytes, BYTES as u64);
            let until = (immediate as usize + 1) * BYTES;
            assert!(b.memory.bytes(inbox).expect("there")[..until] == source[..until], "told before it is there");
            written.push(immediate);
        }
        if sent == MESSAGES && step > 100 {
            break;
        }
    }
    assert_eq!((sent, written), (MESSAGES, vec![1, 3]), "{fate:?}");
    assert!(b.memory.bytes(inbox).expect("there") == source);
    let [counters, theirs] = [a.session.counters(), b.session.counters()];
    assert_eq!(theirs.received_bytes, [(MESSAGES * BYTES) as u64]);
    assert!(counters.transport_acks_received <= theirs.transport_acks_sent * 2);
    Some(answers)
}

const GOOD: Fate = Fate { lost: 0, twice: 0, late: 0, marked: 0, trimmed: 0, damaged: 0 };

#[test]
fn the_receiver_acknowledges_packets_and_above_them_messages() {
    let Some(answers) = transfer(GOOD, 1) else { return eprintln!("skipped: raw sockets need root") };
    let packets = (MESSAGES * BYTES.div_ceil(1_344)) as u32;
    let mut last = None;
    for datagram in &answers {
        if let Body::Request(_) | Body::Response(_) = datagram.body {
            continue;
        }
        assert_eq!(datagram.queue, 0x456);
        match datagram.body {
            Body::Sack(sack) => {
                assert_eq!((sack.queues, sack.range, sack.penalty), ([0x123, 0x456], 0, 0), "sender first");
                assert_eq!(sack.cumulative, datagram.psn);
                assert!(sack.tick > 0, "the stamp of the packet that caused it");
            }
            Body::TransportAck(ack) => {
                assert!(ack.accepts());
                last = Some((datagram.psn.get(), ack.completed));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(last, Some((packets - 1, MESSAGES as u32)), "the last one covers everything");
    // Nominal size: the UDP datagram and 40 bytes, that is, the inner datagram; the last packets are padded.
    let tail = (BYTES % 1_344).next_multiple_of(4);
    let full = MESSAGES * (BYTES / 1_344);
    let nominal = full * (1_344 + 88) + MESSAGES * (tail + 88) + 2 * 4;
    let received =
        answers.iter().filter_map(|d| if let Body::Sack(sack) = d.body { Some(sack.received) } else { None });
    assert_eq!(received.max(), Some(nominal.div_ceil(256) as u32));
}

#[test]
fn a_transport_acknowledgement_is_held_back_while_a_packet_is_missing_and_repeated_for_duplicates() {
    let (Some(mut a), Some(mut b)) = (End::new(true), End::new(false)) else {
        return eprintln!("skipped: raw sockets need root");
    };
    let mut random = Random::new(1, StreamKind::Connection, 7);
    let outbox = a.memory.register(vec![3; 4_000]);
    let inbox = b.memory.register(vec![0; 4_000]);
    let remote = b.memory.expose(inbox, &(0..4_000), b.session.handle).expect("a key");
    let place = a.memory.place(outbox, &(0..4_000)).expect("within");
    a.memory.hold(place);
    let now = Time::ZERO + Span::from_us(50);
    a.session.post(now, Operation(0), place, Descriptor::Write { key: remote.key, start: 0, immediate: None });
    a.work(now, &mut random, GOOD);
    let [first, second, third] = <[_; 3]>::try_from(std::mem::take(&mut a.way)).expect("three packets");
    let mut said = |b: &mut End, (class, bytes): &(u8, Vec<u8>)| {
        b.take(now, *class, bytes);
        b.work(now, &mut random, GOOD);
        let bodies = std::mem::take(&mut b.way).into_iter();
        let bodies = bodies.map(|(_, bytes)| ocp::read(&bytes, ocp::PORT).map(|(d, _)| d).expect("valid"));
        bodies.filter(|d| matches!(d.body, Body::TransportAck(_))).map(|d| d.psn.get()).collect::<Vec<_>>()
    };
    assert_eq!(said(&mut b, &first), [], "no end of a message");
    assert_eq!(said(&mut b, &third), [], "the second packet is missing");
    assert_eq!(said(&mut b, &second), [2]);
    assert_eq!(said(&mut b, &third), [2], "the sender may have missed it");
}

#[test]
fn a_port_status_that_another_connection_answers_is_not_answered_and_a_probe_with_its_number_is() {
    let Some(mut b) = End::new(false) else { return eprintln!("skipped: raw sockets need root") };
    let (mut random, routes, now) = (Random::new(1, StreamKind::Connection, 7), Routes::default(), Time::ZERO);
    let stamp = ocp::Stamp { tick: 9, coarse: false };
    for (ports, answers) in [(None, true), (Some(1), false), (Some(1), true)] {
        let mut around = around!(b, now, &routes);
        let number = if answers && ports.is_some() { 6 } else { 5 };
        let request = ocp::Request { ports, stamp };
        b.session.handle_request(&mut around, PathId::new(0, 0), number, &request, answers).expect("it stays open");
    }
    b.work(now + Span::from_us(50), &mut random, GOOD);
    let mut answers: Vec<(u64, bool)> = std::mem::take(&mut b.way)
        .iter()
        .filter_map(|(_, bytes)| match ocp::read(bytes, ocp::PORT).expect("valid").0 {
            Datagram { psn, body: Body::Response(response), .. } => Some((psn.get().into(), response.port_status)),
            _ => None,
        })
        .collect();
    answers.sort_unstable();
    assert_eq!(answers, [(5, false), (6, true)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_once_over_a_bad_wire(
        lost in 0u32..15, twice in 0u32..20, late in 0u32..30, marked in 0u32..30, trimmed in 0u32..20, damaged in 0u32..10,
        seed: u64,
    ) {
        transfer(Fate { lost, twice, late, marked, trimmed, damaged }, seed);
    }
}

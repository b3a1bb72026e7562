//! Two endpoints and one bad wire, with any combination of policies, ports and packets: every message arrives exactly
//! once, and no packet from the network does harm.

use super::pair_support::{self, ACK, Chance, DELAY, Outage, PACKET, Post, RTT, World, acknowledged, check};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strandway_proto::congestion::CongestionConfig;
use strandway_proto::packet::{
    Ack, Answer, Data, Flags, Header, Nack, NackReason, Offset, Operation, Psn, SackBits, Wait,
};
use strandway_proto::path::PathConfig;
use strandway_proto::reliability::{GoBackNConfig, ReliabilityConfig, SelectiveRepeatConfig};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    ConnectionId, Endpoint, Environment, Event, HostId, Message, MessageId, OpenConnection, Packet, PathId, Ports,
    Profile, Rate, Span, Time,
};

/// When packet `n` of a burst at line rate leaves.
fn nth(n: u64) -> Time {
    Time(n * PACKET.0)
}

// ---- Any combination
// -------------------------------------------------------------------------------------------------------

fn reliabilities() -> [(&'static str, ReliabilityConfig, bool); 8] {
    let selective = ReliabilityConfig::SelectiveRepeat(SelectiveRepeatConfig::default());
    let irn = ReliabilityConfig::SelectiveRepeat(SelectiveRepeatConfig::irn());
    let late = Profile::preset("strack_fast").expect("a preset").reliability;
    let mrc = Profile::preset("mrc").expect("a preset").reliability;
    let go_back_n = ReliabilityConfig::GoBackN(GoBackNConfig::default());
    [
        ("go_back_n", go_back_n.clone(), false),
        ("go_back_n, trimming", go_back_n, true),
        ("selective, trimming", selective.clone(), true),
        ("selective, reordering", selective, false),
        ("irn", irn, false),
        ("selective, lateness", late, false),
        ("mrc, trimming", mrc.clone(), true),
        ("mrc", mrc, false),
    ]
}

#[test]
fn every_combination_of_policies_completes_over_a_lossy_wire() {
    let chance = Chance { drop: 0.02, duplicate: 0.02, mark: 0.1, trim: 0.02, delay: 0.1, late: Span::from_us(6) };
    let mut combinations = 0;
    for (label, reliability, trimming) in reliabilities() {
        for congestion in CongestionConfig::NAMES {
            for path in PathConfig::NAMES {
                for preset in ["rocev2", "uec", "strack"] {
                    let mut world = World::new(preset).messages(&[80_000, 0, 40_000]);
                    world.profile.reliability = reliability.clone();
                    world.profile.congestion = CongestionConfig::named(congestion).expect("a known name");
                    world.profile.path = PathConfig::named(path).expect("a known name");
                    world.environment.trimming = trimming;
                    world.chance = chance;
                    world.seed = combinations + 1;
                    // Captured unless the test fails: what was being tried.
                    println!("{label}, {congestion}, {path}, framed by {preset}");
                    check(&world, "", "delivered 31");
                    combinations += 1;
                }
            }
        }
    }
    assert_eq!(combinations, 8 * 10 * 7 * 3);
}

#[test]
fn messages_of_any_length_follow_each_other_on_one_connection() {
    for preset in acknowledged() {
        let world = World::new(preset).messages(&[0, 1, 4095, 4096, 4097, 100_000, 0, 0, 1]);
        let outcome = check(&world, "", "again 0, timeouts 0, delivered 34");
        // An empty message takes one packet without payload.
        let empty = outcome.data().filter(|(_, d)| d.length == 0).count();
        assert_eq!(empty, 3, "{preset}");
    }
}

#[test]
fn messages_posted_after_an_idle_time_go_out_as_the_first_ones_did() {
    for preset in acknowledged() {
        let mut world = World::new(preset);
        for (i, at) in [(1, Span::from_us(500)), (2, Span::from_ms(5)), (3, Span::from_ms(5))] {
            world.posts.push(Post { side: 0, connection: 0, bytes: i * 10_000, at: Time::ZERO + at });
        }
        // Without losses, only lateness sends probes: soon after the last packet.
        let probes = if ["strack_fast", "mrc"].contains(&preset) { "0.." } else { "0" };
        let outcome = check(&world, "", &format!("again 0, timeouts 0, probes {probes}"));
        // 1 to 3 full packets and the rest of each message, from 5 ms on: 20,000 and 30,000 bytes.
        let rest = |bytes: u64| Span((bytes % 4096 + 64) * 20);
        let expected =
            Time::ZERO + Span::from_ms(5) + PACKET * (4 + 7) + rest(20_000) + rest(30_000) + DELAY + ACK + DELAY;
        assert_eq!(outcome.finished, expected, "{preset}");
        check(&world, "drop 3; drop 66; drop 70", "delivered 80");
    }
}

#[test]
fn both_sides_of_a_connection_can_send_at_once() {
    for preset in acknowledged() {
        let mut world = World::new(preset);
        world.posts.push(Post { side: 1, connection: 0, bytes: 100_000, at: Time::ZERO });
        world.posts.push(Post { side: 1, connection: 0, bytes: 5_000, at: Time(3_000_000) });
        check(&world, "", "again 0, timeouts 0");
        check(&world, "drop 3; drop 10; drop 24", "delivered 91");
    }
}

#[test]
fn connections_of_one_endpoint_take_turns_packet_by_packet() {
    for preset in ["rocev2", "uec", "strack"] {
        let outcome = check(&World::new(preset).spread(16, 8), "", "again 0, sent 128");
        let order: Vec<u32> = outcome.data().map(|(s, _)| s.packet.connection.0).collect();
        for round in order.chunks(16) {
            assert_eq!(round, (0..16).collect::<Vec<_>>(), "{preset}");
        }
    }
    // A connection that begins later joins the round, and does not wait until the others end.
    let mut world = World::new("uec").spread(4, 40);
    world.posts[3].at = nth(30);
    let outcome = check(&world, "", "again 0");
    let late: Vec<usize> =
        outcome.data().enumerate().filter(|(_, (s, _))| s.packet.connection.0 == 3).map(|(i, _)| i).collect();
    assert!(late[0] >= 30 && late[0] <= 34, "it first has a turn at {}", late[0]);
    assert!(late[..20].windows(2).all(|w| w[1] - w[0] == 4), "every fourth packet is its own: {late:?}");
}

#[test]
fn many_connections_recover_from_losses_without_disturbing_each_other() {
    for preset in acknowledged() {
        let mut world = World::new(preset).spread(64, 5);
        world.chance = Chance { drop: 0.03, duplicate: 0.01, mark: 0.05, trim: 0.05, ..Chance::default() };
        check(&world, "", "delivered 320");
    }
}

#[test]
fn control_packets_go_first_but_leave_data_a_turn() {
    // Both sides send; each has acknowledgements for every packet to send besides its own data.
    let mut world = World::new("uec").with(|p| p.transport.ack_every = strandway_proto::Bytes(1));
    world.posts.push(Post { side: 1, connection: 0, bytes: 64 * 4096, at: Time::ZERO });
    let outcome = check(&world, "", "again 0, acks 128");
    for side in 0..2 {
        let mut streak = 0;
        for sent in outcome.sent.iter().filter(|s| s.side == side) {
            streak = if sent.packet.is_control() { streak + 1 } else { 0 };
            assert!(streak <= 10 || sent.at > nth(63), "{streak} control packets in a row while data waits");
        }
    }
}

// ---- Ports
// -----------------------------------------------------------------------------------------------------------------

#[test]
fn a_spray_uses_all_ports_and_only_the_idle_ones() {
    for path in ["oblivious", "bitmap", "reps", "mixed"] {
        let mut world = World::new("uec").ports(4).packets(400);
        world.profile.path = PathConfig::named(path).expect("a known name");
        let counts = |world: &World| {
            let mut counts = [0u32; 4];
            for (sent, _) in check(world, "", "again 0, delivered 400").data() {
                counts[usize::from(sent.packet.path.port())] += 1;
            }
            counts
        };
        let even = counts(&world);
        assert!(even.iter().all(|&c| (90..=110).contains(&c)), "{path}: {even:?}");
        world.blocked = 0b0101;
        let two = counts(&world);
        assert_eq!((two[0], two[2]), (0, 0), "{path}");
        assert!(two[1].abs_diff(two[3]) <= 20, "{path}: {two:?}");
    }
}

#[test]
fn a_connection_whose_only_port_is_busy_does_not_hold_up_the_others() {
    // Each connection has a single path. There are four ports, and one of them is never idle.
    let world = World::new("rocev2").ports(4).spread(32, 4);
    let outcome = check(&world, "", "again 0");
    let port_of: BTreeMap<u32, u8> =
        outcome.data().map(|(s, _)| (s.packet.connection.0, s.packet.path.port())).collect();
    let used: BTreeSet<u8> = port_of.values().copied().collect();
    assert_eq!(used.len(), 4, "32 connections find all ports");
    let stats = outcome.stats;
    assert_eq!(stats.sent, 128);
    // The endpoint by itself, one port blocked: exactly the connections of that port keep their packets.
    let mut endpoint = endpoint(&world, 32);
    for c in 0..32 {
        endpoint.post(Time::ZERO, ConnectionId(c), Message { id: MessageId(0), bytes: 4 * 4096 });
    }
    let free = Ports { data: 0b1101, control: 0b1101 };
    let mut sent = BTreeMap::new();
    while let Some(packet) = endpoint.poll_transmit(Time::ZERO, free) {
        assert_ne!(packet.path.port(), 1);
        *sent.entry(packet.connection.0).or_insert(0) += 1;
    }
    let expected: BTreeMap<u32, u32> = port_of.iter().filter(|(_, p)| **p != 1).map(|(&c, _)| (c, 4)).collect();
    assert_eq!(sent, expected);
    assert!(endpoint.wants_transmit(), "the others still wait");
    while let Some(packet) = endpoint.poll_transmit(Time::ZERO, Ports::first(4)) {
        assert_eq!(packet.path.port(), 1);
        *sent.entry(packet.connection.0).or_insert(0) += 1;
    }
    assert!(sent.len() == 32 && sent.values().all(|&n| n == 4));
}

#[test]
fn control_leaves_by_any_port_when_its_own_is_busy() {
    let world = World::new("uec").ports(4);
    let mut receiver = endpoint(&world, 1);
    for psn in 0..2 {
        let packet = data_packet(&world, psn, PathId::new(2, 9), Flags::CE);
        receiver.handle_packet(Time::ZERO, &packet);
    }
    let first = receiver.poll_transmit(Time::ZERO, Ports { data: 0, control: 0b1100 }).expect("an acknowledgement");
    assert_eq!((first.path.port(), first.path.entropy()), (2, 9), "it goes back the way the data came");
    let second = receiver.poll_transmit(Time::ZERO, Ports { data: 0, control: 0b1010 }).expect("an acknowledgement");
    assert_eq!(second.path.port(), 1, "or else by the lowest idle port");
    assert_eq!(receiver.poll_transmit(Time::ZERO, Ports::first(4)), None);
}

#[test]
fn reps_freezes_after_a_timeout_and_keeps_to_eight_paths() {
    let world = World::new("uec").packets(4000).with(|p| p.path = PathConfig::named("reps").expect("a known name"));
    let distinct = |outcome: &pair_support::Outcome, from: Time, until: Time| {
        let window = outcome.data().filter(|(s, _)| s.at > from && s.at < until);
        let paths: Vec<PathId> = window.map(|(s, _)| s.packet.path).collect();
        (paths.len(), paths.iter().collect::<BTreeSet<_>>().len())
    };
    // After the first bandwidth-delay product of packets, it has explored enough to freeze.
    let lost = 300;
    let outcome = check(&world, &format!("drop {lost}"), "again 1, timeouts 1");
    // For one round trip, acknowledgements of packets already in flight still report other paths.
    let timeout = outcome.left(lost, 1);
    let (before, paths_before) = distinct(&outcome, Time::ZERO, timeout);
    let (after, paths_after) = distinct(&outcome, timeout + RTT * 2, outcome.finished);
    assert!(before > 300 && paths_before > 32, "{paths_before} paths in {before} packets before");
    assert!(after > 300 && paths_after <= 8, "{paths_after} paths in {after} packets while frozen");
    // A trimmed packet is no failure.
    let outcome = check(&world, &format!("trim {lost}"), "again 1, timeouts 0");
    let (_, paths) = distinct(&outcome, outcome.left(lost, 1) + PACKET, outcome.finished);
    assert!(paths > 16, "{paths} paths after a trim");
}

// ---- Wandering
// -------------------------------------------------------------------------------------------------------------

/// Picks profile, policies, messages, ports and wire by `seed`, and runs them.
fn wander(seed: u64) {
    let mut random = Random::new(seed, StreamKind::Workload, 0);
    let mut pick = |below: u32| random.below(below);
    let mut world = World::new(Profile::NAMES[pick(7) as usize]);
    if pick(2) == 0 {
        let (_, reliability, trimming) = reliabilities()[pick(8) as usize].clone();
        world.profile.reliability = reliability;
        world.environment.trimming = trimming;
        world.profile.congestion = CongestionConfig::named(CongestionConfig::NAMES[pick(6) as usize]).expect("a name");
        world.profile.path = PathConfig::named(PathConfig::NAMES[pick(7) as usize]).expect("a name");
    } else if pick(3) == 0 {
        world.environment.trimming = !world.environment.trimming;
    }
    world.environment.ports = [1, 1, 2, 3, 4, 8][pick(6) as usize];
    world.environment.rate = Rate::from_gbps([100, 400, 800][pick(3) as usize]);
    if pick(4) == 0 {
        world.profile.transport.ack_every = strandway_proto::Bytes(u64::from(pick(60_000)) + 1);
    }
    world.connections = [1, 1, 2, 5][pick(4) as usize];
    world.posts = (0..1 + pick(8))
        .map(|_| Post {
            side: pick(2) as usize,
            connection: pick(world.connections),
            bytes: u64::from([pick(10), pick(10_000), pick(200_000), pick(1_000_000)][pick(4) as usize]),
            at: Time(u64::from(pick(3)) * u64::from(pick(1000)) * 1_000_000),
        })
        .collect();
    let mut probability = |worst: f64| if pick(2) == 0 { 0.0 } else { f64::from(pick(1000)) / 1000.0 * worst };
    world.chance = Chance {
        drop: probability(0.1),
        duplicate: probability(0.1),
        mark: probability(1.0),
        trim: probability(0.3),
        delay: probability(0.5),
        late: Span(20_000_000),
    };
    world.seed = seed;
    // Ports that go down and come back, seen by their own NIC only.
    for _ in 0..if world.environment.ports > 1 { pick(3) } else { 0 } {
        let from = Time(u64::from(pick(200)) * 1_000_000);
        let port = pick(u32::from(world.environment.ports)) as u8;
        let until = from + Span::from_us(u64::from(pick(2000)) + 1);
        world.outages.push(Outage { side: pick(2) as usize, port, from, until });
    }
    // Paths that are said to keep order, although this wire does not: the conclusions are then wrong, but must do no
    // harm.
    world.environment.paths_in_order = [0, 0, 1, 4][pick(4) as usize];
    println!("{world:#?}");
    check(&world, "", "");
}

/// The seed of the cases, equal in every run; `STRANDWAY_DRAWS=N` draws other cases.
fn draws() -> RngSeed {
    RngSeed::Fixed(std::env::var("STRANDWAY_DRAWS").map_or(1, |seed| seed.parse().expect("a number")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, max_shrink_iters: 0, failure_persistence: None, rng_seed: draws(), ..ProptestConfig::default() })]
    #[test]
    fn wandering_by_seed_every_message_arrives(seed in any::<u64>()) {
        println!("replay: STRANDWAY_WANDER={seed} cargo test -p strandway-proto --test all the_wandering_of_one_seed");
        wander(seed);
    }
}

/// Replays what [`wandering_by_seed_every_message_arrives`] printed.
#[test]
fn the_wandering_of_one_seed_can_be_replayed() {
    let seed = std::env::var("STRANDWAY_WANDER").map_or(1, |seed| seed.parse().expect("a seed"));
    wander(seed);
}

// ---- Hostile packets
// -------------------------------------------------------------------------------------------------------

fn endpoint(world: &World, connections: u32) -> Endpoint {
    let mut endpoint = Endpoint::new(HostId(0));
    let profile = Arc::new(world.profile.clone());
    for c in 0..connections {
        endpoint.open(
            Time::ZERO,
            OpenConnection {
                profile: Arc::clone(&profile),
                environment: Environment { ..world.environment },
                peer: HostId(1),
                peer_connection: Some(ConnectionId(c)),
                random: Random::new(world.seed, StreamKind::Connection, u64::from(c * 2)),
            },
        );
    }
    endpoint
}

fn data_packet(world: &World, psn: u64, path: PathId, flags: Flags) -> Packet {
    let data = Data {
        psn: Psn::new(psn),
        message: MessageId(0),
        offset: Offset::new(psn * 4096),
        length: 4096,
        target: 0,
        wait: Wait::default(),
    };
    Packet {
        source: HostId(1),
        destination: HostId(0),
        connection: ConnectionId(0),
        path,
        size: world.environment.packet.0 as u16,
        flags,
        header: Header::Data(data),
    }
}

/// Sequence numbers near the interesting ones, and any others.
fn psns() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..24, 1 => 0u64..200, 1 => 16_300u64..16_500, 1 => (1u64 << 24) - 70..1 << 24, 1 => 0u64..1 << 24]
}

fn headers() -> impl Strategy<Value = Header> {
    let offsets = prop_oneof![Just(0), 0u64..1 << 20, (u64::MAX - 10_000)..=u64::MAX, any::<u64>()];
    let data = (psns(), 0u32..4, offsets, any::<u16>()).prop_map(|(psn, message, offset, length)| {
        Header::Data(Data {
            psn: Psn::new(psn),
            message: MessageId(message),
            offset: Offset::new(offset),
            length,
            target: 0,
            wait: Wait::default(),
        })
    });
    let bits = prop_oneof![Just(0u64), Just(u64::MAX), Just(1 << 63), any::<u64>(), (0u64..256)];
    let ack = (psns(), psns(), bits, psns(), any::<u32>(), any::<u32>(), any::<u16>()).prop_map(
        |(cumulative, base, bits, acked, path, received, out_of_order)| {
            Header::Ack(Ack {
                cumulative: Psn::new(cumulative),
                sack_base: Psn::new(base),
                sack: SackBits::new(bits),
                acked: Psn::new(acked),
                path: PathId(path),
                received,
                out_of_order,
                range: received as u8,
            })
        },
    );
    let reasons = prop_oneof![
        6 => Just(NackReason::Missing),
        2 => Just(NackReason::BeyondWindow),
        1 => Just(NackReason::NoBuffer),
        1 => Just(NackReason::Fatal),
    ];
    let nack = (psns(), psns(), any::<u32>(), reasons).prop_map(|(psn, cumulative, path, reason)| {
        let (psn, cumulative) = (Psn::new(psn), Psn::new(cumulative));
        Header::Nack(Nack { psn, cumulative, path: PathId(path), reason })
    });
    let probe = any::<u32>().prop_map(|number| Header::Probe { number });
    let operation =
        (any::<u16>(), prop_oneof![Just(Operation::PathProbe), any::<u32>().prop_map(Operation::PortStatus)]);
    let operation = operation.prop_map(|(number, operation)| Header::Operation { number, operation });
    let answer = (any::<bool>(), any::<u16>(), any::<u32>())
        .prop_map(|(port_status, number, path)| Header::Answer(Answer { port_status, number, path: PathId(path) }));
    prop_oneof![4 => data, 4 => ack, 3 => nack, 1 => Just(Header::Cnp), 1 => probe, 1 => operation, 1 => answer]
}

fn packets() -> impl Strategy<Value = Packet> {
    (any::<u32>(), prop_oneof![5 => 0u32..2, 1 => any::<u32>()], any::<u32>(), any::<u16>(), any::<u16>(), headers())
        .prop_map(|(host, connection, path, size, flags, header)| Packet {
            source: HostId(host),
            destination: HostId(0),
            connection: ConnectionId(connection),
            path: PathId(path),
            size,
            flags: Flags(flags),
            header,
        })
}

/// A step of an attack on an endpoint.
#[derive(Clone, Debug)]
enum Step {
    Packet(Packet),
    Transmit(u32),
    Wait(u64),
    Post(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => packets().prop_map(Step::Packet),
        5 => any::<u32>().prop_map(Step::Transmit),
        2 => (0u64..100_000_000).prop_map(Step::Wait),
        1 => (0u64..100_000).prop_map(Step::Post),
    ];
    prop::collection::vec(step, 1..200)
}

/// Feeds `steps` to an endpoint and compares its reports with those of a naive observer.
fn attack(world: &World, steps: &[Step]) {
    let mut victim = endpoint(world, 2);
    let mut now = Time::ZERO;
    // Per connection: whole data packets fed, as PSNs; packets posted per message; packets sent.
    let mut fed = [BTreeSet::new(), BTreeSet::new()];
    let mut posted: [Vec<u64>; 2] = Default::default();
    let mut sent = [0u64; 2];
    let mut told = [(0u64, 0usize), (0, 0)];
    let mut failed = [false; 2];
    for step in steps {
        match *step {
            Step::Packet(packet) => {
                if let (Header::Data(data), Some(fed)) = (&packet.header, fed.get_mut(packet.connection.0 as usize))
                    && !packet.flags.has(Flags::TRIMMED)
                {
                    fed.insert(u64::from(data.psn.get()));
                }
                victim.handle_packet(now, &packet);
            }
            Step::Transmit(mask) => {
                let packet = victim.poll_transmit(now, Ports { data: mask, control: mask });
                if let Some(Packet { connection, header: Header::Data(data), .. }) = packet {
                    let most = &mut sent[connection.0 as usize];
                    *most = (*most).max(u64::from(data.psn.get()) + 1);
                }
            }
            Step::Wait(ps) => {
                now = now + Span(ps);
                victim.handle_timeout(now);
            }
            Step::Post(bytes) => {
                let c = (bytes % 2) as usize;
                let id = MessageId(posted[c].len() as u32);
                let before = posted[c].last().copied().unwrap_or(0);
                posted[c].push(before + bytes.div_ceil(4096).max(1));
                victim.post(now, ConnectionId(c as u32), Message { id, bytes });
            }
        }
        while let Some(event) = victim.poll_event() {
            match event {
                Event::Received { connection, .. } => {
                    let c = connection.0 as usize;
                    told[c].0 += 1;
                    let whole = (0..).take_while(|psn| fed[c].contains(psn)).count() as u64;
                    assert!(told[c].0 <= whole, "{} messages are complete of {whole} packets in order", told[c].0);
                }
                // A hostile packet may be one.
                Event::Control { .. } => {}
                Event::Cast { .. } => panic!("nobody cast anything"),
                Event::Failed { connection } | Event::Closed { connection } => {
                    let c = connection.0 as usize;
                    assert!(!failed[c], "told once");
                    failed[c] = true;
                }
                Event::Sent { connection, message } => {
                    let c = connection.0 as usize;
                    assert_eq!(message.0 as usize, told[c].1, "in order, each once");
                    told[c].1 += 1;
                    assert!(!failed[c], "a connection that failed finishes nothing");
                    assert!(posted[c][message.0 as usize] <= sent[c], "{message:?} is done though it was never sent");
                }
            }
        }
        for c in 0..2 {
            let up_to = victim.observe().received_up_to(ConnectionId(c));
            assert!((0..up_to).all(|psn| fed[c as usize].contains(&psn)), "what counts as received did arrive");
            let owed = victim.observe().in_flight(ConnectionId(c)).0 > 0;
            assert!(!owed || victim.poll_timeout().is_some(), "packets are in flight, but no deadline stands");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 200, failure_persistence: None, rng_seed: draws(), ..ProptestConfig::default() })]
    #[test]
    fn hostile_packets_neither_crash_an_endpoint_nor_complete_what_was_not_received(
        steps in steps(),
        kind in 0usize..8,
        preset in 0usize..7,
        ports in 1u8..5,
    ) {
        let mut world = World::new(Profile::NAMES[preset]).ports(ports);
        let (_, reliability, trimming) = reliabilities()[kind].clone();
        world.profile.reliability = reliability;
        world.environment.trimming = trimming;
        world.environment.paths_in_order = 2;
        attack(&world, &steps);
    }
}

#[test]
fn packets_for_connections_that_do_not_exist_are_counted() {
    let mut victim = endpoint(&World::new("uec"), 1);
    let packet = Packet { connection: ConnectionId(7), ..data_packet(&World::new("uec"), 0, PathId(0), Flags::NONE) };
    victim.handle_packet(Time::ZERO, &packet);
    assert_eq!((victim.observe().strays(), victim.poll_event()), (1, None));
}

//! Connections open on demand, sleep, wake and close over a bad wire: every message arrives once, and no state remains.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strandway_proto::packet::{Flags, Header, Operation};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    Bytes, Census, ConnectionId, ControlMessage, Endpoint, Environment, Event, Handled, HostId, Message, MessageId,
    OpenConnection, Packet, Ports, Profile, Rate, Span, Time,
};

const RTT: Span = Span::from_us(10);
const PACKET_LIFE: Span = Span::from_us(400);
const PORTS: Ports = Ports { data: 1, control: 1 };

fn profile(name: &str) -> Arc<Profile> {
    let mut profile = Profile::preset(name).expect("a preset");
    profile.transport.sleep_after = Span::from_ms(1);
    Arc::new(profile)
}

fn opening(profile: &Arc<Profile>, peer: u32, peer_connection: Option<ConnectionId>, seed: u64) -> OpenConnection {
    let environment = Environment {
        rate: Rate::from_gbps(100),
        ports: 1,
        base_rtt: RTT,
        packet: profile.packet_bytes(),
        trimming: profile.switch.trimming,
        uplinks: [4, 0],
        paths_in_order: 0,
        queue: Bytes(100_000),
        packet_life: PACKET_LIFE,
    };
    let random = Random::new(seed, StreamKind::Connection, 0);
    OpenConnection { profile: Arc::clone(profile), environment, peer: HostId(peer), peer_connection, random }
}

/// The wire's effects, each as a number of packets out of 256.
#[derive(Clone, Copy, Debug)]
struct Wire {
    lost: u8,
    twice: u8,
    late: u8,
}

/// Two hosts and a wire between them that loses, doubles and delays packets.
struct World {
    profile: Arc<Profile>,
    ends: [Endpoint; 2],
    air: BTreeMap<(Time, u64), (usize, Packet)>,
    now: Time,
    count: u64,
    busy: [Time; 2],
    wire: Wire,
    random: Random,
    /// Messages that arrived, each with the connection as its opener knows it.
    received: BTreeSet<u32>,
    /// Messages that are acknowledged.
    sent: BTreeSet<u32>,
    /// Closed at either side.
    closed: [Vec<ConnectionId>; 2],
    accepted: usize,
    /// Control messages that arrived.
    controls: usize,
}

impl World {
    fn new(name: &str, wire: Wire, seed: u64) -> World {
        World {
            profile: profile(name),
            ends: [Endpoint::new(HostId(0)), Endpoint::new(HostId(1))],
            air: BTreeMap::new(),
            now: Time::ZERO,
            count: 0,
            busy: [Time::ZERO; 2],
            wire,
            random: Random::new(seed, StreamKind::Fault, 0),
            received: BTreeSet::new(),
            sent: BTreeSet::new(),
            closed: [Vec::new(), Vec::new()],
            accepted: 0,
            controls: 0,
        }
    }

    fn open(&mut self, side: usize) -> ConnectionId {
        let open = opening(&self.profile, 1 - side as u32, None, self.count);
        self.ends[side].open(self.now, open)
    }

    fn transmit(&mut self) {
        for side in 0..2 {
            while self.busy[side] <= self.now
                && let Some(packet) = self.ends[side].poll_transmit(self.now, PORTS)
            {
                self.busy[side] = self.now + Rate::from_gbps(100).time_for(packet.bytes());
                let copies = 1 + u32::from(self.random.below(256) < u32::from(self.wire.twice));
                for _ in 0..copies {
                    if self.random.below(256) < u32::from(self.wire.lost) {
                        continue;
                    }
                    let late = self.random.below(256) < u32::from(self.wire.late);
                    let late = if late { u64::from(self.random.below(300_000_000)) } else { 0 };
                    self.count += 1;
                    let at = self.busy[side] + Span(RTT.0 / 2 + late);
                    self.air.insert((at, self.count), (1 - side, packet));
                }
            }
        }
    }

    fn events(&mut self, side: usize) {
        while let Some(event) = self.ends[side].poll_event() {
            match event {
                Event::Sent { message, .. } => assert!(self.sent.insert(message.0), "acknowledged once"),
                Event::Received { message, .. } => {
                    assert!(self.received.insert(message.0), "message {} arrives once", message.0)
                }
                Event::Control { .. } => self.controls += 1,
                Event::Cast { .. } => panic!("nobody cast anything"),
                Event::Closed { connection } => {
                    assert!(!self.ends[side].observe().is_open(connection));
                    self.closed[side].push(connection);
                }
                Event::Failed { connection } => panic!("{connection:?} fails"),
            }
        }
    }

    fn hand_in(&mut self, side: usize, packet: &Packet) {
        if self.ends[side].handle_packet(self.now, packet) == Handled::Unknown {
            let before = self.ends[side].observe().census();
            assert_eq!(self.ends[side].handle_packet(self.now, packet), Handled::Unknown, "nothing has changed");
            assert_eq!(self.ends[side].observe().census(), before);
            let open = opening(&self.profile, packet.source.0, Some(packet.connection), u64::from(packet.connection.0));
            self.ends[side].accept(self.now, open);
            self.accepted += 1;
            assert!(matches!(self.ends[side].handle_packet(self.now, packet), Handled::Fresh | Handled::Here));
        }
        self.events(side);
    }

    /// Runs until `until`, or until nothing is left to do.
    fn run(&mut self, until: Time) {
        loop {
            self.transmit();
            let timers = self.ends.each_ref().map(|e| e.poll_timeout().unwrap_or(Time::NEVER));
            let idle = |side: usize| if self.ends[side].wants_transmit() { self.busy[side] } else { Time::NEVER };
            let idle = [idle(0), idle(1)].into_iter().filter(|&at| at > self.now).min().unwrap_or(Time::NEVER);
            let arrival = self.air.first_key_value().map_or(Time::NEVER, |(key, _)| key.0);
            let next = timers[0].min(timers[1]).min(idle).min(arrival);
            if next > until || next == Time::NEVER {
                break;
            }
            self.now = self.now.max(next);
            while let Some(entry) = self.air.first_entry().filter(|e| e.key().0 <= self.now) {
                let (side, packet) = entry.remove();
                self.hand_in(side, &packet);
            }
            for side in 0..2 {
                self.ends[side].handle_timeout(self.now);
                self.events(side);
            }
        }
        if until != Time::NEVER {
            self.now = self.now.max(until);
        }
    }

    fn finish(&mut self) {
        self.run(Time::NEVER);
        // A host that never opened a connection assumes that packets live for a second.
        self.now = self.now + Span::from_ms(3000);
        for side in 0..2 {
            self.ends[side].handle_timeout(self.now);
            self.events(side);
            let census = self.ends[side].observe().census();
            let empty = Census { slots: census.slots, ..Census::default() };
            assert_eq!(census, empty, "nothing is left at side {side}");
            assert!(!self.ends[side].wants_transmit());
            assert_eq!(self.ends[side].poll_timeout(), None);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A connection, from one side.
    Open(bool),
    /// A message on one of the open connections.
    Post(u8, u32),
    /// One of the open connections is closed once all of its messages are acknowledged.
    Close(u8),
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any::<bool>().prop_map(Step::Open),
        6 => (any::<u8>(), 0u32..100_000).prop_map(|(c, bytes)| Step::Post(c, bytes)),
        2 => any::<u8>().prop_map(Step::Close),
        3 => (0u32..50_000_000).prop_map(Step::Wait),
        1 => (0u32..3).prop_map(|ms| Step::Wait(ms * 1_300_000_000)),
    ]
}

fn scenario(name: &str, steps: &[Step], wire: Wire, seed: u64) {
    let mut world = World::new(name, wire, seed);
    // Open connections: side, number, messages.
    let mut open: Vec<(usize, ConnectionId, Vec<u32>)> = Vec::new();
    let (mut messages, mut opened) = (0, 0);
    for &step in steps {
        match step {
            Step::Open(side) => {
                let id = world.open(usize::from(side));
                open.push((usize::from(side), id, Vec::new()));
                opened += 1;
            }
            Step::Post(c, bytes) if !open.is_empty() => {
                let at = usize::from(c) % open.len();
                let (side, id, posted) = &mut open[at];
                world.ends[*side].post(world.now, *id, Message { id: MessageId(messages), bytes: u64::from(bytes) });
                posted.push(messages);
                messages += 1;
            }
            Step::Close(c) if !open.is_empty() => {
                let (side, id, posted) = open.swap_remove(usize::from(c) % open.len());
                while !posted.iter().all(|message| world.sent.contains(message)) {
                    let until = world.now + RTT;
                    world.run(until);
                }
                world.ends[side].close(world.now, id);
            }
            Step::Wait(ps) => {
                let until = world.now + Span(u64::from(ps));
                world.run(until);
            }
            Step::Post(..) | Step::Close(_) => {}
        }
    }
    world.run(Time::NEVER);
    for (side, id, _) in open {
        world.ends[side].close(world.now, id);
    }
    world.finish();
    assert_eq!((world.received.len(), world.sent.len()), (messages as usize, messages as usize));
    assert_eq!(world.closed[0].len() + world.closed[1].len(), opened + world.accepted, "each end is told once");
    let stats = world.ends.each_ref().map(|e| *e.observe().closed_stats());
    assert_eq!(stats[0].sent - stats[0].retransmitted, stats[1].delivered);
    assert_eq!(stats[1].sent - stats[1].retransmitted, stats[0].delivered);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_message_arrives_once_and_nothing_is_left(
        steps in prop::collection::vec(step(), 1..60),
        preset in prop::sample::select(vec!["uec", "rocev2", "rocev2_sr", "strack", "strack_fast", "prime", "mrc"]),
        wire in (0u8..40, 0u8..60, 0u8..60),
        seed in any::<u64>(),
    ) {
        scenario(preset, &steps, Wire { lost: wire.0, twice: wire.1, late: wire.2 }, seed);
    }
}

const GOOD: Wire = Wire { lost: 0, twice: 0, late: 0 };

fn data_of(world: &mut World, side: usize) -> Packet {
    let packet = world.ends[side].poll_transmit(world.now, PORTS).expect("a packet");
    assert!(matches!(packet.header, Header::Data(_)));
    packet
}

#[test]
fn planned_connections_count_up_from_zero() {
    let mut world = World::new("uec", GOOD, 1);
    let ids: Vec<u32> = (0..5).map(|_| world.open(0).0).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4]);
}

#[test]
fn a_late_packet_of_an_earlier_life_is_a_stray() {
    let mut world = World::new("uec", GOOD, 1);
    let id = world.open(0);
    world.ends[0].post(world.now, id, Message { id: MessageId(0), bytes: 10_000 });
    let first = data_of(&mut world, 0);
    world.hand_in(1, &first);
    // Its acknowledgement arrives, and again when the slot has another connection.
    let ack = world.ends[1].poll_transmit(world.now, PORTS).expect("the first packet is acknowledged");
    assert_eq!(ack.connection, id, "replies name the opener's number");
    world.ends[0].close(world.now, id);
    world.run(Time::NEVER);
    let mut again = Vec::new();
    while again.last().is_none_or(|last: &ConnectionId| last.slot() != id.slot()) {
        let other = world.open(0);
        world.ends[0].close(world.now, other);
        again.push(other);
    }
    let last = *again.last().expect("an id");
    assert_eq!((last.slot(), last.generation()), (id.slot(), 1));
    let strays = world.ends[0].observe().strays();
    assert_eq!(world.ends[0].handle_packet(world.now, &ack), Handled::Stray);
    assert_eq!(world.ends[0].observe().strays(), strays + 1);
}

#[test]
fn a_copy_of_the_first_packet_opens_nothing_after_the_end() {
    let mut world = World::new("uec", GOOD, 1);
    let id = world.open(0);
    world.ends[0].post(world.now, id, Message { id: MessageId(0), bytes: 100 });
    let first = data_of(&mut world, 0);
    world.hand_in(1, &first);
    world.run(Time::NEVER);
    world.ends[0].close(world.now, id);
    world.run(Time::NEVER);
    assert_eq!((world.closed[0].len(), world.closed[1].len()), (1, 1));
    world.now = world.now + Span(PACKET_LIFE.0 - RTT.0 * 4);
    assert_eq!(world.ends[1].handle_packet(world.now, &first), Handled::Stray);
    assert_eq!(world.received.len(), 1);
    world.finish();
}

#[test]
fn an_end_that_overtakes_the_first_packet_keeps_it_out() {
    let mut world = World::new("uec", GOOD, 1);
    let id = world.open(0);
    world.ends[0].post(world.now, id, Message { id: MessageId(0), bytes: 100 });
    let first = data_of(&mut world, 0);
    world.ends[0].close(world.now, id);
    world.run(Time::NEVER);
    assert_eq!(world.ends[1].handle_packet(world.now, &first), Handled::Stray);
    assert_eq!(world.accepted, 0);
}

#[test]
fn a_refused_connection_is_closed_at_its_opener() {
    let mut world = World::new("uec", GOOD, 1);
    let id = world.open(0);
    world.ends[0].post(world.now, id, Message { id: MessageId(0), bytes: 100 });
    let first = data_of(&mut world, 0);
    assert_eq!(world.ends[1].handle_packet(world.now, &first), Handled::Unknown);
    world.ends[1].refuse(world.now, &first);
    world.run(Time::NEVER);
    assert_eq!(world.closed[0], [id]);
    // A message posted to a closed connection is not sent.
    world.ends[0].post(world.now, id, Message { id: MessageId(1), bytes: 100 });
    world.finish();
}

#[test]
fn an_end_that_nobody_answers_is_over_all_the_same() {
    let mut world = World::new("uec", Wire { lost: 255, ..GOOD }, 1);
    let id = world.open(0);
    world.ends[0].post(world.now, id, Message { id: MessageId(0), bytes: 100 });
    assert!(world.ends[0].poll_transmit(world.now, PORTS).is_some());
    world.ends[0].close(world.now, id);
    let mut told = 0;
    while let Some(at) = world.ends[0].poll_timeout() {
        world.now = world.now.max(at);
        world.ends[0].handle_timeout(world.now);
        while let Some(packet) = world.ends[0].poll_transmit(world.now, PORTS) {
            assert!(matches!(packet.header, Header::Operation { operation: Operation::Close(_), .. }));
            assert!(packet.is_control() && packet.flags == Flags::NONE);
            told += 1;
        }
    }
    world.events(0);
    assert_eq!((told, world.closed[0].len()), (20, 1));
}

#[test]
fn both_may_close_at_once() {
    let mut world = World::new("uec", GOOD, 1);
    let id = world.open(0);
    world.ends[0].post(world.now, id, Message { id: MessageId(0), bytes: 100 });
    world.run(Time::NEVER);
    world.ends[0].close(world.now, id);
    world.ends[1].close(world.now, ConnectionId(0));
    world.finish();
    assert_eq!((world.closed[0].len(), world.closed[1].len()), (1, 1));
}

#[test]
fn a_connection_sleeps_when_unused_and_goes_on_where_it_was() {
    for preset in ["uec", "rocev2", "strack_fast"] {
        let mut world = World::new(preset, GOOD, 1);
        let id = world.open(0);
        assert_eq!(world.ends[0].observe().census().asleep, 1, "it sleeps until it is used");
        for message in 0..4 {
            world.ends[0].post(world.now, id, Message { id: MessageId(message), bytes: 50_000 });
            world.run(Time::NEVER);
            assert_eq!(world.received.len(), message as usize + 1);
            assert_eq!(world.ends[0].observe().census().awake, 1);
            // An endpoint checks for unused connections only when it is called.
            world.now = world.now + Span::from_ms(2);
            for _ in 0..2 {
                world.ends.iter_mut().for_each(|end| end.handle_timeout(world.now));
                world.now = world.now + Span::from_ms(2);
            }
            assert_eq!(
                world.ends.each_ref().map(|e| (e.observe().census().awake, e.observe().census().asleep)),
                [(0, 1); 2],
                "{preset}"
            );
            assert_eq!(world.ends[1].observe().received_up_to(ConnectionId(0)), 13 * (u64::from(message) + 1));
            assert_eq!(world.ends[0].observe().stats(id).sent, 13 * (u64::from(message) + 1));
        }
        world.ends[0].close(world.now, id);
        world.finish();
    }
}

#[test]
fn a_connection_that_carried_only_control_messages_is_closed_at_both_ends() {
    let mut world = World::new("uec", GOOD, 1);
    let id = world.open(0);
    assert!(world.ends[0].send_control(world.now, id, ControlMessage::Custom { kind: 1, words: [1, 2, 3, 4] }));
    world.run(Time::NEVER);
    assert_eq!((world.controls, world.accepted), (1, 1));
    for _ in 0..2 {
        world.now = world.now + Span::from_ms(2);
        world.ends.iter_mut().for_each(|end| end.handle_timeout(world.now));
    }
    assert_eq!(world.ends.each_ref().map(|e| (e.observe().census().awake, e.observe().census().asleep)), [(0, 1); 2]);
    world.ends[0].close(world.now, id);
    world.finish();
}

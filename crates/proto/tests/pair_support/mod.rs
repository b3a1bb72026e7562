//! Two endpoints, one bad wire, and a checker that looks at both after every step.
//!
//! Only the public calls of [`Endpoint`] are used. What the wire does is written as a script
//! (`"drop 3; mark 7..9; trim 12; dup 5"`) or left to chance; what must come of it is a list of counters
//! (`"again 1, timeouts 0"`).
#![allow(dead_code, reason = "each test uses its own part")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strandway_proto::packet::{Ack, Data, Flags, Header};
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    Bytes, ConnectionId, ConnectionStats, Endpoint, Environment, Event, HostId, Message, MessageId, OpenConnection,
    Packet, Ports, Profile, Rate, Span, Time,
};

/// One way over the wire, transmission aside.
pub(crate) const DELAY: Span = Span::from_us(4);
/// A full packet and an acknowledgement at 400 Gb/s.
pub(crate) const PACKET: Span = Span(4160 * 20);
pub(crate) const ACK: Span = Span(64 * 20);
/// Round trip of a full packet and its acknowledgement.
pub(crate) const RTT: Span = Span(2 * DELAY.0 + PACKET.0 + ACK.0);

/// A message: from which side (0 or 1), on which connection, how long, posted when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Post {
    pub(crate) side: usize,
    pub(crate) connection: u32,
    pub(crate) bytes: u64,
    pub(crate) at: Time,
}

/// What the wire does by chance, each with its probability.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chance {
    pub(crate) drop: f64,
    pub(crate) duplicate: f64,
    pub(crate) mark: f64,
    pub(crate) trim: f64,
    pub(crate) delay: f64,
    /// The longest extra delay.
    pub(crate) late: Span,
}

/// A NIC's port is down, and its NIC sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) side: usize,
    pub(crate) port: u8,
    pub(crate) from: Time,
    pub(crate) until: Time,
}

/// Two endpoints and what lies between them.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) profile: Profile,
    pub(crate) environment: Environment,
    pub(crate) connections: u32,
    pub(crate) posts: Vec<Post>,
    pub(crate) chance: Chance,
    /// Ports of both NICs that are never idle.
    pub(crate) blocked: u32,
    /// What leaves at this time is lost, silently.
    pub(crate) dead: fn(Time, &Packet) -> bool,
    /// How much longer the way of a data packet is.
    pub(crate) detour: fn(&Packet) -> Span,
    pub(crate) outages: Vec<Outage>,
    pub(crate) seed: u64,
}

impl World {
    /// The preset over a wire of 400 Gb/s, one message of 64 packets.
    pub(crate) fn new(preset: &str) -> World {
        let profile = Profile::preset(preset).expect("a preset");
        let trimming = profile.switch.trimming;
        let packet = profile.packet_bytes();
        let rate = Rate::from_gbps(400);
        let queue = rate.bytes_in(RTT);
        let environment =
            Environment { rate, ports: 1, base_rtt: RTT, packet, trimming, uplinks: [4, 0], paths_in_order: 0, queue };
        World {
            profile,
            environment,
            connections: 1,
            posts: vec![],
            chance: Chance::default(),
            blocked: 0,
            dead: |_, _| false,
            detour: |_| Span::ZERO,
            outages: vec![],
            seed: 1,
        }
        .packets(64)
    }

    /// One message of so many full packets instead.
    pub(crate) fn packets(self, packets: u64) -> World {
        self.messages(&[packets * 4096])
    }

    /// These messages, all at once, on connection 0.
    pub(crate) fn messages(mut self, sizes: &[u64]) -> World {
        self.posts = sizes.iter().map(|&bytes| Post { side: 0, connection: 0, bytes, at: Time::ZERO }).collect();
        self
    }

    /// A message of so many packets on each of so many connections.
    pub(crate) fn spread(mut self, connections: u32, packets: u64) -> World {
        self.connections = connections;
        let post = |connection| Post { side: 0, connection, bytes: packets * 4096, at: Time::ZERO };
        self.posts = (0..connections).map(post).collect();
        self
    }

    /// Switches drop what does not fit rather than trim it.
    pub(crate) fn without_trimming(mut self) -> World {
        self.environment.trimming = false;
        self
    }

    /// A NIC of so many ports that share the rate.
    pub(crate) fn ports(mut self, ports: u8) -> World {
        self.environment.ports = ports;
        self
    }

    /// The profile changed by `change`.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Profile)) -> World {
        change(&mut self.profile);
        self
    }
}

/// Something that was put on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Time,
    pub(crate) side: usize,
    pub(crate) packet: Packet,
}

impl Sent {
    pub(crate) fn data(&self) -> Option<Data> {
        if let Header::Data(data) = self.packet.header { Some(data) } else { None }
    }
    pub(crate) fn ack(&self) -> Option<Ack> {
        if let Header::Ack(ack) = self.packet.header { Some(ack) } else { None }
    }
}

/// What came of it.
pub(crate) struct Outcome {
    /// When the last sender knew that all was there.
    pub(crate) finished: Time,
    /// Every packet in order of departure.
    pub(crate) sent: Vec<Sent>,
    /// Both sides' counters of all connections added up.
    pub(crate) stats: ConnectionStats,
}

impl Outcome {
    /// Data packets in order of departure.
    pub(crate) fn data(&self) -> impl Iterator<Item = (&Sent, Data)> {
        self.sent.iter().filter_map(|s| s.data().map(|d| (s, d)))
    }
    /// When this PSN left for the `nth` time (from 0).
    pub(crate) fn left(&self, psn: u32, nth: usize) -> Time {
        self.data().filter(|(_, d)| d.psn.get() == psn).nth(nth).expect("it left so often").0.at
    }
    /// Acknowledgements in order of departure.
    pub(crate) fn acks(&self) -> impl Iterator<Item = (&Sent, Ack)> {
        self.sent.iter().filter_map(|s| s.ack().map(|a| (s, a)))
    }
    /// When probes left.
    pub(crate) fn probes(&self) -> Vec<Time> {
        self.sent.iter().filter(|s| matches!(s.packet.header, Header::Probe { .. })).map(|s| s.at).collect()
    }
    fn counter(&self, name: &str) -> u64 {
        let s = &self.stats;
        match name {
            "sent" => s.sent,
            "again" => s.retransmitted,
            "acks" => s.acks,
            "marked_acks" => s.acks_marked,
            "nacks" => s.nacks,
            "cnps" => s.notifications,
            "timeouts" => s.timeouts,
            "probes" => s.probes,
            "delivered" => s.delivered,
            "duplicates" => s.duplicates,
            "marked" => s.marked,
            "trimmed" => s.trimmed,
            other => panic!("no counter is called {other:?}"),
        }
    }
}

/// Runs `world` over a wire that follows `script` (and the world's chance) and compares counters with `expect`.
///
/// A script is a list of `drop|dup|mark|trim|delay [data|ack|nack|cnp|probe|operation|answer] FROM[..TO] [xTIMES] [by MICROSECONDS]`. Data is
/// named by PSN and struck the first `TIMES` times that it is sent (once if not said); other packets are counted from 0.
pub(crate) fn check(world: &World, script: &str, expect: &str) -> Outcome {
    let mut pair = Pair::new(world, script);
    let outcome = pair.run();
    for part in expect.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (name, range) = part.split_once(' ').expect("a counter and its value");
        let (low, high) = parse_range(range);
        let got = outcome.counter(name);
        assert!((low..=high).contains(&got), "{name} is {got}, not {range}, after {script:?}: {:?}", outcome.stats);
    }
    outcome
}

fn parse_range(text: &str) -> (u64, u64) {
    let number = |t: &str| t.parse().unwrap_or_else(|_| panic!("{t:?} is not a number"));
    match text.split_once("..") {
        Some((low, "")) => (number(low), u64::MAX),
        Some((low, high)) => (number(low), number(high)),
        None => (number(text), number(text)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Drop,
    Duplicate,
    Mark,
    Trim,
    Delay(Span),
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    action: Action,
    kind: usize,
    from: u64,
    to: u64,
    times: u32,
}

const KINDS: [&str; 7] = ["data", "ack", "nack", "cnp", "probe", "operation", "answer"];

fn kind_of(packet: &Packet) -> usize {
    match packet.header {
        Header::Data(_) => 0,
        Header::Ack(_) => 1,
        Header::Nack(_) => 2,
        Header::Cnp => 3,
        Header::Probe { .. } => 4,
        Header::Operation { .. } => 5,
        Header::Answer(_) => 6,
    }
}

fn parse_rule(text: &str) -> Rule {
    let mut words = text.split_whitespace().peekable();
    let action = words.next().expect("an action");
    let kind = words.peek().and_then(|w| KINDS.iter().position(|k| k == w));
    if kind.is_some() {
        words.next();
    }
    let (from, to) = parse_range(words.next().expect("which packets"));
    let mut times = 1;
    let mut late = Span::ZERO;
    while let Some(word) = words.next() {
        match word.strip_prefix('x') {
            Some(n) => times = n.parse().expect("how often"),
            None => late = Span::from_us(words.next().expect("by how much").parse().expect("microseconds")),
        }
    }
    let action = match action {
        "drop" => Action::Drop,
        "dup" => Action::Duplicate,
        "mark" => Action::Mark,
        "trim" => Action::Trim,
        "delay" => Action::Delay(late),
        other => panic!("the wire cannot {other:?}"),
    };
    Rule { action, kind: kind.unwrap_or(0), from, to, times }
}

struct Wire {
    rules: Vec<Rule>,
    chance: Chance,
    random: Random,
    /// Packets other than data seen so far, by kind.
    seen: [u64; 7],
    /// How often each data packet was seen, by side, connection and PSN.
    times: BTreeMap<(usize, u32, u32), u32>,
    trimming: bool,
}

impl Wire {
    /// What arrives of a packet, and how much later than it should.
    fn carry(&mut self, side: usize, packet: &Packet) -> Vec<(Span, Packet)> {
        let kind = kind_of(packet);
        let (number, times) = match packet.header {
            Header::Data(data) => {
                let times = self.times.entry((side, packet.connection.0, data.psn.get())).or_default();
                *times += 1;
                (u64::from(data.psn.get()), *times)
            }
            _ => {
                self.seen[kind] += 1;
                (self.seen[kind] - 1, 1)
            }
        };
        let mut actions: Vec<Action> = self
            .rules
            .iter()
            .filter(|r| r.kind == kind && (r.from..=r.to).contains(&number) && times <= r.times)
            .map(|r| r.action)
            .collect();
        let chance = self.chance;
        let late = Span(u64::from(self.random.below((chance.late.0 / 1000) as u32 + 1)) * 1000);
        for (probability, action) in [
            (chance.drop, Action::Drop),
            (chance.duplicate, Action::Duplicate),
            (chance.mark, Action::Mark),
            (chance.trim, Action::Trim),
            (chance.delay, Action::Delay(late)),
        ] {
            if self.random.chance(probability) {
                actions.push(action);
            }
        }
        let mut packet = *packet;
        let (mut copies, mut later) = (1, Span::ZERO);
        for action in actions {
            let data = kind == 0;
            match action {
                Action::Drop => copies = 0,
                Action::Duplicate => copies *= 2,
                Action::Mark if data || kind == 4 || kind == 5 => packet.flags = packet.flags.with(Flags::CE),
                Action::Trim if data && self.trimming => {
                    packet.size = 64;
                    let last_hop = self.random.chance(0.5);
                    packet.flags = packet.flags.with(Flags::TRIMMED).with_if(last_hop, Flags::TRIMMED_AT_LAST_HOP);
                }
                Action::Mark | Action::Trim => {}
                Action::Delay(by) => later += by,
            }
        }
        (0..copies).map(|copy| (later + Span::from_ns(100) * copy, packet)).collect()
    }
}

/// What a naive observer knows of one direction of one connection.
#[derive(Default)]
struct Flow {
    posted: Vec<Message>,
    /// PSN behind the last packet of each message.
    ends: Vec<u64>,
    next: u64,
    /// Sent and not acknowledged: wire bytes, and what the packet carried.
    unacked: BTreeMap<u64, u16>,
    unacked_bytes: u64,
    carried: Vec<(MessageId, u64, u16)>,
    /// As the endpoint last said.
    in_flight: u64,
    arrived: BTreeSet<u64>,
    arrived_up_to: u64,
    received: usize,
    finished: usize,
}

impl Flow {
    fn forget(&mut self, psn: u64) {
        if let Some(bytes) = self.unacked.remove(&psn) {
            self.unacked_bytes -= u64::from(bytes);
        }
    }
    fn forget_below(&mut self, psn: u64) {
        while let Some((&first, _)) = self.unacked.first_key_value().filter(|(p, _)| **p < psn) {
            self.forget(first);
        }
    }
}

struct Side {
    endpoint: Endpoint,
    busy_until: Vec<Time>,
    /// It had nothing for the ports that were idle at its last poll, and nothing has happened since.
    stuck: bool,
}

pub(crate) struct Pair<'a> {
    world: &'a World,
    wire: Wire,
    now: Time,
    sides: [Side; 2],
    air: BTreeMap<(Time, u64), (usize, Packet)>,
    order: u64,
    posts: Vec<(usize, Post)>,
    /// Ports that go down or up, latest first: when, on which side, which, and whether it is up then.
    ports: Vec<(Time, usize, u8, bool)>,
    /// Which ports of each side are down.
    down: [u32; 2],
    flows: [Vec<Flow>; 2],
    sent: Vec<Sent>,
    finished: Time,
    finished_count: usize,
}

/// Longer than any test takes.
const LIMIT: Time = Time(20_000_000_000_000);

impl<'a> Pair<'a> {
    pub(crate) fn new(world: &'a World, script: &str) -> Pair<'a> {
        let rules = script.split(';').map(str::trim).filter(|r| !r.is_empty()).map(parse_rule).collect();
        let random = Random::new(world.seed, StreamKind::Fault, 0);
        let wire = Wire {
            rules,
            chance: world.chance,
            random,
            seen: [0; 7],
            times: BTreeMap::new(),
            trimming: world.environment.trimming,
        };
        let profile = Arc::new(world.profile.clone());
        let side = |host: u32| {
            let mut endpoint = Endpoint::new(HostId(host));
            for connection in 0..world.connections {
                let id = endpoint.open(OpenConnection {
                    profile: Arc::clone(&profile),
                    environment: world.environment,
                    peer: HostId(1 - host),
                    peer_connection: ConnectionId(connection),
                    random: Random::new(world.seed, StreamKind::Connection, u64::from(connection * 2 + host)),
                });
                assert_eq!(id.0, connection);
            }
            Side { endpoint, busy_until: vec![Time::ZERO; usize::from(world.environment.ports)], stuck: false }
        };
        let mut posts: Vec<(usize, Post)> = world.posts.iter().copied().enumerate().collect();
        posts.sort_by_key(|(_, p)| p.at);
        posts.reverse();
        let both =
            world.outages.iter().flat_map(|o| [(o.from, o.side, o.port, false), (o.until, o.side, o.port, true)]);
        let mut ports: Vec<(Time, usize, u8, bool)> = both.collect();
        ports.sort_by_key(|p| std::cmp::Reverse(p.0));
        let flows = || (0..world.connections).map(|_| Flow::default()).collect();
        Pair {
            world,
            wire,
            now: Time::ZERO,
            sides: [side(0), side(1)],
            air: BTreeMap::new(),
            order: 0,
            posts,
            ports,
            down: [0; 2],
            flows: [flows(), flows()],
            sent: Vec::new(),
            finished: Time::ZERO,
            finished_count: 0,
        }
    }

    pub(crate) fn run(&mut self) -> Outcome {
        while self.step() {}
        assert_eq!(self.finished_count, self.world.posts.len(), "it ends at {} with messages unfinished", self.now);
        if self.world.outages.is_empty() {
            // Otherwise a peer that has not heard of a port may still be owed the news.
            self.check_idle();
        }
        let mut stats = ConnectionStats::default();
        for side in &self.sides {
            for connection in 0..self.world.connections {
                let s = side.endpoint.stats(ConnectionId(connection));
                assert_eq!(s.invalid, 0, "an honest peer sends nothing odd");
                stats.sent += s.sent;
                stats.retransmitted += s.retransmitted;
                stats.acks += s.acks;
                stats.acks_marked += s.acks_marked;
                stats.nacks += s.nacks;
                stats.notifications += s.notifications;
                stats.timeouts += s.timeouts;
                stats.probes += s.probes;
                stats.delivered += s.delivered;
                stats.delivered_bytes += s.delivered_bytes;
                stats.duplicates += s.duplicates;
                stats.marked += s.marked;
                stats.trimmed += s.trimmed;
            }
            assert_eq!(side.endpoint.strays(), 0);
        }
        let posted: u64 = self.world.posts.iter().map(|p| p.bytes).sum();
        assert_eq!(stats.delivered_bytes, posted, "every byte is delivered once");
        assert_eq!(stats.sent - stats.retransmitted, stats.delivered, "every packet is new once on either side");
        Outcome { finished: self.finished, sent: std::mem::take(&mut self.sent), stats }
    }

    /// When a side could put something on the wire.
    fn transmit_at(&self, side: usize) -> Time {
        let s = &self.sides[side];
        if !s.endpoint.wants_transmit() {
            return Time::NEVER;
        }
        let idle = |port: usize| (self.world.blocked | self.down[side]) >> port & 1 == 0;
        s.busy_until
            .iter()
            .enumerate()
            .filter(|&(port, &at)| idle(port) && !(s.stuck && at <= self.now))
            .map(|(_, &at)| at.max(self.now))
            .min()
            .unwrap_or(Time::NEVER)
    }

    /// Does what comes next; false when nothing does.
    fn step(&mut self) -> bool {
        let post = self.posts.last().map_or(Time::NEVER, |(_, p)| p.at);
        let arrival = self.air.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
        let timers = [0, 1].map(|i| self.sides[i].endpoint.poll_timeout().unwrap_or(Time::NEVER));
        let transmit = [0, 1].map(|i| self.transmit_at(i));
        let port = self.ports.last().map_or(Time::NEVER, |p| p.0);
        let next = [post, arrival, timers[0], timers[1], transmit[0], transmit[1], port]
            .into_iter()
            .min()
            .unwrap_or(Time::NEVER);
        let idle = post == Time::NEVER && arrival == Time::NEVER && transmit == [Time::NEVER; 2];
        if next == Time::NEVER || (idle && self.finished_count == self.world.posts.len()) {
            return false;
        }
        assert!(next < LIMIT, "no end in sight at {}", self.now);
        // A timer that was overslept is seen to at once; time itself never runs backwards.
        self.now = self.now.max(next);
        if port == next {
            let (_, side, port, up) = self.ports.pop().expect("a port");
            self.down[side] = if up { self.down[side] & !(1 << port) } else { self.down[side] | 1 << port };
            self.sides[side].endpoint.handle_port(self.now, port, up);
            self.sides[side].stuck = false;
        } else if post == next {
            let (id, post) = self.posts.pop().expect("a message to post");
            self.post(id, post);
        } else if arrival == next {
            let (_, (side, packet)) = self.air.pop_first().expect("a packet in the air");
            self.deliver(side, &packet);
        } else if let Some(side) = (0..2).find(|&i| timers[i] == next) {
            self.expire(side);
        } else {
            let side = usize::from(transmit[0] != next);
            self.transmit(side);
        }
        self.check();
        true
    }

    fn post(&mut self, id: usize, post: Post) {
        let message = Message { id: MessageId(id as u32), bytes: post.bytes };
        let flow = &mut self.flows[post.side][post.connection as usize];
        let start = flow.ends.last().copied().unwrap_or(0);
        flow.posted.push(message);
        flow.ends.push(start + post.bytes.div_ceil(u64::from(self.world.profile.transport.mtu)).max(1));
        self.sides[post.side].endpoint.post(self.now, ConnectionId(post.connection), message);
        self.sides[post.side].stuck = false;
    }

    fn expire(&mut self, side: usize) {
        self.sides[side].endpoint.handle_timeout(self.now);
        self.sides[side].stuck = false;
        let again = self.sides[side].endpoint.poll_timeout();
        assert!(again.is_none_or(|at| at > self.now), "a deadline that was seen to is over");
    }

    fn transmit(&mut self, side: usize) {
        let (world, now) = (self.world, self.now);
        let s = &mut self.sides[side];
        let mut mask = 0;
        for (port, &at) in s.busy_until.iter().enumerate() {
            mask |= u32::from(at <= now && (world.blocked | self.down[side]) >> port & 1 == 0) << port;
        }
        let free = Ports { data: mask, control: mask };
        let before: Vec<(u64, u64)> = (0..world.connections)
            .map(|c| (s.endpoint.in_flight(ConnectionId(c)).0, s.endpoint.window(ConnectionId(c)).0))
            .collect();
        let Some(packet) = s.endpoint.poll_transmit(now, free) else {
            s.stuck = true;
            let timeout = s.endpoint.poll_timeout();
            assert_eq!(s.endpoint.poll_transmit(now, free), None, "polling twice is harmless");
            assert_eq!(s.endpoint.poll_timeout(), timeout, "polling twice is harmless");
            return;
        };
        assert!(mask >> packet.path.port() & 1 == 1, "it leaves by a port that is idle");
        assert_eq!((packet.source, packet.destination), (HostId(side as u32), HostId(1 - side as u32)));
        let rate = Rate(world.environment.rate.0 / u64::from(world.environment.ports));
        let end = now + rate.time_for(packet.bytes());
        s.busy_until[usize::from(packet.path.port())] = end;
        if let Header::Data(data) = packet.header {
            self.note_data(side, &packet, &data, before[packet.connection.0 as usize]);
        }
        self.sent.push(Sent { at: now, side, packet });
        let cut = (self.down[0] | self.down[1]) >> packet.path.port() & 1 == 1;
        if cut || (world.dead)(now, &packet) {
            return;
        }
        let detour = if packet.is_control() { Span::ZERO } else { (world.detour)(&packet) };
        for (late, packet) in self.wire.carry(side, &packet) {
            self.order += 1;
            self.air.insert((end + DELAY + detour + late, self.order), (1 - side, packet));
        }
    }

    /// A data packet left: is it what it should be, and was it allowed to?
    fn note_data(&mut self, side: usize, packet: &Packet, data: &Data, (in_flight, window): (u64, u64)) {
        let transport = &self.world.profile.transport;
        let flow = &mut self.flows[side][packet.connection.0 as usize];
        let psn = u64::from(data.psn.get());
        let index = flow.ends.partition_point(|&end| end <= psn);
        let message = flow.posted[index];
        let first = if index == 0 { 0 } else { flow.ends[index - 1] };
        let offset = (psn - first) * u64::from(transport.mtu);
        assert_eq!((data.message, data.offset.get()), (message.id, offset), "psn {psn} carries what it should");
        assert_eq!(u64::from(data.length), (message.bytes - offset).min(u64::from(transport.mtu)));
        assert_eq!(u32::from(packet.size), transport.header + u32::from(data.length));
        assert_eq!(packet.flags.has(Flags::LAST), psn + 1 == flow.ends[index]);
        let again = packet.flags.has(Flags::RETRANSMITTED);
        assert_eq!(again, psn < flow.next, "psn {psn} says whether it was sent before");
        if again {
            assert!(flow.unacked.contains_key(&psn), "psn {psn} is sent again though it is acknowledged");
            assert!(packet.flags.has(Flags::ACK_REQUEST), "a retransmission asks for an acknowledgement");
        } else {
            assert_eq!(psn, flow.next, "new packets leave in order");
            flow.next += 1;
            flow.carried.push((data.message, offset, data.length));
            flow.unacked.insert(psn, packet.size);
            flow.unacked_bytes += u64::from(packet.size);
        }
        let full = self.world.environment.packet.0;
        let selective = matches!(self.world.profile.reliability, ReliabilityConfig::SelectiveRepeat(_));
        let urgent = again && selective && (!self.world.environment.trimming || self.is_irn());
        assert!(
            urgent || in_flight == 0 || in_flight + full <= window,
            "psn {psn} leaves with {in_flight} in flight and a window of {window}"
        );
        let now_in_flight = self.sides[side].endpoint.in_flight(packet.connection).0;
        assert_eq!(now_in_flight, in_flight + u64::from(packet.size), "what is sent is in flight");
    }

    fn is_irn(&self) -> bool {
        matches!(&self.world.profile.reliability, ReliabilityConfig::SelectiveRepeat(c) if c.holes)
    }

    fn deliver(&mut self, side: usize, packet: &Packet) {
        let connection = packet.connection.0 as usize;
        let go_back_n = matches!(self.world.profile.reliability, ReliabilityConfig::GoBackN(_));
        match packet.header {
            Header::Data(data) if !packet.flags.has(Flags::TRIMMED) => {
                let flow = &mut self.flows[1 - side][connection];
                let psn = u64::from(data.psn.get());
                if !go_back_n || psn <= flow.arrived_up_to {
                    flow.arrived.insert(psn);
                }
                while flow.arrived.contains(&flow.arrived_up_to) {
                    flow.arrived_up_to += 1;
                }
            }
            Header::Ack(ack) => {
                let flow = &mut self.flows[side][connection];
                flow.forget_below(u64::from(ack.cumulative.get()));
                let (base, bits) = (u64::from(ack.sack_base.get()), ack.sack.get());
                for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
                    assert!(
                        self.flows[side][connection].arrived.contains(&(base + bit)),
                        "only what arrived is acknowledged"
                    );
                    self.flows[side][connection].forget(base + bit);
                }
            }
            Header::Nack(nack) if go_back_n => self.flows[side][connection].forget_below(u64::from(nack.psn.get())),
            _ => {}
        }
        self.sides[side].endpoint.handle_packet(self.now, packet);
        self.sides[side].stuck = false;
        while let Some(event) = self.sides[side].endpoint.poll_event() {
            self.told(side, event);
        }
    }

    fn told(&mut self, side: usize, event: Event) {
        match event {
            Event::Received { connection, message, bytes } => {
                let flow = &mut self.flows[1 - side][connection.0 as usize];
                let posted = flow.posted[flow.received];
                assert_eq!(
                    (message, bytes),
                    (posted.id, Bytes(posted.bytes)),
                    "messages arrive once, in order and whole"
                );
                assert!(
                    flow.arrived_up_to >= flow.ends[flow.received],
                    "{message:?} is complete though packets are missing"
                );
                flow.received += 1;
            }
            Event::Sent { connection, message } => {
                let flow = &mut self.flows[side][connection.0 as usize];
                assert_eq!(message, flow.posted[flow.finished].id, "messages finish once and in order");
                flow.finished += 1;
                assert!(flow.finished <= flow.received, "{message:?} is finished though the peer does not have it");
                self.finished_count += 1;
                self.finished = self.now;
            }
            Event::Failed { connection } => panic!("{connection:?} of side {side} gives up at {}", self.now),
        }
    }

    /// What must hold after every step.
    fn check(&mut self) {
        for side in 0..2 {
            let endpoint = &self.sides[side].endpoint;
            let mut owed = false;
            for (connection, flow) in self.flows[side].iter_mut().enumerate() {
                let id = ConnectionId(connection as u32);
                let in_flight = endpoint.in_flight(id).0;
                assert!(in_flight <= flow.unacked_bytes, "{in_flight} in flight, but {} unsettled", flow.unacked_bytes);
                let stats = endpoint.stats(id);
                if stats.nacks == 0
                    && stats.timeouts == 0
                    && stats.retransmitted == 0
                    && self.world.environment.trimming
                    && !matches!(&self.world.profile.reliability, ReliabilityConfig::SelectiveRepeat(c) if c.holes)
                    && !matches!(&self.world.profile.reliability, ReliabilityConfig::MrcSack(_))
                {
                    assert_eq!(in_flight, flow.unacked_bytes, "without losses, in flight is what is not acknowledged");
                }
                flow.in_flight = in_flight;
                owed |= flow.finished < flow.posted.len();
            }
            if owed {
                let deadline = endpoint.poll_timeout();
                assert!(deadline.is_some() || endpoint.wants_transmit(), "work is owed, but no deadline stands");
                let flies = self.flows[side].iter().any(|f| f.in_flight > 0);
                assert!(deadline.is_some() || !flies, "packets are in flight, but no deadline stands");
            }
        }
        for connection in 0..self.world.connections {
            for side in 0..2 {
                let up_to = self.sides[side].endpoint.received_up_to(ConnectionId(connection));
                assert_eq!(
                    up_to,
                    self.flows[1 - side][connection as usize].arrived_up_to,
                    "what arrived counts as arrived"
                );
            }
        }
    }

    /// When all is done, old deadlines run out and no new ones are set.
    fn check_idle(&mut self) {
        for (side, s) in self.sides.iter_mut().enumerate() {
            let mut last = self.now;
            while let Some(at) = s.endpoint.poll_timeout() {
                assert!(at <= LIMIT, "an idle endpoint sets new deadlines");
                last = last.max(at);
                s.endpoint.handle_timeout(last);
                assert!(!s.endpoint.wants_transmit(), "an idle endpoint has nothing to send");
            }
            assert!(
                last.since(self.now) <= Span::from_ms(10),
                "an idle endpoint keeps deadlines for {}",
                last.since(self.now)
            );
            let free = Ports::first(self.world.environment.ports);
            assert_eq!(s.endpoint.poll_transmit(last, free), None);
            assert_eq!(s.endpoint.poll_event(), None);
            assert!(self.flows[side].iter().all(|f| f.unacked.is_empty() && f.in_flight == 0));
        }
    }
}

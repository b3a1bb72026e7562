//! Two endpoints, one bad wire, and a checker that verifies both after every step.
//!
//! Only the public calls of [`Endpoint`] are used. The wire's effects are written as a script (`"drop 3; mark 7..9;
//! trim 12; dup 5"`) or left to chance; the expected result is a list of counters (`"again 1, timeouts 0"`).
#![allow(dead_code, reason = "each test uses its own part")]

mod observer;
mod pair;
mod wire;

use pair::Pair;
use strandway_proto::packet::{Ack, Data, Header};
use strandway_proto::{ConnectionStats, Environment, Packet, Profile, Rate, Span, Time};
use wire::parse_range;

/// The one-way delay of the wire, without transmission.
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

/// The wire's random effects, each with its probability.
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

/// The presets whose receivers acknowledge packets by their PSNs; `tests/one_way` tests the others.
pub(crate) fn acknowledged() -> impl Iterator<Item = &'static str> {
    Profile::NAMES
        .into_iter()
        .filter(|name| !Profile::preset(name).expect("a preset for every name").reliability.is_one_way())
}

/// Two endpoints and the wire between them.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) profile: Profile,
    pub(crate) environment: Environment,
    pub(crate) connections: u32,
    pub(crate) posts: Vec<Post>,
    pub(crate) chance: Chance,
    /// Ports of both NICs that are never idle.
    pub(crate) blocked: u32,
    /// Packets sent at this time are lost without a sign.
    pub(crate) dead: fn(Time, &Packet) -> bool,
    /// The extra delay of a data packet.
    pub(crate) detour: fn(&Packet) -> Span,
    /// Packets that are always marked.
    pub(crate) marked: fn(&Packet) -> bool,
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
        let environment = Environment {
            rate,
            ports: 1,
            base_rtt: RTT,
            packet,
            trimming,
            uplinks: [4, 0],
            paths_in_order: 0,
            queue,
            packet_life: Span::from_ms(10),
        };
        World {
            profile,
            environment,
            connections: 1,
            posts: vec![],
            chance: Chance::default(),
            blocked: 0,
            dead: |_, _| false,
            detour: |_| Span::ZERO,
            marked: |_| false,
            outages: vec![],
            seed: 1,
        }
        .packets(64)
    }

    /// One message of `packets` full packets instead.
    pub(crate) fn packets(self, packets: u64) -> World {
        self.messages(&[packets * 4096])
    }

    /// These messages, all at once, on connection 0.
    pub(crate) fn messages(mut self, sizes: &[u64]) -> World {
        self.posts = sizes.iter().map(|&bytes| Post { side: 0, connection: 0, bytes, at: Time::ZERO }).collect();
        self
    }

    /// A message of `packets` packets on each of `connections` connections.
    pub(crate) fn spread(mut self, connections: u32, packets: u64) -> World {
        self.connections = connections;
        let post = |connection| Post { side: 0, connection, bytes: packets * 4096, at: Time::ZERO };
        self.posts = (0..connections).map(post).collect();
        self
    }

    /// Switches drop packets that do not fit, instead of trimming them.
    pub(crate) fn without_trimming(mut self) -> World {
        self.environment.trimming = false;
        self
    }

    /// A NIC of `ports` ports that share the rate.
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

/// The result of a run.
pub(crate) struct Outcome {
    /// When the last sender knew that all its messages had arrived.
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
/// A script is a list of `drop|dup|mark|trim|delay [data|ack|nack|cnp|probe|operation|answer] FROM[..TO] [xTIMES] [by
/// MICROSECONDS]`. Data is named by PSN and struck the first `TIMES` times that it is sent (once if not said); other
/// packets are counted from 0.
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

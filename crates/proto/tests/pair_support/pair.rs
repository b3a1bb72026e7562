//! The two endpoints and the wire, step by step in order of time.

use super::observer::Flow;
use super::wire::{Wire, parse_rule};
use super::{DELAY, Outcome, Post, Sent, World};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandway_proto::packet::{Flags, Header};
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    ConnectionId, ConnectionStats, Endpoint, Handled, HostId, Message, MessageId, OpenConnection, Packet, Ports, Rate,
    Span, Time,
};

pub(super) struct End {
    pub(super) endpoint: Endpoint,
    pub(super) busy_until: Vec<Time>,
    /// It had no packet for the ports that were idle at its last poll, and there was no event since.
    pub(super) stuck: bool,
}

pub(super) struct Pair<'a> {
    pub(super) world: &'a World,
    pub(super) wire: Wire,
    pub(super) now: Time,
    pub(super) sides: [End; 2],
    pub(super) air: BTreeMap<(Time, u64), (usize, Packet)>,
    pub(super) order: u64,
    pub(super) posts: Vec<(usize, Post)>,
    /// Ports that go down or up, latest first: when, on which side, which, and whether it is up then.
    pub(super) ports: Vec<(Time, usize, u8, bool)>,
    /// Which ports of each side are down.
    pub(super) down: [u32; 2],
    pub(super) flows: [Vec<Flow>; 2],
    pub(super) sent: Vec<Sent>,
    pub(super) finished: Time,
    pub(super) finished_count: usize,
}

/// Longer than any test takes.
pub(super) const LIMIT: Time = Time(20_000_000_000_000);

impl<'a> Pair<'a> {
    pub(super) fn new(world: &'a World, script: &str) -> Pair<'a> {
        let rules = script.split(';').map(str::trim).filter(|r| !r.is_empty()).map(parse_rule).collect();
        let random = Random::new(world.seed, StreamKind::Fault, 0);
        let wire = Wire {
            rules,
            chance: world.chance,
            random,
            seen: [0; 8],
            times: BTreeMap::new(),
            trimming: world.environment.trimming,
        };
        let profile = Arc::new(world.profile.clone());
        let side = |host: u32| {
            let mut endpoint = Endpoint::new(HostId(host));
            for connection in 0..world.connections {
                let id = endpoint.open(
                    Time::ZERO,
                    OpenConnection {
                        profile: Arc::clone(&profile),
                        environment: world.environment,
                        peer: HostId(1 - host),
                        peer_connection: Some(ConnectionId(connection)),
                        random: Random::new(world.seed, StreamKind::Connection, u64::from(connection * 2 + host)),
                    },
                );
                assert_eq!(id.0, connection);
            }
            End { endpoint, busy_until: vec![Time::ZERO; usize::from(world.environment.ports)], stuck: false }
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

    pub(super) fn run(&mut self) -> Outcome {
        while self.step() {}
        assert_eq!(self.finished_count, self.world.posts.len(), "it ends at {} with messages unfinished", self.now);
        if self.world.outages.is_empty() {
            // Otherwise a port status may still have to be sent to a peer.
            self.check_idle();
        }
        let mut stats = ConnectionStats::default();
        for side in &self.sides {
            for connection in 0..self.world.connections {
                let s = side.endpoint.observe().stats(ConnectionId(connection));
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
            assert_eq!(side.endpoint.observe().strays(), 0);
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

    /// Executes the next event; false if there is none.
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
        // A late timer runs at once; time never runs backwards.
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
            .map(|c| {
                (s.endpoint.observe().in_flight(ConnectionId(c)).0, s.endpoint.observe().window(ConnectionId(c)).0)
            })
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
        let marked = Packet { flags: packet.flags.with_if((world.marked)(&packet), Flags::CE), ..packet };
        let detour = if packet.is_control() { Span::ZERO } else { (world.detour)(&packet) };
        for (late, packet) in self.wire.carry(side, &marked) {
            self.order += 1;
            self.air.insert((end + DELAY + detour + late, self.order), (1 - side, packet));
        }
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
        let endpoint = &mut self.sides[side].endpoint;
        let before = endpoint.observe().stats(packet.connection).delivered;
        let handled = endpoint.handle_packet(self.now, packet);
        let delivered = endpoint.observe().stats(packet.connection).delivered - before;
        assert_eq!(handled, if delivered == 1 { Handled::Fresh } else { Handled::Here }, "{packet:?}");
        self.sides[side].stuck = false;
        while let Some(event) = self.sides[side].endpoint.poll_event() {
            self.record(side, event);
        }
    }
}

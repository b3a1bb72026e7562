//! Two endpoints with a one-way connection in each direction, and a wire whose losses and delays the test chooses.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use strandway_proto::packet::{Header, Part};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    Bytes, ConnectionId, ConnectionStats, ControlMessage, Endpoint, Environment, Event, Handled, HostId, Message,
    MessageId, OpenConnection, Packet, Ports, Profile, Rate, Span, Time,
};

/// The time of one direction over the wire, without the packet's own transmission.
pub(crate) const DELAY: Span = Span::from_us(500);
/// The number of the connection at both endpoints.
pub(crate) const ONLY: ConnectionId = ConnectionId(0);
/// A time that no test reaches.
const LIMIT: Time = Time(60_000_000_000_000);

/// Decides what the wire does with a packet: one extra delay for each copy that arrives, and an empty list if the
/// packet is lost.
pub(crate) type Fate<'a> = dyn FnMut(Time, usize, &Packet) -> Vec<Span> + 'a;

/// A profile's environment: a wire of 10 Gb/s with a round trip of 1 ms.
pub(crate) fn environment(profile: &Profile) -> Environment {
    let rate = Rate::from_gbps(10);
    Environment {
        rate,
        ports: 1,
        base_rtt: DELAY * 2,
        packet: profile.packet_bytes(),
        trimming: false,
        uplinks: [1, 0],
        paths_in_order: 0,
        queue: rate.bytes_in(DELAY),
        packet_life: Span::from_ms(100),
    }
}

/// The time to send one full packet.
pub(crate) fn packet_time(profile: &Profile) -> Span {
    environment(profile).rate.time_for(profile.packet_bytes())
}

pub(crate) struct Pair {
    pub(crate) now: Time,
    pub(crate) ends: [Endpoint; 2],
    busy_until: [Time; 2],
    air: BTreeMap<(Time, u64), (usize, Packet)>,
    order: u64,
    /// Every packet that was put on the wire: the time, the end that sent it, and the packet.
    pub(crate) sent: Vec<(Time, usize, Packet)>,
    /// The events of each end.
    pub(crate) told: [VecDeque<(Time, Event)>; 2],
    /// The parts that were new to an end: the end, and the part.
    pub(crate) fresh: Vec<(usize, Part)>,
}

impl Pair {
    pub(crate) fn new(profile: &Profile) -> Pair {
        let environment = environment(profile);
        let profile = Arc::new(profile.clone());
        let end = |host: u32| {
            let mut endpoint = Endpoint::new(HostId(host));
            let id = endpoint.open(
                Time::ZERO,
                OpenConnection {
                    profile: Arc::clone(&profile),
                    environment,
                    peer: HostId(1 - host),
                    peer_connection: Some(ONLY),
                    random: Random::new(1, StreamKind::Connection, u64::from(host)),
                },
            );
            assert_eq!(id, ONLY);
            endpoint
        };
        Pair {
            now: Time::ZERO,
            ends: [end(0), end(1)],
            busy_until: [Time::ZERO; 2],
            air: BTreeMap::new(),
            order: 0,
            sent: Vec::new(),
            told: Default::default(),
            fresh: Vec::new(),
        }
    }

    pub(crate) fn post(&mut self, end: usize, id: u32, bytes: u64) {
        self.ends[end].post(self.now, ONLY, Message { id: MessageId(id), bytes });
    }

    pub(crate) fn stats(&self, end: usize) -> ConnectionStats {
        *self.ends[end].observe().stats(ONLY)
    }

    /// Control messages that an end has sent.
    pub(crate) fn controls(&self, end: usize) -> impl Iterator<Item = (Time, ControlMessage)> {
        self.sent.iter().filter(move |s| s.1 == end).filter_map(|&(at, _, packet)| match packet.header {
            Header::Control(control) => Some((at, control)),
            _ => None,
        })
    }

    /// Parts that an end has sent.
    pub(crate) fn parts(&self, end: usize) -> impl Iterator<Item = (Time, Packet, Part)> {
        self.sent.iter().filter(move |s| s.1 == end).filter_map(|&(at, _, packet)| match packet.header {
            Header::Part(part) => Some((at, packet, part)),
            _ => None,
        })
    }

    /// Gives this packet to an end, unchanged.
    pub(crate) fn inject(&mut self, end: usize, packet: &Packet) -> Handled {
        let handled = self.ends[end].handle_packet(self.now, packet);
        self.listen(end);
        handled
    }

    fn listen(&mut self, end: usize) {
        while let Some(event) = self.ends[end].poll_event() {
            self.told[end].push_back((self.now, event));
        }
    }

    /// Executes the next event before `until`; false if there is none.
    pub(crate) fn step(&mut self, until: Time, fate: &mut Fate<'_>) -> bool {
        let arrival = self.air.first_key_value().map_or(Time::NEVER, |(&(at, _), _)| at);
        let timer = |end: &Endpoint| end.poll_timeout().unwrap_or(Time::NEVER);
        let leaves = |i: usize| {
            if self.ends[i].wants_transmit() { self.busy_until[i].max(self.now) } else { Time::NEVER }
        };
        let (timers, leave) = ([timer(&self.ends[0]), timer(&self.ends[1])], [leaves(0), leaves(1)]);
        let next = arrival.min(timers[0]).min(timers[1]).min(leave[0]).min(leave[1]);
        if next >= until {
            return false;
        }
        assert!(
            next < LIMIT,
            "no end in sight at {}: {:#?}",
            self.now,
            &self.sent[self.sent.len().saturating_sub(6)..]
        );
        self.now = self.now.max(next);
        if arrival == next {
            let (_, (end, packet)) = self.air.pop_first().expect("a packet in the air");
            let handled = self.inject(end, &packet);
            if let (Handled::Fresh, Header::Part(part)) = (handled, packet.header) {
                self.fresh.push((end, part));
            }
        } else if let Some(end) = (0..2).find(|&i| timers[i] == next) {
            self.ends[end].handle_timeout(self.now);
            self.listen(end);
        } else {
            let end = usize::from(leave[0] != next);
            self.transmit(end, fate);
        }
        true
    }

    fn transmit(&mut self, end: usize, fate: &mut Fate<'_>) {
        let Some(packet) = self.ends[end].poll_transmit(self.now, Ports::first(1)) else {
            // The sender's pace holds the packet back. The end is asked again 100 ns later.
            self.busy_until[end] = self.now + Span::from_ns(100);
            return;
        };
        let rate = Rate::from_gbps(10);
        self.busy_until[end] = self.now + rate.time_for(packet.bytes());
        self.sent.push((self.now, end, packet));
        for late in fate(self.now, end, &packet) {
            self.order += 1;
            self.air.insert((self.busy_until[end] + DELAY + late, self.order), (1 - end, packet));
        }
        self.listen(end);
    }

    /// Runs until there are no more events.
    pub(crate) fn run(&mut self, fate: &mut Fate<'_>) {
        while self.step(Time::NEVER, fate) {}
    }

    /// Messages that an end has received, in order.
    pub(crate) fn received(&self, end: usize) -> Vec<(u32, u64)> {
        let of = |(_, event): &(Time, Event)| match event {
            Event::Received { message, bytes: Bytes(bytes), .. } => Some((message.0, *bytes)),
            _ => None,
        };
        self.told[end].iter().filter_map(of).collect()
    }

    /// The times at which an end's messages were finished, in order.
    pub(crate) fn finished(&self, end: usize) -> Vec<(u32, Time)> {
        let of = |&(at, event): &(Time, Event)| match event {
            Event::Sent { message, .. } => Some((message.0, at)),
            _ => None,
        };
        self.told[end].iter().filter_map(of).collect()
    }
}

/// Every packet arrives, without extra delay.
pub(crate) fn faithful(_: Time, _: usize, _: &Packet) -> Vec<Span> {
    vec![Span::ZERO]
}

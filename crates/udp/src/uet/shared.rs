//! The parts of a node that its contexts share: memory, events, and the engine's settings.

use super::{Config, Control, Counters, Event, ONLY};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use strandway_proto::congestion::{CongestionConfig, FixedConfig};
use strandway_proto::path::{PathConfig, SingleConfig};
use strandway_proto::reliability::{ReliabilityConfig, SelectiveRepeatConfig};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{Bytes, Endpoint, Environment, HostId, OpenConnection, Profile, Rate, Span, Time};

/// Bytes around a payload on the wire: IPv4, UDP, request and standard header.
const AROUND: u64 = 20 + 8 + 12 + 44;

/// A packet is lost if one that was sent this much later has arrived, and later still where packets overtake each other;
/// ours: kernels seldom reorder the datagrams of one socket.
const LATE: Span = Span::from_us(50);
/// With a fixed window, the engine's idea of a round trip: a sender that waits sends its first probe after half of it.
/// Ours.
const PROBES_EVERY: Span = Span::from_ms(1);

/// Memory that peers may write and read.
pub(super) struct Region {
    pub(super) base: u64,
    pub(super) bytes: Vec<u8>,
}

impl Region {
    /// Has it this range?
    pub(super) fn has(&self, offset: u64, length: u32) -> bool {
        let end = offset.checked_sub(self.base).and_then(|at| at.checked_add(length.into()));
        end.is_some_and(|end| end <= self.bytes.len() as u64)
    }

    /// A range of a message that begins at `offset`.
    pub(super) fn place(&mut self, offset: u64, range: Range<usize>) -> Option<&mut [u8]> {
        let from = usize::try_from(offset.checked_sub(self.base)?).ok()?;
        self.bytes.get_mut(from.checked_add(range.start)?..from.checked_add(range.end)?)
    }
}

/// The parts of a node that its contexts share.
pub(super) struct Shared {
    pub(super) config: Config,
    profile: Arc<Profile>,
    environment: Environment,
    pub(super) regions: BTreeMap<u64, Region>,
    /// Bytes of messages that are arriving.
    pub(super) incoming: usize,
    pub(super) events: VecDeque<Event>,
    pub(super) counters: Counters,
}

impl Shared {
    pub(super) fn new(config: Config) -> Shared {
        let packet = Bytes(u64::from(config.payload) + AROUND);
        let (rate, base_rtt) = match config.control {
            Control::Fixed => (Rate::from_gbps(100), PROBES_EVERY),
            Control::Nscc { rate, base_rtt } => (rate, base_rtt),
        };
        let environment = Environment {
            rate,
            ports: 1,
            base_rtt,
            packet,
            // Trims are obeyed, but other losses are found, too.
            trimming: false,
            uplinks: [0; 2],
            paths_in_order: 0,
            queue: Bytes(1 << 20),
            packet_life: Span::from_ms(1_000),
        };
        let mut profile = Profile::preset("uec").expect("a preset");
        profile.transport.mtu = config.payload.into();
        profile.transport.header = AROUND as u32;
        profile.transport.sleep_after = Span::ZERO;
        // The peer's sleep is no queueing delay.
        profile.transport.rtt_min = base_rtt;
        let (rto, window_psn) = (config.timeout, config.window);
        let late = LATE.0 as f64 / base_rtt.0 as f64;
        profile.reliability =
            ReliabilityConfig::SelectiveRepeat(SelectiveRepeatConfig { rto, window_psn, late, ..Default::default() });
        if config.control == Control::Fixed {
            let window_bdp = (u64::from(config.window) * packet.0) as f64 / environment.bdp().0 as f64;
            profile.congestion = CongestionConfig::Fixed(FixedConfig { window_bdp });
        }
        profile.path = PathConfig::Single(SingleConfig::default());
        Shared {
            config,
            profile: Arc::new(profile),
            environment,
            regions: BTreeMap::new(),
            incoming: 0,
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// An engine with one connection, for end 0 or 1 of a context.
    pub(super) fn endpoint(&self, now: Time, end: u32, seed: u64) -> Endpoint {
        let mut endpoint = Endpoint::new(HostId(end));
        let open = OpenConnection {
            profile: self.profile.clone(),
            environment: self.environment,
            peer: HostId(1 - end),
            peer_connection: Some(ONLY),
            random: Random::new(seed, StreamKind::Connection, 0),
        };
        endpoint.open(now, open);
        endpoint
    }
}

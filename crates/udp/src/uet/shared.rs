//! The parts of a node that its contexts share: memory, events, and the engine's settings.

use super::{Config, Counters, Event, ONLY};
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

/// Memory that peers may write.
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
        let rate = Rate::from_gbps(100);
        let environment = Environment {
            rate,
            ports: 1,
            // The window is fixed, and the timeout is given: nothing is computed from these two.
            base_rtt: Span::from_us(100),
            packet,
            trimming: !config.probes,
            uplinks: [0; 2],
            paths_in_order: 0,
            queue: Bytes(1 << 20),
            packet_life: Span::from_ms(1_000),
        };
        let mut profile = Profile::preset("uec").expect("a preset");
        profile.transport.mtu = config.payload.into();
        profile.transport.header = AROUND as u32;
        profile.transport.sleep_after = Span::ZERO;
        let (rto, window_psn) = (config.timeout, config.window);
        profile.reliability =
            ReliabilityConfig::SelectiveRepeat(SelectiveRepeatConfig { rto, window_psn, ..Default::default() });
        let window_bdp = (u64::from(config.window) * packet.0) as f64 / environment.bdp().0 as f64;
        profile.congestion = CongestionConfig::Fixed(FixedConfig { window_bdp });
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

//! MRC's paths: the state machine against a readable model, and the guarantees about ports, probes and timers.

mod model;
mod paths;
mod ports;
mod range;
mod retries;
mod state_machine;
mod table;

use super::pair_support::{self, World};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandway_proto::path::{AnyPath, Mrc, MrcConfig, PathConfig, PathManager, PathStatus};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    Bytes, ConnectionId, Endpoint, Environment, HostId, OpenConnection, PathId, Profile, Rate, Span, Time,
};

const BASE: Span = Span::from_us(10);

fn environment(ports: u8, uplinks: u16) -> Environment {
    Environment {
        rate: Rate::from_gbps(800),
        ports,
        base_rtt: BASE,
        packet: Bytes(4262),
        trimming: true,
        uplinks: [uplinks, 0],
        paths_in_order: 0,
        queue: Bytes(1_000_000),
        packet_life: Span::from_ms(10),
    }
}

fn build(config: MrcConfig, ports: u8, uplinks: u16) -> Mrc {
    match PathConfig::Mrc(config).build(&environment(ports, uplinks), Random::new(5, StreamKind::Connection, 3)) {
        AnyPath::Mrc(mrc) => *mrc,
        _ => unreachable!("MRC's parameters make MRC's selector"),
    }
}

/// Every path's state, and whether it is in use.
type States = BTreeMap<PathId, (PathStatus, bool)>;

fn states(selector: &Mrc) -> States {
    selector.path_states().iter().map(|s| (s.path, (s.status, s.active))).collect()
}

/// Four planes with sixteen paths each.
fn planes() -> World {
    let mut world = World::new("mrc").ports(4).packets(6000);
    world.environment.uplinks = [16, 0];
    world
}

fn lone(profile: Profile, ports: u8) -> Endpoint {
    let mut endpoint = Endpoint::new(HostId(0));
    endpoint.open(
        Time::ZERO,
        OpenConnection {
            environment: Environment { packet: profile.packet_bytes(), ..environment(ports, 16) },
            profile: Arc::new(profile),
            peer: HostId(1),
            peer_connection: Some(ConnectionId(0)),
            random: Random::new(1, StreamKind::Connection, 1),
        },
    );
    endpoint
}

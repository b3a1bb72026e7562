//! The figures of a node for [`crate::watch`]: by plane, by peer, and by the state of paths.

use super::{Node, State};
use crate::address::shown;
use crate::error::Error;
use crate::families;
use crate::peer_monitor::PeerMonitor;
use crate::routes::Routes;
use crate::session::Session;
use crate::watch::{self, Json, Part, PathRow, Sample, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use strandway_proto::path::{PathCounts, PathStatus};
use strandway_proto::{ConnectionStats, PathId, Span};

/// The node's part in what is served, and since when planes are down.
pub(super) struct Watching {
    part: Part,
    /// Our own ports (no peer), and planes as they lead to peers, that are down, and since when they were seen so.
    down: BTreeMap<(Option<String>, usize), Instant>,
    /// When the counts by path are published next.
    paths_due: Instant,
}

/// The time between two publications of the counts by path, at least: ours. A search for gray links needs to know which
/// losses belong together.
const PATHS_INTERVAL: Duration = Duration::from_millis(100);

/// A publication of these counts may take this part of the node's time: ours.
const PATHS_SHARE: u32 = 100;

families! {
    UPTIME "node_uptime_seconds" Gauge "Time since the node was bound."
    CONNECTIONS "node_connections" Gauge "Connections, including those that are being established."
    PEERS "node_peers" Gauge "Peer nodes."
    SENT "plane_sent_datagrams" Counter "Datagrams handed to the kernel."
    SENT_BYTES "plane_sent_bytes" Counter "Their bytes, without UDP and IP headers."
    RECEIVED "plane_received_datagrams" Counter "Datagrams received."
    RECEIVED_BYTES "plane_received_bytes" Counter "Their bytes, without UDP and IP headers."
    REFUSED "plane_refused_datagrams" Counter "Datagrams that the kernel refused to send."
    PORT_UP "plane_port_up" Gauge "One if our own port is up."
    PEER_SENT "peer_sent_packets" Counter "Data packets sent, retransmissions included."
    PEER_AGAIN "peer_retransmitted_packets" Counter "Data packets sent again."
    PEER_TIMEOUTS "peer_timeouts" Counter "Retransmission timeouts that found packets overdue."
    PEER_NACKS "peer_nacks" Counter "NACKs received."
    PEER_ACKS_MARKED "peer_marked_acks" Counter "Acknowledgements that echoed a mark (ECN-CE)."
    PEER_MARKED "peer_marked_packets" Counter "Data packets received with a mark (ECN-CE)."
    PEER_TRIMMED "peer_trimmed_packets" Counter "Trimmed packets received."
    PEER_DELIVERED "peer_delivered_bytes" Counter "Payload received for the first time."
    PEER_DUPLICATES "peer_duplicate_packets" Counter "Whole data packets received again."
    PEER_SILENCE "peer_silence_seconds" Gauge "Time since anything genuine came from the peer."
    PEER_RTT "peer_rtt_seconds" Gauge "Quantiles of the last round trips of pings; wake-ups are included."
    WAY_SENT "peer_plane_sent_bytes" Counter "Payload sent to the peer over the plane, retransmissions included."
    WAY_RECEIVED "peer_plane_received_bytes" Counter "Payload that came from the peer over the plane for the first time."
    WAY_SILENCES "peer_plane_silences" Counter "How often the plane was found silent."
    WAY_PORT_LOSSES "peer_plane_port_losses" Counter "How often our own port of the plane went down."
    WAY_UP "peer_plane_up" Gauge "One if the plane leads to the peer at present."
    PATHS "peer_paths" Gauge "Paths to the peer by class: good, skipped, assumed bad, denied, or in reserve."
}

impl Watching {
    /// A node begins. `None` if nothing is served.
    pub(super) fn begin() -> Result<Option<Box<Watching>>, Error> {
        Ok(watch::enrol("node")?
            .map(|part| Box::new(Watching { part, down: BTreeMap::new(), paths_due: Instant::now() })))
    }

    /// Is a plane down now? Returns for how long it has been.
    fn observe(&mut self, key: (Option<String>, usize), is_down: bool) -> Option<f64> {
        if !is_down {
            self.down.remove(&key);
            return None;
        }
        Some(self.down.entry(key).or_insert_with(Instant::now).elapsed().as_secs_f64())
    }
}

/// The figures of all connections with one peer node.
#[derive(Default)]
struct PeerFigures {
    stats: ConnectionStats,
    connections: u64,
    planes: Vec<PeerPlaneFigures>,
    rtts: Vec<(u8, Span)>,
    paths: BTreeMap<(u8, &'static str), u64>,
}

#[derive(Clone, Copy, Default)]
struct PeerPlaneFigures {
    sent: u64,
    received: u64,
    silences: u64,
    port_losses: u64,
    up: bool,
}

impl PeerFigures {
    fn add(&mut self, session: &Session, planes: usize) {
        let counters = session.counters();
        self.stats += counters.engine;
        self.connections += 1;
        self.planes.resize(planes, PeerPlaneFigures::default());
        for (plane, way) in self.planes.iter_mut().enumerate() {
            let of = |list: &[u64]| list.get(plane).copied().unwrap_or(0);
            way.sent += of(&counters.sent_bytes);
            way.received += of(&counters.received_bytes);
            way.silences += of(&counters.silences);
            way.port_losses += of(&counters.port_losses);
            way.up |= counters.up.get(plane).copied().unwrap_or(false);
        }
        self.rtts.extend(session.recent_rtts());
        for path in session.path_states() {
            let class = match path.status {
                PathStatus::Good if !path.active => "reserve",
                PathStatus::Good => "good",
                PathStatus::Skip => "skipped",
                PathStatus::AssumedBad => "assumed-bad",
                PathStatus::Denied => "denied",
            };
            *self.paths.entry((path.path.port(), class)).or_default() += 1;
        }
    }

    /// This quantile of the last round trips on a plane, in seconds.
    fn quantile(&self, plane: usize, share: f64) -> Option<f64> {
        let mut all: Vec<u64> =
            self.rtts.iter().filter(|(of, _)| usize::from(*of) == plane).map(|(_, rtt)| rtt.0).collect();
        all.sort_unstable();
        let at = ((all.len().checked_sub(1)?) as f64 * share).round() as usize;
        Some(all[at] as f64 / 1e12)
    }
}

/// The quantiles of round trips that are served.
const QUANTILES: [(f64, &str); 3] = [(0.5, "0.5"), (0.9, "0.9"), (0.99, "0.99")];

impl Node {
    /// Publishes the node's counts by path if they are due.
    fn publish_paths(&mut self) {
        let Some(mut watching) = self.watching.take() else { return };
        let began = Instant::now();
        if let Routes::Srv6 { clos, host } = &self.config.routes
            && began >= watching.paths_due
        {
            let mut rows = Vec::new();
            for slot in &self.table.slots {
                let Some(State::Open(session)) = &slot.state else { continue };
                let address =
                    self.monitors.get(session.monitor()).and_then(|one| one.sides.iter().find_map(|side| side.at));
                let Some(peer) = address.and_then(|address| clos.host_of(*address.ip())) else { continue };
                let connection = session.number();
                // Entropy values that select the same path are one row: a connection may have thousands.
                let mut merged: BTreeMap<PathId, PathCounts> = BTreeMap::new();
                for counts in session.path_counts() {
                    let entropy = clos.least_entropy(*host, peer, counts.path.entropy());
                    let path = PathId::new(counts.path.port(), entropy);
                    let sum = merged.entry(path).or_insert(PathCounts { path, ..PathCounts::default() });
                    sum.add(counts);
                }
                rows.extend(merged.into_values().map(|counts| PathRow { peer, connection, counts }));
            }
            watching.part.publish_paths(*host, rows);
            watching.paths_due = began + PATHS_INTERVAL.max(began.elapsed() * PATHS_SHARE);
        }
        self.watching = Some(watching);
    }

    /// Publishes the node's figures if they are due.
    pub(super) fn publish(&mut self) {
        self.publish_paths();
        let Some(mut watching) = self.watching.take_if(|watching| watching.part.is_due()) else { return };
        let mut snapshot = Snapshot::default();
        let planes = self.publish_planes(&mut watching, &mut snapshot);
        let peers = self.publish_peers(&mut watching, &mut snapshot);
        snapshot.sentences.extend(self.orders.as_ref().and_then(|orders| orders.problem.clone()));
        let number = |value: usize| Json::from(value as u64);
        snapshot.status = Json::Object(vec![
            ("profile", Json::from(&self.config.profile.name[..])),
            ("uptime_s", Json::Number(self.observe().uptime().as_secs_f64())),
            ("connections", number(self.table.open)),
            ("planes", Json::List(planes)),
            ("peers", Json::List(peers)),
        ]);
        for (family, value) in [
            (&UPTIME, self.observe().uptime().as_secs_f64()),
            (&CONNECTIONS, self.table.open as f64),
            (&PEERS, self.monitors.count_peers() as f64),
        ] {
            snapshot.samples.push(Sample::new(family, &[], value));
        }
        watching.part.publish(snapshot);
        self.watching = Some(watching);
    }

    fn publish_planes(&self, watching: &mut Watching, snapshot: &mut Snapshot) -> Vec<Json> {
        let mut rows = Vec::new();
        for (plane, (counters, up)) in self.observe().plane_counters().into_iter().zip(&self.ports.up).enumerate() {
            let labels = [("plane", format!("p{plane}"))];
            for (family, value) in [
                (&SENT, counters.sent),
                (&SENT_BYTES, counters.sent_bytes),
                (&RECEIVED, counters.received),
                (&RECEIVED_BYTES, counters.received_bytes),
                (&REFUSED, counters.refused),
                (&PORT_UP, u64::from(*up)),
            ] {
                snapshot.samples.push(Sample::new(family, &labels, value as f64));
            }
            let since = watching.observe((None, plane), !up);
            if let Some(since) = since {
                snapshot.sentences.push(format!("our own port of plane p{plane} has been down for {since:.1} s"));
            }
            rows.push(Json::Object(vec![
                ("plane", Json::from(format!("p{plane}"))),
                ("port", Json::from(if *up { "up" } else { "down" })),
                ("down_s", since.map_or(Json::Null, Json::Number)),
                ("sent_bytes", Json::from(counters.sent_bytes)),
                ("received_bytes", Json::from(counters.received_bytes)),
            ]));
        }
        rows
    }

    fn publish_peers(&self, watching: &mut Watching, snapshot: &mut Snapshot) -> Vec<Json> {
        let mut peers: BTreeMap<u32, PeerFigures> = BTreeMap::new();
        for slot in &self.table.slots {
            if let Some(State::Open(session)) = &slot.state {
                peers.entry(session.monitor()).or_default().add(session, self.planes.len());
            }
        }
        let now = self.clock.now();
        let mut rows = Vec::new();
        let mut live = Vec::new();
        let mut names = BTreeSet::new();
        for (monitor, figures) in &peers {
            let name = self.monitors.get(*monitor).map_or("unknown".into(), name_of);
            // Two nodes may share an address: shards, or one that was started again.
            let name = if names.contains(&name) { format!("{name} ({monitor})") } else { name };
            names.insert(name.clone());
            let peer = ("peer", name.clone());
            let silence = now.since(self.monitors.heard(*monitor)).0 as f64 / 1e12;
            let stats = figures.stats;
            for (family, value) in [
                (&PEER_SENT, stats.sent),
                (&PEER_AGAIN, stats.retransmitted),
                (&PEER_TIMEOUTS, stats.timeouts),
                (&PEER_NACKS, stats.nacks),
                (&PEER_ACKS_MARKED, stats.acks_marked),
                (&PEER_MARKED, stats.marked),
                (&PEER_TRIMMED, stats.trimmed),
                (&PEER_DELIVERED, stats.delivered_bytes),
                (&PEER_DUPLICATES, stats.duplicates),
            ] {
                snapshot.samples.push(Sample::new(family, std::slice::from_ref(&peer), value as f64));
            }
            snapshot.samples.push(Sample::new(&PEER_SILENCE, std::slice::from_ref(&peer), silence));
            let mut ways = Vec::new();
            for (plane, way) in figures.planes.iter().enumerate() {
                let labels = [peer.clone(), ("plane", format!("p{plane}"))];
                for (family, value) in [
                    (&WAY_SENT, way.sent),
                    (&WAY_RECEIVED, way.received),
                    (&WAY_SILENCES, way.silences),
                    (&WAY_PORT_LOSSES, way.port_losses),
                    (&WAY_UP, u64::from(way.up)),
                ] {
                    snapshot.samples.push(Sample::new(family, &labels, value as f64));
                }
                for (share, text) in QUANTILES {
                    if let Some(rtt) = figures.quantile(plane, share) {
                        let labels = [&labels[..], &[("quantile", text.to_string())]].concat();
                        snapshot.samples.push(Sample::new(&PEER_RTT, &labels, rtt));
                    }
                }
                let key = (Some(name.clone()), plane);
                live.push(key.clone());
                let since = watching.observe(key, !way.up);
                if let Some(since) = since.filter(|_| self.ports.up[plane]) {
                    let text = format!("plane p{plane} has not led to {name} for {since:.1} s");
                    snapshot.sentences.push(text);
                }
                ways.push(Json::Object(vec![
                    ("plane", Json::from(format!("p{plane}"))),
                    ("state", Json::from(if way.up { "up" } else { "down" })),
                    ("down_s", since.map_or(Json::Null, Json::Number)),
                    ("rtt_p50_s", figures.quantile(plane, 0.5).map_or(Json::Null, Json::Number)),
                    ("rtt_p99_s", figures.quantile(plane, 0.99).map_or(Json::Null, Json::Number)),
                    ("sent_bytes", Json::from(way.sent)),
                    ("received_bytes", Json::from(way.received)),
                ]));
            }
            for ((plane, class), count) in &figures.paths {
                let labels = [peer.clone(), ("plane", format!("p{plane}")), ("class", class.to_string())];
                snapshot.samples.push(Sample::new(&PATHS, &labels, *count as f64));
            }
            rows.push(Json::Object(vec![
                ("peer", Json::from(name)),
                ("connections", Json::from(figures.connections)),
                ("silence_s", Json::Number(silence)),
                ("sent_packets", Json::from(stats.sent)),
                ("retransmitted", Json::from(stats.retransmitted)),
                ("planes", Json::List(ways)),
            ]));
        }
        // Of peers that have gone, nothing is remembered.
        watching.down.retain(|key, _| key.0.is_none() || live.contains(key));
        rows
    }
}

/// A peer's name: its address on the first plane on which it has one.
fn name_of(monitor: &PeerMonitor) -> String {
    let address = monitor.sides.iter().find_map(|side| side.at);
    address.map_or("unknown".into(), |address| shown(address).to_string())
}

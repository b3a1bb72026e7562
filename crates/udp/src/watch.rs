//! Figures of running programs for those who watch them: OpenMetrics text, and one status in JSON.
//!
//! Nothing is served unless the environment variable `STRANDWAY_METRICS` names a place: a path of a Unix socket, a folder
//! (the path ends with `/`) for a socket per process, or a loopback address with a port. Then one thread of the process
//! answers `GET /metrics`, `GET /status` and `GET /paths` over HTTP ([`ask`] is a client). Nodes, groups, copies, casts and switches are *parts*: each one
//! publishes a [`Snapshot`] four times a second, and reads no request.
//!
//! ```
//! use strandway_udp::watch::{Family, Json, Kind, Sample, Snapshot, text};
//!
//! static SENT: Family = Family { name: "strandway_sent_bytes", kind: Kind::Counter, help: "Bytes sent." };
//! let samples = vec![Sample::new(&SENT, &[("plane", "p0".to_string())], 12.0)];
//! let shown = text(&[Snapshot { samples, status: Json::Null, sentences: Vec::new() }]);
//! assert!(shown.contains("strandway_sent_bytes_total{plane=\"p0\"} 12\n") && shown.ends_with("# EOF\n"));
//! ```

mod client;
mod json;
mod paths;
mod server;
mod text;

pub use client::{PATIENCE, ask, places};
pub use json::Json;
pub use paths::PathRow;
pub use text::{CONTENT_TYPE, Family, Kind, Sample, text};

use crate::error::Error;
use server::Server;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The environment variable that switches the service on.
pub const VARIABLE: &str = "STRANDWAY_METRICS";

/// The time between two snapshots of a part: ours. Prometheus asks every few seconds.
pub const INTERVAL: Duration = Duration::from_millis(250);

/// All figures of a part at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Samples of any families; those of one family need not be together.
    pub samples: Vec<Sample>,
    /// The part's entry in the status.
    pub status: Json,
    /// Sentences that an operator should read first: who is missing, and who waits. Empty if all is well.
    pub sentences: Vec<String>,
}

/// A part of this process that is watched. It is no longer served after it was dropped.
#[derive(Debug)]
pub struct Part {
    registry: Arc<Registry>,
    number: u64,
    kind: &'static str,
    published: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    kind: &'static str,
    at: Instant,
    snapshot: Snapshot,
}

/// A node's counts by path: how often they were published, the host's number, and the rows.
type Paths = (u64, u32, Vec<PathRow>);

/// The parts of this process.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    parts: Mutex<(u64, BTreeMap<u64, Entry>)>,
    paths: Mutex<BTreeMap<u64, Paths>>,
}

static AGE: Family = Family {
    name: "strandway_snapshot_age_seconds",
    kind: Kind::Gauge,
    help: "Time since the part published its figures; it grows while the program does not call the part.",
};

/// A part of this kind begins. `None` if nothing is served.
///
/// # Errors
/// If [`VARIABLE`] names a place where nothing can be served.
pub fn enrol(kind: &'static str) -> Result<Option<Part>, Error> {
    static STARTED: OnceLock<Result<Option<Arc<Registry>>, String>> = OnceLock::new();
    let started = STARTED.get_or_init(|| {
        let Ok(place) = std::env::var(VARIABLE) else { return Ok(None) };
        if place.is_empty() {
            return Ok(None);
        }
        let registry = Arc::new(Registry::default());
        let server = Server::open(&place).map_err(|what| format!("{VARIABLE} = {place}: {what}"))?;
        server.start(Arc::clone(&registry))?;
        Ok(Some(registry))
    });
    match started {
        Ok(registry) => Ok(registry.as_ref().map(|registry| registry.enrol(kind))),
        Err(what) => Err(Error::Config(what.clone())),
    }
}

impl Registry {
    fn enrol(self: &Arc<Registry>, kind: &'static str) -> Part {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.0 += 1;
        Part { registry: Arc::clone(self), number: parts.0, kind, published: None }
    }

    /// The figures of all parts, as OpenMetrics text.
    fn metrics(&self) -> String {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut snapshots: Vec<Snapshot> = Vec::new();
        for (number, entry) in &parts.1 {
            let part = format!("{}{number}", entry.kind);
            let mut snapshot = entry.snapshot.clone();
            snapshot.samples.push(Sample::new(&AGE, &[], entry.at.elapsed().as_secs_f64()));
            for sample in &mut snapshot.samples {
                sample.labels.insert(0, ("part", part.clone()));
            }
            snapshots.push(snapshot);
        }
        text(&snapshots)
    }

    /// The counts by path of all nodes.
    fn paths(&self) -> String {
        paths::text(&self.paths.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The status of this process.
    fn status(&self) -> String {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let sentences = parts.1.values().flat_map(|entry| &entry.snapshot.sentences);
        let rows = parts.1.iter().map(|(number, entry)| {
            Json::Object(vec![
                ("part", Json::from(format!("{}{number}", entry.kind))),
                ("kind", Json::from(entry.kind)),
                ("age_s", Json::Number(entry.at.elapsed().as_secs_f64())),
                ("state", entry.snapshot.status.clone()),
            ])
        });
        let all = Json::Object(vec![
            ("format", Json::Number(1.0)),
            ("host", Json::from(host)),
            ("process", Json::Number(f64::from(std::process::id()))),
            ("sentences", Json::List(sentences.cloned().map(Json::from).collect())),
            ("parts", Json::List(rows.collect())),
        ]);
        format!("{all}\n")
    }
}

impl Part {
    /// Has [`INTERVAL`] passed since the last snapshot?
    pub fn is_due(&self) -> bool {
        self.published.is_none_or(|at| at.elapsed() >= INTERVAL)
    }

    /// Replaces the part's figures.
    pub fn publish(&mut self, snapshot: Snapshot) {
        let at = Instant::now();
        self.published = Some(at);
        let mut parts = self.registry.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.1.insert(self.number, Entry { kind: self.kind, at, snapshot });
    }
}

impl Part {
    /// Replaces the node's counts by path. `host`: its number in the fabric.
    pub fn publish_paths(&mut self, host: u32, rows: Vec<PathRow>) {
        let mut paths = self.registry.paths.lock().unwrap_or_else(PoisonError::into_inner);
        let number = paths.get(&self.number).map_or(1, |before| before.0 + 1);
        paths.insert(self.number, (number, host, rows));
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.registry.paths.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
        self.registry.parts.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&self.number);
    }
}

#[cfg(test)]
mod tests;

//! Time series of a run: payload, groups of links, and one connection that is watched.

use serde::{Deserialize, Serialize};

/// Time series.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SeriesFacts {
    /// Interval between points.
    pub every_us: f64,
    /// New payload received, Gb/s.
    pub goodput_gbps: Vec<f64>,
    /// New payload received, per plane on which it arrived, Gb/s; empty with one plane.
    pub planes_gbps: Vec<Vec<f64>>,
    /// One entry for each group of links.
    pub groups: Vec<GroupSeriesFacts>,
    /// One connection, seen from its sender.
    pub watched: Option<WatchedFacts>,
}

/// One group of links over time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupSeriesFacts {
    /// The group's name.
    pub name: String,
    /// Bytes carried divided by capacity.
    pub utilisation: Vec<f64>,
    /// Data bytes that wait in all its queues.
    pub queued_bytes: Vec<u64>,
    /// Data bytes that wait in its longest queue.
    pub queued_max_bytes: Vec<u64>,
}

/// The watched connection over time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchedFacts {
    /// The name of its flow (of the first one if it has several).
    pub name: String,
    /// New payload that its receiver got, Gb/s.
    pub goodput_gbps: Vec<f64>,
    /// New payload that its receiver got, per plane on which it arrived, Gb/s.
    pub planes_gbps: Vec<Vec<f64>>,
    /// Congestion window at each interval's end, wire bytes.
    pub window_bytes: Vec<u64>,
    /// In flight at each interval's end, wire bytes.
    pub in_flight_bytes: Vec<u64>,
    /// Per plane, the states of its paths; empty if the path selector does not count them.
    pub paths: Vec<PathSeriesFacts>,
}

/// The paths (entropy values) of one plane of a connection over time: how many of them are in each state at the end of
/// each interval. The numbers add up to all paths that the connection has on that plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathSeriesFacts {
    /// The plane.
    pub plane: usize,
    /// In use.
    pub good: Vec<u32>,
    /// In use, but skipped once.
    pub skip: Vec<u32>,
    /// Not in use after a loss; probed.
    pub assumed_bad: Vec<u32>,
    /// Forbidden by the controller.
    pub denied: Vec<u32>,
    /// Good and held in reserve.
    pub reserve: Vec<u32>,
    /// Unusable in any state, because our port or the peer's port is down.
    pub port_down: Vec<u32>,
}

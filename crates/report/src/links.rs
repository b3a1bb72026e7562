//! Links and paths in a report.

use serde::{Deserialize, Serialize};

/// A group of similar links: one tier, direction and plane.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupFacts {
    /// For example `leaf->spine` or `host->leaf.p3`.
    pub name: String,
    /// 0 host to leaf, 1 leaf to tier 1, 2 tier 1 to core.
    pub level: usize,
    /// True if they lead towards the core.
    pub up: bool,
    /// The plane.
    pub plane: u8,
    /// Number of links.
    pub links: u32,
    /// Their rate.
    pub rate_gbps: f64,
    /// Bytes sent onto them.
    pub bytes: u64,
    /// Bytes carried divided by the bytes that a link could carry while the run was active, mean over the links. The
    /// rate of a link with a fault is the reduced rate; a dead link has none.
    pub utilisation: f64,
    /// Utilisation of the busiest link.
    pub utilisation_max: f64,
    /// Utilisation of the least busy link.
    pub utilisation_min: f64,
    /// Packets dropped here.
    pub dropped: u64,
    /// Packets trimmed here.
    pub trimmed: u64,
    /// Packets marked here.
    pub marked: u64,
    /// Packets lost here.
    pub lost: u64,
    /// The largest number of data bytes that waited at one of them.
    pub queue_max_bytes: u64,
    /// How long data was paused, sum over the links.
    pub paused_us: f64,
}

/// One link.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkFacts {
    /// For example `leaf0->spine3`.
    pub name: String,
    /// Bytes carried divided by the bytes that it could carry while the run was active, at its rate at each time.
    pub utilisation: f64,
    /// Bytes sent onto it.
    pub bytes: u64,
    /// Packets sent onto it.
    pub packets: u64,
    /// The largest number of data bytes that waited here.
    pub queue_max_bytes: u64,
    /// Packets dropped here.
    pub dropped: u64,
    /// Packets trimmed here.
    pub trimmed: u64,
    /// Packets marked here.
    pub marked: u64,
    /// Packets lost here.
    pub lost: u64,
    /// How long data was paused.
    pub paused_us: f64,
}

/// One NIC port (plane), summed over all hosts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PathFacts {
    /// For example `port0`.
    pub name: String,
    /// Number of entropy values (modulo 256) with data packets.
    pub used: u64,
    /// Data packets sent.
    pub sent: u64,
    /// Feedback packets that echoed a mark.
    pub marked: u64,
    /// Trims that were reported.
    pub trimmed: u64,
    /// Packets of the busiest entropy value, divided by the mean over the values in use.
    pub imbalance: f64,
    /// Data packets per entropy value (modulo 256).
    pub sent_by_entropy: Vec<u64>,
}

//! The links of a fabric of moderate size, for its picture: use, queue, marks and losses of each.

use serde::{Deserialize, Serialize};

/// The links of a fabric. A run with time series has one if the fabric has at most 2,560 directed links; links of NICs
/// are left out if that is not enough.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MapFacts {
    /// The names of switches, and of hosts if links of NICs are shown.
    pub nodes: Vec<String>,
    /// One entry for each tier, direction and plane of links.
    pub groups: Vec<MapGroup>,
    /// The length of a frame.
    pub every_us: f64,
}

/// Similar links, in the order of their lower ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MapGroup {
    /// For example `leaf->spine.p0`.
    pub name: String,
    /// 0 host to leaf, 1 leaf to tier 1, 2 tier 1 to core.
    pub level: usize,
    /// True if they lead towards the core.
    pub up: bool,
    /// The plane.
    pub plane: u8,
    /// By link: its end farther from the core, an index into `nodes`.
    pub low: Vec<u32>,
    /// By link: its other end.
    pub high: Vec<u32>,
    /// By link: bytes carried divided by the bytes that it could carry, as in `links`.
    pub utilisation: Vec<f64>,
    /// By link: its longest queue. This and all that follow are empty if every link has zero.
    pub queue_max_bytes: Vec<u64>,
    /// By link: packets marked.
    pub marked: Vec<u64>,
    /// By link: packets trimmed.
    pub trimmed: Vec<u64>,
    /// By link: packets dropped.
    pub dropped: Vec<u64>,
    /// By link: packets lost to faults.
    pub lost: Vec<u64>,
    /// The places in this list of links with a fault at some time.
    pub faults: Vec<u32>,
    /// By frame and link: bytes sent divided by capacity; empty without time series of single links.
    pub frames: Vec<Vec<f64>>,
}

impl MapFacts {
    /// Number of links.
    pub fn links(&self) -> usize {
        self.groups.iter().map(|group| group.low.len()).sum()
    }
}

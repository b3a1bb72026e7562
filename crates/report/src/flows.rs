//! Flows in a report: counts, times and rates of all of them, of each class and of each collective.

use serde::{Deserialize, Serialize};

/// Number of flows, and the flows that did not finish.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowFacts {
    /// All flows.
    pub total: u64,
    /// Flows that finished.
    pub finished: u64,
    /// Flows that were never posted.
    pub never_started: u64,
    /// Payload bytes of all flows.
    pub bytes: u64,
    /// Payload bytes that have arrived, including those of unfinished flows.
    pub delivered_bytes: u64,
    /// Names of flows that did not finish, at most 100.
    pub unfinished: Vec<String>,
    /// For flows of a matrix that were never posted: the trigger that they wait for, such as `7: host0->host1 waits for
    /// trigger 3`; at most 100.
    pub waiting: Vec<String>,
    /// The slowest flows that finished, at most 10.
    pub slowest: Vec<SlowFlow>,
}

/// A flow with its times.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowFlow {
    /// Source and destination.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// When it was posted.
    pub start_us: f64,
    /// Its completion time.
    pub fct_us: f64,
}

/// A distribution. Values are absent if there is nothing to describe. Percentiles are by nearest rank: the smallest
/// value that is at least as large as the given share of all values. A flow that did not finish counts as one with
/// infinite time, and a percentile that falls on such a flow is absent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Spread {
    pub min: Option<f64>,
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
    pub p999: Option<f64>,
    pub max: Option<f64>,
    /// Flows without a value because they did not finish, including those that were never posted.
    pub unfinished: u64,
}

/// Payload rates. The time begins when the first flow is posted. It ends when the last flow has arrived, or, if some
/// flow never did, when the last byte arrived.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Goodput {
    /// The rate of all payload, divided by the number of hosts that send.
    pub mean_per_host: f64,
    /// The rate of all payload.
    pub total: f64,
    /// The rate of each flow: bytes divided by completion time; zero for a flow that did not finish.
    pub per_flow: Spread,
}

/// Packet counts of the whole fabric.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Packets {
    /// Data packets that left hosts, retransmissions included.
    pub sent: u64,
    /// Data packets that arrived whole and for the first time.
    pub delivered: u64,
    /// Packets dropped because a queue was full.
    pub dropped: u64,
    /// Packets lost to faults.
    pub lost: u64,
    /// Data packets trimmed to their header.
    pub trimmed: u64,
    /// Data packets marked by a switch.
    pub marked: u64,
    /// Data packets sent again.
    pub retransmitted: u64,
    /// Data packets that arrived whole although the receiver already had them.
    pub duplicates: u64,
    /// Data packets that arrived whole and were discarded: out of order (go-back-N), or beyond the receiver's window.
    pub discarded: u64,
    /// Part of `dropped`: control packets and trimmed packets.
    pub dropped_control: u64,
    /// Part of `lost`: control packets and trimmed packets.
    pub lost_control: u64,
    /// Whole data packets still in flight at the end. The sum is: sent + chunks + copies = delivered + duplicates +
    /// discarded + chunks_arrived + trimmed + dropped - dropped_control + lost - lost_control + under_way.
    pub under_way: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// NACKs sent.
    pub nacks: u64,
    /// Congestion notifications sent.
    pub notifications: u64,
    /// Retransmission timeouts that found overdue packets.
    pub timeouts: u64,
    /// Pause frames sent.
    pub pauses: u64,
    /// Retransmitted data packets divided by all data packets sent.
    pub retransmitted_share: f64,
    /// Payload bytes sent onto links; each byte counts once per link, host links included. Absent if headers and
    /// control packets differ in size, because links count only packets and bytes.
    pub payload_link_bytes: Option<u64>,
    /// Packets of erasure codes and casts.
    #[serde(flatten)]
    pub coded: CodedPackets,
    /// Fragments of gradients and sums that hosts and switches sent. They count in `under_way` like chunks.
    pub fragments: u64,
    /// Such fragments that arrived at hosts or stayed in switches.
    pub fragments_arrived: u64,
}

/// Packets of erasure codes and casts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CodedPackets {
    /// Multicast chunks that hosts cast to groups, and chunks sent to single hosts as repairs.
    pub chunks: u64,
    /// Part of `chunks`: those sent to single hosts.
    pub repairs: u64,
    /// Packets that switches added by copying.
    pub copies: u64,
    /// Whole chunks that arrived at hosts, including chunks that the host already had.
    pub chunks_arrived: u64,
    /// Chunks that hosts rebuilt from parity.
    pub rebuilt: u64,
}

/// One class of flows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassFacts {
    /// Its name.
    pub name: String,
    /// Number of its flows.
    pub total: u64,
    /// Flows that finished.
    pub finished: u64,
    /// Payload bytes of its flows.
    pub bytes: u64,
    /// Completion times.
    pub fct_us: Spread,
    /// Completion time divided by that of the same flow alone.
    pub slowdown: Spread,
    /// Jain's fairness index of the rates (bytes divided by completion time) of flows that finished: 1 if all rates are
    /// equal, 1/n if one of n flows has all.
    pub fairness: Option<f64>,
}

/// One collective.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CollectiveFacts {
    /// Its workload's name; with several groups `NAME/0`, `NAME/1`, ...
    pub name: String,
    /// The group's number, if there are several.
    pub group: Option<u32>,
    /// The name in nccl-tests: `allreduce`, `reducescatter`, `allgather`, `alltoall`.
    pub kind: String,
    /// `ring`, `halving-doubling` or `windowed`.
    pub algorithm: String,
    /// How ranks were placed on hosts: `contiguous`, `random` or a file.
    pub placement: String,
    /// Number of ranks.
    pub ranks: u32,
    /// Bytes as nccl-tests counts them.
    pub bytes: u64,
    /// Number of its messages.
    pub messages: u64,
    /// Messages that arrived.
    pub received: u64,
    /// When the first message was posted.
    pub started_us: Option<f64>,
    /// Time from then until the last rank had received everything; absent if a rank never had.
    pub time_us: Option<f64>,
    /// Lower bound of the time, by arithmetic.
    pub bound_us: f64,
    /// Bytes divided by time, in 10^9 bytes per second.
    #[serde(rename = "algbw_GBps")]
    pub algbw: Option<f64>,
    /// Bus bandwidth as nccl-tests defines it, in 10^9 bytes per second.
    #[serde(rename = "busbw_GBps")]
    pub busbw: Option<f64>,
}

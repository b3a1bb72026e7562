//! The report of a run: one plain structure, rendered as text, JSON, Markdown or HTML.
//!
//! Scripts depend on its JSON form: fields are added, never renamed.

mod aggregation;
mod below;
mod capacity;
mod choice;
pub(crate) mod cost;
mod crowd;
pub mod csv;
mod evs;
pub mod html;
mod job;
pub mod lines;
mod long;
mod make;
pub mod markdown;
mod parts;
mod series;
mod spread;
pub mod text;
mod why;

use crate::plan::Origin;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

pub use aggregation::{AggregationFacts, OccupancyFacts, SwitchFacts};
pub use cost::{CostFacts, TableFacts};
pub use job::{ExposedFacts, JobFacts, OperationFacts, TimelineFacts};
pub use parts::{LaneFacts, PartFacts};
pub use series::{GroupSeriesFacts, PathSeriesFacts, SeriesFacts, WatchedFacts};
pub use why::WhyFacts;

/// [`Report::world`] of a simulated run.
pub(crate) const SIMULATED: &str = "simulated";

/// [`Report::world`] of a run between real nodes.
pub(crate) const NAMESPACES: &str = "namespaces";

/// A run's result. It can be read back from its JSON form; what older versions did not write has its default then.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Format of this document: 1.
    pub format: u32,
    /// Version of Strandway.
    pub version: String,
    /// The scenario's name.
    pub scenario: String,
    /// The scenario's description.
    pub description: String,
    /// The profile's name.
    pub profile: String,
    /// The seed.
    pub seed: u64,
    /// A fingerprint of every flow's times and every link's counters, in hex; the same on any number of threads.
    pub digest: String,
    /// Where it ran: `simulated`, or `namespaces` for real nodes on a fabric of Linux network namespaces. There, queue
    /// lengths, pauses, packet hops and events are not measured, and there is no digest: these fields are zero or
    /// empty.
    pub world: String,
    /// How the run ended: `finished`, `time limit`, `interrupted` or `stalled`.
    pub end: String,
    /// The run itself.
    pub run: RunFacts,
    /// The fabric, and values computed from it.
    pub fabric: FabricFacts,
    /// Number of flows, and the flows that did not finish.
    pub flows: FlowFacts,
    /// Flow completion times: from posting until the last acknowledgement reaches the sender, microseconds.
    pub fct_us: Spread,
    /// From posting until the receiver had the whole message, microseconds.
    pub received_us: Spread,
    /// Completion time divided by that of the same flow alone in the fabric.
    pub slowdown: Spread,
    /// Payload rates.
    pub goodput_gbps: Goodput,
    /// Packet counts.
    pub packets: Packets,
    /// One entry for each class of flows.
    pub classes: Vec<ClassFacts>,
    /// One entry for each tier, direction and plane of links.
    pub links: Vec<GroupFacts>,
    /// The ten links with the highest utilisation.
    pub hottest: Vec<LinkFacts>,
    /// Every long link between sites, in each direction; empty for a fabric in one place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub long_links: Vec<LongLinkFacts>,
    /// The repair schemes that `sdr_auto` chose, and the reasons; absent if no connection chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<ChoiceFacts>,
    /// The changes of MRC's entropy values; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ev_events: Option<EvFacts>,
    /// Jobs whose gradients switches add; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchFacts>,
    /// Training jobs that gather and scatter layer by layer; absent if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobFacts>,
    /// One entry for each NIC port: the feedback for its entropy values.
    pub paths: Vec<PathFacts>,
    /// Points of completion time (microseconds) and the share of flows that had finished by then; at most 200 points.
    pub fct_cdf: Vec<[f64; 2]>,
    /// Time series.
    pub series: Option<SeriesFacts>,
    /// Every parameter of the profile.
    pub parameters: Vec<ParameterFacts>,
    /// Profiles of single workloads, if they differ from the profile of the run. `parameters` are those of the run's
    /// profile.
    pub other_profiles: Vec<String>,
    /// Collectives, except those of the training jobs in `jobs`.
    pub collectives: Vec<CollectiveFacts>,
    /// The causes that limited the slowest flows, each class and each collective.
    pub why: Vec<WhyFacts>,
    /// The scenario's bounds, and whether they were met.
    pub expect: Vec<Expectation>,
    /// The faults of links.
    pub faults: Vec<FaultFacts>,
    /// Remarks that a reader needs besides the numbers.
    pub notes: Vec<String>,
    /// The file of the scenario, and its text after all changes.
    pub origin: Origin,
}

/// The changes of MRC's entropy values.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EvFacts {
    /// Events by kind: `failed`, `kept`, `answered`, `unanswered`, `returned`, `denied`, `allowed`, `replaced`.
    pub counts: BTreeMap<String, u64>,
    /// Events that were lost because a connection had too many.
    pub lost: u64,
    /// The first 1,000 events, in order of time.
    pub events: Vec<EvEventFacts>,
}

/// A change of an entropy value.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EvEventFacts {
    /// When it happened.
    pub at_us: f64,
    /// The sender.
    pub host: u32,
    /// The receiver.
    pub peer: u32,
    /// The plane.
    pub plane: u8,
    /// The number of the path in the plane.
    pub path: u32,
    /// What happened, as in `counts`.
    pub change: Cow<'static, str>,
}

/// One fault.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultFacts {
    /// The links and the kind of fault, such as `plane 2 down, silent`.
    pub what: String,
    /// When it begins.
    pub from_us: f64,
    /// When it ends; absent if it lasts for the whole run.
    pub until_us: Option<f64>,
    /// Number of directed links with the fault.
    pub links: u64,
    /// From its beginning to the last data packet that it swallowed: how long senders took to leave its links. Absent if it swallowed none, and
    /// between real hosts.
    pub avoided_after_us: Option<f64>,
}

/// The run itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunFacts {
    /// Wall-clock time, seconds.
    pub wall_s: f64,
    /// Simulated time until the last flow finished, or until the run was stopped.
    pub simulated_us: f64,
    /// Events processed.
    pub events: u64,
    /// Packets times links: each link that a packet enters counts once.
    pub packet_hops: u64,
    /// Packet hops per second of wall-clock time.
    pub hops_per_s: f64,
    /// Number of threads.
    pub threads: usize,
    /// Peak resident memory of the process so far; 0 if the system does not report it.
    pub peak_rss_bytes: u64,
    /// Hosts in the fabric.
    pub hosts: u32,
}

/// The fabric, and values computed from it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricFacts {
    /// The fabric's `kind` in the scenario.
    pub kind: String,
    /// Number of tiers: 2 or 3.
    pub tiers: usize,
    /// Number of sites that long links join; 0 if the fabric is in one place.
    pub sites: u32,
    /// Number of planes.
    pub planes: u8,
    /// Leaves, all planes together.
    pub leaves: u32,
    /// Spines or aggregation switches, all planes together.
    pub spines: u32,
    /// Cores, all planes together.
    pub cores: u32,
    /// Directed links.
    pub directed_links: u32,
    /// Rate of a NIC, all planes together.
    pub rate_gbps: f64,
    /// Round trip of a full packet and its acknowledgement over the longest path, without queues.
    pub base_rtt_us: f64,
    /// Rate of a host's link times base RTT. For a fabric of sites, times the round trip within a site.
    pub bdp_bytes: u64,
    /// Limit of a data queue. (With PFC: the limit before PFC removed it.)
    pub queue_bytes: u64,
    /// Queue length above which packets are marked with some probability; 0 without marking.
    pub ecn_low_bytes: u64,
    /// Queue length above which every packet is marked; 0 without marking.
    pub ecn_high_bytes: u64,
    /// True if switches trim packets.
    pub trimming: bool,
    /// True if switches send pause frames.
    pub pfc: bool,
    /// How switches choose an uplink: `hashed`, `direct` or `source`.
    pub routing: String,
    /// The switches, links and optics of the fabric.
    pub cost: CostFacts,
    /// The same for the same NICs on one plane of the same switches. Absent for a fabric with one plane, and if four
    /// tiers are not enough.
    pub single_plane: Option<CostFacts>,
    /// Entries of the switches' tables if they forward by static source routes.
    pub tables: TableFacts,
}

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
    /// Fragments of gradients and sums that hosts and switches sent. They count in `under_way` like chunks.
    pub fragments: u64,
    /// Such fragments that arrived at hosts or stayed in switches.
    pub fragments_arrived: u64,
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
    /// The same for the busiest link.
    pub utilisation_max: f64,
    /// The same for the least busy link.
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

/// The choices of `sdr_auto` for the messages of a run, over all connections.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChoiceFacts {
    /// Number of connections that chose.
    pub connections: u64,
    /// The repair schemes in use, and their messages.
    pub plans: Vec<PlanFacts>,
    /// Measured share of packets lost, mean over connections.
    pub loss: f64,
    /// Measured number of packets lost in a row, mean over connections.
    pub burst: f64,
    /// Measured round trip, mean over connections.
    pub rtt_us: f64,
    /// The last choice of the connection with the most messages, with the model's prediction for it.
    pub last: Option<ChoiceOption>,
    /// The next best scheme at that choice.
    pub next: Option<ChoiceOption>,
}

/// A repair scheme, and the number of messages that used it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanFacts {
    /// The name of the scheme.
    pub plan: String,
    /// Number of messages.
    pub messages: u64,
}

/// A repair scheme, and the model's prediction for it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChoiceOption {
    /// The name of the scheme.
    pub plan: String,
    /// Predicted mean completion time.
    pub mean_us: f64,
    /// Predicted 99.9th percentile of the completion time.
    pub p999_us: f64,
}

/// One direction of a long link between sites.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LongLinkFacts {
    /// Its rate.
    pub rate_gbps: f64,
    /// Its propagation delay.
    pub latency_us: f64,
    /// Limit on the bytes in the data queue of its port.
    pub queue_bytes: u64,
    /// Packets lost divided by packets sent onto it.
    pub lost_share: f64,
    /// Its counters.
    #[serde(flatten)]
    pub link: LinkFacts,
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

/// A parameter of the profile.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ParameterFacts {
    /// Its group.
    pub group: String,
    /// Its name.
    pub name: String,
    /// Its value in this run.
    pub value: String,
    /// The group's default.
    pub default: String,
    /// Its effect.
    pub what: String,
    /// The source of its default.
    pub source: String,
}

/// A bound and whether it was met.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Expectation {
    /// The value's path in this document.
    pub key: String,
    /// The bound as written.
    pub bound: String,
    /// The value; absent if the run gave none.
    pub value: Option<f64>,
    /// True if it was met.
    pub met: bool,
}

impl Report {
    /// As JSON, with a line break at the end.
    pub fn to_json(&self) -> String {
        to_json(self)
    }

    /// Every number of the report by its dotted path. Entries of lists are named by their `name`.
    pub fn values(&self) -> BTreeMap<String, Option<f64>> {
        let mut values = BTreeMap::new();
        if let Ok(value) = serde_json::to_value(self) {
            flatten("", &value, &mut values);
        }
        for slowest in self.slowest_collectives() {
            let mut note = |field: &str, value| {
                values.insert(format!("collectives.{}.{field}", slowest.name), value);
            };
            note("time_us", slowest.time_us);
            note("bound_us", Some(slowest.bound_us));
            note("algbw_GBps", slowest.algbw);
            note("busbw_GBps", slowest.busbw);
        }
        values
    }

    /// For each workload the slowest of its groups, under the workload's name. It counts as unfinished if one of its
    /// groups is.
    pub fn slowest_collectives(&self) -> Vec<CollectiveFacts> {
        let mut slowest: Vec<CollectiveFacts> = Vec::new();
        for collective in &self.collectives {
            let mut one = collective.clone();
            if one.group.is_some() {
                one.name = one.name.rsplit_once('/').map_or(one.name.clone(), |(name, _)| name.to_string());
            }
            let Some(all) = slowest.iter_mut().find(|s| s.name == one.name) else {
                slowest.push(one);
                continue;
            };
            let worse = |a: Option<f64>, b: Option<f64>, of: fn(f64, f64) -> f64| a.zip(b).map(|(a, b)| of(a, b));
            all.group = all.group.max(one.group);
            all.messages += one.messages;
            all.received += one.received;
            all.started_us = all.started_us.into_iter().chain(one.started_us).min_by(f64::total_cmp);
            all.time_us = worse(all.time_us, one.time_us, f64::max);
            all.bound_us = all.bound_us.max(one.bound_us);
            all.algbw = worse(all.algbw, one.algbw, f64::min);
            all.busbw = worse(all.busbw, one.busbw, f64::min);
        }
        slowest
    }

    /// True for a simulated run.
    pub fn is_simulated(&self) -> bool {
        self.world == SIMULATED
    }

    /// True if all bounds were met.
    pub fn met(&self) -> bool {
        self.expect.iter().all(|e| e.met)
    }
}

/// Any report document as indented JSON with a line break at the end.
pub fn to_json<T: Serialize>(document: &T) -> String {
    let mut text = serde_json::to_string_pretty(document).unwrap_or_default();
    text.push('\n');
    text
}

fn flatten(prefix: &str, value: &serde_json::Value, values: &mut BTreeMap<String, Option<f64>>) {
    use serde_json::Value;
    let below = |name: &str| if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
    match value {
        Value::Number(n) => {
            values.insert(prefix.to_string(), n.as_f64());
        }
        Value::Null => {
            values.insert(prefix.to_string(), None);
        }
        Value::Bool(b) => {
            values.insert(prefix.to_string(), Some(f64::from(u8::from(*b))));
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                if name == "faults" {
                    // Faults have no names, only numbers.
                    for (i, fault) in field.as_array().into_iter().flatten().enumerate() {
                        let avoided = fault.get("avoided_after_us").and_then(Value::as_f64);
                        values.insert(format!("{}.{i}.avoided_after_us", below(name)), avoided);
                    }
                } else if !matches!(
                    name.as_str(),
                    "expect" | "timeline" | "hottest" | "slowest" | "parameters" | "series" | "fct_cdf" | "origin"
                ) {
                    flatten(&below(name), field, values);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                if let Some(name) = item.get("name").and_then(Value::as_str) {
                    flatten(&below(name), item, values);
                }
            }
        }
        Value::String(_) => {}
    }
}

//! What a run is reported as: one plain structure, rendered as text, JSON, Markdown or HTML.
//!
//! Its JSON form is the format that scripts depend on: fields are added, never renamed.

mod aggregation;
mod capacity;
mod choice;
pub(crate) mod cost;
mod crowd;
pub mod csv;
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
use serde::Serialize;
use std::collections::BTreeMap;

pub use aggregation::{AggregationFacts, OccupancyFacts, SwitchFacts};
pub use cost::{CostFacts, TableFacts};
pub use job::{ExposedFacts, JobFacts, OperationFacts, TimelineFacts};
pub use parts::PartFacts;
pub use series::{GroupSeriesFacts, PathSeriesFacts, SeriesFacts, WatchedFacts};
pub use why::WhyFacts;

/// [`Report::world`] of a simulated run.
pub(crate) const SIMULATED: &str = "simulated";

/// [`Report::world`] of a run between real nodes.
pub(crate) const NAMESPACES: &str = "namespaces";

/// A run's result.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Format of this document: 1.
    pub format: u32,
    /// Version of Strandway.
    pub version: String,
    /// The scenario's name.
    pub scenario: String,
    /// What the scenario is about.
    pub description: String,
    /// The profile's name.
    pub profile: String,
    /// The seed.
    pub seed: u64,
    /// A fingerprint of every flow's times and every link's counters, in hex; the same on any number of threads.
    pub digest: String,
    /// Where it ran: `simulated`, or `namespaces` for real nodes on a fabric of Linux network namespaces. There nobody measures
    /// queue lengths, pauses, packet hops and events, and there is no digest: these fields are zero or empty.
    pub world: String,
    /// How the run ended: `finished`, `time limit`, `interrupted` or `stalled`.
    pub end: String,
    /// The run itself.
    pub run: RunFacts,
    /// The fabric and what follows from it.
    pub fabric: FabricFacts,
    /// How many flows there were.
    pub flows: FlowFacts,
    /// Flow completion times: from posting to the sender's last acknowledgement, microseconds.
    pub fct_us: Spread,
    /// From posting until the receiver had everything, microseconds.
    pub received_us: Spread,
    /// Completion time over that of the same flow alone in the fabric.
    pub slowdown: Spread,
    /// Payload rates.
    pub goodput_gbps: Goodput,
    /// Packet counts.
    pub packets: Packets,
    /// Per class of flows.
    pub classes: Vec<ClassFacts>,
    /// Per tier, direction and plane.
    pub links: Vec<GroupFacts>,
    /// The ten links that carried the most of what they could.
    pub hottest: Vec<LinkFacts>,
    /// Every long link between sites, in each direction; empty for a fabric that is one place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub long_links: Vec<LongLinkFacts>,
    /// Which repair schemes `sdr_auto` chose, and why; absent where nothing chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<ChoiceFacts>,
    /// Jobs whose gradients switches add; absent where none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchFacts>,
    /// Training jobs that gather and scatter layer by layer; absent where there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobFacts>,
    /// Per NIC port, how its entropy values fared.
    pub paths: Vec<PathFacts>,
    /// Completion times (microseconds) and the share of flows that finished by then; at most 200 points.
    pub fct_cdf: Vec<[f64; 2]>,
    /// Values over time.
    pub series: Option<SeriesFacts>,
    /// Every parameter of the profile.
    pub parameters: Vec<ParameterFacts>,
    /// Profiles that single workloads use beside that of the run; parameters are the latter's.
    pub other_profiles: Vec<String>,
    /// Collectives, but for those of training jobs in `jobs`.
    pub collectives: Vec<CollectiveFacts>,
    /// What limited the slowest flows, each class and each collective.
    pub why: Vec<WhyFacts>,
    /// The scenario's bounds and whether they were met.
    pub expect: Vec<Expectation>,
    /// What broke, and when.
    pub faults: Vec<FaultFacts>,
    /// What a reader must know beyond the numbers.
    pub notes: Vec<String>,
    /// Where the scenario comes from, and what it says after all changes.
    pub origin: Origin,
}

/// One fault.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FaultFacts {
    /// Where it strikes and what it does, such as `plane 2 down, silent`.
    pub what: String,
    /// From when.
    pub from_us: f64,
    /// Until when; absent if for good.
    pub until_us: Option<f64>,
    /// How many directed links it strikes.
    pub links: u64,
}

/// The run itself.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RunFacts {
    /// Wall-clock time, seconds.
    pub wall_s: f64,
    /// Simulated time until the last flow finished or the run was cut short.
    pub simulated_us: f64,
    /// Events processed.
    pub events: u64,
    /// Packets that left one port onto one link.
    pub packet_hops: u64,
    /// Packet hops per second of wall-clock time.
    pub hops_per_s: f64,
    /// Threads that shared the work.
    pub threads: usize,
    /// The process's peak resident memory so far; 0 where the system does not tell.
    pub peak_rss_bytes: u64,
    /// Hosts in the fabric.
    pub hosts: u32,
}

/// The fabric and what follows from it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FabricFacts {
    /// As the scenario calls it.
    pub kind: String,
    /// 2 or 3.
    pub tiers: usize,
    /// Sites that long links join; 0 if the fabric is one place.
    pub sites: u32,
    /// Planes.
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
    /// Round trip of a full packet and its acknowledgement over the longest path without queueing.
    pub base_rtt_us: f64,
    /// Rate of a host's link times base RTT; in a fabric of sites times the round trip within a site.
    pub bdp_bytes: u64,
    /// Limit of a data queue (with PFC: before it became unlimited).
    pub queue_bytes: u64,
    /// Packets are marked from this queue length on; 0 without marking.
    pub ecn_low_bytes: u64,
    /// Every packet is marked from this queue length on; 0 without marking.
    pub ecn_high_bytes: u64,
    /// Do switches trim?
    pub trimming: bool,
    /// Do switches pause?
    pub pfc: bool,
    /// How switches choose: `hashed`, `direct` or `source`.
    pub routing: String,
    /// What it is made of.
    pub cost: CostFacts,
    /// What the same NICs need on one plane of the same switches; absent with one plane, or if four tiers do not hold them.
    pub single_plane: Option<CostFacts>,
    /// Entries of the switches' tables if they forwarded static source routes.
    pub tables: TableFacts,
}

/// How many flows there were.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FlowFacts {
    /// All.
    pub total: u64,
    /// Those that finished.
    pub finished: u64,
    /// Those that were never posted.
    pub never_started: u64,
    /// Payload bytes of all.
    pub bytes: u64,
    /// Payload bytes that have arrived, those of unfinished flows among them.
    pub delivered_bytes: u64,
    /// Names of flows that did not finish; at most 100.
    pub unfinished: Vec<String>,
    /// What flows of a matrix that were never posted wait for, such as `7: host0->host1 waits for trigger 3`; at most 100.
    pub waiting: Vec<String>,
    /// The slowest that finished; at most 10.
    pub slowest: Vec<SlowFlow>,
}

/// A flow worth naming.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SlowFlow {
    /// Who to whom.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// When it was posted.
    pub start_us: f64,
    /// Its completion time.
    pub fct_us: f64,
}

/// A distribution; values are absent if there is nothing to describe. Percentiles are by nearest rank: the smallest value
/// that at least that share of all values do not exceed. A flow that did not finish counts as one that takes for ever: what
/// would fall on such a flow is absent.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Spread {
    pub min: Option<f64>,
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
    pub p999: Option<f64>,
    pub max: Option<f64>,
    /// Flows that have no value, since they did not finish. Those that were never posted count, too.
    pub unfinished: u64,
}

/// Payload rates, from the first posting until the last flow had arrived; where a flow never did, until the last byte arrived.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Goodput {
    /// All payload, divided by the number of hosts that send.
    pub mean_per_host: f64,
    /// All payload.
    pub total: f64,
    /// Of single flows: bytes over completion time; zero of a flow that did not finish.
    pub per_flow: Spread,
}

/// Packet counts over the whole fabric.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Packets {
    /// Data packets that left hosts, retransmissions included.
    pub sent: u64,
    /// Data packets that arrived whole and for the first time.
    pub delivered: u64,
    /// Packets that found no room.
    pub dropped: u64,
    /// Packets lost to faults.
    pub lost: u64,
    /// Data packets cut to their header.
    pub trimmed: u64,
    /// Data packets marked by a switch.
    pub marked: u64,
    /// Data packets sent again.
    pub retransmitted: u64,
    /// Data packets that arrived whole though they were here already.
    pub duplicates: u64,
    /// Data packets that arrived whole and were thrown away: out of order (go-back-N), or beyond the receiver's window.
    pub discarded: u64,
    /// Of the dropped packets, those that were no whole data packets: control packets and trimmed ones.
    pub dropped_control: u64,
    /// Of the lost packets, those that were no whole data packets.
    pub lost_control: u64,
    /// Whole data packets that were still on their way at the end: sent + chunks + copies = delivered + duplicates + discarded +
    /// chunks_arrived + trimmed + dropped - dropped_control + lost - lost_control + under_way.
    pub under_way: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// NACKs sent.
    pub nacks: u64,
    /// Congestion notifications sent.
    pub notifications: u64,
    /// Retransmission timeouts that found packets overdue.
    pub timeouts: u64,
    /// Pause frames sent.
    pub pauses: u64,
    /// Data packets sent again, as a share of all that were sent.
    pub retransmitted_share: f64,
    /// Payload bytes that left onto links, each counted once per link, host links included. Absent where headers and control packets
    /// differ in size, since links count packets and bytes only.
    pub payload_link_bytes: Option<u64>,
    /// Chunks of multicasts that hosts cast to groups, and to single hosts as repairs.
    pub chunks: u64,
    /// Those of them that went to single hosts.
    pub repairs: u64,
    /// Packets that switches made by copying.
    pub copies: u64,
    /// Whole chunks that arrived at hosts, also those that were there already.
    pub chunks_arrived: u64,
    /// Chunks that hosts rebuilt from parity.
    pub rebuilt: u64,
    /// Fragments of gradients and sums, with their numbers, that hosts and switches sent, and that arrived at hosts or stayed in switches.
    /// They count in `under_way` as chunks do.
    pub fragments: u64,
    /// See `fragments`.
    pub fragments_arrived: u64,
}

/// One class of flows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClassFacts {
    /// Its name.
    pub name: String,
    /// Its flows.
    pub total: u64,
    /// Those that finished.
    pub finished: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Completion times.
    pub fct_us: Spread,
    /// Completion time over that of the same flow alone.
    pub slowdown: Spread,
    /// Jain's index of the rates (bytes over completion time) of those that finished: 1 if all are alike, 1/n if one has all.
    pub fairness: Option<f64>,
}

/// One collective.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CollectiveFacts {
    /// Its workload's name; with several groups `NAME/0`, `NAME/1`, ...
    pub name: String,
    /// The group's number, if there are several.
    pub group: Option<u32>,
    /// As nccl-tests calls it: `allreduce`, `reducescatter`, `allgather`, `alltoall`.
    pub kind: String,
    /// `ring`, `halving-doubling` or `windowed`.
    pub algorithm: String,
    /// How ranks were put on hosts: `contiguous`, `random` or a file.
    pub placement: String,
    /// How many took part.
    pub ranks: u32,
    /// Bytes as nccl-tests counts them.
    pub bytes: u64,
    /// Its messages.
    pub messages: u64,
    /// Those that arrived.
    pub received: u64,
    /// When the first message was posted.
    pub started_us: Option<f64>,
    /// From then until the last rank had everything; absent if one never had.
    pub time_us: Option<f64>,
    /// The least that it can take, by arithmetic.
    pub bound_us: f64,
    /// Bytes over time, in 10^9 bytes per second.
    #[serde(rename = "algbw_GBps")]
    pub algbw: Option<f64>,
    /// The same in terms of the NICs, as nccl-tests defines it.
    #[serde(rename = "busbw_GBps")]
    pub busbw: Option<f64>,
}

/// Like links: one tier, direction and plane.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GroupFacts {
    /// Such as `leaf->spine` or `host->leaf.p3`.
    pub name: String,
    /// 0 host to leaf, 1 leaf to tier 1, 2 tier 1 to core.
    pub level: usize,
    /// Towards the core?
    pub up: bool,
    /// The plane.
    pub plane: u8,
    /// How many.
    pub links: u32,
    /// Their rate.
    pub rate_gbps: f64,
    /// Bytes that left onto them.
    pub bytes: u64,
    /// Share of what they could carry while there was something to carry, slowed and dead links counted as such: mean over the
    /// links.
    pub utilisation: f64,
    /// The same of the busiest link.
    pub utilisation_max: f64,
    /// The same of the idlest link.
    pub utilisation_min: f64,
    /// Packets dropped here.
    pub dropped: u64,
    /// Packets trimmed here.
    pub trimmed: u64,
    /// Packets marked here.
    pub marked: u64,
    /// Packets lost here.
    pub lost: u64,
    /// The longest queue of data that ever stood here.
    pub queue_max_bytes: u64,
    /// How long their data was paused, all links together.
    pub paused_us: f64,
}

/// One link.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LinkFacts {
    /// Such as `leaf0->spine3`.
    pub name: String,
    /// Share of what it could carry while there was something to carry, at the rate that it had at each time.
    pub utilisation: f64,
    /// Bytes that left onto it.
    pub bytes: u64,
    /// Packets that left onto it.
    pub packets: u64,
    /// The longest queue of data that ever stood here.
    pub queue_max_bytes: u64,
    /// Packets dropped here.
    pub dropped: u64,
    /// Packets trimmed here.
    pub trimmed: u64,
    /// Packets marked here.
    pub marked: u64,
    /// Packets lost here.
    pub lost: u64,
    /// How long its data was paused.
    pub paused_us: f64,
}

/// What `sdr_auto` chose for the messages of a run, all connections together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChoiceFacts {
    /// Connections that chose.
    pub connections: u64,
    /// The plans that messages had.
    pub plans: Vec<PlanFacts>,
    /// Share of packets that is lost, as measured: mean over connections.
    pub loss: f64,
    /// Packets in a row that are lost, as measured: mean over connections.
    pub burst: f64,
    /// Round trip, as measured: mean over connections.
    pub rtt_us: f64,
    /// The last choice of the connection with the most messages, and what the model expected of it.
    pub last: Option<ChoiceOption>,
    /// The best of the others, by the same.
    pub next: Option<ChoiceOption>,
}

/// A repair scheme and the messages that had it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PlanFacts {
    /// What it is.
    pub plan: String,
    /// How many messages.
    pub messages: u64,
}

/// A repair scheme and what the model expects of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChoiceOption {
    /// What it is.
    pub plan: String,
    /// Mean completion time.
    pub mean_us: f64,
    /// Its 99.9th percentile.
    pub p999_us: f64,
}

/// One direction of a long link between sites.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LongLinkFacts {
    /// Its rate.
    pub rate_gbps: f64,
    /// Its propagation delay.
    pub latency_us: f64,
    /// What the data queue of its port holds at the most.
    pub queue_bytes: u64,
    /// Packets lost, as a share of those that left onto it.
    pub lost_share: f64,
    /// What it carried.
    #[serde(flatten)]
    pub link: LinkFacts,
}

/// One NIC port (plane) over all hosts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PathFacts {
    /// Such as `port0`.
    pub name: String,
    /// Entropy values (modulo 256) that carried anything.
    pub used: u64,
    /// Data packets sent.
    pub sent: u64,
    /// Feedback that echoed a mark.
    pub marked: u64,
    /// Trims reported.
    pub trimmed: u64,
    /// The busiest entropy value's packets over the mean of those used.
    pub imbalance: f64,
    /// Data packets per entropy value (modulo 256).
    pub sent_by_entropy: Vec<u64>,
}

/// A parameter of the profile.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ParameterFacts {
    /// Its group.
    pub group: String,
    /// Its name.
    pub name: String,
    /// Its value in this run.
    pub value: String,
    /// The group's default.
    pub default: String,
    /// What it does.
    pub what: String,
    /// Where it comes from.
    pub source: String,
}

/// A bound and whether it was met.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Expectation {
    /// The value's path in this document.
    pub key: String,
    /// The bound as written.
    pub bound: String,
    /// The value; absent if the run gave none.
    pub value: Option<f64>,
    /// Was it met?
    pub met: bool,
}

impl Report {
    /// As JSON, with a line break at the end.
    pub fn to_json(&self) -> String {
        to_json(self)
    }

    /// Every number of the report by its dotted path; members of lists by their name.
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

    /// Per workload the worst of its groups, under the workload's name; it did not finish if one of them did not.
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

    /// Was it simulated?
    pub fn is_simulated(&self) -> bool {
        self.world == SIMULATED
    }

    /// Were all bounds met?
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
                if !matches!(
                    name.as_str(),
                    "expect"
                        | "timeline"
                        | "hottest"
                        | "slowest"
                        | "parameters"
                        | "series"
                        | "fct_cdf"
                        | "origin"
                        | "faults"
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

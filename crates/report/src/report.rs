//! The report of a run: one plain structure, rendered as text, JSON, Markdown or HTML.
//!
//! Scripts depend on its JSON form: fields are added, never renamed.

use crate::aggregation::SwitchFacts;
use crate::approximate::ApproximateFacts;
use crate::choice::ChoiceFacts;
use crate::cost::{CostFacts, TableFacts};
use crate::evs::EvFacts;
use crate::flows::{ClassFacts, CollectiveFacts, FlowFacts, Goodput, Packets, Spread};
use crate::job::JobFacts;
use crate::links::{GroupFacts, LinkFacts, PathFacts};
use crate::long_links::LongLinkFacts;
use crate::map::MapFacts;
use crate::series::SeriesFacts;
use crate::service::ServiceFacts;
use crate::why::WhyFacts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// [`HeadFacts::world`] of a simulated run.
pub const SIMULATED: &str = "simulated";

/// [`HeadFacts::world`] of a run between real nodes.
pub const NAMESPACES: &str = "namespaces";

/// A run's result. It can be read back from its JSON form; what older versions did not write has its default then.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The run's name, world and end.
    #[serde(flatten)]
    pub head: HeadFacts,
    /// The run itself.
    pub run: RunFacts,
    /// The fabric, and values computed from it.
    pub fabric: FabricFacts,
    /// Number of flows, and the flows that did not finish.
    pub flows: FlowFacts,
    /// Times and rates of flows.
    #[serde(flatten)]
    pub times: TimeFacts,
    /// Packet counts.
    pub packets: Packets,
    /// One entry for each class of flows.
    pub classes: Vec<ClassFacts>,
    /// The load of links.
    #[serde(flatten)]
    pub load: LoadFacts,
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
    /// Inference services; absent if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceFacts>,
    /// Values by path, share and time.
    #[serde(flatten)]
    pub curves: CurveFacts,
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
    /// The cost of the faults, with `run.healthy`: of each job, else of each collective, else of the slowest flow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fault_costs: Vec<FaultCost>,
    /// How the figures were found, if smaller runs stand for the whole one. Then there are only jobs, and no flows, links
    /// and packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approximate: Option<ApproximateFacts>,
    /// Remarks that a reader needs besides the numbers.
    pub notes: Vec<String>,
    /// The file of the scenario, and its text after all changes.
    pub origin: Origin,
}

/// The run's name, world and end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HeadFacts {
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
}

/// Times and rates of flows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeFacts {
    /// Flow completion times: from posting until the last acknowledgement reaches the sender, microseconds.
    pub fct_us: Spread,
    /// From posting until the receiver had the whole message, microseconds.
    pub received_us: Spread,
    /// Completion time divided by that of the same flow alone in the fabric.
    pub slowdown: Spread,
    /// Payload rates.
    pub goodput_gbps: Goodput,
}

/// The load of links.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadFacts {
    /// One entry for each tier, direction and plane of links.
    pub links: Vec<GroupFacts>,
    /// The ten links with the highest utilisation.
    pub hottest: Vec<LinkFacts>,
    /// Every long link between sites, in each direction; empty for a fabric in one place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub long_links: Vec<LongLinkFacts>,
}

/// Values by path, share and time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CurveFacts {
    /// One entry for each NIC port: the feedback for its entropy values.
    pub paths: Vec<PathFacts>,
    /// Points of completion time (microseconds) and the share of flows that had finished by then; at most 200 points.
    pub fct_cdf: Vec<[f64; 2]>,
    /// Time series.
    pub series: Option<SeriesFacts>,
    /// Every link of a fabric of moderate size; absent without time series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<MapFacts>,
}

/// One fault.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultFacts {
    /// Its name; absent if the scenario gives none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The links and the kind of fault, such as `plane 2 down, silent`.
    pub what: String,
    /// When it begins.
    pub from_us: f64,
    /// When it ends; absent if it lasts for the whole run.
    pub until_us: Option<f64>,
    /// Number of directed links with the fault.
    pub links: u64,
    /// From its beginning to the last data packet that it swallowed: how long senders took to leave its links. Absent
    /// if it swallowed none, and between real hosts.
    pub avoided_after_us: Option<f64>,
}

impl FaultFacts {
    /// Its name, or the links and the kind of fault if it has none.
    pub fn label(&self) -> &str {
        if self.name.is_empty() { &self.what } else { &self.name }
    }

    /// Its name, and the links and the kind of fault.
    pub fn summary(&self) -> String {
        if self.name.is_empty() { self.what.clone() } else { format!("{} ({})", self.name, self.what) }
    }
}

/// One time with and without the faults.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultCost {
    /// The name of the job or the collective; `flows` for the slowest flow of a run without either.
    pub name: String,
    /// The kind of time: `iteration`, `collective` or `slowest flow`.
    pub kind: String,
    /// The time with the faults, us; absent if it did not end.
    pub time_us: Option<f64>,
    /// The time without the scenario's faults, us.
    pub healthy_us: Option<f64>,
    /// The difference, us.
    pub cost_us: Option<f64>,
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
    /// The switches, links and optics of a fabric that connects the same NICs by one plane of such switches. Absent for
    /// a fabric with one plane, and if four tiers are not enough.
    pub single_plane: Option<CostFacts>,
    /// Entries of the switches' tables if they forward by static source routes.
    pub tables: TableFacts,
}

impl FabricFacts {
    /// True for a graph of switches: they all have one kind, and there are no tiers above them.
    pub fn is_graph(&self) -> bool {
        self.leaves > 0 && self.spines == 0 && self.sites == 0
    }
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

/// The file of a scenario, and its text after all changes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// The file's name as given.
    pub file: String,
    /// The command line that asked for the run; empty if there was none.
    pub command: String,
    /// The changes by the command line or a sweep, by dotted key.
    pub set: BTreeMap<String, String>,
    /// The scenario with all changes, as TOML.
    pub scenario: String,
}

impl Report {
    /// As JSON, with a line break at the end.
    pub fn to_json(&self) -> String {
        to_json(self)
    }

    /// True for a simulated run.
    pub fn is_simulated(&self) -> bool {
        self.head.world == SIMULATED
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

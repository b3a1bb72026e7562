//! Jobs whose gradients switches add: completion times, where sums were made, and how slots were used.

use crate::grid::{ALWAYS, Grid};
use crate::numbers::{count, percent, us};
use serde::{Deserialize, Serialize};

/// Limit on the rows that a terminal shows. JSON has all of them.
const SHOWN: usize = 16;

/// The work of the switches that add gradients. ESA sheet, section 13.5.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchFacts {
    /// The system that they ran: `esa`, `atp` or `switchml`.
    pub system: String,
    /// Slots of each switch.
    pub slots: u32,
    /// Number of switches that ran it.
    pub switches: u32,
    /// Mean job completion time: from the start of the first worker until the last worker has all results. Absent
    /// unless all jobs ended.
    pub jct_mean_us: Option<f64>,
    /// Median job completion time.
    pub jct_p50_us: Option<f64>,
    /// 99th percentile of the job completion time.
    pub jct_p99_us: Option<f64>,
    /// From the start of the first job to the end of the last one.
    pub makespan_us: Option<f64>,
    /// Sums over all jobs; shares are means over their fragments.
    pub all: AggregationFacts,
    /// The share of fragments with the lowest or the highest possible priority.
    pub priorities_at_ends: f64,
    /// Interval between points of `occupancy`.
    pub every_us: f64,
    /// Per job: the share of the slots of the busiest switch that it held. Empty unless time series are recorded.
    pub occupancy: Vec<OccupancyFacts>,
    /// One entry for each job.
    pub jobs: Vec<AggregationFacts>,
}

/// The share of slots that a job held over time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OccupancyFacts {
    /// The job's name.
    pub name: String,
    /// Mean over each interval.
    pub share: Vec<f64>,
}

/// The fragments of one job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AggregationFacts {
    /// The job's name, which is that of its collective.
    pub name: String,
    /// Its completion time; absent if it did not end.
    pub jct_us: Option<f64>,
    /// Fragments that workers sent for the first time.
    pub fragments: u64,
    /// The share of them that a switch added into a complete sum of its rack.
    pub in_switch_share: f64,
    /// Packets with numbers that the server received, divided by the fragments of one worker: 1 if it receives only
    /// complete sums, 0 if it receives none.
    pub server_load: f64,
    /// Mean share of all slots that the job held during the run.
    pub occupancy: f64,
    /// Fragments added, per slot held and microsecond.
    pub useful_rate: f64,
    /// The share of the time of held slots in which no fragment arrived for longer than a round trip.
    pub idle_share: f64,
    /// The share of fragments that found no slot.
    pub refused_share: f64,
    /// Fragments that took a slot from another sum.
    pub preemptions: u64,
    /// Sums that lost their slot to another fragment.
    pub evicted: u64,
    /// Fragments that found no slot.
    pub refused: u64,
    /// Slots whose priority fell to zero.
    pub decayed: u64,
    /// Fragments that the sum in their slot already contained, including ghosts.
    pub duplicates: u64,
    /// Fragments sent again.
    pub resent: u64,
    /// Sums that the server completed.
    pub server_completed: u64,
    /// Questions of workers to the server.
    pub reminders: u64,
    /// Questions of the server to switches.
    pub flushes: u64,
    /// Questions of the server to workers.
    pub solicits: u64,
    /// Fragments sent as floating-point numbers.
    pub floats: u64,
    /// Results that reported a long queue, over all workers.
    pub marked: u64,
    /// Results that arrived a second time.
    pub late_results: u64,
}

/// The jobs, as a table for a terminal of `width` characters.
pub(crate) fn table(facts: &SwitchFacts, width: Option<usize>) -> String {
    let mut grid = Grid::default();
    for (head, rank, right) in [
        (facts.system.as_str(), ALWAYS, false),
        ("completion", ALWAYS, true),
        ("added in switches", 2, true),
        ("server load", 3, true),
        ("slots held", 4, true),
        ("of that idle", 5, true),
        ("taken over", 6, true),
        ("refused", 7, true),
        ("sent again", 8, true),
    ] {
        grid.column(head, rank, right);
    }
    for job in facts.jobs.iter().take(SHOWN).chain([&facts.all]) {
        grid.row([
            job.name.clone(),
            us(job.jct_us),
            percent(job.in_switch_share),
            format!("{:.2}", job.server_load),
            percent(job.occupancy),
            percent(job.idle_share),
            count(job.preemptions),
            count(job.refused),
            count(job.resent),
        ]);
    }
    let more = facts.jobs.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("and {more} more jobs\n") } else { String::new() };
    format!("{}{more}", grid.text(width))
}

impl SwitchFacts {
    /// A note for readers if many priorities are at their limits.
    pub fn note(&self) -> Option<String> {
        (self.system == "esa" && self.priorities_at_ends > 0.05).then(|| {
            format!(
                "{:.0} % of fragments have the lowest or the highest priority, which cannot take each other's slots: lower \
                 switch.priority_steps or set switch.priority_reference to a job's length",
                100.0 * self.priorities_at_ends
            )
        })
    }
}

//! Jobs whose gradients switches add: completion times, where sums were made, and how slots were used.

use super::Report;
use super::spread::place;
use super::text::grid::{ALWAYS, Grid};
use super::text::{count, percent, us};
use crate::plan::{Execution, Experiment};
use serde::{Deserialize, Serialize};
use strandway_fabric::Measurements;
use strandway_proto::aggregate::Counts;
use strandway_switch::Plan;

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

/// The facts of a run; `None` if no switch adds.
pub(super) fn facts(experiment: &Experiment, measured: &Measurements) -> Option<SwitchFacts> {
    let jobs = experiment.aggregation.as_ref()?;
    let switches = measured.stations.len() as u32;
    let slots = jobs.settings.slots;
    let area = measured.simulated.0 as f64 * f64::from(slots) * f64::from(switches);
    let (mut all, mut named, mut times) = (Counts::default(), Vec::new(), Vec::new());
    let (mut first, mut last, mut keys) = (None, None, 0);
    for (collective, job) in experiment.collectives.iter().filter_map(|plan| match plan.execution {
        Execution::InNetwork(job) => Some((plan, &jobs.plans[job])),
        _ => None,
    }) {
        let counts = measured.aggregation.get(&job.job.shape.number).copied().unwrap_or_default();
        let tally =
            experiment.tally_of(collective, measured).filter(|tally| tally.received == u64::from(collective.ranks));
        let time = tally.and_then(|tally| Some(tally.last?.since(tally.first?)));
        first = first.into_iter().chain(tally.and_then(|tally| tally.first)).min();
        last = last.into_iter().chain(tally.and_then(|tally| tally.last)).max();
        times.push(time.map(|time| time.as_us()));
        let of_one = job.keys() * u64::from(job.iterations);
        keys += of_one;
        all.add(&counts);
        named.push(one(collective.name.clone(), time.map(|time| time.as_us()), &counts, of_one, area));
    }
    let mut ended: Vec<f64> = times.iter().copied().collect::<Option<_>>().unwrap_or_default();
    ended.sort_unstable_by(f64::total_cmp);
    let rank = |share: f64| ended.get(place(ended.len() as u64, share) as usize - 1).copied();
    let mean = (!ended.is_empty()).then(|| ended.iter().sum::<f64>() / ended.len() as f64);
    let total = one("all".into(), mean, &all, keys, area);
    let busiest = measured.stations.iter().max_by(|a, b| {
        let held =
            |s: &strandway_fabric::measure::SwitchProgramCounts| s.occupancy.iter().flat_map(|o| &o.1).sum::<f64>();
        held(a).total_cmp(&held(b))
    });
    let name_of = |number: u16| named.get(usize::from(number) - 1).map_or_else(String::new, |job| job.name.clone());
    let occupancy = busiest.map_or_else(Vec::new, |station| {
        let one = |(job, share): &(u16, Vec<f64>)| OccupancyFacts { name: name_of(*job), share: share.clone() };
        station.occupancy.iter().filter(|(_, share)| !share.is_empty()).map(one).collect()
    });
    Some(SwitchFacts {
        system: jobs.settings.system.name().to_string(),
        slots,
        switches,
        jct_mean_us: mean,
        jct_p50_us: if ended.is_empty() { None } else { rank(0.5) },
        jct_p99_us: if ended.is_empty() { None } else { rank(0.99) },
        makespan_us: last.zip(first).filter(|_| !ended.is_empty()).map(|(last, first)| last.since(first).as_us()),
        all: total,
        priorities_at_ends: at_ends(jobs.plans.iter().map(|plan| &**plan)),
        every_us: experiment.plan.sample_every.map_or(0.0, |every| every.as_us()),
        occupancy,
        jobs: named,
    })
}

fn one(name: String, jct_us: Option<f64>, c: &Counts, keys: u64, area: f64) -> AggregationFacts {
    let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
    AggregationFacts {
        name,
        jct_us,
        fragments: c.sent,
        in_switch_share: share(c.merged, c.sent),
        server_load: share(c.server_packets, keys),
        occupancy: c.slot_time as f64 / area.max(1.0),
        useful_rate: c.merged as f64 * 1e6 / (c.slot_time as f64).max(1.0),
        idle_share: c.idle_time as f64 / (c.slot_time as f64).max(1.0),
        refused_share: share(c.refused, c.sent),
        preemptions: c.preemptions,
        evicted: c.evicted,
        refused: c.refused,
        decayed: c.decayed,
        duplicates: c.duplicates,
        resent: c.resent,
        server_completed: c.server_completed,
        reminders: c.reminders,
        flushes: c.flushes,
        solicits: c.solicits,
        floats: c.floats,
        marked: c.congested,
        late_results: c.late_results,
    }
}

/// The share of fragments with the priority 1 or 255.
fn at_ends<'a>(plans: impl Iterator<Item = &'a Plan>) -> f64 {
    let (mut ends, mut all) = (0, 0);
    for plan in plans {
        // For long jobs, a sample of the iterations is enough.
        let step = (plan.iterations / 64).max(1) as usize;
        for iteration in (0..plan.iterations).step_by(step) {
            for (layer, keys) in plan.layers.iter().map(|layer| layer.keys).enumerate() {
                all += keys;
                ends += if matches!(plan.priority(iteration, layer), 1 | u8::MAX) { keys } else { 0 };
            }
        }
    }
    ends as f64 / all.max(1) as f64
}

/// The jobs, as a table for a terminal of `width` characters.
pub(super) fn table(facts: &SwitchFacts, width: Option<usize>) -> String {
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

/// A note for readers if many priorities are at their limits.
pub(super) fn note(report: &Report) -> Option<String> {
    let facts = report.switch.as_ref()?;
    (facts.system == "esa" && facts.priorities_at_ends > 0.05).then(|| {
        format!(
            "{:.0} % of fragments have the lowest or the highest priority, which cannot take each other's slots: lower \
             switch.priority_steps or set switch.priority_reference to a job's length",
            100.0 * facts.priorities_at_ends
        )
    })
}

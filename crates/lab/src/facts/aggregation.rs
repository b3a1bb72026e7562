//! Facts of jobs whose gradients switches add: completion times, where sums were made, and how slots were used.

use strandway_collective::Operation;
use strandway_fabric::Measurements;
use strandway_proto::aggregate::Counts;
use strandway_report::spread::place;
use strandway_report::{AggregationFacts, OccupancyFacts, SwitchFacts};
use strandway_scenario::Experiment;
use strandway_switch::Plan;

/// The facts of a run; `None` if no switch adds.
pub(super) fn facts(experiment: &Experiment, measured: &Measurements) -> Option<SwitchFacts> {
    let jobs = experiment.aggregation.as_ref()?;
    let switches = measured.stations.len() as u32;
    let slots = jobs.settings.slots;
    let area = measured.simulated.0 as f64 * f64::from(slots) * f64::from(switches);
    let (mut all, mut named, mut times) = (Counts::default(), Vec::new(), Vec::new());
    let (mut first, mut last, mut keys) = (None, None, 0);
    for (collective, job) in experiment.collectives.iter().filter_map(|plan| match experiment.operation_of(plan)? {
        Operation::InNetwork(network) => Some((plan, experiment.aggregated(network)?)),
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
        all += counts;
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

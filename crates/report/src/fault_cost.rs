//! The cost of a scenario's faults: the times of a run beside those of the same run without the faults.

use crate::numbers::{percent, us};
use crate::report::{FaultCost, Report};

impl FaultCost {
    fn new(name: &str, kind: &str, time_us: Option<f64>, healthy_us: Option<f64>) -> FaultCost {
        let cost_us = time_us.zip(healthy_us).map(|(time, healthy)| time - healthy);
        FaultCost { name: name.to_string(), kind: kind.to_string(), time_us, healthy_us, cost_us }
    }

    /// The costs in `struck`, a run with faults, beside `healthy`, the same run without them.
    pub fn all(struck: &Report, healthy: &Report) -> Vec<FaultCost> {
        if !struck.jobs.is_empty() {
            let jobs = struck.jobs.iter().zip(&healthy.jobs);
            return jobs.map(|(a, b)| FaultCost::new(&a.name, "iteration", a.iteration_us, b.iteration_us)).collect();
        }
        let collectives = struck.slowest_collectives();
        if !collectives.is_empty() {
            let both = collectives.iter().zip(healthy.slowest_collectives());
            return both.map(|(a, b)| FaultCost::new(&a.name, "collective", a.time_us, b.time_us)).collect();
        }
        let slowest = |report: &Report| report.times.fct_us.max.filter(|_| report.flows.finished == report.flows.total);
        vec![FaultCost::new("flows", "slowest flow", slowest(struck), slowest(healthy))]
    }

    /// The cost as `+312.0 us`.
    pub(crate) fn shown(&self) -> Option<String> {
        let cost = self.cost_us?;
        Some(format!("{}{}", if cost < 0.0 { "-" } else { "+" }, us(Some(cost.abs()))))
    }
}

impl Report {
    /// The entry with the largest cost.
    pub(crate) fn largest_cost(&self) -> Option<&FaultCost> {
        self.fault_costs.iter().filter(|cost| cost.cost_us.is_some()).max_by(|a, b| {
            let of = |cost: &FaultCost| cost.cost_us.unwrap_or_default();
            of(a).total_cmp(&of(b))
        })
    }

    /// The faults as the origin of a cost: the only one by its name, several by their number.
    pub(crate) fn faults_in_short(&self) -> String {
        match &self.faults[..] {
            [one] => one.label().to_string(),
            all => format!("{} faults", all.len()),
        }
    }

    /// One sentence for each cost: `llama: +312.0 us by leaf1 - spine2 down: 1,046.2 us, 734.2 us without (+42.5 %)`.
    pub(crate) fn cost_lines(&self) -> Vec<String> {
        let by = self.faults_in_short();
        let line = |cost: &FaultCost| {
            let name = if cost.kind == "slowest flow" { &cost.kind } else { &cost.name };
            match (cost.shown(), cost.cost_us, cost.healthy_us) {
                (Some(shown), Some(more), Some(healthy)) => {
                    let sign = if more < 0.0 { "-" } else { "+" };
                    let share = percent(more.abs() / healthy);
                    let (with, without) = (us(cost.time_us), us(cost.healthy_us));
                    format!("{name}: {shown} by {by}: {with}, {without} without ({sign}{share})")
                }
                (_, _, Some(_)) => format!("{name}: did not end with {by}; {} without", us(cost.healthy_us)),
                _ => format!("{name}: did not end without {by}, either"),
            }
        };
        self.fault_costs.iter().map(line).collect()
    }
}

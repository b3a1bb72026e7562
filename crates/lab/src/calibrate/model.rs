//! Simulates measured collectives with given constants.

use super::CalibrateQuestion;
use crate::check;
use crate::run::{in_parallel, run};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use strandway_import::trace::Kind;
use strandway_import::{Problem, Problems};
use strandway_scenario::Scenario;
use strandway_sim::Control;
use toml::{Table, Value};

/// A measured point whose collective is known.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) file: String,
    pub(super) kind: Kind,
    pub(super) ranks: u32,
    pub(super) bytes: u64,
    pub(super) us: f64,
    pub(super) fitted: bool,
}

/// A simulation: kind, ranks and bytes.
type Run = (Kind, u32, u64);

/// The scenario that is calibrated.
pub(super) struct Model<'a> {
    scenario: Scenario,
    /// The keys of its collective.
    workload: Table,
    /// The kind of its collective.
    own: Option<String>,
    size_max: u64,
    jobs: usize,
    stopped: &'a (dyn Fn() -> bool + Sync),
}

fn name_of(kind: Kind) -> Option<&'static str> {
    matches!(kind, Kind::AllReduce | Kind::AllGather | Kind::ReduceScatter | Kind::AllToAll | Kind::Broadcast)
        .then(|| kind.name())
}

impl<'a> Model<'a> {
    pub(super) fn new(
        scenario: &Scenario,
        question: &CalibrateQuestion,
        stopped: &'a (dyn Fn() -> bool + Sync),
    ) -> Result<Model<'a>, Problems> {
        let mut scenario = scenario.clone();
        for section in ["sweep", "expect", "job", "faults", "description"] {
            scenario.remove(section);
        }
        let workload = match scenario.value("workload") {
            None => Table::new(),
            Some(Value::Table(table)) => table,
            Some(_) => {
                let what = "is a list, and a calibration has one collective at a time";
                let problem = Problem {
                    file: scenario.file().into(),
                    key: "workload".into(),
                    what: what.into(),
                    ..Problem::default()
                };
                return Err(Problems(vec![Problem { remedy: "write one [workload]".into(), ..problem }]));
            }
        };
        let own = workload.get("kind").and_then(Value::as_str).map(str::to_string);
        scenario.set_value("run.why", Value::Boolean(false))?;
        Ok(Model { scenario, workload, own, size_max: question.size_max.max(2), jobs: question.jobs.max(1), stopped })
    }

    /// The scenario with the smallest workload, for values of its fabric.
    pub(super) fn bare(&self) -> Result<Scenario, Problems> {
        let mut bare = self.scenario.clone();
        let table = Table::from_iter([("kind".into(), Value::from("outcast")), ("receivers".into(), Value::from(1))]);
        bare.set_value("workload", Value::Table(table))?;
        Ok(bare)
    }

    /// The assumptions about collectives.
    pub(super) fn notes(&self, points: &[Asked]) -> Option<String> {
        let chains = self.own.as_deref() != Some("broadcast") && points.iter().any(|one| one.kind == Kind::Broadcast);
        chains.then(|| "broadcasts run as chains".into())
    }

    fn scenario_of(&self, values: &[(&'static str, String)], run: Run) -> Result<Scenario, Problems> {
        let (kind, ranks, bytes) = run;
        let mut one = self.scenario.clone();
        let Some(name) = name_of(kind) else {
            let what = format!("{} is no workload of scenarios", kind.name());
            return Err(Problems(vec![Problem { what, remedy: "leave its points out".into(), ..Problem::default() }]));
        };
        let mut workload = self.workload.clone();
        // Algorithms and their keys belong to the scenario's own kind.
        if self.own.as_deref() != Some(name) {
            workload.retain(|key, _| ["connections", "profile", "servers", "placement"].contains(&key));
            if kind == Kind::Broadcast {
                workload.insert("algorithm".into(), Value::from("chain"));
            }
        }
        // nccl-tests counts a rank's whole send buffer, and a scenario one message.
        let size = if kind == Kind::AllToAll { (bytes / u64::from(ranks.max(1))).max(1) } else { bytes };
        workload.insert("kind".into(), Value::from(name));
        workload.insert("size".into(), Value::from(format!("{size} B")));
        workload.insert("ranks".into(), Value::from(i64::from(ranks)));
        one.set_value("workload", Value::Table(workload))?;
        for (key, value) in values {
            one.set_value(key, Value::from(value.as_str()))?;
        }
        Ok(one)
    }

    fn time(&self, values: &[(&'static str, String)], run_of: Run) -> Result<f64, Problems> {
        let experiment = check(&self.scenario_of(values, run_of)?)?;
        let report = run(&experiment, &Control::new()).report;
        let times: Option<Vec<f64>> = report.collectives.iter().map(|one| one.time_us).collect();
        let slowest = times.and_then(|times| times.into_iter().max_by(f64::total_cmp));
        slowest.ok_or_else(|| {
            let (kind, ranks, bytes) = run_of;
            let what = format!("{} of {bytes} B among {ranks} ranks does not end", kind.name());
            Problems(vec![Problem { file: self.scenario.file().into(), what, ..Problem::default() }])
        })
    }

    /// The times of points in us with these values of keys.
    pub(super) fn times<'b>(
        &self,
        values: &[(&'static str, String)],
        points: impl IntoIterator<Item = &'b Asked>,
    ) -> Result<Vec<f64>, Problems> {
        let (most, half) = (self.size_max, self.size_max / 2);
        let points: Vec<&Asked> = points.into_iter().collect();
        let sizes = |bytes: u64| if bytes > most { vec![half, most] } else { vec![bytes] };
        let of =
            |one: &&Asked| sizes(one.bytes).into_iter().map(|bytes| (one.kind, one.ranks, bytes)).collect::<Vec<Run>>();
        // The longest first, so that threads end together.
        let mut runs: Vec<Run> = points.iter().flat_map(of).collect::<BTreeSet<Run>>().into_iter().collect();
        runs.sort_by_key(|(_, ranks, bytes)| std::cmp::Reverse(bytes * u64::from(*ranks)));
        let made: Mutex<BTreeMap<Run, Result<f64, Problems>>> = Mutex::new(BTreeMap::new());
        in_parallel(runs.len(), self.jobs, self.stopped, |place| {
            let time = self.time(values, runs[place]);
            made.lock().unwrap_or_else(PoisonError::into_inner).insert(runs[place], time);
        });
        let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        if made.len() < runs.len() {
            return Err(Problems::with_file(self.scenario.file(), "was stopped", ""));
        }
        let time = |one: &Asked, bytes: u64| made[&(one.kind, one.ranks, bytes)].clone();
        let all = points.into_iter().map(|one| {
            if one.bytes <= most {
                return time(one, one.bytes);
            }
            let (first, second) = (time(one, half)?, time(one, most)?);
            Ok(second + (second - first) * (one.bytes - most) as f64 / (most - half) as f64)
        });
        all.collect()
    }
}

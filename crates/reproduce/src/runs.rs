//! Runs cells, one seed at a time, and calculates models.

use super::modelled::Modelled;
use super::table::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use strandway_fabric::Measurements;
use strandway_import::Problems;
use strandway_lab::{Experiment, run as simulate};
use strandway_report::reproduction::{ChartRun, Recorded, WATCH_EVERY};
use strandway_sim::Control;

/// A cell, and the values that are needed from it.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) cell: Cell,
    pub(super) keys: Vec<&'static str>,
    /// Expected packet hops of one run; 0 until they are estimated.
    pub(super) hops: u64,
    /// The values of all seeds from an earlier run; empty if the cell must run.
    pub(super) known: BTreeMap<&'static str, Vec<Option<f64>>>,
}

/// The results of a run that rows need.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) values: BTreeMap<&'static str, Option<f64>>,
    pub(super) interrupted: bool,
    pub(super) kept: Option<ChartRun>,
}

impl Prepared {
    /// True if an earlier run has all values, so that no run is needed.
    pub(super) fn recalled(&self) -> bool {
        !self.known.is_empty()
    }

    /// Takes the values from earlier runs, if these have all of them.
    pub(super) fn recall(&mut self, recorded: &Recorded) {
        let command = self.cell.command();
        let seeds = self.cell.all_seeds().count();
        let of = |key: &&'static str| {
            let values = recorded.of(&command, key).filter(|values| values.len() == seeds)?;
            Some((*key, values.to_vec()))
        };
        self.known = self.keys.iter().map(of).collect::<Option<_>>().unwrap_or_default();
    }

    pub(super) fn run<W>(
        &self,
        seed: u64,
        keep: bool,
        watch: impl Fn(&Experiment, Arc<Control>) -> W,
    ) -> Result<Ran, Problems> {
        let mut experiment = strandway_lab::check(&self.cell.scenario(seed)?)?;
        if keep {
            experiment.plan.sample_every = Some(WATCH_EVERY);
        }
        let control = Arc::new(Control::new());
        let watcher = watch(&experiment, control.clone());
        let outcome = simulate(&experiment, &control);
        drop(watcher);
        let report = outcome.report;
        let all = report.values();
        // If some flows never finish, the time of the slowest finished flow has no meaning.
        let whole = report.flows.finished == report.flows.total;
        let value = |key: &'static str| (key, if whole { all.get(key).copied().flatten() } else { None });
        let values = self.keys.iter().map(|key| value(key)).collect();
        let kept = keep.then(|| ChartRun {
            name: String::new(),
            report: report.clone(),
            uplinks: uplinks(&experiment, &outcome.measurements),
            penalties: outcome.measurements.series.watched.iter().map(|point| point.penalties.clone()).collect(),
        });
        Ok(Ran { values, interrupted: report.head.end == "interrupted", kept })
    }
}

/// Bytes of each uplink of the leaves, divided by the mean.
fn uplinks(experiment: &Experiment, measurements: &Measurements) -> Vec<f64> {
    let topology = &experiment.plan.topology;
    let link = |i: usize| strandway_fabric::LinkId(u32::try_from(i).unwrap_or(u32::MAX));
    let up = measurements
        .links
        .iter()
        .enumerate()
        .filter(|(i, _)| topology.ends(link(*i)).is_some_and(|ends| ends.level == 1 && ends.up));
    let bytes: Vec<f64> = up.map(|(_, l)| l.bytes as f64).collect();
    let mean = bytes.iter().sum::<f64>() / bytes.len().max(1) as f64;
    bytes.into_iter().map(|b| if mean > 0.0 { b / mean } else { 0.0 }).collect()
}

/// Calculates the numbers of models, `jobs` at a time, until `stopped` returns true; the remaining ones are missing.
pub(super) fn model_all<'a>(
    models: &[&'a Modelled],
    jobs: usize,
    stopped: &(impl Fn() -> bool + Sync),
) -> BTreeMap<&'a Modelled, Option<f64>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<&Modelled, Option<f64>>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, models.len().max(1)) {
            scope.spawn(|| {
                while let Some(modelled) = models.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !stopped()) {
                    let number = modelled.calculate();
                    results.lock().unwrap_or_else(PoisonError::into_inner).insert(modelled, number);
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

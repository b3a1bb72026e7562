//! Runs an experiment.

use crate::approximate::Approximation;
use crate::check;
use crate::facts;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use strandway_fabric::{Measurements, NodeId};
use strandway_import::Problems;
use strandway_proto::HostId;
use strandway_proto::application::Application;
use strandway_proto::units::{Span, Time};
use strandway_report::{FaultCost, Report, Row};
use strandway_scenario::{Experiment, Variant};
use strandway_serving::ServiceRun;
use strandway_sim::Control;

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The report.
    pub report: Report,
    /// The measurements from which it was made.
    pub measurements: Measurements,
}

/// Runs `experiment` to its end, its time limit, or until `control` stops it.
pub fn run(experiment: &Experiment, control: &Control) -> Outcome {
    let began = Instant::now();
    let measurements = simulate(experiment, control);
    let wall = began.elapsed().as_secs_f64();
    let alone = |job: usize| {
        if !experiment.alone || experiment.jobs[job].groups_of > 0 || control.stopping() {
            return None;
        }
        let only = experiment.only_job(job);
        let jobs = facts::report(&only, &simulate(&only, control), 0.0).jobs;
        // The report has no collectives on servers among its jobs.
        let before = experiment.jobs[..job].iter().filter(|plan| plan.groups_of == 0).count();
        jobs.get(before)?.iteration_us
    };
    let alone: Vec<Option<f64>> = (0..experiment.jobs.len()).map(alone).collect();
    let mut report = facts::report_beside(experiment, &measurements, wall, &alone);
    let wanted = experiment.healthy && !control.stopping();
    if let Some(whole) = experiment.without_faults().filter(|_| wanted) {
        let healthy = facts::report(&whole, &simulate(&whole, control), 0.0);
        report.fault_costs = FaultCost::all(&report, &healthy);
    }
    Outcome { report, measurements }
}

/// Simulates `experiment` with the programs of its hosts and switches.
pub fn simulate(experiment: &Experiment, control: &Control) -> Measurements {
    let runs: Vec<ServiceRun> = experiment.services.iter().map(|plan| ServiceRun::new(&plan.service)).collect();
    let mut measured = simulate_with(experiment, control, &runs);
    measured.services = runs.iter().map(ServiceRun::times).collect();
    let ends = measured.services.iter().flat_map(|times| &times.requests).map(|request| request.ended);
    let last = ends.filter(|at| *at != Time::NEVER).max().unwrap_or_default();
    measured.simulated = measured.simulated.max(last);
    measured
}

/// Simulates `experiment` with these services.
fn simulate_with(experiment: &Experiment, control: &Control, services: &[ServiceRun]) -> Measurements {
    let programs = experiment.programs();
    let service = |host: HostId| -> Option<Box<dyn Application>> {
        services.iter().find_map(|run| run.program(host)).map(|program| Box::new(program) as Box<dyn Application>)
    };
    match &experiment.aggregation {
        None if services.is_empty() => strandway_sim::simulate_programs(&experiment.plan, &programs, control),
        None => {
            let parts = experiment.service_numbers();
            strandway_sim::simulate_programs(&experiment.plan, &programs.with_services(&service, parts), control)
        }
        Some(jobs) => {
            // Pictures of switch slots have the interval of all time series.
            let mut jobs = jobs.clone();
            jobs.settings.every = experiment.plan.sample_every.unwrap_or(Span::ZERO);
            let hosts = |host: HostId| service(host).or_else(|| jobs.host(host));
            let switches = |node: NodeId| jobs.switch(&experiment.plan.topology, node);
            let operations = |number: u16, rank: u32| jobs.rank(number, rank);
            let programs = programs.with(&hosts).with_operations(&operations).with_switches(&switches);
            let programs = match services.is_empty() {
                true => programs,
                false => programs.with_services(&hosts, experiment.service_numbers()),
            };
            strandway_sim::simulate_programs(&experiment.plan, &programs, control)
        }
    }
}

/// Runs all of `variants`, `jobs` at a time, and returns their rows in order. Before a run starts, `watch` is called on
/// the run's thread with its index, experiment and control; its result lives as long as the run. Variants that did not
/// start because `stopped` returned true are left out.
///
/// # Errors
/// If a variant has problems; variants from [`crate::sweep()`] and [`crate::compare`] have none.
pub fn run_all<W>(
    variants: &[Variant],
    jobs: usize,
    series: bool,
    stopped: impl Fn() -> bool + Sync,
    watch: impl Fn(usize, &Experiment, Arc<Control>) -> W + Sync,
) -> Result<Vec<Row>, Problems> {
    let results: Mutex<Vec<(usize, Result<Row, Problems>)>> = Mutex::new(Vec::new());
    let one = |i: usize| {
        let row = row(i, &variants[i], series, &watch);
        results.lock().unwrap_or_else(PoisonError::into_inner).push((i, row));
    };
    in_parallel(variants.len(), jobs, stopped, one);
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, row)| row).collect()
}

/// Runs all of `variants`, `jobs` at a time, and calls `ended` with the index and the row of each as it ends, or with
/// the reason why it failed: its problems, or the text of a panic. One failure does not end the others. `watch` and
/// `stopped` are those of [`run_all`].
pub fn run_each<W>(
    variants: &[Variant],
    jobs: usize,
    series: bool,
    stopped: impl Fn() -> bool + Sync,
    watch: impl Fn(usize, &Experiment, Arc<Control>) -> W + Sync,
    ended: impl Fn(usize, Result<Row, String>) + Sync,
) {
    let one = |i: usize| {
        // A run shares nothing with others, so none of them sees what a panic leaves behind.
        let ran = catch_unwind(AssertUnwindSafe(|| row(i, &variants[i], series, &watch)));
        ended(
            i,
            match ran {
                Ok(row) => row.map_err(|problems| problems.to_string()),
                Err(panic) => {
                    let text =
                        panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
                    Err(format!("the simulator failed: {}", text.unwrap_or("no reason given")))
                }
            },
        );
    };
    in_parallel(variants.len(), jobs, stopped, one);
}

/// Calls `one` with every index below `count` on `jobs` threads, in order of their starts, until `stopped` returns
/// true.
pub(crate) fn in_parallel(count: usize, jobs: usize, stopped: impl Fn() -> bool + Sync, one: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count || stopped() {
                        return;
                    }
                    one(i);
                }
            });
        }
    });
}

/// Runs one variant.
fn row<W>(
    i: usize,
    variant: &Variant,
    series: bool,
    watch: &impl Fn(usize, &Experiment, Arc<Control>) -> W,
) -> Result<Row, Problems> {
    if variant.scenario.approximate().is_some() {
        let approximation = Approximation::of(&variant.scenario)?;
        let (_, outcome) = approximation.run(None, |experiment, control| watch(i, experiment, control))?;
        return Ok(Row { label: variant.label.clone(), set: variant.set.clone(), report: outcome.report });
    }
    let mut experiment = check(&variant.scenario)?;
    if series {
        experiment.with_series();
    }
    let control = Arc::new(Control::new());
    let watcher = watch(i, &experiment, control.clone());
    let report = run(&experiment, &control).report;
    drop(watcher);
    Ok(Row { label: variant.label.clone(), set: variant.set.clone(), report })
}

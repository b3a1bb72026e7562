//! `strandway compare` and `strandway sweep`: several runs, one table.

use super::{check_expectations, load};
use crate::Failure;
use crate::args::{Common, CompareArgs, SweepArgs};
use crate::outputs::{Outputs, Wanted};
use crate::progress::{All, Bars, interrupted};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use strandway_lab::{Approximation, Estimate, Kept, Results, Scenario, Variant};
use strandway_report::{self as report, Failed, Row, Rows};

pub(crate) fn compare(args: &CompareArgs) -> Result<(), Failure> {
    let scenario = load_several(&args.common)?;
    let variants = strandway_lab::compare(&scenario, &args.profiles)?;
    run(&args.common, &scenario, &variants, args.jobs, args.force)
}

/// Loads a scenario for several runs.
fn load_several(common: &Common) -> Result<Scenario, Failure> {
    let scenario = load(common)?;
    if let Some(seed) = common.seed {
        strandway_scenario::sweep::seed_counts(&scenario, seed)?;
    }
    Ok(scenario)
}

pub(crate) fn sweep(args: &SweepArgs) -> Result<(), Failure> {
    let scenario = load_several(&args.common)?;
    let mut variants = strandway_lab::sweep(&scenario)?;
    if let Some(shard) = args.shard {
        let mut place = 0..;
        variants.retain(|_| place.next().is_some_and(|place| shard.has(place)));
    }
    match &args.results {
        None => run(&args.common, &scenario, &variants, args.jobs, args.force),
        Some(folder) => kept(args, &scenario, &variants, folder),
    }
}

/// The folder of a sweep while it runs.
struct Keeping {
    results: Results,
    /// The runs under way, by their numbers: without report and error yet.
    running: BTreeMap<usize, Kept>,
    /// The reason why rows cannot be written any more.
    broken: Option<String>,
}

impl Keeping {
    fn keep(&mut self, kept: &Kept) {
        if let Err(said) = self.results.add(kept) {
            self.broken.get_or_insert(said);
        }
    }

    /// The process is about to end: all runs under way are rows with this error.
    fn abandon(&mut self, error: &str) {
        for (_, kept) in std::mem::take(&mut self.running) {
            self.keep(&Kept { error: Some(error.to_string()), ..kept });
        }
    }
}

/// Runs those variants that are not in `folder` and appends them. Prints all that are there then.
fn kept(args: &SweepArgs, scenario: &Scenario, variants: &[Variant], folder: &Path) -> Result<(), Failure> {
    let mut outputs = Outputs::open(Wanted::of(&args.common), &inputs(scenario, variants))?;
    let results = Results::open(folder, args.shard).map_err(Failure::Usage)?;
    let keys = variants.iter().map(|variant| variant.scenario.key()).collect::<Result<Vec<_>, _>>()?;
    let mut left: Vec<(bool, &String, Variant)> = Vec::new();
    for (key, variant) in keys.iter().zip(variants).filter(|_| !args.gather) {
        // Failures are tried again: another machine may have more memory. Two variants of the same scenario are one
        // run.
        let failed = results.has(key);
        if failed != Some(false) && left.iter().all(|(_, other, _)| *other != key) {
            left.push((failed.is_some(), key, variant.clone()));
        }
    }
    // Failures come last, since one that ends the process would keep the others from running.
    left.sort_by_key(|(failed, ..)| *failed);
    let (left_keys, left): (Vec<&String>, Vec<Variant>) =
        left.into_iter().map(|(_, key, variant)| (key, variant)).unzip();
    let keeping = Arc::new(Mutex::new(Keeping { results, running: BTreeMap::new(), broken: None }));
    let lock = || keeping.lock().unwrap_or_else(PoisonError::into_inner);
    if !left.is_empty() {
        let bars = Bars::new(args.common.quiet);
        let jobs = simultaneous(&left, args.jobs, args.force)?;
        let all = all_of(&bars, &left);
        if cfg!(panic = "abort") {
            let (keeping, before) = (Arc::clone(&keeping), std::panic::take_hook());
            std::panic::set_hook(Box::new(move |panic| {
                if let Ok(mut keeping) = keeping.try_lock() {
                    keeping.abandon(&format!("the process ended: {panic}"));
                }
                before(panic);
            }));
        }
        let watch = |i: usize, experiment: &_, control| {
            let Variant { label, set, .. } = left[i].clone();
            lock().running.insert(i, Kept { key: left_keys[i].clone(), label, set, ..Kept::default() });
            (bars.watch(&left[i].label, experiment, control), all.one(experiment))
        };
        let stopped = || interrupted() || lock().broken.is_some();
        let ended = |i: usize, row: Result<Row, String>| {
            let mut keeping = lock();
            keeping.running.remove(&i);
            // An interrupted run is not its scenario's result.
            if row.as_ref().is_ok_and(|row| row.report.head.end == "interrupted") {
                return;
            }
            let Variant { label, set, .. } = left[i].clone();
            let (report, error) = match row {
                Ok(row) => (Some(row.report), None),
                Err(error) => (None, Some(error)),
            };
            keeping.keep(&Kept { key: left_keys[i].clone(), label, set, report, error });
        };
        strandway_lab::run_each(&left, jobs, outputs.html.is_some(), stopped, watch, ended);
    }
    if let Some(said) = lock().broken.take() {
        return Err(Failure::Run(said));
    }
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for (key, Variant { label, set, .. }) in keys.iter().zip(variants.iter().cloned()) {
        match lock().results.get(key).map_err(Failure::Run)? {
            Some(Kept { report: Some(report), .. }) => rows.push(Row { label, set, report }),
            Some(Kept { error, .. }) => failed.push(Failed { label, set, error: error.unwrap_or_default() }),
            None => {}
        }
    }
    let absent = variants.len() - rows.len() - failed.len();
    let remark = match absent {
        0 => String::new(),
        _ => format!("{absent} of {} runs are not in {} yet\n", variants.len(), folder.display()),
    };
    let document = write_outputs(&mut outputs, scenario, rows, failed, &remark)?;
    if absent > 0 && !args.gather {
        let done = variants.len() - absent;
        return Err(Failure::Run(format!("interrupted: {done} of {} runs are kept", variants.len())));
    }
    let said: Vec<String> = document.failed.iter().map(|run| format!("{}: {}", run.label, run.error)).collect();
    if !said.is_empty() {
        return Err(Failure::Run(said.join("\n")));
    }
    check_expectations(document.rows.iter().map(|row| (row.label.as_str(), &row.report)))
}

/// All files that the runs read.
fn inputs(scenario: &Scenario, variants: &[Variant]) -> Vec<PathBuf> {
    std::iter::once(scenario).chain(variants.iter().map(|v| &v.scenario)).flat_map(Scenario::inputs).collect()
}

fn run(
    common: &Common,
    scenario: &Scenario,
    variants: &[Variant],
    jobs: Option<u16>,
    force: bool,
) -> Result<(), Failure> {
    let mut outputs = Outputs::open(Wanted::of(common), &inputs(scenario, variants))?;
    let rows = rows(variants, jobs, outputs.html.is_some(), common.quiet, force)?;
    let document = write_outputs(&mut outputs, scenario, rows, Vec::new(), "")?;
    if document.rows.len() < variants.len() {
        let (done, all) = (document.rows.len(), variants.len());
        return Err(Failure::Run(format!("interrupted: only {done} of {all} runs were started")));
    }
    check_expectations(document.rows.iter().map(|row| (row.label.as_str(), &row.report)))
}

/// Prints several runs as one table with a remark below it, and writes them to the requested files.
pub(crate) fn write_outputs(
    outputs: &mut Outputs,
    scenario: &Scenario,
    rows: Vec<Row>,
    failed: Vec<Failed>,
    remark: &str,
) -> Result<Rows, Failure> {
    outputs.show(&format!("{}\n{}{remark}", scenario.name(), report::text::rows(&rows, outputs.width())));
    if let Some(output) = outputs.html.take() {
        output.finish(report::html::rows(&scenario.name(), &rows, &scenario.text()).as_bytes())?;
    }
    if let Some(output) = outputs.markdown.take() {
        output.finish(report::markdown::rows(&scenario.name(), &rows).as_bytes())?;
    }
    let document = Rows { failed, ..Rows::new(rows) };
    outputs.json(|| report::to_json(&document))?;
    Ok(document)
}

/// Runs all variants; as many at a time as processors and memory allow.
pub(crate) fn rows(
    variants: &[Variant],
    jobs: Option<u16>,
    series: bool,
    quiet: bool,
    force: bool,
) -> Result<Vec<Row>, Failure> {
    let jobs = simultaneous(variants, jobs, force)?;
    let bars = Bars::new(quiet);
    let all = all_of(&bars, variants);
    let watch =
        |i: usize, experiment: &_, control| (bars.watch(&variants[i].label, experiment, control), all.one(experiment));
    Ok(strandway_lab::run_all(variants, jobs, series, interrupted, watch)?)
}

/// The common bar of these runs.
pub(crate) fn all_of(bars: &Bars, variants: &[Variant]) -> All {
    let hops = variants.iter().filter_map(|variant| cost(&variant.scenario)).map(|(_, estimate)| estimate.packet_hops);
    bars.all(variants.len(), hops.fold(0, u64::saturating_add))
}

/// The threads of a run, and what it takes; that of the smaller runs, if they stand for it. `None` if it has problems.
fn cost(scenario: &Scenario) -> Option<(usize, Estimate)> {
    let experiment = strandway_lab::check(scenario).ok()?;
    let estimate = match scenario.approximate() {
        Some(_) => Approximation::of(scenario).ok()?.estimate().ok()?,
        None => Estimate::of(&experiment),
    };
    Some((experiment.plan.threads, estimate))
}

/// How many of these runs go on at a time: as many as processors and memory allow, unless the user says it.
pub(crate) fn simultaneous(variants: &[Variant], jobs: Option<u16>, force: bool) -> Result<usize, Failure> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let costs = variants.iter().filter_map(|variant| cost(&variant.scenario));
    let (threads, estimates): (Vec<usize>, Vec<Estimate>) = costs.unzip();
    let threads = threads.into_iter().max().unwrap_or(1);
    let wanted = jobs.map_or((processors / threads).max(1), usize::from);
    // Reduce the number of simultaneous runs if memory is short, unless the user chose it.
    let fewest = if jobs.is_some() { wanted } else { 1 };
    let fits = |jobs: &usize| Estimate::together(&estimates, *jobs).fits().is_ok();
    let jobs = (fewest..=wanted).rev().find(fits).unwrap_or(fewest);
    if !force {
        Estimate::together(&estimates, jobs).fits().map_err(Failure::Run)?;
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_process_that_ends_are_rows() {
        let folder = tempfile::tempdir().expect("a folder");
        let results = Results::open(folder.path(), None).expect("a folder");
        let mut keeping = Keeping { results, running: BTreeMap::new(), broken: None };
        for i in 0..2 {
            keeping.running.insert(i, Kept { key: format!("key{i}"), label: format!("run {i}"), ..Kept::default() });
        }
        keeping.abandon("the process ended: no reason");
        let again = Results::open(folder.path(), None).expect("a folder");
        for i in 0..2 {
            let kept = again.get(&format!("key{i}")).expect("readable").expect("a row");
            assert_eq!((kept.label, kept.error.as_deref()), (format!("run {i}"), Some("the process ended: no reason")));
        }
        assert!(keeping.running.is_empty() && keeping.broken.is_none());
    }
}

//! `strandway search`: the failures that hurt a scenario most.

use super::compare::simultaneous;
use super::load_with;
use crate::Failure;
use crate::args::SearchArgs;
use crate::outputs::{Outputs, Wanted, complain};
use crate::progress::{Bars, interrupted};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use strandway_lab::search::{Ended, search};
use strandway_lab::{Kept, Results, Scenario, Variant};
use strandway_report::search_result::Found;
use strandway_report::{Row, html, text};

pub(crate) fn run(args: &SearchArgs) -> Result<(), Failure> {
    let mut changes = args.set.clone();
    changes.extend(args.seed.map(|seed| format!("run.seed={seed}")));
    let scenario = load_with(&args.scenario, &changes)?;
    strandway_lab::check(&scenario)?;
    let wanted = Wanted { json: args.json.as_ref(), html: args.html.as_ref(), quiet: args.quiet, ..Wanted::default() };
    let mut outputs = Outputs::open(wanted, &scenario.inputs())?;
    if let Some(folder) = &args.out {
        std::fs::create_dir_all(folder).map_err(|e| {
            Failure::Usage(format!("--out {}: cannot be made: {e}; name another folder", folder.display()))
        })?;
    }
    let results =
        args.results.as_ref().map(|folder| Results::open(folder, None)).transpose().map_err(Failure::Usage)?;
    let runner = Runner { args, bars: Bars::new(args.quiet), results: results.map(Mutex::new) };
    let runs = |variants: &[Variant]| runner.run(variants);
    let note = |sentence: &str| {
        if !args.quiet {
            complain(sentence);
        }
    };
    let found = search(&scenario, &args.question(), runs, note).map_err(|ended| match ended {
        Ended::Wrong(problems) => Failure::from(problems),
        Ended::Stopped(failure) => failure,
    })?;
    outputs.show(&text::search_result(&found, args.top, outputs.width()));
    outputs.json(|| found.to_json())?;
    if let Some(output) = outputs.html.take() {
        output.finish(html::search_result(&found).as_bytes())?;
    }
    match &args.out {
        Some(folder) => write(&found, args, &scenario, folder),
        None => Ok(()),
    }
}

/// A run's row or the reason why it failed; `None` while it is not made.
type Made = Option<Result<Row, String>>;

/// Makes the runs of a search.
struct Runner<'a> {
    args: &'a SearchArgs,
    bars: Bars,
    /// The folder that keeps the runs.
    results: Option<Mutex<Results>>,
}

impl Runner<'_> {
    fn results(&self) -> Option<MutexGuard<'_, Results>> {
        self.results.as_ref().map(|results| results.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs those variants that are not in the folder, and returns the rows of all in order.
    fn run(&self, variants: &[Variant]) -> Result<Vec<Result<Row, String>>, Failure> {
        let keys = match self.results {
            Some(_) => variants.iter().map(|variant| variant.scenario.key()).collect::<Result<Vec<_>, _>>()?,
            None => Vec::new(),
        };
        let mut rows: Vec<Made> = vec![None; variants.len()];
        for ((row, key), Variant { label, set, .. }) in rows.iter_mut().zip(&keys).zip(variants) {
            let kept = self.results().map_or(Ok(None), |results| results.get(key)).map_err(Failure::Run)?;
            if let Some(report) = kept.and_then(|kept| kept.report) {
                *row = Some(Ok(Row { label: label.clone(), set: set.clone(), report }));
            }
        }
        let (places, left): (Vec<usize>, Vec<Variant>) =
            variants.iter().cloned().enumerate().filter(|(i, _)| rows[*i].is_none()).unzip();
        if !left.is_empty() {
            self.make(&left, &places, &keys, &mut rows)?;
        }
        let done = rows.iter().flatten().count();
        let rows: Option<Vec<_>> = rows.into_iter().collect();
        rows.filter(|_| !interrupted()).ok_or_else(|| {
            let all = variants.len();
            Failure::Run(match &self.args.results {
                Some(folder) => format!(
                    "interrupted: {done} of {all} runs are kept in {}; the same command goes on there",
                    folder.display()
                ),
                None => format!("interrupted after {done} of {all} runs; --results DIR keeps them, and goes on there"),
            })
        })
    }

    /// Runs `left`, whose places among all rows are `places`.
    fn make(&self, left: &[Variant], places: &[usize], keys: &[String], rows: &mut [Made]) -> Result<(), Failure> {
        let jobs = simultaneous(left, self.args.jobs, self.args.force)?;
        let hops = strandway_lab::check(&left[0].scenario).map_or(0, |experiment| experiment.expected_hops());
        let all = self.bars.all(left.len(), hops.saturating_mul(left.len() as u64));
        let watch = |_: usize, experiment: &_, control| (self.bars.watch("", experiment, control), all.one(experiment));
        let made: Mutex<(&mut [Made], Option<String>)> = Mutex::new((rows, None));
        let ended = |i: usize, row: Result<Row, String>| {
            let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
            // An interrupted run is not its scenario's result.
            if row.as_ref().is_ok_and(|row| row.report.head.end == "interrupted") {
                return;
            }
            let place = places[i];
            if let (Some(mut results), Ok(row)) = (self.results(), &row) {
                let (label, set) = (row.label.clone(), row.set.clone());
                let kept = Kept { key: keys[place].clone(), label, set, report: Some(row.report.clone()), error: None };
                if let Err(said) = results.add(&kept) {
                    made.1.get_or_insert(said);
                }
            }
            made.0[place] = Some(row);
        };
        strandway_lab::run_each(left, jobs, false, interrupted, watch, ended);
        match made.into_inner().unwrap_or_else(PoisonError::into_inner).1 {
            Some(said) => Err(Failure::Run(said)),
            None => Ok(()),
        }
    }
}

/// Writes the worst failures as scenarios, and the files that these name beside them.
fn write(found: &Found, args: &SearchArgs, scenario: &Scenario, folder: &Path) -> Result<(), Failure> {
    let told = |path: &Path, e: std::io::Error| Failure::Run(format!("{}: could not be written: {e}", path.display()));
    for (name, text) in found.scenarios(args.top) {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|e| told(&path, e))?;
    }
    let home = args.scenario.parent().unwrap_or(Path::new(""));
    for input in scenario.inputs().iter().filter(|input| **input != args.scenario) {
        // Scenarios name files relative to themselves.
        let Ok(relative) = input.strip_prefix(home) else { continue };
        if relative.is_absolute() {
            continue;
        }
        let beside = folder.join(relative);
        if relative.components().any(|part| part.as_os_str() == "..") {
            complain(&format!(
                "{}: was not copied to {}; the scenarios there need it",
                input.display(),
                folder.display()
            ));
            continue;
        }
        if let Some(parent) = beside.parent() {
            std::fs::create_dir_all(parent).map_err(|e| told(parent, e))?;
        }
        std::fs::copy(input, &beside).map_err(|e| told(&beside, e))?;
    }
    Ok(())
}

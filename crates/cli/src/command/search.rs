//! `strandway search`: the failures that hurt a scenario most.

use super::compare::simultaneous;
use super::load_with;
use crate::Failure;
use crate::args::SearchArgs;
use crate::outputs::{Outputs, Wanted, complain};
use crate::progress::{Bars, interrupted};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use strandway_lab::search::{Ended, Found, search};
use strandway_lab::{Row, Scenario, Variant};

pub(crate) fn run(args: &SearchArgs) -> Result<(), Failure> {
    let mut changes = args.set.clone();
    changes.extend(args.seed.map(|seed| format!("run.seed={seed}")));
    let scenario = load_with(&args.scenario, &changes)?;
    scenario.check()?;
    let wanted = Wanted { json: args.json.as_ref(), quiet: args.quiet, ..Wanted::default() };
    let mut outputs = Outputs::open(wanted, &scenario.inputs())?;
    if let Some(folder) = &args.out {
        std::fs::create_dir_all(folder).map_err(|e| {
            Failure::Usage(format!("--out {}: cannot be made: {e}; name another folder", folder.display()))
        })?;
    }
    let bars = Bars::new(args.quiet);
    let runs = |variants: &[Variant]| -> Result<Vec<Result<Row, String>>, Failure> {
        let jobs = simultaneous(variants, args.jobs, args.force)?;
        let hops = variants[0].scenario.check().map_or(0, |experiment| experiment.expected_hops());
        let all = bars.all(variants.len(), hops.saturating_mul(variants.len() as u64));
        let watch = |_: usize, experiment: &_, control| (bars.watch("", experiment, control), all.one(experiment));
        let rows: Mutex<Vec<Option<Result<Row, String>>>> = Mutex::new(vec![None; variants.len()]);
        let ended = |i: usize, row| rows.lock().unwrap_or_else(PoisonError::into_inner)[i] = Some(row);
        strandway_lab::run_each(variants, jobs, false, interrupted, watch, ended);
        let rows: Option<Vec<_>> = rows.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect();
        rows.filter(|_| !interrupted()).ok_or_else(|| Failure::Run("interrupted: a search needs all its runs".into()))
    };
    let note = |sentence: &str| {
        if !args.quiet {
            complain(sentence);
        }
    };
    let found = search(&scenario, &args.question(), runs, note).map_err(|ended| match ended {
        Ended::Wrong(problems) => Failure::from(problems),
        Ended::Stopped(failure) => failure,
    })?;
    outputs.show(&found.text(args.top, outputs.width()));
    outputs.json(|| found.to_json())?;
    match &args.out {
        Some(folder) => write(&found, args, &scenario, folder),
        None => Ok(()),
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

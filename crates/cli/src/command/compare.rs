//! `strandway compare` and `strandway sweep`: several runs, one table.

use super::{judge, load};
use crate::Failure;
use crate::args::{Common, CompareArgs, SweepArgs};
use crate::outputs::{Outputs, Wanted};
use crate::progress::{Bars, interrupted};
use strandway_lab::{Estimate, Row, Rows, Scenario, Variant, report};

pub(crate) fn compare(args: &CompareArgs) -> Result<(), Failure> {
    let scenario = load_several(&args.common)?;
    let variants = strandway_lab::compare(&scenario, &args.profiles)?;
    run(&args.common, &scenario, &variants, args.jobs, args.force)
}

/// Loads a scenario for several runs.
fn load_several(common: &Common) -> Result<Scenario, Failure> {
    let scenario = load(common)?;
    if let Some(seed) = common.seed {
        strandway_lab::sweep::seed_counts(&scenario, seed)?;
    }
    Ok(scenario)
}

pub(crate) fn sweep(args: &SweepArgs) -> Result<(), Failure> {
    let scenario = load_several(&args.common)?;
    let variants = strandway_lab::sweep(&scenario)?;
    run(&args.common, &scenario, &variants, args.jobs, args.force)
}

fn run(
    common: &Common,
    scenario: &Scenario,
    variants: &[Variant],
    jobs: Option<u16>,
    force: bool,
) -> Result<(), Failure> {
    let mut outputs = Outputs::open(Wanted::of(common), &scenario.inputs())?;
    let rows = rows(variants, jobs, outputs.html.is_some(), common.quiet, force)?;
    let document = tell(&mut outputs, scenario, rows, "")?;
    if document.rows.len() < variants.len() {
        let (done, all) = (document.rows.len(), variants.len());
        return Err(Failure::Run(format!("interrupted: only {done} of {all} runs were started")));
    }
    judge(document.rows.iter().map(|row| (row.label.as_str(), &row.report)))
}

/// Prints several runs as one table with a remark below it, and writes them to the requested files.
pub(crate) fn tell(outputs: &mut Outputs, scenario: &Scenario, rows: Vec<Row>, remark: &str) -> Result<Rows, Failure> {
    outputs.show(&format!("{}\n{}{remark}", scenario.name(), report::text::rows(&rows, outputs.width())));
    if let Some(output) = outputs.html.take() {
        output.finish(report::html::rows(&scenario.name(), &rows, &scenario.text()).as_bytes())?;
    }
    if let Some(output) = outputs.markdown.take() {
        output.finish(report::markdown::rows(&scenario.name(), &rows).as_bytes())?;
    }
    let document = Rows::new(rows);
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
    let bars = Bars::new(quiet);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let checked = variants.iter().filter_map(|v| v.scenario.check().ok());
    let (threads, estimates): (Vec<usize>, Vec<Estimate>) = checked.map(|e| (e.plan.threads, Estimate::of(&e))).unzip();
    let threads = threads.into_iter().max().unwrap_or(1);
    let wanted = jobs.map_or((processors / threads).max(1), usize::from);
    // Reduce the number of simultaneous runs if memory is short, unless the user chose it.
    let fewest = if jobs.is_some() { wanted } else { 1 };
    let fits = |jobs: &usize| Estimate::together(&estimates, *jobs).fits().is_ok();
    let jobs = (fewest..=wanted).rev().find(fits).unwrap_or(fewest);
    if !force {
        Estimate::together(&estimates, jobs).fits().map_err(Failure::Run)?;
    }
    let watch = |i: usize, experiment: &_, control| bars.watch(&variants[i].label, experiment, control);
    Ok(strandway_lab::run_all(variants, jobs, series, interrupted, watch)?)
}

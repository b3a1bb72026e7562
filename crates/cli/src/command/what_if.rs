//! `strandway what-if`: what draining parts of a fabric costs.

use super::compare::simultaneous;
use super::load_with;
use crate::Failure;
use crate::args::WhatIfArgs;
use crate::outputs::{Outputs, Wanted};
use crate::progress::{Bars, interrupted};
use std::io::Read;
use std::path::Path;
use strandway_lab::{DrainQuestion, Variant, drain_study, run_all};

pub(crate) fn run(args: &WhatIfArgs) -> Result<(), Failure> {
    if !(args.bound.is_finite() && args.bound >= 1.0) {
        return Err(Failure::Usage(format!("--bound {}: write a factor from 1 on, such as 1.1", args.bound)));
    }
    let mut changes = args.set.clone();
    changes.extend(args.seed.map(|seed| format!("run.seed={seed}")));
    let scenario = load_with(&args.scenario, &changes)?;
    let state = args.from.as_deref().map(read).transpose()?;
    let wanted = Wanted { json: args.json.as_ref(), quiet: args.quiet, ..Wanted::default() };
    let mut outputs = Outputs::open(wanted, &scenario.inputs())?;
    let bars = Bars::new(args.quiet);
    let question = DrainQuestion { parts: args.drain.clone(), state, bound: args.bound };
    let drained = drain_study(&scenario, &question, |variants: &[Variant]| {
        let jobs = simultaneous(variants, args.jobs, false)?;
        let watch = |_: usize, experiment: &_, control| bars.watch("", experiment, control);
        let rows = run_all(variants, jobs, false, interrupted, watch)?;
        match rows.len() == variants.len() && !interrupted() {
            true => Ok(rows),
            false => Err(Failure::Run("interrupted".into())),
        }
    })?;
    outputs.show(&drained.text());
    outputs.json(|| drained.to_json())?;
    if let Some(run) = drained.runs.first().filter(|run| !run.finished) {
        return Err(Failure::Run(format!("{}: the scenario does not finish without a drain", run.label)));
    }
    match drained.above.is_empty() {
        true => Ok(()),
        false => Err(Failure::Missed(format!("above the bound of {}: {}", args.bound, drained.above.join(", ")))),
    }
}

/// The text of a state.
fn read(path: &Path) -> Result<String, Failure> {
    let fail = |e: std::io::Error| Failure::Usage(format!("--from {}: cannot be read: {e}", path.display()));
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(fail)?;
        return Ok(text);
    }
    std::fs::read_to_string(path).map_err(fail)
}

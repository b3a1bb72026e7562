//! Many runs of one scenario: all combinations of a `[sweep]`, or one run per profile.

use crate::check;
use strandway_import::{Problem, Problems};
use strandway_scenario::Scenario;
use strandway_scenario::sweep::{Variant, combinations, per_profile};

/// All combinations of the scenario's `[sweep]`; the last key varies fastest.
///
/// # Errors
/// If there is no sweep, or it is wrong; and the problems of every combination.
pub fn sweep(scenario: &Scenario) -> Result<Vec<Variant>, Problems> {
    checked(combinations(scenario)?)
}

/// The scenario once per profile. A profile is a preset, perhaps with other policies (`uec/reps`), or `.` for the
/// scenario's own profile. Changes of keys may follow, each after a plus sign: `prime+routing=hashed` changes
/// `fabric.routing`, and `uec+workload.size=1MB` changes a key of any section. Keys of the scenario's `[sweep]` are
/// varied as well, except those of `[profile]`.
///
/// # Errors
/// If a profile is not known; and the problems of every run.
pub fn compare(scenario: &Scenario, profiles: &[String]) -> Result<Vec<Variant>, Problems> {
    checked(per_profile(scenario, profiles)?)
}

fn checked(variants: Vec<Variant>) -> Result<Vec<Variant>, Problems> {
    // Each problem with the runs that have it: one wrong key is a problem of many runs.
    let mut problems: Vec<(Problem, Vec<String>)> = Vec::new();
    let mut runs = 0;
    for variant in &variants {
        runs += 1;
        for found in check(&variant.scenario).err().into_iter().flat_map(|found| found.0) {
            match problems.iter_mut().find(|(known, _)| *known == found) {
                Some((_, labels)) => labels.push(variant.label.clone()),
                None => problems.push((found, vec![variant.label.clone()])),
            }
        }
        if problems.len() > 20 {
            break;
        }
    }
    let told = |(mut problem, labels): (Problem, Vec<String>)| {
        match labels.len() {
            all if all == runs && runs > 1 => {}
            1 => problem.file = format!("{} ({})", problem.file, labels[0]),
            some => problem.file = format!("{} ({} and {} more runs)", problem.file, labels[0], some - 1),
        }
        problem
    };
    if problems.is_empty() { Ok(variants) } else { Err(Problems(problems.into_iter().map(told).collect())) }
}

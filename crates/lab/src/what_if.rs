//! The cost of draining parts of a fabric for a scenario: its runs with the parts in and out, and an order of draining.
//!
//! A drained part carries no traffic, and all senders know it from the start: with profile `mrc` its EVs are denied, and
//! with others its links are down and routing avoids them at once. Waves are found greedily: parts join a wave in the
//! order of what they cost alone, the cheapest first, as long as the wave stays below the bound.

mod part;
mod state;

use crate::check;
use part::Part;
use state::{FabricState, down};
use std::collections::BTreeMap;
use strandway_import::{Problem, Problems};
use strandway_proto::path::PathConfig;
use strandway_report::drain::{Drained, DrainedRun, Wave};
use strandway_report::{Report, Row};
use strandway_scenario::{Scenario, Variant};
use toml::{Table, Value};

/// A question to [`drain_study`].
#[derive(Clone, Debug)]
pub struct DrainQuestion {
    /// The parts to drain, by name.
    pub parts: Vec<String>,
    /// The fabric as it is: the text of a status or of findings.
    pub state: Option<String>,
    /// The largest slowdown of a wave.
    pub bound: f64,
}

/// The busiest links of a run that are shown: ours.
const LIMITS: usize = 3;

/// Answers a question. `run` runs variants, in parallel if it likes, and returns their rows in order.
///
/// # Errors
/// If the scenario, a part or the state is wrong, or `run` gives up.
pub fn drain_study<E: From<Problems>>(
    scenario: &Scenario,
    question: &DrainQuestion,
    mut run: impl FnMut(&[Variant]) -> Result<Vec<Row>, E>,
) -> Result<Drained, E> {
    let experiment = check(scenario)?;
    let topology = &experiment.plan.topology;
    let denies = matches!(experiment.profile().path, PathConfig::Mrc(_));
    let wrong = |mut problem: Box<Problem>| {
        problem.file = scenario.file().to_string();
        E::from(Problems(vec![*problem]))
    };
    let parts: Vec<Part> =
        question.parts.iter().map(|name| Part::read(topology, name)).collect::<Result<_, _>>().map_err(wrong)?;
    let state = match &question.state {
        Some(text) => FabricState::read(topology, text, denies).map_err(wrong)?,
        None => FabricState::default(),
    };
    let out = |label: &str, out: &[&Part]| variant(scenario, &state, label, out, denies);
    let all: Vec<&Part> = parts.iter().collect();
    let mut variants = vec![out("all in", &[])?, out("all out", &all)?];
    if parts.len() > 1 {
        for part in &parts {
            variants.push(out(&part.name, &[part])?);
        }
    }
    let rows = run(&variants)?;
    let value = if rows[0].report.jobs.is_empty() { "slowest flow" } else { "iteration" };
    let base = time_of(&rows[0].report);
    let runs: Vec<DrainedRun> = rows.iter().map(|row| drained_run(&row.label, &row.report, base)).collect();
    let alone = |at: usize| if parts.len() > 1 { runs[2 + at].slowdown } else { runs[1].slowdown };
    // The cheapest first; a part without a result is above every bound.
    let mut order: Vec<(f64, usize)> = (0..parts.len()).map(|at| (alone(at).unwrap_or(f64::INFINITY), at)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut waves, mut above): (Vec<(Vec<usize>, f64)>, Vec<String>) = (Vec::new(), Vec::new());
    for (slowdown, at) in order {
        if slowdown > question.bound {
            above.push(parts[at].name.clone());
            continue;
        }
        let mut joined = false;
        for (members, factor) in &mut waves {
            let together: Vec<&Part> = members.iter().chain([&at]).map(|at| &parts[*at]).collect();
            let names: Vec<&str> = together.iter().map(|part| &part.name[..]).collect();
            let rows = run(&[out(&names.join(" + "), &together)?])?;
            let with = drained_run("", &rows[0].report, base).slowdown;
            if let Some(with) = with.filter(|with| *with <= question.bound) {
                members.push(at);
                *factor = with;
                joined = true;
                break;
            }
        }
        if !joined {
            waves.push((vec![at], slowdown));
        }
    }
    let wave = |(members, slowdown): (Vec<usize>, f64)| Wave {
        parts: members.into_iter().map(|at| parts[at].name.clone()).collect(),
        slowdown,
    };
    Ok(Drained {
        format: 1,
        scenario: rows[0].report.head.scenario.clone(),
        parts: question.parts.clone(),
        state: state.texts.clone(),
        value: value.into(),
        bound: question.bound,
        runs,
        waves: waves.into_iter().map(wave).collect(),
        above,
    })
}

/// The scenario with the fabric as it is, and with these parts out.
fn variant(
    scenario: &Scenario,
    state: &FabricState,
    label: &str,
    out: &[&Part],
    denies: bool,
) -> Result<Variant, Problems> {
    let mut scenario = scenario.clone();
    let mut faults: Vec<Value> = scenario.table().get("faults").and_then(Value::as_array).cloned().unwrap_or_default();
    faults.extend(state.faults.iter().cloned().map(Value::Table));
    for target in out.iter().flat_map(|part| &part.targets) {
        // A host's own port that is out is down, whoever chooses paths.
        let denied = denies && !target.contains_key("port");
        let mut fault = match denied {
            true => Table::from_iter([("kind".to_string(), Value::String("deny".into()))]),
            false => down(),
        };
        fault.extend(target.clone());
        faults.push(Value::Table(fault));
    }
    scenario.set_value("faults", Value::Array(faults))?;
    Ok(Variant { label: label.into(), set: BTreeMap::new(), scenario })
}

/// The compared time of a run that has finished.
fn time_of(report: &Report) -> Option<f64> {
    if report.head.end != "finished" {
        return None;
    }
    match report.jobs.is_empty() {
        true => report.times.fct_us.max,
        false => report.jobs.iter().filter_map(|job| job.iteration_us).reduce(f64::max),
    }
}

fn drained_run(label: &str, report: &Report, base: Option<f64>) -> DrainedRun {
    let time = time_of(report);
    let planes = report.load.links.iter().map(|group| usize::from(group.plane) + 1).max().unwrap_or(0);
    let load = |plane: usize| {
        let groups = report.load.links.iter().filter(|group| usize::from(group.plane) == plane && group.level > 0);
        let (sum, links) = groups.fold((0.0, 0.0), |(sum, links), group| {
            (sum + group.utilisation * f64::from(group.links), links + f64::from(group.links))
        });
        if links > 0.0 { sum / links } else { 0.0 }
    };
    let missed = report.expect.iter().filter(|bound| !bound.met).map(|bound| {
        let value = bound.value.map_or("no value".into(), |value| value.to_string());
        format!("{} {}: {value}", bound.key, bound.bound)
    });
    DrainedRun {
        label: label.into(),
        finished: report.head.end == "finished",
        time_us: time,
        slowdown: time.zip(base).map(|(time, base)| time / base),
        slowest_flow_us: report.times.fct_us.max,
        iteration_us: report.jobs.iter().filter_map(|job| job.iteration_us).reduce(f64::max),
        missed: missed.collect(),
        planes: (0..planes).map(load).collect(),
        limits: report.load.hottest.iter().take(LIMITS).map(|link| (link.name.clone(), link.utilisation)).collect(),
    }
}

#[cfg(test)]
mod tests;

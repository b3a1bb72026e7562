//! The answer of a search, for the terminal.

use crate::grid::{ALWAYS, Grid};
use crate::numbers::{count, percent, us};
use crate::search_result::{FailureFacts, Found, StepFacts};

/// A table per step for a terminal of `width` characters, with the `top` worst failures.
pub fn search_result(found: &Found, top: usize, width: Option<usize>) -> String {
    let mut out = format!("{}\n", found.scenario);
    for (key, value) in &found.baseline {
        out.push_str(&format!("{}: {key} = {}\n", without(found), shown(key, *value)));
    }
    for step in &found.steps {
        out.push_str(&format!("\n{}\n", heading(found, step)));
        let mut grid = Grid::default();
        for (head, rank) in [
            ("", 4),
            ("failure", ALWAYS),
            ("", ALWAYS),
            ("from", ALWAYS),
            ("result", 3),
            ("slowdown", ALWAYS),
            ("alike", 2),
        ] {
            grid.column(head, rank, !["failure", ""].contains(&head));
        }
        let ranked = step.failures.iter().filter(|failure| !failure.disconnects);
        for (place, failure) in ranked.take(top).enumerate() {
            grid.row(row(place, failure));
        }
        out.extend(disconnecting(step));
        if step.failures.iter().any(|failure| !failure.disconnects) {
            out.push_str(&grid.text(width));
        }
    }
    out
}

/// Limit on the names in a line.
const NAMES: usize = 6;

/// A line with the failures that cut hosts off.
pub(crate) fn disconnecting(step: &StepFacts) -> Option<String> {
    let mut parts: Vec<(&str, u64)> = Vec::new();
    for failure in step.failures.iter().filter(|failure| failure.disconnects) {
        if parts.iter().all(|(name, _)| *name != failure.name) {
            parts.push((&failure.name, failure.alike));
        }
    }
    let all = match found_alike(step) {
        true => parts.iter().map(|(_, alike)| *alike).sum(),
        false => parts.len() as u64,
    };
    let names: Vec<&str> = parts.iter().map(|(name, _)| *name).take(NAMES).collect();
    let more = if parts.len() > NAMES { ", ..." } else { "" };
    (!parts.is_empty()).then(|| {
        format!(
            "without any of {} parts hosts are cut off, and the run does not end: {}{more}\n",
            count(all),
            names.join(", ")
        )
    })
}

/// True if each part that was tried stands for others.
fn found_alike(step: &StepFacts) -> bool {
    step.tried == step.classes
}

fn row(place: usize, failure: &FailureFacts) -> [String; 7] {
    let result = match (&failure.key, failure.value) {
        (Some(key), Some(value)) => shown(key, value),
        _ => format!("{} arrived", percent(failure.delivered)),
    };
    [
        (place + 1).to_string(),
        failure.name.clone(),
        failure.effect.clone(),
        us(Some(failure.at_us)),
        result,
        failure.slowdown.map_or("does not end".into(), |times| format!("{times:.3}")),
        count(failure.alike),
    ]
}

/// The run that failures are compared with.
pub(crate) fn without(found: &Found) -> &'static str {
    if found.own_faults == 0 { "without a failure" } else { "with the scenario's own faults only" }
}

pub(crate) fn heading(found: &Found, step: &StepFacts) -> String {
    let beside = match step.beside.is_empty() {
        true => String::new(),
        false => format!("beside {}: ", step.beside.join(" and ")),
    };
    let pruned = if found.single_paths {
        "all of them, since packets of a connection keep one path, and hashes choose it".to_string()
    } else if step.tried == step.parts {
        "all of them".to_string()
    } else {
        format!("{} classes of parts that are alike under the fabric's symmetry", count(step.classes))
    };
    format!("{beside}{} of {} parts tried in {} runs: {pruned}", count(step.tried), count(step.parts), count(step.runs))
}

/// A value, as a time if its name says so.
pub(crate) fn shown(key: &str, value: f64) -> String {
    if key.contains("_us") { us(Some(value)) } else { format!("{value:.3}") }
}

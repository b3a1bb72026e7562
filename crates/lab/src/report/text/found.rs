//! The answer of a search, for the terminal.

use super::grid::{ALWAYS, Grid};
use super::{count, percent, us};
use crate::search::{FailureFacts, Found, StepFacts};

/// A table per step, with the worst failures.
pub(crate) fn found(found: &Found, top: usize, width: Option<usize>) -> String {
    let mut out = format!("{}\n", found.scenario);
    for (key, value) in &found.baseline {
        let without = match found.own_faults {
            0 => "without a failure",
            _ => "with the scenario's own faults only",
        };
        out.push_str(&format!("{without}: {key} = {}\n", shown(key, *value)));
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
        for (place, failure) in step.failures.iter().take(top).enumerate() {
            grid.row(row(place, failure));
        }
        out.push_str(&grid.text(width));
    }
    out
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

fn heading(found: &Found, step: &StepFacts) -> String {
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
fn shown(key: &str, value: f64) -> String {
    if key.contains("_us") { us(Some(value)) } else { format!("{value:.3}") }
}

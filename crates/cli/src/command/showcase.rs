//! `strandway` without a command: compares single-path RoCEv2 with spraying for a training traffic pattern.

use super::check_expectations;
use crate::Failure;
use crate::command::compare::rows;
use crate::outputs::{finish, open_here, print, terminal_width};
use std::path::Path;
use std::time::Instant;
use strandway_lab::Scenario;
use strandway_report as report;

/// The scenario, the same as in the repository.
const SCENARIO: &str = include_str!("../showcase.toml");

/// The protocols to compare.
const PROFILES: [&str; 4] = ["rocev2", "uec/oblivious", "uec/reps", "uec/bitmap"];

/// The file name of the page.
const PAGE: &str = "strandway-showcase.html";

pub(crate) fn showcase() -> Result<(), Failure> {
    let began = Instant::now();
    let scenario = Scenario::from_text("showcase.toml", SCENARIO)?;
    let output = open_here(Path::new(PAGE))?;
    let variants = strandway_lab::compare(&scenario, &PROFILES.map(String::from))?;
    let experiment = strandway_lab::check(&scenario)?;
    let topology = &experiment.plan.topology;
    print(&format!(
        "Strandway showcase: {} hosts at {}, {} leaves and {} spines; every host sends {} to another one.\n\n",
        topology.hosts(),
        experiment.derived.rate,
        topology.leaves(),
        topology.spines(),
        strandway_proto::Bytes(experiment.messages[0].bytes),
    ));
    let rows = rows(&variants, None, true, false, false)?;
    print(&report::text::rows(&rows, terminal_width()));
    print(&finding(&rows));
    finish(output, report::html::rows(&scenario.name(), &rows, SCENARIO).as_bytes())?;
    print(&format!(
        "\nWrote {PAGE} (open it in a browser) after {:.1} s.\n\n\
         What next:\n  \
         strandway run scenarios/smoke/permutation.toml       a scenario of your own starts as a copy of this one\n  \
         strandway run your-matrix.cm --html report.html      your own traffic matrix (htsim .cm)\n  \
         strandway explain                                    everything that has a name, with its sources\n  \
         strandway --help\n",
        began.elapsed().as_secs_f64()
    ));
    check_expectations(rows.iter().map(|row| (row.label.as_str(), &row.report)))
}

fn finding(rows: &[strandway_report::Row]) -> String {
    let text = report::html::headline(rows);
    if text.is_empty() { text } else { format!("\n{text}\n") }
}

//! One file per command.

pub(crate) mod compare;
pub(crate) mod explain;
pub(crate) mod localise;
pub(crate) mod model;
#[cfg_attr(not(target_os = "linux"), path = "command/elsewhere.rs")]
pub(crate) mod real_hosts;
pub(crate) mod reproduce;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod setup;
pub(crate) mod showcase;
pub(crate) mod what_if;

use crate::Failure;
use crate::args::Common;
use strandway_lab::Scenario;
use strandway_report::Report;

/// The scenario with the changes of the command line.
fn load(common: &Common) -> Result<Scenario, Failure> {
    let mut changes = common.set.clone();
    changes.extend(common.seed.map(|seed| format!("run.seed={seed}")));
    changes.extend(common.threads.as_ref().map(|threads| format!("run.threads={threads}")));
    load_with(&common.scenario, &changes)
}

/// The command line, quoted for a shell.
fn command_line() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    let quoted = |word: String| {
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    let words = crate::invocation::arguments().iter().map(|word| quoted(word.to_string_lossy().into_owned()));
    std::iter::once("strandway".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}

/// The scenario with these changes.
fn load_with(file: &std::path::Path, changes: &[String]) -> Result<Scenario, Failure> {
    let mut scenario = Scenario::load(file)?;
    scenario.asked_by(&command_line());
    let problems: Vec<_> = changes.iter().filter_map(|c| scenario.set(c).err()).flat_map(|p| p.0).collect();
    if problems.is_empty() { Ok(scenario) } else { Err(strandway_import::Problems(problems).into()) }
}

/// The exit status for these reports.
fn check_expectations<'a>(reports: impl IntoIterator<Item = (&'a str, &'a Report)>) -> Result<(), Failure> {
    let (mut failed, mut missed) = (Vec::new(), Vec::new());
    for (label, report) in reports {
        let name = if label.is_empty() { report.scenario.clone() } else { label.to_string() };
        if report.end != "finished" {
            let (done, all) = (report.flows.finished, report.flows.total);
            failed.push(format!("{name}: {done} of {all} flows finished; the run ended with \"{}\"", report.end));
        }
        for e in report.expect.iter().filter(|e| !e.met) {
            let value = e.value.map_or("no value".to_string(), |v| v.to_string());
            missed.push(format!("{name}: expected {} {}, got {value}", e.key, e.bound));
        }
    }
    if !failed.is_empty() {
        failed.extend(missed);
        return Err(Failure::Run(failed.join("\n")));
    }
    if missed.is_empty() { Ok(()) } else { Err(Failure::Missed(missed.join("\n"))) }
}

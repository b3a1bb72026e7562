//! One file per command.

pub(crate) mod calibrate;
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
use crate::outputs::complain;
use strandway_import::Problems;
use strandway_lab::Scenario;
use strandway_report::Report;

/// The scenario with the changes of the command line.
fn load(common: &Common) -> Result<Scenario, Failure> {
    let mut changes = common.set.clone();
    changes.extend(common.seed.map(|seed| format!("run.seed={seed}")));
    changes.extend(common.threads.as_ref().map(|threads| format!("run.threads={threads}")));
    let given = common.scenario.as_path();
    let Some(file) = strandway_import::runnable(given, common.gpus)? else {
        if common.gpus.is_some() {
            let what = "has its number of GPUs in itself: --gpus is for files of other tools";
            return Err(Problems::with_file(&given.display().to_string(), what, "change the file, or use --set").into());
        }
        return changed(Scenario::load(given)?, &changes);
    };
    let Some(gpus) = file.gpus else {
        let what = "does not say its number of GPUs";
        return Err(Problems::with_file(&given.display().to_string(), what, "write --gpus N").into());
    };
    let scenario = Scenario::of_job(given, gpus, file.needs_gpus)?;
    if !common.quiet {
        complain(&format!(
            "{} without a scenario: {gpus} GPUs with a NIC each, {} in a server, on the fabric and the profile that are the \
             defaults; --set changes keys, as with a scenario",
            given.display(),
            scenario.table()["servers"]["gpus"]
        ));
    }
    changed(scenario, &changes)
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
    changed(Scenario::load(file)?, changes)
}

fn changed(mut scenario: Scenario, changes: &[String]) -> Result<Scenario, Failure> {
    scenario.asked_by(&command_line());
    let problems: Vec<_> = changes.iter().filter_map(|c| scenario.set(c).err()).flat_map(|p| p.0).collect();
    if problems.is_empty() { Ok(scenario) } else { Err(Problems(problems).into()) }
}

/// The exit status for these reports.
fn check_expectations<'a>(reports: impl IntoIterator<Item = (&'a str, &'a Report)>) -> Result<(), Failure> {
    let (mut failed, mut missed) = (Vec::new(), Vec::new());
    for (label, report) in reports {
        let name = if label.is_empty() { report.head.scenario.clone() } else { label.to_string() };
        if report.head.end != "finished" {
            let (done, all) = (report.flows.finished, report.flows.total);
            let requests = report.services.iter().map(|service| {
                format!(", {} of {} requests of {} ended", service.ended, service.requests, service.name)
            });
            let requests: String = requests.collect();
            failed.push(format!(
                "{name}: {done} of {all} flows finished{requests}; the run ended with \"{}\"",
                report.head.end
            ));
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

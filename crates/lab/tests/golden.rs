//! The smoke and golden scenarios meet their own bounds and give the same digest on 1, 2 and 7 threads. Golden
//! scenarios give the digest in `scenarios/golden/digests.txt`, and the row of results in `scenarios/golden/results.md`.
//!
//! A changed digest needs a review, and the row shows what has changed: `STRANDWAY_BLESS=1 cargo test -p strandway-lab
//! --test golden` writes both files anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use strandway_lab::{Scenario, run};
use strandway_report::Report;
use strandway_sim::Control;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The scenarios of a directory, in order.
fn scenarios(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("scenarios").join(folder)).expect("the folder of scenarios");
    let mut files: Vec<PathBuf> =
        entries.map(|e| e.expect("an entry").path()).filter(|p| p.extension().is_some_and(|e| e == "toml")).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// Runs a scenario with several numbers of threads. Returns its report, or an error.
fn outcome(path: &Path) -> Result<Report, String> {
    let scenario = Scenario::load(path).unwrap_or_else(|e| panic!("{e}"));
    let mut reports: Vec<Report> = Vec::new();
    for threads in [1, 2, 7] {
        let mut experiment = strandway_lab::check(&scenario).unwrap_or_else(|e| panic!("{e}"));
        experiment.plan.threads = threads;
        let report = run(&experiment, &Control::new()).report;
        let missed: Vec<_> = report.expect.iter().filter(|e| !e.met).collect();
        if !missed.is_empty() || report.head.end != "finished" {
            return Err(format!("{} on {threads} threads: {}, missed {missed:?}", path.display(), report.head.end));
        }
        reports.push(report);
    }
    if reports.iter().any(|report| report.head.digest != reports[0].head.digest) {
        let digests: Vec<&String> = reports.iter().map(|report| &report.head.digest).collect();
        return Err(format!("{}: digests on 1, 2 and 7 threads differ: {digests:?}", path.display()));
    }
    Ok(reports.swap_remove(0))
}

#[test]
fn smoke_scenarios_meet_their_bounds_on_any_number_of_threads() {
    let failures: Vec<String> = scenarios("smoke").iter().filter_map(|path| outcome(path).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The heads of the table of results.
const HEAD: &str = "\
# Results of the golden scenarios

`STRANDWAY_BLESS=1 cargo test -p strandway-lab --test golden` writes this table and `digests.txt`. Times of flows are completion times; runs whose
messages have no rows have the time of their longest collective or of their jobs' slowest iteration instead.

| scenario | flows finished | p50, us | p99, us | max, us | collective or iteration, us | sent again | trimmed | dropped | lost to faults | timeouts |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
";

/// The row of a report: what a reviewer of a changed digest wants to know first.
fn row(name: &str, report: &Report) -> String {
    let us = |time: Option<f64>| time.map_or("–".to_string(), |us| format!("{us:.3}"));
    let slowest =
        report.collectives.iter().map(|one| one.time_us).chain(report.jobs.iter().map(|job| job.iteration_max_us));
    let slowest = slowest.flatten().max_by(f64::total_cmp);
    let (times, packets) = (&report.times.fct_us, &report.packets);
    format!(
        "| {name} | {} of {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
        report.flows.finished,
        report.flows.total,
        us(times.p50),
        us(times.p99),
        us(times.max),
        us(slowest),
        packets.retransmitted,
        packets.trimmed,
        packets.dropped,
        packets.lost,
        packets.timeouts,
    )
}

#[test]
fn golden_scenarios_have_their_pinned_digests() {
    let (digests, results) = (root().join("scenarios/golden/digests.txt"), root().join("scenarios/golden/results.md"));
    let found: BTreeMap<String, Report> = scenarios("golden")
        .iter()
        .map(|path| {
            let report = outcome(path).unwrap_or_else(|e| panic!("{e}"));
            (path.file_stem().expect("a name").to_string_lossy().into_owned(), report)
        })
        .collect();
    let text: String = found.iter().map(|(name, report)| format!("{name} {}\n", report.head.digest)).collect();
    let rows: String = HEAD.to_string() + &found.iter().map(|(name, report)| row(name, report)).collect::<String>();
    if std::env::var_os("STRANDWAY_BLESS").is_some() {
        std::fs::write(&digests, text).expect("the table of digests is writable");
        std::fs::write(&results, rows).expect("the table of results is writable");
        return;
    }
    let read = |file: &Path| std::fs::read_to_string(file).unwrap_or_default();
    let remedy = "if that is meant, bless it (see the top of this file) and say why";
    assert_eq!(rows, read(&results), "results changed; {remedy}");
    assert_eq!(text, read(&digests), "digests changed; {remedy}");
}

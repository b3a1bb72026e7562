//! The smoke and golden scenarios meet their own bounds and give the same digest on 1, 2 and 7 threads. Golden
//! scenarios give the digest in `scenarios/golden/digests.txt`.
//!
//! A changed digest needs a review: `STRANDWAY_BLESS=1 cargo test -p strandway-lab --test golden` writes the file anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use strandway_lab::{Scenario, run};
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

/// Runs a scenario with several numbers of threads. Returns its digest, or an error.
fn digest(path: &Path) -> Result<String, String> {
    let scenario = Scenario::load(path).unwrap_or_else(|e| panic!("{e}"));
    let mut digests = Vec::new();
    for threads in [1, 2, 7] {
        let mut experiment = strandway_lab::check(&scenario).unwrap_or_else(|e| panic!("{e}"));
        experiment.plan.threads = threads;
        let report = run(&experiment, &Control::new()).report;
        let missed: Vec<_> = report.expect.iter().filter(|e| !e.met).collect();
        if !missed.is_empty() || report.end != "finished" {
            return Err(format!("{} on {threads} threads: {}, missed {missed:?}", path.display(), report.end));
        }
        digests.push(report.digest);
    }
    if digests.iter().any(|d| *d != digests[0]) {
        return Err(format!("{}: digests on 1, 2 and 7 threads differ: {digests:?}", path.display()));
    }
    Ok(digests.swap_remove(0))
}

#[test]
fn smoke_scenarios_meet_their_bounds_on_any_number_of_threads() {
    let failures: Vec<String> = scenarios("smoke").iter().filter_map(|path| digest(path).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn golden_scenarios_have_their_pinned_digests() {
    let file = root().join("scenarios/golden/digests.txt");
    let found: BTreeMap<String, String> = scenarios("golden")
        .iter()
        .map(|path| {
            let digest = digest(path).unwrap_or_else(|e| panic!("{e}"));
            (path.file_stem().expect("a name").to_string_lossy().into_owned(), digest)
        })
        .collect();
    let text: String = found.iter().map(|(name, digest)| format!("{name} {digest}\n")).collect();
    if std::env::var_os("STRANDWAY_BLESS").is_some() {
        std::fs::write(&file, text).expect("the table of digests is writable");
        return;
    }
    let pinned = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(text, pinned, "digests changed; if that is meant, bless them (see the top of this file) and say why");
}

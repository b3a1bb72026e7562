//! Other people's traffic matrices and topologies, where a copy of them lies at hand: in the folder named by
//! `STRANDWAY_DATA`, or beside the repository. Skipped, saying so, where there is none.

use std::path::{Path, PathBuf};
use strandway_lab::import::htsim::{parse_cm_named, parse_topo_named};
use strandway_lab::{Scenario, run};
use strandway_sim::Control;

fn htsim() -> Option<PathBuf> {
    let folder = match std::env::var_os("STRANDWAY_DATA") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    let folder = folder.join("htsim");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no htsim files in {}; set STRANDWAY_DATA to the folder above them", folder.display());
    None
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("readable");
    entries.map(|e| e.expect("an entry").path()).filter(|p| p.extension().is_some_and(|e| e == extension)).collect()
}

#[test]
fn every_matrix_and_topology_is_understood() {
    let Some(folder) = htsim() else { return };
    for path in files(&folder, "cm") {
        let text = std::fs::read_to_string(&path).expect("readable");
        let matrix = parse_cm_named(&path.display().to_string(), &text).unwrap_or_else(|e| panic!("{e}"));
        assert!(!matrix.flows.is_empty() && matrix.nodes >= 16);
    }
    for path in files(&folder, "topo") {
        let text = std::fs::read_to_string(&path).expect("readable");
        let topology = parse_topo_named(&path.display().to_string(), &text).unwrap_or_else(|e| panic!("{e}"));
        assert!(topology.hosts() >= 32);
    }
}

#[test]
fn small_matrices_finish_within_their_projects_own_limits() {
    let Some(folder) = htsim() else { return };
    for (file, limit) in
        [("one.cm", 190.0), ("bidir.cm", 190.0), ("incast.cm", 2_550.0), ("perm_16n_16c_2MB.cm", 210.0)]
    {
        let mut scenario = Scenario::load(&folder.join(file)).unwrap_or_else(|e| panic!("{e}"));
        for change in ["profile.path=mixed", "profile.mixed.entropies=128"] {
            scenario.set(change).unwrap_or_else(|e| panic!("{e}"));
        }
        let experiment = scenario.check().unwrap_or_else(|e| panic!("{e}"));
        let report = run(&experiment, &Control::new()).report;
        let slowest = report.fct_us.max.expect("flows finished");
        assert!(report.end == "finished" && slowest <= limit, "{file}: {slowest} us, limit {limit}");
    }
}

//! Reads files of other simulators.

pub mod chakra;
pub mod goal;
pub mod htsim;
pub mod simai;
pub mod trace;
mod wire;

use crate::problem::{Problem, Problems};
use crate::scenario::read_file;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Says what is in a file of another simulator, a pipe or standard input (`-`), or in the files of a Chakra trace (a
/// folder, or a prefix), and what is assumed of it.
///
/// # Errors
/// If it cannot be read, is of no kind that is known, or not sound.
pub fn describe_file(path: &Path) -> Result<String, Problems> {
    let file = path.display().to_string();
    let is_et = path.extension().is_some_and(|extension| extension == "et");
    let pipes = file == "-" || path.exists() && !path.is_file() && !path.is_dir();
    if !pipes && (path.is_dir() || is_et || !path.exists() && chakra::files_of(path).is_ok()) {
        return Ok(chakra::files_of(path)?.read(&file, chakra::Options::default(), None)?.describe());
    }
    if !pipes && let Ok(opened) = std::fs::File::open(path) {
        let mut bytes = BufReader::new(opened);
        let start = bytes.fill_buf().unwrap_or_default();
        if goal::is_binary(start) || goal::is_text(start) {
            return goal::describe(&file, bytes);
        }
    }
    describe(&file, &read_file(path)?)
}

/// Says what is in a file of another simulator, called `file`, and what is assumed of it.
///
/// # Errors
/// If it is of no kind that is known, or not sound.
pub fn describe(file: &str, text: &str) -> Result<String, Problems> {
    if simai::is_workload(text) {
        return Ok(simai::parse(file, text)?.describe());
    }
    if goal::is_text(text.as_bytes()) {
        return goal::describe(file, text.as_bytes());
    }
    if text.trim_start().starts_with("Nodes") {
        let matrix = htsim::parse_cm_named(file, text)?;
        return Ok(format!(
            "an htsim traffic matrix: {} hosts, {} flows, {} triggers\nto run it: strandway run {file}, or [workload] kind = \"matrix\"\n",
            matrix.nodes,
            matrix.flows.len(),
            matrix.triggers.len()
        ));
    }
    Err(Problems(vec![Problem {
        file: file.to_string(),
        what: "is of no kind that is known".to_string(),
        remedy:
            "Chakra traces (.et), GOAL schedules, SimAI and AICB workloads (.txt) and htsim traffic matrices (.cm) are"
                .to_string(),
        ..Problem::default()
    }]))
}

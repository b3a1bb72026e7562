//! Reads files of other simulators.

pub mod htsim;
pub mod simai;

use crate::problem::{Problem, Problems};
use crate::scenario::read_file;
use std::path::Path;

/// The same as [`describe`] of a file, a pipe or standard input (`-`).
///
/// # Errors
/// If it cannot be read, too.
pub fn describe_file(path: &Path) -> Result<String, Problems> {
    describe(&path.display().to_string(), &read_file(path)?)
}

/// Says what is in a file of another simulator, called `file`, and what is assumed of it.
///
/// # Errors
/// If it is of no kind that is known, or not sound.
pub fn describe(file: &str, text: &str) -> Result<String, Problems> {
    if simai::is_workload(text) {
        return Ok(simai::parse(file, text)?.describe());
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
        remedy: "SimAI and AICB workloads (.txt) and htsim traffic matrices (.cm) are".to_string(),
        ..Problem::default()
    }]))
}

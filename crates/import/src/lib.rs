#![doc = include_str!("../README.md")]

pub mod aicb;
pub mod chakra;
mod file;
mod folder;
pub mod goal;
pub mod htsim;
mod importer;
pub mod infragraph;
pub mod leaf_spine;
pub mod measured;
pub mod msccl;
pub mod mscclpp;
pub mod nccl;
pub mod nccl_tuner;
mod problem;
pub mod recording;
pub mod requests;
mod runnable;
pub mod simai;
pub mod simai_topology;
pub mod switch_graph;
pub mod trace;
mod wire;
mod xml;

pub use file::{read_bytes, read_file};
pub use importer::{IMPORTERS, Importer, ReadTrace};
pub use problem::{Problem, Problems, nearest, suggest};
pub use runnable::{Runnable, runnable};

use std::io::{BufRead, BufReader};
use std::path::Path;

/// Limit on the hosts of a fabric: eight times the largest fabric that Strandway was built for.
pub const HOSTS_MAX: u64 = 1 << 20;

/// Limit on the flows of a run.
pub const FLOWS_MAX: u64 = 1 << 22;

/// Says what is in a file of another simulator, a pipe or standard input (`-`), or in the files of a Chakra trace (a
/// folder, or a prefix), and what is assumed of it. Any other folder: a line for each file in it.
///
/// # Errors
/// If it cannot be read, is of no kind that is known, or not sound.
pub fn describe_file(path: &Path) -> Result<String, Problems> {
    describe_file_for(path, None)
}

/// Describes a file as [`describe_file`] does. `gpus` is the number of GPUs, if the file does not name it.
///
/// # Errors
/// Those of [`describe_file`].
pub fn describe_file_for(path: &Path, gpus: Option<u32>) -> Result<String, Problems> {
    let file = path.display().to_string();
    if recording::is_recording(path) {
        return Ok(recording::read(path)?.describe());
    }
    let is_et = chakra::is_trace(path);
    let pipes = file == "-" || path.exists() && !path.is_file() && !path.is_dir();
    if path.is_dir() && chakra::files_of(path).is_err() {
        return folder::describe(path, gpus);
    }
    if !pipes && (path.is_dir() || is_et || !path.exists() && chakra::files_of(path).is_ok()) {
        return Ok(chakra::files_of(path)?.read(&file, chakra::Options::default(), None)?.describe());
    }
    if !pipes && infragraph::is_protobuf(path) {
        return Ok(infragraph::parse_protobuf(&file, &read_bytes(path)?, None)?.describe());
    }
    if !pipes && let Ok(opened) = std::fs::File::open(path) {
        let mut bytes = BufReader::new(opened);
        let start = bytes.fill_buf().unwrap_or_default();
        if goal::is_binary(start) || goal::is_text(start) {
            return goal::describe(&file, bytes);
        }
    }
    describe(&file, &read_file(path)?, gpus)
}

/// Says what is in a file of another simulator, called `file`, and what is assumed of it. `gpus` is the number of GPUs,
/// if the file does not say it.
///
/// # Errors
/// If it is of no kind that is known, or not sound.
pub fn describe(file: &str, text: &str, gpus: Option<u32>) -> Result<String, Problems> {
    if let Some(importer) = Importer::of(text) {
        return (importer.describe)(file, text, gpus);
    }
    let remedy = "known are Chakra traces (.et), GOAL schedules, workloads (.txt), lists (.csv) and topologies of SimAI and \
                  AICB, InfraGraph (.yaml, .json, .pb), MSCCL and NCCL files (.xml, .csv), and htsim traffic matrices (.cm) and topologies (.topo)";
    Err(Problems::with_file(file, "is of no kind that is known", remedy))
}

//! `file` in `[job]`: a workload of SimAI or AICB, or a trace of all ranks (Chakra, GOAL, recordings).

use super::gpus::{GPUS, RANKS_MAX};
use crate::keys::key_names;
use crate::reader::Section;
use crate::scenario::Scenario;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use strandway_import::chakra;
use strandway_import::goal;
use strandway_import::recording;
use strandway_import::simai::{self, Workload};
use strandway_import::trace::{Trace, problem};
use strandway_import::{Importer, Problems};

/// A file, understood.
pub(super) enum Source {
    /// Layers of one rank of one stage.
    Layers(Arc<Workload>),
    /// Operations of each rank.
    Trace(Arc<Trace>),
}

/// Keys of `[job]` that have a meaning with a trace.
const WITH_TRACE: [&str; 20] = [
    "name",
    "profile",
    "start",
    "connections",
    "file",
    "groups",
    "control_dependencies",
    "compute_scale",
    "gpus",
    "gpu",
    "tflops",
    "efficiency",
    "stragglers",
    "noise",
    "pipeline",
    "window",
    "algorithm",
    "tuning",
    "tuner",
    "placement",
];

/// Reads the file called `name`. Problems go into the section's sink.
pub(super) fn read(section: &Section<'_>, scenario: &Scenario, name: &str) -> Option<Source> {
    let path = scenario.path(name);
    let recorded = recording::is_recording(&path);
    let read = match !recorded && is_chakra(&path) {
        _ if recorded => recording::read(&path).map(|trace| Source::Trace(Arc::new(trace))),
        true => trace_of_chakra(section, scenario, &path).map(Source::Trace),
        false => other(section, scenario, name, &path),
    };
    match read {
        Ok(source) => {
            let control = section.flag("control_dependencies");
            if recorded || !is_chakra(&path) {
                for key in ["groups", "control_dependencies"].into_iter().filter(|key| section.has(key)) {
                    section.wrong(key, "has a meaning with Chakra traces only", "remove it");
                }
            }
            let _ = (control, section.raw("groups"));
            let scale = section.ratio("compute_scale", 1e-3, 1e3).filter(|scale| *scale != 1.0);
            Some(match (source, scale) {
                (Source::Trace(trace), Some(scale)) => {
                    let mut trace = Arc::unwrap_or_clone(trace);
                    trace.scale_compute(scale);
                    Source::Trace(Arc::new(trace))
                }
                (Source::Layers(workload), Some(scale)) => {
                    let mut workload = Arc::unwrap_or_clone(workload);
                    workload.scale_compute(scale);
                    Source::Layers(Arc::new(workload))
                }
                (source, None) => source,
            })
        }
        Err(problems) => {
            section.sink.extend(problems.0);
            None
        }
    }
}

/// A folder, a file of a trace, or a prefix of such names.
fn is_chakra(path: &Path) -> bool {
    path.is_dir() || chakra::is_trace(path) || !path.exists() && prefixes(path)
}

fn prefixes(path: &Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    ["et", "json"].iter().any(|ending| path.with_file_name(format!("{}.0.{ending}", name.to_string_lossy())).exists())
}

fn trace_of_chakra(section: &Section<'_>, scenario: &Scenario, path: &Path) -> Result<Arc<Trace>, Problems> {
    let gpu = section.text("gpu").unwrap_or_else(|| "h100".to_string());
    let known = GPUS.iter().find(|(name, ..)| *name == gpu).unwrap_or(&GPUS[1]);
    let peak = 1e12 * section.ratio("tflops", 1e-3, 1e9).unwrap_or(known.1);
    let options = chakra::Options {
        flops: peak * section.ratio("efficiency", 1e-3, 1.0).unwrap_or(0.5),
        memory: known.2 * 1e12,
        control: section.flag("control_dependencies").unwrap_or(false),
    };
    let set = chakra::files_of(path)?;
    set.files.iter().for_each(|file| scenario.note(file));
    let groups = section.text("groups").map(|name| scenario.read(&name)).transpose()?;
    let groups = groups.as_ref().map(|(file, text)| (file.as_str(), text.as_str()));
    set.read(&path.display().to_string(), options, groups).map(Arc::new)
}

fn other(section: &Section<'_>, scenario: &Scenario, name: &str, path: &Path) -> Result<Source, Problems> {
    let file = path.display().to_string();
    if path.is_file() {
        let opened = std::fs::File::open(path)
            .map_err(|error| problem(&file, None, "", format!("cannot be read: {error}"), "check the path"))?;
        let mut bytes = BufReader::new(opened);
        let start = bytes.fill_buf().unwrap_or_default();
        if goal::is_binary(start) || goal::is_text(start) {
            scenario.note(path);
            return goal::parse(&file, bytes).map(|trace| Source::Trace(Arc::new(trace)));
        }
    }
    let (file, text) = scenario.read(name)?;
    if let Some(read) = Importer::of(&text).and_then(|importer| importer.trace) {
        let gpus = section.count("gpus", 1, RANKS_MAX).map(|gpus| gpus as u32);
        return read(&file, &text, gpus).map(|trace| Source::Trace(Arc::new(trace)));
    }
    simai::parse(&file, &text).map(|workload| Source::Layers(Arc::new(workload)))
}

/// Reports keys that have no meaning with a trace. Returns the number of ranks.
pub(super) fn ranks_of(section: &Section<'_>, trace: &Trace) -> Option<u32> {
    for key in key_names("job").filter(|key| !WITH_TRACE.contains(key) && section.has(key)) {
        section.wrong(key, "has no meaning with a trace, which says what each rank does", "remove it");
    }
    let gpus = section.count("gpus", 1, RANKS_MAX).map(|gpus| gpus as u32);
    let there = trace.ranks.len() as u32;
    match gpus {
        None if trace.alike && !section.has("gpus") => {
            let remedy = "write the number of ranks, all of which do what this one does";
            section.sink.add(&section.path("gpus"), "", "is missing: the trace has one rank", remedy);
            None
        }
        Some(gpus) if !trace.alike && gpus != there => {
            section.wrong("gpus", format!("is not the number of ranks in the trace, {there}"), "remove it");
            None
        }
        gpus if trace.alike => gpus,
        _ => Some(there),
    }
}

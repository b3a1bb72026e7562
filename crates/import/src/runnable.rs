//! Files that a job runs without a scenario.

use crate::trace::Trace;
use crate::{Importer, Problems, chakra, file, goal, recording, simai};
use std::io::BufRead;
use std::path::Path;

/// A file that `[job] file` runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runnable {
    /// The number of its GPUs, each of which is a rank; `None` if it does not say it.
    pub gpus: Option<u32>,
    /// Does `[job]` need the number of GPUs as a key?
    pub needs_gpus: bool,
}

/// Is this a file that `[job] file` runs, and on how many GPUs? `None`: it is something else, such as a scenario. `gpus` is
/// the number of GPUs, if the file does not say it.
///
/// # Errors
/// If it is of a kind that a job runs, and not sound.
pub fn runnable(path: &Path, gpus: Option<u32>) -> Result<Option<Runnable>, Problems> {
    let shown = path.display().to_string();
    let is = |count: usize, needs_gpus: bool| {
        let known = u32::try_from(count).ok();
        Ok(Some(Runnable { gpus: if needs_gpus { gpus } else { known }, needs_gpus }))
    };
    let of_trace = |trace: Trace| is(trace.ranks.len(), trace.alike);
    if recording::is_recording(path) {
        return of_trace(recording::read(path)?);
    }
    if path.is_dir() || !path.exists() || chakra::is_trace(path) {
        let Ok(set) = chakra::files_of(path) else { return Ok(None) };
        return of_trace(set.read(&shown, chakra::Options::default(), None)?);
    }
    // Scenarios and matrices go by their names, without a look into the file.
    let is_other = path.extension().is_some_and(|ending| ending == "toml" || ending == "cm");
    if !path.is_file() || is_other {
        return Ok(None);
    }
    if let Ok(opened) = std::fs::File::open(path) {
        let mut bytes = std::io::BufReader::new(opened);
        let start = bytes.fill_buf().unwrap_or_default();
        if goal::is_binary(start) || goal::is_text(start) {
            return of_trace(goal::parse(&shown, bytes)?);
        }
    }
    let Ok(text) = file::read_file(path) else { return Ok(None) };
    if simai::is_workload(&text) {
        let workload = simai::parse(&shown, &text)?;
        return is(workload.gpus as usize, workload.gpus == 0);
    }
    match Importer::of(&text).and_then(|importer| importer.trace) {
        // A list that does not say the number of ranks is read with one that is given.
        Some(read) => match read(&shown, &text, None) {
            Ok(trace) => of_trace(trace),
            Err(_) if gpus.is_some() => read(&shown, &text, gpus).and_then(|trace| is(trace.ranks.len(), true)),
            Err(problems) => Err(problems),
        },
        None => Ok(None),
    }
}

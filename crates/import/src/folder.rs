//! The files of a folder, each with what it is.

use crate::{Problems, chakra, describe_file_for, recording};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Limit on the files of a listing: ours.
const FILES_MAX: usize = 10_000;
/// Limit on folders inside folders: ours.
const DEPTH_MAX: usize = 16;

/// A line for each file in a folder and the folders inside it: its name and what it is, or why it is not read. Files of
/// one trace are one line. `gpus` is for files that do not name it. Hidden files and folders are left out.
///
/// # Errors
/// If the folder cannot be read, or has no files.
pub(crate) fn describe(folder: &Path, gpus: Option<u32>) -> Result<String, Problems> {
    let mut found = Vec::new();
    let all = walk(folder, 0, &mut found)?;
    if found.is_empty() {
        let shown = folder.display().to_string();
        return Err(Problems::with_file(&shown, "has no files", "name a folder with files, or a file"));
    }
    let (mut text, mut read, mut ours) = (String::new(), 0, 0);
    let mut traces: BTreeSet<PathBuf> = BTreeSet::new();
    for path in &found {
        let mut subject = path.clone();
        if let Some(prefix) = chakra::prefix_of(path)
            && path.is_file()
        {
            if !traces.insert(prefix.clone()) {
                continue;
            }
            subject = prefix;
        }
        let name = subject.strip_prefix(folder).unwrap_or(&subject).display().to_string();
        if path.extension().is_some_and(|ending| ending == "toml") {
            text.push_str(&format!("{name}: TOML, as scenarios are: strandway run {name}\n"));
            ours += 1;
            continue;
        }
        let said = match describe_file_for(&subject, gpus) {
            Ok(told) => {
                read += 1;
                told.lines().next().unwrap_or_default().to_string()
            }
            Err(problems) => {
                let first = problems.0.into_iter().next().unwrap_or_default();
                let line = first.line.map_or(String::new(), |line| format!("line {line}: "));
                let value = if first.value.is_empty() { String::new() } else { format!("{}: ", first.value) };
                format!("not read: {line}{value}{}", first.what)
            }
        };
        text.push_str(&format!("{name}: {said}\n"));
    }
    let others = text.lines().count() - ours;
    text.push_str(&format!(
        "{read} of {others} files of other tools are read; `strandway import FILE` says how each is used\n"
    ));
    if !all {
        text.push_str(&format!("only the first {FILES_MAX} files, in {DEPTH_MAX} levels of folders, are listed\n"));
    }
    Ok(text)
}

/// Adds the files and recordings of a folder in the order of their names. False if there are too many.
fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<bool, Problems> {
    let unreadable = |error: std::io::Error| {
        Problems::with_file(&folder.display().to_string(), format!("cannot be read: {error}"), "check the path")
    };
    let mut names: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            names.push(entry.path());
        }
    }
    names.sort();
    let mut all = true;
    for path in names {
        // Links are not followed into folders: they could lead back.
        let is_link = path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        if path.is_dir() && !recording::is_recording(&path) {
            if is_link || depth == DEPTH_MAX {
                continue;
            }
            // A folder that must not be read is left out.
            all &= walk(&path, depth + 1, found).unwrap_or(true);
        } else if found.len() == FILES_MAX {
            return Ok(false);
        } else {
            found.push(path);
        }
    }
    Ok(all)
}

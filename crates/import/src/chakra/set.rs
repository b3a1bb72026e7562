//! The files of a Chakra trace: one per rank, `PREFIX.RANK.et`.

use super::{Options, Reader, json};
use crate::problem::Problems;
use crate::trace::{RANKS_MAX, Trace, problem};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes of a JSON file that tell whether it is a trace: ours.
const BEGINNING: u64 = 4096;

/// The files of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// The file of each rank.
    pub files: Vec<PathBuf>,
    /// True: there is one file, and all ranks do the same.
    pub alike: bool,
    /// A file that defines groups, if there is one beside the others.
    pub groups: Option<PathBuf>,
}

/// The prefix and the rank of a file called `PREFIX.RANK.et`, or `PREFIX.RANK.json` if it is a trace.
fn parts(path: &Path) -> Option<(&str, u32)> {
    let name = path.file_name()?.to_str()?;
    let (name, is_json) = match (name.strip_suffix(".et"), name.strip_suffix(".json")) {
        (Some(name), _) => (name, false),
        (None, Some(name)) => (name, true),
        (None, None) => return None,
    };
    let (prefix, rank) = name.rsplit_once('.')?;
    let rank = rank.parse().ok()?;
    (!is_json || is_json_trace(path)).then_some((prefix, rank))
}

/// Is this a file of a Chakra trace: one that ends in `.et`, or JSON with nodes of one?
pub fn is_trace(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "et") || is_json_trace(path)
}

/// Does this JSON file begin as a trace does?
fn is_json_trace(path: &Path) -> bool {
    if path.extension().is_none_or(|ending| ending != "json") || !path.is_file() {
        return false;
    }
    let mut start = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(BEGINNING).read_to_end(&mut start));
    read.is_ok() && json::is_trace(&String::from_utf8_lossy(&start))
}

/// The path of `PREFIX` for a file `PREFIX.RANK.et`; `None` for any other name.
pub(crate) fn prefix_of(path: &Path) -> Option<PathBuf> {
    Some(path.with_file_name(parts(path)?.0))
}

/// The files of the trace at `path`: a folder with the files of one trace, a prefix of such files, or a file. A file
/// `PREFIX.RANK.et` with others of its prefix beside it stands for all of them; any other file is one rank.
///
/// # Errors
/// If there are none, or those of some ranks are missing.
pub fn files_of(path: &Path) -> Result<Set, Problems> {
    let shown = path.display().to_string();
    let wrong = |what: String, remedy: &str| Err(problem(&shown, None, "", what, remedy));
    let is_folder = path.is_dir();
    let folder = if is_folder { path } else { path.parent().unwrap_or(Path::new("")) };
    let single = |path: &Path| Set { files: vec![path.to_path_buf()], alike: true, groups: None };
    let wanted = match () {
        () if is_folder => None,
        () => match parts(path).filter(|_| path.is_file()) {
            Some((prefix, _)) => Some(prefix.to_string()),
            None if path.exists() => return Ok(single(path)),
            None => Some(path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()),
        },
    };
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = match std::fs::read_dir(here) {
        Ok(entries) => entries,
        Err(error) => return wrong(format!("cannot be read: {error}"), "check the path"),
    };
    let mut found: BTreeMap<String, BTreeMap<u32, PathBuf>> = BTreeMap::new();
    for entry in entries.flatten() {
        let name = folder.join(entry.file_name());
        if let Some((prefix, rank)) = parts(&name)
            && wanted.as_ref().is_none_or(|wanted| wanted == prefix)
        {
            found.entry(prefix.to_string()).or_default().insert(rank, name.clone());
        }
    }
    let (Some((prefix, ranks)), 1) = (found.pop_first(), found.len() + 1) else {
        if found.is_empty() {
            return wrong("is no file, and there are no files PREFIX.RANK.et".into(), "check the path or the prefix");
        }
        return wrong(
            format!("has several traces, {} among them", shown_some(&found)),
            "name one prefix: FOLDER/PREFIX",
        );
    };
    let count = ranks.len() as u32;
    if count == 1 && !is_folder && path.is_file() {
        return Ok(single(path));
    }
    if let Some(missing) = (0..count).find(|rank| !ranks.contains_key(rank)) {
        let ending = ranks.values().next().and_then(|path| path.extension()).unwrap_or_default().display();
        let what = format!("has {count} files, and none called {prefix}.{missing}.{ending}");
        return wrong(what, "ranks are numbered from 0, without gaps");
    }
    if count > RANKS_MAX {
        return wrong(format!("has {count} ranks"), &format!("traces of up to {RANKS_MAX} ranks are read"));
    }
    // ASTRA-sim names the file; STAGE writes it beside the traces, with their prefix.
    let beside = [folder.join("comm_group.json"), folder.join(format!("{prefix}.json"))];
    let groups = beside.into_iter().find(|groups| groups.is_file());
    Ok(Set { files: ranks.into_values().collect(), alike: false, groups })
}

fn shown_some(found: &BTreeMap<String, BTreeMap<u32, PathBuf>>) -> String {
    found.keys().take(3).cloned().collect::<Vec<String>>().join(", ")
}

impl Set {
    /// Reads all files. `groups` is a file that defines groups, in place of the one beside them.
    ///
    /// # Errors
    /// Those of [`Reader`], and files that cannot be read.
    pub fn read(&self, name: &str, options: Options, groups: Option<(&str, &str)>) -> Result<Trace, Problems> {
        let mut reader = Reader::new(name, options);
        match (groups, &self.groups) {
            (Some((file, text)), _) => reader.groups(file, text)?,
            (None, Some(path)) => {
                let file = path.display().to_string();
                let text = crate::read_file(path)?;
                reader.groups(&file, &text)?;
            }
            (None, None) => {}
        }
        for path in &self.files {
            let file = path.display().to_string();
            if path.extension().is_some_and(|ending| ending == "json") {
                reader.rank_of_json(&file, &crate::read_file(path)?)?;
                continue;
            }
            let opened = std::fs::File::open(path).and_then(|opened| match opened.metadata()?.is_dir() {
                true => Err(std::io::Error::other("it is a folder")),
                false => Ok(opened),
            });
            let opened = opened
                .map_err(|error| problem(&file, None, "", format!("cannot be read: {error}"), "check the path"))?;
            reader.rank(&file, std::io::BufReader::new(opened))?;
        }
        reader.finish(self.alike)
    }
}

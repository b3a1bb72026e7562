//! A folder of results, to which processes on several machines append: shards of a sweep, and a sweep that goes on
//! where it was stopped.
//!
//! Every process writes a file of its own, `rows*.jsonl`, one line of JSON per run, and reads the files of all. A line
//! is found by the key of its scenario ([`crate::Scenario::key`]), so a run is made once. A process that is killed
//! while it writes leaves a line without an end: readers skip it, and the next writer of that file cuts it off.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use strandway_report::Report;

/// Beginning and end of the names of its files.
const FILES: (&str, &str) = ("rows", ".jsonl");

/// Limit on the length of a line: ours. A report has some ten thousand bytes.
const LINE_MAX: u64 = 1 << 28;

/// Limit on the files that several processes with the same shard write at the same time: ours.
const WRITERS_MAX: u32 = 1000;

/// One part of a sweep: every `parts`-th run, from run `part` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its number, counted from 0.
    pub part: u32,
    /// The number of parts.
    pub parts: u32,
}

impl Shard {
    /// True if run `index` belongs to this part.
    pub fn has(self, index: usize) -> bool {
        index as u64 % u64::from(self.parts) == u64::from(self.part)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let number = |text: &str| text.parse::<u32>().ok();
        let parts = text.split_once('/').and_then(|(part, parts)| Some((number(part)?, number(parts)?)));
        let Some((part, parts)) = parts else {
            return Err("write the number of the part and the number of parts, such as 0/3".to_string());
        };
        if part >= parts {
            return Err(format!("parts are counted from 0; write 0/{0} to {1}/{0}", parts.max(1), parts.max(1) - 1));
        }
        Ok(Shard { part, parts })
    }
}

/// A line of a folder of results: a run, or the reason why it failed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    /// The key of its scenario.
    pub key: String,
    /// Its name in tables.
    pub label: String,
    /// The keys that it sets, dotted.
    pub set: BTreeMap<String, String>,
    /// Its report, unless it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// The reason, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The part of a line that finds it.
#[derive(Deserialize)]
struct Head {
    key: String,
    #[serde(default)]
    error: Option<String>,
}

/// The place of a line.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Index of its file.
    file: usize,
    offset: u64,
    length: u64,
    failed: bool,
}

/// A folder of results.
///
/// [`Results::open`] reads what is there, [`Results::get`] finds a run by its key, and [`Results::add`] appends one. It
/// sees the lines that other processes had written when it was opened.
#[derive(Debug)]
pub struct Results {
    folder: PathBuf,
    files: Vec<PathBuf>,
    places: BTreeMap<String, Place>,
    /// The end of the names of files that it writes: the shard.
    suffix: String,
    /// The file that it writes: its index, the file, and its length.
    own: Option<(usize, File, u64)>,
}

impl Results {
    /// Opens a folder, and makes it if there is none. A process with a `shard` writes files with the shard's name.
    ///
    /// # Errors
    /// If a file cannot be read, or a line that is complete is none of ours; the text names file, line and remedy.
    pub fn open(folder: &Path, shard: Option<Shard>) -> Result<Results, String> {
        let told = |e: io::Error| format!("{}: cannot be used as a folder of results: {e}", folder.display());
        std::fs::create_dir_all(folder).map_err(told)?;
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(told)? {
            let name = entry.map_err(told)?.file_name();
            let ours = name.to_str().is_some_and(|name| name.starts_with(FILES.0) && name.ends_with(FILES.1));
            if ours {
                files.push(folder.join(name));
            }
        }
        files.sort();
        let suffix = shard.map_or(String::new(), |shard| format!("-{}-of-{}", shard.part, shard.parts));
        let mut results = Results { folder: folder.to_path_buf(), files, places: BTreeMap::new(), suffix, own: None };
        for file in 0..results.files.len() {
            results.read(file)?;
        }
        Ok(results)
    }

    /// Reads the keys of a file.
    fn read(&mut self, file: usize) -> Result<(), String> {
        let path = self.files[file].clone();
        let told = |e: io::Error| format!("{}: cannot be read: {e}", path.display());
        let mut reader = BufReader::new(File::open(&path).map_err(told)?);
        let (mut offset, mut number, mut line) = (0, 0u64, Vec::new());
        loop {
            line.clear();
            let length = reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).map_err(told)? as u64;
            // A line without an end is being written, or its writer was killed.
            if line.last() != Some(&b'\n') && length < LINE_MAX {
                return Ok(());
            }
            number += 1;
            let head: Head = serde_json::from_slice(&line).map_err(|e| {
                format!(
                    "{}:{number}: is no row of results: {e}; delete this line, and its run is repeated",
                    path.display()
                )
            })?;
            self.note(head.key, Place { file, offset, length, failed: head.error.is_some() });
            offset += length;
        }
    }

    /// A report counts more than a failure, and a later line more than an earlier one.
    fn note(&mut self, key: String, place: Place) {
        match self.places.get(&key) {
            Some(known) if place.failed && !known.failed => {}
            _ => {
                self.places.insert(key, place);
            }
        }
    }

    /// True if the run with this key is there, and `failed` if it failed.
    pub fn has(&self, key: &str) -> Option<bool> {
        self.places.get(key).map(|place| place.failed)
    }

    /// The run with this key.
    ///
    /// # Errors
    /// If its file cannot be read any more.
    pub fn get(&self, key: &str) -> Result<Option<Kept>, String> {
        let Some(place) = self.places.get(key) else { return Ok(None) };
        let path = &self.files[place.file];
        let read = || -> io::Result<Kept> {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(place.offset))?;
            let mut line = Vec::new();
            file.take(place.length).read_to_end(&mut line)?;
            Ok(serde_json::from_slice(&line)?)
        };
        read().map(Some).map_err(|e| {
            format!(
                "{}: the row at byte {} cannot be read: {e}; delete it, and its run is repeated",
                path.display(),
                place.offset
            )
        })
    }

    /// Appends a run. When this returns, the line is on the disk.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, kept: &Kept) -> Result<(), String> {
        let told = |path: &Path, e: io::Error| {
            format!("{}: cannot be written: {e}; free space, or name another folder", path.display())
        };
        let mut line = serde_json::to_vec(kept).map_err(|e| told(&self.folder, e.into()))?;
        line.push(b'\n');
        if self.own.is_none() {
            let (path, file, length) = self.claim()?;
            let place = self.files.iter().position(|known| *known == path).unwrap_or_else(|| {
                self.files.push(path);
                self.files.len() - 1
            });
            self.own = Some((place, file, length));
        }
        let Some((place, file, end)) = &mut self.own else { unreachable!("a file was claimed") };
        let (place, offset) = (*place, *end);
        // After an error the file may have a part of the line: the next one takes its place.
        let written = file
            .set_len(offset)
            .and_then(|()| file.seek(SeekFrom::Start(offset)))
            .and_then(|_| file.write_all(&line))
            .and_then(|()| file.sync_data());
        written.map_err(|e| told(&self.files[place], e))?;
        *end += line.len() as u64;
        let length = line.len() as u64;
        self.note(kept.key.clone(), Place { file: place, offset, length, failed: kept.error.is_some() });
        Ok(())
    }

    /// Opens the first file of this shard that no other process writes, and cuts off a line without an end. Returns its
    /// length, too.
    fn claim(&self) -> Result<(PathBuf, File, u64), String> {
        for number in 1..=WRITERS_MAX {
            let more = if number == 1 { String::new() } else { format!(".{number}") };
            let path = self.folder.join(format!("{}{}{more}{}", FILES.0, self.suffix, FILES.1));
            let told = |e: io::Error| {
                format!("{}: cannot be written: {e}; name a folder that you can write to", path.display())
            };
            let mut file =
                File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(told)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => continue,
                // Some network file systems have no locks; there each shard needs one process.
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
            let length = end_of_lines(&mut file).map_err(told)?;
            return Ok((path, file, length));
        }
        Err(format!("{}: {WRITERS_MAX} other processes write there", self.folder.display()))
    }
}

/// The place behind the last line end of a file.
fn end_of_lines(file: &mut File) -> io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut block = [0; 4096];
    while end > 0 {
        let size = end.min(block.len() as u64);
        file.seek(SeekFrom::Start(end - size))?;
        file.read_exact(&mut block[..size as usize])?;
        if let Some(at) = block[..size as usize].iter().rposition(|byte| *byte == b'\n') {
            return Ok(end - size + at as u64 + 1);
        }
        end -= size;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_report::HeadFacts;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("strandway-results-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            Folder(path)
        }

        fn open(&self, shard: &str) -> Results {
            Results::open(&self.0, shard.parse().ok()).expect("a folder")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn kept(key: &str, error: Option<&str>) -> Kept {
        let head = HeadFacts { digest: format!("of {key}"), ..HeadFacts::default() };
        let report = error.is_none().then(|| Report { head, ..Report::default() });
        Kept { key: key.into(), label: key.to_uppercase(), report, error: error.map(Into::into), ..Kept::default() }
    }

    fn digest(results: &Results, key: &str) -> Option<String> {
        results.get(key).expect("readable").and_then(|kept| Some(kept.report?.head.digest))
    }

    #[test]
    fn shards_write_files_of_their_own_and_read_all() {
        let folder = Folder::new("shards");
        let mut writers = [folder.open("0/2"), folder.open("1/2"), folder.open("none"), folder.open("none")];
        for (writer, key) in writers.iter_mut().zip(["a", "b", "c", "d"]) {
            writer.add(&kept(key, None)).expect("room");
            assert_eq!(digest(writer, key), Some(format!("of {key}")));
        }
        let all = folder.open("none");
        assert_eq!(all.files.len(), 4, "{:?}", all.files);
        for key in ["a", "b", "c", "d"] {
            assert_eq!(digest(&all, key), Some(format!("of {key}")));
        }
        assert_eq!(all.has("e"), None);
    }

    #[test]
    fn a_torn_last_line_is_skipped_and_mended_at_every_byte() {
        let folder = Folder::new("torn");
        let mut first = folder.open("0/1");
        first.add(&kept("a", None)).expect("room");
        first.add(&kept("b", Some("no memory"))).expect("room");
        drop(first);
        let file = folder.0.join("rows-0-of-1.jsonl");
        let whole = std::fs::read(&file).expect("written");
        let second = whole.iter().position(|byte| *byte == b'\n').expect("two lines") + 1;
        for cut in second..whole.len() {
            std::fs::write(&file, &whole[..cut]).expect("room");
            let mut again = folder.open("0/1");
            assert_eq!((again.has("a"), again.has("b")), (Some(false), None), "{cut}");
            again.add(&kept("c", None)).expect("room");
            drop(again);
            let read = folder.open("0/1");
            assert_eq!((digest(&read, "a"), digest(&read, "c")), (Some("of a".into()), Some("of c".into())), "{cut}");
        }
    }

    #[test]
    fn a_line_that_is_none_of_ours_is_named() {
        let folder = Folder::new("strange");
        folder.open("none").add(&kept("a", None)).expect("room");
        let file = folder.0.join("rows.jsonl");
        let mut text = std::fs::read_to_string(&file).expect("written");
        text.push_str("{\"digest\": 7}\n");
        std::fs::write(&file, text).expect("room");
        let said = Results::open(&folder.0, None).expect_err("a strange line");
        assert!(said.contains("rows.jsonl:2: is no row") && said.contains("delete this line"), "{said}");
    }

    #[test]
    fn failures_are_rows_until_a_run_ends() {
        let folder = Folder::new("failures");
        let mut results = folder.open("none");
        results.add(&kept("a", Some("no memory"))).expect("room");
        assert_eq!((results.has("a"), digest(&results, "a")), (Some(true), None));
        results.add(&kept("a", None)).expect("room");
        results.add(&kept("a", Some("late"))).expect("room");
        for results in [results, folder.open("none")] {
            assert_eq!((results.has("a"), digest(&results, "a")), (Some(false), Some("of a".into())));
        }
    }

    #[test]
    fn shards_are_counted_from_zero() {
        assert_eq!("2/3".parse(), Ok(Shard { part: 2, parts: 3 }));
        let has: Vec<usize> = (0..8).filter(|run| Shard { part: 1, parts: 3 }.has(*run)).collect();
        assert_eq!(has, [1, 4, 7]);
        for (text, wanted) in
            [("3/3", "write 0/3 to 2/3"), ("0/0", "counted from 0"), ("1", "such as 0/3"), ("-1/3", "such as 0/3")]
        {
            assert!(text.parse::<Shard>().is_err_and(|said| said.contains(wanted)), "{text}");
        }
    }
}

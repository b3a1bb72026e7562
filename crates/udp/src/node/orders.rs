//! The controller's orders in a file: the parts of the fabric that are denied at present.

use super::Node;
use crate::clock::span;
use crate::error::Error;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strandway_fabric::usid::Element;
use strandway_proto::Time;

/// The time between two looks at the file: ours. A drain takes minutes.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// The most bytes of the file: ours, ten thousand parts or more.
const BYTES_MAX: u64 = 1 << 18;

/// A file with the denied parts, one per line, which a node obeys while it runs.
pub(super) struct Orders {
    path: PathBuf,
    /// When to look again.
    pub(super) due: Time,
    /// The file as it was read last: its inode, its length and the time of its last change. `None`: it did not exist.
    seen: Option<(u64, u64, i64, i64)>,
    /// The reason why the file is not obeyed at present.
    pub(super) problem: Option<String>,
}

impl Orders {
    /// Reads the file for the first time. Without a file, nothing is denied.
    ///
    /// # Errors
    /// If it cannot be read, or a line is no part of a fabric.
    pub(super) fn open(path: &Path) -> Result<(Orders, Option<Vec<Element>>), Error> {
        let mut orders = Orders { path: path.into(), due: Time::ZERO, seen: None, problem: None };
        let parts = orders.read_again().map_err(Error::Config)?;
        Ok((orders, parts))
    }

    /// The parts, if the file has changed since the last look.
    fn read_again(&mut self) -> Result<Option<Vec<Element>>, String> {
        let wrong = |e: io::Error| format!("denied_file = {}: cannot be read: {e}; remove it", self.path.display());
        let found = match fs::metadata(&self.path) {
            Ok(found) if !found.is_file() => {
                return Err(format!("denied_file = {}: is no file; name a file of lines", self.path.display()));
            }
            Ok(found) => Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(wrong(e)),
        };
        if found == self.seen {
            return Ok(None);
        }
        self.seen = found;
        if found.is_none() {
            return Ok(Some(Vec::new()));
        }
        let mut text = String::new();
        let read = File::open(&self.path).and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text));
        match read {
            Ok(_) if text.len() as u64 > BYTES_MAX => {
                Err(format!("denied_file = {}: is longer than {BYTES_MAX} bytes; shorten it", self.path.display()))
            }
            Ok(_) => parse(&self.path, &text).map(Some),
            // Removed since; the next look finds that.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(wrong(e)),
        }
    }
}

/// The parts that a text lists. Empty lines and those that begin with `#` say nothing.
fn parse(path: &Path, text: &str) -> Result<Vec<Element>, String> {
    let lines = text.lines().map(str::trim).zip(1..).filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    let part = |(line, number): (&str, usize)| {
        Element::parse(line).ok_or_else(|| {
            let remedy = "write p0:t1-3, p0:t0-2:t1-3, p1 or p0:h7: a switch, a link, a plane, a host's port";
            format!("denied_file = {}: line {number} is no part of a fabric; {remedy}", path.display())
        })
    };
    lines.map(part).collect()
}

impl Node {
    /// Obeys the file of orders, if a look is due and it has changed. A file that is wrong changes nothing.
    pub(super) fn handle_orders(&mut self, now: Time) {
        let Some(orders) = self.orders.as_mut().filter(|orders| orders.due <= now) else { return };
        orders.due = now + span(LOOK);
        let parts = match orders.read_again() {
            Ok(parts) => parts,
            Err(problem) => {
                orders.problem = Some(problem);
                return;
            }
        };
        if let Some(parts) = parts {
            orders.problem = None;
            self.set_denied(parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_when_it_changes_and_a_wrong_one_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("denied");
        let (mut orders, parts) = Orders::open(&path).expect("no file denies nothing");
        assert_eq!((parts, orders.read_again()), (None, Ok(None)));
        let parts = |text: &str| text.split(' ').map(|part| Element::parse(part).expect(part)).collect::<Vec<_>>();
        let write = |text: &str| {
            fs::write(folder.path().join("new"), text).and_then(|()| fs::rename(folder.path().join("new"), &path))
        };
        write("# a drain\n\np0:t1-1\n p1 \n").expect("written");
        assert_eq!(orders.read_again(), Ok(Some(parts("p0:t1-1 p1"))));
        assert_eq!(orders.read_again(), Ok(None), "nothing is new");
        for (text, said) in [("p0:t1-1\nspine1\n", "line 2 is no part"), (&"#".repeat(1 << 19), "shorten it")] {
            write(text).expect("written");
            assert!(orders.read_again().expect_err("it is wrong").contains(said), "{said}");
            assert!(Orders::open(&path).err().is_some_and(|e| e.to_string().contains(said)));
        }
        fs::remove_file(&path).expect("removed");
        assert_eq!(orders.read_again(), Ok(Some(Vec::new())));
        // A pipe, say, would keep the node waiting.
        fs::create_dir(&path).expect("made");
        assert!(orders.read_again().expect_err("it is wrong").contains("is no file"));
    }
}

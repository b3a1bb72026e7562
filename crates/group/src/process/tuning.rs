//! The algorithms of collectives by their length: a table.

use crate::error::GroupError;
use std::fmt;
use std::path::Path;

/// Messages of at most this many bytes are sent at once; longer ones wait until the receiver has opened its memory.
/// Ours.
pub(super) const EAGER: usize = 16_000;

/// Lengths, in bytes, at which collectives change their algorithm. All ranks of a group have those of rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// For reductions of at most this many bytes, every rank sends its whole buffer to all others, in one hop; at most
    /// 16,000. Default 16,000: longer buffers take longer on the wire than a hop. Ours.
    pub whole: usize,
    /// Broadcasts longer than this are scattered and gathered, shorter ones go down a tree. Default 256 KiB. Ours.
    pub tree: usize,
    /// Bytes of a part of a block that is reduced. A part is added while others are under way, and is then still in the
    /// cache. A multiple of 64, from 4 KiB to 64 MiB. Default 512 KiB. Ours.
    pub part: usize,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning { whole: EAGER, tree: 256 * 1024, part: 512 * 1024 }
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "whole={}\ntree={}\npart={}", self.whole, self.tree, self.part)
    }
}

impl Tuning {
    /// Sets one length by its name; an error says which values are possible.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number: Option<usize> = value.trim().parse().ok();
        let wrong = |remedy: &str| Err(format!("{name} is {value:?}: {remedy}"));
        match (name.trim(), number) {
            ("whole", Some(whole)) if whole <= EAGER => self.whole = whole,
            ("whole", _) => return wrong("give 0 to 16000 bytes"),
            ("tree", Some(tree)) => self.tree = tree,
            ("tree", _) => return wrong("give a number of bytes"),
            ("part", Some(part)) if part.is_multiple_of(64) && (4_096..=64 << 20).contains(&part) => self.part = part,
            ("part", _) => return wrong("give a multiple of 64 bytes from 4096 to 67108864"),
            _ => return wrong("the keys are whole, tree and part"),
        }
        Ok(())
    }

    /// Reads a file with lines such as `part=524288`; `#` starts a comment, and keys that it lacks have their defaults.
    ///
    /// # Errors
    /// If it cannot be read, or a line is wrong; the message names file, line, key and value.
    pub fn load(path: &Path) -> Result<Tuning, GroupError> {
        let wrong = |what: String| GroupError::Config(format!("{}: {what}", path.display()));
        let text = std::fs::read_to_string(path)
            .map_err(|error| wrong(format!("{error}; `strandway perf tune` writes such a file")))?;
        let mut tuning = Tuning::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let set = match line.split_once('=') {
                Some((name, value)) => tuning.set(name, value),
                None => Err(format!("{line:?} is not KEY=BYTES")),
            };
            set.map_err(|what| wrong(format!("line {number}: {what}")))?;
        }
        Ok(tuning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_was_written_and_wrong_lines_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("strandway-tuning");
        let tuning = Tuning { whole: 1_024, tree: 5, part: 1 << 20 };
        std::fs::write(&path, format!("# measured\n{tuning}\n")).expect("written");
        assert_eq!(Tuning::load(&path).expect("right"), tuning);
        for (line, said) in [
            ("part=100", "line 1: part is \"100\": give a multiple of 64"),
            ("whole=16001", "give 0 to 16000"),
            ("hole=1", "the keys are whole, tree and part"),
            ("tree", "not KEY=BYTES"),
        ] {
            std::fs::write(&path, line).expect("written");
            let error = Tuning::load(&path).expect_err(line).to_string();
            assert!(error.contains(said) && error.contains("strandway-tuning"), "{error}");
        }
        std::fs::remove_file(&path).expect("it is there");
        assert!(Tuning::load(&path).expect_err("none").to_string().contains("perf tune"));
    }
}

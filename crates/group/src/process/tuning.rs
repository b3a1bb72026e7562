//! The algorithms of collectives by their length: a table, and the measurement that fills it.

use super::launch::prepare;
use super::plan::EAGER;
use super::{Group, GroupOptions, Launch, Prefixed, ProcessOptions, Reduction};
use crate::error::GroupError;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

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

/// One length of one key, and the time that collectives took with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// `whole`, `tree` or `part`.
    pub key: &'static str,
    /// The length in bytes.
    pub bytes: usize,
    /// The sum over the measured sizes of the median time at the slowest rank.
    pub time: Duration,
}

/// The candidates of each key, and the collectives that it decides: true for all-reduce, false for broadcast, and their
/// sizes in bytes.
const CANDIDATES: [(&str, &[usize], bool, &[usize]); 3] = [
    ("whole", &[1_024, 4_096, 8_192, EAGER], true, &[2_048, 6_144, 12_288]),
    ("tree", &[16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20], false, &[32 << 10, 128 << 10, 512 << 10, 2 << 20]),
    ("part", &[64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20], true, &[1 << 20, 4 << 20, 16 << 20]),
];

/// Measures all candidates between the ranks that a launcher has started, and takes the fastest of each key. All ranks
/// call it, and have the same result. `each` gets every candidate.
///
/// # Errors
/// If ranks do not meet, or one ends.
pub fn tune(launch: &Launch, runs: u32, mut each: impl FnMut(&Candidate)) -> Result<Tuning, GroupError> {
    let options = GroupOptions::default();
    let (mut store, towards) = launch.open(&options)?;
    let (offer, wire) = prepare(towards.as_deref(), &options, &[])?;
    let mut best = wire.tuning;
    for (key, lengths, reduces, sizes) in CANDIDATES {
        let mut fastest: Option<Candidate> = None;
        for &bytes in lengths {
            let mut tuning = best;
            tuning.set(key, &bytes.to_string()).map_err(GroupError::Config)?;
            let mut part = Prefixed(&mut store, format!("{key}{bytes}"));
            let (wire, ranks) = (ProcessOptions { tuning, ..wire.clone() }, (launch.rank, launch.ranks));
            let (_, group) = Group::form_by(&mut part, ranks, options, &offer, &wire, |_| None)?;
            let measured = sizes.iter().map(|size| measure(&group, reduces, *size, runs)).sum::<Result<Duration, _>>();
            let time = measured.map_err(|failure| GroupError::Config(failure.to_string()))?;
            let candidate = Candidate { key, bytes, time };
            each(&candidate);
            if fastest.is_none_or(|fastest| time < fastest.time) {
                fastest = Some(candidate);
            }
        }
        if let Some(fastest) = fastest {
            best.set(key, &fastest.bytes.to_string()).map_err(GroupError::Config)?;
        }
    }
    // The store's server is needed until the last rank has read it.
    std::mem::forget(store);
    Ok(best)
}

/// The median of some runs, at the slowest rank.
fn measure(group: &Group, reduces: bool, size: usize, runs: u32) -> Result<Duration, super::Failure> {
    let mut numbers = vec![0f32; size / 4];
    let mut times = Vec::new();
    for run in 0..runs + 2 {
        group.barrier()?;
        let began = Instant::now();
        match reduces {
            true => group.all_reduce(&mut numbers, Reduction::Sum)?,
            false => group.broadcast(&mut numbers, 0)?,
        }
        // The first two warm up.
        if run >= 2 {
            times.push(began.elapsed().as_secs_f64());
        }
    }
    group.all_reduce(&mut times, Reduction::Max)?;
    times.sort_by(f64::total_cmp);
    Ok(Duration::from_secs_f64(times[times.len() / 2]))
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

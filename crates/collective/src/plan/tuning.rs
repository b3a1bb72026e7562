//! The algorithms of collectives by their length: a table, which `strandway perf tune` measures and writes.

use super::direct::EAGER;
use super::{Algorithms, DirectLengths};
use std::fmt;

/// The algorithms of collectives. All ranks of a group have those of rank 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Lengths at which the direct algorithms change.
    pub lengths: DirectLengths,
    /// Rules that choose other algorithms than the direct ones.
    pub algorithms: Algorithms,
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DirectLengths { whole, tree, part } = self.lengths;
        writeln!(f, "whole={whole}\ntree={tree}\npart={part}")?;
        match self.algorithms == Algorithms::default() {
            true => Ok(()),
            false => writeln!(f, "algorithm={}", self.algorithms),
        }
    }
}

impl Tuning {
    /// Sets one value by its name.
    ///
    /// # Errors
    /// A sentence that says which names or values are possible.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        if name.trim() == "algorithm" {
            self.algorithms = value.trim().parse().map_err(|error| format!("algorithm is {error}"))?;
            return Ok(());
        }
        let number: Option<usize> = value.trim().parse().ok();
        let lengths = &mut self.lengths;
        let wrong = |remedy: &str| Err(format!("{name} is {value:?}: {remedy}"));
        match (name.trim(), number) {
            ("whole", Some(whole)) if whole <= EAGER => lengths.whole = whole,
            ("whole", _) => return wrong("give 0 to 16000 bytes"),
            ("tree", Some(tree)) => lengths.tree = tree,
            ("tree", _) => return wrong("give a number of bytes"),
            ("part", Some(part)) if part.is_multiple_of(64) && (4_096..=64 << 20).contains(&part) => {
                lengths.part = part
            }
            ("part", _) => return wrong("give a multiple of 64 bytes from 4096 to 67108864"),
            _ => return wrong("the keys are whole, tree, part and algorithm"),
        }
        Ok(())
    }

    /// Reads lines such as `part=524288`; `#` starts a comment, and keys that are missing have their defaults.
    ///
    /// # Errors
    /// A sentence that names line, key and value.
    pub fn parse(text: &str) -> Result<Tuning, String> {
        let mut tuning = Tuning::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let set = match line.split_once('=') {
                Some((name, value)) => tuning.set(name, value),
                None => Err(format!("{line:?} is not KEY=VALUE")),
            };
            set.map_err(|what| format!("line {number}: {what}"))?;
        }
        Ok(tuning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_was_written_and_wrong_lines_are_named() {
        let lengths = DirectLengths { whole: 1_024, tree: 5, part: 1 << 20 };
        let tuning = Tuning { lengths, algorithms: "all_reduce=ring>1000".parse().expect("a rule") };
        assert_eq!(Tuning::parse(&format!("# measured\n{tuning}\n")), Ok(tuning));
        for (line, said) in [
            ("part=100", "line 1: part is \"100\": give a multiple of 64"),
            ("whole=16001", "give 0 to 16000"),
            ("hole=1", "the keys are whole, tree, part and algorithm"),
            ("algorithm=rings", "line 1: algorithm is \"rings\": the algorithms are auto, direct, ring"),
            ("tree", "not KEY=VALUE"),
        ] {
            let error = Tuning::parse(line).expect_err(line);
            assert!(error.contains(said), "{error}");
        }
    }
}

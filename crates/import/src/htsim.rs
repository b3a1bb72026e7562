//! Traffic matrices (`.cm`) and topologies (`.topo`) of htsim.
//!
//! Both are read strictly: an unknown word, a wrong count or a host that does not exist is an error with its line.

mod cm;
mod topo;

pub use cm::{Matrix, MatrixFlow, MatrixStart, MatrixTrigger, StartUnit, parse_cm, parse_cm_in, parse_cm_named};
pub use topo::{parse_topo, parse_topo_named};

use crate::problem::{Problem, Problems};

/// Is this a traffic matrix? Its first word, comments aside, is `Nodes`.
pub(super) fn is_matrix(text: &str) -> bool {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.lines().find_map(|line| words(line).next()) == Some("Nodes")
}

/// Is this a topology? Like a matrix it begins with `Nodes`; one of the next words at the start of a line is `Tiers` or
/// `Podsize`.
pub(super) fn is_topology(text: &str) -> bool {
    let mut first = text.lines().filter_map(|line| words(line).next()).take(8);
    first.any(|word| matches!(word, "Tiers" | "Podsize"))
}

/// The contents of a matrix, as lines of text.
pub(super) fn describe_matrix(file: &str, text: &str) -> Result<String, Problems> {
    let matrix = parse_cm_named(file, text)?;
    Ok(format!(
        "an htsim traffic matrix: {} hosts, {} flows, {} triggers\nto run it: strandway run {file}, or [workload] kind = \"matrix\"\n",
        matrix.nodes,
        matrix.flows.len(),
        matrix.triggers.len()
    ))
}

/// The contents of a topology, as lines of text.
pub(super) fn describe_topology(file: &str, text: &str) -> Result<String, Problems> {
    let topology = parse_topo_named(file, text)?;
    let shape = topology.shape();
    let mut out = format!(
        "an htsim topology of {} tiers: {} hosts, {} per leaf; {} leaves, ",
        topology.tiers(),
        topology.hosts(),
        shape.hosts_per_leaf,
        topology.leaves()
    );
    match topology.tiers() {
        2 => out.push_str(&format!("{} spines\n", topology.spines())),
        _ => out.push_str(&format!(
            "{} aggregation switches in {} pods, {} cores\n",
            topology.spines(),
            topology.pods(),
            topology.cores()
        )),
    }
    for (level, name) in ["host to leaf", "leaf to tier 1", "tier 1 to core"].iter().enumerate().take(topology.tiers())
    {
        let link = topology.level(level);
        out.push_str(&format!("  {name}: {}, {}\n", link.rate, link.latency));
    }
    out.push_str(&format!("to run it: [fabric]\n         kind = \"htsim\"\n         topo = \"{file}\"\n"));
    Ok(out)
}

/// Limit on the problems that are shown for one file; the rest are counted.
const SHOWN: usize = 20;

/// Collects problems of a file read line by line.
struct Findings {
    file: String,
    problems: Vec<Problem>,
    more: usize,
}

impl Findings {
    fn new(file: &str) -> Findings {
        Findings { file: file.to_string(), problems: Vec::new(), more: 0 }
    }

    fn add(&mut self, line: Option<usize>, value: &str, what: impl Into<String>, remedy: impl Into<String>) {
        if self.problems.len() >= SHOWN {
            self.more += 1;
            return;
        }
        self.problems.push(Problem {
            file: self.file.clone(),
            line,
            key: String::new(),
            value: if value.is_empty() {
                String::new()
            } else {
                format!("`{}`", value.chars().take(40).collect::<String>())
            },
            what: what.into(),
            remedy: remedy.into(),
        });
    }

    fn none(&self) -> bool {
        self.problems.is_empty()
    }

    fn finish(mut self) -> Problems {
        if self.more > 0 {
            let what = format!("and {} more problems like these", self.more);
            let file = self.file.clone();
            self.problems.extend(Problems::with_file(&file, what, "").0);
        }
        Problems(self.problems)
    }

    /// A whole number up to `high`.
    fn number(&mut self, line: usize, word: Option<&str>, name: &str, low: u64, high: u64) -> Option<u64> {
        let Some(word) = word else {
            self.add(Some(line), name, "has no number after it", "the line is incomplete; add the number");
            return None;
        };
        match word.parse::<u64>() {
            Ok(n) if (low..=high).contains(&n) => Some(n),
            Ok(_) => {
                self.add(Some(line), word, format!("{name} is out of range"), format!("write {low} to {high}"));
                None
            }
            Err(_) => {
                let what = match word.to_lowercase().as_str() {
                    w if w.contains("nan") || w.contains("inf") => format!("{name} must be a finite number"),
                    w if w.starts_with('-') => format!("{name} cannot be negative"),
                    _ => format!("{name} must be a whole number"),
                };
                self.add(Some(line), word, what, format!("write {low} to {high}"));
                None
            }
        }
    }
}

/// The words of a line before a `#`.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split('#').next().unwrap_or_default().split_ascii_whitespace()
}

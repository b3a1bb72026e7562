//! The parts of an iteration, and lanes of ranks: pieces of time, each of which belongs to one part.

use serde::{Deserialize, Serialize};

/// A part of an iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartFacts {
    /// `compute`; `tp`, `cp`, `ep`, `dp`, `pp`: exposed communication of these groups; `messages`, `collectives`: the
    /// same of an imported trace; `bubble`; `waiting`.
    pub name: String,
    /// Time per iteration, mean over ranks; absent if no iteration ended, or if there were too many steps to keep their
    /// times.
    pub us: Option<f64>,
    /// The share of an iteration; absent in the same cases.
    pub share: Option<f64>,
}

impl PartFacts {
    /// Its name in tables.
    pub(crate) fn summary(&self) -> String {
        match self.name.as_str() {
            "compute" => "computing".to_string(),
            "bubble" => "pipeline bubble".to_string(),
            "waiting" => "waiting for ranks".to_string(),
            trace @ ("messages" | "collectives") => format!("exposed {trace}"),
            group => format!("exposed {}", group.to_uppercase()),
        }
    }
}

/// The names of parts, in their order in reports.
pub const NAMES: [&str; 10] = ["compute", "tp", "cp", "ep", "pp", "dp", "messages", "collectives", "bubble", "waiting"];

/// The part that exposed steps of a kind belong to, as an index into [`NAMES`]. Traces are graphs.
pub fn place_of(kind: &str, is_graph: bool) -> usize {
    let name = match kind {
        "broadcast" if is_graph => "collectives",
        "all-gather" | "reduce-scatter" | "all-reduce" | "all-to-all" | "broadcast" => "dp",
        "send" | "receive" => "pp",
        "sending" | "receiving" => "messages",
        "allreduce" | "allgather" | "reducescatter" | "alltoall" | "reduce" | "gather" | "scatter" => "collectives",
        other => other,
    };
    NAMES.iter().position(|known| *known == name).unwrap_or(0)
}

/// The name of the part that steps of a kind belong to.
pub(crate) fn part_of(kind: &str, is_graph: bool) -> &'static str {
    NAMES[place_of(kind, is_graph)]
}

/// The lane of a rank: its activities in the last iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LaneFacts {
    /// The rank.
    pub rank: u32,
    /// Its NIC.
    pub host: String,
    /// Its role: the number of its pipeline stage, unless ranks of a stage differ.
    pub role: u32,
    /// Pieces of its time: the part ([`PartFacts::name`]), begin and end in us since the drawn iteration began.
    pub pieces: Vec<(String, f64, f64)>,
}

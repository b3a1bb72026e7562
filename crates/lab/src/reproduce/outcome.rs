//! What comes out: rows with their verdicts, and the page's charts.

use super::table::ChartKind;
use crate::report::{Report, to_json};
use serde::Serialize;
use strandway_proto::units::Span;

/// Where the number comes from that ours is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The paper.
    Published,
    /// The public UEC simulator, with an algorithm of its own.
    #[serde(rename = "reference simulator")]
    ReferenceSimulator,
    /// A model of the paper's algorithm, fitted and measured in the public UEC simulator; not the paper.
    #[serde(rename = "reference model")]
    ReferenceModel,
    /// Follows from arithmetic or from what the row says.
    Arithmetic,
    /// Nobody else's: ours for comparison.
    Ours,
}

/// How ours is to lie towards the published value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Within the tolerance.
    Near,
    /// No less, but for the tolerance: a claim of "up to".
    #[serde(rename = "at least")]
    AtLeast,
    /// No more, but for the tolerance.
    #[serde(rename = "at most")]
    AtMost,
    /// There is nothing to judge by.
    None,
}

/// Whether a row reproduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Within the bound.
    Met,
    /// Not, or there was no result to judge.
    Missed,
    /// There is nothing to judge by.
    Unknown,
}

impl Verdict {
    /// The verdict on `ours`; the tolerance is a share of the published value.
    pub fn of(bound: Bound, published: Option<f64>, ours: Option<f64>, tolerance: f64) -> Verdict {
        let Some(published) = published.filter(|_| bound != Bound::None) else { return Verdict::Unknown };
        let Some(ours) = ours else { return Verdict::Missed };
        let room = tolerance * published.abs();
        let met = match bound {
            Bound::Near => (ours - published).abs() <= room,
            Bound::AtLeast => ours >= published - room,
            Bound::AtMost => ours <= published + room,
            Bound::None => false,
        };
        if met { Verdict::Met } else { Verdict::Missed }
    }

    /// As a word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::Unknown => "unknown",
        }
    }
}

/// One number of ours beside another.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name, such as `prime/healthy/512/reps`.
    pub id: String,
    /// The heading that it stands below.
    pub section: String,
    /// What is measured.
    pub what: String,
    /// The unit of both numbers; empty for ratios.
    pub unit: String,
    /// Where the other number comes from.
    pub source: Source,
    /// The other number.
    pub published: Option<f64>,
    /// Ours; absent if a run did not finish.
    pub ours: Option<f64>,
    /// Ours over the other.
    pub ratio: Option<f64>,
    /// How ours is to lie towards the other.
    pub bound: Bound,
    /// By which share of the published value ours may be off; absent without a bound.
    pub tolerance: Option<f64>,
    /// Whether it reproduces.
    pub verdict: Verdict,
    /// The command line for this row alone.
    pub command: String,
    /// What else there is to say.
    pub note: String,
    /// The runs that the number was calculated from, or what was asked of a model.
    pub cells: Vec<CellFacts>,
}

/// One cell's number: a scenario over seeds, or what a model says once.
#[derive(Clone, Debug, Serialize)]
pub struct CellFacts {
    /// The command line for its runs alone.
    pub command: String,
    /// The value's path in the report of each run.
    pub key: String,
    /// Its mean over the seeds; absent if a run did not finish.
    pub mean: Option<f64>,
    /// The least of the seeds.
    pub min: Option<f64>,
    /// The most of the seeds.
    pub max: Option<f64>,
    /// Seed by seed, from seed 1 on.
    pub seeds: Vec<Option<f64>>,
}

/// A chart of the page.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows.
    pub kind: ChartKind,
    /// Its title.
    pub title: String,
    /// The section beside whose table it stands; else it stands at the top of the page.
    pub section: Option<String>,
    /// The runs in it.
    pub runs: Vec<ChartRun>,
}

/// One run in a chart.
#[derive(Clone, Debug)]
pub struct ChartRun {
    /// What the legend calls it.
    pub name: String,
    /// Its report.
    pub report: Report,
    /// What every uplink of a leaf carried, over the mean of all.
    pub uplinks: Vec<f64>,
    /// The watched connection's penalties by uplink, every [`WATCH_EVERY`].
    pub penalties: Vec<Vec<u32>>,
}

/// How often the watched connection of a charted run is looked at.
pub const WATCH_EVERY: Span = Span::from_ns(500);

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduction {
    /// Format of this document: 1.
    pub format: u32,
    /// Version of Strandway.
    pub version: String,
    /// All rows, in the sets' order.
    pub rows: Vec<Row>,
    /// The page's charts; empty unless asked for.
    #[serde(skip)]
    pub charts: Vec<Chart>,
    /// Were all runs run?
    #[serde(skip)]
    pub complete: bool,
}

impl Reproduction {
    /// As JSON, with a line break at the end.
    pub fn to_json(&self) -> String {
        to_json(self)
    }

    /// How many rows are met, missed, unknown.
    pub fn verdicts(&self) -> [usize; 3] {
        [Verdict::Met, Verdict::Missed, Verdict::Unknown]
            .map(|verdict| self.rows.iter().filter(|r| r.verdict == verdict).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_arithmetic() {
        for (bound, published, ours, tolerance, verdict) in [
            (Bound::Near, Some(100.0), Some(105.0), 0.05, Verdict::Met),
            (Bound::Near, Some(100.0), Some(95.0), 0.05, Verdict::Met),
            (Bound::Near, Some(100.0), Some(105.1), 0.05, Verdict::Missed),
            (Bound::Near, Some(0.0), Some(0.0), 0.05, Verdict::Met),
            (Bound::Near, Some(0.0), Some(1.0), 0.05, Verdict::Missed),
            (Bound::AtLeast, Some(6.0), Some(9.0), 0.0, Verdict::Met),
            (Bound::AtLeast, Some(6.0), Some(5.9), 0.0, Verdict::Missed),
            (Bound::AtLeast, Some(6.0), Some(5.9), 0.05, Verdict::Met),
            (Bound::AtMost, Some(1.3), Some(1.0), 0.0, Verdict::Met),
            (Bound::AtMost, Some(1.3), Some(1.31), 0.0, Verdict::Missed),
            (Bound::Near, Some(1.0), None, 0.05, Verdict::Missed),
            (Bound::Near, None, Some(1.0), 0.05, Verdict::Unknown),
            (Bound::None, Some(1.0), Some(9.0), 0.05, Verdict::Unknown),
        ] {
            assert_eq!(Verdict::of(bound, published, ours, tolerance), verdict, "{bound:?} {published:?} {ours:?}");
        }
    }
}

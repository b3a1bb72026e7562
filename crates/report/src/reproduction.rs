//! Published results next to ours: rows with their verdicts, and the charts of the page. `strandway-reproduce` makes
//! them.

mod bias;
mod interval;
mod recorded;
mod verdict;

pub use bias::Bias;
pub use interval::interval;
pub use recorded::Recorded;
pub use verdict::Verdict;

use crate::report::{Report, to_json};
use serde::Serialize;
use strandway_proto::units::Span;

/// The origin of the reference number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The paper.
    Published,
    /// The public UEC simulator, with its own algorithm.
    #[serde(rename = "reference simulator")]
    ReferenceSimulator,
    /// A model of the paper's algorithm, fitted and measured in the public UEC simulator; not the paper itself.
    #[serde(rename = "reference model")]
    ReferenceModel,
    /// Arithmetic, or the definition of the row.
    Arithmetic,
    /// No other source: a number of ours for comparison.
    Ours,
}

/// The required relation between our value and the reference value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Equal within the tolerance.
    Near,
    /// At least the reference minus the tolerance: for claims of "up to".
    #[serde(rename = "at least")]
    AtLeast,
    /// At most the reference plus the tolerance.
    #[serde(rename = "at most")]
    AtMost,
    /// No relation: the row has no verdict.
    None,
}

/// The purpose of a row. Kinds are counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A number or relation that was published, or that follows from arithmetic; with a verdict.
    Relation,
    /// A bound of our own, with a verdict.
    Ours,
    /// The number of another algorithm or setting beside ours: this row's own number is not published. No verdict.
    Comparison,
    /// A number of ours, or a comparison of our own numbers; there is no other number.
    Study,
    /// There is a published number, but the row's note says why it cannot judge ours.
    Unjudged,
}

impl Kind {
    /// The kind of a row with this source and bound. `other` says that there is a reference number; that it belongs to
    /// another setting (`Comparison`) does not follow from these.
    pub fn of(source: Source, bound: Bound, other: bool) -> Kind {
        match (bound, source) {
            (Bound::None, Source::Ours) => Kind::Study,
            (Bound::None, _) if other => Kind::Unjudged,
            (Bound::None, _) => Kind::Study,
            (_, Source::Ours) => Kind::Ours,
            _ => Kind::Relation,
        }
    }
}

/// One of our numbers next to a reference number.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name, such as `prime/healthy/512/reps`.
    pub id: String,
    /// The heading of its section.
    pub section: String,
    /// The quantity that is measured.
    pub what: String,
    /// The unit of both numbers; empty for ratios.
    pub unit: String,
    /// The origin of the reference number.
    pub source: Source,
    /// The reference number.
    pub published: Option<f64>,
    /// Our number; absent if a run did not finish.
    pub ours: Option<f64>,
    /// Our number divided by the reference number.
    pub ratio: Option<f64>,
    /// The required relation between the two.
    pub bound: Bound,
    /// The tolerance, as a share of the reference number; absent without a bound.
    pub tolerance: Option<f64>,
    /// The purpose of the row.
    pub kind: Kind,
    /// The verdict.
    pub verdict: Verdict,
    /// The row's number for each seed alone, from seed 1 on; empty if its cells have one seed.
    pub seeds: Vec<Option<f64>>,
    /// The confidence interval of 95 % of our number; absent with one seed.
    pub interval: Option<[f64; 2]>,
    /// The command line for this row alone.
    pub command: String,
    /// A note for the reader.
    pub note: String,
    /// The runs, or the questions to a model, from which the number was calculated.
    pub cells: Vec<CellFacts>,
}

/// The number of one cell: a scenario with several seeds, or one answer of a model.
#[derive(Clone, Debug, Serialize)]
pub struct CellFacts {
    /// The command line for its runs alone.
    pub command: String,
    /// The value's path in the report of each run.
    pub key: String,
    /// Mean over the seeds; absent if a run did not finish.
    pub mean: Option<f64>,
    /// The smallest value of the seeds.
    pub min: Option<f64>,
    /// The largest value of the seeds.
    pub max: Option<f64>,
    /// The value of each seed, from seed 1 on.
    pub seeds: Vec<Option<f64>>,
}

/// The contents of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartKind {
    /// The distribution of completion times.
    Completion,
    /// Traffic of the busiest and the least busy uplinks of leaves, relative to the mean.
    Balance,
    /// The penalties of one sender's path selector by uplink, over time.
    Penalties,
    /// The states of the watched connection's entropy values over time.
    States,
    /// Goodput of the watched connection by plane, over time.
    Planes,
    /// Goodput of the watched connection over time, one line per run.
    Goodput,
}

/// A chart of the page.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Its contents.
    pub kind: ChartKind,
    /// Its title.
    pub title: String,
    /// The section next to whose table it is shown; `None` for the top of the page.
    pub section: Option<String>,
    /// The runs in it.
    pub runs: Vec<ChartRun>,
}

/// One run in a chart.
#[derive(Clone, Debug)]
pub struct ChartRun {
    /// Its name in the legend.
    pub name: String,
    /// Its report.
    pub report: Report,
    /// Bytes of each uplink of the leaves, divided by the mean.
    pub uplinks: Vec<f64>,
    /// The penalties of the watched connection by uplink, at intervals of [`WATCH_EVERY`].
    pub penalties: Vec<Vec<u32>>,
}

/// Interval at which the watched connection of a charted run is recorded.
pub const WATCH_EVERY: Span = Span::from_ns(500);

/// The results of a reproduction.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduction {
    /// Format of this document: 1.
    pub format: u32,
    /// Version of Strandway.
    pub version: String,
    /// All rows, in the sets' order.
    pub rows: Vec<Row>,
    /// How our times differ from the reference's by family of rows.
    pub bias: Vec<Bias>,
    /// The page's charts; empty unless requested.
    #[serde(skip)]
    pub charts: Vec<Chart>,
    /// True if all runs were performed.
    #[serde(skip)]
    pub complete: bool,
}

impl Reproduction {
    /// As JSON, with a line break at the end.
    pub fn to_json(&self) -> String {
        to_json(self)
    }

    /// The number of rows by kind and verdict.
    pub fn counts(&self) -> Counts {
        Counts::of(&self.rows)
    }
}

/// The number of rows by kind and verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Relations that are met.
    pub met: usize,
    /// Relations that are missed.
    pub missed: usize,
    /// Relations that the seeds do not decide.
    pub undecided: usize,
    /// Bounds of our own.
    pub ours: usize,
    /// Those of `ours` that are missed or undecided.
    pub ours_not_met: usize,
    /// Rows beside the number of another algorithm or setting.
    pub comparisons: usize,
    /// Comparisons of our own numbers.
    pub studies: usize,
    /// Published numbers that cannot judge ours.
    pub unjudged: usize,
}

impl Counts {
    /// Counts these rows.
    pub fn of(rows: &[Row]) -> Counts {
        let mut counts = Counts::default();
        for row in rows {
            match (row.kind, row.verdict) {
                (Kind::Relation, Verdict::Met) => counts.met += 1,
                (Kind::Relation, Verdict::Undecided) => counts.undecided += 1,
                (Kind::Relation, _) => counts.missed += 1,
                (Kind::Ours, verdict) => {
                    counts.ours += 1;
                    counts.ours_not_met += usize::from(verdict != Verdict::Met);
                }
                (Kind::Comparison, _) => counts.comparisons += 1,
                (Kind::Study, _) => counts.studies += 1,
                (Kind::Unjudged, _) => counts.unjudged += 1,
            }
        }
        counts
    }

    /// The number of relations with a verdict.
    pub fn judged(&self) -> usize {
        self.met + self.missed + self.undecided
    }

    /// The counts in words, such as `3 met, 1 missed, 0 undecided; 2 bounds of our own, all met; 5 comparisons; 4
    /// studies; 0 unjudged`.
    pub fn sentence(&self) -> String {
        let ours = match (self.ours, self.ours_not_met) {
            (0, _) => "no bound of our own".to_string(),
            (1, 0) => "1 bound of our own, met".to_string(),
            (all, 0) => format!("{all} bounds of our own, all met"),
            (all, not) => format!("{all} bounds of our own, {} met", all - not),
        };
        let Counts { met, missed, undecided, comparisons, studies, unjudged, .. } = self;
        let others = format!("{comparisons} comparisons; {studies} studies; {unjudged} unjudged");
        format!("{met} met, {missed} missed, {undecided} undecided; {ours}; {others}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_from_whose_the_number_and_the_bound_are() {
        for (source, bound, other, kind) in [
            (Source::Published, Bound::Near, true, Kind::Relation),
            (Source::Arithmetic, Bound::AtMost, true, Kind::Relation),
            (Source::Ours, Bound::AtMost, true, Kind::Ours),
            (Source::Ours, Bound::None, false, Kind::Study),
            (Source::Ours, Bound::None, true, Kind::Study),
            (Source::Published, Bound::None, true, Kind::Unjudged),
        ] {
            assert_eq!(Kind::of(source, bound, other), kind, "{source:?} {bound:?} {other}");
        }
    }
}

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

/// What a row is for. Kinds are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A number or a relation that others published, or that follows by arithmetic, with a verdict.
    Relation,
    /// A bound of our own, with a verdict.
    Ours,
    /// Ours beside ours: nobody published a number for it.
    Study,
    /// Others published a number, and the row's note says why it does not judge ours.
    Unjudged,
}

impl Kind {
    /// The kind of a row with this source and bound. `other` says that there is a number of somebody else.
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

/// Whether a row reproduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Within the bound, with every seed.
    Met,
    /// Outside of the bound with every seed, or there was no result to judge.
    Missed,
    /// Within the bound with some seeds, and outside of it with others.
    Undecided,
    /// There is nothing to judge by.
    Unknown,
}

impl Verdict {
    /// The verdict on a number and on what each seed alone gives: undecided if these differ.
    pub fn of_seeds(
        bound: Bound,
        published: Option<f64>,
        ours: Option<f64>,
        seeds: &[Option<f64>],
        tolerance: f64,
    ) -> Verdict {
        let all = Verdict::of(bound, published, ours, tolerance);
        let turns = |seed: &Option<f64>| Verdict::of(bound, published, *seed, tolerance) != all;
        if seeds.iter().any(turns) { Verdict::Undecided } else { all }
    }

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
            Verdict::Undecided => "undecided",
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
    /// What the row is for.
    pub kind: Kind,
    /// Whether it reproduces.
    pub verdict: Verdict,
    /// The row's number with each seed alone, from seed 1 on; empty if all of its cells have one seed.
    pub seeds: Vec<Option<f64>>,
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

    /// The rows, counted by kind and verdict.
    pub fn counts(&self) -> Counts {
        Counts::of(&self.rows)
    }
}

/// Rows counted by kind and verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Relations that are met.
    pub met: usize,
    /// Relations that are missed.
    pub missed: usize,
    /// Relations that some seeds meet and others miss.
    pub undecided: usize,
    /// Bounds of our own.
    pub ours: usize,
    /// Those of them that are not met with every seed.
    pub ours_not_met: usize,
    /// Rows of ours beside ours.
    pub studies: usize,
    /// Published numbers that do not judge ours.
    pub unjudged: usize,
}

impl Counts {
    /// Of these rows.
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
                (Kind::Study, _) => counts.studies += 1,
                (Kind::Unjudged, _) => counts.unjudged += 1,
            }
        }
        counts
    }

    /// Relations with a verdict.
    pub fn judged(&self) -> usize {
        self.met + self.missed + self.undecided
    }

    /// The counts in words, such as `3 met, 1 missed, 0 undecided; 2 bounds of our own, all met; 4 studies; 0 unjudged`.
    pub fn sentence(&self) -> String {
        let ours = match (self.ours, self.ours_not_met) {
            (0, _) => "no bound of our own".to_string(),
            (1, 0) => "1 bound of our own, met".to_string(),
            (all, 0) => format!("{all} bounds of our own, all met"),
            (all, not) => format!("{all} bounds of our own, {} met", all - not),
        };
        let Counts { met, missed, undecided, studies, unjudged, .. } = self;
        format!("{met} met, {missed} missed, {undecided} undecided; {ours}; {studies} studies; {unjudged} unjudged")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_turns_between_seeds_is_undecided() {
        let of = |ours: f64, seeds: &[f64]| {
            let seeds: Vec<Option<f64>> = seeds.iter().map(|seed| Some(*seed)).collect();
            Verdict::of_seeds(Bound::AtLeast, Some(6.0), Some(ours), &seeds, 0.0)
        };
        assert_eq!(of(6.5, &[6.1, 6.9]), Verdict::Met);
        assert_eq!(of(6.5, &[5.9, 7.1]), Verdict::Undecided);
        assert_eq!(of(5.5, &[4.9, 6.1]), Verdict::Undecided);
        assert_eq!(of(5.5, &[5.4, 5.6]), Verdict::Missed);
        assert_eq!(of(6.5, &[]), Verdict::Met);
        assert_eq!(Verdict::of_seeds(Bound::None, None, Some(1.0), &[Some(2.0)], 0.0), Verdict::Unknown);
    }

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

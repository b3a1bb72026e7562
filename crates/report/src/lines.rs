//! Several runs as lines of a table. A line is one run, or a group of runs that differ only in the seed.

use crate::report::Report;
use crate::rows::Row;
use serde::Serialize;
use std::collections::BTreeMap;

/// Runs that differ only in this key form one line.
pub const SEED: &str = "run.seed";

/// Mean and extremes of one value over the runs of a line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Averaged {
    /// The mean.
    pub mean: f64,
    /// The lowest.
    pub min: f64,
    /// The highest.
    pub max: f64,
}

/// Runs that differ only in the seed.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its name in tables.
    pub label: String,
    /// The keys that its runs set, except the seed.
    pub set: BTreeMap<String, String>,
    /// Its runs, as indices of rows.
    pub runs: Vec<usize>,
    /// The main values of the report by dotted path; a value is absent if one of the runs has none.
    pub values: BTreeMap<String, Averaged>,
}

/// The rows of a comparison or sweep, as `--json` prints them.
#[derive(Clone, Debug, Serialize)]
pub struct Rows {
    /// Format of this document: 1.
    pub format: u32,
    /// One entry per run.
    pub rows: Vec<Row>,
    /// Groups of runs that differ only in the seed, with means and extremes.
    pub lines: Vec<Line>,
    /// Runs that failed; absent if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failed>,
}

/// A run of a comparison or sweep without a report.
#[derive(Clone, Debug, Serialize)]
pub struct Failed {
    /// Its name in tables.
    pub label: String,
    /// The keys that it sets, dotted.
    pub set: BTreeMap<String, String>,
    /// The reason.
    pub error: String,
}

impl Rows {
    /// The document of these rows.
    pub fn new(rows: Vec<Row>) -> Rows {
        Rows { format: 1, lines: lines(&rows), rows, failed: Vec::new() }
    }
}

/// Sections of a report whose values are averaged.
const AVERAGED: [&str; 9] =
    ["fct_us", "received_us", "slowdown", "goodput_gbps", "packets", "classes", "collectives", "jobs", "why"];

/// The lines of these runs, in the order of their first run.
pub fn lines(rows: &[Row]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let mut set = row.set.clone();
        let seeded = set.remove(SEED).is_some();
        let label = if seeded { without_seed(&row.label) } else { row.label.clone() };
        match lines.iter_mut().find(|line| seeded && line.set == set && line.label == label) {
            Some(line) => line.runs.push(i),
            None => lines.push(Line { label, set, runs: vec![i], values: BTreeMap::new() }),
        }
    }
    for line in &mut lines {
        line.values = values(rows, &line.runs);
    }
    lines
}

impl Line {
    /// Mean and extremes of one value over this line's runs; `None` if one of the runs has no value.
    pub fn of(&self, rows: &[Row], value: impl Fn(&Report) -> Option<f64>) -> Option<Averaged> {
        let all: Option<Vec<f64>> = self.runs.iter().map(|run| value(&rows[*run].report)).collect();
        average(&all?)
    }
}

fn average(values: &[f64]) -> Option<Averaged> {
    (!values.is_empty()).then(|| Averaged {
        mean: values.iter().sum::<f64>() / values.len() as f64,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

fn values(rows: &[Row], runs: &[usize]) -> BTreeMap<String, Averaged> {
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for run in runs {
        for (key, value) in rows[*run].report.values() {
            let section = key.split('.').next().unwrap_or_default();
            if let Some(value) = value.filter(|_| AVERAGED.contains(&section)) {
                all.entry(key).or_default().push(value);
            }
        }
    }
    all.retain(|_, values| values.len() == runs.len());
    all.into_iter().filter_map(|(key, values)| Some((key, average(&values)?))).collect()
}

/// A sweep's label without its part `seed=N`.
fn without_seed(label: &str) -> String {
    let parts: Vec<&str> = label.split(", ").filter(|part| !part.starts_with("seed=")).collect();
    if parts.is_empty() { "all seeds".to_string() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, set: &[(&str, &str)], max: f64) -> Row {
        let mut report = Report::default();
        report.times.fct_us.max = Some(max);
        let set = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Row { label: label.into(), set, report }
    }

    #[test]
    fn runs_that_differ_in_the_seed_alone_are_one_line() {
        let rows = [
            row("path=reps, seed=1", &[("profile.path", "reps"), (SEED, "1")], 50.0),
            row("path=reps, seed=2", &[("profile.path", "reps"), (SEED, "2")], 60.0),
            row("path=bitmap, seed=1", &[("profile.path", "bitmap"), (SEED, "1")], 40.0),
        ];
        let lines = lines(&rows);
        assert_eq!(lines.iter().map(|l| l.runs.len()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(lines[0].label, "path=reps");
        let wanted = Averaged { mean: 55.0, min: 50.0, max: 60.0 };
        assert_eq!(lines[0].of(&rows, |r| r.times.fct_us.max), Some(wanted));
        assert_eq!(lines[0].values["fct_us.max"], wanted);
    }

    #[test]
    fn a_value_that_one_run_lacks_has_no_mean() {
        let mut rows = vec![row("seed=1", &[(SEED, "1")], 50.0), row("seed=2", &[(SEED, "2")], 60.0)];
        rows[1].report.times.fct_us.max = None;
        let lines = lines(&rows);
        assert_eq!((lines.len(), lines[0].label.as_str()), (1, "all seeds"));
        assert_eq!(lines[0].of(&rows, |r| r.times.fct_us.max), None);
        assert!(!lines[0].values.contains_key("fct_us.max"));
    }
}

//! Published results next to ours, for the terminal.

use super::right;
use crate::grid::table;
use crate::numbers::{count, number};
use crate::reproduction::{Bound, Kind, Reproduction, Row, Source, Verdict};
use comfy_table::Cell;

/// All sets, one line each: name, subject, and the time that it takes.
pub fn sets<'a>(sets: impl IntoIterator<Item = [&'a str; 3]>) -> String {
    let mut out = String::new();
    for [name, about, takes] in sets {
        out.push_str(&format!("{name:8} {about} ({takes})\n"));
    }
    out
}

/// One table per section with its notes, followed by the counts of verdicts.
pub fn reproduction(done: &Reproduction) -> String {
    let mut out = String::new();
    for rows in done.rows.chunk_by(|a, b| a.section == b.section) {
        out.push_str(&format!("{}\n{}\n", rows[0].section, section(rows)));
        for (ids, note) in notes(rows) {
            out.push_str(&format!("  {}: {note}\n", ids.join(", ")));
        }
        out.push('\n');
    }
    out.push_str(&format!("{} rows: {}\n", done.rows.len(), done.counts().sentence()));
    out
}

/// The notes of rows that are not met: each note once, with its rows.
pub(crate) fn notes(rows: &[Row]) -> Vec<(Vec<&str>, &str)> {
    let mut notes: Vec<(Vec<&str>, &str)> = Vec::new();
    for row in rows.iter().filter(|r| !r.note.is_empty() && r.verdict != Verdict::Met) {
        match notes.iter_mut().find(|(_, note)| *note == row.note) {
            Some((ids, _)) => ids.push(&row.id),
            None => notes.push((vec![&row.id], &row.note)),
        }
    }
    notes
}

fn section(rows: &[Row]) -> String {
    let mut table = table();
    table.set_header(["row", "what", "theirs", "whose", "ours", "seeds", "ratio", "bound", "verdict"].map(Cell::new));
    for row in rows {
        table.add_row(vec![
            Cell::new(&row.id),
            Cell::new(&row.what),
            right(quantity(row.published, &row.unit)),
            Cell::new(if row.published.is_some() { whose(row.source) } else { "" }),
            right(quantity(row.ours, &row.unit)),
            right(spread(row)),
            right(row.ratio.map_or(String::new(), |r| format!("{r:.3}"))),
            right(bound(row)),
            Cell::new(verdict(row)),
        ]);
    }
    table.to_string()
}

/// The source of a number, in one word.
pub(crate) fn whose(source: Source) -> &'static str {
    match source {
        Source::Published => "published",
        Source::ReferenceSimulator => "simulator",
        Source::ReferenceModel => "model",
        Source::Arithmetic => "arithmetic",
        Source::Ours => "ours",
    }
}

/// A number with its unit.
pub(crate) fn quantity(value: Option<f64>, unit: &str) -> String {
    match value {
        None => "–".to_string(),
        Some(v) if unit.is_empty() => number(v),
        // Whole times have the same number of digits as other times.
        Some(v) if unit == "us" && v >= 1000.0 => format!("{} us", count(v.round() as u64)),
        Some(v) if unit == "us" && v >= 10.0 => format!("{v:.1} us"),
        Some(v) if unit == "us" => format!("{v:.2} us"),
        Some(v) => format!("{} {unit}", number(v)),
    }
}

/// The row's values, from the smallest seed result to the largest.
pub(crate) fn spread(row: &Row) -> String {
    let known = || row.seeds.iter().flatten().copied();
    match (known().reduce(f64::min), known().reduce(f64::max)) {
        (Some(low), Some(high)) => format!("{}..{}", number(low), number(high)),
        _ => String::new(),
    }
}

/// The verdict, or the kind of a row without a verdict. A verdict by a bound of our own says so.
pub(crate) fn verdict(row: &Row) -> String {
    match (row.kind, row.verdict) {
        (Kind::Study, _) => "study".into(),
        (Kind::Unjudged, _) => "unjudged".into(),
        (Kind::Ours, verdict) => format!("{} (ours)", verdict.word()),
        (Kind::Relation, verdict) => verdict.word().into(),
    }
}

/// The bound of our value, as text.
pub(crate) fn bound(row: &Row) -> String {
    let tolerance = number((1000.0 * row.tolerance.unwrap_or(0.0)).round() / 10.0);
    match (row.bound, tolerance.as_str()) {
        (Bound::None, _) => String::new(),
        (Bound::Near, "0") => "equal".into(),
        (Bound::Near, _) => format!("± {tolerance} %"),
        (Bound::AtLeast, "0") => "at least".into(),
        (Bound::AtLeast, _) => format!("at least − {tolerance} %"),
        (Bound::AtMost, "0") => "at most".into(),
        (Bound::AtMost, _) => format!("at most + {tolerance} %"),
    }
}

//! Published results next to ours, for the terminal.

use super::right;
use crate::grid::table;
use crate::numbers::{count, number};
use crate::reproduction::{Bias, Bound, Kind, Reproduction, Row, Source, Verdict};
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
    for set in done.rows.chunk_by(|a, b| set_of(a) == set_of(b)) {
        for rows in set.chunk_by(|a, b| a.section == b.section) {
            out.push_str(&format!("{}\n{}\n", rows[0].section, section(rows)));
            for (ids, note) in notes(rows) {
                out.push_str(&format!("  {}: {note}\n", ids.join(", ")));
            }
            out.push('\n');
        }
        let bias = Bias::of(set);
        if !bias.is_empty() {
            out.push_str(&format!("{BIAS}\n{}\n\n", biased(&bias)));
        }
    }
    out.push_str(&format!("{} rows: {}\n", done.rows.len(), done.counts().sentence()));
    out
}

/// The heading above the families of rows.
pub(crate) const BIAS: &str = "Our times beside the reference's, by family of judged rows";

/// The heads of the columns of that table.
pub(crate) const BIAS_HEADS: [&str; 4] = ["family", "times", "ours shorter", "median difference"];

/// The columns of a family.
pub(crate) fn bias_columns(bias: &Bias) -> [String; 4] {
    let median = (1000.0 * bias.median).round() / 10.0;
    let sign = if median > 0.0 { "+" } else { "" };
    let sooner = format!("{:.0} %", 100.0 * bias.sooner);
    // Adding zero removes the sign of a negative zero.
    [bias.family.clone(), bias.rows.to_string(), sooner, format!("{sign}{:.1} %", median + 0.0)]
}

fn biased(bias: &[Bias]) -> String {
    let mut table = table();
    table.set_header(BIAS_HEADS.map(Cell::new));
    for bias in bias {
        let [family, rest @ ..] = bias_columns(bias);
        table.add_row([Cell::new(family)].into_iter().chain(rest.map(right)).collect::<Vec<_>>());
    }
    table.to_string()
}

/// The name of a row's set.
pub(crate) fn set_of(row: &Row) -> &str {
    row.id.split('/').next().unwrap_or_default()
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
    table.set_header(
        ["row", "what", "theirs", "whose", "ours", "seeds", "95 %", "ratio", "bound", "verdict"].map(Cell::new),
    );
    for row in rows {
        table.add_row(vec![
            Cell::new(&row.id),
            Cell::new(&row.what),
            right(quantity(row.published, &row.unit)),
            Cell::new(if row.published.is_some() { whose(row.source) } else { "" }),
            right(quantity(row.ours, &row.unit)),
            right(spread(row)),
            right(interval(row)),
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

/// The confidence interval of a row with a verdict.
pub(crate) fn interval(row: &Row) -> String {
    match row.interval.filter(|_| row.verdict != Verdict::Unknown) {
        Some([low, high]) => format!("{}..{}", number(low), number(high)),
        None => String::new(),
    }
}

/// The verdict, or the kind of a row without a verdict. A verdict by a bound of our own says so.
pub(crate) fn verdict(row: &Row) -> String {
    match (row.kind, row.verdict) {
        (Kind::Comparison, _) => "comparison".into(),
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

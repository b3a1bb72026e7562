//! Published results next to ours as Markdown: writes the tables of a page, and compares them with a page.
//!
//! A page has a pair of marker lines for each set, `<!-- begin: strandway reproduce SET -->` and `<!-- end: strandway
//! reproduce SET -->`. The text between them is generated. The pair with the name `counts` holds the numbers of rows by
//! set.

use super::escape;
use crate::reproduction::Bias;
use crate::reproduction::{Reproduction, Row};
use crate::text::reproduced::{
    BIAS, BIAS_HEADS, bias_columns, bound, interval, notes, quantity, set_of, spread, verdict, whose,
};
use std::collections::BTreeMap;

/// The name of the markers around the counts.
const COUNTS: &str = "counts";

/// The columns of the counts: their heads, and the verdicts in the last column of a table that belong to each.
const COLUMNS: [(&str, &[&str]); 7] = [
    ("met", &["met"]),
    ("missed", &["missed"]),
    ("undecided", &["undecided"]),
    ("bounds of our own, met", &["met (ours)"]),
    ("not met", &["missed (ours)", "undecided (ours)"]),
    ("comparisons", &["comparison"]),
    ("studies", &["study"]),
];

/// All tables, set by set.
pub fn reproduction(done: &Reproduction) -> String {
    let sets = by_set(&done.rows);
    sets.iter().map(|(set, rows)| format!("## {set}\n\n{}", tables(rows))).collect::<Vec<_>>().join("\n")
}

/// The page with new tables for all sets that were run, and with new counts.
///
/// # Errors
/// If the page lacks the markers of a set; the message names the remedy.
pub fn inserted(page: &str, done: &Reproduction) -> Result<String, String> {
    let mut page = page.to_string();
    for (set, rows) in by_set(&done.rows) {
        page = between(&page, set, &tables(&rows))?;
    }
    let counted = counts(&page);
    between(&page, COUNTS, &counted)
}

/// Checks that a page has the markers of these sets and of the counts.
///
/// # Errors
/// If markers are missing; the message names the remedy.
pub fn places<'a>(page: &str, sets: impl Iterator<Item = &'a str>) -> Result<(), String> {
    sets.chain([COUNTS]).try_for_each(|name| between(page, name, "").map(|_| ()))
}

/// A sentence for each row whose line differs from its line in the page.
pub fn turned(page: &str, done: &Reproduction) -> Vec<String> {
    let there: BTreeMap<&str, &str> = page.lines().filter_map(|line| Some((id_of(line)?, line))).collect();
    let mut turned = Vec::new();
    for row in &done.rows {
        let now = line(row);
        match there.get(row.id.as_str()) {
            Some(was) if *was == now => {}
            Some(was) => turned.push(format!("{}: {now}\n  the page has: {was}", row.id)),
            None => turned.push(format!("{}: the page has no such row; now: {now}", row.id)),
        }
    }
    turned
}

/// The ids of all rows of a page, in order.
pub fn ids(page: &str) -> Vec<&str> {
    page.lines().filter_map(id_of).collect()
}

fn id_of(line: &str) -> Option<&str> {
    let (id, _) = line.strip_prefix("| `")?.split_once("` |")?;
    id.contains('/').then_some(id)
}

fn by_set(rows: &[Row]) -> Vec<(&str, Vec<&Row>)> {
    let mut sets: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in rows {
        let set = set_of(row);
        match sets.last_mut() {
            Some((last, rows)) if *last == set => rows.push(row),
            _ => sets.push((set, vec![row])),
        }
    }
    sets
}

fn tables(rows: &[&Row]) -> String {
    let mut out = String::new();
    for section in rows.chunk_by(|a, b| a.section == b.section) {
        out.push_str(&format!("**{}**\n\n", escape(&section[0].section)));
        out.push_str("| row | | theirs | ours | seeds | 95 % | bound | verdict |\n|---|---|--:|--:|--:|--:|---|---|\n");
        for row in section {
            out.push_str(&format!("{}\n", line(row)));
        }
        let section: Vec<Row> = section.iter().map(|row| (*row).clone()).collect();
        for (ids, note) in notes(&section) {
            let ids: Vec<String> = ids.iter().map(|id| format!("`{id}`")).collect();
            out.push_str(&format!("\n{}: {}.\n", ids.join(", "), escape(note)));
        }
        out.push('\n');
    }
    let bias = Bias::of(rows.iter().copied());
    if !bias.is_empty() {
        // Names of families are not in backquotes: a line with an id there is a row.
        out.push_str(&format!("**{BIAS}**\n\n| {} |\n|---|--:|--:|--:|\n", BIAS_HEADS.join(" | ")));
        bias.iter().for_each(|bias| out.push_str(&format!("| {} |\n", bias_columns(bias).join(" | "))));
        out.push('\n');
    }
    out
}

fn line(row: &Row) -> String {
    let theirs = match row.published {
        Some(_) => format!("{} ({})", quantity(row.published, &row.unit), whose(row.source)),
        None => String::new(),
    };
    let ours = quantity(row.ours, &row.unit);
    let cells = [escape(&row.what), theirs, ours, spread(row), interval(row), bound(row), verdict(row)];
    format!("| `{}` | {} |", row.id, cells.join(" | "))
}

/// The number of a page's rows by set and verdict, as a table.
fn counts(page: &str) -> String {
    let mut sets: Vec<(&str, BTreeMap<&str, usize>)> = Vec::new();
    for row in page.lines().filter(|line| id_of(line).is_some()) {
        let set = id_of(row).and_then(|id| id.split('/').next()).unwrap_or_default();
        let word = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        if !sets.iter().any(|(name, _)| *name == set) {
            sets.push((set, BTreeMap::new()));
        }
        if let Some((_, words)) = sets.iter_mut().find(|(name, _)| *name == set) {
            *words.entry(word).or_default() += 1;
        }
    }
    let heads: Vec<&str> = COLUMNS.iter().map(|column| column.0).chain(["unjudged"]).collect();
    let mut out = format!("| set | {} |\n|---|{}\n", heads.join(" | "), "--:|".repeat(heads.len()));
    let of = |words: &BTreeMap<&str, usize>| -> Vec<usize> {
        let count = |all: &[&str]| all.iter().filter_map(|word| words.get(word)).sum();
        COLUMNS.iter().map(|column| count(column.1)).chain([count(&["unjudged"])]).collect()
    };
    let mut all = vec![0; heads.len()];
    for (set, words) in &sets {
        let numbers = of(words);
        all.iter_mut().zip(&numbers).for_each(|(sum, number)| *sum += number);
        out.push_str(&format!("| `{set}` | {} |\n", joined(&numbers)));
    }
    out.push_str(&format!("| all | {} |\n", joined(&all)));
    out
}

fn joined(numbers: &[usize]) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(" | ")
}

/// The page with new text between the markers of this name.
fn between(page: &str, name: &str, text: &str) -> Result<String, String> {
    let [begin, end] = ["begin", "end"].map(|which| format!("<!-- {which}: strandway reproduce {name} -->"));
    let place = page.find(&begin).and_then(|at| {
        let from = at + begin.len();
        page[from..].find(&end).map(|length| (from, from + length))
    });
    match place {
        Some((from, to)) => Ok(format!("{}\n\n{}\n\n{}", &page[..from], text.trim_end(), &page[to..])),
        None => Err(format!("the page has no place for `{name}`; add two lines, `{begin}` and `{end}`")),
    }
}

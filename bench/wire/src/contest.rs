//! Rows that are measured in turns, so that disturbances of the machine hit all of them, and their evaluation: medians,
//! ratios, tables.

use serde_json::{Value, json};
use std::fmt::Write as _;

/// One number of a row.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
}

impl Column {
    pub(crate) fn new(name: impl Into<String>, unit: &'static str) -> Column {
        Column { name: name.into(), unit }
    }
}

/// The result of one round: a value for each column, or the error.
type Outcome = Result<Vec<f64>, String>;
/// How a row is measured.
type Measure<'a> = Box<dyn FnMut() -> Outcome + 'a>;

/// A row.
pub(crate) struct Row<'a> {
    /// The table that it belongs to.
    table: String,
    name: String,
    columns: Vec<Column>,
    /// The rows of its table with which it is compared, the most important one first.
    against: Vec<String>,
    measure: Measure<'a>,
    /// The result of each round.
    rounds: Vec<Outcome>,
}

impl<'a> Row<'a> {
    pub(crate) fn new(
        table: impl Into<String>,
        name: impl Into<String>,
        columns: &[Column],
        measure: impl FnMut() -> Outcome + 'a,
    ) -> Row<'a> {
        let (table, name) = (table.into(), name.into());
        let columns = columns.to_vec();
        Row { table, name, columns, against: Vec::new(), measure: Box::new(measure), rounds: Vec::new() }
    }

    /// Compares it with another row of its table.
    pub(crate) fn against(mut self, row: impl Into<String>) -> Row<'a> {
        self.against.push(row.into());
        self
    }

    fn values(&self, column: usize) -> Vec<f64> {
        self.rounds.iter().flatten().filter_map(|values| values.get(column).copied()).collect()
    }

    /// The number of its rounds that failed, and the error of the last one.
    fn failures(&self) -> Option<(usize, &str)> {
        let mut failed = self.rounds.iter().filter_map(|round| round.as_ref().err());
        let count = failed.clone().count();
        failed.next_back().map(|why| (count, why.as_str()))
    }

    /// The rounds' ratios to another row: a disturbance of a whole round cancels out.
    fn ratios(&self, other: &Row<'_>, column: usize) -> Ratios {
        let pairs = self.rounds.iter().zip(&other.rounds);
        let ratio = |(mine, theirs): (&Outcome, &Outcome)| {
            let (mine, theirs) = (mine.as_ref().ok()?.get(column)?, theirs.as_ref().ok()?.get(column)?);
            (*theirs > 0.0 && mine.is_finite() && theirs.is_finite()).then(|| mine / theirs)
        };
        Ratios(pairs.filter_map(ratio).collect())
    }
}

/// Ratios of two rows, one per round in which both succeeded.
struct Ratios(Vec<f64>);

impl Ratios {
    fn median(&self) -> Option<f64> {
        median(&self.0)
    }

    /// The least and the most.
    fn spread(&self) -> Option<(f64, f64)> {
        let least = self.0.iter().copied().reduce(f64::min)?;
        Some((least, self.0.iter().copied().reduce(f64::max)?))
    }

    /// The median, and the spread if there are several rounds.
    fn shown(&self) -> Option<String> {
        let (median, (least, most)) = (self.median()?, self.spread()?);
        match self.0.len() {
            1 => Some(format!("{median:.2}")),
            _ => Some(format!("{median:.2} ({least:.2} to {most:.2})")),
        }
    }
}

/// The median of the values that are not NaN; infinite values ("never") count.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// A section of the benchmark: its rows, from measuring to printing.
pub(crate) struct Contest<'a> {
    pub(crate) section: &'static str,
    pub(crate) rows: Vec<Row<'a>>,
}

impl Contest<'_> {
    /// Keeps only the rows whose table or name contains one of these parts; all rows if there are no parts.
    pub(crate) fn keep(&mut self, parts: &[String]) {
        let wanted = |row: &Row<'_>| parts.iter().any(|part| row.table.contains(part) || row.name.contains(part));
        self.rows.retain(|row| parts.is_empty() || wanted(row));
    }

    /// Measures all rows, round by round.
    pub(crate) fn run(&mut self, rounds: usize) {
        for round in 1..=rounds {
            for row in &mut self.rows {
                let head = format!("{} {round}/{rounds}: {}, {}", self.section, row.table, row.name);
                let outcome = (row.measure)();
                match &outcome {
                    Ok(values) => {
                        let each = values.iter().zip(&row.columns);
                        let said: Vec<String> = each.map(|(v, c)| format!("{} {}", show(*v), c.unit)).collect();
                        eprintln!("{head}: {}", said.join(", "));
                    }
                    Err(why) => eprintln!("{head}: {why}"),
                }
                row.rounds.push(outcome);
            }
        }
    }

    fn find(&self, table: &str, name: &str) -> Option<&Row<'_>> {
        self.rows.iter().find(|row| row.table == table && row.name == name)
    }

    /// The tables, in Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut text = crate::page::section(self.section);
        let mut tables: Vec<&str> = self.rows.iter().map(|row| row.table.as_str()).collect();
        tables.dedup();
        for table in tables {
            let rows: Vec<&Row<'_>> = self.rows.iter().filter(|row| row.table == table).collect();
            // The columns' names come from the longest row, since others have fewer columns.
            let Some(longest) = rows.iter().max_by_key(|row| row.columns.len()) else { continue };
            let heads: Vec<String> = longest.columns.iter().map(|c| format!("{}, {}", c.name, c.unit)).collect();
            let _ = writeln!(text, "\n### {table}\n\n| row | {} | rounds | ratio |", heads.join(" | "));
            let _ = writeln!(text, "|---|{}---|---|", "---|".repeat(heads.len()));
            for row in &rows {
                let _ = writeln!(text, "| {} |", self.line(row, heads.len()).join(" | "));
            }
            text += &self.rivals(&rows);
        }
        text
    }

    /// The cells of a row.
    fn line(&self, row: &Row<'_>, width: usize) -> Vec<String> {
        let mut cells = vec![row.name.clone()];
        for column in 0..width {
            cells.push(median(&row.values(column)).map_or("-".into(), show));
        }
        let mut rounds = row.values(0).into_iter().map(show).collect::<Vec<_>>().join(", ");
        if let Some((count, why)) = row.failures() {
            let times = if count == row.rounds.len() { String::new() } else { format!("; {count} failed: ") };
            let _ = write!(rounds, "{times}{why}");
        }
        cells.push(rounds);
        let first =
            row.against.first().and_then(|name| Some((name, row.ratios(self.find(&row.table, name)?, 0).shown()?)));
        cells.push(first.map_or("-".into(), |(name, ratios)| format!("{ratios} of {name}")));
        cells
    }

    /// A second table if rows are compared with more than one other row.
    fn rivals(&self, rows: &[&Row<'_>]) -> String {
        let many = || rows.iter().filter(|row| row.against.len() > 1);
        let mut names: Vec<&String> = Vec::new();
        for name in many().flat_map(|row| &row.against) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let Some(column) = many().next().and_then(|row| row.columns.first()) else { return String::new() };
        let heads: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        let mut text = format!("\n| {}, times that of | {} |\n|---|", column.name, heads.join(" | "));
        let _ = writeln!(text, "{}", "---|".repeat(heads.len()));
        for row in many() {
            let ratio = |name: &&String| row.ratios(self.find(&row.table, name)?, 0).shown();
            let cells: Vec<String> = names.iter().map(|name| ratio(name).unwrap_or("-".into())).collect();
            let _ = writeln!(text, "| {} | {} |", row.name, cells.join(" | "));
        }
        text
    }

    /// One object per row and column.
    pub(crate) fn json(&self) -> Vec<Value> {
        let mut objects = Vec::new();
        for row in &self.rows {
            for (at, column) in row.columns.iter().enumerate() {
                let to = |name: &String| self.find(&row.table, name).map(|other| row.ratios(other, at));
                let ratio = |name: &String| to(name).and_then(|ratios| ratios.median());
                let ratios: serde_json::Map<String, Value> =
                    row.against.iter().map(|name| (name.clone(), ratio(name).into())).collect();
                let spread = row.against.first().and_then(to).and_then(|ratios| ratios.spread());
                objects.push(json!({
                    "section": self.section,
                    "table": row.table,
                    "row": row.name,
                    "column": column.name,
                    "unit": column.unit,
                    "values": row.values(at),
                    "median": median(&row.values(at)),
                    "ratio_to": row.against.first(),
                    "ratio": row.against.first().and_then(ratio),
                    "ratio_least": spread.map(|(least, _)| least),
                    "ratio_most": spread.map(|(_, most)| most),
                    "ratios": ratios,
                    "failures": row.failures().map_or(0, |(count, _)| count),
                    "failure": row.failures().map(|(_, why)| why),
                }));
            }
        }
        objects
    }
}

/// Three significant digits.
fn show(value: f64) -> String {
    match value {
        v if v.is_infinite() => "never".into(),
        v if v.is_nan() => "-".into(),
        v if v.abs() >= 99.95 => format!("{v:.0}"),
        v if v.abs() >= 9.995 => format!("{v:.1}"),
        v if v.abs() >= 0.9995 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_ratios_is_taken_round_by_round() {
        let columns = [Column::new("goodput", "Gb/s")];
        let mut slow = [2.0, 1.0, 3.0].into_iter();
        let mut fast = [4.0, 2.0, 12.0].into_iter();
        let next = |values: &mut dyn Iterator<Item = f64>| values.next().map(|v| vec![v]).ok_or("no more".into());
        let rows = vec![
            Row::new("all", "fast", &columns, move || next(&mut fast)),
            Row::new("all", "slow", &columns, move || next(&mut slow)).against("fast"),
        ];
        let mut contest = Contest { section: "test", rows };
        contest.run(4);
        let slow = &contest.json()[1];
        assert_eq!((slow["median"].as_f64(), slow["ratio"].as_f64()), (Some(2.0), Some(0.5)));
        assert_eq!(slow["failures"], 1);
        let line = "| slow | 2.00 | 2.00, 1.00, 3.00; 1 failed: no more | 0.50 (0.25 to 0.50) of fast |";
        assert!(contest.markdown().contains(line), "{}", contest.markdown());
        assert_eq!((slow["ratio_least"].as_f64(), slow["ratio_most"].as_f64()), (Some(0.25), Some(0.5)));
    }

    #[test]
    fn failures_take_longer_than_all_else() {
        assert_eq!(median(&[f64::INFINITY, 1.0, f64::INFINITY]), Some(f64::INFINITY));
        assert_eq!(median(&[f64::NAN]), None);
    }
}

//! Sections of published results as one table: the same rows, measured in several settings.

use super::chart::escape;
use super::times;
use crate::reproduction::{Row, Verdict};
use crate::text::reproduced::{quantity, spread, whose};
use std::fmt::Write;

/// Values within this factor of the best value count as equally good.
const NEAR: f64 = 1.02;

/// One or more sections with the same rows; each is a column.
pub(super) struct Pivot<'a> {
    pub(super) columns: Vec<&'a [Row]>,
}

/// Groups neighbouring sections that have the same rows.
pub(super) fn pivots(rows: &[Row]) -> Vec<Pivot<'_>> {
    let mut pivots: Vec<Pivot> = Vec::new();
    for section in rows.chunk_by(|a, b| a.section == b.section) {
        match pivots.last_mut() {
            Some(last) if section.len() > 1 && alike(last.columns[0], section) => last.columns.push(section),
            _ => pivots.push(Pivot { columns: vec![section] }),
        }
    }
    pivots
}

fn alike(a: &[Row], b: &[Row]) -> bool {
    let set = |row: &Row| row.id.split('/').next().unwrap_or_default().to_string();
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.what == b.what && a.unit == b.unit && set(a) == set(b))
}

impl Pivot<'_> {
    /// The common part of all sections' titles, and the rest of each title. Titles have the form `about: where`.
    pub(super) fn titles(&self) -> (String, Vec<String>) {
        let titles: Vec<&str> = self.columns.iter().map(|column| column[0].section.as_str()).collect();
        let halves: Option<Vec<(&str, &str)>> = titles.iter().map(|title| title.split_once(": ")).collect();
        let own = |of: fn(&(&str, &str)) -> String, halves: &[(&str, &str)]| halves.iter().map(of).collect();
        match halves.as_deref() {
            Some(halves) if titles.len() > 1 && halves.iter().all(|h| h.0 == halves[0].0) => {
                (halves[0].0.to_string(), own(|h| h.1.to_string(), halves))
            }
            Some(halves) if titles.len() > 1 && halves.iter().all(|h| h.1 == halves[0].1) => {
                (format!("Side by side: {}", halves[0].1), own(|h| h.0.to_string(), halves))
            }
            _ => ("Side by side".to_string(), titles.iter().map(|title| title.to_string()).collect()),
        }
    }

    /// The best value among a row's rivals: rows of its column with the same metric.
    fn best(&self, column: usize, row: &Row) -> Option<f64> {
        let key = |row: &Row| if let [cell] = &row.cells[..] { Some(cell.key.clone()) } else { None };
        let own = key(row).filter(|_| row.unit == "us")?;
        let rivals = self.columns[column].iter().filter(|r| key(r).as_deref() == Some(own.as_str()));
        let values: Vec<f64> = rivals.filter_map(|r| r.ours).collect();
        values.iter().copied().reduce(f64::min).filter(|_| values.len() > 1)
    }

    /// A table with a row per transport and a column per setting. Each cell is our value. Its colour is its verdict;
    /// without a verdict, the best value is coloured.
    pub(super) fn table(&self) -> String {
        let mut out = String::from("<div class=\"card scroll\"><table class=\"verdicts\"><thead><tr><th></th>");
        for title in self.titles().1 {
            let _ = write!(out, "<th>{}</th>", escape(&title));
        }
        out.push_str("</tr></thead><tbody>");
        for (i, first) in self.columns[0].iter().enumerate() {
            let _ = write!(out, "<tr><td>{}</td>", escape(&first.what));
            for (column, rows) in self.columns.iter().enumerate() {
                let row = &rows[i];
                let class = match row.verdict {
                    Verdict::Unknown if row.ours.is_some() && row.ours == self.best(column, row) => "best",
                    Verdict::Unknown => "",
                    verdict => verdict.word(),
                };
                let beside = match row.published {
                    Some(_) => format!("{} {}", quantity(row.published, &row.unit), whose(row.source)),
                    None => spread(row).replace("..", " to "),
                };
                let ours = escape(&quantity(row.ours, &row.unit));
                let _ = write!(
                    out,
                    "<td title=\"{}\"><span class=\"{class}\">{ours}</span><small>{}</small></td>",
                    escape(&row.id),
                    escape(&beside)
                );
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></div>\n");
        out
    }

    /// A sentence with the best and the worst transport over all settings; `None` if values are missing.
    pub(super) fn findings(&self) -> Option<String> {
        let settings = self.columns.len();
        // By row: its distance from the best value in each setting.
        let mut apart: Vec<(&str, Vec<f64>)> = Vec::new();
        for (i, first) in self.columns[0].iter().enumerate() {
            let over = |(column, rows): (usize, &&[Row])| Some(rows[i].ours? / self.best(column, &rows[i])?);
            let ratios: Option<Vec<f64>> = self.columns.iter().enumerate().map(over).collect();
            apart.push((&first.what, ratios?));
        }
        let near = |ratios: &[f64]| ratios.iter().filter(|r| **r <= NEAR).count();
        let sum = |ratios: &[f64]| ratios.iter().sum::<f64>();
        let best = apart.iter().max_by(|a, b| near(&a.1).cmp(&near(&b.1)).then(sum(&b.1).total_cmp(&sum(&a.1))))?;
        let most = |ratios: &[f64]| ratios.iter().copied().fold(1.0, f64::max);
        let worst = apart.iter().max_by(|a, b| most(&a.1).total_cmp(&most(&b.1)))?;
        let wheres = match near(&best.1) {
            1 if settings == 1 => "is the fastest".to_string(),
            n if n == settings => format!("is the fastest, or within 2\u{a0}% of it, in all {settings} settings"),
            n => format!("is the fastest, or within 2\u{a0}% of it, in {n} of {settings} settings"),
        };
        let factor = times(most(&worst.1));
        Some(format!("{} {wheres}; {} takes up to {factor} times as long as the fastest.", best.0, worst.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduction::{Bound, CellFacts, Kind, Source};

    fn row(section: &str, what: &str, ours: f64) -> Row {
        let cell = CellFacts {
            command: String::new(),
            key: "fct_us.max".into(),
            mean: Some(ours),
            min: Some(ours),
            max: Some(ours),
            seeds: vec![Some(ours)],
        };
        Row {
            id: format!("set/{section}/{what}"),
            section: section.into(),
            what: what.into(),
            unit: "us".into(),
            source: Source::Ours,
            published: None,
            ours: Some(ours),
            ratio: None,
            bound: Bound::None,
            tolerance: None,
            kind: Kind::Study,
            verdict: Verdict::Unknown,
            seeds: Vec::new(),
            interval: None,
            command: String::new(),
            note: String::new(),
            cells: vec![cell],
        }
    }

    #[test]
    fn sections_with_the_same_rows_are_columns() {
        let rows = [
            row("Permutation: 8 hosts", "roce", 300.0),
            row("Permutation: 8 hosts", "prime", 50.7),
            row("Permutation: 8 hosts", "bitmap", 50.6),
            row("Incast: 8 hosts", "roce", 200.0),
            row("Incast: 8 hosts", "prime", 100.0),
            row("Incast: 8 hosts", "bitmap", 110.0),
            row("Alone", "roce", 9.0),
        ];
        let pivots = pivots(&rows);
        assert_eq!(pivots.iter().map(|p| p.columns.len()).collect::<Vec<_>>(), [2, 1]);
        let (about, titles) = pivots[0].titles();
        assert_eq!((about.as_str(), titles), ("Side by side: 8 hosts", vec!["Permutation".into(), "Incast".into()]));
        let table = pivots[0].table();
        assert_eq!(table.matches("class=\"best\"").count(), 2, "{table}");
        assert!(table.contains("<span class=\"best\">50.6 us</span>"), "{table}");
        let found = pivots[0].findings().expect("comparable").replace('\u{a0}', " ");
        let wanted = "prime is the fastest, or within 2 % of it, in all 2 settings; roce takes up to 5.9 times as long as \
                      the fastest.";
        assert_eq!(found, wanted);
        assert_eq!(pivots[1].findings(), None, "one row has no rivals");
    }
}

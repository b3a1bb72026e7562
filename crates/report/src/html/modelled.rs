//! The page of the model's answers: the best scheme, curves over the varied quantity, and tables.

use super::chart::{self, Axis, Curve, Drawn, Lines};
use super::{figure, heading, table};
use crate::answers::{Answer, Answers, SchemeFacts, Vary};
use crate::numbers::us;
use crate::text::modelled::{is_tie, probability, short_verdict, slowdown, subject, verdict};
use std::collections::BTreeMap;

pub(super) fn body(answers: &Answers) -> String {
    let Some(first) = answers.rows.first() else { return String::new() };
    let told = match (answers.vary, answers.rows.last()) {
        (Some(vary), Some(_)) => format!("By p99.9: {}", findings(vary, &answers.rows)),
        _ => format!("By p99.9: {}", verdict(&first.best_p999)),
    };
    let mut out = heading("Which reliability for this link?", &told, &subject(first, answers.vary));
    match answers.vary {
        Some(vary) => {
            out.push_str("<div class=\"charts\">\n");
            for (id, title, of) in [
                ("mean", "Mean completion time", (|s| s.mean_slowdown) as fn(&SchemeFacts) -> f64),
                ("p999", "99.9th percentile of completion time", |s| s.p999_slowdown),
            ] {
                out.push_str(&figure(
                    title,
                    "Relative to the time without losses: lower is better",
                    &curves(id, vary, answers, of),
                ));
            }
            out.push_str("</div>\n");
            out.push_str(&varied(vary, answers));
        }
        None => {
            let bars = first.schemes.iter().enumerate();
            let bars: Vec<_> = bars.map(|(i, s)| (s.scheme.clone(), i, s.p999_us, us(Some(s.p999_us)))).collect();
            let sub = "One message in a thousand takes longer: lower is better";
            out.push_str("<div class=\"charts\">\n");
            out.push_str(&figure("99.9th percentile of completion time", sub, &chart::bars(&bars)));
            out.push_str("</div>\n");
            out.push_str(&single(first));
        }
    }
    out.push_str(&format!(
        "<footer>Strandway {}. The model is that of SDR-RDMA (arXiv 2505.05366), calculated exactly; it knows neither congestion nor the \
         cost of coding.</footer>\n",
        chart::escape(&answers.version)
    ));
    out
}

/// Limit on the ranges that the heading names one by one: ours.
const RANGES: usize = 4;

/// The best scheme in each range of values; a tie has none.
fn findings(vary: Vary, rows: &[Answer]) -> String {
    let winner = |row: &Answer| (!is_tie(&row.best_p999)).then(|| row.best_p999.scheme.clone());
    let ranges: Vec<&[Answer]> = rows.chunk_by(|a, b| winner(a) == winner(b)).collect();
    let named =
        |scheme: Option<String>| scheme.map_or("no difference".to_string(), |scheme| format!("{scheme} is best"));
    if let [range] = &ranges[..] {
        return format!("{} at every {} here", named(winner(&range[0])), vary.word());
    }
    if ranges.len() <= RANGES {
        let told = ranges.iter().map(|range| match range {
            [one] => format!("{} at {}", named(winner(one)), one.at),
            [first, .., last] => format!("{} from {} to {}", named(winner(first)), first.at, last.at),
            [] => String::new(),
        });
        return told.collect::<Vec<String>>().join("; ");
    }
    let mut counts: BTreeMap<Option<String>, usize> = BTreeMap::new();
    rows.iter().for_each(|row| *counts.entry(winner(row)).or_default() += 1);
    let mut counts: Vec<(Option<String>, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let told =
        counts.into_iter().map(|(scheme, count)| format!("{} at {count} of {} values", named(scheme), rows.len()));
    told.collect::<Vec<String>>().join("; ")
}

fn curves(id: &str, vary: Vary, answers: &Answers, of: fn(&SchemeFacts) -> f64) -> String {
    let (label, unit) = vary.axis();
    let at = |row: &Answer| row.value / unit;
    let xs = || answers.rows.iter().map(at);
    let top = answers.rows.iter().flat_map(|r| &r.schemes).map(of).fold(1.0, f64::max);
    let names = answers.rows[0].schemes.iter().map(|s| s.scheme.clone()).enumerate();
    let curve = |(i, name): (usize, String)| Curve {
        name,
        colour: i,
        points: answers.rows.iter().map(|row| (at(row), of(&row.schemes[i]))).collect(),
    };
    let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(0.0, f64::max));
    chart::lines(&Lines {
        id: id.to_string(),
        x: Axis { log: low > 0.0, ..Axis::new(label, low, high) },
        y: Axis::new("slowdown", 1.0_f64.min(top), top * 1.03),
        curves: names.map(curve).collect(),
        drawn: Drawn::Slopes,
        marks: Vec::new(),
    })
}

fn varied(vary: Vary, answers: &Answers) -> String {
    let names = answers.rows[0].schemes.iter().map(|s| s.scheme.as_str());
    let first = format!("<{}", vary.word());
    let head: Vec<&str> =
        [first.as_str(), "ideal"].into_iter().chain(names).chain(["<best by mean", "<best by p99.9"]).collect();
    let left = |text: &str| format!("<td class=\"left\">{}</td>", chart::escape(text));
    let rows = answers.rows.iter().map(|row| {
        let mut cells = vec![left(&row.at), us(Some(row.ideal_us))];
        let both = |s: &SchemeFacts| format!("{} / {}", slowdown(s.mean_slowdown), slowdown(s.p999_slowdown));
        cells.extend(row.schemes.iter().map(both));
        cells.extend([&row.best_mean, &row.best_p999].map(|best| left(&short_verdict(best))));
        cells
    });
    format!("<h2>Slowdown by mean / by 99.9th percentile</h2>\n{}", table(&head, &rows.collect::<Vec<_>>()))
}

fn single(row: &Answer) -> String {
    let head = ["<scheme", "mean", "slowdown", "p99.9", "slowdown", "fallback", "overhead"];
    let rows = row.schemes.iter().map(|s| {
        vec![
            format!("<td class=\"left\">{}</td>", chart::escape(&s.scheme)),
            us(Some(s.mean_us)),
            slowdown(s.mean_slowdown),
            us(Some(s.p999_us)),
            slowdown(s.p999_slowdown),
            s.fallback.map_or("–".into(), probability),
            format!("{:.1} %", 100.0 * s.overhead),
        ]
    });
    table(&head, &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::Best;

    #[test]
    fn a_tie_has_no_best_scheme_and_ranges_are_named() {
        let best = |scheme: &str, margin: f64| Best { scheme: scheme.into(), margin, next: Some("MDS".into()) };
        let row = |at: &str, best_p999: Best| Answer { at: at.to_string(), best_p999, ..Answer::default() };
        let rows = [
            row("1 KiB", best("SR-RTO", 0.0)),
            row("2 KiB", best("SR-NACK", 1e-5)),
            row("4 KiB", best("MDS(32,2)", 0.5)),
            row("8 KiB", best("SR-NACK", 0.1)),
        ];
        let told = findings(Vary::Size, &rows);
        let wanted = "no difference from 1 KiB to 2 KiB; MDS(32,2) is best at 4 KiB; SR-NACK is best at 8 KiB";
        assert_eq!(told, wanted);
        assert_eq!(findings(Vary::Size, &rows[..2]), "no difference at every size here");
    }
}

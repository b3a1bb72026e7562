//! The page of the model's answers: the best scheme, curves over the varied quantity, and tables.

use super::chart::{self, Axis, Curve, Drawn, Lines};
use super::{figure, heading, table};
use crate::model::{Answer, Answers, SchemeFacts, Vary};
use crate::report::text::modelled::{probability, short_verdict, slowdown, subject, verdict};
use crate::report::text::us;

pub(super) fn body(answers: &Answers) -> String {
    let Some(first) = answers.rows.first() else { return String::new() };
    let found = match (answers.vary, answers.rows.last()) {
        (Some(vary), Some(last)) => {
            let (low, high) = (&first.best_p999.scheme, &last.best_p999.scheme);
            if low == high {
                format!("{low} is best by p99.9 at the least {0} and at the most", vary.word())
            } else {
                format!("By p99.9, {low} is best at {}, {high} at {}", first.at, last.at)
            }
        }
        _ => format!("By p99.9: {}", verdict(&first.best_p999)),
    };
    let mut out = heading("Which reliability for this link?", &found, &subject(first, answers.vary));
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

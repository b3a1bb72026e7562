//! Reports as one self-contained HTML file: no network, light and dark, readable on a phone.

mod chart;
mod compared;
mod explorer;
mod finding;
mod jobs;
mod keys;
mod lanes;
mod map;
mod marks;
mod modelled;
mod pivot;
mod reproduced;
mod search_result;
mod services;
mod single;
mod stacks;
mod watched;
mod why;

use self::chart::escape;
use crate::answers::Answers;
use crate::numbers::{gbps, us};
use crate::reproduction::Reproduction;
use crate::rows::Row;
use crate::search_result::Found;
use crate::text::COLLECTIVE_HEAD;
use crate::{Origin, Report};
use std::fmt::Write;

pub use self::compared::headline;

const STYLE: &str = include_str!("html/style.css");
/// Script for interactive charts, on every page.
const CHARTS: &str = include_str!("html/charts.js");
/// Script for lanes of bars, on pages of one run.
const LANES: &str = include_str!("html/lanes.js");
/// Script for the picture of a fabric, after the one for charts.
const MAP: &str = include_str!("html/map.js");
/// Script for pages with several runs, after the one for charts.
const SWEEP: &str = include_str!("html/sweep.js");

/// The report of one run.
pub fn report(report: &Report) -> String {
    let mut scripts = vec![CHARTS];
    scripts.extend((!report.jobs.is_empty()).then_some(LANES));
    scripts.extend(report.curves.map.is_some().then_some(MAP));
    page(&report.head.scenario, &single::body(report), &scripts)
}

/// One page for several runs.
pub fn rows(title: &str, rows: &[Row], scenario: &str) -> String {
    let mut scripts = vec![CHARTS, SWEEP];
    scripts.extend(rows.iter().any(|row| row.report.curves.map.is_some()).then_some(MAP));
    page(title, &compared::body(title, rows, scenario), &scripts)
}

/// Published results next to ours.
pub fn reproduction(done: &Reproduction) -> String {
    page("Published results beside ours", &reproduced::body(done), &[CHARTS])
}

/// The answer of a search.
pub fn search_result(found: &Found) -> String {
    let scripts: &[&str] = if found.map.is_some() { &[CHARTS, MAP] } else { &[CHARTS] };
    page(&found.scenario, &search_result::body(found), scripts)
}

/// The model's answers.
pub fn answers(answers: &Answers) -> String {
    page("Which reliability for this link?", &modelled::body(answers), &[CHARTS])
}

fn page(title: &str, body: &str, scripts: &[&str]) -> String {
    let title = escape(title);
    let script = scripts.iter().map(|script| bare(script)).collect::<Vec<_>>().join("\n");
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{title} · Strandway</title>\n<style>\n{STYLE}</style></head>\n<body><main>\n{body}\n</main>\
         <div id=\"tip\"></div>\n<script>\n{script}\n</script>\n</body></html>\n"
    )
}

/// A script without comments and indentation, which keeps reports small.
fn bare(script: &str) -> String {
    let lines: Vec<&str> = script.lines().map(str::trim).filter(|l| !l.starts_with("//")).collect();
    lines.join("\n")
}

/// Headlines longer than this are set in smaller type.
const HEADLINE_LONG: usize = 90;

/// The header of a page: product name, headline and lead.
fn heading(kind: &str, headline: &str, lead: &str) -> String {
    let class = if headline.chars().count() > HEADLINE_LONG { " class=\"long\"" } else { "" };
    format!(
        "<header><div class=\"brand\"><b>Strandway</b> · {}</div><h1{class}>{}</h1><p class=\"lead\">{}</p></header>\n",
        escape(kind),
        escape(headline),
        escape(lead)
    )
}

fn stat(number: &str, text: &str) -> String {
    format!(
        "<div class=\"card stat\"><div class=\"n\">{}</div><div class=\"t\">{}</div></div>",
        escape(number),
        escape(text)
    )
}

/// A chart with a title and a sentence that explains it.
fn figure(title: &str, sub: &str, chart: &str) -> String {
    format!(
        "<figure class=\"card\"><figcaption><h3>{}</h3><p class=\"sub\">{}</p></figcaption>{chart}</figure>\n",
        escape(title),
        escape(sub)
    )
}

/// A table in a card. Cells are HTML. A head that begins with `<` is aligned to the left.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = String::from("<div class=\"card scroll\"><table><thead><tr>");
    for cell in head {
        // A head of words is aligned to the left, like its cells.
        let _ = match cell.strip_prefix('<') {
            Some(cell) => write!(out, "<th class=\"left\">{}</th>", escape(cell)),
            None => write!(out, "<th>{}</th>", escape(cell)),
        };
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        for cell in row {
            // A cell may contain its own `<td>` tag with a class.
            if cell.starts_with("<td") {
                out.push_str(cell)
            } else {
                let _ = write!(out, "<td>{cell}</td>");
            }
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// The best unit for microseconds up to `most`, and the unit's size in microseconds.
fn time_unit(most: f64) -> (&'static str, f64) {
    match most {
        m if m >= 2e6 => ("s", 1e6),
        m if m >= 5e3 => ("ms", 1e3),
        _ => ("us", 1.0),
    }
}

/// The best unit for bytes up to `most`, and the unit's size.
fn byte_unit(most: f64) -> (&'static str, f64) {
    match most {
        m if m >= 2e9 => ("GB", 1e9),
        m if m >= 2e6 => ("MB", 1e6),
        m if m >= 2e3 => ("kB", 1e3),
        _ => ("B", 1.0),
    }
}

/// The best unit for Gb/s up to `most`, and the unit's size.
fn rate_unit(most: f64) -> (&'static str, f64) {
    if most >= 2e3 { ("Tb/s", 1e3) } else { ("Gb/s", 1.0) }
}

/// A ratio as text, such as "1.13".
fn times(value: f64) -> String {
    match value {
        v if v >= 10.0 => format!("{v:.0}"),
        v if v >= 3.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// The command line, its changes, and the scenario with these changes.
fn how_made(origin: &Origin, scenario: &str) -> String {
    let mut out = String::new();
    if !origin.command.is_empty() {
        out.push_str(&format!("<p class=\"note\">Command: <code>{}</code></p>\n", escape(&origin.command)));
    }
    if !origin.set.is_empty() {
        let set: Vec<String> =
            origin.set.iter().map(|(k, v)| format!("<code>{}</code>", escape(&format!("{k} = {v}")))).collect();
        out.push_str(&format!("<p class=\"note\">Changed: {}</p>\n", set.join(", ")));
    }
    let title = if origin.set.is_empty() { "Scenario" } else { "Scenario, with all changes" };
    out.push_str(&format!(
        "<details class=\"card\"><summary>{title}</summary><pre>{}</pre></details>\n",
        escape(scenario.trim())
    ));
    out
}

/// Faults and notes.
fn remarks(report: &Report) -> String {
    let mut out = String::new();
    if !report.faults.is_empty() {
        out.push_str(&format!("<p class=\"note bad\">Faults: {}</p>\n", escape(&crate::text::faults(report))));
    }
    for line in report.cost_lines() {
        out.push_str(&format!("<p class=\"note bad\">{}.</p>\n", escape(&line)));
    }
    for note in &report.notes {
        out.push_str(&format!("<p class=\"note\">Note: {}</p>\n", escape(note)));
    }
    out
}

fn parameters(report: &Report, title: &str) -> String {
    let rows: Vec<Vec<String>> = report
        .parameters
        .iter()
        .map(|p| {
            let value = if p.value == p.default { escape(&p.value) } else { format!("<b>{}</b>", escape(&p.value)) };
            let group = escape(&p.group);
            let what = format!("<td class=\"wrap\">{}</td>", escape(&p.what));
            vec![format!("{group}.{}", escape(&p.name)), value, escape(&p.default), what]
        })
        .collect();
    format!(
        "<details class=\"card\"><summary>{}</summary>{}</details>\n",
        escape(title),
        table(&["parameter", "value", "default", "what it does"], &rows).replace("card scroll", "scroll")
    )
}

/// A table of collectives; empty if there are none.
fn collectives(rows: Vec<[String; 8]>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let cell = |text: &String| escape(&text.replace(' ', "\u{a0}"));
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    format!("<h2>Collectives</h2>\n{}", table(&COLLECTIVE_HEAD, &rows))
}

/// The goodput in a phrase.
fn rate_phrase(report: &Report) -> String {
    let share = report.times.goodput_gbps.mean_per_host / report.fabric.rate_gbps;
    format!(
        "{} per sending host, {:.0} % of its line rate",
        gbps(report.times.goodput_gbps.mean_per_host),
        100.0 * share
    )
}

fn duration(value: Option<f64>) -> String {
    // A number and its unit stay on one line.
    us(value).replace(' ', "\u{a0}")
}

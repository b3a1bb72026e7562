//! Reports as one self-contained HTML file: no network, light and dark, readable on a phone.

mod chart;
mod compared;
mod reproduced;
mod single;
mod watched;
mod why;

use self::chart::escape;
use super::Report;
use super::text::{COLLECTIVE_HEAD, gbps, us};
use crate::reproduce::Reproduction;
use crate::sweep::Row;
use std::fmt::Write;

pub use self::compared::headline;

const STYLE: &str = include_str!("html/style.css");
const POINTER: &str = include_str!("html/pointer.js");

/// The report of one run, with the scenario's text.
pub fn report(report: &Report, scenario: &str) -> String {
    page(&report.scenario, &single::body(report, scenario))
}

/// One page for several runs.
pub fn rows(title: &str, rows: &[Row], scenario: &str) -> String {
    page(title, &compared::body(title, rows, scenario))
}

/// Published results beside ours.
pub fn reproduction(done: &Reproduction) -> String {
    page("Published results beside ours", &reproduced::body(done))
}

fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    // Line by line, so that the comment and indentation of the source do not bloat every report.
    let script: Vec<&str> = POINTER.lines().map(str::trim).filter(|l| !l.starts_with("//")).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{title} · Strandway</title>\n<style>\n{STYLE}</style></head>\n<body><main>\n{body}\n</main>\
         <div id=\"tip\"></div>\n<script>\n{}\n</script>\n</body></html>\n",
        script.join("\n")
    )
}

/// The name of the product over the finding.
fn heading(kind: &str, headline: &str, lead: &str) -> String {
    format!(
        "<header><div class=\"brand\"><b>Strandway</b> · {}</div><h1>{}</h1><p class=\"lead\">{}</p></header>\n",
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

/// A chart with its title and a sentence that says what it shows.
fn figure(title: &str, sub: &str, chart: &str) -> String {
    format!(
        "<figure class=\"card\"><figcaption><h3>{}</h3><p class=\"sub\">{}</p></figcaption>{chart}</figure>\n",
        escape(title),
        escape(sub)
    )
}

/// A table in a card; cells are HTML.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = String::from("<div class=\"card scroll\"><table><thead><tr>");
    for cell in head {
        let _ = write!(out, "<th>{}</th>", escape(cell));
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        for cell in row {
            // A cell may bring its own tag along, with a class.
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

/// The unit in which microseconds up to `most` read best, and its size in microseconds.
fn time_unit(most: f64) -> (&'static str, f64) {
    match most {
        m if m >= 2e6 => ("s", 1e6),
        m if m >= 5e3 => ("ms", 1e3),
        _ => ("us", 1.0),
    }
}

/// The unit in which bytes up to `most` read best, and its size.
fn byte_unit(most: f64) -> (&'static str, f64) {
    match most {
        m if m >= 2e9 => ("GB", 1e9),
        m if m >= 2e6 => ("MB", 1e6),
        m if m >= 2e3 => ("kB", 1e3),
        _ => ("B", 1.0),
    }
}

/// The unit in which Gb/s up to `most` read best, and its size.
fn rate_unit(most: f64) -> (&'static str, f64) {
    if most >= 2e3 { ("Tb/s", 1e3) } else { ("Gb/s", 1.0) }
}

/// "1.13 times" and the like.
fn times(value: f64) -> String {
    match value {
        v if v >= 10.0 => format!("{v:.0}"),
        v if v >= 3.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// The scenario and how to repeat the run.
fn scenario_text(text: &str) -> String {
    format!("<details class=\"card\"><summary>Scenario</summary><pre>{}</pre></details>\n", escape(text.trim()))
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

/// A table of collectives, if there are any.
fn collectives(rows: Vec<[String; 8]>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let cell = |text: &String| escape(&text.replace(' ', "\u{a0}"));
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    format!("<h2>Collectives</h2>\n{}", table(&COLLECTIVE_HEAD, &rows))
}

/// Completion times in a phrase.
fn rate_phrase(report: &Report) -> String {
    let share = report.goodput_gbps.mean_per_host / report.fabric.rate_gbps;
    format!("{} per sending host, {:.0} % of its line rate", gbps(report.goodput_gbps.mean_per_host), 100.0 * share)
}

fn duration(value: Option<f64>) -> String {
    // A number and its unit stay on one line.
    us(value).replace(' ', "\u{a0}")
}

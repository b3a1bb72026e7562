//! Iterations of the same job in several runs: a bar per run, divided into its parts.

use super::chart::{SIZES, Size, escape, fitted, open};
use super::jobs::{colour, explained};
use super::{duration, figure, table};
use crate::numbers::percent;
use crate::rows::Row;
use crate::{JobFacts, PartFacts};
use std::fmt::Write;

/// Limit on the jobs with a figure each.
const DRAWN: usize = 4;

/// Height of a bar with its gap.
const ROW: f64 = 30.0;

/// One bar: the run's name, and its job.
type Stack<'a> = (&'a str, &'a JobFacts);

/// A figure for each job of the runs; empty without jobs whose parts are known.
pub(super) fn of_runs(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut out = String::new();
    for job in first.report.jobs.iter().take(DRAWN) {
        let of = |row: &'_ Row| row.report.jobs.iter().position(|other| other.name == job.name);
        let stacks: Vec<Stack<'_>> = rows
            .iter()
            .filter_map(|row| Some((row.label.as_str(), &row.report.jobs[of(row)?])))
            .filter(|(_, job)| job.iteration_us.is_some() && job.parts.iter().any(|part| part.us.is_some()))
            .collect();
        if !stacks.is_empty() {
            out.push_str(&of_job(&job.name, &stacks));
        }
    }
    match out.is_empty() {
        true => out,
        false => format!("<h2>Where the iteration went</h2>\n<div class=\"charts one\">\n{out}</div>\n"),
    }
}

/// The parts that some run has, in the order of reports.
fn known<'a>(stacks: &[Stack<'a>]) -> Vec<&'a PartFacts> {
    let mut known: Vec<&PartFacts> = Vec::new();
    for part in stacks.iter().flat_map(|(_, job)| &job.parts).filter(|part| part.us.is_some_and(|us| us > 0.0)) {
        if known.iter().all(|other| other.name != part.name) {
            known.push(part);
        }
    }
    // Runs may lack a part: the order is that of the first run, which lists all.
    let order = |part: &&PartFacts| stacks[0].1.parts.iter().position(|other| other.name == part.name);
    known.sort_by_key(order);
    known
}

fn time_of(job: &JobFacts, part: &str) -> f64 {
    job.parts.iter().find(|other| other.name == part).and_then(|part| part.us).unwrap_or(0.0)
}

fn of_job(name: &str, stacks: &[Stack<'_>]) -> String {
    let parts = known(stacks);
    let drawn: String = SIZES.iter().map(|size| draw(name, stacks, &parts, *size)).collect();
    let items = parts.iter().map(|part| {
        let (k, soft) = colour(&part.name);
        let soft = if soft { " soft" } else { "" };
        format!("<li title=\"{}\"><i class=\"k{k}{soft}\"></i>{}</li>", explained(&part.name), part.summary())
    });
    let legend = format!("<ul class=\"legend\">{}</ul>", items.collect::<String>());
    let mut head = vec!["", "iteration"];
    let told: Vec<String> = parts.iter().map(|part| part.summary()).collect();
    head.extend(told.iter().map(String::as_str));
    let rows: Vec<Vec<String>> = stacks
        .iter()
        .map(|(label, job)| {
            let mut row = vec![escape(label), duration(job.iteration_us)];
            row.extend(parts.iter().map(|part| {
                let share = time_of(job, &part.name) / job.iteration_us.unwrap_or(1.0);
                format!(
                    "{}<small>{}</small>",
                    duration(Some(time_of(job, &part.name))),
                    percent(share).replace(' ', "\u{a0}")
                )
            }));
            row
        })
        .collect();
    let table = table(&head, &rows).replace("card scroll\"><table>", "scroll\"><table class=\"verdicts\">");
    let table = format!("<details><summary>The same as a table</summary>{table}</details>");
    let sub =
        "An iteration of each run by part, mean over ranks, on a common scale. In all parts but computing, ranks wait";
    figure(&format!("{name}: parts of an iteration"), sub, &(drawn + &legend + &table))
}

fn draw(name: &str, stacks: &[Stack<'_>], parts: &[&PartFacts], size: Size) -> String {
    // The figure is as wide as the page.
    let width = if size.width > 400.0 { 2.0 * size.width } else { size.width };
    let most = stacks.iter().filter_map(|(_, job)| job.iteration_us).fold(0.0, f64::max).max(1e-9);
    let longest = stacks.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let left = (longest as f64 * 6.6 + 14.0).min(width * 0.34);
    let room = width - left - 78.0;
    let mut out = open(
        Size { width, ..size },
        stacks.len() as f64 * ROW + 4.0,
        &format!("{name}: parts of an iteration, by run"),
    );
    for (i, (label, job)) in stacks.iter().enumerate() {
        let (top, mid) = (i as f64 * ROW + 4.0, i as f64 * ROW + 19.0);
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{mid:.1}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            fitted(label, left - 8.0)
        );
        let mut x = left;
        for part in parts {
            let time = time_of(job, &part.name);
            let wide = time / most * room;
            if wide > 0.05 {
                let (k, soft) = colour(&part.name);
                let soft = if soft { " soft" } else { "" };
                let share = percent(time / job.iteration_us.unwrap_or(1.0));
                let title = format!("{label}, {}: {}, {share}", part.summary(), duration(Some(time)));
                let _ = write!(
                    out,
                    "<rect class=\"k{k}{soft}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"22\"><title>{}</title></rect>",
                    (wide - 0.5).max(0.3),
                    escape(&title)
                );
            }
            x += wide;
        }
        let value = duration(job.iteration_us);
        let _ = write!(out, "<text class=\"value\" x=\"{:.1}\" y=\"{mid:.1}\">{value}</text>", x + 7.0);
    }
    out.push_str("</svg>");
    out
}

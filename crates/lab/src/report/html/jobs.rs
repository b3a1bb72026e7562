//! Training jobs on a page: tables, and the steps of each stream of a rank in one iteration.

use super::chart::{self, Axis, escape};
use super::lanes::{Bar, Lane, lanes};
use super::{figure, table, time_unit};
use crate::report::JobFacts;
use crate::report::job::{
    HEAD, OPERATIONS_HEAD, PARTS_HEAD, computes, operation_rows, part_rows, rows, shown, streams, told,
};
use crate::report::text::{percent, us};
use std::fmt::Write;

/// Limit on the jobs whose last iteration is drawn.
const DRAWN: usize = 4;

/// Both tables and the pictures; empty without a job.
pub(super) fn section(jobs: &[JobFacts]) -> String {
    if jobs.is_empty() {
        return String::new();
    }
    let shown = shown(jobs);
    let mut out = String::from("<h2>Training jobs</h2>\n");
    out.push_str("<div class=\"charts one\">\n");
    out.push_str(&table(&HEAD, &cells_of(rows(&shown))));
    let parts = part_rows(&shown);
    if !parts.is_empty() {
        out.push_str(&table(&PARTS_HEAD, &cells_of(parts)));
    }
    out.push_str(&table(&OPERATIONS_HEAD, &cells_of(operation_rows(&shown))));
    let drawn = shown.into_iter().filter(|job| !job.timeline.is_empty()).take(DRAWN);
    drawn.for_each(|job| out.push_str(&picture(job)));
    out.push_str("</div>\n");
    out
}

fn cells_of<const N: usize>(rows: Vec<[String; N]>) -> Vec<Vec<String>> {
    let cell = |text: &String| escape(&text.replace(' ', "\u{a0}"));
    rows.iter().map(|row| row.iter().map(cell).collect()).collect()
}

/// The finding for a run of one job, in a sentence.
pub(super) fn finding(job: &JobFacts) -> Option<String> {
    let iteration = us(Some(job.iteration_us?));
    if let Some(reached) = told(job) {
        let parts = job.parts.iter().filter_map(|part| Some((part.told(), part.share?)));
        let parts = parts.filter(|(_, share)| *share > 0.0005);
        let parts: Vec<String> = parts.map(|(name, share)| format!("{name} {}", percent(share))).collect();
        let sentence =
            format!("An iteration took {iteration} among {} GPUs: {}. {reached}.", job.ranks, parts.join(", "));
        return Some(bound_together(&sentence));
    }
    let waits: Vec<String> = job.exposed.iter().map(|e| format!("{} {}", e.name, us(Some(e.us)))).collect();
    let waits = if waits.is_empty() { String::new() } else { format!(": {}", waits.join(", ")) };
    let sentence = format!(
        "An iteration took {iteration} among {} ranks, which waited {} of the time{waits}; it takes {} at least.",
        job.ranks,
        percent(job.bubble),
        us(Some(job.bound_us)),
    );
    Some(bound_together(&sentence))
}

/// Numbers stay with their units.
fn bound_together(sentence: &str) -> String {
    sentence.replace(" us", "\u{a0}us").replace(" ms", "\u{a0}ms").replace(" %", "\u{a0}%")
}

/// The steps of one rank's last iteration, one lane per stream.
fn picture(job: &JobFacts) -> String {
    let most = job.timeline.iter().map(|step| step.until_us).fold(0.0, f64::max);
    let (unit, size) = time_unit(most);
    let mut kinds: Vec<&str> = Vec::new();
    for step in &job.timeline {
        if step.until_us > step.from_us && !kinds.contains(&step.kind.as_str()) {
            kinds.push(&step.kind);
        }
    }
    let drawn: Vec<Lane> = streams(job).into_iter().map(|stream| lane(job, stream, &kinds, size, unit)).collect();
    let x = Axis::new(format!("time since the iteration began, {unit}"), 0.0, most / size);
    let drawing = lanes(&drawn, &x) + &chart::legend(kinds.iter().enumerate().map(|(i, kind)| (*kind, i)));
    let sub = "Steps of each stream of the slowest rank in its last iteration; gaps in the first lane are the bubble";
    figure(&format!("{}: one iteration", job.name), sub, &drawing)
}

fn lane(job: &JobFacts, stream: u8, kinds: &[&str], size: f64, unit: &str) -> Lane {
    let steps = job.timeline.iter().filter(|step| step.stream == stream && step.until_us > step.from_us);
    let bars = steps.clone().map(|step| {
        let mut title = format!("{} of layer {}", step.kind, step.layer);
        let _ = write!(
            title,
            ": {} to {} {unit}, {}",
            chart::short(step.from_us / size),
            chart::short(step.until_us / size),
            us(Some(step.until_us - step.from_us))
        );
        let colour = kinds.iter().position(|kind| *kind == step.kind).unwrap_or(0);
        Bar { from: step.from_us / size, until: step.until_us / size, colour, title }
    });
    let label = match computes(stream) {
        true => "compute".to_string(),
        false => steps.clone().next().map_or_else(|| format!("stream {stream}"), |step| step.kind.clone()),
    };
    Lane { label, bars: bars.collect() }
}

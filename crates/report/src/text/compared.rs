//! Several runs for the terminal: one line each and a column for each swept key, as wide as the terminal.

use super::{collectives_table, compared_collectives, verdict};
use crate::grid::{ALWAYS, Grid};
use crate::lines::{Line, lines};
use crate::numbers::{count, gbps, us};
use crate::rows::{Row, short_names};
use crate::{JobFacts, Report};
use std::collections::{BTreeMap, BTreeSet};

/// A column of numbers.
struct Column {
    head: &'static str,
    /// On a narrow terminal, columns with a lower rank are left out first.
    rank: u8,
    of: fn(&Report) -> Option<f64>,
    show: fn(f64) -> String,
}

const COLUMNS: [Column; 19] = [
    Column { head: "TTFT p50", rank: 7, of: |r| r.services.first()?.ttft_us.p50, show: time },
    Column { head: "TTFT p99", rank: ALWAYS, of: |r| r.services.first()?.ttft_us.p99, show: time },
    Column { head: "TTFT p99.9", rank: ALWAYS, of: |r| r.services.first()?.ttft_us.p999, show: time },
    Column { head: "TBT p99", rank: 8, of: |r| r.services.first()?.tbt_us.p99, show: time },
    Column {
        head: "SLO met",
        rank: ALWAYS,
        of: |r| r.services.first()?.slo.slo_share,
        show: |v| format!("{:.1} %", 100.0 * v),
    },
    Column { head: "iteration", rank: ALWAYS, of: iteration, show: time },
    Column { head: "not computing", rank: 5, of: idle, show: |v| format!("{:.1} %", 100.0 * v) },
    Column { head: "collective", rank: ALWAYS, of: collective, show: time },
    Column { head: "FCT mean", rank: 5, of: |r| r.times.fct_us.mean, show: time },
    Column { head: "p50", rank: 1, of: |r| r.times.fct_us.p50, show: time },
    Column { head: "p99", rank: 6, of: |r| r.times.fct_us.p99, show: time },
    Column { head: "max", rank: ALWAYS, of: |r| r.times.fct_us.max, show: time },
    Column { head: "goodput/host", rank: 3, of: |r| Some(r.times.goodput_gbps.mean_per_host), show: gbps },
    Column { head: "dropped", rank: 4, of: |r| Some(r.packets.dropped as f64), show: whole },
    Column { head: "lost", rank: 4, of: |r| Some(r.packets.lost as f64), show: whole },
    Column { head: "trimmed", rank: 2, of: |r| Some(r.packets.trimmed as f64), show: whole },
    Column {
        head: "resent",
        rank: 7,
        of: |r| Some(r.packets.retransmitted_share),
        show: |v| format!("{:.2} %", 100.0 * v),
    },
    Column { head: "timeouts", rank: 2, of: |r| Some(r.packets.timeouts as f64), show: whole },
    Column { head: "unfinished", rank: 8, of: |r| Some((r.flows.total - r.flows.finished) as f64), show: whole },
];

/// The job with the longest iteration, if the run has jobs and all have ended an iteration.
fn slowest_job(report: &Report) -> Option<&JobFacts> {
    let all_ended = report.jobs.iter().all(|job| job.iteration_us.is_some());
    report.jobs.iter().filter(|_| all_ended).max_by(|a, b| {
        let time = |job: &JobFacts| job.iteration_us.unwrap_or_default();
        time(a).total_cmp(&time(b))
    })
}

fn iteration(report: &Report) -> Option<f64> {
    slowest_job(report)?.iteration_us
}

/// The share of time in which the ranks of that job did not compute.
fn idle(report: &Report) -> Option<f64> {
    slowest_job(report).map(|job| job.bubble)
}

/// The time of the slowest collective, if the run has any.
fn collective(report: &Report) -> Option<f64> {
    let times: Option<Vec<f64>> = report.collectives.iter().map(|c| c.time_us).collect();
    times?.into_iter().reduce(f64::max)
}

fn time(value: f64) -> String {
    us(Some(value))
}

fn whole(value: f64) -> String {
    if value == value.trunc() { count(value as u64) } else { format!("{value:.1}") }
}

/// One line per run, or per group of runs that differ only in the seed; at most `width` characters wide.
pub fn rows(rows: &[Row], width: Option<usize>) -> String {
    let lines = lines(rows);
    let averaged = lines.iter().any(|line| line.runs.len() > 1);
    let heads = heads(&lines);
    // Skip these columns if every run has zero or no value.
    let telling = |column: &Column| {
        rows.iter().any(|row| (column.of)(&row.report).is_some_and(|v| v != 0.0))
            || !matches!(
                column.head,
                "TTFT p50"
                    | "TTFT p99"
                    | "TTFT p99.9"
                    | "TBT p99"
                    | "SLO met"
                    | "iteration"
                    | "not computing"
                    | "collective"
                    | "dropped"
                    | "lost"
                    | "trimmed"
                    | "timeouts"
                    | "unfinished"
            )
    };
    let expects = rows.iter().any(|row| !row.report.expect.is_empty());
    // Runs of services without flows have no times of flows.
    let only_services = rows.iter().all(|row| !row.report.services.is_empty() && row.report.flows.total == 0);
    let of_flows = ["FCT mean", "p50", "p99", "max", "goodput/host"];
    let shown = COLUMNS.iter().filter(|c| telling(c) && !(only_services && of_flows.contains(&c.head)));
    let shown: Vec<&Column> = shown.collect();
    let mut out = grid(rows, &lines, &heads, &shown, expects).text(width);
    if averaged {
        let most = lines.iter().map(|line| line.runs.len()).max().unwrap_or(1);
        out.push_str(&format!(
            "mean of {most} seeds, with the lowest and the highest; single runs are in --json and --html\n"
        ));
    }
    let collectives = compared_collectives(rows);
    if !collectives.is_empty() && !averaged {
        out.push_str(&collectives_table(collectives, width));
    }
    out
}

/// The swept keys as columns: short name by dotted key. Empty if lines have names of their own.
fn heads(lines: &[Line]) -> BTreeMap<String, String> {
    let keys: BTreeSet<&String> = lines.iter().flat_map(|line| line.set.keys()).collect();
    let made_of_keys = |line: &Line| line.label.contains('=') || line.set.is_empty();
    if keys.is_empty() || !lines.iter().all(made_of_keys) || lines.iter().any(|l| l.set.len() != keys.len()) {
        return BTreeMap::new();
    }
    short_names(keys.into_iter().map(String::as_str))
}

fn grid(rows: &[Row], lines: &[Line], heads: &BTreeMap<String, String>, shown: &[&Column], expects: bool) -> Grid {
    let mut grid = Grid::default();
    if heads.is_empty() {
        grid.column("", ALWAYS, false);
    }
    heads.values().for_each(|head| grid.column(head, ALWAYS, false));
    shown.iter().for_each(|column| grid.column(column.head, column.rank, true));
    if expects {
        grid.column("expect", 8, true);
    }
    for line in lines {
        let mut texts: Vec<String> = if heads.is_empty() {
            vec![line.label.clone()]
        } else {
            heads.keys().map(|key| line.set.get(key).cloned().unwrap_or_default()).collect()
        };
        texts.extend(shown.iter().map(|column| match line.of(rows, column.of) {
            None => "–".to_string(),
            Some(v) if v.min != v.max => {
                format!("{}\n{}..{}", (column.show)(v.mean), (column.show)(v.min), (column.show)(v.max))
            }
            Some(v) => (column.show)(v.mean),
        }));
        if expects {
            let verdicts: BTreeSet<String> = line.runs.iter().map(|run| verdict(&rows[*run].report)).collect();
            texts.push(verdicts.into_iter().collect::<Vec<_>>().join(", "));
        }
        grid.row(texts);
    }
    grid
}

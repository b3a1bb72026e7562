//! The page of several runs: one table, and every chart with all of them in it.

use super::chart::{self, Range, RangeGroup, escape};
use super::single::{completion, mean_use, over_time};
use super::watched::goodputs;
use super::{byte_unit, collectives, duration, figure, heading, how_made, parameters, rate_unit, stat, table, times};
use crate::plan::Origin;
use crate::report::Report;
use crate::report::text::{compared_collectives, count, fabric_line, gbps, percent};
use crate::sweep::Row;
use std::collections::BTreeMap;

/// So many runs are overlaid in charts; tables hold all.
const OVERLAID: usize = chart::COLOURS;

pub(super) fn body(title: &str, rows: &[Row], scenario: &str) -> String {
    let Some(first) = rows.first() else { return heading(title, "Nothing was run", "") };
    let about = first.report.description.trim_end_matches('.');
    let about = if about.is_empty() { String::new() } else { format!("{about}. ") };
    let mut out = heading(title, &headline(rows), &format!("{about}{}.", fabric_line(&first.report)));
    out.push_str(&cards(rows));
    out.push_str("<h2>Side by side</h2>\n");
    out.push_str(&overview(rows));
    out.push_str(&collectives(compared_collectives(rows)));
    if rows.len() > OVERLAID {
        out.push_str(&format!("<p class=\"sub\">Charts show the first {OVERLAID} of {} runs.</p>\n", rows.len()));
    }
    let shown = &rows[..rows.len().min(OVERLAID)];
    out.push_str("<h2>Over time</h2><div class=\"charts\">\n");
    let reports: Vec<(&str, &Report)> = shown.iter().map(|r| (r.label.as_str(), &r.report)).collect();
    if reports.iter().any(|(_, r)| !r.fct_cdf.is_empty()) {
        out.push_str(&completion(&reports));
    }
    out.push_str(&goodput(shown));
    out.push_str(&queues(shown));
    out.push_str(&uplinks(shown));
    out.push_str(&watched_flow(shown));
    out.push_str("</div>\n<h2>In the fabric</h2><div class=\"charts\">\n");
    out.push_str(&utilisation(shown));
    out.push_str(&trouble(shown));
    out.push_str("</div>\n<h2>How it was made</h2>\n");
    let origin = rows.first().map(|row| row.report.origin.clone()).unwrap_or_default();
    out.push_str(&how_made(&Origin { set: BTreeMap::new(), ..origin }, scenario));
    for row in shown {
        out.push_str(&parameters(&row.report, &format!("Parameters of {}", row.label)));
    }
    out.push_str(&footer(rows));
    out
}

/// A run's slowest flow; later than any if some did not finish.
fn tail(row: &Row) -> f64 {
    let r = &row.report;
    if r.flows.finished < r.flows.total { f64::INFINITY } else { r.fct_us.max.unwrap_or(f64::INFINITY) }
}

/// What the comparison found, in a sentence.
pub fn headline(rows: &[Row]) -> String {
    let by_tail = |a: &&Row, b: &&Row| tail(a).total_cmp(&tail(b));
    let (Some(best), Some(worst)) = (rows.iter().min_by(by_tail), rows.iter().max_by(by_tail)) else {
        return String::new();
    };
    if tail(best).is_infinite() {
        return "No run finished all of its flows.".into();
    }
    let max = duration(best.report.fct_us.max);
    if tail(worst).is_infinite() {
        let f = &worst.report.flows;
        let left = count(f.total - f.finished);
        return format!(
            "{} finishes everything in {max}; {} leaves {left} of {} flows unfinished.",
            best.label,
            worst.label,
            count(f.total)
        );
    }
    let factor = tail(worst) / tail(best);
    if factor < 1.01 {
        return format!("All runs are within a percent of each other: the slowest flow takes {max}.");
    }
    let worst_max = duration(worst.report.fct_us.max);
    format!(
        "{} finishes the slowest flow in {max}, {} times sooner than {}, which needs {worst_max}.",
        best.label,
        times(factor),
        worst.label
    )
}

fn cards(rows: &[Row]) -> String {
    let mut out = String::from("<section class=\"cards\">");
    for row in rows.iter().take(8) {
        let r = &row.report;
        let unfinished = r.flows.total - r.flows.finished;
        let text = if unfinished > 0 {
            format!("{}: {} flows unfinished", row.label, count(unfinished))
        } else {
            format!("{}: slowest flow", row.label)
        };
        out.push_str(&stat(&duration(r.fct_us.max), &text));
    }
    out.push_str("</section>\n");
    out
}

fn overview(rows: &[Row]) -> String {
    let least =
        |of: &dyn Fn(&Report) -> Option<f64>| rows.iter().filter_map(|r| of(&r.report)).fold(f64::INFINITY, f64::min);
    type Pick = fn(&Report) -> Option<f64>;
    let picks: [Pick; 4] = [|r| r.fct_us.mean, |r| r.fct_us.p50, |r| r.fct_us.p99, |r| r.fct_us.max];
    let best: Vec<f64> = picks.iter().map(|p| least(p)).collect();
    let body: Vec<Vec<String>> = rows
        .iter()
        .enumerate()
        .map(|(i, row)| {
            let r = &row.report;
            let p = &r.packets;
            let colour = i % chart::COLOURS;
            let mut cells = vec![format!("<i class=\"dot k{colour}\"></i>{}", escape(&row.label))];
            cells.push(format!("{} / {}", count(r.flows.finished), count(r.flows.total)));
            for (pick, best) in picks.iter().zip(&best) {
                let value = pick(r);
                let text = duration(value);
                let wins = value.is_some_and(|v| v <= *best) && rows.len() > 1;
                cells.push(if wins { format!("<span class=\"best\">{text}</span>") } else { text });
            }
            cells.push(gbps(r.goodput_gbps.mean_per_host));
            cells.extend([p.dropped + p.lost, p.trimmed, p.marked, p.timeouts, p.pauses].map(count));
            cells.push(format!("{:.2} %", 100.0 * p.retransmitted_share));
            cells
        })
        .collect();
    let head = [
        "",
        "flows finished",
        "mean",
        "median",
        "p99",
        "slowest",
        "goodput per host",
        "dropped, lost",
        "trimmed",
        "marked",
        "timeouts",
        "pauses",
        "sent again",
    ];
    table(&head, &body)
}

fn goodput(rows: &[Row]) -> String {
    let series: Vec<_> = rows.iter().filter_map(|r| Some((r, r.report.series.as_ref()?))).collect();
    if series.is_empty() {
        return String::new();
    }
    let most = series.iter().flat_map(|(_, s)| &s.goodput_gbps).copied().fold(0.0, f64::max);
    let (unit, size) = rate_unit(most);
    let runs = series
        .iter()
        .enumerate()
        .map(|(i, (r, s))| (r.label.clone(), i, s.every_us, s.goodput_gbps.iter().map(|v| v / size).collect()))
        .collect();
    let chart = over_time("goodput", runs, &format!("goodput, {unit}"));
    figure("Goodput", &format!("New payload that receivers got, all hosts together, {unit}"), &chart)
}

fn queues(rows: &[Row]) -> String {
    let fullest = |row: &Row| -> Option<(f64, Vec<u64>)> {
        let series = row.report.series.as_ref()?;
        let n = series.goodput_gbps.len();
        let at = |i: usize| series.groups.iter().filter_map(|g| g.queued_max_bytes.get(i)).copied().max().unwrap_or(0);
        Some((series.every_us, (0..n).map(at).collect()))
    };
    let series: Vec<_> = rows.iter().filter_map(|r| Some((r, fullest(r)?))).collect();
    if series.is_empty() {
        return String::new();
    }
    let most = series.iter().flat_map(|(_, (_, v))| v).copied().max().unwrap_or(0) as f64;
    let (unit, size) = byte_unit(most);
    let runs = series
        .into_iter()
        .enumerate()
        .map(|(i, (r, (every, v)))| (r.label.clone(), i, every, v.into_iter().map(|b| b as f64 / size).collect()))
        .collect();
    let chart = over_time("queues", runs, &format!("queue, {unit}"));
    figure("Queue depth", &format!("Data waiting in the fullest queue of the fabric, {unit}"), &chart)
}

/// The leaves' uplinks over time: where single-path transports collide.
fn uplinks(rows: &[Row]) -> String {
    let mut curves = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let Some(series) = &row.report.series else { continue };
        let up: Vec<_> = series
            .groups
            .iter()
            .filter(|g| g.name.starts_with("leaf->") && !g.name.starts_with("leaf->host"))
            .collect();
        if !up.is_empty() {
            curves.push((row.label.clone(), i, series.every_us, mean_use(&up)));
        }
    }
    if curves.is_empty() {
        return String::new();
    }
    let sub = "Share (%) of what all links from leaves upwards could carry";
    figure("Leaf uplinks in use", sub, &over_time("uplinks", curves, "links in use, %"))
}

/// What the watched flow got, where it is the same one in all runs and not the only one.
fn watched_flow(rows: &[Row]) -> String {
    let of = |row: &Row| row.report.series.as_ref()?.watched.as_ref().map(|w| w.name.clone());
    let name = rows.first().and_then(of).filter(|name| rows.iter().all(|row| of(row).as_ref() == Some(name)));
    let Some(name) = name.filter(|_| rows.iter().all(|row| row.report.flows.total > 1)) else { return String::new() };
    let runs: Vec<_> = rows
        .iter()
        .enumerate()
        .filter_map(|(i, row)| Some((row.label.clone(), i, row.report.series.as_ref()?)))
        .collect();
    goodputs("watched", &format!("Goodput of {name}"), &runs)
}

fn trouble(rows: &[Row]) -> String {
    let mut bars = Vec::new();
    type Pick = fn(&crate::report::Packets) -> u64;
    let kinds: [(&str, Pick); 4] = [
        ("marked", |p| p.marked),
        ("trimmed", |p| p.trimmed),
        ("dropped, lost", |p| p.dropped + p.lost),
        ("sent again", |p| p.retransmitted),
    ];
    let mut none = Vec::new();
    for (name, pick) in kinds {
        if rows.iter().all(|row| pick(&row.report.packets) == 0) {
            none.push(name);
            continue;
        }
        for (i, row) in rows.iter().enumerate() {
            let p = &row.report.packets;
            let share = pick(p) as f64 / p.sent.max(1) as f64;
            let label = if i == 0 { name.to_string() } else { String::new() };
            bars.push((label, i, share, format!("{} ({})", percent(share), count(pick(p)))));
        }
    }
    let legend = chart::legend(rows.iter().enumerate().map(|(i, r)| (r.label.as_str(), i)));
    let none = if none.is_empty() { String::new() } else { format!("; none {}", none.join(", none ")) };
    let sub = format!("As a share of the data packets that each run sent{none}");
    figure("What happened to packets", &sub, &format!("{}{legend}", chart::bars(&bars)))
}

/// Idlest to busiest link of each tier, all planes together, one bar per run.
fn utilisation(rows: &[Row]) -> String {
    let mut tiers: Vec<String> = Vec::new();
    for g in rows.iter().flat_map(|r| &r.report.links) {
        let tier = g.name.split(".p").next().unwrap_or_default().to_string();
        if !tiers.contains(&tier) {
            tiers.push(tier);
        }
    }
    let groups: Vec<RangeGroup> = tiers
        .into_iter()
        .map(|tier| {
            let ranges = rows.iter().enumerate().map(|(i, row)| {
                let same: Vec<_> =
                    row.report.links.iter().filter(|g| g.name.split(".p").next() == Some(&tier)).collect();
                let low = same.iter().map(|g| g.utilisation_min).fold(f64::INFINITY, f64::min);
                let high = same.iter().map(|g| g.utilisation_max).fold(0.0, f64::max);
                let mark = same.iter().map(|g| g.utilisation).sum::<f64>() / same.len().max(1) as f64;
                let low = if low.is_finite() { low } else { 0.0 };
                let title = format!(
                    "{}, {tier}: mean {}, from {} to {}",
                    row.label,
                    percent(mark),
                    percent(low),
                    percent(high)
                );
                Range { label: row.label.clone(), colour: i, low, mark, high, title }
            });
            RangeGroup { ranges: ranges.collect(), heading: tier.clone() }
        })
        .collect();
    let sub = "Idlest to busiest link; the mark is the mean. A long bar means that some links idle while others are full. A \
               run that ends sooner uses its links more.";
    figure("Link utilisation by tier", sub, &chart::ranges(&groups, "utilisation over the whole run"))
}

fn footer(rows: &[Row]) -> String {
    let digests: Vec<String> =
        rows.iter().map(|r| format!("{} {}", escape(&r.label), escape(&r.report.digest))).collect();
    let version = rows.first().map_or("", |r| r.report.version.as_str());
    format!(
        "<footer>Strandway {} · digests: {}. The same scenario and seed give the same digest on any machine and number of \
         threads.</footer>\n",
        escape(version),
        digests.join(", ")
    )
}

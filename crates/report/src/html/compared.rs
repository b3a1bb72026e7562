//! The page of several runs: findings, an explorer, a table of all runs, and charts of the best and the worst runs.

use super::chart::{self, Range, RangeGroup, escape};
use super::explorer::{self, Metric, explorer, metrics, ranked};
use super::keys::Keys;
use super::single::{completion, mean_use, over_time};
use super::watched::goodputs;
use super::{
    byte_unit, collectives, duration, figure, heading, how_made, map, parameters, rate_unit, stacks, stat, times,
};
use crate::Origin;
use crate::lines::lines;
use crate::numbers::{count, percent};
use crate::rows::Row;
use crate::text::{compared_collectives, fabric_line, faults_told};
use crate::{FaultFacts, Report};
use std::collections::BTreeMap;

/// Limit on the runs in one chart; tables hold all.
const OVERLAID: usize = chart::COLOURS;
/// With more collectives than this, their table is folded.
const COLLECTIVES_OPEN: usize = 16;
/// Limit on the notes that some runs have; the reports of single runs show all.
const REMARKS: usize = 2;
/// Limit on the settings that have a card each.
const CARDS: usize = 6;

pub(super) fn body(title: &str, rows: &[Row], scenario: &str) -> String {
    let Some(first) = rows.first() else { return heading(title, "Nothing was run", "") };
    let (metrics, keys) = (metrics(rows), Keys::of(rows));
    let mut out = heading(title, &headline(rows), &lead(rows));
    out.push_str(&cards(rows, &metrics[0], &keys));
    out.push_str(&common_remarks(rows));
    if rows.len() > 1 {
        out.push_str("<h2>Explore</h2>\n");
        out.push_str(&explorer(rows, &metrics, &keys));
    }
    let picked = picked(rows, &metrics[0]);
    let colours: BTreeMap<usize, usize> = picked.iter().enumerate().map(|(colour, row)| (*row, colour)).collect();
    out.push_str("<h2>All runs</h2>\n");
    out.push_str(&explorer::table(rows, &metrics, &keys, &colours));
    let compared = compared_collectives(rows);
    out.push_str(&if compared.len() > COLLECTIVES_OPEN {
        let table = collectives(compared).replace("<h2>Collectives</h2>\n", "").replace("card scroll", "scroll");
        format!("<details class=\"card\"><summary>Collectives</summary>{table}</details>\n")
    } else {
        collectives(compared)
    });
    let shown: Vec<Row> = picked
        .iter()
        .map(|&i| {
            let told = keys.label(i);
            Row { label: if told.is_empty() { rows[i].label.clone() } else { told }, ..rows[i].clone() }
        })
        .collect();
    out.push_str(&stacks::of_runs(&shown));
    out.push_str("<h2>Over time</h2>\n");
    if shown.len() < rows.len() {
        out.push_str(&format!(
            "<p class=\"sub\">Charts show {} of {} runs, the best and the worst by {}, one seed of each.</p>\n",
            shown.len(),
            rows.len(),
            escape(&metrics[0].label)
        ));
    }
    out.push_str("<div class=\"charts\">\n");
    let reports: Vec<(&str, &Report)> = shown.iter().map(|r| (r.label.as_str(), &r.report)).collect();
    if reports.iter().any(|(_, r)| !r.curves.fct_cdf.is_empty()) {
        out.push_str(&completion(&reports));
    }
    out.push_str(&goodput(&shown));
    out.push_str(&queues(&shown));
    out.push_str(&uplinks(&shown));
    out.push_str(&watched_flow(&shown));
    out.push_str("</div>\n<h2>In the fabric</h2>\n");
    out.push_str(&map::of_runs(&reports));
    out.push_str("<div class=\"charts\">\n");
    out.push_str(&utilisation(&shown));
    out.push_str(&trouble(&shown));
    out.push_str("</div>\n<h2>How it was made</h2>\n");
    out.push_str(&how_made(&Origin { set: BTreeMap::new(), ..first.report.origin.clone() }, scenario));
    for row in &shown {
        out.push_str(&parameters(&row.report, &format!("Parameters of {}", row.label)));
    }
    out.push_str(&footer(rows));
    out
}

/// Faults and notes that all runs have, and notes of single runs unless there are many.
fn common_remarks(rows: &[Row]) -> String {
    let mut out = String::new();
    let faults = common_faults(rows);
    if !faults.is_empty() {
        // When senders avoided a fault differs between runs.
        let alike: Vec<FaultFacts> =
            faults.iter().map(|fault| FaultFacts { avoided_after_us: None, ..fault.clone() }).collect();
        out.push_str(&format!("<p class=\"note bad\">Faults: {}</p>\n", escape(&faults_told(&alike))));
    }
    let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
    for (row, note) in rows.iter().flat_map(|row| row.report.notes.iter().map(move |note| (row, note))) {
        match notes.iter_mut().find(|(known, _)| known == note) {
            Some((_, of)) => of.push(&row.label),
            None => notes.push((note, vec![&row.label])),
        }
    }
    let mut single = 0;
    for (note, of) in notes {
        let whose = match of.len() {
            all if all == rows.len() => String::new(),
            1 => format!("{}: ", of[0]),
            some => format!("{some} of {} runs: ", rows.len()),
        };
        single += usize::from(!whose.is_empty());
        if whose.is_empty() || single <= REMARKS {
            out.push_str(&format!("<p class=\"note\">Note: {}</p>\n", escape(&(whose + note))));
        }
    }
    out
}

/// The scenario's description, and the fabric if all runs have the same.
fn lead(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let about = first.report.head.description.trim_end_matches('.');
    let fabric = fabric_line(&first.report);
    let same = rows.iter().all(|row| fabric_line(&row.report) == fabric);
    let parts =
        [about.to_string(), if same { fabric } else { format!("{} hosts", count(first.report.run.hosts.into())) }];
    parts.iter().filter(|part| !part.is_empty()).map(|part| format!("{part}. ")).collect::<String>().trim().to_string()
}

/// Runs that differ only in the seed.
struct Setting {
    /// Its first run.
    row: usize,
    /// The mean over its runs; infinite if one has no value.
    mean: f64,
    seeds: usize,
}

fn settings(rows: &[Row], metric: &Metric) -> Vec<Setting> {
    let lines = lines(rows);
    let setting = |line: &crate::lines::Line| {
        let mean = line.of(rows, |r| metric.of(r)).map_or(f64::INFINITY, |v| v.mean);
        Some(Setting { row: *line.runs.first()?, mean, seeds: line.runs.len() })
    };
    lines.iter().filter_map(setting).collect()
}

/// The rows in charts, in order: all rows, or one run of each of the best and worst settings.
fn picked(rows: &[Row], metric: &Metric) -> Vec<usize> {
    let mut settings = settings(rows, metric);
    if rows.len() <= OVERLAID || settings.len() == 1 {
        return (0..rows.len().min(OVERLAID)).collect();
    }
    settings.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    let best = settings.len().min(OVERLAID).div_ceil(2);
    let worst = settings.len().min(OVERLAID) - best;
    let mut picked: Vec<usize> = settings[..best].iter().map(|s| s.row).collect();
    picked.extend(settings[settings.len() - worst..].iter().map(|s| s.row));
    picked.sort_unstable();
    picked
}

/// The finding in one sentence: missed expectations first, then the best and the worst setting.
pub fn headline(rows: &[Row]) -> String {
    let metrics = metrics(rows);
    let Some(metric) = metrics.first() else { return String::new() };
    let missed = rows.iter().filter(|row| !row.report.met()).count() as u64;
    let missed = match missed {
        0 => String::new(),
        1 if rows.len() == 1 => "The run missed what was expected of it. ".to_string(),
        n => format!("{} of {} runs missed what was expected of them. ", count(n), count(rows.len() as u64)),
    };
    format!("{missed}{}", findings(rows, metric))
}

fn findings(rows: &[Row], metric: &Metric) -> String {
    let keys = Keys::of(rows);
    let settings = settings(rows, metric);
    if !ranked(rows) {
        return side_by_side(rows, metric);
    }
    // Of several workloads, faults or other settings the one with the largest differences.
    let held = keys.held();
    let mut loads: Vec<(String, Vec<&Setting>)> = Vec::new();
    for setting in &settings {
        let load = keys.load(setting.row, &held);
        match loads.iter_mut().find(|(known, _)| *known == load) {
            Some((_, of)) => of.push(setting),
            None => loads.push((load, vec![setting])),
        }
    }
    if loads.len() > 1 && loads.iter().all(|(_, of)| of.len() < 2) {
        return ranging(&loads, metric);
    }
    let ends = |of: &[&Setting]| -> Option<(usize, usize)> {
        let by_mean = |a: &&&Setting, b: &&&Setting| a.mean.total_cmp(&b.mean);
        Some((of.iter().min_by(by_mean)?.row, of.iter().max_by(by_mean)?.row))
    };
    let mean = |row: usize| settings.iter().find(|s| s.row == row).map_or(f64::INFINITY, |s| s.mean);
    let factor = |(best, worst): (usize, usize)| mean(worst) / mean(best).max(f64::MIN_POSITIVE);
    let told = loads.iter().filter_map(|(load, of)| Some((load, ends(of)?)));
    let told = told.filter(|(_, (best, _))| mean(*best).is_finite());
    let Some((load, (best, worst))) = told.max_by(|a, b| factor(a.1).total_cmp(&factor(b.1))) else {
        return "No run finished all of its flows.".into();
    };
    let at = load;
    let what = metric.label.trim_end_matches(": time");
    let max = duration(Some(mean(best)));
    let (good, bad) = (keys.unlike(best, worst, &held), keys.unlike(worst, best, &held));
    if mean(worst).is_infinite() {
        let f = &rows[worst].report.flows;
        let left = count(f.total - f.finished);
        return format!(
            "{good} finishes everything{at} in {max}; {bad} leaves {left} of {} flows unfinished.",
            count(f.total)
        );
    }
    let seeds = settings.iter().map(|s| s.seeds).max().unwrap_or(1);
    let seeds = if seeds > 1 { format!(", mean of {seeds} seeds") } else { String::new() };
    if factor((best, worst)) < 1.01 {
        return format!("All runs are within a percent of each other: the {what}{at} takes {max}{seeds}.");
    }
    let (factor, worst_max) = (times(factor((best, worst))), duration(Some(mean(worst))));
    if keys.named() {
        return format!(
            "{good} finishes the {what}{at} in {max}, {factor} times sooner than {bad}, which needs {worst_max}{seeds}."
        );
    }
    format!("Best{at}: {good} ({max}); worst: {bad} ({worst_max}, {factor} times). The {what}{seeds}.")
}

/// Runs that are not compared, such as runs with different workloads: the lowest and the highest value.
fn ranging(loads: &[(String, Vec<&Setting>)], metric: &Metric) -> String {
    let mut all: Vec<(&str, f64)> =
        loads.iter().filter_map(|(load, of)| Some((load.trim(), of.first()?.mean))).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    let what = metric.label.trim_end_matches(": time");
    let (Some(low), Some(high)) = (all.iter().find(|(_, mean)| mean.is_finite()), all.last()) else {
        return "No run finished all of its flows.".into();
    };
    if high.1.is_infinite() {
        return format!("The {what} takes {} {}; {} it does not end.", metric.show(Some(low.1)), low.0, high.0);
    }
    let (least, most) = (metric.show(Some(low.1)), metric.show(Some(high.1)));
    format!("The {what} takes from {least} {} to {most} {}.", low.0, high.0)
}

/// One scenario simulated and on real nodes: the values and their distance.
fn side_by_side(rows: &[Row], metric: &Metric) -> String {
    let values: Vec<(&str, Option<f64>)> =
        rows.iter().map(|row| (row.label.as_str(), metric.of(&row.report))).collect();
    let told: Vec<String> = values.iter().map(|(label, value)| format!("{label} {}", metric.show(*value))).collect();
    let apart = match &values[..] {
        [(_, Some(a)), (_, Some(b))] if *a > 0.0 => format!(", {:+.1}\u{a0}%", 100.0 * (b / a - 1.0)),
        _ => String::new(),
    };
    format!("The {}: {}{apart}.", metric.label, told.join(", "))
}

fn cards(rows: &[Row], metric: &Metric, keys: &Keys) -> String {
    let mut settings = settings(rows, metric);
    let mut out = String::from("<section class=\"cards\">");
    let mean = |s: &Setting| Some(s.mean).filter(|mean| mean.is_finite());
    let name = |s: &Setting| {
        let name = keys.setting(s.row);
        if name.is_empty() { rows[s.row].label.clone() } else { name }
    };
    if settings.len() <= CARDS {
        for s in &settings {
            let f = &rows[s.row].report.flows;
            let text = match f.total - f.finished {
                0 => format!("{}: {}", name(s), metric.label),
                left => format!("{}: {} flows unfinished", name(s), count(left)),
            };
            out.push_str(&stat(&metric.show(mean(s)), &text));
        }
    } else {
        settings.sort_by(|a, b| a.mean.total_cmp(&b.mean));
        let middle = &settings[settings.len() / 2];
        // Runs with different workloads are not ranked.
        let [low, high] = if keys.compared() { ["best", "worst"] } else { ["lowest", "highest"] };
        for (word, s) in [(low, &settings[0]), ("middle", middle), (high, &settings[settings.len() - 1])] {
            out.push_str(&stat(&metric.show(mean(s)), &format!("{word}: {}", name(s))));
        }
        out.push_str(&stat(&count(settings.len() as u64), &format!("settings, {} runs", count(rows.len() as u64))));
    }
    let judged = rows.iter().filter(|row| !row.report.expect.is_empty()).count();
    if judged > 0 {
        let missed = rows.iter().filter(|row| !row.report.met()).count() as u64;
        out.push_str(&stat(&count(missed), &format!("of {} runs missed expectations", count(judged as u64))));
    }
    out.push_str("</section>\n");
    out
}

/// The faults of the runs, if all runs have the same.
fn common_faults(rows: &[Row]) -> &[FaultFacts] {
    let when = |row: &Row| -> Vec<(String, f64, Option<f64>)> {
        row.report.faults.iter().map(|f| (f.what.clone(), f.from_us, f.until_us)).collect()
    };
    let Some(first) = rows.first() else { return &[] };
    if rows.iter().all(|row| when(row) == when(first)) { &first.report.faults } else { &[] }
}

fn goodput(rows: &[Row]) -> String {
    let series: Vec<_> = rows.iter().filter_map(|r| Some((r, r.report.curves.series.as_ref()?))).collect();
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
    let chart = over_time("goodput", runs, &format!("goodput, {unit}"), common_faults(rows));
    figure("Goodput", &format!("New payload that receivers got, all hosts together, {unit}"), &chart)
}

fn queues(rows: &[Row]) -> String {
    let fullest = |row: &Row| -> Option<(f64, Vec<u64>)> {
        let series = row.report.curves.series.as_ref()?;
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
    let chart = over_time("queues", runs, &format!("queue, {unit}"), common_faults(rows));
    figure("Queue depth", &format!("Data waiting in the fullest queue of the fabric, {unit}"), &chart)
}

/// The leaves' uplinks over time; here flows of single-path transports collide.
fn uplinks(rows: &[Row]) -> String {
    let mut curves = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let Some(series) = &row.report.curves.series else { continue };
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
    figure("Leaf uplinks in use", sub, &over_time("uplinks", curves, "links in use, %", common_faults(rows)))
}

/// Goodput of the watched flow, if it is the same in all runs and not their only flow.
fn watched_flow(rows: &[Row]) -> String {
    let of = |row: &Row| row.report.curves.series.as_ref()?.watched.as_ref().map(|w| w.name.clone());
    let name = rows.first().and_then(of).filter(|name| rows.iter().all(|row| of(row).as_ref() == Some(name)));
    let Some(name) = name.filter(|_| rows.iter().all(|row| row.report.flows.total > 1)) else { return String::new() };
    let runs: Vec<_> = rows
        .iter()
        .enumerate()
        .filter_map(|(i, row)| Some((row.label.clone(), i, row.report.curves.series.as_ref()?)))
        .collect();
    goodputs("watched", &format!("Goodput of {name}"), &runs, common_faults(rows))
}

fn trouble(rows: &[Row]) -> String {
    let mut bars = Vec::new();
    type Pick = fn(&crate::Packets) -> u64;
    let kinds: [(&str, Pick); 5] = [
        ("marked", |p| p.marked),
        ("trimmed", |p| p.trimmed),
        ("dropped", |p| p.dropped),
        ("lost to faults", |p| p.lost),
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
    figure("Fate of packets", &sub, &format!("{}{legend}", chart::bars(&bars)))
}

/// Least busy to busiest link of each tier, all planes together, one bar per run.
fn utilisation(rows: &[Row]) -> String {
    let mut tiers: Vec<String> = Vec::new();
    for g in rows.iter().flat_map(|r| &r.report.load.links) {
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
                    row.report.load.links.iter().filter(|g| g.name.split(".p").next() == Some(&tier)).collect();
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
    let known = rows.iter().filter(|r| !r.report.head.digest.is_empty());
    let digests: Vec<String> =
        known.map(|r| format!("{} {}", escape(&r.label), escape(&r.report.head.digest))).take(OVERLAID + 1).collect();
    let digests = if digests.len() > OVERLAID {
        "digests: in the table's CSV".to_string()
    } else {
        format!("digests: {}", digests.join(", "))
    };
    let version = rows.first().map_or("", |r| r.report.head.version.as_str());
    format!(
        "<footer>Strandway {} · {}. The same scenario and seed give the same digest on any machine and number of \
         threads.</footer>\n",
        escape(version),
        digests
    )
}

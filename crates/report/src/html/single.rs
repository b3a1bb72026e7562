//! The page of one run.

use super::chart::{self, Axis, Curve, Drawn, Lines, Range, RangeGroup, escape};
use super::{
    byte_unit, collectives, duration, figure, finding, heading, how_made, jobs, map, marks, parameters, rate_phrase,
    rate_unit, remarks, services, table, time_unit, watched, why,
};
use crate::numbers::{bytes, count, percent};
use crate::text::{collective_rows, fabric_line};
use crate::{FaultFacts, GroupSeriesFacts, Report, SeriesFacts, cost};

pub(super) fn body(report: &Report) -> String {
    let mut out = heading(
        &format!("{} · profile {}", report.head.scenario, report.head.profile),
        &finding::finding(report),
        &lead(report),
    );
    out.push_str(&finding::cards(report));
    out.push_str(&remarks(report));
    let whole = report.approximate.is_none();
    if whole {
        out.push_str(&unfinished(report));
    }
    out.push_str(&services::section(&report.services, &report.faults));
    out.push_str(&jobs::section(&report.jobs, &report.faults));
    out.push_str(&expectations(report));
    if whole {
        out.push_str(&of_all_flows(report));
    }
    out.push_str("<h2>How it was made</h2>\n");
    out.push_str(&how_made(&report.origin, &report.origin.scenario));
    out.push_str(&parameters(report, "Parameters of the profile"));
    out.push_str(&footer(report));
    out
}

/// The sections on flows, on values over time, and on the fabric.
fn of_all_flows(report: &Report) -> String {
    let mut out = classes(report);
    out.push_str(&collectives(collective_rows(report)));
    out.push_str(&why::chart(&report.why));
    out.push_str("<h2>Over time</h2><div class=\"charts\">\n");
    if !report.curves.fct_cdf.is_empty() {
        out.push_str(&completion(&[(report.head.profile.as_str(), report)]));
    }
    if let Some(series) = &report.curves.series {
        let faults = &report.faults;
        out.push_str(&goodput(series, faults));
        out.push_str(&queues(series, faults));
        out.push_str(&utilisation_over_time(series, faults));
        out.push_str(&watched::charts(series, report.flows.total, faults));
        out.push_str(&occupancy(report));
    }
    out.push_str("</div>\n");
    out.push_str("<h2>In the fabric</h2>\n");
    out.push_str(&map::of_runs(&[("", report)]));
    out.push_str("<div class=\"charts\">\n");
    out.push_str(&utilisation(report));
    out.push_str(&packets(report));
    out.push_str("</div>\n");
    out.push_str(&made_of(report));
    out.push_str(&entropies(report));
    out.push_str(&links(report));
    out.push_str(&flows(report));
    out
}

/// The jobs that held the slots of the busiest aggregating switch, over time.
fn occupancy(report: &Report) -> String {
    let Some(facts) = report.switch.as_ref().filter(|facts| !facts.occupancy.is_empty()) else { return String::new() };
    let curves = facts.occupancy.iter().enumerate().take(JOBS_SHOWN).map(|(job, held)| {
        let percent = held.share.iter().map(|share| 100.0 * share).collect();
        (held.name.clone(), job, facts.every_us, percent)
    });
    let all = &facts.all;
    let sub = format!(
        "Share (%) of the {} slots of the busiest switch that each job held under {}; {} fragments took a slot from another sum, {} found no slot",
        count(u64::from(facts.slots)),
        facts.system,
        count(all.preemptions),
        count(all.refused)
    );
    figure("Slots by job", &sub, &over_time("slots", curves.collect(), "slots held, %", &report.faults))
}

/// Limit on the curves in a chart of jobs.
const JOBS_SHOWN: usize = 8;

fn lead(report: &Report) -> String {
    let p = &report.packets;
    let told: Vec<String> = [(p.dropped, "dropped"), (p.lost, "lost to faults"), (p.trimmed, "trimmed")]
        .into_iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{} {what}", count(n)))
        .collect();
    let loss = match (told.is_empty(), report.is_simulated()) {
        (true, true) => "No packet was dropped, lost or trimmed".to_string(),
        (true, false) => "No port counted a dropped or trimmed packet".to_string(),
        (false, _) => format!("Packets: {}", told.join(", ")),
    };
    let about = if report.head.description.is_empty() {
        String::new()
    } else {
        format!("{}. ", report.head.description.trim_end_matches('.'))
    };
    if report.approximate.is_some() {
        return format!("{about}{}.", fabric_line(report));
    }
    format!("{about}{loss}; {}. {}.", rate_phrase(report), fabric_line(report))
}

fn unfinished(report: &Report) -> String {
    if report.flows.unfinished.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = report.flows.unfinished.iter().take(20).map(String::as_str).collect();
    let more = (report.flows.total - report.flows.finished) as usize - names.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "<p class=\"note bad\">Unfinished at {}: {}{more}</p>\n",
        duration(Some(report.run.simulated_us)),
        escape(&names.join(", "))
    )
}

/// Completion-time curves of one or several runs.
pub(super) fn completion(reports: &[(&str, &Report)]) -> String {
    let points = || reports.iter().flat_map(|(_, r)| &r.curves.fct_cdf).map(|p| p[0]);
    let (least, most) = (points().fold(f64::INFINITY, f64::min), points().fold(0.0, f64::max));
    let (unit, size) = time_unit(most);
    let log = most / least.max(1e-9) > 8.0;
    let span = (most - least).max(most * 0.2);
    let (low, high) =
        if log { (least * 0.9, most * 1.1) } else { ((least - 0.08 * span).max(0.0), most + 0.05 * span) };
    let curves = reports
        .iter()
        .enumerate()
        .map(|(i, (name, r))| Curve {
            name: (*name).to_string(),
            colour: i,
            // The curve stays below 100 % if flows did not finish.
            points: r
                .curves
                .fct_cdf
                .iter()
                .map(|p| (p[0] / size, 100.0 * p[1] * r.flows.finished as f64 / r.flows.total.max(1) as f64))
                .collect(),
        })
        .collect();
    let mut x = Axis::new(format!("completion time, {unit}"), low / size, high / size);
    x.log = log;
    let y = Axis::new("flows finished, %", 0.0, 100.0);
    let lines = Lines { id: "fct".into(), x, y, curves, drawn: Drawn::Steps, marks: Vec::new() };
    figure("Completion times", "Share of flows (%) finished within this time after posting", &chart::lines(&lines))
}

/// Curves over time: name, colour, interval of the points in microseconds, values. Runs may have different intervals.
/// Faults are marked.
pub(super) fn over_time(
    id: &str,
    runs: Vec<(String, usize, f64, Vec<f64>)>,
    y_label: &str,
    faults: &[FaultFacts],
) -> String {
    let end = runs.iter().map(|(.., every, v)| every * v.len() as f64).fold(0.0, f64::max);
    let (unit, size) = time_unit(end);
    let most = runs.iter().flat_map(|(.., v)| v).copied().fold(0.0, f64::max);
    let curves = runs
        .into_iter()
        .map(|(name, colour, every, v)| Curve {
            name,
            colour,
            points: v.into_iter().enumerate().map(|(j, y)| (j as f64 * every / size, y)).collect(),
        })
        .collect();
    let x = Axis::new(format!("time, {unit}"), 0.0, end / size);
    chart::lines(&Lines {
        id: id.into(),
        x,
        y: Axis::new(y_label, 0.0, most.max(1e-9) * 1.05),
        curves,
        drawn: Drawn::Slopes,
        marks: marks::of_faults(faults, size, end / size),
    })
}

/// The groups of a series by tier, all planes of a tier together, in the fabric's order.
fn tiers(series: &SeriesFacts) -> Vec<(&str, Vec<&GroupSeriesFacts>)> {
    let mut tiers: Vec<(&str, Vec<&GroupSeriesFacts>)> = Vec::new();
    for group in &series.groups {
        let name = group.name.split_once(".p").map_or(group.name.as_str(), |(tier, _)| tier);
        match tiers.iter_mut().find(|(tier, _)| *tier == name) {
            Some((_, groups)) => groups.push(group),
            None => tiers.push((name, vec![group])),
        }
    }
    tiers
}

/// Mean utilisation of some groups over time, in percent. Packets count when they start to leave, so an interval may
/// contain slightly too many; values are limited to 100 %.
pub(super) fn mean_use(groups: &[&GroupSeriesFacts]) -> Vec<f64> {
    let n = groups.iter().map(|g| g.utilisation.len()).max().unwrap_or(0);
    let at = |i: usize| groups.iter().filter_map(|g| g.utilisation.get(i)).sum::<f64>() / groups.len() as f64;
    (0..n).map(|i| (100.0 * at(i)).min(100.0)).collect()
}

fn goodput(series: &SeriesFacts, faults: &[FaultFacts]) -> String {
    let most = series.goodput_gbps.iter().copied().fold(0.0, f64::max);
    let (unit, size) = rate_unit(most);
    let values = series.goodput_gbps.iter().map(|v| v / size).collect();
    let runs = vec![("goodput".into(), 0, series.every_us, values)];
    let chart = over_time("goodput", runs, &format!("goodput, {unit}"), faults);
    figure("Goodput", &format!("New payload that receivers got, all hosts together, {unit}"), &chart)
}

fn queues(series: &SeriesFacts, faults: &[FaultFacts]) -> String {
    let most = series.groups.iter().flat_map(|g| &g.queued_max_bytes).copied().max().unwrap_or(0) as f64;
    if most == 0.0 {
        return String::new();
    }
    let (unit, size) = byte_unit(most);
    let mut curves = Vec::new();
    for (colour, (tier, groups)) in tiers(series).into_iter().enumerate() {
        // Queues that are empty until the end of the run have no points there.
        let n = series.goodput_gbps.len();
        let at = |i: usize| groups.iter().filter_map(|g| g.queued_max_bytes.get(i)).copied().max().unwrap_or(0);
        let values: Vec<f64> = (0..n).map(|i| at(i) as f64 / size).collect();
        if values.iter().any(|v| *v > 0.0) {
            curves.push((tier.to_string(), colour, series.every_us, values));
        }
    }
    let chart = over_time("queues", curves, &format!("queue, {unit}"), faults);
    figure("Queue depth", &format!("Data waiting in the fullest queue of each tier, {unit}"), &chart)
}

fn utilisation_over_time(series: &SeriesFacts, faults: &[FaultFacts]) -> String {
    let curves = tiers(series)
        .into_iter()
        .enumerate()
        .map(|(colour, (tier, groups))| (tier.to_string(), colour, series.every_us, mean_use(&groups)))
        .filter(|(.., values)| values.iter().any(|v| *v > 0.0))
        .collect();
    let chart = over_time("use", curves, "links in use, %", faults);
    figure("Link utilisation", "Traffic as a share (%) of the capacity of each tier's links", &chart)
}

/// The parts of a fabric of several planes, next to those of the same NICs on one plane.
fn made_of(report: &Report) -> String {
    let f = &report.fabric;
    if f.planes < 2 {
        return String::new();
    }
    let columns = if f.single_plane.is_some() { 3 } else { 2 };
    let wrapped = |text: &String| format!("<td class=\"wrap\">{}</td>", escape(text));
    let rows: Vec<Vec<String>> = cost::rows(&f.cost, f.single_plane.as_ref(), f.tables)
        .iter()
        .map(|row| {
            let cells = row.iter().take(columns).enumerate();
            cells.map(|(i, text)| if i == 0 { escape(text) } else { wrapped(text) }).collect()
        })
        .collect();
    let head = ["", "this fabric", "one plane of these switches"];
    format!(
        "<h2>Parts of the fabric</h2>\n<p class=\"sub\">{}</p>\n{}",
        escape(&cost::verdict(&f.cost, f.single_plane.as_ref(), f.planes)),
        table(&head[..columns], &rows).replace("<table>", "<table class=\"words\">")
    )
}

fn utilisation(report: &Report) -> String {
    let planes = report.fabric.planes > 1;
    let mut groups: Vec<RangeGroup> = Vec::new();
    for g in &report.load.links {
        let (tier, plane) = g.name.split_once(".p").map_or((g.name.as_str(), ""), |(t, p)| (t, p));
        let range = Range {
            label: if planes { format!("plane {plane}") } else { g.name.clone() },
            colour: g.level,
            low: g.utilisation_min,
            mark: g.utilisation,
            high: g.utilisation_max,
            title: format!(
                "{}: mean {}, from {} to {}",
                g.name,
                percent(g.utilisation),
                percent(g.utilisation_min),
                percent(g.utilisation_max)
            ),
        };
        let heading = if planes { tier.to_string() } else { String::new() };
        match groups.last_mut() {
            Some(last) if last.heading == heading => last.ranges.push(range),
            _ => groups.push(RangeGroup { heading, ranges: vec![range] }),
        }
    }
    let chart = chart::ranges(&groups, "utilisation over the whole run");
    let what = if planes { "tier and plane" } else { "tier" };
    let sub =
        format!("Idlest to busiest link of each {what}; the mark is the mean. A long bar means an unbalanced load.");
    figure("Link utilisation by tier", &sub, &chart)
}

fn packets(report: &Report) -> String {
    let p = &report.packets;
    let of = |n: u64| format!("{} ({})", count(n), percent(n as f64 / p.sent.max(1) as f64));
    let rows: Vec<(String, usize, f64, String)> = [
        ("marked (ECN)", 5, p.marked),
        ("trimmed", 1, p.trimmed),
        ("dropped", 4, p.dropped),
        ("lost to faults", 4, p.lost),
        ("sent again", 3, p.retransmitted),
        ("duplicates", 7, p.duplicates),
    ]
    .into_iter()
    .map(|(name, colour, n)| (name.to_string(), colour, n as f64, of(n)))
    .collect();
    let sub = format!(
        "Of {} data packets sent; {} acknowledgements, {} NACKs, {} CNPs, {} timeouts, PFC pauses: {}",
        count(p.sent),
        count(p.acks),
        count(p.nacks),
        count(p.notifications),
        count(p.timeouts),
        if report.is_simulated() { count(p.pauses) } else { "not counted".into() }
    );
    figure("Fate of packets", &sub, &chart::bars(&rows))
}

fn entropies(report: &Report) -> String {
    let rows: Vec<Vec<String>> = report
        .curves
        .paths
        .iter()
        .filter(|p| p.sent > 0)
        .map(|p| {
            vec![
                escape(&p.name),
                count(p.used),
                count(p.sent),
                format!("{:.2}", p.imbalance),
                count(p.marked),
                count(p.trimmed),
            ]
        })
        .collect();
    // With one port, the numbers are those of all packets.
    if rows.len() < 2 {
        return String::new();
    }
    let head = [
        "NIC port",
        "entropy values used (counted in 256 slots)",
        "data packets",
        "packets of the busiest value / mean",
        "marks echoed",
        "trims reported",
    ];
    format!("<h2>Paths</h2>\n{}", table(&head, &rows))
}

fn links(report: &Report) -> String {
    let measured = |text: String| if report.is_simulated() { text } else { "–".to_string() };
    let rows: Vec<Vec<String>> = report
        .load
        .hottest
        .iter()
        .map(|l| {
            vec![
                escape(&l.name),
                percent(l.utilisation),
                bytes(l.bytes),
                measured(bytes(l.queue_max_bytes)),
                count(l.marked),
                count(l.trimmed),
                count(l.dropped),
                count(l.lost),
                measured(if l.paused_us > 0.0 { duration(Some(l.paused_us)) } else { "0".into() }),
            ]
        })
        .collect();
    let head = ["link", "used", "carried", "longest queue", "marked", "trimmed", "dropped", "lost", "paused"];
    if rows.is_empty() { String::new() } else { format!("<h2>Hottest links</h2>\n{}", table(&head, &rows)) }
}

fn flows(report: &Report) -> String {
    let rows: Vec<Vec<String>> = report
        .flows
        .slowest
        .iter()
        .map(|f| vec![escape(&f.name), bytes(f.bytes), duration(Some(f.start_us)), duration(Some(f.fct_us))])
        .collect();
    let head = ["flow", "size", "posted at", "took"];
    if rows.is_empty() { String::new() } else { format!("<h2>Slowest flows</h2>\n{}", table(&head, &rows)) }
}

fn classes(report: &Report) -> String {
    let mut out = String::new();
    if report.classes.len() > 1 {
        let rows: Vec<Vec<String>> = report
            .classes
            .iter()
            .map(|c| {
                let times = [c.fct_us.mean, c.fct_us.p50, c.fct_us.p99, c.fct_us.max].map(duration);
                let mut row =
                    vec![escape(&c.name), format!("{} of {}", count(c.finished), count(c.total)), bytes(c.bytes)];
                row.extend(times);
                row
            })
            .collect();
        let head = ["class", "finished", "bytes", "mean", "p50", "p99", "max"];
        out.push_str(&format!("<h2>Classes of flows</h2>\n{}", table(&head, &rows)));
    }
    out
}

fn expectations(report: &Report) -> String {
    if report.expect.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = report
        .expect
        .iter()
        .map(|e| {
            let verdict = if e.met { "<span class=\"met\">met</span>" } else { "<span class=\"missed\">missed</span>" };
            let value = e.value.map_or("none".to_string(), chart::short);
            vec![escape(&e.key), escape(&e.bound), value, verdict.to_string()]
        })
        .collect();
    format!("<h2>Expectations</h2>\n{}", table(&["value", "bound", "measured", ""], &rows))
}

fn footer(report: &Report) -> String {
    let r = &report.run;
    format!(
        "<footer>Strandway {} · seed {} · digest {} · {} simulated in {:.2} s on {} thread(s), {} events, {} packet hops \
         ({:.1} million per second), {} peak memory. The same scenario and seed give the same digest on any machine and \
         number of threads.</footer>\n",
        escape(&report.head.version),
        report.head.seed,
        escape(&report.head.digest),
        duration(Some(r.simulated_us)),
        r.wall_s,
        r.threads,
        count(r.events),
        count(r.packet_hops),
        r.hops_per_s / 1e6,
        bytes(r.peak_rss_bytes)
    )
}

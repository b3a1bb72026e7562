//! Inference services on a page: percentiles, what the slowest requests waited for, and replicas over time.

use super::chart::{self, Axis, Curve, Drawn, Lines, escape};
use super::{duration, figure, marks, stat, table, time_unit};
use crate::numbers::{count, percent};
use crate::service::{HEAD, PARTS_HEAD, lines, part_rows, rows};
use crate::{FaultFacts, ReplicaFacts, Report, ServiceFacts};
use std::fmt::Write;

/// Limit on the replicas of a chart: those with the most requests.
const SHOWN: usize = 8;

/// Tables and charts; empty without a service.
pub(super) fn section(services: &[ServiceFacts], faults: &[FaultFacts]) -> String {
    let mut out = String::new();
    for service in services {
        let _ = write!(out, "<h2>Requests of {}</h2>\n<div class=\"charts one\">\n", escape(&service.name));
        out.push_str(&table(&HEAD, &rows(service).iter().map(|row| row.to_vec()).collect::<Vec<_>>()));
        out.push_str(&table(&PARTS_HEAD, &part_rows(service).iter().map(|row| row.to_vec()).collect::<Vec<_>>()));
        for line in lines(service) {
            let _ = writeln!(out, "<p class=\"note\">{}.</p>", escape(&line));
        }
        out.push_str("</div>\n<div class=\"charts\">\n");
        let waiting = |replica: &ReplicaFacts| replica.waiting.iter().map(|n| f64::from(*n)).collect();
        out.push_str(&over_time(service, "Requests that wait", "requests", faults, waiting));
        let held = |replica: &ReplicaFacts| replica.held.iter().map(|share| 100.0 * share).collect();
        out.push_str(&over_time(service, "KV cache that requests hold", "% of a replica's", faults, held));
        out.push_str("</div>\n");
    }
    out
}

/// A chart with a curve per replica.
fn over_time(
    service: &ServiceFacts,
    title: &str,
    label: &str,
    faults: &[FaultFacts],
    of: impl Fn(&ReplicaFacts) -> Vec<f64>,
) -> String {
    let mut shown: Vec<(&ReplicaFacts, Vec<f64>)> =
        service.replicas.iter().map(|replica| (replica, of(replica))).filter(|(_, values)| values.len() > 1).collect();
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    shown.sort_by(|a, b| most(&b.1).total_cmp(&most(&a.1)));
    let left = shown.len().saturating_sub(SHOWN);
    shown.truncate(SHOWN);
    if shown.is_empty() {
        return String::new();
    }
    let end = shown.iter().filter_map(|(replica, _)| replica.at_us.last()).copied().fold(0.0, f64::max);
    let (unit, size) = time_unit(end);
    let high = shown.iter().map(|(_, values)| most(values)).fold(0.0, f64::max);
    let curves = shown.iter().enumerate().map(|(colour, (replica, values))| Curve {
        name: replica.name.clone(),
        colour,
        points: replica.at_us.iter().map(|at| at / size).zip(values.iter().copied()).collect(),
    });
    let more = if left > 0 { format!("; the {SHOWN} busiest of {}", left + SHOWN) } else { String::new() };
    let lines = Lines {
        id: format!("{}-{}", service.name, label.len()),
        x: Axis::new(format!("time, {unit}"), 0.0, end / size),
        y: Axis::new(label, 0.0, high.max(1e-9) * 1.05),
        curves: curves.collect(),
        drawn: Drawn::Steps,
        marks: marks::of_faults(faults, size, end / size),
    };
    figure(title, &format!("By replica, at the beginning of its steps{more}"), &chart::lines(&lines))
}

/// The finding: the first token, and the bounds.
pub(super) fn finding(services: &[ServiceFacts]) -> Option<String> {
    let [service, ..] = services else { return None };
    if service.ended < service.requests {
        let (ended, all) = (count(service.ended), count(service.requests));
        return Some(format!("{ended} of {all} requests of {} ended.", service.name));
    }
    let share = service.slo.slo_share.map_or("–".to_string(), percent);
    Some(format!(
        "99 % of requests had their first token within {}, 99.9 % within {}; {share} met both bounds.",
        duration(service.ttft_us.p99),
        duration(service.ttft_us.p999)
    ))
}

/// The cards at the top of the page.
pub(super) fn cards(report: &Report) -> Option<String> {
    let service = report.services.first()?;
    let cards = [
        (duration(service.ttft_us.p50), "to the first token (median)".to_string()),
        (
            duration(service.ttft_us.p99),
            format!("99th percentile; by formula {}", duration(service.formula.ttft_us.p99)),
        ),
        (duration(service.tbt_us.p99), "between tokens (99th percentile)".to_string()),
        (
            service.slo.goodput_per_s.map_or("–".to_string(), |rate| format!("{rate:.2}")),
            "good requests per second".to_string(),
        ),
        (
            service.tokens_per_s_gpu.map_or("–".to_string(), |rate| format!("{rate:.1}")),
            format!("tokens per second and GPU, {} GPUs", count(service.gpus.into())),
        ),
    ];
    let cards: String = cards.iter().map(|(number, text)| stat(&number.replace(' ', "\u{a0}"), text)).collect();
    Some(format!("<section class=\"cards\">{cards}</section>\n"))
}

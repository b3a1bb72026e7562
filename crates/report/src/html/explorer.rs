//! The data and the table of a sweep's page. `sweep.js` draws the data and sorts the table.
//!
//! `sweep.js` describes the data. Without scripts the page still shows the whole table.

use super::chart::escape;
use super::duration;
use super::keys::{Key, Keys};
use crate::numbers::{count, gbps};
use crate::rows::Row;
use crate::{Report, ServiceFacts};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Reads a number from a report.
type Number = Box<dyn Fn(&Report) -> Option<f64>>;

/// A number of a run, by which runs can be compared.
pub(super) struct Metric {
    name: String,
    pub(super) label: String,
    unit: &'static str,
    higher_is_better: bool,
    of: Number,
}

impl Metric {
    fn new(
        name: impl Into<String>,
        label: impl Into<String>,
        unit: &'static str,
        of: impl Fn(&Report) -> Option<f64> + 'static,
    ) -> Metric {
        Metric { name: name.into(), label: label.into(), unit, higher_is_better: false, of: Box::new(of) }
    }

    fn higher(self) -> Metric {
        Metric { higher_is_better: true, ..self }
    }

    /// The value of one run; `None` if it has none.
    pub(super) fn of(&self, report: &Report) -> Option<f64> {
        (self.of)(report)
    }

    /// A value as text.
    pub(super) fn show(&self, value: Option<f64>) -> String {
        match (value, self.unit) {
            (None, _) => "–".to_string(),
            (value, "us") => duration(value),
            (Some(v), "Gb/s") => gbps(v).replace(' ', "\u{a0}"),
            (Some(v), "") => count(v as u64),
            (Some(v), unit) => format!("{v:.2}\u{a0}{unit}"),
        }
    }
}

/// The metrics of services.
fn services(first: &Report) -> Vec<Metric> {
    type Pick = fn(&ServiceFacts) -> Option<f64>;
    let picks: [(&str, &str, &'static str, bool, Pick); 6] = [
        ("ttft.p99", "time to first token, 99th percentile", "us", false, |s| s.ttft_us.p99),
        ("ttft.p999", "time to first token, 99.9th percentile", "us", false, |s| s.ttft_us.p999),
        ("ttft.p50", "time to first token, median", "us", false, |s| s.ttft_us.p50),
        ("tbt.p99", "time between tokens, 99th percentile", "us", false, |s| s.tbt_us.p99),
        ("good", "requests that met both bounds", "%", true, |s| s.slo.slo_share.map(|share| 100.0 * share)),
        ("tokens", "tokens per second and GPU", "/s", true, |s| s.tokens_per_s_gpu),
    ];
    let of = |service: &ServiceFacts| {
        let name = service.name.clone();
        picks.map(|(short, label, unit, higher, pick)| {
            let wanted = name.clone();
            let metric = Metric::new(format!("{name}.{short}"), format!("{name}: {label}"), unit, move |r| {
                pick(r.services.iter().find(|service| service.name == wanted)?)
            });
            if higher { metric.higher() } else { metric }
        })
    };
    first.services.iter().flat_map(of).collect()
}

/// The metrics of the runs, most important first: iterations of jobs, times of collectives, the time of the slowest
/// flow.
pub(super) fn metrics(rows: &[Row]) -> Vec<Metric> {
    let Some(first) = rows.first().map(|row| &row.report) else { return Vec::new() };
    let mut metrics = services(first);
    for job in &first.jobs {
        let name = job.name.clone();
        metrics.push(Metric::new(format!("{name}.iteration"), format!("iteration of {name}"), "us", move |r| {
            r.jobs.iter().find(|job| job.name == name)?.iteration_us
        }));
    }
    for job in &first.jobs {
        let name = job.name.clone();
        metrics.push(Metric::new(format!("{name}.bubble"), format!("{name}: not computing"), "%", move |r| {
            let job = r.jobs.iter().find(|job| job.name == name)?;
            job.iteration_us.map(|_| 100.0 * job.bubble)
        }));
    }
    let collectives = first.slowest_collectives();
    if collectives.len() > 1 {
        metrics.push(Metric::new("collectives", "slowest collective", "us", slowest_collective));
    }
    for c in &collectives {
        let name = c.name.clone();
        metrics.push(Metric::new(format!("{name}.time"), format!("{name}: time"), "us", move |r| {
            r.slowest_collectives().into_iter().find(|c| c.name == name)?.time_us
        }));
    }
    for c in &collectives {
        let name = c.name.clone();
        let bandwidth = Metric::new(format!("{name}.busbw"), format!("{name}: bus bandwidth"), "GB/s", move |r| {
            r.slowest_collectives().into_iter().find(|c| c.name == name)?.busbw
        });
        metrics.push(bandwidth.higher());
    }
    // If a run did not finish, the time of its slowest flow is unknown.
    let finished = |r: &Report| r.flows.finished == r.flows.total;
    metrics.push(Metric::new("max", "slowest flow", "us", move |r| r.times.fct_us.max.filter(|_| finished(r))));
    metrics.push(Metric::new("p99", "99th percentile", "us", move |r| r.times.fct_us.p99.filter(|_| finished(r))));
    metrics.push(Metric::new("p50", "median", "us", move |r| r.times.fct_us.p50.filter(|_| finished(r))));
    metrics.push(Metric::new("mean", "mean", "us", move |r| r.times.fct_us.mean.filter(|_| finished(r))));
    for class in first.classes.iter().filter(|_| first.classes.len() > 1) {
        let name = class.name.clone();
        metrics.push(Metric::new(format!("{name}.max"), format!("{name}: slowest flow"), "us", move |r| {
            r.classes.iter().find(|c| c.name == name && c.finished == c.total)?.fct_us.max
        }));
    }
    metrics.push(
        Metric::new("goodput", "goodput per host", "Gb/s", |r| Some(r.times.goodput_gbps.mean_per_host)).higher(),
    );
    metrics.push(Metric::new("resent", "sent again", "%", |r| Some(100.0 * r.packets.retransmitted_share)));
    type Pick = fn(&Report) -> u64;
    let counts: [(&str, Pick); 7] = [
        ("unfinished flows", |r| r.flows.total - r.flows.finished),
        ("dropped", |r| r.packets.dropped),
        ("lost to faults", |r| r.packets.lost),
        ("trimmed", |r| r.packets.trimmed),
        ("marked", |r| r.packets.marked),
        ("timeouts", |r| r.packets.timeouts),
        ("pauses", |r| r.packets.pauses),
    ];
    for (name, pick) in counts {
        // Skip counts that are zero in every run.
        if rows.iter().any(|row| pick(&row.report) > 0) {
            metrics.push(Metric::new(name, name, "", move |r| Some(pick(r) as f64)));
        }
    }
    metrics
}

fn slowest_collective(report: &Report) -> Option<f64> {
    let times: Option<Vec<f64>> = report.collectives.iter().map(|c| c.time_us).collect();
    times?.into_iter().reduce(f64::max)
}

/// True if the runs can be ranked. Simulated and measured runs are compared but not ranked.
pub(super) fn ranked(rows: &[Row]) -> bool {
    rows.windows(2).all(|pair| pair[0].report.head.world == pair[1].report.head.world)
}

/// The data for `sweep.js`, and the element that it fills.
pub(super) fn explorer(rows: &[Row], metrics: &[Metric], keys: &Keys) -> String {
    let key = |key: &Key| {
        let read: Option<Vec<(f64, &str)>> = key.values.iter().map(|value| quantity(value)).collect();
        let numbers = read.filter(|all| all.windows(2).all(|pair| pair[0].1 == pair[1].1));
        let unit = numbers.as_ref().and_then(|all| all.first()).map_or("", |first| first.1);
        let numbers = numbers.as_ref().map(|all| all.iter().map(|(number, _)| *number).collect::<Vec<f64>>());
        json!({ "name": key.name, "short": key.short, "values": key.values, "numbers": numbers, "unit": unit })
    };
    let metric = |m: &Metric| {
        let better = if m.higher_is_better { "higher" } else { "lower" };
        json!({ "name": m.name, "label": m.label, "unit": m.unit, "better": better })
    };
    let row = |(row, set): (&Row, &BTreeMap<String, String>)| {
        let values: BTreeMap<&str, Option<f64>> =
            metrics.iter().map(|m| (m.name.as_str(), m.of(&row.report))).collect();
        let missed = row.report.expect.iter().filter(|e| !e.met).count();
        let (end, digest) = (&row.report.head.end, &row.report.head.digest);
        json!({ "label": row.label, "set": set, "values": values, "end": end, "digest": digest, "missed": missed })
    };
    let data = json!({
        "keys": keys.keys.iter().map(key).collect::<Vec<Value>>(),
        "metrics": metrics.iter().map(metric).collect::<Vec<Value>>(),
        "rows": rows.iter().zip(&keys.sets).map(row).collect::<Vec<Value>>(),
        "ranked": ranked(rows)
    });
    // A closing tag inside the text would end the script.
    let data = data.to_string().replace('<', "\\u003c");
    format!("<section id=\"explorer\"></section><script type=\"application/json\" id=\"rows-data\">{data}</script>\n")
}

/// All runs with all metrics, in the order of the rows. `colours` maps rows to their numbers in the charts.
pub(super) fn table(rows: &[Row], metrics: &[Metric], keys: &Keys, colours: &BTreeMap<usize, usize>) -> String {
    let expects = rows.iter().any(|row| !row.report.expect.is_empty());
    let told: Vec<&str> = keys.keys.iter().filter(|k| k.values.len() > 1).map(|k| k.short.as_str()).collect();
    let mut out = String::from("<div class=\"card scroll\" id=\"rows\"><table><thead><tr>");
    let heads = std::iter::once(told.join(" · ")).chain(metrics.iter().map(|m| m.label.clone()));
    for head in heads.chain(expects.then(|| "expectations".to_string())) {
        let _ = write!(out, "<th>{}</th>", escape(&head));
    }
    out.push_str("</tr></thead><tbody>");
    let best: Vec<Option<f64>> = metrics.iter().map(|metric| best(rows, metric)).collect();
    for (i, row) in rows.iter().enumerate() {
        let missed = row.report.expect.iter().filter(|e| !e.met).count();
        let dot = colours.get(&i).map_or(String::new(), |colour| format!("<i class=\"dot k{colour}\"></i>"));
        let class = if missed > 0 { " class=\"lost\"" } else { "" };
        let _ = write!(out, "<tr{class}><td>{dot}{}</td>", escape(&keys.label(i)));
        for (metric, best) in metrics.iter().zip(&best) {
            let value = metric.of(&row.report);
            let text = escape(&metric.show(value));
            let text =
                if value.is_some() && value == *best { format!("<span class=\"best\">{text}</span>") } else { text };
            let _ = match value {
                Some(value) => write!(out, "<td data-v=\"{value}\">{text}</td>"),
                None => write!(out, "<td>{text}</td>"),
            };
        }
        if expects {
            let (class, text) = match (missed, row.report.expect.len()) {
                (0, 0) => ("", "–".to_string()),
                (0, _) => ("met", "met".to_string()),
                (missed, all) => ("missed", format!("{missed} of {all} missed")),
            };
            let _ = write!(out, "<td data-v=\"{missed}\"><span class=\"{class}\">{text}</span></td>");
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// The best value of a column; `None` if all values are equal.
fn best(rows: &[Row], metric: &Metric) -> Option<f64> {
    let values: Vec<f64> = rows.iter().filter_map(|row| metric.of(&row.report)).collect();
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    let judged = ranked(rows) && !metric.unit.is_empty() && high > low;
    judged.then_some(if metric.higher_is_better { high } else { low })
}

/// A number with a unit, in base units: bytes, bits per second, seconds.
fn quantity(text: &str) -> Option<(f64, &'static str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || ".-+".contains(c))).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let (size, base) = match unit.trim() {
        "" => (1.0, ""),
        "%" => (1.0, "%"),
        "BDP" => (1.0, "BDP"),
        "packets" => (1.0, "packets"),
        "ps" => (1e-12, "s"),
        "ns" => (1e-9, "s"),
        "us" => (1e-6, "s"),
        "ms" => (1e-3, "s"),
        "s" => (1.0, "s"),
        unit => {
            let (prefix, base) = ["bps", "b/s", "iB", "B"].iter().find_map(|b| Some((unit.strip_suffix(b)?, *b)))?;
            let thousand: f64 = if base == "iB" { 1024.0 } else { 1000.0 };
            let power = ["", "k", "M", "G", "T"].iter().position(|p| p.eq_ignore_ascii_case(prefix))?;
            (thousand.powi(power as i32), if base.contains('p') || base.contains('/') { "bit/s" } else { "B" })
        }
    };
    Some((number * size, base))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::SEED;

    fn row(label: &str, set: &[(&str, &str)]) -> Row {
        let set = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Row { label: label.into(), set, report: Report::default() }
    }

    #[test]
    fn quantities_have_a_size_and_a_base() {
        for (text, wanted) in [
            ("160 kB", Some((160e3, "B"))),
            ("4 KiB", Some((4096.0, "B"))),
            ("64B", Some((64.0, "B"))),
            ("400 Gbps", Some((400e9, "bit/s"))),
            ("1.5 Gb/s", Some((1.5e9, "bit/s"))),
            ("2 us", Some((2e-6, "s"))),
            ("0.5", Some((0.5, ""))),
            ("15 packets", Some((15.0, "packets"))),
            ("reps", None),
            ("true", None),
            ("uec/reps", None),
            ("[1, 2]", None),
        ] {
            match (quantity(text), wanted) {
                (Some((a, base)), Some((b, other))) => assert!((a / b - 1.0).abs() < 1e-12 && base == other, "{text}"),
                (found, wanted) => assert_eq!(found, wanted, "{text}"),
            }
        }
    }

    #[test]
    fn sweeps_are_told_apart_by_keys_and_comparisons_by_names() {
        let sweep = [
            row("queue=1 MB, seed=1", &[("fabric.queue", "1 MB"), (SEED, "1")]),
            row("queue=2 MB, seed=1", &[("fabric.queue", "2 MB"), (SEED, "1")]),
        ];
        let keys = Keys::of(&sweep);
        assert_eq!(keys.keys.iter().map(|k| k.short.as_str()).collect::<Vec<_>>(), ["queue", "seed"]);
        assert_eq!(keys.label(1), "2\u{a0}MB", "one seed tells nothing");
        let comparison = [
            row("uec, seed=1", &[("profile.name", "uec"), (SEED, "1")]),
            row(
                "prime+routing=hashed, seed=2",
                &[("profile.name", "prime"), ("fabric.routing", "hashed"), (SEED, "2")],
            ),
        ];
        let keys = Keys::of(&comparison);
        assert_eq!(keys.keys.iter().map(|k| k.short.as_str()).collect::<Vec<_>>(), ["profile", "seed"]);
        assert_eq!(keys.label(1), "prime+routing=hashed · 2");
        assert!(ranked(&comparison));
        let mut worlds = [row("simulated", &[]), row("namespaces", &[])];
        assert_eq!(Keys::of(&worlds).label(1), "namespaces");
        worlds[1].report.head.world = "namespaces".into();
        assert!(!ranked(&worlds));
    }

    #[test]
    fn the_data_cannot_end_its_script() {
        let rows = [row("name=</script>", &[("workload.name", "</script>")]), row("name=x", &[("workload.name", "x")])];
        let text = explorer(&rows, &metrics(&rows), &Keys::of(&rows));
        assert_eq!(text.matches("</script>").count(), 1, "{text}");
    }
}

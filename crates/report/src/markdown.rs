//! Reports as Markdown, for issues and wikis.

pub mod reproduced;

use crate::lines::lines;
use crate::numbers::{bytes, count, gbps, percent, us};
use crate::rows::Row;
use crate::text::{COLLECTIVE_HEAD, collective_rows, compared_collectives, fabric_line, faults};
use crate::{Report, Spread, job, service};

/// The report of one run.
pub fn report(report: &Report) -> String {
    let mut out = format!("# {}: {}\n\n", report.head.scenario, report.head.profile);
    if !report.head.description.is_empty() {
        out.push_str(&format!("{}\n\n", report.head.description.trim()));
    }
    out.push_str(&format!("{}. Seed {}, digest `{}`.\n\n", fabric_line(report), report.head.seed, report.head.digest));
    if !report.faults.is_empty() {
        out.push_str(&format!("Faults: {}.\n\n", escape(&faults(report))));
        for told in report.cost_lines() {
            out.push_str(&format!("{}.\n\n", escape(&told)));
        }
    }
    for note in &report.notes {
        out.push_str(&format!("Note: {}.\n\n", escape(note)));
    }
    let whole = report.approximate.is_none();
    if whole && (report.flows.total > 0 || report.services.is_empty()) {
        out.push_str(&flows(report));
    }
    if !report.collectives.is_empty() {
        out.push_str(&collectives(collective_rows(report)));
    }
    if !report.jobs.is_empty() {
        let shown = job::shown(&report.jobs);
        out.push_str(&grid(job::HEAD, job::rows(&shown)));
        for line in shown.iter().filter_map(|job| job::summary(job)) {
            out.push_str(&format!("\n{}.\n", escape(&line)));
        }
        out.push_str(&grid(job::PARTS_HEAD, job::part_rows(&shown)));
        out.push_str(&grid(job::OPERATIONS_HEAD, job::operation_rows(&shown)));
        let recorded = job::recorded_rows(&shown);
        if !recorded.is_empty() {
            out.push_str(&grid(job::RECORDED_HEAD, recorded));
        }
        job::below_lines(&shown).iter().for_each(|line| out.push_str(&format!("\n- {line}\n")));
    }
    for one in &report.services {
        out.push_str(&grid(service::HEAD, service::rows(one)));
        out.push_str(&grid(service::PARTS_HEAD, service::part_rows(one)));
        service::lines(one).iter().for_each(|line| out.push_str(&format!("\n- {}\n", escape(line))));
    }
    if whole {
        out.push_str(&fabric(report));
    }
    if !report.expect.is_empty() {
        out.push_str("\n| expected | bound | value | |\n|---|--:|--:|---|\n");
        for e in &report.expect {
            let value = e.value.map_or("none".to_string(), |v| format!("{v:.3}"));
            out.push_str(&format!(
                "| `{}` | {} | {value} | {} |\n",
                e.key,
                escape(&e.bound),
                if e.met { "met" } else { "**missed**" }
            ));
        }
    }
    out.push_str(&origin(report));
    out
}

/// Times and rates of all flows.
fn flows(report: &Report) -> String {
    let mut out = String::new();
    out.push_str("| | min | mean | p50 | p99 | p99.9 | max |\n|---|--:|--:|--:|--:|--:|--:|\n");
    let mut line = |name: &str, s: &Spread, show: &dyn Fn(f64) -> String| {
        let cells = [s.min, s.mean, s.p50, s.p99, s.p999, s.max].map(|v| v.map_or("–".into(), show)).join(" | ");
        out.push_str(&format!("| {name} | {cells} |\n"));
    };
    line("completion time", &report.times.fct_us, &|v| us(Some(v)));
    line("slowdown", &report.times.slowdown, &|v| format!("{v:.2}"));
    line("goodput of a flow", &report.times.goodput_gbps.per_flow, &gbps);
    for class in report.classes.iter().filter(|_| report.classes.len() > 1) {
        line(&escape(&class.name), &class.fct_us, &|v| us(Some(v)));
    }
    let f = &report.flows;
    out.push_str(&format!(
        "\n{} of {} flows finished (run: {}).\n",
        count(f.finished),
        count(f.total),
        report.head.end
    ));
    if !f.unfinished.is_empty() {
        out.push_str(&format!("Unfinished: {}.\n", escape(&f.unfinished.join(", "))));
    }
    out
}

/// Packets and links.
fn fabric(report: &Report) -> String {
    let (p, mut out) = (&report.packets, String::new());
    out.push_str(
        "\n| packets sent | delivered | sent again | marked | trimmed | dropped | lost | duplicates | discarded | timeouts | pauses |\n",
    );
    out.push_str("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n| ");
    let counts = [
        p.sent,
        p.delivered,
        p.retransmitted,
        p.marked,
        p.trimmed,
        p.dropped,
        p.lost,
        p.duplicates,
        p.discarded,
        p.timeouts,
        p.pauses,
    ];
    out.push_str(&counts.map(count).join(" | "));
    out.push_str(" |\n\n| links | count | use, mean | busiest | longest queue |\n|---|--:|--:|--:|--:|\n");
    for g in &report.load.links {
        let (mean, most) = (percent(g.utilisation), percent(g.utilisation_max));
        out.push_str(&format!("| {} | {} | {mean} | {most} | {} |\n", g.name, g.links, bytes(g.queue_max_bytes)));
    }
    out
}

/// The command line, and the scenario with all changes.
fn origin(report: &Report) -> String {
    let o = &report.origin;
    let command = if o.command.is_empty() { String::new() } else { format!("`{}`\n\n", o.command) };
    if o.scenario.is_empty() {
        return String::new();
    }
    format!("\n## How it was made\n\n{command}```toml\n{}\n```\n", o.scenario.trim_end())
}

/// A table with numbers in all columns but the first.
fn grid<const N: usize>(head: [&str; N], rows: Vec<[String; N]>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut out = format!("\n| {} |\n|---|{}\n", head.join(" | "), "--:|".repeat(N - 1));
    for row in rows {
        out.push_str(&format!("| {} |\n", row.map(|text| escape(&text)).join(" | ")));
    }
    out
}

fn collectives(rows: Vec<[String; 8]>) -> String {
    let mut out = format!("\n| {} |\n|---|--:|---|--:|--:|--:|--:|--:|\n", COLLECTIVE_HEAD.join(" | "));
    for row in rows {
        out.push_str(&format!("| {} |\n", row.map(|text| escape(&text)).join(" | ")));
    }
    out
}

/// One row per run.
pub fn rows(title: &str, rows: &[Row]) -> String {
    let mut out = format!(
        "# {title}\n\n| | flows | FCT mean | p50 | p99 | max | goodput per host | dropped | lost | trimmed | resent |\n"
    );
    out.push_str("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
    let lines = lines(rows);
    for line in &lines {
        type Pick = fn(&Report) -> Option<f64>;
        let picks: [Pick; 4] =
            [|r| r.times.fct_us.mean, |r| r.times.fct_us.p50, |r| r.times.fct_us.p99, |r| r.times.fct_us.max];
        let [first, ..] = &line.runs[..] else { continue };
        let r = &rows[*first].report;
        if let [_, _, ..] = &line.runs[..] {
            let mean = |of: Pick| line.of(rows, of).map(|v| v.mean);
            let times = picks.map(|of| match line.of(rows, of) {
                Some(v) => format!("{} ({}..{})", us(Some(v.mean)), us(Some(v.min)), us(Some(v.max))),
                None => "–".to_string(),
            });
            let counts: [Pick; 3] = [
                |r| Some(r.packets.dropped as f64),
                |r| Some(r.packets.lost as f64),
                |r| Some(r.packets.trimmed as f64),
            ];
            out.push_str(&format!(
                "| {}, mean of {} seeds (lowest..highest) | {} | {} | {} | {} | {:.2} % |\n",
                escape(&line.label),
                line.runs.len(),
                count(r.flows.total),
                times.join(" | "),
                mean(|r| Some(r.times.goodput_gbps.mean_per_host)).map_or("–".to_string(), gbps),
                counts.map(|of| mean(of).map_or("–".to_string(), |v| format!("{v:.1}"))).join(" | "),
                100.0 * mean(|r| Some(r.packets.retransmitted_share)).unwrap_or_default()
            ));
            continue;
        }
        let row = &rows[*first];
        let times = picks.map(|of| us(of(r))).join(" | ");
        let p = &r.packets;
        out.push_str(&format!(
            "| {} | {}/{} | {times} | {} | {} | {} | {} | {:.2} % |\n",
            escape(&row.label),
            r.flows.finished,
            r.flows.total,
            gbps(r.times.goodput_gbps.mean_per_host),
            count(p.dropped),
            count(p.lost),
            count(p.trimmed),
            100.0 * p.retransmitted_share
        ));
    }
    if rows.iter().any(|row| !row.report.jobs.is_empty()) {
        out.push_str("\n| | job | iteration | lower bound | not computing |\n|---|---|---:|---:|---:|\n");
        for (row, job) in rows.iter().flat_map(|row| row.report.jobs.iter().map(move |job| (row, job))) {
            let (label, name) = (escape(&row.label), escape(&job.name));
            let (time, bound) = (us(job.iteration_us), us(Some(job.bound_us)));
            out.push_str(&format!("| {label} | {name} | {time} | {bound} | {} |\n", percent(job.bubble)));
        }
    }
    if rows.iter().any(|row| !row.report.services.is_empty()) {
        out.push_str(
            "\n| | service | TTFT p50 | p99 | p99.9 | TBT p99 | met both bounds |\n|---|---|--:|--:|--:|--:|--:|\n",
        );
        for (row, one) in rows.iter().flat_map(|row| row.report.services.iter().map(move |one| (row, one))) {
            let (label, name) = (escape(&row.label), escape(&one.name));
            let times = [one.ttft_us.p50, one.ttft_us.p99, one.ttft_us.p999, one.tbt_us.p99].map(us).join(" | ");
            let met = one.slo.slo_share.map_or("–".to_string(), percent);
            out.push_str(&format!("| {label} | {name} | {times} | {met} |\n"));
        }
    }
    let compared = compared_collectives(rows);
    if !compared.is_empty() {
        out.push_str(&collectives(compared));
    }
    out
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

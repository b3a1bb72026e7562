//! Reports for the terminal.

pub(crate) mod reproduced;

use super::{CollectiveFacts, FabricFacts, Report, Spread, cost};
use crate::plan::Experiment;
use crate::sweep::Row;
use comfy_table::{Cell, CellAlignment, Table, presets};

pub use self::reproduced::{reproduction, sets};

/// The report of one run.
pub fn report(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!("{} · profile {} · seed {}", report.scenario, report.profile, report.seed));
    line(fabric_line(report));
    line(String::new());
    line(flows_table(report));
    if !report.collectives.is_empty() {
        line(collectives_table(collective_rows(report)));
    }
    line(packets_table(report));
    line(links_table(report));
    if report.flows.finished < report.flows.total {
        line(unfinished(report));
    }
    for why in report.why.iter().filter(|w| w.name == "slowest" || w.kind == "collective" || w.kind == "chain").take(5)
    {
        if !why.sentence.is_empty() {
            line(format!("{}.", why.sentence));
        }
    }
    if !report.expect.is_empty() {
        line(expect_table(report));
    }
    for note in &report.notes {
        line(format!("note: {note}"));
    }
    line(run_line(report));
    out
}

/// One row per run.
pub fn rows(rows: &[Row]) -> String {
    let mut table = table();
    table.set_header(
        [
            "",
            "flows",
            "FCT mean",
            "p50",
            "p99",
            "max",
            "goodput/host",
            "dropped",
            "lost",
            "trimmed",
            "resent",
            "timeouts",
            "expect",
        ]
        .map(heading),
    );
    for row in rows {
        let r = &row.report;
        let done = if r.flows.finished == r.flows.total {
            r.flows.total.to_string()
        } else {
            format!("{} of {}", r.flows.finished, r.flows.total)
        };
        let mut cells = vec![Cell::new(&row.label), right(done)];
        for value in [r.fct_us.mean, r.fct_us.p50, r.fct_us.p99, r.fct_us.max] {
            cells.push(right(us(value)));
        }
        cells.push(right(gbps(r.goodput_gbps.mean_per_host)));
        let p = &r.packets;
        cells.push(right(count(p.dropped)));
        cells.push(right(count(p.lost)));
        cells.push(right(count(p.trimmed)));
        cells.push(right(format!("{:.2} %", 100.0 * p.retransmitted_share)));
        cells.push(right(count(p.timeouts)));
        cells.push(right(verdict(r)));
        table.add_row(cells);
    }
    let collectives = compared_collectives(rows);
    let more = if collectives.is_empty() { String::new() } else { collectives_table(collectives) };
    format!("{table}\n{more}")
}

/// So many collectives have a row of their own.
const COLLECTIVES_SHOWN: usize = 16;

fn verdict(report: &Report) -> String {
    let missed = report.expect.iter().filter(|e| !e.met).count();
    match (report.expect.len(), missed) {
        (0, _) => "–".to_string(),
        (_, 0) => "met".to_string(),
        (all, missed) => format!("{missed} of {all} missed"),
    }
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table
}

fn heading(text: &str) -> Cell {
    Cell::new(text)
}

fn right(text: impl Into<String>) -> Cell {
    Cell::new(text.into()).set_alignment(CellAlignment::Right)
}

/// Microseconds with three to four significant digits, in the unit an engineer would use.
pub(crate) fn us(value: Option<f64>) -> String {
    match value {
        None => "–".to_string(),
        Some(0.0) => "0 us".to_string(),
        Some(v) if v < 0.1 => format!("{:.1} ns", v * 1e3),
        Some(v) if v < 1e4 => format!("{v:.1} us"),
        Some(v) if v < 1e7 => format!("{:.2} ms", v / 1e3),
        Some(v) => format!("{:.2} s", v / 1e6),
    }
}

pub(crate) fn gbps(value: f64) -> String {
    match value {
        v if v >= 1e4 => format!("{:.2} Tb/s", v / 1e3),
        v if v >= 100.0 => format!("{v:.0} Gb/s"),
        v if v >= 1.0 => format!("{v:.1} Gb/s"),
        v => format!("{:.1} Mb/s", v * 1e3),
    }
}

pub(crate) fn bytes(value: u64) -> String {
    match value as f64 {
        v if v >= 1e9 => format!("{:.2} GB", v / 1e9),
        v if v >= 1e6 => format!("{:.2} MB", v / 1e6),
        v if v >= 1e3 => format!("{:.1} kB", v / 1e3),
        v => format!("{v} B"),
    }
}

/// A count with commas between thousands.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn percent(value: f64) -> String {
    format!("{:.1} %", 100.0 * value)
}

/// The fabric in a sentence.
pub(crate) fn fabric_line(report: &Report) -> String {
    let f = &report.fabric;
    let planes = if f.planes > 1 { format!(", {} planes", f.planes) } else { String::new() };
    let switches = if f.tiers == 3 {
        format!(
            "{} leaves, {} aggregation switches, {} cores",
            count(f.leaves.into()),
            count(f.spines.into()),
            count(f.cores.into())
        )
    } else {
        format!("{} leaves, {} spines", count(f.leaves.into()), count(f.spines.into()))
    };
    format!(
        "{} hosts at {}, {}{planes}: {switches}; base RTT {}, BDP {}",
        count(report.run.hosts.into()),
        gbps(f.rate_gbps),
        f.kind,
        us(Some(f.base_rtt_us)),
        bytes(f.bdp_bytes)
    )
}

fn spread_cells(name: &str, s: &Spread, show: impl Fn(Option<f64>) -> String) -> Vec<Cell> {
    let mut cells = vec![Cell::new(name)];
    cells.extend([s.min, s.mean, s.p50, s.p99, s.p999, s.max].map(|v| right(show(v))));
    cells
}

fn flows_table(report: &Report) -> String {
    let mut table = table();
    let flows = format!("{} of {} flows finished", count(report.flows.finished), count(report.flows.total));
    table.set_header([&flows, "min", "mean", "p50", "p99", "p99.9", "max"].map(heading));
    table.add_row(spread_cells("completion time", &report.fct_us, us));
    table.add_row(spread_cells("received", &report.received_us, us));
    let times = |v: Option<f64>| v.map_or("–".to_string(), |v| format!("{v:.2} x"));
    table.add_row(spread_cells("slowdown", &report.slowdown, times));
    let rate = |v: Option<f64>| v.map_or("–".to_string(), gbps);
    table.add_row(spread_cells("goodput of a flow", &report.goodput_gbps.per_flow, rate));
    if report.classes.len() > 1 {
        for class in &report.classes {
            let name = format!("{}: {} of {}", class.name, class.finished, class.total);
            table.add_row(spread_cells(&name, &class.fct_us, us));
        }
    }
    let g = &report.goodput_gbps;
    format!("{table}\ngoodput {} per sending host, {} in all\n", gbps(g.mean_per_host), gbps(g.total))
}

/// What tables of collectives say of each, as text.
pub(crate) const COLLECTIVE_HEAD: [&str; 8] =
    ["collective", "ranks", "placement", "size", "time", "at the least", "algorithm bandwidth", "bus bandwidth"];

/// The rows of a table of collectives: a row each, or, if there are many groups, the slowest one of each workload.
pub(crate) fn collective_rows(report: &Report) -> Vec<[String; 8]> {
    if report.collectives.len() <= COLLECTIVES_SHOWN {
        return report.collectives.iter().map(|c| collective_row(c, &c.name)).collect();
    }
    let name = |c: &CollectiveFacts| match c.group {
        Some(last) => format!("{}, slowest of {} groups", c.name, count(u64::from(last) + 1)),
        None => c.name.clone(),
    };
    report.slowest_collectives().iter().map(|c| collective_row(c, &name(c))).collect()
}

/// The same for several runs: the slowest group of each workload, under the label of its run.
pub(crate) fn compared_collectives(rows: &[Row]) -> Vec<[String; 8]> {
    let of = |row: &Row| -> Vec<[String; 8]> {
        let slowest = row.report.slowest_collectives();
        slowest.iter().map(|c| collective_row(c, &format!("{}: {}", row.label, c.name))).collect()
    };
    rows.iter().flat_map(of).collect()
}

fn collective_row(c: &CollectiveFacts, name: &str) -> [String; 8] {
    let rate = |v: Option<f64>| v.map_or("–".to_string(), |v| format!("{v:.2} GB/s"));
    let time = match c.time_us {
        None => format!("{} of {} messages", count(c.received), count(c.messages)),
        time => us(time),
    };
    [
        format!("{name}: {}, {}", c.kind, c.algorithm),
        count(c.ranks.into()),
        c.placement.clone(),
        bytes(c.bytes),
        time,
        us(Some(c.bound_us)),
        rate(c.algbw),
        rate(c.busbw),
    ]
}

fn collectives_table(rows: Vec<[String; 8]>) -> String {
    let mut table = table();
    table.set_header(COLLECTIVE_HEAD.map(heading));
    for row in rows {
        let cells = row.into_iter().enumerate();
        table.add_row(cells.map(|(i, text)| if i == 0 || i == 2 { Cell::new(text) } else { right(text) }));
    }
    format!("{table}\n")
}

fn packets_table(report: &Report) -> String {
    let p = &report.packets;
    let mut table = table();
    table.set_header(["packets", "", "signals", "", "trouble", ""].map(heading));
    let rows = [
        ["data sent", &count(p.sent), "marked (ECN)", &count(p.marked), "dropped", &count(p.dropped)],
        ["delivered", &count(p.delivered), "trimmed", &count(p.trimmed), "lost to faults", &count(p.lost)],
        ["sent again", &count(p.retransmitted), "NACKs", &count(p.nacks), "timeouts", &count(p.timeouts)],
        ["acknowledgements", &count(p.acks), "CNPs", &count(p.notifications), "duplicates", &count(p.duplicates)],
        ["under way at the end", &count(p.under_way), "PFC pauses", &count(p.pauses), "discarded", &count(p.discarded)],
    ];
    for row in rows {
        let cells = row.iter().enumerate().map(|(i, text)| if i % 2 == 1 { right(*text) } else { Cell::new(text) });
        table.add_row(cells.collect::<Vec<_>>());
    }
    format!("{table}\n")
}

fn links_table(report: &Report) -> String {
    let mut table = table();
    table.set_header(
        ["links", "count", "use, mean", "busiest", "longest queue", "marked", "trimmed", "dropped", "lost", "paused"]
            .map(heading),
    );
    for g in report.links.iter().take(24) {
        table.add_row(vec![
            Cell::new(&g.name),
            right(count(g.links.into())),
            right(percent(g.utilisation)),
            right(percent(g.utilisation_max)),
            right(bytes(g.queue_max_bytes)),
            right(count(g.marked)),
            right(count(g.trimmed)),
            right(count(g.dropped)),
            right(count(g.lost)),
            right(if g.paused_us > 0.0 { us(Some(g.paused_us)) } else { "0".into() }),
        ]);
    }
    let more =
        if report.links.len() > 24 { format!("\nand {} more groups", report.links.len() - 24) } else { String::new() };
    format!("{table}{more}\n")
}

fn unfinished(report: &Report) -> String {
    let f = &report.flows;
    let left = f.total - f.finished;
    let shown: Vec<&str> = f.unfinished.iter().take(10).map(String::as_str).collect();
    let more = left as usize - shown.len();
    let more = if more > 0 { format!(" and {} more", count(more as u64)) } else { String::new() };
    let never = if f.never_started > 0 {
        format!(" ({} of them never started)", count(f.never_started))
    } else {
        String::new()
    };
    format!(
        "{} flows did not finish{never}: the run ended with \"{}\" at {}\n  {}{more}\n",
        count(left),
        report.end,
        us(Some(report.run.simulated_us)),
        shown.join(", ")
    )
}

fn expect_table(report: &Report) -> String {
    let mut table = table();
    table.set_header(["expected", "bound", "value", ""].map(heading));
    for e in &report.expect {
        let value = e
            .value
            .map_or("none".to_string(), |v| format!("{v:.4}").trim_end_matches('0').trim_end_matches('.').to_string());
        table.add_row(vec![
            Cell::new(&e.key),
            right(&e.bound),
            right(value),
            Cell::new(if e.met { "met" } else { "MISSED" }),
        ]);
    }
    format!("{table}\n")
}

fn run_line(report: &Report) -> String {
    let r = &report.run;
    let threads = if r.threads == 1 { "1 thread".to_string() } else { format!("{} threads", r.threads) };
    format!(
        "{}: {} simulated in {:.2} s on {threads}, {} packet hops at {:.2} million/s, {} events, {} peak memory, digest {}",
        report.end,
        us(Some(r.simulated_us)),
        r.wall_s,
        count(r.packet_hops),
        r.hops_per_s / 1e6,
        count(r.events),
        bytes(r.peak_rss_bytes),
        report.digest
    )
}

/// What the fabric is made of, beside the same NICs on one plane: three columns, and the comparison in a sentence.
fn made_of(f: &FabricFacts) -> String {
    let mut rows = cost::rows(&f.cost, f.single_plane.as_ref(), f.tables);
    let single = if f.single_plane.is_some() { "on one plane of these switches" } else { "" };
    rows.insert(0, ["what it is made of", "", single].map(str::to_string));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    let line = |[name, here, there]: &[String; 3]| {
        format!("{name:<first$}  {here:<second$}  {there}").trim_end().to_string() + "\n"
    };
    let mut out: String = rows.iter().map(line).collect();
    let verdict = cost::verdict(&f.cost, f.single_plane.as_ref(), f.planes);
    if !verdict.is_empty() {
        out.push_str(&format!("{verdict}\n"));
    }
    out
}

/// What follows from a scenario's fabric and profile.
pub fn fabric(experiment: &Experiment) -> String {
    let template = Report::new(experiment, &strandway_sim::Measurements::default(), 0.0);
    let topology = &experiment.plan.topology;
    let ports = &experiment.plan.ports;
    let d = &experiment.derived;
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut row = |name: &str, value: String| rows.push((name.to_string(), value));
    row("fabric", fabric_line(&template));
    row("directed links", count(template.fabric.directed_links.into()));
    for (level, name) in ["host to leaf", "leaf to tier 1", "tier 1 to core"].iter().enumerate().take(topology.tiers())
    {
        let l = topology.level(level);
        row(&format!("links, {name}"), format!("{} each, {} of propagation", l.rate, l.latency));
    }
    row("uplinks of a leaf", format!("{} for {} hosts", topology.leaf_up(), topology.shape().hosts_per_leaf));
    row("full packet", format!("{} B on the wire", d.packet.0));
    row("base RTT", format!("{} over {} links each way", d.base_rtt, topology.longest_hops()));
    let packets = d.bdp.0 as f64 / d.packet.0 as f64;
    row("BDP of a plane", format!("{} ({packets:.1} packets)", bytes(d.bdp.0)));
    let queue = if ports.pfc.is_some() {
        "unlimited: PFC decides at the ingress".to_string()
    } else {
        bytes(ports.data_queue.0)
    };
    row("data queue of a port", queue);
    row("control queue of a port", bytes(ports.control_queue.0));
    row("overflow", if ports.trim.is_some() { "packets are trimmed" } else { "packets are dropped" }.to_string());
    row(
        "ECN",
        ports.ecn.map_or("off".to_string(), |e| {
            let when = if e.at_dequeue { "as packets leave" } else { "as packets arrive" };
            let chance = percent(e.probability);
            format!(
                "from {} with rising probability up to {chance}, always from {}, {when}",
                bytes(e.low.0),
                bytes(e.high.0)
            )
        }),
    );
    row(
        "PFC",
        ports.pfc.map_or("off".to_string(), |p| {
            format!("pauses above {}, resumes at {}, headroom {}", bytes(p.xoff.0), bytes(p.xon.0), bytes(p.headroom.0))
        }),
    );
    row(
        "shared buffer",
        ports.shared.map_or("none: every port has its own".to_string(), |s| {
            format!("{} per switch, dynamic threshold with alpha {}", bytes(s.buffer.0), s.alpha)
        }),
    );
    row("priority of control packets", if ports.priority { "strict" } else { "none" }.to_string());
    row("connections", count(experiment.plan.connections.len() as u64));
    row("flows", format!("{} of {} in all", count(template.flows.total), bytes(template.flows.bytes)));
    row("busiest NIC", format!("could be done at {} if nothing ever waited", experiment.ideal));
    row("time limit", experiment.plan.time_limit.to_string());
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: String = rows.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect();
    format!("{lines}\n{}", made_of(&template.fabric))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!(us(Some(54.12)), "54.1 us");
        assert_eq!(us(Some(21_029.3)), "21.03 ms");
        assert_eq!(us(None), "–");
        assert_eq!(gbps(51_200.0), "51.20 Tb/s");
        assert_eq!(bytes(417_000), "417.0 kB");
    }
}

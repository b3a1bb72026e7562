//! Reports for the terminal.

mod compared;
pub(crate) mod modelled;
pub(crate) mod reproduced;
pub(crate) mod search_result;

use crate::grid::{ALWAYS, Grid, table};
use crate::numbers::{bytes, count, gbps, percent, us};
use crate::rows::Row;
use crate::{
    CollectiveFacts, FabricFacts, FaultFacts, FlowFacts, Report, Spread, aggregation, choice, cost, evs, job,
    long_links, service,
};
use comfy_table::{Cell, CellAlignment};

pub use self::compared::rows;
pub use self::modelled::answers;
pub use self::reproduced::{reproduction, sets};
pub use self::search_result::search_result;

/// The report of one run without a limit on its width.
pub fn report(report: &Report) -> String {
    report_in(report, None)
}

/// The report of one run for a terminal of `width` characters.
pub fn report_in(report: &Report, width: Option<usize>) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!("{} · profile {} · seed {}", report.head.scenario, report.head.profile, report.head.seed));
    line(fabric_line(report));
    let changed = changes(report);
    if !changed.is_empty() {
        line(format!("changed: {changed}"));
    }
    if !report.faults.is_empty() {
        line(format!("faults: {}", faults(report)));
        report.cost_lines().into_iter().for_each(&mut line);
    }
    for note in &report.notes {
        line(format!("note: {note}"));
    }
    line(String::new());
    let whole = report.approximate.is_none();
    if whole && (report.flows.total > 0 || report.services.is_empty()) {
        line(flows_table(report, width));
    }
    if !report.collectives.is_empty() {
        line(collectives_table(collective_rows(report), width));
    }
    if !report.jobs.is_empty() {
        line(job::table(&report.jobs, width));
    }
    if !report.services.is_empty() {
        line(service::table(&report.services, width));
    }
    if let Some(facts) = &report.switch {
        line(aggregation::table(facts, width));
    }
    if whole {
        line(packets_table(report));
        line(links_table(report, width));
    }
    if !report.load.long_links.is_empty() {
        line(long_links::table(&report.load.long_links, report.is_simulated(), width));
    }
    if let Some(choices) = &report.choices {
        line(choice::sentences(choices));
    }
    if let Some(events) = report.ev_events.as_ref().and_then(evs::sentence) {
        line(events);
    }
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
    line(run_line(report));
    out
}

/// The changes of the command line, as `key = value`.
pub(crate) fn changes(report: &Report) -> String {
    let set = report.origin.set.iter().map(|(key, value)| format!("{key} = {value}"));
    set.collect::<Vec<_>>().join(", ")
}

/// The faults in words: `plane 2 down, silent, from 20.0 us`.
pub(crate) fn faults(report: &Report) -> String {
    faults_told(&report.faults)
}

/// A list of faults in words: `plane 2 down, silent, from 20.0 us`.
pub(crate) fn faults_told(faults: &[FaultFacts]) -> String {
    let when = |f: &FaultFacts| match (f.from_us, f.until_us) {
        (from, None) if from <= 0.0 => "from the start".to_string(),
        (from, None) => format!("from {}", us(Some(from))),
        (from, until) => format!("from {} to {}", us(Some(from)), us(until)),
    };
    let avoided = |f: &FaultFacts| match f.avoided_after_us {
        Some(after) => format!(", last data packet lost {} later", us(Some(after))),
        None => String::new(),
    };
    let all: Vec<String> = faults.iter().map(|f| format!("{}, {}{}", f.summary(), when(f), avoided(f))).collect();
    let (shown, more) = all.split_at(all.len().min(6));
    let more = if more.is_empty() { String::new() } else { format!("; and {} more", more.len()) };
    format!("{}{more}", shown.join("; "))
}

/// Limit on the collectives with an entry of their own.
const COLLECTIVES_SHOWN: usize = 16;

fn verdict(report: &Report) -> String {
    let missed = report.expect.iter().filter(|e| !e.met).count();
    match (report.expect.len(), missed) {
        (0, _) => "–".to_string(),
        (_, 0) => "met".to_string(),
        (all, missed) => format!("{missed} of {all} missed"),
    }
}

fn heading(text: &str) -> Cell {
    Cell::new(text)
}

fn right(text: impl Into<String>) -> Cell {
    Cell::new(text.into()).set_alignment(CellAlignment::Right)
}

/// A count with its noun.
fn several(n: u32, one: &str, many: &str) -> String {
    format!("{} {}", count(n.into()), if n == 1 { one } else { many })
}

/// The fabric in a sentence.
pub fn fabric_line(report: &Report) -> String {
    let f = &report.fabric;
    let planes = if f.planes > 1 { format!(", {} planes", f.planes) } else { String::new() };
    let switches = if f.sites > 0 {
        format!("{} joined by long links", several(f.sites, "site", "sites"))
    } else if f.is_graph() {
        several(f.leaves, "switch", "switches")
    } else if f.tiers == 3 {
        format!(
            "{}, {}, {}",
            several(f.leaves, "leaf", "leaves"),
            several(f.spines, "aggregation switch", "aggregation switches"),
            several(f.cores, "core", "cores")
        )
    } else {
        format!("{}, {}", several(f.leaves, "leaf", "leaves"), several(f.spines, "spine", "spines"))
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

fn spread_texts(name: &str, s: &Spread, show: impl Fn(Option<f64>) -> String) -> Vec<String> {
    let mut texts = vec![name.to_string()];
    texts.extend([s.min, s.mean, s.p50, s.p99, s.p999, s.max].map(show));
    texts
}

fn flows_table(report: &Report, width: Option<usize>) -> String {
    let mut grid = Grid::default();
    let flows = format!("{} of {} flows finished", count(report.flows.finished), count(report.flows.total));
    grid.column(flows, ALWAYS, false);
    for (head, rank) in [("min", 2), ("mean", 4), ("p50", 3), ("p99", 5), ("p99.9", 1), ("max", ALWAYS)] {
        grid.column(head, rank, true);
    }
    grid.row(spread_texts("completion time", &report.times.fct_us, us));
    grid.row(spread_texts("received", &report.times.received_us, us));
    let times = |v: Option<f64>| v.map_or("–".to_string(), |v| format!("{v:.2} x"));
    grid.row(spread_texts("slowdown", &report.times.slowdown, times));
    let rate = |v: Option<f64>| v.map_or("–".to_string(), gbps);
    grid.row(spread_texts("goodput of a flow", &report.times.goodput_gbps.per_flow, rate));
    if report.classes.len() > 1 {
        for class in &report.classes {
            let name = format!("{}: {} of {}", class.name, class.finished, class.total);
            grid.row(spread_texts(&name, &class.fct_us, us));
        }
    }
    let g = &report.times.goodput_gbps;
    format!("{}goodput {} per sending host, {} in all\n", grid.text(width), gbps(g.mean_per_host), gbps(g.total))
}

/// Column heads of tables of collectives.
pub(crate) const COLLECTIVE_HEAD: [&str; 8] =
    ["collective", "ranks", "placement", "size", "time", "lower bound", "algorithm bandwidth", "bus bandwidth"];

/// The rows of a table of collectives: one for each collective, or, if there are many groups, the slowest group of each
/// workload.
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

/// The rows for several runs: the slowest group of each workload, after the label of its run.
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

fn collectives_table(rows: Vec<[String; 8]>, width: Option<usize>) -> String {
    let mut grid = Grid::default();
    for (head, (rank, right)) in COLLECTIVE_HEAD.iter().zip([
        (ALWAYS, false),
        (4, true),
        (1, false),
        (5, true),
        (ALWAYS, true),
        (6, true),
        (2, true),
        (3, true),
    ]) {
        grid.column(*head, rank, right);
    }
    rows.into_iter().for_each(|row| grid.row(row));
    grid.text(width)
}

fn packets_table(report: &Report) -> String {
    let p = &report.packets;
    let mut table = table();
    table.set_header(["packets", "", "signals", "", "trouble", ""].map(heading));
    let cast = [
        [
            "chunks cast",
            &count(p.coded.chunks),
            "copies by switches",
            &count(p.coded.copies),
            "repairs",
            &count(p.coded.repairs),
        ],
        ["chunks arrived", &count(p.coded.chunks_arrived), "rebuilt", &count(p.coded.rebuilt), "", ""],
    ];
    let rows = [
        ["data sent", &count(p.sent), "marked (ECN)", &count(p.marked), "dropped", &count(p.dropped)],
        ["delivered", &count(p.delivered), "trimmed", &count(p.trimmed), "lost to faults", &count(p.lost)],
        ["sent again", &count(p.retransmitted), "NACKs", &count(p.nacks), "timeouts", &count(p.timeouts)],
        ["acknowledgements", &count(p.acks), "CNPs", &count(p.notifications), "duplicates", &count(p.duplicates)],
        ["under way at the end", &count(p.under_way), "PFC pauses", &count(p.pauses), "discarded", &count(p.discarded)],
    ];
    let added = [[
        "fragments sent",
        &count(p.fragments),
        "copies by switches",
        &count(p.coded.copies),
        "fragments arrived",
        &count(p.fragments_arrived),
    ]];
    let cast = cast.into_iter().filter(|_| p.coded.chunks > 0);
    let added = added.into_iter().filter(|_| p.fragments > 0);
    for row in rows.into_iter().chain(cast).chain(added) {
        let cells = row.iter().enumerate().map(|(i, text)| if i % 2 == 1 { right(*text) } else { Cell::new(text) });
        table.add_row(cells.collect::<Vec<_>>());
    }
    format!("{table}\n")
}

fn links_table(report: &Report, width: Option<usize>) -> String {
    let mut grid = Grid::default();
    for (head, rank, right) in [
        ("links", ALWAYS, false),
        ("count", 7, true),
        ("use, mean", 8, true),
        ("busiest", ALWAYS, true),
        ("longest queue", ALWAYS, true),
        ("marked", 4, true),
        ("trimmed", 3, true),
        ("dropped", 6, true),
        ("lost", 5, true),
        ("paused", 2, true),
    ] {
        grid.column(head, rank, right);
    }
    let measured = |text: String| if report.is_simulated() { text } else { "–".to_string() };
    for g in report.load.links.iter().take(24) {
        grid.row([
            g.name.clone(),
            count(g.links.into()),
            percent(g.utilisation),
            percent(g.utilisation_max),
            measured(bytes(g.queue_max_bytes)),
            count(g.marked),
            count(g.trimmed),
            count(g.dropped),
            count(g.lost),
            measured(if g.paused_us > 0.0 { us(Some(g.paused_us)) } else { "0".into() }),
        ]);
    }
    let more = if report.load.links.len() > 24 {
        format!("and {} more groups\n", report.load.links.len() - 24)
    } else {
        String::new()
    };
    format!("{}{more}", grid.text(width))
}

fn unfinished(report: &Report) -> String {
    let f = &report.flows;
    let left = f.total - f.finished;
    let shown: Vec<&str> = f.unfinished.iter().take(10).map(String::as_str).collect();
    let more = match (left as usize - shown.len(), shown.is_empty()) {
        (0, _) => String::new(),
        (more, false) => format!(" and {} more", count(more as u64)),
        (_, true) => "their names are not kept".to_string(),
    };
    let never = if f.never_started > 0 {
        format!(" ({} of them never started)", count(f.never_started))
    } else {
        String::new()
    };
    format!(
        "{} flows did not finish{never}: the run ended with \"{}\" at {}; {} of {} had arrived\n  {}{more}\n",
        count(left),
        report.head.end,
        us(Some(report.run.simulated_us)),
        bytes(f.delivered_bytes),
        bytes(f.bytes),
        shown.join(", ")
    ) + &waiting(f)
}

/// Flows that were never posted, with the triggers that they wait for.
fn waiting(flows: &FlowFacts) -> String {
    let shown: Vec<String> = flows.waiting.iter().take(10).map(|w| format!("  {w}\n")).collect();
    let more = flows.waiting.len() - shown.len();
    let more = if more > 0 { format!("  and {more} more wait\n") } else { String::new() };
    shown.concat() + &more
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
    if !report.is_simulated() {
        return format!(
            "{}: {} measured between real nodes in {:.2} s",
            report.head.end,
            us(Some(r.simulated_us)),
            r.wall_s
        );
    }
    let threads = if r.threads == 1 { "1 thread".to_string() } else { format!("{} threads", r.threads) };
    format!(
        "{}: {} simulated in {:.2} s on {threads}, {} packet hops at {:.2} million/s, {} events, {} peak memory, digest {}",
        report.head.end,
        us(Some(r.simulated_us)),
        r.wall_s,
        count(r.packet_hops),
        r.hops_per_s / 1e6,
        count(r.events),
        bytes(r.peak_rss_bytes),
        report.head.digest
    )
}

/// The parts of the fabric next to those of the same NICs on one plane: three columns, and a sentence that compares
/// them. Empty for sites, because their cost is that of their long links.
pub fn fabric_parts(f: &FabricFacts) -> String {
    if f.sites > 0 {
        return String::new();
    }
    let mut rows = cost::rows(&f.cost, f.single_plane.as_ref(), f.tables);
    let single = if f.single_plane.is_some() { "on one plane of these switches" } else { "" };
    rows.insert(0, ["parts of the fabric", "", single].map(str::to_string));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_has_switches_of_one_kind() {
        let line = |leaves, spines, sites| {
            let fabric = FabricFacts { tiers: 2, leaves, spines, sites, ..FabricFacts::default() };
            fabric_line(&Report { fabric, ..Report::default() })
        };
        assert!(line(16, 0, 0).contains(": 16 switches; "), "{}", line(16, 0, 0));
        assert!(line(1, 0, 0).contains(": 1 switch; "), "{}", line(1, 0, 0));
        assert!(line(16, 4, 0).contains(": 16 leaves, 4 spines; "), "{}", line(16, 4, 0));
        assert!(line(2, 0, 2).contains(": 2 sites joined by long links; "), "{}", line(2, 0, 2));
    }
}

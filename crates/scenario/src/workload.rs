//! `[workload]` or several `[[workload]]`: senders, receivers, sizes and times of messages. This file reads the keys;
//! `generate.rs` makes flows.

use super::collective;
use super::job;
use super::maker::{Common, Head};
use super::profile;
use super::service;
use super::sizes::{self, Sizes};
use crate::keys;
use crate::reader::{Section, Sink, show};
use crate::scenario::Scenario;
use strandway_import::htsim::{Matrix, StartUnit, parse_cm_in};
use strandway_import::{FLOWS_MAX, HOSTS_MAX};
use strandway_proto::Profile;
use strandway_proto::units::{Bytes, Rate, Span};
use toml::{Table, Value};

pub(crate) const KINDS: [&str; 13] = [
    "permutation",
    "incast",
    "outcast",
    "all-to-all",
    "all-reduce",
    "reduce-scatter",
    "all-gather",
    "broadcast",
    "training",
    "fsdp",
    "poisson",
    "matrix",
    "flows",
];

/// Limit on the size of a message.
const SIZE_MAX: Bytes = Bytes(1 << 48);

/// The keys of one workload.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) head: Head,
    pub(crate) kind: Kind,
}

/// How the other ends of an incast or outcast are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    First,
    Random,
    Remote,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Permutation,
    Incast { destination: u32, senders: Option<u32>, pick: Pick },
    Outcast { source: u32, receivers: Option<u32>, pick: Pick },
    Collective(Box<collective::CollectiveKeys>),
    Job(Box<job::JobKeys>),
    Service(Box<service::ServiceKeys>),
    Poisson { load: f64, sizes: Sizes, duration: Option<Span>, flows: Option<u64> },
    Matrix { matrix: Matrix, file: String, unit: StartUnit },
    Flows(Vec<FlowKeys>),
}

/// One flow that the scenario lists.
#[derive(Clone, Debug)]
pub(crate) struct FlowKeys {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) size: Bytes,
    pub(crate) start: Span,
    /// Its key in the scenario, for messages.
    pub(crate) key: String,
}

/// Reads all workloads; a wrong one is `None`.
pub(crate) fn read(sink: &Sink, scenario: &Scenario) -> Vec<Option<Workload>> {
    let jobs = ["job", "service"].iter().any(|section| scenario.table.contains_key(*section));
    let mut all = match scenario.table.get("workload") {
        None if jobs || scenario.posted => Vec::new(),
        None => vec![one(sink, scenario, "workload".into(), None)],
        Some(written) => each(sink, "workload", written, |name, table| one(sink, scenario, name, Some(table))),
    };
    if let Some(written) = scenario.table.get("job") {
        all.extend(each(sink, "job", written, |name, table| one_job(sink, scenario, name, table)));
    }
    if let Some(written) = scenario.table.get("service") {
        all.extend(each(sink, "service", written, |name, table| one_service(sink, scenario, name, table)));
    }
    all
}

/// A section that may be a list of tables.
fn each(
    sink: &Sink,
    section: &str,
    written: &Value,
    read: impl Fn(String, &Table) -> Option<Workload>,
) -> Vec<Option<Workload>> {
    match written {
        Value::Table(table) => vec![read(section.to_string(), table)],
        Value::Array(items) if !items.is_empty() && items.len() <= 1000 => items
            .iter()
            .enumerate()
            .map(|(i, item)| match item {
                Value::Table(table) => read(format!("{section}[{i}]"), table),
                other => {
                    let remedy = format!("write [[{section}]]");
                    sink.add(&format!("{section}[{i}]"), show(other), "must be a table", remedy);
                    None
                }
            })
            .collect(),
        other => {
            sink.add(section, show(other), "must be a table", format!("write a section [{section}]"));
            vec![None]
        }
    }
}

/// A training job of a model.
fn one_job(sink: &Sink, scenario: &Scenario, name: String, table: &Table) -> Option<Workload> {
    one_of_a_model(sink, name, table, "job", |section| job::read(section, scenario).map(|job| Kind::Job(Box::new(job))))
}

/// Inference of a model.
fn one_service(sink: &Sink, scenario: &Scenario, name: String, table: &Table) -> Option<Workload> {
    one_of_a_model(sink, name, table, "service", |section| {
        service::read(section, scenario).map(|service| Kind::Service(Box::new(service)))
    })
}

/// The workload of a model, whose messages have lengths and moments of their own.
fn one_of_a_model(
    sink: &Sink,
    name: String,
    table: &Table,
    keys: &str,
    read: impl FnOnce(&Section<'_>) -> Option<Kind>,
) -> Option<Workload> {
    let section = Section::new(sink, name.clone(), Some(table));
    let class = class(&section, keys);
    let before = sink.count();
    let common = Common {
        size: Bytes::ZERO,
        start: section.span("start").unwrap_or(Span::ZERO),
        jitter: Span::ZERO,
        messages: 1,
        gap: Span::ZERO,
        connections: section.count("connections", 1, 256).unwrap_or(1) as u32,
        hosts: None,
    };
    let kind = read(&section);
    let profile = own_profile(&section);
    keys::finish(section, keys);
    let kind = kind?;
    (sink.count() == before)
        .then_some(Workload { head: Head { class, section: name, common, profile, ordered: None, reads: false }, kind })
}

/// The name of a workload in reports.
fn class(section: &Section<'_>, default: &str) -> String {
    let class = section.text("name").unwrap_or_else(|| default.to_string());
    if class.contains('.') || class.is_empty() {
        section.wrong("name", "must be a name without a point", "reports address it as classes.NAME");
    }
    class
}

/// A profile that is not the run's.
fn own_profile(section: &Section<'_>) -> Option<Profile> {
    section.text("profile").and_then(|name| match profile::named(&name) {
        Ok(profile) => Some(profile),
        Err(said) => {
            let remedy = format!("`strandway explain` lists them all: {}", Profile::NAMES.join(", "));
            section.wrong("profile", said, remedy);
            None
        }
    })
}

fn one(sink: &Sink, scenario: &Scenario, name: String, table: Option<&Table>) -> Option<Workload> {
    let section = Section::new(sink, name.clone(), table);
    let kind = if section.has("kind") { section.choice("kind", &KINDS)? } else { "permutation" };
    section.raw("kind");
    let class = class(&section, kind);
    let before = sink.count();
    let common = common(&section, kind);
    let kind_name = kind;
    let kind = kind_of(&section, scenario, kind, &common);
    let profile = own_profile(&section);
    let ordered = section.ratio("ordered", 0.0, 1.0);
    let readable = matches!(kind_name, "permutation" | "incast" | "outcast" | "poisson" | "flows");
    let reads = readable && section.flag("read").unwrap_or(false);
    keys::finish(section, "workload");
    (sink.count() == before)
        .then_some(Workload { head: Head { class, section: name, common, profile, ordered, reads }, kind: kind? })
}

fn common(section: &Section<'_>, kind: &str) -> Common {
    let sized = !matches!(kind, "matrix" | "flows");
    let size = if sized { section.bytes("size") } else { None };
    if let Some(size) = size
        && (size > SIZE_MAX || size == Bytes::ZERO)
    {
        section.wrong("size", "is not a message that can be sent", "write 1 B to 256 TiB");
    }
    let start = if kind == "matrix" { None } else { section.span("start") };
    // A rank that begins late would delay all messages that it should forward; flows cannot express that yet.
    let jittery = !matches!(kind, "training" | "fsdp" | "all-reduce" | "reduce-scatter" | "all-gather" | "broadcast");
    let jitter = if jittery { section.span("jitter") } else { None };
    let repeats = matches!(kind, "permutation" | "incast" | "outcast" | "flows");
    let messages = if repeats { section.count("messages", 1, 1 << 20) } else { None };
    let gap = if repeats { section.span("gap") } else { None };
    let connections = section.count("connections", 1, 256);
    let hosts = if matches!(kind, "permutation" | "all-to-all" | "poisson" | "incast" | "outcast") {
        section.count("hosts", 2, HOSTS_MAX)
    } else {
        None
    };
    Common {
        size: size.unwrap_or(Bytes(2_000_000)),
        start: start.unwrap_or(Span::ZERO),
        jitter: jitter.unwrap_or(Span::ZERO),
        messages: messages.unwrap_or(1) as u32,
        gap: gap.unwrap_or(Span::ZERO),
        connections: connections.unwrap_or(1) as u32,
        hosts: hosts.map(|n| n as u32),
    }
}

fn kind_of(section: &Section<'_>, scenario: &Scenario, kind: &str, common: &Common) -> Option<Kind> {
    let host = |key: &'static str| section.count(key, 0, HOSTS_MAX - 1).unwrap_or(0) as u32;
    let many = |key: &'static str| section.count(key, 1, HOSTS_MAX).map(|n| n as u32);
    let pick = || match section.choice("pick", &["random", "first", "remote"]) {
        Some("first") => Pick::First,
        Some("remote") => Pick::Remote,
        _ => Pick::Random,
    };
    Some(match kind {
        "permutation" => Kind::Permutation,
        "incast" => Kind::Incast { destination: host("destination"), senders: many("senders"), pick: pick() },
        "outcast" => Kind::Outcast { source: host("source"), receivers: many("receivers"), pick: pick() },
        "all-to-all" | "all-reduce" | "reduce-scatter" | "all-gather" | "broadcast" | "training" | "fsdp" => {
            Kind::Collective(Box::new(collective::read(section, scenario, kind, common.size)?))
        }
        "poisson" => {
            let load = section.ratio("load", 1e-6, 10.0).unwrap_or(0.5);
            let duration = section.span("duration");
            let flows = section.count("flows", 1, FLOWS_MAX);
            let sizes = distribution(section, scenario, common.size)?;
            Kind::Poisson { load, sizes, duration, flows }
        }
        "matrix" => {
            let Some(name) = section.text("file") else {
                if !section.has("file") {
                    section.sink.add(
                        &section.path("file"),
                        "",
                        "is missing",
                        "name a traffic matrix: file = \"FILE.cm\"",
                    );
                }
                return None;
            };
            let unit = match section.choice("start_unit", &["ps", "us"]) {
                Some("us") => StartUnit::Microseconds,
                Some(_) => StartUnit::Picoseconds,
                None => StartUnit::Unsaid,
            };
            match scenario.read(&name).and_then(|(file, text)| Ok((parse_cm_in(&file, &text, unit)?, file))) {
                Ok((matrix, file)) => Kind::Matrix { matrix, file, unit },
                Err(problems) => {
                    section.sink.extend(problems.0);
                    return None;
                }
            }
        }
        _ => Kind::Flows(written(section)?),
    })
}

fn distribution(section: &Section<'_>, scenario: &Scenario, size: Bytes) -> Option<Sizes> {
    let Some(name) = section.text("sizes") else { return Some(Sizes::fixed(size.0)) };
    if section.has("size") {
        section.wrong("sizes", "is given together with `size`", "write one of the two");
    }
    if let Some(sizes) = Sizes::named(&name) {
        return Some(sizes);
    }
    if !name.contains(['.', '/']) {
        let remedy =
            format!("write {}, or a file of lines `bytes, share`", sizes::NAMES.map(|n| format!("\"{n}\"")).join(", "));
        section.wrong("sizes", "is no distribution of sizes", remedy);
        return None;
    }
    let (file, text) = match scenario.read(&name) {
        Ok(read) => read,
        Err(problems) => {
            section.sink.extend(problems.0);
            return None;
        }
    };
    match Sizes::parse(&text) {
        Ok(sizes) => Some(sizes),
        Err((line, what)) => {
            section.sink.extend(vec![strandway_import::Problem {
                file,
                line,
                key: String::new(),
                value: String::new(),
                what,
                remedy: "write lines `bytes, share`, both rising, the last share 1".into(),
            }]);
            None
        }
    }
}

fn written(section: &Section<'_>) -> Option<Vec<FlowKeys>> {
    let items = match section.raw("flows") {
        Some(Value::Array(items)) if !items.is_empty() => items,
        _ => {
            let what = if section.has("flows") { "must be a list with at least one flow" } else { "is missing" };
            let remedy = "write flows = [{ from = 0, to = 1, size = \"2 MB\" }]";
            section.sink.add(&section.path("flows"), "", what, remedy);
            return None;
        }
    };
    let mut flows = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let key = format!("{}[{i}]", section.path("flows"));
        let Value::Table(table) = item else {
            section.sink.add(&key, show(item), "must be a table", "write { from = 0, to = 1, size = \"2 MB\" }");
            continue;
        };
        let entry = Section::new(section.sink, key.clone(), Some(table));
        let end = |name: &'static str| {
            if !entry.has(name) {
                entry.sink.add(&entry.path(name), "", "is missing", "write the number of a host");
            }
            entry.count(name, 0, HOSTS_MAX - 1).map(|n| n as u32)
        };
        let (from, to) = (end("from"), end("to"));
        let size = entry.bytes("size").unwrap_or(Bytes(2_000_000));
        let start = entry.span("start").unwrap_or(Span::ZERO);
        entry.finish();
        if size == Bytes::ZERO || size > SIZE_MAX {
            section.sink.add(&format!("{key}.size"), size, "is not a message that can be sent", "write 1 B to 256 TiB");
        }
        if let (Some(from), Some(to)) = (from, to) {
            flows.push(FlowKeys { from, to, size, start, key });
        }
    }
    Some(flows)
}

/// The number of hosts of the imported matrices, if there are any.
pub(crate) fn nodes(workloads: &[Option<Workload>]) -> Option<u32> {
    workloads
        .iter()
        .flatten()
        .filter_map(|w| match &w.kind {
            Kind::Matrix { matrix, .. } => Some(matrix.nodes),
            _ => None,
        })
        .max()
}

/// The rate of arrivals (flows per second) at which `hosts` hosts offer `load` times their NICs' rate.
pub(crate) fn arrivals(load: f64, rate: Rate, sizes: &Sizes, hosts: u32) -> f64 {
    load * rate.0 as f64 * f64::from(hosts) / (8.0 * sizes.mean())
}

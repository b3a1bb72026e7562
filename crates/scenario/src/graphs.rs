//! `[fabric]` with a graph of switches: dragonfly, torus, HyperX, or a list of links in a file.

use super::shapes::{COUNT_MAX, latency, levels, planes};
use crate::reader::{Section, Sink, show};
use crate::scenario::Scenario;
use strandway_fabric::Topology;
use strandway_fabric::plan::PortSettings;
use strandway_fabric::quantity;
use strandway_fabric::topology::{
    Dragonfly, GRAPH_SWITCHES_MAX, GraphLink, GraphPaths, GraphShape, Level, dragonfly, hyperx, switch_names, torus,
};
use strandway_import::{HOSTS_MAX, Problem, Problems};
use strandway_proto::units::{Rate, Span};
use toml::Value;

/// The kinds of fabric that are graphs.
pub(super) const KINDS: [&str; 4] = ["dragonfly", "torus", "hyperx", "graph"];

/// With more switches than this, routes are not searched for cycles (ours: the search takes the cube of their number).
const SEARCHED_MAX: u32 = 512;

/// Links and names of switches, and the number of switches that have hosts.
struct Switches {
    names: Vec<String>,
    links: Vec<GraphLink>,
    with_hosts: u32,
}

/// Reads the fabric of this kind.
pub(super) fn read(section: &Section<'_>, scenario: &Scenario, kind: &str, nodes: Option<u32>) -> Option<Topology> {
    let planes = planes(section, 1);
    let wanted = section.count("hosts", 1, HOSTS_MAX).or(nodes.filter(|_| !section.has("hosts")).map(u64::from));
    let (levels, inside) = levels(section, planes, Rate::from_gbps(400))?;
    let each = section.count("hosts_per_leaf", 1, COUNT_MAX);
    let paths = paths(section);
    let (switches, each) = match kind {
        "dragonfly" => a_dragonfly(section, wanted, each, levels[1])?,
        "graph" => (listed(section, scenario, levels[1])?, each.unwrap_or(1)),
        "torus" | "hyperx" => {
            let dims = dims(section)?;
            let bundle = if kind == "hyperx" { section.count("bundle", 1, 1024).unwrap_or(1) as u32 } else { 1 };
            let count = dims.iter().product();
            let links = if kind == "torus" { torus(&dims, levels[1]) } else { hyperx(&dims, bundle, levels[1]) };
            let smallest = u64::from(dims.iter().copied().min().unwrap_or(1));
            let each = each.unwrap_or(if kind == "hyperx" { smallest } else { 1 });
            (Switches { names: switch_names(count), links, with_hosts: count }, each)
        }
        _ => unreachable!("{kind} is in `KINDS` and has no branch here"),
    };
    let most = u64::from(switches.with_hosts) * each;
    let hosts = wanted.unwrap_or(most);
    if hosts > most || most > HOSTS_MAX {
        let what = format!("{} switches with {each} hosts each hold {most}", switches.with_hosts);
        section.wrong("hosts", what, format!("write at most {}, or more hosts_per_leaf", most.min(HOSTS_MAX)));
        return None;
    }
    let shape = GraphShape {
        hosts: hosts as u32,
        planes: planes as u8,
        hosts_per_switch: each as u32,
        names: switches.names,
        links: switches.links,
        paths,
    };
    match Topology::of_graph(shape, levels[0], inside[0]) {
        Ok(topology) => Some(topology),
        Err(said) => {
            section.sink.add(section.name(), "", said, "make the fabric smaller or correct its links");
            None
        }
    }
}

/// The paths of packets in a graph.
pub(super) fn paths(section: &Section<'_>) -> GraphPaths {
    match section.choice("paths", &["minimal", "valiant", "ugal"]) {
        Some("valiant") => GraphPaths::Valiant,
        Some("ugal") => GraphPaths::Ugal,
        _ => GraphPaths::Minimal,
    }
}

/// A dragonfly; without numbers of switches a balanced one, with twice as many switches in a group as hosts on a
/// switch, and as many global links.
fn a_dragonfly(section: &Section<'_>, hosts: Option<u64>, each: Option<u64>, local: Level) -> Option<(Switches, u64)> {
    let balanced = |p: u64| p * 2 * p * (2 * p * p + 1);
    let each = each.unwrap_or_else(|| (1..=64).find(|&p| balanced(p) >= hosts.unwrap_or(72)).unwrap_or(64));
    let per_group = section.count("switches_per_group", 1, u64::from(GRAPH_SWITCHES_MAX)).unwrap_or(2 * each);
    let global = section.count("global_links", 1, 1024).unwrap_or(each);
    let most = per_group * global + 1;
    let needed = hosts.map_or(most, |hosts| hosts.div_ceil(each * per_group).clamp(1, most));
    let groups = section.count("groups", 1, u64::from(GRAPH_SWITCHES_MAX)).unwrap_or(needed);
    if groups > most {
        let what = format!("{per_group} switches with {global} global links each join at most {most} groups");
        section.wrong("groups", what, format!("write at most {most}, or more global_links"));
        return None;
    }
    if groups * per_group > u64::from(GRAPH_SWITCHES_MAX) {
        let what = format!("are {} switches, and a graph has at most {GRAPH_SWITCHES_MAX}", groups * per_group);
        section.wrong("groups", what, "write fewer groups or switches_per_group");
        return None;
    }
    let latency = latency(section, "global_latency", local.latency)?;
    let level = Level { rate: section.rate("global_rate").unwrap_or(local.rate), latency };
    let shape = Dragonfly { groups: groups as u32, switches_per_group: per_group as u32, global_links: global as u32 };
    let switches = shape.groups * shape.switches_per_group;
    let links = dragonfly(shape, local, level);
    Some((Switches { names: switch_names(switches), links, with_hosts: switches }, each))
}

/// The sizes of the dimensions.
fn dims(section: &Section<'_>) -> Option<Vec<u32>> {
    let remedy = "write the switches in each dimension, such as dims = [4, 4, 4]";
    let Some(value) = section.raw("dims") else {
        section.sink.add("fabric.dims", "", "is missing", remedy);
        return None;
    };
    let size =
        |value: &Value| value.as_integer().and_then(|n| u32::try_from(n).ok()).filter(|n| (2..=4096).contains(n));
    let dims: Option<Vec<u32>> = value.as_array().and_then(|sizes| sizes.iter().map(size).collect());
    let dims = dims.filter(|dims| (1..=8).contains(&dims.len()));
    let fits = |dims: &Vec<u32>| {
        dims.iter().fold(1u64, |all, &n| all.saturating_mul(u64::from(n))) <= u64::from(GRAPH_SWITCHES_MAX)
    };
    match dims {
        None => section.wrong("dims", "must be one to eight whole numbers from 2 to 4096", remedy),
        Some(dims) if fits(&dims) => return Some(dims),
        Some(_) => {
            let what = format!("have more than {GRAPH_SWITCHES_MAX} switches, the most that a graph has");
            section.wrong("dims", what, "write smaller numbers");
        }
    }
    None
}

/// The switches and links of a file; switches named in `hosts_at` come first.
fn listed(section: &Section<'_>, scenario: &Scenario, usual: Level) -> Option<Switches> {
    let Some(name) = section.text("edges") else {
        if !section.has("edges") {
            let remedy = "name a CSV file with the columns from and to: edges = \"FILE.csv\"";
            section.sink.add("fabric.edges", "", "is missing", remedy);
        }
        return None;
    };
    let parsed = scenario.read(&name).and_then(|(file, text)| edges(&file, &text, usual));
    let (mut names, links) = match parsed {
        Ok(parsed) => parsed,
        Err(problems) => {
            section.sink.extend(problems.0);
            return None;
        }
    };
    let mut with_hosts = names.len() as u32;
    let mut order: Vec<usize> = (0..names.len()).collect();
    if let Some(value) = section.raw("hosts_at") {
        let listed: Option<Vec<&str>> = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
        let Some(listed) = listed.filter(|listed| !listed.is_empty()) else {
            section.wrong(
                "hosts_at",
                "must be a list of names",
                "write the switches that have hosts: [\"leaf0\", \"leaf1\"]",
            );
            return None;
        };
        if let Some(unknown) = listed.iter().find(|wanted| !names.iter().any(|name| name == *wanted)) {
            section.wrong("hosts_at", format!("no link has a switch \"{unknown}\""), format!("write a name of {name}"));
            return None;
        }
        order.sort_by_key(|&at| listed.iter().position(|wanted| *wanted == names[at]).unwrap_or(usize::MAX));
        with_hosts = names.iter().filter(|name| listed.contains(&name.as_str())).count() as u32;
    }
    let mut place = vec![0; names.len()];
    order.iter().zip(0u32..).for_each(|(&at, now)| place[at] = now);
    names = order.iter().map(|&at| names[at].clone()).collect();
    let moved = |link: GraphLink| GraphLink { a: place[link.a as usize], b: place[link.b as usize], ..link };
    Some(Switches { names, links: links.into_iter().map(moved).collect(), with_hosts })
}

/// The names of switches in the order in which they appear, and the links, of a CSV file with the columns `from`, `to`,
/// and, if it has them, `rate`, `latency`, `count` and `cost`.
fn edges(file: &str, text: &str, usual: Level) -> Result<(Vec<String>, Vec<GraphLink>), Problems> {
    let problem = |line: usize, value: &str, what: String, remedy: &str| Problem {
        file: file.to_string(),
        line: Some(line),
        key: String::new(),
        value: value.to_string(),
        what,
        remedy: remedy.to_string(),
    };
    let mut lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty() && !line.starts_with('#'));
    let (head, head_line) = lines.next().unwrap_or(("", 1));
    let columns: Vec<&str> = head.split(',').map(str::trim).collect();
    const KNOWN: [&str; 6] = ["from", "to", "rate", "latency", "count", "cost"];
    let remedy = "write the columns in the first line: from,to,rate,latency,count,cost (the last four may be absent)";
    let at = |name: &str| columns.iter().position(|column| *column == name);
    let (Some(from), Some(to)) = (at("from"), at("to")) else {
        return Err(Problems(vec![problem(head_line, head, "has no columns `from` and `to`".into(), remedy)]));
    };
    if let Some(unknown) = columns.iter().find(|column| !KNOWN.contains(column)) {
        return Err(Problems(vec![problem(head_line, unknown, "is no column of a list of links".into(), remedy)]));
    }
    let (mut names, mut links, mut wrong): (Vec<String>, Vec<GraphLink>, Vec<Problem>) = Default::default();
    let mut known = std::collections::BTreeMap::new();
    for (line, number) in lines {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let field = |name: &str| at(name).and_then(|at| fields.get(at)).copied().filter(|text| !text.is_empty());
        if fields.len() > columns.len()
            || fields.get(from).is_none_or(|f| f.is_empty())
            || fields.get(to).is_none_or(|t| t.is_empty())
        {
            let what = format!("must have {} columns, with two names", columns.len());
            wrong.push(problem(number, line, what, remedy));
            continue;
        }
        let mut number_of = |name: &str| {
            *known.entry(name.to_string()).or_insert_with(|| {
                names.push(name.to_string());
                names.len() as u32 - 1
            })
        };
        let (a, b) = (number_of(fields[from]), number_of(fields[to]));
        let mut level = usual;
        let mut complain =
            |value: &str, what: String| wrong.push(problem(number, value, what, "write, say, 400 Gbps, 1 us, 2"));
        if let Some(text) = field("rate") {
            match quantity::rate(text) {
                Ok(rate) => level.rate = rate,
                Err(said) => complain(text, said.what),
            }
        }
        if let Some(text) = field("latency") {
            match quantity::span(text) {
                Ok(span) if span <= Span::from_ms(1000) => level.latency = span,
                Ok(_) => complain(text, "is more than a second".into()),
                Err(said) => complain(text, said.what),
            }
        }
        let cost = field("cost").map_or(Ok(1), str::parse::<u8>).unwrap_or(0);
        if !(1..=100).contains(&cost) {
            complain(field("cost").unwrap_or_default(), "is no cost from 1 to 100".into());
        }
        let count = field("count").map_or(Ok(1), str::parse::<u16>);
        match count {
            Ok(count @ 1..=1024) => {
                links.extend(std::iter::repeat_n(GraphLink { a, b, level, cost }, usize::from(count)));
            }
            _ => complain(field("count").unwrap_or_default(), "is no number of links from 1 to 1024".into()),
        }
        if names.len() > GRAPH_SWITCHES_MAX as usize || links.len() > 1 << 24 {
            let what = format!("has more than {GRAPH_SWITCHES_MAX} switches or 16,777,216 links");
            return Err(Problems(vec![problem(number, line, what, "make the graph smaller")]));
        }
    }
    for (name, number) in names.iter().zip(1..) {
        let ambiguous = name.strip_prefix("host").is_some_and(|rest| rest.parse::<u32>().is_ok());
        if ambiguous || name.contains(['>', '#', '.']) {
            let what =
                "cannot be the name of a switch: hosts have the names host0, host1, ..., and names have no > # .";
            wrong.push(problem(
                number,
                name,
                what.into(),
                "name switches, not hosts; hosts_per_leaf gives each its hosts",
            ));
        }
    }
    if names.is_empty() && wrong.is_empty() {
        wrong.push(problem(head_line, "", "has no links".into(), "write a line per link: from,to"));
    }
    if wrong.is_empty() { Ok((names, links)) } else { Err(Problems(wrong)) }
}

/// Refuses keys of other kinds of fabric, and a routing that a graph does not have.
pub(super) fn refuse_routing(sink: &Sink, name: &str) {
    let what = "names uplinks, and a graph has none: each switch looks up which ports lead nearer";
    sink.add(
        "fabric.routing",
        show(&Value::String(name.into())),
        what,
        "choose \"hashed\", \"adaptive\" or \"flowlet\"",
    );
}

/// Sentences about a graph that its user should know.
pub(super) fn cautions(topology: &Topology, ports: &PortSettings) -> Vec<String> {
    let mut notes = Vec::new();
    let Some(graph) = topology.graph() else { return notes };
    if ports.pfc.is_some() {
        if graph.switches() > SEARCHED_MAX {
            notes.push(format!(
                "fabric: with PFC, a graph can deadlock; routes of more than {SEARCHED_MAX} switches are not searched for cycles"
            ));
        } else if graph.has_cycle() {
            notes.push(
                "fabric: the routes of this graph depend on each other in a cycle, so with PFC it can deadlock".into(),
            );
        }
    }
    if graph.paths() != GraphPaths::Minimal {
        notes.push(
            "fabric: base RTT and BDP are those of the longest shortest path; paths over another switch are longer"
                .into(),
        );
    }
    notes
}

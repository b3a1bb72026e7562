//! `[[faults]]`: what breaks, and when.

use crate::problem::nearest;
use crate::reader::{Section, Sink, show};
use strandway_fabric::fault::{FaultKind, FaultPlan};
use strandway_fabric::loss::Burst;
use strandway_fabric::quantity;
use strandway_fabric::topology::LinkEnds;
use strandway_fabric::{LinkId, NodeId, Topology};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Rate, Span, Time};
use toml::{Table, Value};

/// The most intervals that flapping may expand to.
const EXPANSION_MAX: u64 = 100_000;

const TARGETS: [&str; 6] = ["link", "between", "switch", "port", "plane", "tier"];

/// One `[[faults]]` of a scenario, for reports.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultNote {
    /// Where it strikes and what it does, such as `plane 2 down, silent`.
    pub what: String,
    /// From when.
    pub from: Time,
    /// Until when; [`Time::NEVER`] for good.
    pub until: Time,
    /// How many directed links it strikes.
    pub links: usize,
}

/// All faults of a scenario: for the simulator and for reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) plans: Vec<FaultPlan>,
    pub(crate) notes: Vec<FaultNote>,
}

/// Every key of a fault, whatever its kind and target.
const KEYS: [&str; 22] = [
    "enabled",
    "kind",
    "link",
    "between",
    "switch",
    "port",
    "plane",
    "tier",
    "pick",
    "count",
    "one_way",
    "per_switch",
    "at",
    "until",
    "silent",
    "reconverge",
    "period",
    "duty",
    "rate",
    "fraction",
    "probability",
    "burst",
];

/// Reads all faults of a scenario.
pub(crate) fn read(sink: &Sink, root: &Table, topology: &Topology, seed: u64, time_limit: Time) -> Faults {
    let one;
    let items: &[Value] = match root.get("faults") {
        None => return Faults::default(),
        Some(Value::Array(items)) => items,
        Some(table @ Value::Table(_)) => {
            one = [table.clone()];
            &one
        }
        Some(other) => {
            sink.add("faults", show(other), "must be a list of tables", "write [[faults]] above each fault");
            return Faults::default();
        }
    };
    let mut faults = Faults::default();
    for (i, item) in items.iter().enumerate() {
        let name = if items.len() == 1 { "faults".to_string() } else { format!("faults[{i}]") };
        match item {
            Value::Table(table) => {
                let section = Section::new(sink, name, Some(table));
                let random = Random::new(seed, StreamKind::Fault, i as u64);
                let enabled = section.flag("enabled").unwrap_or(true);
                let (plans, note) = fault(section, topology, random, time_limit);
                if enabled {
                    faults.plans.extend(plans);
                    faults.notes.extend(note);
                }
            }
            other => sink.add(&name, show(other), "must be a table", "write [[faults]] above each fault"),
        }
    }
    faults
}

fn fault(
    section: Section<'_>,
    topology: &Topology,
    random: Random,
    time_limit: Time,
) -> (Vec<FaultPlan>, Option<FaultNote>) {
    let links = target(&section, topology, random);
    let kind = section.choice("kind", &["down", "flap", "degrade", "loss"]);
    if !section.has("kind") {
        section.sink.add(&section.path("kind"), "", "is missing", "write down, flap, degrade or loss");
    }
    let from = Time(section.span("at").unwrap_or(Span::ZERO).0);
    let until = section.span("until").map_or(Time::NEVER, |s| Time(s.0));
    if until <= from {
        section.wrong("until", format!("is not after the start, {from}"), "write a later time, or leave it out");
        section.finish_knowing(&KEYS);
        return (Vec::new(), None);
    }
    let note = links.as_ref().map(|l| FaultNote { what: told(&section), from, until, links: l.len() });
    let mut plans = Vec::new();
    let mut add = |kind, from, until| {
        if let Some(links) = &links {
            plans.push(FaultPlan { links: links.clone(), kind, from, until });
        }
    };
    let down = |section: &Section<'_>| {
        let silent = section.flag("silent").unwrap_or(false);
        let reconverge = section.span("reconverge");
        if silent && reconverge.is_some() {
            section.wrong(
                "reconverge",
                "routing never learns of a silent fault",
                "leave it out, or set silent = false",
            );
        }
        FaultKind::Down { visible: (!silent).then(|| reconverge.unwrap_or(Span::from_ms(1))) }
    };
    match kind {
        Some("down") => add(down(&section), from, until),
        Some("flap") => {
            let period = section.span("period").unwrap_or(Span::from_us(100));
            let duty = section.ratio("duty", 0.0, 1.0).unwrap_or(0.5);
            let kind = down(&section);
            let end = until.min(time_limit);
            let count = end.since(from).0 / period.0.max(1);
            let dark = Span((period.0 as f64 * (1.0 - duty)) as u64);
            if count > EXPANSION_MAX || period == Span::ZERO {
                let what = format!("the link would go down more than {EXPANSION_MAX} times");
                section.wrong("period", what, "write a longer period or an earlier `until`");
            } else if dark > Span::ZERO {
                // Each period starts dark and ends lit.
                let mut at = from;
                while at < end {
                    add(kind, at, (at + dark).min(end));
                    at = at + period;
                }
            }
        }
        Some("degrade") => {
            let rate = section.rate("rate");
            let fraction = section.ratio("fraction", 1e-6, 1.0);
            let full = links.as_ref().and_then(|l| l.first()).and_then(|l| topology.ends(*l));
            let fraction = match (fraction, rate, full) {
                (Some(fraction), None, _) => Some(fraction),
                (None, Some(rate), Some(ends)) => of_rate(&section, rate, topology.level_of(&ends).rate),
                (Some(_), Some(_), _) => {
                    section.wrong("rate", "is given together with `fraction`", "write one of the two");
                    None
                }
                (None, None, _) => {
                    let remedy = "write, say, fraction = 0.25 or rate = \"100 Gbps\"";
                    section.sink.add(&section.path("fraction"), "", "is missing", remedy);
                    None
                }
                (None, Some(_), None) => None,
            };
            if let Some(fraction) = fraction {
                add(FaultKind::Degraded { fraction }, from, until);
            }
        }
        Some("loss") => match section.ratio("probability", 0.0, 1.0) {
            Some(probability) => {
                let burst = burst_of(&section).unwrap_or(Burst::NONE);
                add(FaultKind::Loss { probability, burst }, from, until);
            }
            None if section.has("probability") => {}
            None => section.sink.add(&section.path("probability"), "", "is missing", "write, say, probability = 0.01"),
        },
        _ => {}
    }
    section.finish_knowing(&KEYS);
    (plans, note)
}

/// A fault in words, from what is written: `leaf0 - spine3 at 25 % of its rate`.
fn told(section: &Section<'_>) -> String {
    let text = |key: &'static str| match section.raw(key) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => Some(show(other)),
        None => None,
    };
    let flag = |key| section.raw(key) == Some(&Value::Boolean(true));
    let place = TARGETS.iter().find_map(|key| Some((*key, section.raw(key)?)));
    let place = match place {
        Some(("between", Value::Array(ends))) => ends.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" - "),
        Some(("plane", plane)) => format!("plane {}", show(plane)),
        Some(("tier", Value::String(tier))) => match text("count") {
            Some(count) if flag("per_switch") => format!("{count} of each switch's {tier} links"),
            Some(count) => format!("{count} {tier} links"),
            None => format!("{tier} links"),
        },
        Some((_, Value::String(name))) => name.clone(),
        _ => String::new(),
    };
    let silent = if flag("silent") { ", silent" } else { "" };
    let effect = match text("kind").as_deref() {
        Some("down") => format!("down{silent}"),
        Some("flap") => format!("flapping every {}{silent}", text("period").unwrap_or_else(|| "100 us".into())),
        Some("degrade") => match (text("fraction"), text("rate")) {
            (Some(fraction), _) => match quantity::ratio(&fraction) {
                Ok(share) => format!("at {} % of its rate", share * 100.0),
                Err(_) => format!("at {fraction} of its rate"),
            },
            (None, rate) => format!("at {}", rate.unwrap_or_default()),
        },
        Some("loss") => {
            let share = text("probability").and_then(|p| quantity::ratio(&p).ok()).unwrap_or(0.0);
            loses(share, written_burst(section.raw("burst")).unwrap_or(Burst::NONE))
        }
        other => other.unwrap_or_default().to_string(),
    };
    format!("{place} {effect}")
}

/// What a link does that loses packets.
pub(super) fn loses(share: f64, burst: Burst) -> String {
    let burst = match burst {
        Burst::NONE => String::new(),
        Burst::Packets(length) => format!(", {length} in a row on average"),
        Burst::Time(length) => format!(", for {length} at a time on average"),
    };
    format!("loses {} % of packets{burst}", share * 100.0)
}

/// `burst = 8` or `burst = "100 us"`, as far as it is sound.
fn written_burst(value: Option<&Value>) -> Option<Burst> {
    match value? {
        Value::String(text) => match quantity::span(text) {
            Ok(length) => Some(Burst::Time(length)),
            Err(_) => quantity::ratio(text).ok().map(Burst::Packets),
        },
        Value::Integer(n) => Some(Burst::Packets(*n as f64)),
        Value::Float(x) => Some(Burst::Packets(*x)),
        _ => None,
    }
}

/// How long losses last: a number of packets, or a time.
pub(super) fn burst_of(section: &Section<'_>) -> Option<Burst> {
    match written_burst(section.raw("burst")) {
        Some(Burst::Time(Span::ZERO)) => {
            section.wrong("burst", "lasts for no time", "write, say, \"100 us\" or, in packets, 4");
            None
        }
        Some(burst @ Burst::Time(_)) => Some(burst),
        _ => section.ratio("burst", 1.0, 1e6).map(Burst::Packets),
    }
}

fn of_rate(section: &Section<'_>, rate: Rate, full: Rate) -> Option<f64> {
    if rate > full {
        section.wrong("rate", format!("is more than the link's {full}"), "write less");
        return None;
    }
    Some(rate.0 as f64 / full.0 as f64)
}

/// The links that a fault strikes.
fn target(section: &Section<'_>, topology: &Topology, random: Random) -> Option<Vec<LinkId>> {
    let given: Vec<&str> = TARGETS.iter().copied().filter(|key| section.has(key)).collect();
    if given.len() != 1 {
        let what = if given.is_empty() {
            "says not where it strikes".to_string()
        } else {
            format!("has {}", given.join(" and "))
        };
        section.sink.add(section.name(), "", what, format!("write exactly one of {}", TARGETS.join(", ")));
        for key in TARGETS {
            section.raw(key);
        }
        return None;
    }
    let found = match given[0] {
        "link" => {
            let name = section.text("link")?;
            matching(topology, &name)
        }
        "switch" => node(topology, &section.text("switch")?).map(|node| around(topology, node)),
        "port" => {
            let name = section.text("port")?;
            port(topology, &name)
        }
        "between" => match section.raw("between") {
            Some(Value::Array(ends)) if ends.len() == 2 && ends.iter().all(Value::is_str) => {
                let ends: Vec<&str> = ends.iter().filter_map(Value::as_str).collect();
                node(topology, ends[0]).and_then(|a| node(topology, ends[1]).and_then(|b| between(topology, a, b)))
            }
            _ => Err(("must be two node names".into(), "write between = [\"leaf0\", \"spine1\"]".into())),
        },
        "plane" => {
            let count = u64::from(topology.planes());
            let beyond =
                |value: &Value| matches!(value, Value::Integer(n) if u64::try_from(*n).is_ok_and(|n| n >= count));
            if section.raw("plane").is_some_and(beyond) {
                let (what, remedy) = match count {
                    1 => ("there is only one plane".to_string(), "write 0, or raise fabric.planes".to_string()),
                    _ => (
                        format!("there are only {count} planes, numbered from 0 to {}", count - 1),
                        "write one of them".to_string(),
                    ),
                };
                section.wrong("plane", what, remedy);
                return None;
            }
            let plane = section.count("plane", 0, count - 1)?;
            Ok(links(topology).filter(|(_, e)| u64::from(e.plane) == plane).map(|(l, _)| l).collect())
        }
        _ => return tier(section, topology, random),
    };
    match found {
        Ok(links) => Some(links),
        Err((what, remedy)) => {
            section.wrong(given[0], what, remedy);
            None
        }
    }
}

/// Every link that exists, with its ends.
fn links(topology: &Topology) -> impl Iterator<Item = (LinkId, LinkEnds)> {
    (0..topology.links()).map(LinkId).filter_map(|l| topology.ends(l).map(|e| (l, e)))
}

/// `tier = "agg->core", count = 8`: some cables of a level.
fn tier(section: &Section<'_>, topology: &Topology, mut random: Random) -> Option<Vec<LinkId>> {
    let name = section.text("tier")?;
    let mut names: Vec<String> =
        topology.groups().iter().filter(|g| g.plane == 0).map(|g| g.name.replace(".p0", "")).collect();
    let Some(group) = names.iter().position(|n| *n == name) else {
        let near = nearest(&name, names.iter().map(String::as_str)).map(str::to_string);
        names.dedup();
        let remedy = near.map_or_else(|| format!("known: {}", names.join(", ")), |n| format!("did you mean \"{n}\"?"));
        section.wrong("tier", "is no tier of this fabric", remedy);
        return None;
    };
    let (level, up) = (group / 2, group % 2 == 0);
    let pick = section.choice("pick", &["first", "random"]).unwrap_or("first");
    let one_way = section.flag("one_way").unwrap_or(false);
    let per_switch = section.flag("per_switch").unwrap_or(false);
    // Cables are counted by their upward link, whichever direction is named, so that both directions mean the same ones.
    let mut cables: Vec<(LinkId, LinkEnds)> = links(topology).filter(|(_, e)| e.level == level && e.up).collect();
    let count = section.count("count", 1, cables.len() as u64)? as usize;
    if pick == "random" {
        random.shuffle(&mut cables);
    }
    if per_switch {
        let mut taken = vec![0usize; topology.nodes() as usize];
        cables.retain(|(_, e)| {
            taken[e.from.0 as usize] += 1;
            taken[e.from.0 as usize] <= count
        });
    } else {
        cables.truncate(count);
    }
    let mut struck: Vec<LinkId> = cables
        .iter()
        .flat_map(|&(link, ends)| match (one_way, up) {
            (true, true) => vec![link],
            (true, false) => vec![ends.reverse],
            (false, _) => vec![link, ends.reverse],
        })
        .collect();
    struck.sort_unstable();
    Some(struck)
}

type Found<T> = Result<T, (String, String)>;

fn node(topology: &Topology, name: &str) -> Found<NodeId> {
    if let Some(node) = topology.node_named(name) {
        return Ok(node);
    }
    let named = |node: u32| topology.node_name(NodeId(node));
    let bases = topology.node_bases();
    let kinds: Vec<String> = [
        "hosts",
        if topology.sites() > 0 { "sites" } else { "leaves" },
        if topology.tiers() == 2 { "spines" } else { "aggs" },
        "cores",
    ]
    .iter()
    .zip(bases.windows(2))
    .filter(|(_, range)| range[0] < range[1])
    .map(|(kind, range)| format!("{} {kind} ({} to {})", range[1] - range[0], named(range[0]), named(range[1] - 1)))
    .collect();
    let near = (0..topology.nodes().min(100_000)).map(|n| topology.node_name(NodeId(n))).collect::<Vec<_>>();
    let hint =
        nearest(name, near.iter().map(String::as_str)).map(|n| format!("did you mean \"{n}\"? ")).unwrap_or_default();
    Err((format!("there is no \"{name}\" in this fabric"), format!("{hint}It has {}", kinds.join(", "))))
}

fn between(topology: &Topology, a: NodeId, b: NodeId) -> Found<Vec<LinkId>> {
    let mut both = topology.links_between(a, b);
    both.extend(topology.links_between(b, a));
    if both.is_empty() {
        let what = format!("no link joins {} and {}", topology.node_name(a), topology.node_name(b));
        let mut next: Vec<String> = around(topology, a)
            .iter()
            .filter_map(|l| topology.ends(*l))
            .filter(|e| e.from == a)
            .map(|e| topology.node_name(e.to))
            .collect();
        next.dedup();
        next.truncate(6);
        return Err((what, format!("neighbours of {}: {}", topology.node_name(a), next.join(", "))));
    }
    Ok(both)
}

/// The links of a node, out and in.
fn around(topology: &Topology, node: NodeId) -> Vec<LinkId> {
    let (first, count) = topology.ports_of(node);
    (first.0..first.0 + count).map(LinkId).filter_map(|l| topology.ends(l).map(|e| [l, e.reverse])).flatten().collect()
}

/// `host3.p1`: a NIC's port, both directions.
fn port(topology: &Topology, name: &str) -> Found<Vec<LinkId>> {
    let wrong = || {
        let (last, hosts) = (topology.planes() - 1, topology.hosts());
        (
            format!("\"{name}\" is no port of a NIC"),
            match last {
                0 => format!("write, say, \"host0.p0\"; there are {hosts} hosts with one port each"),
                _ => format!(
                    "write, say, \"host0.p{last}\"; there are {hosts} hosts with {} ports each, numbered from 0 to {last}",
                    last + 1
                ),
            },
        )
    };
    let (host, plane) = name.rsplit_once(".p").ok_or_else(wrong)?;
    let plane: u32 = plane.parse().ok().filter(|p| *p < u32::from(topology.planes())).ok_or_else(wrong)?;
    let node = node(topology, host)?;
    if node.0 >= topology.hosts() {
        return Err(wrong());
    }
    let link = LinkId(topology.ports_of(node).0.0 + plane);
    let ends = topology.ends(link).ok_or_else(wrong)?;
    Ok(vec![link, ends.reverse])
}

/// One link by name, or all that match a name with `*`.
fn matching(topology: &Topology, name: &str) -> Found<Vec<LinkId>> {
    if name.contains('*') {
        let found: Vec<LinkId> =
            links(topology).filter(|(l, _)| glob(name, &topology.link_name(*l))).map(|(l, _)| l).collect();
        if found.is_empty() {
            let all = links(topology).count();
            let some = links(topology).find(|(_, e)| e.level == 1).or(links(topology).next());
            let some = some.map(|(link, _)| topology.link_name(link)).unwrap_or_default();
            let remedy = format!("there are {all} links, with names like \"{some}\"");
            return Err((format!("no link matches \"{name}\""), remedy));
        }
        return Ok(found);
    }
    let (plain, nth) = name.split_once('#').map_or((name, Some(0)), |(n, i)| (n, i.parse::<usize>().ok()));
    let Some((from, to)) = plain.split_once("->") else {
        return Err((format!("\"{name}\" is no link"), "write, say, \"leaf0->spine1\"".into()));
    };
    let (from, to) = (node(topology, from)?, node(topology, to)?);
    let parallel = topology.links_between(from, to);
    if parallel.is_empty() {
        return between(topology, from, to).and(Err((format!("\"{name}\" is no link"), "check its direction".into())));
    }
    match nth.and_then(|n| parallel.get(n)) {
        Some(link) => Ok(vec![*link]),
        None => Err((
            match parallel.len() {
                1 => "there is only one such link, number 0".to_string(),
                n => format!("there are {n} parallel links, numbered from 0"),
            },
            "correct the number after #".into(),
        )),
    }
}

/// Does `name` match `pattern`, where `*` stands for any text?
pub(crate) fn glob(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(first) = parts.next() else { return name.is_empty() };
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// What `[run] capture` means: all links of a node, or one link.
pub(crate) fn links_named(topology: &Topology, name: &str) -> Found<Vec<LinkId>> {
    if name.contains("->") { matching(topology, name) } else { node(topology, name).map(|n| around(topology, n)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_text() {
        for (pattern, name, wanted) in [
            ("leaf*->spine0", "leaf12->spine0", true),
            ("leaf*->spine0", "leaf12->spine1", false),
            ("*", "anything", true),
            ("*->host3", "leaf0->host3", true),
            ("leaf0->*", "leaf0->spine3", true),
            ("leaf*spine*", "leaf0->spine3", true),
            ("leaf*0->spine", "leaf0->spine3", false),
        ] {
            assert_eq!(glob(pattern, name), wanted, "{pattern} {name}");
        }
    }
}

//! The links of a fault: one link, or the links of a node, a port, a plane, or a part of a tier.

use crate::reader::Section;
use strandway_fabric::topology::LinkEnds;
use strandway_fabric::{LinkId, NodeId, Topology};
use strandway_import::nearest;
use strandway_proto::rng::Random;
use toml::Value;

/// The keys that name the links of a fault.
pub(crate) const TARGETS: [&str; 6] = ["link", "between", "switch", "port", "plane", "tier"];

/// The links of a fault.
pub(super) fn target(section: &Section<'_>, topology: &Topology, random: Random) -> Option<Vec<LinkId>> {
    let given: Vec<&str> = TARGETS.iter().copied().filter(|key| section.has(key)).collect();
    if given.len() != 1 {
        let what = if given.is_empty() { "has no target".to_string() } else { format!("has {}", given.join(" and ")) };
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

/// All connected links, with their ends.
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
    // Cables are counted by their upward link. So both directions of a tier name the same cables.
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
        match topology.graph() {
            Some(_) => "switches",
            None if topology.sites() > 0 => "sites",
            None => "leaves",
        },
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

/// All links of a node, out and in.
fn around(topology: &Topology, node: NodeId) -> Vec<LinkId> {
    let (first, count) = topology.ports_of(node);
    (first.0..first.0 + count).map(LinkId).filter_map(|l| topology.ends(l).map(|e| [l, e.reverse])).flatten().collect()
}

/// `host3.p1`: a port of a NIC, in both directions.
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

/// The link with this name, or all links that match a name with `*`.
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

/// True if `name` matches `pattern`, in which `*` stands for any text.
pub fn glob(pattern: &str, name: &str) -> bool {
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

/// The links that `[run] capture` names: all links of a node, or one link.
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

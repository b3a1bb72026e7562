//! Parts of a fabric by the names that operators use, as targets of `[[faults]]`.

use strandway_fabric::Topology;
use strandway_import::Problem;
use toml::{Table, Value};

/// A part: its name as written, and the targets that it stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) targets: Vec<Table>,
}

/// A plane, or all of them.
type Plane = Option<u32>;

impl Part {
    /// Reads a name. Accepted are names of scenarios (`spine1.p0`, `leaf0.p0-spine1.p0`, `host3.p1`), of namespaces
    /// (`t1-p0-1`), of reports (`p0:t1-1`, `p0:t0-0:t1-1`, `p0:h3`, `p0`, `link:p0:t0-0:t1-1`), and a switch of all planes
    /// (`T1-1`).
    ///
    /// # Errors
    /// With what is wrong, and what exists.
    pub(crate) fn read(topology: &Topology, name: &str) -> Result<Part, Box<Problem>> {
        let targets = targets(topology, name).map_err(|(what, remedy)| {
            let (key, value) = ("--drain".into(), name.into());
            Box::new(Problem { key, value, what, remedy, ..Problem::default() })
        })?;
        Ok(Part { name: name.into(), targets })
    }
}

type Wrong = (String, String);

fn targets(topology: &Topology, name: &str) -> Result<Vec<Table>, Wrong> {
    let bare = ["link:", "switch:", "plane:", "port:"].iter().find_map(|kind| name.strip_prefix(kind)).unwrap_or(name);
    let lower = bare.to_ascii_lowercase();
    let words: Vec<&str> = lower.split(':').collect();
    let (plane, rest): (Plane, &[&str]) = match words[0].strip_prefix('p').and_then(|text| text.parse().ok()) {
        Some(plane) => (Some(plane), &words[1..]),
        // `port:h0:p1` has the plane behind.
        None => match words[..] {
            [node, plane] => {
                let Some(plane) = plane.strip_prefix('p').and_then(|text| text.parse().ok()) else {
                    return Err(unknown(name));
                };
                return ports(topology, node, Some(plane), name);
            }
            _ => (None, &words[..]),
        },
    };
    if let Some(plane) = plane.filter(|plane| *plane >= u32::from(topology.planes())) {
        let last = topology.planes() - 1;
        return Err((format!("there is no plane {plane}"), format!("planes are p0 to p{last}")));
    }
    match rest {
        [] => {
            let plane = plane.ok_or_else(|| unknown(name))?;
            Ok(vec![Table::from_iter([("plane".to_string(), Value::Integer(plane.into()))])])
        }
        [one] if one.starts_with('h') && !one.contains('-') => ports(topology, one, plane, name),
        [one] => match one
            .split_once("-spine")
            .or(one.split_once("-leaf"))
            .or(one.split_once("-agg"))
            .or(one.split_once("-core"))
        {
            // A link by the scenario's names.
            Some((low, _)) => {
                let [a, b] = [low, &one[low.len() + 1..]];
                Ok(vec![between(&exists(topology, a, name)?, &exists(topology, b, name)?)])
            }
            None => switches(topology, one, plane, name)?.iter().map(|switch| Ok(of("switch", switch))).collect(),
        },
        [a, b] => {
            if a.starts_with('h') && !a.contains('-') {
                return ports(topology, a, plane, name);
            }
            let (low, high) = (switches(topology, a, plane, name)?, switches(topology, b, plane, name)?);
            Ok(low.iter().zip(&high).map(|(a, b)| between(a, b)).collect())
        }
        _ => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Wrong {
    (
        format!("`{name}` is no part of a fabric"),
        "write T1-3 (in all planes), p0:t1-3 or spine3.p0, a link p0:t0-2:t1-3, a port host3.p1, or a plane p1".into(),
    )
}

fn of(key: &str, name: &str) -> Table {
    Table::from_iter([(key.to_string(), Value::String(name.into()))])
}

fn between(a: &str, b: &str) -> Table {
    let names = [a, b].map(|name| Value::String(name.into())).to_vec();
    Table::from_iter([("between".to_string(), Value::Array(names))])
}

/// The scenario's name of a node if the fabric has it.
fn exists(topology: &Topology, node: &str, name: &str) -> Result<String, Wrong> {
    let has = topology.node_named(node).is_some();
    if has { Ok(node.to_string()) } else { Err((format!("the fabric has no node `{node}`"), unknown(name).1)) }
}

/// Ports of a host, in one plane or in all.
fn ports(topology: &Topology, host: &str, plane: Plane, name: &str) -> Result<Vec<Table>, Wrong> {
    let text = host.strip_prefix("host").or(host.strip_prefix('h')).unwrap_or(host);
    let (number, own) = text.split_once(".p").map_or((text, None), |(number, plane)| (number, plane.parse().ok()));
    let number: u32 = number.parse().map_err(|_| unknown(name))?;
    let hosts = topology.hosts();
    if number >= hosts {
        return Err((format!("there is no host {number}"), format!("hosts are host0 to host{}", hosts - 1)));
    }
    let plane = plane.or(own);
    let planes: Vec<u32> = (0..u32::from(topology.planes())).filter(|p| plane.is_none_or(|only| only == *p)).collect();
    Ok(planes.into_iter().map(|plane| of("port", &format!("host{number}.p{plane}"))).collect())
}

/// The scenario's names of a switch, in one plane or in all.
fn switches(topology: &Topology, text: &str, plane: Plane, name: &str) -> Result<Vec<String>, Wrong> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| unknown(name));
    let (tier, plane, at) = match text.split('-').collect::<Vec<_>>()[..] {
        [tier @ ("t0" | "t1" | "t2"), at] => (tier, plane, number(at)?),
        [tier @ ("t0" | "t1" | "t2"), of, at] => {
            (tier, Some(number(of.strip_prefix('p').ok_or_else(|| unknown(name))?)?), number(at)?)
        }
        // The scenario's own name; without its plane, in all planes.
        [own] => {
            let planes = topology.planes();
            let whole = own.contains(".p") || planes == 1;
            let names = (0..planes).filter(|p| plane.is_none_or(|only| only == u32::from(*p)));
            let names: Vec<String> =
                if whole { vec![own.into()] } else { names.map(|p| format!("{own}.p{p}")).collect() };
            return names.iter().map(|node| exists(topology, node, name)).collect();
        }
        _ => return Err(unknown(name)),
    };
    if topology.sites() > 0 && tier != "t0" {
        return Err(("sites are joined by long links, not by switches".into(), "name a link, site0-site1".into()));
    }
    let bare = match (tier, topology.tiers()) {
        ("t0", _) if topology.sites() > 0 => format!("site{at}"),
        ("t0", _) => format!("leaf{at}"),
        ("t1", 2) => format!("spine{at}"),
        ("t1", _) => {
            let each = topology.shape().spines;
            format!("agg{}.{}", at / each, at % each)
        }
        _ => format!("core{at}"),
    };
    switches(topology, &bare, plane, name)
}

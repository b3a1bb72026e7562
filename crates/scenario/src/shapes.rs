//! Shapes of fabrics: leaf-spine, fat tree, or an imported one, with their planes, rates and latencies.

use crate::graphs;
use crate::reader::Section;
use crate::scenario::Scenario;
use strandway_fabric::Topology;
use strandway_fabric::topology::{GraphPaths, GraphShape, Level, Pods, Shape};
use strandway_import::HOSTS_MAX;
use strandway_import::htsim;
use strandway_import::leaf_spine::{Described, EqualServers};
use strandway_import::simai_topology;
use strandway_import::switch_graph::Fabric;
use strandway_proto::units::{Rate, Span};
use toml::Value;

/// Limit on every count of a fabric except hosts.
pub(super) const COUNT_MAX: u64 = 1 << 16;

/// Limit on planes, which is the number of ports of a NIC.
const PLANES_MAX: u64 = 32;

/// Rates and latencies of the levels. The NIC's rate is divided among the planes.
pub(super) fn levels(section: &Section<'_>, planes: u64, default: Rate) -> Option<([Level; 3], [Span; 3])> {
    let nic = section.rate("rate").unwrap_or(default);
    if !nic.0.is_multiple_of(planes) {
        let even = |planes: &u64| nic.0.is_multiple_of(*planes);
        let near = [(1..planes).rev().find(even), (planes + 1..=PLANES_MAX).find(even)];
        let near: Vec<String> = near.iter().flatten().map(u64::to_string).collect();
        let what = format!("do not divide the NIC's rate of {nic}, which its ports share evenly");
        let remedy = format!("write {}, or a rate that is a multiple of {planes} bits per second", near.join(" or "));
        section.wrong("planes", what, remedy);
        return None;
    }
    let rate = Rate(nic.0 / planes);
    let uplink = section.rate("uplink_rate").unwrap_or(rate);
    let core = if section.has("core_rate") { section.rate("core_rate").unwrap_or(uplink) } else { uplink };
    let latency = latency(section, "latency", Span::from_us(1))?;
    let inside = switch_latency(section)?;
    let level = |rate| Level { rate, latency };
    Some(([level(rate), level(uplink), level(core)], [inside; 3]))
}

/// The time that a packet takes inside a switch.
pub(super) fn switch_latency(section: &Section<'_>) -> Option<Span> {
    let inside = section.span("switch_latency").unwrap_or(Span::ZERO);
    if inside > Span::from_ms(1000) {
        section.wrong("switch_latency", "is more than a second", "write, say, \"500 ns\"");
        return None;
    }
    Some(inside)
}

/// The propagation delay of one link.
pub(super) fn latency(section: &Section<'_>, key: &'static str, default: Span) -> Option<Span> {
    let latency = section.span(key).unwrap_or(default);
    if latency < Span::from_ns(1) || latency > Span::from_ms(1000) {
        section.wrong(key, "is the propagation delay of one link", "write a time from \"1 ns\" to \"1 s\"");
        return None;
    }
    Some(latency)
}

/// Number of switches above a tier for which the uplinks carry the rate of the downlinks, divided by
/// `oversubscription`.
fn uplinks(
    section: &Section<'_>,
    down: u64,
    down_rate: Rate,
    up_rate: Rate,
    bundle: u64,
    oversubscription: f64,
) -> u64 {
    let wanted = down as f64 * down_rate.0 as f64 / up_rate.0 as f64 / bundle as f64 / oversubscription;
    let whole = wanted.round().max(1.0);
    if (wanted - whole).abs() > 1e-6 * whole && section.has("oversubscription") {
        section.wrong(
            "oversubscription",
            format!("asks for {wanted:.2} switches above {down} links of {down_rate}"),
            format!("it comes out even at {:.6}", oversubscription * wanted / whole),
        );
    }
    whole as u64
}

/// The number of planes; every NIC has one port in each.
pub(super) fn planes(section: &Section<'_>, default: u64) -> u64 {
    if let Some(Value::Integer(n)) = section.raw("planes")
        && u64::try_from(*n).is_ok_and(|n| n > PLANES_MAX)
    {
        let what =
            format!("must be at most {PLANES_MAX}: a NIC has one port for each plane, and at most {PLANES_MAX} ports");
        section.wrong("planes", what, format!("write a whole number from 1 to {PLANES_MAX}"));
        return default;
    }
    section.count("planes", 1, PLANES_MAX).unwrap_or(default)
}

/// A power of two near the square root, at most 64. With it leaves and spines have about equal numbers of ports.
fn leaf_size(hosts: u64) -> u64 {
    let mut size = 1;
    while size * size < hosts && size < 64 {
        size *= 2;
    }
    size
}

/// Two tiers, in one or more planes.
pub(super) fn leaf_spine(section: &Section<'_>, planes_wanted: bool, nodes: Option<u32>) -> Option<Topology> {
    let hosts = section.count("hosts", 1, HOSTS_MAX).or(if section.has("hosts") { None } else { Some(128) });
    let hosts = nodes.filter(|_| !section.has("hosts")).map(u64::from).or(hosts)?;
    let planes = planes(section, if planes_wanted { 4 } else { 1 });
    let hosts_per_leaf = section.count("hosts_per_leaf", 1, COUNT_MAX).unwrap_or_else(|| leaf_size(hosts));
    let bundle = section.count("bundle", 1, 1024).unwrap_or(1);
    let oversubscription = section.ratio("oversubscription", 0.01, 1000.0);
    let (levels, inside) = levels(section, planes, Rate::from_gbps(400))?;
    let spines = section.count("spines", 1, COUNT_MAX);
    if spines.is_some() && oversubscription.is_some() {
        section.wrong("oversubscription", "is given together with `spines`", "write one of the two");
    }
    let spines = spines.unwrap_or_else(|| {
        let factor = oversubscription.unwrap_or(1.0);
        uplinks(section, hosts_per_leaf.min(hosts), levels[0].rate, levels[1].rate, bundle, factor)
    });
    let shape = Shape {
        hosts: hosts as u32,
        planes: planes as u8,
        hosts_per_leaf: hosts_per_leaf as u32,
        spines: u32::try_from(spines).unwrap_or(u32::MAX),
        leaf_bundle: bundle as u32,
        pods: None,
    };
    make(section, shape, levels, inside)
}

/// Three tiers; the default is that of switches with `k` ports.
pub(super) fn fat_tree(section: &Section<'_>, nodes: Option<u32>) -> Option<Topology> {
    let hosts = section.count("hosts", 1, HOSTS_MAX);
    let k = section.count("k", 2, 160);
    let k = match k {
        Some(k) if k % 2 == 1 => {
            section.wrong(
                "k",
                "a fat tree needs an even number of switch ports",
                format!("write {} or {}", k - 1, k + 1),
            );
            return None;
        }
        Some(k) => k,
        None => {
            let wanted = hosts.or(nodes.map(u64::from)).unwrap_or(128);
            (1..=80).map(|half| 2 * half).find(|k| k * k * k / 4 >= wanted).unwrap_or(160)
        }
    };
    let full = k * k * k / 4;
    let explicit =
        ["hosts_per_leaf", "leaves_per_pod", "aggs_per_pod", "cores_per_agg"].iter().any(|key| section.has(key));
    let hosts = if section.has("hosts") { hosts? } else { full };
    if hosts > full && !explicit {
        section.wrong(
            "hosts",
            format!("are more than a fat tree of k = {k} holds, {full}"),
            "raise `k` or leave it out",
        );
        return None;
    }
    let hosts_per_leaf = section.count("hosts_per_leaf", 1, COUNT_MAX).unwrap_or(k / 2);
    let leaves_per_pod = section.count("leaves_per_pod", 1, COUNT_MAX).unwrap_or(k / 2);
    let planes = planes(section, 1);
    let bundle = section.count("bundle", 1, 1024).unwrap_or(1);
    let core_bundle = section.count("core_bundle", 1, 1024).unwrap_or(1);
    let default = if nodes.is_some() { Rate::from_gbps(100) } else { Rate::from_gbps(400) };
    let (levels, inside) = levels(section, planes, default)?;
    let oversubscription = section.ratio("oversubscription", 0.01, 1000.0);
    let aggs = section.count("aggs_per_pod", 1, COUNT_MAX);
    if aggs.is_some() && oversubscription.is_some() {
        section.wrong("oversubscription", "is given together with `aggs_per_pod`", "write one of the two");
    }
    let aggs = aggs.unwrap_or_else(|| {
        let factor = oversubscription.unwrap_or(1.0);
        uplinks(section, hosts_per_leaf, levels[0].rate, levels[1].rate, bundle, factor)
    });
    let core_over = section.ratio("core_oversubscription", 0.01, 1000.0).unwrap_or(1.0);
    let cores = section.count("cores_per_agg", 1, COUNT_MAX).unwrap_or_else(|| {
        uplinks(section, leaves_per_pod * bundle, levels[1].rate, levels[2].rate, core_bundle, core_over)
    });
    let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let shape = Shape {
        hosts: hosts as u32,
        planes: planes as u8,
        hosts_per_leaf: small(hosts_per_leaf),
        spines: small(aggs),
        leaf_bundle: small(bundle),
        pods: Some(Pods {
            leaves_per_pod: small(leaves_per_pod),
            cores_per_spine: small(cores),
            core_bundle: small(core_bundle),
        }),
    };
    make(section, shape, levels, inside)
}

fn make(section: &Section<'_>, shape: Shape, levels: [Level; 3], inside: [Span; 3]) -> Option<Topology> {
    if u64::from(shape.spines) * u64::from(shape.leaf_bundle) > COUNT_MAX {
        section.sink.add(
            section.name(),
            "",
            "a leaf has more than 65,536 uplinks",
            "lower `spines`, `bundle` or rates",
        );
        return None;
    }
    let cut_through = section.choice("switching", &["store-and-forward", "cut-through"]) == Some("cut-through");
    match Topology::new(shape, levels, inside) {
        Ok(topology) if cut_through => match topology.with_cut_through() {
            Ok(topology) => Some(topology),
            Err(said) => {
                section.wrong("switching", said, "write \"store-and-forward\", or give all links one rate");
                None
            }
        },
        Ok(topology) => Some(topology),
        Err(said) => {
            section.sink.add(section.name(), "", said, "make the fabric smaller or correct its numbers");
            None
        }
    }
}

/// A topology of SimAI or ASTRA-sim, and its servers.
pub(super) fn graph(section: &Section<'_>, scenario: &Scenario) -> Option<(Topology, Option<EqualServers>)> {
    let Some(name) = section.text("topo") else {
        if !section.has("topo") {
            section.sink.add("fabric.topo", "", "is missing", "name a topology file of SimAI: topo = \"FILE\"");
        }
        return None;
    };
    let paths = graphs::paths(section);
    let parsed = scenario.read(&name).and_then(|(file, text)| simai_topology::read(&file, &text));
    match parsed {
        Ok((made, servers)) => Some((of_file(section, made, paths, Span::ZERO)?, servers)),
        Err(problems) => {
            section.sink.extend(problems.0);
            None
        }
    }
}

/// The fabric that a file describes. `inside`: the time that a packet takes inside a switch.
pub(super) fn of_file(section: &Section<'_>, made: Fabric, paths: GraphPaths, inside: Span) -> Option<Topology> {
    let switches = match made {
        Fabric::LeafSpine(made) => return of_described(section, &made, inside),
        Fabric::Graph(switches) => switches,
    };
    let shape = GraphShape {
        hosts: switches.hosts,
        planes: 1,
        hosts_per_switch: switches.hosts_per_switch,
        names: switches.names,
        links: switches.links,
        paths,
    };
    match Topology::of_graph(shape, switches.nic, inside) {
        Ok(topology) => Some(topology),
        Err(said) => {
            section.wrong("topo", said, "correct its links");
            None
        }
    }
}

/// The leaf-spine fabric that a file describes. `inside`: the time that a packet takes inside a switch.
fn of_described(section: &Section<'_>, made: &Described, inside: Span) -> Option<Topology> {
    let shape = Shape {
        hosts: made.gpus,
        planes: made.planes as u8,
        hosts_per_leaf: made.hosts_per_leaf,
        spines: made.spines.max(1),
        leaf_bundle: made.bundle,
        pods: None,
    };
    let level = |rate| Level { rate, latency: made.latency };
    let nic = Rate(made.rate.0 / u64::from(made.planes));
    make(section, shape, [level(nic), level(made.uplink), level(made.uplink)], [inside; 3])
}

/// The fabric of an htsim topology file.
pub(super) fn imported(section: &Section<'_>, scenario: &Scenario) -> Option<Topology> {
    let Some(name) = section.text("topo") else {
        if !section.has("topo") {
            section.sink.add("fabric.topo", "", "is missing", "name an htsim topology file: topo = \"FILE.topo\"");
        }
        return None;
    };
    let parsed = scenario.read(&name).and_then(|(file, text)| htsim::parse_topo_named(&file, &text));
    match parsed {
        Ok(topology) => Some(topology),
        Err(problems) => {
            section.sink.extend(problems.0);
            None
        }
    }
}

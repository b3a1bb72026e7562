//! Topologies.

use super::{Findings, words};
use crate::HOSTS_MAX;
use crate::problem::{Problems, suggest};
use strandway_fabric::Topology;
use strandway_fabric::topology::{Level, Pods, Shape};
use strandway_proto::units::{Rate, Span};

/// One `Tier` of the file: the switches of a tier and the links below them.
#[derive(Clone, Copy, Debug, Default)]
struct Tier {
    line: usize,
    rate: Option<u64>,
    down: Option<u64>,
    up: Option<u64>,
    oversubscribed: Option<u64>,
    bundle: Option<u64>,
    latency: Option<u64>,
    inside: Option<u64>,
    queue: Option<u64>,
}

/// Parses a topology.
///
/// # Errors
/// All problems, with their lines.
pub fn parse_topo(text: &str) -> Result<Topology, Problems> {
    parse_topo_named("fabric.topo", text)
}

/// Parses a topology. `file` is its name in messages.
///
/// # Errors
/// All problems, with their lines.
pub fn parse_topo_named(file: &str, text: &str) -> Result<Topology, Problems> {
    const KNOWN: [&str; 13] = [
        "Nodes",
        "Tiers",
        "Podsize",
        "Tier",
        "Downlink_speed_Gbps",
        "Radix_Down",
        "Radix_Up",
        "Oversubscribed",
        "Bundle",
        "Downlink_Latency_ns",
        "Switch_Latency_ns",
        "Queue_Up_KB",
        "Queue_Down_KB",
    ];
    let mut findings = Findings::new(file);
    let mut header: [Option<u64>; 3] = [None; 3];
    let mut tiers: [Option<Tier>; 3] = [None; 3];
    let mut current: Option<usize> = None;
    for (i, line) in text.lines().enumerate() {
        let number = i + 1;
        let mut words = words(line);
        let Some(name) = words.next() else { continue };
        let value = words.next();
        if let Some(extra) = words.next() {
            findings.add(Some(number), extra, "is an extra word", "write one key and one number per line");
            continue;
        }
        let lower = name.to_lowercase();
        if lower == "tier" {
            let tier = findings.number(number, value, name, 0, 2).map(|n| n as usize);
            current = tier;
            if let Some(tier) = tier {
                if let Some(first) = tiers[tier] {
                    let what = format!("the tier is described on line {} already", first.line);
                    findings.add(Some(number), &format!("Tier {tier}"), what, "keep one of them");
                }
                tiers[tier] = Some(Tier { line: number, ..Tier::default() });
            }
            continue;
        }
        let (place, low, high) = match (lower.as_str(), current) {
            ("nodes", _) => (&mut header[0], 1, HOSTS_MAX),
            ("tiers", _) => (&mut header[1], 2, 3),
            ("podsize", _) => (&mut header[2], 1, HOSTS_MAX),
            (_, current) => {
                let Some(tier) = current.and_then(|t| tiers[t].as_mut()) else {
                    let known = KNOWN.iter().any(|k| k.eq_ignore_ascii_case(name));
                    let remedy = if known {
                        "write it below a line `Tier 0`, 1 or 2".to_string()
                    } else {
                        suggest(name, &KNOWN)
                    };
                    findings.add(Some(number), name, "is not known here", remedy);
                    continue;
                };
                match lower.as_str() {
                    "downlink_speed_gbps" => (&mut tier.rate, 1, 1_000_000),
                    "radix_down" => (&mut tier.down, 1, 1 << 16),
                    "radix_up" => (&mut tier.up, 1, 1 << 16),
                    "oversubscribed" => (&mut tier.oversubscribed, 1, 1 << 16),
                    "bundle" => (&mut tier.bundle, 1, 1024),
                    "downlink_latency_ns" => (&mut tier.latency, 1, 1_000_000_000),
                    "switch_latency_ns" => (&mut tier.inside, 0, 1_000_000_000),
                    "queue_up_kb" | "queue_down_kb" => {
                        tier.queue = None;
                        (&mut tier.queue, 0, 1 << 40)
                    }
                    _ => {
                        findings.add(Some(number), name, "is not known in a tier", suggest(name, &KNOWN));
                        continue;
                    }
                }
            }
        };
        if place.is_some() {
            findings.add(Some(number), name, "is given twice", "keep one of the lines");
            continue;
        }
        *place = findings.number(number, value, name, low, high);
    }
    let topology = if findings.none() { build(&mut findings, header, &tiers) } else { None };
    match topology {
        Some(topology) if findings.none() => Ok(topology),
        _ => Err(findings.finish()),
    }
}

fn missing(findings: &mut Findings, what: &str) {
    findings.add(None, "", format!("{what} is missing"), "add it");
}

fn build(findings: &mut Findings, header: [Option<u64>; 3], tiers: &[Option<Tier>; 3]) -> Option<Topology> {
    for (name, value) in ["Nodes", "Tiers", "Podsize"].iter().zip(header) {
        if value.is_none() {
            missing(findings, &format!("a line `{name} N`"));
        }
    }
    let (nodes, count, pod) = (header[0]?, header[1]? as usize, header[2]?);
    for (i, tier) in tiers.iter().enumerate().take(count) {
        let Some(t) = tier else {
            missing(findings, &format!("`Tier {i}`"));
            continue;
        };
        let top = i + 1 == count;
        for (name, value) in [
            ("Downlink_speed_Gbps", t.rate),
            ("Radix_Down", t.down),
            ("Downlink_Latency_ns", t.latency),
            ("Radix_Up", if top { Some(0) } else { t.up }),
        ] {
            if value.is_none() {
                missing(findings, &format!("`{name}` of tier {i}"));
            }
        }
        if top && t.up.is_some() {
            findings.add(Some(t.line), "Radix_Up", "switches of the highest tier have no uplinks", "take the line out");
        }
    }
    if !findings.none() {
        return None;
    }
    let t: Vec<Tier> = tiers.iter().take(count).map(|t| t.unwrap_or_default()).collect();
    let get = |value: Option<u64>| value.unwrap_or(1);
    let bundle = |i: usize| get(t[i].bundle);
    let mut mismatch = |line: usize, what: String| findings.add(Some(line), "", what, "correct one of the numbers");
    if bundle(0) != 1 {
        mismatch(t[0].line, "links to hosts cannot be bundled (Bundle of tier 0)".into());
    }
    for i in 0..count - 1 {
        let (up, below) = (get(t[i].up), bundle(i + 1));
        if up % below != 0 {
            mismatch(t[i].line, format!("Radix_Up {up} of tier {i} is no multiple of the next tier's Bundle {below}"));
        }
        let (down, over) = (get(t[i].down) * get(t[i].rate), get(t[i].oversubscribed));
        if t[i].oversubscribed.is_some() && up * get(t[i + 1].rate) * over != down {
            let what =
                format!("Oversubscribed {over} does not agree with the rates and radices of tiers {i} and {}", i + 1);
            mismatch(t[i].line, what);
        }
    }
    let hosts_per_leaf = get(t[0].down);
    if nodes % pod != 0 || pod % hosts_per_leaf != 0 {
        mismatch(
            t[0].line,
            format!("{nodes} nodes, pods of {pod} and leaves of {hosts_per_leaf} hosts do not fit together"),
        );
        return None;
    }
    let leaves_per_pod = pod / hosts_per_leaf;
    let pods = nodes / pod;
    let below = if count == 2 { nodes / hosts_per_leaf } else { leaves_per_pod };
    if get(t[1].down) != below * bundle(1) {
        let what =
            format!("Radix_Down {} of tier 1 should be {below} leaves times Bundle {}", get(t[1].down), bundle(1));
        mismatch(t[1].line, what);
    }
    if count == 2 && pods != 1 {
        mismatch(t[0].line, format!("with two tiers Podsize must be the number of nodes, {nodes}"));
    }
    if count == 3 && get(t[2].down) != pods * bundle(2) {
        let what = format!("Radix_Down {} of tier 2 should be {pods} pods times Bundle {}", get(t[2].down), bundle(2));
        mismatch(t[2].line, what);
    }
    if !findings.none() {
        return None;
    }
    let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let shape = Shape {
        hosts: small(nodes),
        planes: 1,
        hosts_per_leaf: small(hosts_per_leaf),
        spines: small(get(t[0].up) / bundle(1)),
        leaf_bundle: small(bundle(1)),
        pods: (count == 3).then(|| Pods {
            leaves_per_pod: small(leaves_per_pod),
            cores_per_spine: small(get(t[1].up) / bundle(2)),
            core_bundle: small(bundle(2)),
        }),
    };
    let tier = |i: usize| t[i.min(count - 1)];
    let level =
        |i: usize| Level { rate: Rate::from_gbps(get(tier(i).rate)), latency: Span::from_ns(get(tier(i).latency)) };
    let inside = |i: usize| Span::from_ns(tier(i).inside.unwrap_or(0));
    match Topology::new(shape, [level(0), level(1), level(2)], [inside(0), inside(1), inside(2)]) {
        Ok(topology) => Some(topology),
        Err(said) => {
            findings.add(None, "", said, "make the fabric smaller or correct its numbers");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "# two tiers\nNodes 8\nTiers 2\nPodsize 8\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 4\nRadix_Up 2\n\
        Oversubscribed 2\nDownlink_Latency_ns 1000\nTier 1\nDownlink_speed_Gbps 100\nRadix_Down 2\nDownlink_Latency_ns 500\n";

    #[test]
    fn two_tiers_become_leaves_and_spines() {
        let topology = parse_topo(SOUND).expect("a sound topology");
        assert_eq!((topology.hosts(), topology.leaves(), topology.spines(), topology.tiers()), (8, 2, 2, 2));
        assert_eq!(topology.level(1).latency, Span::from_ns(500));
    }

    #[test]
    fn every_defect_is_named() {
        let cases = [
            (SOUND.replace("Nodes 8", "Nodes 0"), "Nodes is out of range"),
            (SOUND.replace("Nodes 8", "Nodes 8\nNodes 8"), "given twice"),
            (SOUND.replace("Nodes 8\n", ""), "`Nodes N` is missing"),
            (SOUND.replace("Tiers 2", "Tiers 4"), "Tiers is out of range"),
            (SOUND.replace("Radix_Up 2", "Radix_Up nan"), "finite"),
            (SOUND.replace("Radix_Up 2\n", ""), "`Radix_Up` of tier 0 is missing"),
            (SOUND.replace("Radix_Up", "Radix_Upp"), "did you mean `Radix_Up`?"),
            (SOUND.replace("Oversubscribed 2", "Oversubscribed 3"), "does not agree"),
            (SOUND.replace("Podsize 8", "Podsize 3"), "do not fit together"),
            (SOUND.replace("Radix_Down 2", "Radix_Down 5"), "should be 2 leaves"),
            (SOUND.replace("Tier 1", "Tier 0"), "described on line 5 already"),
            (SOUND.replace("Tier 0\n", ""), "write it below a line"),
            (SOUND[..SOUND.len() - 24].to_string(), "missing"),
            (String::new(), "is missing"),
        ];
        for (text, fragment) in cases {
            let said = parse_topo(&text).expect_err(&text).to_string();
            assert!(said.contains(fragment), "{text}\n  said: {said}\n  want: {fragment}");
        }
    }
}

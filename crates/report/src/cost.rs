//! The switches, links and optics of a fabric, compared with the same NICs on one plane of the same switches.

use crate::numbers::{count, percent};
use serde::{Deserialize, Serialize};

/// The parts of a fabric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CostFacts {
    /// Switch tiers.
    pub tiers: usize,
    /// Switches of each tier, leaves first, all planes together.
    pub switches: Vec<u64>,
    /// Sum of `switches`.
    pub all_switches: u64,
    /// Ports of a leaf switch in use.
    pub leaf_ports: u64,
    /// Links between hosts and leaves, and between each tier and the next, all planes together.
    pub links: Vec<u64>,
    /// Links per NIC, over all tiers, counted in links of a NIC's full rate.
    pub links_per_host: f64,
    /// Optics per NIC, counted in optics of a NIC's full rate: one at each end of each link.
    pub optics_per_host: f64,
    /// Switches on the longest path.
    pub longest: u64,
    /// Distinct paths between hosts at the largest distance.
    pub paths: u64,
    /// Hosts that share a switch with a host.
    pub neighbours: u64,
    /// Rate of a leaf's hosts divided by the rate of its uplinks.
    pub oversubscription: f64,
    /// The share of a leaf's uplinks (in its plane) that fails with one link.
    pub uplink_share: f64,
}

/// Entries of the static tables of switches that forward source routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct TableFacts {
    pub t0: u64,
    pub t1: u64,
    pub t2: u64,
}

/// The cost of a fabric as rows of text: name, value here, and value on one plane of the same switches (empty if there
/// is no such plane).
pub(crate) fn rows(cost: &CostFacts, single: Option<&CostFacts>, tables: TableFacts) -> Vec<[String; 3]> {
    let mut rows: Vec<[String; 3]> = Vec::new();
    let mut row = |name: &str, of: &dyn Fn(&CostFacts) -> String| {
        rows.push([name.to_string(), of(cost), single.map(of).unwrap_or_default()]);
    };
    let each = |counts: &[u64]| -> String {
        let named = counts.iter().enumerate().map(|(tier, n)| {
            let name = switch(tier, counts.len());
            format!("{} {}", count(*n), if *n == 1 { name.to_string() } else { plural(name) })
        });
        named.collect::<Vec<_>>().join(", ")
    };
    row("tiers", &|c| c.tiers.to_string());
    row("switches", &|c| format!("{} ({})", count(c.all_switches), each(&c.switches)));
    row("ports of a switch", &|c| count(c.leaf_ports));
    row("links", &|c| {
        let below = |tier: usize| if tier == 0 { "NIC" } else { switch(tier - 1, c.tiers) };
        let named = c.links.iter().enumerate().filter(|(_, n)| **n > 0);
        let named = named.map(|(tier, n)| format!("{} {} to {}", count(*n), below(tier), switch(tier, c.tiers)));
        named.collect::<Vec<_>>().join(", ")
    });
    row("links of a NIC's full rate", &|c| format!("{:.2} per NIC", c.links_per_host));
    row("optics of a NIC's full rate", &|c| format!("{:.2} per NIC", c.optics_per_host));
    row("switches on the longest way", &|c| count(c.longest));
    row("paths between distant NICs", &|c| count(c.paths));
    row("NICs one switch away", &|c| count(c.neighbours));
    row("oversubscription", &|c| format!("{:.3} to 1 at the leaves", c.oversubscription));
    row("one dead uplink takes", &|c| match c.uplink_share {
        0.0 => "–".to_string(),
        share => format!("{} of a leaf's uplinks in its plane", percent(share)),
    });
    let core = if tables.t2 == 0 { String::new() } else { format!(", {} of a core", count(tables.t2)) };
    let above = switch(1, cost.tiers);
    let entries =
        format!("{} entries of a leaf, {} of {} {above}{core}", count(tables.t0), count(tables.t1), article(above));
    rows.push(["static tables of source routes".to_string(), entries, String::new()]);
    rows
}

/// The name of a switch of this tier, counted from the leaves, in a fabric of `tiers` tiers.
fn switch(tier: usize, tiers: usize) -> &'static str {
    match (tier, tiers) {
        (0, _) => "leaf",
        (1, 2) => "spine",
        (1, 3) => "aggregation switch",
        (2, 3) => "core",
        (1, _) => "T1",
        (2, _) => "T2",
        _ => "T3",
    }
}

fn plural(name: &str) -> String {
    match name {
        "leaf" => "leaves".to_string(),
        "aggregation switch" => "aggregation switches".to_string(),
        name => format!("{name}s"),
    }
}

fn article(name: &str) -> &'static str {
    if name.starts_with('a') { "an" } else { "a" }
}

/// The comparison in a sentence; empty for a fabric with one plane.
pub(crate) fn verdict(cost: &CostFacts, single: Option<&CostFacts>, planes: u8) -> String {
    match single {
        _ if planes < 2 => String::new(),
        None => {
            "One plane for the same NICs would need more than four tiers of these switches, with ports combined to the \
                 NICs' full rate."
                .into()
        }
        Some(single) => format!(
            "One plane for the same NICs would need {} tiers of these switches, with ports combined to the NICs' full rate; \
             {planes} planes take {:.2} times its switches and {:.2} times its optics.",
            single.tiers,
            cost.all_switches as f64 / single.all_switches.max(1) as f64,
            cost.optics_per_host / single.optics_per_host
        ),
    }
}

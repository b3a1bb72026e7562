//! InfraGraph documents (MLCommons' and Keysight's description of infrastructure, package `infragraph` 3.x): devices,
//! links, instances and edges, in YAML, JSON or protobuf. A leaf-spine fabric of equal servers becomes `[fabric]` and
//! `[servers]`, any other graph of switches becomes what `fabric.kind = "graph"` has.
//!
//! Instances whose device holds an `xpu` or a `nic` are hosts, all others are switches. Edges of NICs and
//! switches are links; a NIC with links to several switches has a port in several planes. Inside a host: the number of
//! GPUs, and the bandwidth of their links to switches that are not PCIe.

mod document;
mod graph;
mod protobuf;
mod slices;
mod written;

pub use document::{Bandwidth, Component, Device, Document, EdgeSet, End, Instance, Latency, Link, Physical};

use crate::leaf_spine::{self, EqualServers, Grouping};
use crate::problem::Problems;
use crate::switch_graph::Fabric;
use graph::Wired;
use std::collections::BTreeMap;
use strandway_fabric::topology::Level;
use strandway_proto::units::{Rate, Span};

/// Rate and latency of a link that does not give its own: the defaults of `[fabric]`.
const USUAL: Level = Level { rate: Rate::from_gbps(400), latency: Span::from_us(1) };

/// The fabric and the servers of a document.
#[derive(Clone, Debug, PartialEq)]
pub struct Infrastructure {
    /// The name that it gives itself.
    pub name: String,
    /// Its fabric.
    pub fabric: Fabric,
    /// Its servers; `None` if the hosts of the fabric do not have the order of the document.
    pub servers: Option<EqualServers>,
    /// Sentences about what was assumed or left out.
    pub notes: Vec<String>,
}

/// Is this a document of InfraGraph in YAML or JSON?
pub fn is_infragraph(text: &str) -> bool {
    let has = |key: &str| {
        let quoted = format!("\"{key}\"");
        text.lines().any(|line| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':')))
            || text.trim_start().starts_with('{') && text.contains(&quoted)
    };
    has("devices") && has("instances")
}

/// Is this the name of a protobuf file?
pub fn is_protobuf(path: &std::path::Path) -> bool {
    path.extension().is_some_and(|extension| ["pb", "binpb"].iter().any(|known| extension == *known))
}

/// Reads YAML or JSON. `usual`: rate and latency of links that do not give theirs.
///
/// # Errors
/// If it is no document, names what it does not have, or describes no fabric that can be simulated.
pub fn parse(file: &str, text: &str, usual: Option<Level>) -> Result<Infrastructure, Problems> {
    understand(file, &Document::of_text(file, text)?, usual)
}

/// Reads protobuf, as [`parse`] reads text.
///
/// # Errors
/// Those of [`parse`].
pub fn parse_protobuf(file: &str, bytes: &[u8], usual: Option<Level>) -> Result<Infrastructure, Problems> {
    let document = protobuf::read(bytes).ok_or_else(|| {
        Problems::with_file(file, "is no InfraGraph in protobuf", "write the message `Infrastructure`, or YAML")
    })?;
    understand(file, &document, usual)
}

/// The fabric of a document. `usual`: rate and latency of links that do not give theirs.
///
/// # Errors
/// Those of [`parse`].
pub fn understand(file: &str, document: &Document, usual: Option<Level>) -> Result<Infrastructure, Problems> {
    let mut wired = graph::read(file, document, usual.unwrap_or(USUAL))?;
    let mut notes = std::mem::take(&mut wired.notes);
    let seen = Seen { file, wired: &wired, ids: ids(&wired) };
    let per_host = seen.nics_per_host()?;
    let mut servers = EqualServers {
        gpus: wired.inside.map(|inside| inside.gpus).filter(|gpus| *gpus > 0).unwrap_or(per_host),
        nics: per_host,
        inside: wired.inside.and_then(|inside| inside.link),
        rails: false,
    };
    if !servers.gpus.is_multiple_of(per_host) {
        notes.push(format!("a host has {} GPUs and {per_host} NICs: a GPU per NIC is assumed", servers.gpus));
        servers.gpus = per_host;
    }
    let of: BTreeMap<u32, bool> = seen.ids.values().map(|id| (*id, false)).collect();
    let around = seen.around();
    let named = wired.nics.iter().chain(seen.ids.keys()).map(|at| wired.names[*at as usize].as_str());
    let names: Vec<&str> = named.collect();
    let gpus = wired.nics.len() as u32;
    let graph =
        leaf_spine::Graph { file, nodes: gpus + of.len() as u32, gpus, of: &of, around: &around, names: &names };
    let (fabric, servers) = match graph.understand(Grouping::Known(per_host), "") {
        Ok(mut made) => {
            made.inside = servers.inside;
            servers.rails = made.rails;
            (Fabric::LeafSpine(made), Some(servers))
        }
        Err(why) => {
            let why = why.0.into_iter().next().map(|problem| problem.what).unwrap_or_default();
            let (switches, is_in_order) = graph.switches(why)?;
            if !is_in_order {
                notes.push(format!(
                    "hosts are numbered by switch, in another order than in the document, where a host has {per_host} NICs"
                ));
            }
            (Fabric::Graph(switches), is_in_order.then_some(servers))
        }
    };
    Ok(Infrastructure { name: document.name.clone(), fabric, servers, notes })
}

/// The number of each switch that has a link, behind those of the NICs.
fn ids(wired: &Wired) -> BTreeMap<u32, u32> {
    let switches = wired.wires.iter().flat_map(|wire| wire.ends).filter(|at| !wired.hosts[*at as usize]);
    let sorted: std::collections::BTreeSet<u32> = switches.collect();
    sorted.into_iter().zip(wired.nics.len() as u32..).collect()
}

/// Hosts, switches and links of a document, numbered.
struct Seen<'a> {
    file: &'a str,
    wired: &'a Wired,
    ids: BTreeMap<u32, u32>,
}

impl Seen<'_> {
    fn odd(&self, what: String, remedy: &str) -> Problems {
        Problems::with_file(self.file, what, remedy)
    }

    /// The number of one end of a link.
    fn id(&self, wire: &graph::Wire, end: usize) -> u32 {
        wire.nics[end].unwrap_or_else(|| self.ids[&wire.ends[end]])
    }

    /// NICs of a host, the same for all.
    fn nics_per_host(&self) -> Result<u32, Problems> {
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        for host in &self.wired.nics {
            *counts.entry(*host).or_default() += 1;
        }
        let Some((&first, &count)) = counts.first_key_value() else {
            return Err(self.odd("has no link of a host".into(), "link the NICs of instances to those of switches"));
        };
        if let Some((other, different)) = counts.iter().find(|(_, other)| **other != count) {
            let name = |at: u32| &self.wired.names[at as usize];
            let what =
                format!("has {count} linked NICs in host {}, and {different} in host {}", name(first), name(*other));
            return Err(self.odd(what, "give all hosts as many"));
        }
        if let Some(wire) = self.wired.wires.iter().find(|wire| wire.nics.iter().all(Option::is_some)) {
            let [one, other] = wire.ends.map(|at| &self.wired.names[at as usize]);
            let what = format!("links host {one} to host {other} without a switch");
            return Err(self.odd(what, "the fabrics that are simulated link hosts by switches"));
        }
        Ok(count)
    }

    /// The links of each node: NICs first, then switches.
    fn around(&self) -> BTreeMap<u32, Vec<leaf_spine::Link>> {
        let mut around: BTreeMap<u32, Vec<leaf_spine::Link>> = BTreeMap::new();
        for wire in &self.wired.wires {
            let (one, other) = (self.id(wire, 0), self.id(wire, 1));
            let Level { rate, latency } = wire.level;
            let link = |to: u32| leaf_spine::Link { to, rate, latency, line: None };
            around.entry(one).or_default().push(link(other));
            around.entry(other).or_default().push(link(one));
        }
        around
    }
}

impl Infrastructure {
    /// The contents of the file, and how to run it, as lines of text.
    pub fn describe(&self) -> String {
        let name = if self.name.is_empty() { String::new() } else { format!(" ({})", self.name) };
        let (what, kind) = (format!("an InfraGraph{name}"), "infragraph");
        let text = match &self.fabric {
            Fabric::LeafSpine(made) => made.describe(&what, kind),
            Fabric::Graph(made) => made.describe(&what, kind),
        };
        let is_graph = matches!(self.fabric, Fabric::Graph(_));
        let servers = self.servers.filter(|servers| is_graph && (servers.nics > 1 || servers.gpus > 1));
        let servers = servers.map(|servers| format!("servers of {} GPUs and {} NICs", servers.gpus, servers.nics));
        let lines = servers.iter().chain(&self.notes).map(|line| format!("{line}\n"));
        text.trim_end().to_string() + "\n" + &lines.collect::<String>()
    }
}

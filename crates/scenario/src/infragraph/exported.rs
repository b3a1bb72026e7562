//! The fabric and the servers of a scenario as a document of InfraGraph.

use crate::fabric::{self, Fabric};
use crate::reader::Sink;
use crate::scenario::Scenario;
use crate::servers::{self, Servers};
use crate::{profile, workload};
use std::collections::BTreeMap;
use strandway_fabric::topology::{Level, NodeKind};
use strandway_fabric::{LinkId, NodeId};
use strandway_import::Problems;
use strandway_import::infragraph::{
    Bandwidth, Component, Device, Document, EdgeSet, End, Instance, Latency, Link, Physical,
};
use strandway_proto::units::Span;

/// Limit on the links of a document: ours. A link takes about 150 bytes of YAML.
const LINKS_MAX: u32 = 1 << 21;

/// A document, and what it cannot say.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportedInfraGraph {
    /// The document.
    pub document: Document,
    /// Sentences about parts of the scenario that the document does not have.
    pub gaps: Vec<String>,
}

impl Scenario {
    /// Its fabric and its servers as a document of InfraGraph: hosts are instances of `server`, switches instances of a
    /// device per kind, and each link is an edge.
    ///
    /// # Errors
    /// All problems of the fabric and the servers; a fabric with more than 2,097,152 links.
    pub fn to_infragraph(&self) -> Result<ExportedInfraGraph, Problems> {
        let sink = Sink::new(self.file());
        let profile = profile::read(&sink, &self.table);
        let nodes = workload::nodes(&workload::read(&sink, self));
        let wanted = profile.as_ref().map(|profile| (profile.routing(), profile.name.as_str()));
        let made = fabric::read(&sink, self, nodes, wanted).map(|fabric| {
            let servers = servers::read(&sink, self, &fabric);
            (fabric, servers)
        });
        if let Some((fabric, _)) = &made
            && fabric.topology.links() / 2 > LINKS_MAX
        {
            let what = format!("has {} links, and a document has at most {LINKS_MAX}", fabric.topology.links() / 2);
            sink.add("fabric", "", what, "export a smaller fabric of the same shape: --set fabric.hosts=4096");
        }
        match made {
            Some((fabric, servers)) if sink.is_empty() => Ok(document(self, &fabric, &servers)),
            _ => Err(Problems(sink.take())),
        }
    }
}

fn document(scenario: &Scenario, fabric: &Fabric, servers: &Servers) -> ExportedInfraGraph {
    let topology = &fabric.topology;
    let name = scenario.table().get("name").and_then(toml::Value::as_str).map(String::from);
    let mut document = Document { name: name.unwrap_or_else(|| fabric.kind.to_string()), ..Document::default() };
    document.devices.push(server(servers));
    document.instances.push(Instance { name: "host".into(), device: "server".into(), count: servers.count.into() });
    // The server and the NIC of each host.
    let mut nic_of = vec![(0, 0); topology.hosts() as usize];
    for server in 0..servers.count {
        for nic in 0..servers.nics {
            let gpu = nic * (servers.gpus / servers.nics);
            nic_of[servers.host(server, gpu).0 as usize] = (server, nic);
        }
    }
    let mut ports: BTreeMap<NodeId, u32> = BTreeMap::new();
    // By tier, rate and latency.
    let mut links: BTreeMap<(usize, u64, u64), String> = BTreeMap::new();
    let mut place = |node: NodeId| -> (NodeKind, String, u32) {
        let (kind, _, _) = topology.describe(node);
        let port = ports.entry(node).or_insert(0);
        *port += 1;
        (kind, instance(&topology.node_name(node)), *port - 1)
    };
    for id in (0..topology.links()).map(LinkId) {
        let Some(ends) = topology.ends(id).filter(|ends| id.0 < ends.reverse.0) else { continue };
        let level = topology.level_of(&ends);
        let known = links.len();
        let key = (ends.level, level.rate.0, level.latency.0);
        let link = links.entry(key).or_insert_with(|| {
            let name = format!("{}{known}", ["nic", "up", "core"].get(ends.level).unwrap_or(&"link"));
            document.links.push(physical(name.clone(), level));
            name
        });
        let mut end = |node: NodeId| match place(node) {
            (NodeKind::Host, ..) => {
                let (server, nic) = nic_of[node.0 as usize];
                End { instance: format!("host[{server}]"), component: format!("nic[{nic}]") }
            }
            (_, name, port) => End { instance: format!("{name}[0]"), component: format!("port[{port}]") },
        };
        let (ep1, ep2) = (end(ends.from), end(ends.to));
        document.edges.push(EdgeSet { ep1, ep2, scheme: "one2one".into(), link: link.clone() });
    }
    for (node, count) in &ports {
        let (kind, _, _) = topology.describe(*node);
        if kind == NodeKind::Host {
            continue;
        }
        let device = format!("switch-{count}");
        if !document.devices.iter().any(|known| known.name == device) {
            document.devices.push(switch(device.clone(), *count));
        }
        document.instances.push(Instance { name: instance(&topology.node_name(*node)), device, count: 1 });
    }
    let mut gaps = vec!["queues, ECN, trimming, PFC and routing of switches".to_string()];
    if topology.switch_latency() != [Span::ZERO; 3] {
        gaps.push("the time inside switches (fabric.switch_latency)".into());
    }
    if topology.cut_through().is_some() {
        gaps.push("fabric.switching = \"cut-through\"".into());
    }
    ExportedInfraGraph { document, gaps }
}

/// Names of instances have no dots, which separate the parts of paths.
fn instance(name: &str) -> String {
    name.replace('.', "-")
}

fn component(name: &str, count: u32, choice: &str) -> Component {
    Component { name: name.into(), count: count.into(), choice: choice.into() }
}

/// A server: GPUs, NICs, and the switch that joins GPUs.
fn server(servers: &Servers) -> Device {
    let part = |component: String| End { instance: String::new(), component };
    let edge = |from: String, to: String, link: &str| EdgeSet {
        ep1: part(from),
        ep2: part(to),
        scheme: "many2many".into(),
        link: link.into(),
    };
    let mut device = Device {
        name: "server".into(),
        components: vec![component("xpu", servers.gpus, "xpu"), component("nic", servers.nics, "nic")],
        links: vec![Link { name: "pcie".into(), physical: Physical::default() }],
        edges: Vec::new(),
    };
    let each = servers.gpus / servers.nics;
    for nic in 0..servers.nics {
        let gpus = format!("xpu[{}:{}]", nic * each, (nic + 1) * each);
        device.edges.push(edge(gpus, format!("nic[{nic}]"), "pcie"));
    }
    if servers.gpus > 1 {
        device.components.push(component("gpu-switch", 1, "switch"));
        let level = Level { rate: servers.rate, latency: servers.latency };
        device.links.push(physical("gpu-link".into(), level));
        device.edges.push(edge("xpu".into(), "gpu-switch".into(), "gpu-link"));
    }
    device
}

fn switch(name: String, ports: u32) -> Device {
    let part = |component: &str| End { instance: String::new(), component: component.into() };
    Device {
        name,
        components: vec![component("asic", 1, "switch"), component("port", ports, "port")],
        links: vec![Link { name: "trace".into(), physical: Physical::default() }],
        edges: vec![EdgeSet { ep1: part("asic"), ep2: part("port"), scheme: "many2many".into(), link: "trace".into() }],
    }
}

fn physical(name: String, level: Level) -> Link {
    let bandwidth = Bandwidth { gigabits_per_second: Some(level.rate.0 as f64 / 1e9), ..Bandwidth::default() };
    let latency = Latency { ns: Some(level.latency.0 as f64 / 1e3), ..Latency::default() };
    Link { name, physical: Physical { bandwidth, latency } }
}

//! The parts of an InfraGraph document, from YAML, JSON or protobuf.

use crate::problem::{Problem, Problems};
use serde::Deserialize;

/// Limit on the nodes of a YAML document, in its parser: ours. A fabric of 131,072 NICs with an edge per link has fewer.
const YAML_NODES: usize = 1 << 25;

/// A whole document. Parts that describe links between GPUs and NICs inside a device are read, and of them only what
/// [`super::parse`] says is used.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Document {
    /// The name of the infrastructure.
    pub name: String,
    /// Kinds of servers, switches and parts.
    pub devices: Vec<Device>,
    /// Properties of links between instances.
    pub links: Vec<Link>,
    /// How many of each device there are.
    pub instances: Vec<Instance>,
    /// Links between instances.
    pub edges: Vec<EdgeSet>,
}

/// A kind of server, switch or part.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its parts.
    pub components: Vec<Component>,
    /// Properties of links between its parts.
    pub links: Vec<Link>,
    /// Links between its parts.
    pub edges: Vec<EdgeSet>,
}

/// A part of a device, several times.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Component {
    /// Its name; that of a device if `choice` is `device`.
    pub name: String,
    /// How many there are.
    pub count: i64,
    /// `custom`, `device`, `cpu`, `xpu`, `nic`, `memory`, `port` or `switch`.
    pub choice: String,
}

/// Properties of a link.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Bandwidth and latency, if they are given.
    pub physical: Physical,
}

/// Bandwidth and latency of a link.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Physical {
    /// Of one direction.
    pub bandwidth: Bandwidth,
    /// Of the link alone.
    pub latency: Latency,
}

/// A bandwidth, in one of three units.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Bandwidth {
    /// In Gb/s.
    pub gigabits_per_second: Option<f64>,
    /// In GB/s.
    pub gigabytes_per_second: Option<f64>,
    /// In GT/s, of PCIe and memory.
    pub gigatransfers_per_second: Option<f64>,
}

/// A latency, in one of three units.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Latency {
    /// In milliseconds.
    pub ms: Option<f64>,
    /// In microseconds.
    pub us: Option<f64>,
    /// In nanoseconds.
    pub ns: Option<f64>,
}

/// How many of a device there are.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Instance {
    /// The name by which edges refer to them.
    pub name: String,
    /// The name of the device.
    pub device: String,
    /// How many there are.
    pub count: i64,
}

/// Links between two sets of parts.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct EdgeSet {
    /// One end.
    pub ep1: End,
    /// The other end.
    pub ep2: End,
    /// `one2one`, `many2many` or `ring`.
    pub scheme: String,
    /// The name of the link.
    pub link: String,
}

/// Parts of instances, or of a device: `instance` is empty there.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct End {
    /// An instance with the indices in brackets: `host[0:2]`.
    pub instance: String,
    /// A part with the indices in brackets, perhaps inside another one: `cx5[0].port[1]`.
    pub component: String,
}

impl Document {
    /// Reads YAML, or JSON, which is YAML too.
    ///
    /// # Errors
    /// If it is none, with the line, or has values of other types.
    pub fn of_text(file: &str, text: &str) -> Result<Document, Problems> {
        if text.trim_start().starts_with('{') {
            return serde_json::from_str(text).map_err(|said| {
                let line = Some(said.line()).filter(|line| *line > 0);
                wrong(file, line, &format!("is no InfraGraph in JSON: {said}"))
            });
        }
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_nodes: YAML_NODES,
                max_events: 4 * YAML_NODES,
                max_total_scalar_bytes: 32 * YAML_NODES,
            },
            with_snippet: false,
        };
        serde_saphyr::from_str_with_options(text, options).map_err(|said| {
            let line = said.location().map(|at| at.line() as usize).filter(|line| *line > 0);
            wrong(file, line, &format!("is no InfraGraph in YAML: {said}"))
        })
    }
}

fn wrong(file: &str, line: Option<usize>, what: &str) -> Problems {
    let remedy = "write devices, links, instances and edges as `infragraph translate` and `serialize` do";
    Problems(vec![Problem { file: file.into(), line, what: what.into(), remedy: remedy.into(), ..Problem::default() }])
}

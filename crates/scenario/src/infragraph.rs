//! `[fabric]` from a document of InfraGraph, and a document from a scenario.

mod exported;

pub use exported::ExportedInfraGraph;

use crate::graphs;
use crate::reader::Section;
use crate::scenario::Scenario;
use crate::shapes::{latency, of_file, switch_latency};
use strandway_fabric::Topology;
use strandway_fabric::topology::Level;
use strandway_import::infragraph;
use strandway_import::leaf_spine::EqualServers;
use strandway_proto::units::{Rate, Span};

/// The fabric of a document.
pub(super) struct Made {
    pub(super) topology: Topology,
    /// The servers, if hosts have the order of the document.
    pub(super) servers: Option<EqualServers>,
    /// Sentences about what the document does not say.
    pub(super) assumed: Vec<String>,
}

/// Reads the document that `topo` names.
pub(super) fn read(section: &Section<'_>, scenario: &Scenario) -> Option<Made> {
    let rate = section.rate("rate").unwrap_or(Rate::from_gbps(400));
    let usual = Level { rate, latency: latency(section, "latency", Span::from_us(1))? };
    let inside = switch_latency(section)?;
    let paths = graphs::paths(section);
    let Some(name) = section.text("topo") else {
        if !section.has("topo") {
            let remedy = "name a file of InfraGraph in YAML, JSON or protobuf (.pb): topo = \"FILE.yaml\"";
            section.sink.add("fabric.topo", "", "is missing", remedy);
        }
        return None;
    };
    let parsed = if infragraph::is_protobuf(name.as_ref()) {
        let read = scenario.read_bytes(&name);
        read.and_then(|(file, bytes)| infragraph::parse_protobuf(&file, &bytes, Some(usual)))
    } else {
        scenario.read(&name).and_then(|(file, text)| infragraph::parse(&file, &text, Some(usual)))
    };
    let made = match parsed {
        Ok(made) => made,
        Err(problems) => {
            section.sink.extend(problems.0);
            return None;
        }
    };
    let assumed = made.notes.into_iter().map(|note| format!("fabric.topo: {note}")).collect();
    let servers = made.servers;
    let topology = of_file(section, made.fabric, paths, inside)?;
    Some(Made { topology, servers, assumed })
}

//! Configurations of real switches and hosts for the fabric of a scenario.

use super::nodes::node_file;
use super::{LinuxFabric, Options, PLANES_MAX, describe, t1s};
use crate::node_file::NodeFile;
use strandway_fabric::usid::Clos;
use strandway_import::Problems;
use strandway_lab::Scenario;
use strandway_namespaces::export::{Buffers, Export, Limits, Need, System};
use strandway_namespaces::name_fits;
use strandway_scenario::reader::Sink;

/// The most hosts of an export: the files of hosts have one number of 16 bits.
const HOSTS_MAX: u32 = u16::MAX as u32;

/// All files of a scenario's fabric for another system. The description is the one from which namespaces are built, but
/// without their limits: ports may have any rate, and there may be thousands of hosts.
///
/// # Errors
/// All problems of the scenario; numbers that do not fit micro segments; and needs above `limits`, which were read from
/// `limits_file`.
pub fn export(
    scenario: &Scenario,
    name: &str,
    system: System,
    limits: &Limits,
    limits_file: &str,
) -> Result<(LinuxFabric, Export), Problems> {
    let sink = Sink::new(scenario.file());
    if let Err(e) = name_fits(name) {
        sink.add("--name", name, e.0, "");
    }
    let experiment = strandway_lab::check(scenario)?;
    let topology = &experiment.plan.topology;
    let shape = *topology.shape();
    let bundle = shape.leaf_bundle.max(shape.pods.map_or(1, |pods| pods.core_bundle));
    if topology.graph().is_some() {
        let what = "graphs of switches have no source routes, which the switches' tables are for";
        sink.add("fabric.kind", &experiment.fabric, what, "take a leaf-spine fabric, a fat tree, planes or sites");
    } else if bundle > 1 && topology.sites() == 0 {
        let what = "parallel links cannot be told apart by micro segments";
        sink.add("fabric.bundle", bundle, what, "leave it out and write more switches of the tier above");
    }
    if shape.planes > PLANES_MAX {
        let what = format!("addresses distinguish {PLANES_MAX} planes");
        sink.add("fabric.planes", shape.planes, what, "write fewer planes");
    }
    if shape.hosts > HOSTS_MAX {
        let what = format!("an export has at most {HOSTS_MAX} hosts");
        sink.add("fabric.hosts", shape.hosts, what, "add --set fabric.hosts=4096; the tables of other pods are alike");
    }
    for (key, count) in
        [("spines", t1s(topology)), ("hosts_per_leaf", shape.hosts_per_leaf), ("leaves", topology.leaves())]
    {
        if count > u32::from(u16::MAX) {
            let what = format!("{count} do not fit a micro segment of 16 bits");
            sink.add(&format!("fabric.{key}"), count, what, "write a smaller fabric");
        }
    }
    if !sink.is_empty() {
        return Err(Problems(sink.take()));
    }
    let mut fabric = describe(scenario, &experiment, name, &Options::default(), None);
    // Notes are about namespaces.
    fabric.notes.clear();
    if let Err(e) = fabric.try_clos() {
        let what = format!("does not fit the space of segments: {e}");
        sink.add(
            "fabric",
            "",
            what,
            "write fewer switches of that kind, or fewer planes; docs/linux-fabric.md has the words",
        );
        return Err(Problems(sink.take()));
    }
    let ports = &experiment.plan.ports;
    let buffers = Buffers {
        priority: ports.priority,
        control_queue: ports.control_queue.0,
        pfc: ports.pfc,
        shared: ports.shared,
    };
    let text = |host: u16, clos: Clos| {
        // Nothing denies parts of a real fabric by such a file, unless its operator names one.
        NodeFile { srv6: Some(clos), denied_file: None, ..node_file(&fabric, host) }.to_string()
    };
    let made = strandway_namespaces::export::export(&fabric, &buffers, system, limits, &text);
    made.map(|export| (fabric.clone(), export)).map_err(|excess| {
        let sink = Sink::new(limits_file);
        for need in excess {
            let Need { switch, needs, has, key } = &need;
            let what = format!("{switch} needs {needs}");
            sink.add(key, has.unwrap_or_default(), what, need.remedy());
        }
        Problems(sink.take())
    })
}

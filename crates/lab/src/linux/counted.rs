//! Turns the counters of a fabric's ports into the counters of the plan's links.

use crate::linux::faults::node;
use crate::linux::status::{PortStatus, Status};
use crate::linux::{LinuxFabric, Node};
use std::collections::BTreeMap;
use strandway_fabric::measure::LinkCounters;
use strandway_fabric::{LinkId, Topology};
use strandway_proto::Bytes;

/// Per link of the plan what happened between two looks at the fabric. A packet that the network card would have cut into many
/// counts as one, and bytes include Ethernet headers. Queue lengths and pauses are not counted by ports of namespaces.
pub(crate) fn links(fabric: &LinuxFabric, topology: &Topology, before: &Status, after: &Status) -> Vec<LinkCounters> {
    let (before, after) = (by_name(before), by_name(after));
    (0..topology.links())
        .map(|link| counted(fabric, topology, LinkId(link), &before, &after).unwrap_or_default())
        .collect()
}

type Ports<'a> = BTreeMap<(&'a str, &'a str), &'a PortStatus>;

fn by_name(status: &Status) -> Ports<'_> {
    status.ports.iter().map(|port| ((port.node.as_str(), port.port.as_str()), port)).collect()
}

fn counted(
    fabric: &LinuxFabric,
    topology: &Topology,
    link: LinkId,
    before: &Ports<'_>,
    after: &Ports<'_>,
) -> Option<LinkCounters> {
    let ends = topology.ends(link)?;
    let (from, to) = (node(topology, ends.from).ok()?, node(topology, ends.to).ok()?);
    let (out, into) = (name(fabric, from, to, ends.plane)?, name(fabric, to, from, ends.plane)?);
    let (from, to) = (from.to_string(), to.to_string());
    let grown = |node: &str, port: &str, of: fn(&PortStatus) -> u64| {
        let count = |ports: &Ports<'_>| ports.get(&(node, port)).map_or(0, |port| of(port));
        count(after).saturating_sub(count(before))
    };
    let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    Some(LinkCounters {
        packets: grown(&from, &out, |p| p.sent_packets),
        bytes: grown(&from, &out, |p| p.sent_bytes),
        dropped: small(grown(&from, &out, |p| p.dropped)),
        trimmed: small(grown(&from, &out, |p| p.trimmed)),
        // Random loss strikes, and marks are counted, where a packet comes in.
        lost: small(grown(&to, &into, |p| p.lost)),
        marked: small(grown(&to, &into, |p| p.marked)),
        queue_max: Bytes::ZERO,
        ..LinkCounters::default()
    })
}

/// What `from` calls its port to `to`.
fn name(fabric: &LinuxFabric, from: Node, to: Node, plane: u8) -> Option<String> {
    fabric.ports(from).into_iter().find(|port| port.peer == to && port.plane == plane).map(|port| port.name)
}

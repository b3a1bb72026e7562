//! Turns the counters of a fabric's ports into the counters of the plan's links.

use crate::faults::node;
use crate::lines::LineStatus;
use crate::status::{PortStatus, Status};
use crate::{LinuxFabric, Node};
use std::collections::BTreeMap;
use strandway_fabric::measure::LinkCounters;
use strandway_fabric::{LinkId, Topology};
use strandway_proto::Bytes;

/// The counters of each link of the plan, between two readings of the fabric's state. A packet that a network card
/// would have cut into several counts as one, and bytes include Ethernet headers. Ports of namespaces count neither
/// queue lengths nor pauses.
pub fn links(fabric: &LinuxFabric, topology: &Topology, before: &Status, after: &Status) -> Vec<LinkCounters> {
    let (ports_before, ports_after) = (by_name(before), by_name(after));
    let mut counted: Vec<LinkCounters> = (0..topology.links())
        .map(|link| counted(fabric, topology, LinkId(link), &ports_before, &ports_after).unwrap_or_default())
        .collect();
    for (link, counters) in long(topology, &before.lines, &after.lines) {
        counted[link.0 as usize] = counters;
    }
    counted
}

/// The counters of the long links, which their delay lines keep, between two readings.
fn long<'a>(
    topology: &'a Topology,
    before: &'a [LineStatus],
    after: &'a [LineStatus],
) -> impl Iterator<Item = (LinkId, LinkCounters)> + 'a {
    let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    topology.long_links().filter_map(move |(link, ends)| {
        let (there, way) = if ends.up { (link, 0) } else { (ends.reverse, 1) };
        let name = topology.link_name(there);
        let find = |lines: &[LineStatus]| lines.iter().find(|line| line.name == name).map(|line| line.ways[way]);
        let (was, is) = (find(before)?, find(after)?);
        let counters = LinkCounters {
            packets: is.taken - was.taken - (is.dropped - was.dropped),
            bytes: is.delivered_bytes - was.delivered_bytes,
            dropped: small(is.dropped - was.dropped),
            lost: small(is.lost - was.lost),
            ..LinkCounters::default()
        };
        Some((link, counters))
    })
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
    let (from, to) = (node(topology, ends.from), node(topology, ends.to));
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
        // Random losses and marks are counted where a packet arrives.
        lost: small(grown(&to, &into, |p| p.lost)),
        marked: small(grown(&to, &into, |p| p.marked)),
        queue_max: Bytes::ZERO,
        ..LinkCounters::default()
    })
}

/// The name of `from`'s port to `to`.
fn name(fabric: &LinuxFabric, from: Node, to: Node, plane: u8) -> Option<String> {
    fabric.ports(from).into_iter().find(|port| port.peer == to && port.plane == plane).map(|port| port.name)
}

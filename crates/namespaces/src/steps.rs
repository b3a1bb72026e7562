//! The steps of building and changing a fabric, as data: lines for `ip`, `tc`, a compiler and the kernel's settings,
//! namespace by namespace.

use crate::fabric::Team;
use crate::failure::{Failures, WHOLE};
use crate::lines::{ENDS, whole_frames};
use crate::queue::{Object, Queue, arrivals, burst, queue};
use crate::step::{Step, Tool};
use crate::teams::{disband, form};
use crate::{Copying, LinuxFabric, Node, Port};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use strandway_fabric::usid::{Clos, SwitchTable};

/// All steps that build a fabric from nothing.
pub fn build(fabric: &LinuxFabric) -> Vec<Step> {
    let nodes = fabric.nodes();
    let here = |lines| Step { namespace: None, tool: Tool::Ip, lines };
    let mut steps = vec![here(nodes.iter().map(|n| format!("netns add {}", fabric.namespace(*n))).collect())];
    let queues = |node| fabric.ports(node).into_iter().filter_map(|port| queue(fabric, &port, WHOLE));
    steps.extend(compile(nodes.iter().flat_map(|&node| queues(node)).filter_map(|queue| queue.object)));
    steps.extend(nodes.iter().map(|n| in_namespace(fabric, *n, Tool::Sysctl, settings(*n))));
    steps.push(here(cables(fabric)));
    for node in nodes {
        steps.push(in_namespace(fabric, node, Tool::Ip, tables(fabric, node)));
        let at_lines: Vec<Port> = fabric.ports(node).into_iter().filter(|port| fabric.is_at_line(port)).collect();
        if !at_lines.is_empty() {
            let names: Vec<&str> = at_lines.iter().map(|port| &port.name[..]).collect();
            steps.push(whole_frames(&fabric.namespace(node), &names));
        }
        let lines: Vec<String> = queues(node).flat_map(|Queue { first, rest, .. }| [first, rest].concat()).collect();
        if !lines.is_empty() {
            steps.push(in_namespace(fabric, node, Tool::Tc, lines));
        }
    }
    steps.extend(regroup(fabric, &[], &fabric.teams));
    steps
}

/// The steps that change one set of multicast teams into another one.
pub fn regroup(fabric: &LinuxFabric, from: &[Team], to: &[Team]) -> Vec<Step> {
    let mut lines: BTreeMap<Node, Vec<String>> = BTreeMap::new();
    if fabric.copying == Copying::Routers {
        // A router reads its routes from a file (`routers.rs`).
        return Vec::new();
    }
    let gone = from.iter().filter(|team| !to.contains(team)).map(|team| disband(fabric, team));
    let new: Vec<_> = to.iter().filter(|team| !from.contains(team)).map(|team| form(fabric, team)).collect();
    for switch in new.iter().flat_map(BTreeMap::keys) {
        let hooks = fabric.ports(*switch).into_iter().map(|port| format!("qdisc replace dev {} clsact", port.name));
        lines.entry(*switch).or_insert_with(|| hooks.collect());
    }
    for (switch, more) in gone.chain(new).flatten() {
        lines.entry(switch).or_default().extend(more);
    }
    lines.into_iter().map(|(switch, lines)| in_namespace(fabric, switch, Tool::Tc, lines)).collect()
}

/// Compiles each program once.
fn compile(objects: impl Iterator<Item = Object>) -> Option<Step> {
    let objects: BTreeSet<Object> = objects.collect();
    let lines: Vec<String> = objects.iter().map(Object::line).collect();
    (!lines.is_empty()).then_some(Step { namespace: None, tool: Tool::Clang, lines })
}

/// The steps that change one set of failures into another one.
pub fn change(fabric: &LinuxFabric, from: &Failures, to: &Failures) -> Vec<Step> {
    let (mut steps, mut objects) = (Vec::new(), Vec::new());
    for node in fabric.nodes() {
        let (mut ip, mut tc) = (Vec::new(), Vec::new());
        for port in fabric.ports(node) {
            let (was, is) = (from.state(&port), to.state(&port));
            if is.down && !was.down {
                ip.push(format!("link set {} down", port.name));
            } else if was.down && !is.down {
                ip.extend(port_lines(fabric, &port));
            }
            if (was.silent, was.loss) != (is.silent, is.loss) {
                tc.extend(arrivals(fabric, &port.name, &is));
                objects.extend(burst(&fabric.folder(), &is));
            }
            if was.share != is.share
                && let Some(queue) = queue(fabric, &port, is.share)
            {
                tc.extend(queue.rest);
                objects.extend(queue.object);
            }
        }
        for (tool, lines) in [(Tool::Ip, ip), (Tool::Tc, tc)] {
            if !lines.is_empty() {
                steps.push(in_namespace(fabric, node, tool, lines));
            }
        }
    }
    compile(objects.into_iter()).into_iter().chain(steps).collect()
}

fn in_namespace(fabric: &LinuxFabric, node: Node, tool: Tool, lines: Vec<String>) -> Step {
    Step { namespace: Some(fabric.namespace(node)), tool, lines }
}

/// Kernel settings of a node: no automatic traffic; switches forward.
fn settings(node: Node) -> Vec<String> {
    let mut lines = Vec::new();
    for scope in ["all", "default"] {
        // No automatic addresses, no duplicate detection, no router solicitations: tables are static.
        for (key, value) in [("addr_gen_mode", 1), ("accept_dad", 0), ("accept_ra", 0), ("router_solicitations", 0)] {
            lines.push(format!("net/ipv6/conf/{scope}/{key} {value}"));
        }
    }
    if !matches!(node, Node::Host(_)) {
        lines.push("net/ipv6/conf/all/forwarding 1".into());
    }
    lines
}

/// Every link of the fabric; both ends are created in their namespaces.
fn cables(fabric: &LinuxFabric) -> Vec<String> {
    let mut cables = Vec::new();
    for node in fabric.nodes() {
        // A T0 lists all its links, a T1 those to T2s.
        let own = |port: &Port| match node {
            Node::T0(..) => true,
            Node::T1(..) => matches!(port.peer, Node::T2(..)),
            Node::Host(_) | Node::T2(..) => false,
        };
        for port in fabric.ports(node).into_iter().filter(own) {
            let far = fabric.ports(port.peer).into_iter().find(|p| p.peer == node && p.plane == port.plane);
            let far = far.expect("every port has one at the other end");
            let end = |port: &Port| {
                let (mtu, space) = (fabric.mtu, fabric.namespace(port.node));
                format!(
                    "{} mtu {mtu} address {} netns {space}",
                    port.name,
                    mac(&fabric.clos(), port.node, port.peer, port.plane)
                )
            };
            if !fabric.is_at_line(&port) {
                cables.push(format!("link add {} type veth peer name {}", end(&port), end(&far)));
                continue;
            }
            // The delay line carries frames between its two devices, which are both in the namespace of the T1.
            let t1 = far.node;
            for (port, device) in [(&far, ENDS[0]), (&port, ENDS[1])] {
                let space = fabric.namespace(t1);
                let line_end = format!("{device} mtu {} netns {space}", fabric.mtu);
                cables.push(format!("link add {} type veth peer name {line_end}", end(port)));
            }
        }
    }
    cables
}

/// Addresses, neighbours and routes of a node.
fn tables(fabric: &LinuxFabric, node: Node) -> Vec<String> {
    let clos = fabric.clos();
    let block = clos.locator(0);
    let mut lines = vec!["link set lo up".to_string()];
    match node {
        Node::Host(h) => {
            // Sending to an address without a route is an error at the socket, at once.
            lines.push(format!("route replace unreachable {block}/32 metric 4096"));
            for plane in 0..fabric.planes {
                let own = clos.host(plane, u32::from(h));
                lines.push(format!("addr replace {own}/128 dev lo nodad"));
                lines.push(format!("route replace local {own}/64 dev lo table local"));
            }
            if fabric.trimming {
                // A large send must leave as separate packets, since switches cannot trim a packet that stands for
                // several.
                lines.extend(fabric.ports(node).iter().map(|port| format!("link set {} gso_max_segs 1", port.name)));
            }
        }
        Node::T0(..) | Node::T1(..) | Node::T2(..) => {
            // A packet to an address without a route is dropped silently.
            lines.push(format!("route replace blackhole {block}/32 metric 4096"));
            // Routes that consume a word need a device that no failure takes down. It must not be lo, for which the
            // kernel makes rejecting routes. So each switch has a cable to itself.
            lines.push("link add sid0 type veth peer name sid1".into());
            lines.push("link set sid0 up".into());
            lines.push("link set sid1 up".into());
            for (word, taken) in table(fabric, &clos, node).own() {
                let flavor = format!("flavors next-csid lblen 32 nflen {}", taken * 16);
                let own = clos.locator(*word);
                lines.push(format!("route replace {own}/48 encap seg6local action End {flavor} dev sid0"));
            }
        }
    }
    for port in fabric.ports(node) {
        lines.extend(port_lines(fabric, &port));
        if matches!(node, Node::T1(..)) && fabric.is_at_line(&port) {
            lines.extend(ENDS.map(|device| format!("link set {device} up")));
        }
    }
    lines
}

/// The static table of a switch; the simulator's tests walk the same tables.
pub(crate) fn table(fabric: &LinuxFabric, clos: &Clos, node: Node) -> SwitchTable {
    match node {
        Node::T0(p, i) => SwitchTable::t0(clos, p, i, u32::from(fabric.hosts)),
        Node::T1(p, j) => SwitchTable::t1(clos, p, j, fabric.t0s()),
        Node::T2(p, m) => SwitchTable::t2(clos, p, m, fabric.t0s()),
        Node::Host(h) => panic!("host {h} is no switch"),
    }
}

/// All settings of a port that the kernel removes when the port goes down.
fn port_lines(fabric: &LinuxFabric, port: &Port) -> Vec<String> {
    let clos = fabric.clos();
    let name = &port.name;
    let [own, far] = [port.node, port.peer].map(|node| link_local(word(&clos, node, port.plane)));
    let mut lines = vec![
        format!("link set {name} up"),
        format!("addr replace {own}/64 dev {name} scope link nodad"),
        format!("neigh replace {far} lladdr {} dev {name} nud permanent", mac(&clos, port.peer, port.node, port.plane)),
    ];
    let to = |(prefix, bits): (Ipv6Addr, u8)| format!("route replace {prefix}/{bits} via {far} dev {name} metric 100");
    lines.extend(prefixes(fabric, port).into_iter().map(to));
    lines
}

/// The prefixes of all addresses that a node sends to this port, each with its length in bits.
pub(crate) fn prefixes(fabric: &LinuxFabric, port: &Port) -> Vec<(Ipv6Addr, u8)> {
    let clos = fabric.clos();
    match port.node {
        // The first word determines the plane, and so the port.
        Node::Host(_) => clos.plane_prefixes(port.plane).to_vec(),
        switch => {
            let (number, table) = (port_number(&clos, port), table(fabric, &clos, switch));
            // The longest prefix wins: the own word and that of a downlink are not consumed.
            let downlinks = table.downlinks().iter().filter(|(_, to)| *to == number);
            let routes = table.routes().iter().filter(|(_, to)| *to == number);
            let downlinks = downlinks.map(|(words, _)| (clos.pair(*words), 64));
            downlinks.chain(routes.map(|(word, _)| (clos.locator(*word), 48))).collect()
        }
    }
}

/// The number of a port in a switch's table.
fn port_number(clos: &Clos, port: &Port) -> u16 {
    let t0s_per_pod = clos.pods.map_or(0, |pods| pods.t0s);
    match (port.node, port.peer) {
        (_, Node::Host(h)) => clos.downlink_of(u32::from(h)),
        (Node::T2(..), Node::T1(_, j)) => j / clos.t1s,
        (_, Node::T1(_, j)) => clos.hosts_per_t0 + j % clos.t1s,
        (_, Node::T0(_, i)) => i.checked_rem(t0s_per_pod).unwrap_or(i),
        (Node::T1(_, j), Node::T2(_, m)) => t0s_per_pod + m - clos.t2s_of(j).start,
        (node, Node::T2(..)) => panic!("{node} has no link to a T2"),
    }
}

/// The word of a node in addresses of a plane.
pub(crate) fn word(clos: &Clos, node: Node, plane: u8) -> u16 {
    match node {
        Node::Host(h) => clos.downlink(plane, clos.downlink_of(u32::from(h))),
        Node::T0(p, i) => clos.t0(p, i),
        Node::T1(p, j) => clos.t1(p, j),
        Node::T2(p, m) => clos.t2(p, m),
    }
}

/// The link-local address of a node, the same at all its ports.
pub(crate) fn link_local(word: u16) -> String {
    format!("fe80::{word:x}")
}

/// The MAC address of `node`'s port towards `peer`: both words, in a locally administered address.
pub(crate) fn mac(clos: &Clos, node: Node, peer: Node, plane: u8) -> String {
    let [a, b] = word(clos, node, plane).to_be_bytes();
    let [c, d] = word(clos, peer, plane).to_be_bytes();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

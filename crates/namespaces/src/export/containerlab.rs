//! A containerlab topology: switches that run FRR, hosts, and the links between them.

use crate::{LinuxFabric, Node};
use std::fmt::Write;

/// The image of switches: the project's own, of the first version with `static-sids` whose uN is tested here.
const SWITCH_IMAGE: &str = "quay.io/frrouting/frr:10.3.1";

/// The image of hosts, which needs nothing but `ip`.
const HOST_IMAGE: &str = "quay.io/frrouting/frr:10.3.1";

/// The topology file. Links are those of the plan, each written once.
pub(super) fn topology(fabric: &LinuxFabric) -> String {
    let mut text = format!(
        "# Deploy it in this folder: sudo containerlab deploy -t {0}.clab.yml\n\
         name: {0}\ntopology:\n  kinds:\n    linux: {{image: {HOST_IMAGE}}}\n  nodes:\n",
        fabric.name
    );
    for node in fabric.nodes() {
        let _ = writeln!(text, "    {node}:\n      kind: linux");
        if let Node::Host(_) = node {
            let _ = write!(
                text,
                "      binds: [\"{node}/links.ip:/etc/strandway/links.ip:ro\", \"{node}/node.toml:/etc/strandway/node.toml:ro\"]\n\
                 \x20     exec: [\"ip -6 -batch /etc/strandway/links.ip\"]\n"
            );
            continue;
        }
        let _ = write!(
            text,
            "      image: {SWITCH_IMAGE}\n      sysctls: {{net.ipv6.conf.all.forwarding: 1, net.ipv6.conf.all.seg6_enabled: 1}}\n\
             \x20     binds: [\"{node}/links.ip:/etc/strandway/links.ip:ro\", \"{node}/frr.conf:/etc/frr/frr.conf\"]\n\
             \x20     exec: [\"ip -6 -batch /etc/strandway/links.ip\", \"vtysh -b\"]\n"
        );
    }
    text.push_str("  links:\n");
    for node in fabric.nodes() {
        for port in fabric.ports(node).into_iter().filter(|port| port.node < port.peer) {
            let far = fabric.ports(port.peer).into_iter().find(|p| p.peer == node && p.plane == port.plane);
            let far = far.expect("every port has one at the other end");
            let _ = writeln!(text, "    - endpoints: [\"{node}:{}\", \"{}:{}\"]", port.name, far.node, far.name);
        }
    }
    text
}

//! The network files of hosts.

use super::switch::ports;
use super::{Gap, System, gap};
use crate::{LinuxFabric, Node};
use std::fmt::Write;

/// The netplan file of a host: a port per plane, the host's own address in each plane, and a route into each plane.
pub(super) fn netplan(fabric: &LinuxFabric, host: u16, neutral: bool) -> String {
    let clos = fabric.clos();
    let mut text = String::from(
        "# The name of each port is the plan's: match the NIC of that plane by its MAC address (netplan: match, set-name).\n\
         network:\n  version: 2\n  renderer: networkd\n  ethernets:\n",
    );
    for (plane, port) in (0..).zip(ports(fabric, Node::Host(host), neutral)) {
        let own = clos.host(plane, u32::from(host));
        let _ = write!(
            text,
            "    {}:\n      mtu: {}\n      accept-ra: false\n      dhcp4: false\n      dhcp6: false\n      link-local: []\n\
             \x20     addresses: [\"{}/64\", \"{own}/128\"]\n      routes:\n",
            port.name, fabric.mtu, port.own
        );
        for (prefix, bits) in &port.routes {
            let _ = writeln!(text, "        - {{to: \"{prefix}/{bits}\", via: \"{}\"}}", port.far);
        }
    }
    // Sending to an address without a route is an error at the socket, at once.
    let _ = write!(
        text,
        "    lo:\n      routes:\n        - {{to: \"{}/32\", type: unreachable, metric: 4096}}\n",
        clos.locator(0)
    );
    text
}

/// The same network as lines for `ip -batch`, for a host in a container.
pub(super) fn links(fabric: &LinuxFabric, host: u16) -> String {
    let clos = fabric.clos();
    let mut text = format!("route replace unreachable {}/32 metric 4096\n", clos.locator(0));
    for (plane, port) in (0..).zip(ports(fabric, Node::Host(host), true)) {
        let (name, own) = (&port.name, clos.host(plane, u32::from(host)));
        let _ = write!(
            text,
            "link set {name} mtu {} up\naddr replace {}/64 dev {name} scope link nodad\n\
             addr replace {own}/128 dev lo nodad\nroute replace local {own}/64 dev lo table local\n",
            fabric.mtu, port.own
        );
        for (prefix, bits) in &port.routes {
            let _ = writeln!(text, "route replace {prefix}/{bits} via {} dev {name} metric 100", port.far);
        }
    }
    text
}

/// Parts of the plan that the files of hosts leave out.
pub(super) fn gaps(system: System) -> Vec<Gap> {
    let mut gaps = Vec::new();
    if system != System::Containerlab {
        gaps.push(gap(
            "addresses with a tag behind them",
            "netplan has no routes into table local",
            "for tags only, on each host and plane: ip -6 route add local ADDRESS/64 dev lo table local",
        ));
    }
    if !system.is_neutral() {
        gaps.push(gap(
            "checksum-neutral addresses (words e000 and up)",
            "a locator removes exactly the bits by which it is found, and these words are removed together with the next one",
            "node files have neutral = false: hosts send plain lists, without UDP checksums",
        ));
    }
    gaps
}

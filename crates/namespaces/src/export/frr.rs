//! FRR on Linux: static segments and routes as FRR's text, and the rest as lines for `ip`.

use super::switch::SwitchPlan;
use super::{Buffers, Gap, gap};
use crate::LinuxFabric;
use std::fmt::Write;

/// The device to which FRR binds its own segments (`DEFAULT_SRV6_IFNAME` of FRR's `lib/srv6.h`).
pub(crate) const DEVICE: &str = "sr0";

/// The text of `frr.conf`.
pub(super) fn config(switch: &SwitchPlan) -> String {
    let mut text = format!(
        "frr defaults datacenter\nhostname {}\nservice integrated-vtysh-config\nipv6 forwarding\n!\n",
        switch.name
    );
    for port in &switch.ports {
        let _ = writeln!(
            text,
            "interface {}\n description {}\n ipv6 address {}/64\n ipv6 nd suppress-ra\nexit\n!",
            port.name, port.peer, port.own
        );
    }
    let _ = writeln!(text, "ipv6 route {}/32 blackhole 250", switch.block);
    for port in &switch.ports {
        for (prefix, bits) in &port.routes {
            let _ = writeln!(text, "ipv6 route {prefix}/{bits} {} {}", port.far, port.name);
        }
    }
    text.push_str("!\nsegment-routing\n srv6\n  locators\n");
    let plain = || switch.sids.iter().filter(|(_, taken)| *taken == 1);
    for (prefix, _) in plain() {
        let _ = writeln!(
            text,
            "   locator MAIN\n    prefix {prefix}/48 block-len 32 node-len 16 func-bits 16\n    behavior usid\n   exit\n   !"
        );
    }
    text.push_str("  exit\n  !\n  static-sids\n");
    for (prefix, _) in plain() {
        let _ = writeln!(text, "   sid {prefix}/48 locator MAIN behavior uN");
    }
    text.push_str("  exit\n  !\n exit\n !\nexit\n!\n");
    text
}

/// Lines for `ip -6 -batch` before FRR starts: the device of segments, MTUs, and words that FRR cannot express.
pub(super) fn links(fabric: &LinuxFabric, switch: &SwitchPlan) -> String {
    // FRR takes any device of this name. A cable to itself exists in every kernel, unlike a dummy device.
    let mut text =
        format!("link add {DEVICE} type veth peer name {DEVICE}peer\nlink set {DEVICE} up\nlink set {DEVICE}peer up\n");
    for port in &switch.ports {
        let _ = writeln!(text, "link set {} mtu {} up", port.name, fabric.mtu);
    }
    for (prefix, taken) in switch.sids.iter().filter(|(_, taken)| *taken > 1) {
        let _ = writeln!(
            text,
            "route replace {prefix}/48 encap seg6local action End flavors next-csid lblen 32 nflen {} dev {DEVICE}",
            taken * 16
        );
    }
    text
}

/// Parts of the plan that FRR's text leaves out.
pub(super) fn gaps(fabric: &LinuxFabric, buffers: &Buffers, gaps: &mut Vec<Gap>) {
    let why = "FRR configures routes, not queues";
    for (wanted, what) in [
        (true, "rates and queues of ports"),
        (fabric.marking.is_some(), "ECN thresholds"),
        (fabric.trimming, "trimming"),
        (buffers.priority, "priority of control packets"),
        (buffers.pfc.is_some(), "PFC"),
        (buffers.shared.is_some(), "a shared buffer"),
    ] {
        if wanted {
            gaps.push(gap(what, why, "set them in the switch's data plane; `strandway fabric up` does so with tc"));
        }
    }
    gaps.push(gap(
        "checksum-neutral addresses (words e000 and up) of T1 switches",
        "static-sids removes one word of 16 bits",
        "links.ip has a kernel route for them (seg6local, nflen 32); FRR leaves routes of others alone",
    ));
    gaps.push(gap(
        "multicast along trees",
        "static multicast routes of FRR have no IPv6",
        "see docs/linux-fabric.md, With your routers",
    ));
}

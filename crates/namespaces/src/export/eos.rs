//! Arista EOS: the text of a switch's configuration.
//!
//! The words are those of Arista's pages about SRv6 uN (EOS 4.34.2F and later) and about quality of service. No EOS has
//! loaded this text here.

use super::switch::SwitchPlan;
use super::{Buffers, Gap, gap};
use crate::LinuxFabric;
use std::fmt::Write;
use strandway_fabric::datagram::CONTROL_DSCP;

/// The traffic class and queue of data, and of control packets.
const DATA: u8 = 3;
const CONTROL: u8 = 6;

/// The largest number of a `usid` of a locator (EOS's default range of global identifiers).
pub(super) const USID_MAX: u16 = 0xdfff;

/// The text of the configuration.
pub(super) fn config(fabric: &LinuxFabric, buffers: &Buffers, switch: &SwitchPlan, gaps: &mut Vec<Gap>) -> String {
    let mut text = format!("hostname {}\n!\nipv6 unicast-routing\n!\n", switch.name);
    let apart = buffers.priority || fabric.has_program();
    let _ = writeln!(text, "qos map dscp 0 to 63 to traffic-class {DATA}");
    if apart {
        let _ = writeln!(text, "qos map dscp {CONTROL_DSCP} to 63 to traffic-class {CONTROL}");
    }
    text.push_str("!\n");
    for (at, port) in switch.ports.iter().enumerate() {
        let _ = write!(
            text,
            "interface Ethernet{}\n   description {} to {}\n   mtu {}\n   no switchport\n   qos trust dscp\n",
            at + 1,
            port.name,
            port.peer,
            fabric.mtu
        );
        if let Some(rate) = port.rate {
            let _ = writeln!(text, "   shape rate {}", rate / 1000);
        }
        let _ =
            write!(text, "   ipv6 enable\n   ipv6 address {}/64 link-local\n   ipv6 nd ra disabled all\n", port.own);
        if buffers.pfc.is_some() {
            let _ = write!(text, "   priority-flow-control on\n   priority-flow-control priority {DATA} no-drop\n");
        }
        if let Some(marking) = fabric.marking.filter(|marking| marking.last_hop || !port.is_last_hop()) {
            let percent = marking.chance_ppm.div_ceil(10_000).clamp(1, 100);
            let _ = write!(
                text,
                "   uc-tx-queue {DATA}\n      random-detect ecn minimum-threshold {} bytes maximum-threshold {} bytes \
                 max-mark-probability {percent}\n",
                marking.low.max(1),
                marking.high.max(marking.low).max(1)
            );
        }
        if apart {
            let _ = write!(text, "   uc-tx-queue {CONTROL}\n      priority strict\n");
        }
        text.push_str("!\n");
    }
    let _ = write!(
        text,
        "router srv6\n   vrf default\n      micro-segment domain STRANDWAY\n         block {}/32\n      !\n",
        switch.block
    );
    for (prefix, _) in &switch.sids {
        let usid = prefix.segments()[2];
        let _ = write!(
            text,
            "      locator MAIN\n         prefix micro-segment domain STRANDWAY end usid {usid:#06x}\n      !\n"
        );
        if usid > USID_MAX {
            gaps.push(gap(
                format!("usid {usid:#06x}"),
                format!("the range of a locator ends at {USID_MAX:#06x}"),
                "configure another range in the domain",
            ));
        }
    }
    text.push_str("   !\n!\n");
    let _ = writeln!(text, "ipv6 route {}/32 Null0 250", switch.block);
    for (at, port) in switch.ports.iter().enumerate() {
        for (prefix, bits) in &port.routes {
            let _ = writeln!(text, "ipv6 route {prefix}/{bits} Ethernet{} {}", at + 1, port.far);
        }
    }
    text.push_str("!\nend\n");
    for (wanted, what, why, instead) in [
        (fabric.trimming, "trimming", "no published command was found", "packets that do not fit are dropped"),
        (
            true,
            "lengths of queues",
            "shares of a buffer are a profile of the switch's model (`hardware` commands)",
            "the switch's default thresholds",
        ),
        (
            buffers.pfc.is_some(),
            "thresholds of PFC",
            "a profile of the switch's model",
            "the switch's default headroom",
        ),
        (
            buffers.shared.is_some(),
            "the factor of the shared buffer",
            "a profile of the switch's model",
            "the switch's default factor",
        ),
        (
            true,
            "multicast along trees",
            "no static IPv6 multicast routes",
            "see docs/linux-fabric.md, With your routers",
        ),
    ] {
        if wanted {
            gaps.push(gap(what, why, instead));
        }
    }
    text
}

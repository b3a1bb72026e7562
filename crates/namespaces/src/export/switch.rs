//! A switch in the words that all systems have: its locator, its static routes, and its ports.

use crate::queue::rate_of;
use crate::steps::{link_local, prefixes, table, word};
use crate::{LinuxFabric, Node};
use std::net::Ipv6Addr;

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SwitchPlan {
    pub(crate) node: Node,
    /// Its host name, which is also the name of its files.
    pub(crate) name: String,
    /// The prefix of the words that it removes, `/48`, and how many words it removes with each.
    pub(crate) sids: Vec<(Ipv6Addr, usize)>,
    /// The block of all locators, `/32`.
    pub(crate) block: Ipv6Addr,
    /// Its ports, those to hosts first.
    pub(crate) ports: Vec<PortPlan>,
}

/// A port of a switch or host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortPlan {
    /// Its name in the plan, such as `u1`.
    pub(crate) name: String,
    /// The node at the other end.
    pub(crate) peer: Node,
    /// Its own link-local address, and that of the other end.
    pub(crate) own: String,
    pub(crate) far: String,
    /// Bits per second; `None` if the plan has no rate for it.
    pub(crate) rate: Option<u64>,
    /// Prefixes that leave by it, each with its length in bits.
    pub(crate) routes: Vec<(Ipv6Addr, u8)>,
}

impl PortPlan {
    /// Does it lead to a host?
    pub(crate) fn is_last_hop(&self) -> bool {
        matches!(self.peer, Node::Host(_))
    }
}

impl SwitchPlan {
    /// The switch of this name. `neutral`: with the words of checksum-neutral addresses.
    pub(crate) fn of(fabric: &LinuxFabric, node: Node, neutral: bool) -> SwitchPlan {
        let clos = fabric.clos();
        let own = table(fabric, &clos, node);
        let sids = own.own().iter().filter(|(_, taken)| neutral || *taken == 1);
        SwitchPlan {
            node,
            name: node.to_string(),
            sids: sids.map(|(word, taken)| (clos.locator(*word), *taken)).collect(),
            block: clos.locator(0),
            ports: ports(fabric, node, neutral),
        }
    }

    /// Number of static routes, the one that drops everything else included.
    pub(crate) fn routes(&self) -> usize {
        self.ports.iter().map(|port| port.routes.len()).sum::<usize>() + 1
    }
}

/// The ports of a node. `neutral`: routes for checksum-neutral addresses, too.
pub(crate) fn ports(fabric: &LinuxFabric, node: Node, neutral: bool) -> Vec<PortPlan> {
    let clos = fabric.clos();
    let wanted = |prefix: &Ipv6Addr| neutral || prefix.segments()[2] & NEUTRAL != NEUTRAL;
    let port = |port: crate::Port| {
        let [own, far] = [port.node, port.peer].map(|node| link_local(word(&clos, node, port.plane)));
        let rate = rate_of(fabric, &port).or_else(|| fabric.line_rate(&port));
        let routes = prefixes(fabric, &port).into_iter().filter(|(prefix, _)| wanted(prefix)).collect();
        PortPlan { name: port.name, peer: port.peer, own, far, rate, routes }
    };
    fabric.ports(node).into_iter().map(port).collect()
}

/// The first bits of words that are removed together with the next word (`strandway_fabric::usid`).
const NEUTRAL: u16 = 0xe000;

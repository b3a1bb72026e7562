//! Sizes of the tables of a switch, and what a fabric needs of them.

use super::Buffers;
use super::switch::SwitchPlan;
use crate::LinuxFabric;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Sizes of a switch; `None` is not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Ports.
    pub ports: Option<u64>,
    /// Own segments (`SRV6_MY_SIDS`).
    pub sids: Option<u64>,
    /// Static IPv6 routes.
    pub routes: Option<u64>,
    /// Bytes of packet buffer.
    pub buffer: Option<u64>,
    /// Bytes of a port's MTU.
    pub mtu: Option<u64>,
}

impl Limits {
    /// The names of all keys.
    pub const KEYS: [&'static str; 5] = ["ports", "sids", "routes", "buffer", "mtu"];

    /// The limit of this key; `None` if there is no such key.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Option<u64>> {
        match key {
            "ports" => Some(&mut self.ports),
            "sids" => Some(&mut self.sids),
            "routes" => Some(&mut self.routes),
            "buffer" => Some(&mut self.buffer),
            "mtu" => Some(&mut self.mtu),
            _ => None,
        }
    }
}

/// The need of the neediest switch of a fabric for one table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// The key of [`Limits`].
    pub key: &'static str,
    /// The first switch with this need.
    pub switch: String,
    /// The number that it needs.
    pub needs: u64,
    /// The number that it has; `None` if no limit is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has: Option<u64>,
}

impl Need {
    /// Is it above its limit?
    pub fn is_excess(&self) -> bool {
        self.has.is_some_and(|has| self.needs > has)
    }

    /// A change of the plan that makes it smaller.
    pub fn remedy(&self) -> &'static str {
        match self.key {
            "ports" => "write fewer hosts below a leaf, or fewer spines",
            "sids" => "a switch of this plan needs one or two; raise the limit",
            "routes" => "write fewer hosts below a leaf, fewer leaves, or smaller pods",
            "buffer" => "write a smaller fabric.queue or fabric.buffer",
            _ => "write a smaller payload, profile.transport.mtu",
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} needs {}", self.key, self.switch, self.needs)?;
        match self.has {
            Some(has) => write!(f, ", the switch has {has}"),
            None => Ok(()),
        }
    }
}

/// The largest needs of the switches.
///
/// # Errors
/// Those above their limits.
pub(super) fn check(
    switches: &[SwitchPlan],
    fabric: &LinuxFabric,
    buffers: &Buffers,
    limits: &Limits,
) -> Result<Vec<Need>, Vec<Need>> {
    let mut limits = *limits;
    let buffer = |switch: &SwitchPlan| buffer_of(fabric, buffers, switch.ports.len() as u64);
    type Count<'a> = &'a dyn Fn(&SwitchPlan) -> u64;
    let counts: [(&'static str, Count<'_>); 5] = [
        ("ports", &|switch| switch.ports.len() as u64),
        ("sids", &|switch| switch.sids.len() as u64),
        ("routes", &|switch| switch.routes() as u64),
        ("buffer", &buffer),
        ("mtu", &|_| u64::from(fabric.mtu)),
    ];
    let largest = |(key, count): (&'static str, Count<'_>)| {
        // The first of the neediest switches.
        let switch = switches.iter().rev().max_by_key(|switch| count(switch))?;
        let has = limits.get_mut(key).and_then(|limit| *limit);
        Some(Need { key, switch: switch.name.clone(), needs: count(switch), has })
    };
    let needs: Vec<Need> = counts.into_iter().filter_map(largest).collect();
    let excess: Vec<Need> = needs.iter().filter(|need| need.is_excess()).cloned().collect();
    if excess.is_empty() { Ok(needs) } else { Err(excess) }
}

/// Bytes of packet buffer that a switch of `ports` ports needs: a shared buffer, or all queues; and PFC's headroom.
pub(super) fn buffer_of(fabric: &LinuxFabric, buffers: &Buffers, ports: u64) -> u64 {
    let queues = (fabric.queue + buffers.control_queue) * ports;
    let waiting = match (buffers.shared, buffers.pfc) {
        (Some(shared), _) => shared.buffer.0,
        (None, Some(pfc)) => pfc.xoff.0 * ports,
        (None, None) => queues,
    };
    waiting + buffers.pfc.map_or(0, |pfc| pfc.headroom.0 * ports)
}

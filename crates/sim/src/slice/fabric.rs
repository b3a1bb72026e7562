//! The switches and links of a slice, apart from the ports themselves.

use super::crossing::Outbox;
use super::eager::Switches;
use super::fault::LinkFaults;
use super::programmable_switch::Stations;
use crate::port::ColdPort;
use crate::queue::Arena;
use crate::road::Cargo;
use crate::route::Router;
use crate::telemetry::Carried;
use std::collections::{BTreeMap, VecDeque};

/// Routing, stored packets, and the parts of ports that few runs need.
pub(super) struct Fabric {
    pub(super) router: Router,
    /// The waiting packets of all ports.
    pub(super) arena: Arena,
    /// The transport headers of all packets on the road.
    pub(super) cargo: Cargo,
    /// The records of switches that these packets carry; only if a profile reads them.
    pub(super) carried: Carried,
    /// The rarely used fields of the ports; only with faults, pauses or series.
    pub(super) colds: Vec<ColdPort>,
    /// For each plain first-in-first-out port, the start times and sizes of its waiting packets; empty if there is no
    /// such port.
    pub(super) fifos: Vec<VecDeque<(u64, u32)>>,
    /// The faults of links, by port.
    pub(super) faults: BTreeMap<u32, LinkFaults>,
    /// Switches with eager ports.
    pub(super) switches: Switches,
    /// Switches that run programs.
    pub(super) stations: Stations,
    /// For each other slice, the packets and signals to hand over.
    pub(super) outboxes: Vec<Outbox>,
}

impl Fabric {
    pub(super) fn new(router: Router, stations: Stations, slices: usize) -> Fabric {
        Fabric {
            router,
            arena: Arena::default(),
            cargo: Cargo::default(),
            carried: Carried::default(),
            colds: Vec::new(),
            fifos: Vec::new(),
            faults: BTreeMap::new(),
            switches: Switches::default(),
            stations,
            outboxes: vec![Outbox::default(); slices],
        }
    }
}

//! The switches and links of a slice, apart from the ports themselves.

use super::crossing::Outbox;
use super::eager::Switches;
use super::fault::LinkFaults;
use super::programmable_switch::Stations;
use crate::backlog::Backlogs;
use crate::port::{ColdPort, Refused};
use crate::queue::Arena;
use crate::road::Cargo;
use crate::route::Router;
use crate::telemetry::Carried;
use std::collections::{BTreeMap, VecDeque};

/// The packets that wait at a plain first-in-first-out port: their departures are known on arrival.
#[derive(Clone, Default)]
pub(super) struct Fifo {
    /// Bytes waiting.
    pub(super) queued: u64,
    /// When each waiting packet leaves, and its size.
    pub(super) starts: VecDeque<(u64, u32)>,
}

/// Routing, stored packets, and the parts of ports that few runs need.
pub(super) struct Fabric {
    pub(super) router: Router,
    /// The waiting packets of all ports: by port, and the memory in which they lie.
    pub(super) backlogs: Backlogs,
    pub(super) arena: Arena,
    /// The transport headers of all packets on the road.
    pub(super) cargo: Cargo,
    /// The records of switches that these packets carry; only if a profile reads them.
    pub(super) carried: Carried,
    /// The rarely used fields of the ports; only with faults, pauses or series.
    pub(super) colds: Vec<ColdPort>,
    /// By port: the packets for which it had no room.
    pub(super) refused: BTreeMap<usize, Refused>,
    /// The packets that wait at each plain first-in-first-out port; empty if there is no such port.
    pub(super) fifos: Vec<Fifo>,
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
            backlogs: Backlogs::new(),
            arena: Arena::default(),
            cargo: Cargo::default(),
            carried: Carried::default(),
            colds: Vec::new(),
            refused: BTreeMap::new(),
            fifos: Vec::new(),
            faults: BTreeMap::new(),
            switches: Switches::default(),
            stations,
            outboxes: vec![Outbox::default(); slices],
        }
    }
    /// Counts of the packets that a port refused.
    #[cold]
    pub(super) fn refused_at(&mut self, port: usize) -> &mut Refused {
        self.refused.entry(port).or_default()
    }
}

//! PRIME's tables for switches that hash: the entropy values that hosts send instead of tuples of uplinks.
//!
//! A path selector that numbers uplinks needs switches that index them. If they hash, a host that knows their hash can
//! look for an entropy value whose packets take the uplinks that it wants. Each connection has a table of its own,
//! because the hash covers the flow. A table is made when its connection first sends data. Packets of data and probes
//! leave with the value of the table; acknowledgements name that value, and the host translates it back for its
//! selector.

use crate::route::Router;
use std::collections::HashMap;
use strandway_fabric::plan::Plan;
use strandway_proto::packet::{Header, HostId, Packet};
use strandway_proto::path::PathConfig;
use strandway_proto::profile::Routing;
use strandway_proto::{ConnectionId, PathId, Profile};

/// A table tries this many entropy values per tuple: ours. With `n` tuples about `n ln n` values find all of them.
const TRIES_PER_TUPLE: u32 = 64;

/// The tables of the connections that begin or end at the hosts of a slice. They are looked up by key, never iterated.
#[derive(Default)]
pub(super) struct Tables {
    /// By host, peer and the peer's number of the connection: for packets that leave.
    leaving: HashMap<(HostId, HostId, ConnectionId), u32>,
    /// By host and its own number of the connection: for packets that arrive.
    arriving: HashMap<(HostId, ConnectionId), u32>,
    tables: Vec<Table>,
}

/// The table of one end of a connection.
struct Table {
    /// Uplinks at each tier.
    uplinks: [u16; 2],
    /// By port, once it has been used: the entropy value of each tuple, and the tuple of each value, in order of
    /// values.
    ports: Vec<Option<Port>>,
}

struct Port {
    values: Vec<u32>,
    tuples: Vec<(u32, u32)>,
}

/// Do connections of this profile need tables in this run?
fn wants(plan: &Plan, profile: &Profile) -> bool {
    plan.routing == Routing::Hashed && matches!(&profile.path, PathConfig::Prime(prime) if prime.table)
}

impl Tables {
    /// Nothing, if no profile of the plan wants tables.
    pub(super) fn new(plan: &Plan) -> Option<Box<Tables>> {
        plan.profiles.iter().any(|profile| wants(plan, profile)).then(Box::default)
    }

    /// An end of a connection of the plan was opened.
    pub(super) fn open(
        &mut self,
        plan: &Plan,
        profile: &Profile,
        (host, ours): (HostId, ConnectionId),
        (peer, theirs): (HostId, ConnectionId),
        uplinks: [u16; 2],
    ) {
        if uplinks[0] > 1 && wants(plan, profile) {
            let number = self.tables.len() as u32;
            let ports = (0..plan.topology.planes()).map(|_| None).collect();
            self.tables.push(Table { uplinks: [uplinks[0], uplinks[1].max(1)], ports });
            self.leaving.insert((host, peer, theirs), number);
            self.arriving.insert((host, ours), number);
        }
    }

    /// Gives a packet that leaves the entropy value of its uplinks.
    pub(super) fn translate(&mut self, router: &Router, packet: &mut Packet) {
        let has_choice = matches!(packet.header, Header::Data(_) | Header::Probe { .. });
        let key = (packet.source, packet.destination, packet.connection);
        let Some(&number) = self.leaving.get(&key).filter(|_| has_choice) else { return };
        let Table { uplinks, ports } = &mut self.tables[number as usize];
        let port = packet.path.port();
        let Some(slot) = ports.get_mut(usize::from(port)) else { return };
        let known = slot.get_or_insert_with(|| Port::new(router, packet, *uplinks));
        if let Some(tuple) = tuple_of(packet.path.entropy(), *uplinks) {
            packet.path = PathId::new(port, known.values[tuple as usize]);
        }
    }

    /// Gives an acknowledgement or NACK that arrives the path that the sender's selector knows.
    pub(super) fn translate_back(&self, packet: &Packet) -> Packet {
        let mut packet = *packet;
        let Some(&number) = self.arriving.get(&(packet.destination, packet.connection)) else { return packet };
        let Table { uplinks, ports } = &self.tables[number as usize];
        let back = |path: PathId| {
            let known = ports.get(usize::from(path.port()))?.as_ref()?;
            let at = known.tuples.binary_search_by_key(&path.entropy(), |(value, _)| *value).ok()?;
            Some(PathId::new(path.port(), entropy_of(known.tuples[at].1, *uplinks)))
        };
        match &mut packet.header {
            Header::Ack(ack) => ack.path = back(ack.path).unwrap_or(ack.path),
            Header::Nack(nack) => nack.path = back(nack.path).unwrap_or(nack.path),
            _ => {}
        }
        packet
    }
}

/// The bits of the first tier's part, as PRIME's entropy values have them.
const fn bits(uplinks: [u16; 2]) -> u32 {
    uplinks[0].next_power_of_two().ilog2()
}

/// The number of the tuple that an entropy value of PRIME names.
const fn tuple_of(entropy: u32, uplinks: [u16; 2]) -> Option<u32> {
    let (first, second) = (entropy & ((1 << bits(uplinks)) - 1), entropy >> bits(uplinks));
    if first < uplinks[0] as u32 && second < uplinks[1] as u32 {
        Some(second * uplinks[0] as u32 + first)
    } else {
        None
    }
}

/// PRIME's entropy value of a tuple.
const fn entropy_of(tuple: u32, uplinks: [u16; 2]) -> u32 {
    (tuple % uplinks[0] as u32) | ((tuple / uplinks[0] as u32) << bits(uplinks))
}

impl Port {
    /// The table of the connection and port of a packet.
    fn new(router: &Router, packet: &Packet, uplinks: [u16; 2]) -> Port {
        let count = u32::from(uplinks[0]) * u32::from(uplinks[1]);
        let mut values: Vec<Option<u32>> = vec![None; count as usize];
        let mut missing = count;
        for value in 0..TRIES_PER_TUPLE.saturating_mul(count).min(PathId::ORDERED) {
            if missing == 0 {
                break;
            }
            let ways = router.uplinks(&Packet { path: PathId::new(packet.path.port(), value), ..*packet });
            let tuple =
                (ways >> 16) % u32::from(uplinks[1]) * u32::from(uplinks[0]) + (ways & 0xffff) % u32::from(uplinks[0]);
            let slot = &mut values[tuple as usize];
            missing -= u32::from(slot.is_none());
            slot.get_or_insert(value);
        }
        // A tuple that no value hits keeps its own number, which is as good as any other value.
        let values: Vec<u32> = values.into_iter().zip(0..).map(|(value, tuple)| value.unwrap_or(tuple)).collect();
        let mut tuples: Vec<(u32, u32)> = values.iter().copied().zip(0..).collect();
        tuples.sort_unstable();
        Port { values, tuples }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_and_primes_entropy_values_name_each_other() {
        for uplinks in [[16, 1], [6, 3], [4, 4], [2, 1]] {
            let count = u32::from(uplinks[0]) * u32::from(uplinks[1]);
            for tuple in 0..count {
                assert_eq!(tuple_of(entropy_of(tuple, uplinks), uplinks), Some(tuple));
            }
            assert_eq!(tuple_of(u32::from(uplinks[1]) << bits(uplinks), uplinks), None);
        }
        assert_eq!(tuple_of(6, [6, 3]), None, "six uplinks take three bits");
    }
}

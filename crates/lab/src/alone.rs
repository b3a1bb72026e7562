//! How long a message takes that meets nobody, by arithmetic.

use strandway_fabric::Topology;
use strandway_proto::units::{Bytes, Rate, Span};
use strandway_proto::{HostId, Profile};

/// Messages of one profile, each alone in the fabric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone<'a> {
    topology: &'a Topology,
    rate: Rate,
    mtu: u64,
    header: u64,
    control: Bytes,
}

impl<'a> Alone<'a> {
    /// `rate` is that of a NIC, all planes together.
    pub(crate) fn new(profile: &Profile, topology: &'a Topology, rate: Rate) -> Alone<'a> {
        let transport = &profile.transport;
        let (mtu, header) = (u64::from(transport.mtu), u64::from(transport.header));
        Alone { topology, rate, mtu, header, control: Bytes(u64::from(transport.control)) }
    }

    /// How long the sender's NIC is busy with it.
    pub(crate) fn busy(&self, bytes: u64) -> Span {
        self.rate.time_for(Bytes(bytes + self.packets(bytes) * self.header))
    }

    /// Until the receiver has it: the way of the last packet, or, if that is a short one, of the full one before it, each from
    /// when a port is free for it. Packets leave as many at a time as the NIC has ports.
    pub(crate) fn transfer(&self, from: HostId, to: HostId, bytes: u64) -> Span {
        let (packets, full) = (self.packets(bytes), self.mtu + self.header);
        let last = Bytes(bytes - (packets - 1) * self.mtu + self.header);
        let port = self.topology.narrowest(self.topology.leaf_of(from), self.topology.leaf_of(to));
        let ports = u64::from(self.topology.planes());
        // All packets but the last are full, so that those before this one keep every port equally long.
        let start = |packet: u64| port.time_for(Bytes(packet / ports * full));
        let short_last = start(packets - 1) + self.topology.one_way_between(last, from, to);
        if packets == 1 {
            return short_last;
        }
        let full_last = start(packets - 2) + self.topology.one_way_between(Bytes(full), from, to);
        // Below one leaf there is but one way, and the short packet cannot overtake.
        let behind =
            if self.topology.hops(from, to) == 2 && ports == 1 { self.rate.time_for(last) } else { Span::ZERO };
        short_last.max(full_last + behind)
    }

    /// Until the sender knows: with its acknowledgement's way back.
    pub(crate) fn completion(&self, from: HostId, to: HostId, bytes: u64) -> Span {
        self.transfer(from, to, bytes) + self.topology.one_way_between(self.control, to, from)
    }

    fn packets(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.mtu).max(1)
    }
}

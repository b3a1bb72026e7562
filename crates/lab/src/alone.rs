//! How long a message takes that meets nobody, by arithmetic.

use strandway_proto::units::{Bytes, Rate, Span};
use strandway_proto::{HostId, Profile};
use strandway_sim::Topology;

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

    /// Until the receiver has it: all its bytes at the NIC's rate, then the last packet's way.
    pub(crate) fn transfer(&self, from: HostId, to: HostId, bytes: u64) -> Span {
        let packets = self.packets(bytes);
        let last = Bytes(bytes - (packets - 1) * self.mtu + self.header);
        let before = Bytes((packets - 1) * (self.mtu + self.header));
        self.rate.time_for(before) + self.topology.one_way(last, self.topology.hops(from, to))
    }

    /// Until the sender knows: with its acknowledgement's way back.
    pub(crate) fn completion(&self, from: HostId, to: HostId, bytes: u64) -> Span {
        self.transfer(from, to, bytes) + self.topology.one_way(self.control, self.topology.hops(from, to))
    }

    fn packets(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.mtu).max(1)
    }
}

//! The time of a message that meets no other traffic, by arithmetic.

use strandway_fabric::Topology;
use strandway_fabric::topology::CUT_THROUGH_BYTES;
use strandway_proto::units::{Bytes, Rate, Span};
use strandway_proto::{HostId, Profile};

/// Computes the times of messages of one profile, each alone in the fabric.
#[derive(Clone, Copy, Debug)]
pub struct Alone<'a> {
    topology: &'a Topology,
    rate: Rate,
    mtu: u64,
    header: u64,
    control: Bytes,
    cost: Span,
}

impl<'a> Alone<'a> {
    /// `rate` is the rate of a NIC, all planes together.
    pub fn new(profile: &Profile, topology: &'a Topology, rate: Rate) -> Alone<'a> {
        let transport = &profile.transport;
        let (mtu, header) = (u64::from(transport.mtu), u64::from(transport.header));
        Alone { topology, rate, mtu, header, control: Bytes(u64::from(transport.control)), cost: Span::ZERO }
    }

    /// Its host needs this time to post a message.
    pub fn with_message_cost(self, cost: Span) -> Alone<'a> {
        Alone { cost, ..self }
    }

    /// How long the sender's NIC is busy with the message.
    pub fn busy(&self, bytes: u64) -> Span {
        self.rate.time_for(Bytes(bytes + self.packets(bytes) * self.header))
    }

    /// Time until the receiver has the message. It is the arrival of the last packet, or, if the last packet is short,
    /// possibly that of the full packet before it. Each packet leaves when a port is free; the NIC sends as many
    /// packets at a time as it has ports.
    pub fn transfer(&self, from: HostId, to: HostId, bytes: u64) -> Span {
        let (packets, full) = (self.packets(bytes), self.mtu + self.header);
        let last = Bytes(bytes - (packets - 1) * self.mtu + self.header);
        let port = self.topology.narrowest(self.topology.leaf_of(from), self.topology.leaf_of(to));
        let ports = u64::from(self.topology.planes());
        // All packets but the last are full, so the packets before one keep every port busy equally long.
        let start = |packet: u64| port.time_for(Bytes(packet / ports * full));
        let short_last = self.cost + start(packets - 1) + self.topology.one_way_between(last, from, to);
        if packets == 1 {
            return short_last;
        }
        let full_last = self.cost + start(packets - 2) + self.topology.one_way_between(Bytes(full), from, to);
        // Under one leaf there is only one path, so the short packet cannot overtake the full one.
        let behind =
            if self.topology.hops(from, to) == 2 && ports == 1 { self.rate.time_for(last) } else { Span::ZERO };
        short_last.max(full_last + behind)
    }

    /// Time until the sender knows that the message has arrived: `transfer`, and the way back of the acknowledgement.
    pub fn completion(&self, from: HostId, to: HostId, bytes: u64) -> Span {
        self.transfer(from, to, bytes) + self.topology.one_way_between(self.control, to, from)
    }

    /// As [`Alone::completion`], for a connection whose packets all take one path, by one port.
    pub fn completion_on_one_path(&self, from: HostId, to: HostId, bytes: u64) -> Span {
        let (packets, full) = (self.packets(bytes), Bytes(self.mtu + self.header));
        let last = Bytes(bytes - (packets - 1) * self.mtu + self.header);
        let cut_through = self.topology.cut_through().is_some();
        let needed = |size: Bytes| if cut_through { Bytes(size.0.min(CUT_THROUGH_BYTES)) } else { size };
        // When the first packet begins at a link, and the last one; the time between full packets behind the slowest
        // link so far.
        let (mut first, mut end, mut slowest) = (Span::ZERO, Span::ZERO, Span::ZERO);
        let mut arrived = Span::ZERO;
        for link in self.topology.links_of_path(from, to) {
            slowest = slowest.max(link.rate.time_for(full));
            let free = match packets {
                1 => Span::ZERO,
                _ => first + slowest * (packets - 2) + link.rate.time_for(full),
            };
            let begin = end.max(free);
            arrived = begin + link.rate.time_for(last) + link.latency;
            first += link.rate.time_for(needed(full)) + link.latency;
            end = begin + link.rate.time_for(needed(last)) + link.latency;
        }
        self.cost + arrived + self.topology.one_way_between(self.control, to, from)
    }

    fn packets(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.mtu).max(1)
    }
}

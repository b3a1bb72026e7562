//! The environment of a connection, which all its policies use: the network, and the sizes of packets.

use crate::parameters;
use crate::units::{Bytes, Rate, Span};

/// Facts about the network and the host that a connection needs. The world measures or configures them, not the
/// protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Environment {
    /// Line rate of the NIC, all ports together.
    pub rate: Rate,
    /// Number of NIC ports (planes).
    pub ports: u8,
    /// Round trip of one full packet and its acknowledgement over the longest path without queueing.
    pub base_rtt: Span,
    /// Wire bytes of one full packet.
    pub packet: Bytes,
    /// True if switches trim packets, false if they drop them.
    pub trimming: bool,
    /// The number of uplinks at each upward tier of a packet's path, from the leaf on; zeros if the fabric does not
    /// tell, or if there is no choice.
    pub uplinks: [u16; 2],
    /// The number of paths of a port, if each of them keeps its packets in order: two entropy values that are equal
    /// modulo this number take the same path. Zero if the world does not know.
    pub paths_in_order: u16,
    /// The largest size of one data queue of a switch, in bytes; it limits the delay of a packet.
    pub queue: Bytes,
    /// No packet arrives later than this after it was sent. A closed connection is remembered for this long, so that a
    /// late packet does not open it again.
    pub packet_life: Span,
}

impl Environment {
    /// The bandwidth-delay product: line rate times base RTT.
    pub fn bdp(&self) -> Bytes {
        self.rate.bytes_in(self.base_rtt)
    }

    /// The shortest retransmission timeout. A shorter one could send a packet again before its acknowledgement can
    /// arrive.
    pub fn timeout_min(&self) -> Span {
        self.base_rtt * 2
    }

    /// BDP relative to 100 Gb/s times 12 us, the scale `a` of UEC and STrack.
    pub fn bdp_scale(&self) -> f64 {
        self.bdp().0 as f64 / 150_000.0
    }
}

parameters! {
    /// Packet sizes and acknowledgement policy, common to all profiles.
    pub struct TransportConfig {
        /// Payload bytes of a full packet (MTU of the transport).
        mtu: u32 = 4096, 64.0..=60000.0, "UEC simulator: 4096 B payload";
        /// Bytes of all headers of a data packet on the simulated wire.
        header: u32 = 64, 0.0..=1024.0, "UEC simulator: 64 B";
        /// Bytes of a control packet (ACK, NACK, CNP) and of a trimmed packet on the simulated wire.
        control: u32 = 64, 1.0..=1024.0, "UEC simulator: 64 B";
        /// A receiver acknowledges after this many payload bytes.
        ack_every: Bytes = Bytes(16_384), 1.0..=1.0e9, "UEC 1.0 and its simulator: 16 KiB";
        /// A receiver acknowledges a marked packet at once, so that no mark is lost to coalescing.
        ack_marked: bool = true, 0.0..=1.0, "UEC 1.0 and its simulator: at once on CE";
        /// At most one CNP per connection in this time; zero sends none.
        cnp_interval: Span = Span::ZERO, 0.0..=1.0e12, "Zhu et al., SIGCOMM 2015: N = 50 us; zero for profiles without DCQCN";
        /// The number of control packets that a NIC sends in a row before a data packet.
        control_burst: u32 = 10, 1.0..=1.0e6, "UEC simulator: NIC, control to data 10 to 1";
        /// The number of packets in a row on one path, while its port is free, before the path selector chooses again.
        /// On kernel sockets one system call sends packets of one path only.
        burst: u32 = 1, 1.0..=65535.0, "every published system: 1; more is ours, for kernel sockets (docs/performance.md)";
        /// With a pacing rate: a connection that is behind its rate may catch up by this much time.
        pace_slack: Span = Span::ZERO, 0.0..=1.0e12, "hardware paces exactly: 0; more is ours, for hosts whose timers are late";
        /// An unused connection frees its memory after this time, including the state of congestion control and path
        /// selector; zero: never. MRC's connections and custom ones keep their memory.
        sleep_after: Span = Span::from_ms(10), 0.0..=1.0e15, "ours: a thousand round trips; RFC 5681, section 4.1, forgets a window after one timeout";
        /// A shorter measured round trip counts as this.
        rtt_min: Span = Span::ZERO, 0.0..=1.0e12, "simulated hosts answer at once: 0; more is ours, for hosts that sleep";
    }
}

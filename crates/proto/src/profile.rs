//! A protocol is a profile: a wire format plus one answer to each of three questions, *what goes next*, *how much*,
//! *which way*. Presets name the combinations of the papers.

use crate::congestion::{CongestionConfig, DcqcnConfig, NsccConfig, StrackConfig};
use crate::parameter::ParameterSet;
use crate::parameters;
use crate::path::{BitmapConfig, MrcConfig, PathConfig, PrimeConfig, SingleConfig};
use crate::reliability::{GoBackNConfig, MrcSackConfig, ReliabilityConfig, SelectiveRepeatConfig};
use crate::units::{Bytes, Rate, Span};

/// What a connection needs to know of the world it runs in; measured or configured by the world, not by the protocol.
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
    /// Do switches trim packets rather than drop them?
    pub trimming: bool,
    /// Uplinks that a packet chooses among at each upward tier of its way, from the leaf on; zeros where the fabric does not
    /// tell, or there is nothing to choose.
    pub uplinks: [u16; 2],
    /// Paths of a port that keep their packets in order, each, as an entropy value names them modulo this number; zero where the
    /// world does not know.
    pub paths_in_order: u16,
    /// Bytes that one data queue of a switch holds at the most; bounds how long a packet can be late.
    pub queue: Bytes,
    /// No packet arrives later than this after it left. A closed connection is remembered for so long, lest a late packet of
    /// it be taken for a new connection's.
    pub packet_life: Span,
}

impl Environment {
    /// The bandwidth-delay product: line rate times base RTT.
    pub fn bdp(&self) -> Bytes {
        self.rate.bytes_in(self.base_rtt)
    }

    /// No retransmission timeout is shorter: on a path this long, a shorter one would send everything again before its
    /// acknowledgement can be here.
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
        /// Control packets that a NIC sends in a row before data has a turn.
        control_burst: u32 = 10, 1.0..=1.0e6, "UEC simulator: NIC, control to data 10 to 1";
        /// Packets that go one way in a row before the path selector is asked again, while that way's port is free. On kernel
        /// sockets one system call sends packets of one path only.
        burst: u32 = 1, 1.0..=65535.0, "every published system: 1; more is ours, for kernel sockets (docs/performance.md)";
        /// Where a rate paces: a connection that fell behind its rate may catch up by so much time.
        pace_slack: Span = Span::ZERO, 0.0..=1.0e12, "hardware paces exactly: 0; more is ours, for hosts whose timers are late";
        /// An unused connection gives back its memory after this time, and with it what congestion control and path selector
        /// have learnt; zero: never. MRC's connections and custom ones keep theirs.
        sleep_after: Span = Span::from_ms(10), 0.0..=1.0e15, "ours: a thousand round trips; RFC 5681, section 4.1, forgets a window after one timeout";
        /// No measured round trip counts as shorter than this.
        rtt_min: Span = Span::ZERO, 0.0..=1.0e12, "simulated hosts answer at once: 0; more is ours, for hosts that sleep";
    }
}

parameters! {
    /// What a profile wants of the switches; a scenario's `[fabric]` may say otherwise.
    pub struct SwitchConfig {
        /// Data queue of a port, as a multiple of the BDP of the fabric.
        queue_bdp: f64 = 1.0, 0.01..=1000.0, "UEC simulator: 1 BDP with trimming, 5 without; UEC 1.0 recommends the 5";
        /// Trim packets that do not fit rather than drop them.
        trimming: bool = true, 0.0..=1.0, "UEC 1.0: packet trimming";
        /// Pause upstream ports (PFC) rather than drop.
        pfc: bool = false, 0.0..=1.0, "IEEE 802.1Qbb; for RoCEv2 only";
        /// Mark CE at the ports that lead to hosts, too.
        ecn_last_hop: bool = true, 0.0..=1.0, "UEC simulator: at every switch; MRC, arXiv 2605.04333: not at the last hop";
        /// Mark CE above this queue length with rising probability, as a multiple of the BDP.
        ecn_low_bdp: f64 = 0.2, 0.0..=1000.0, "UEC simulator: 0.2 BDP";
        /// Mark CE with `ecn_probability` at this queue length and always above, as a multiple of the BDP.
        ecn_high_bdp: f64 = 0.8, 0.0..=1000.0, "UEC simulator: 0.8 BDP";
        /// Marking probability just below the high threshold.
        ecn_probability: f64 = 1.0, 0.0..=1.0, "UEC simulator: linear from 0 to 1; Zhu et al., SIGCOMM 2015: P_max 1 %";
        /// Mark as packets leave the queue rather than as they join it.
        ecn_at_dequeue: bool = true, 0.0..=1.0, "UEC simulator: as packets leave; DCQCN marks at enqueue";
    }
}

/// How switches choose among equal uplinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// By a hash of flow and entropy, with a salt per switch (ECMP).
    Hashed,
    /// The entropy names the uplinks: its lowest part (modulo the leaf's uplinks) at the
    /// leaf, the rest at the next tier, each through a fixed permutation per switch. Packets that want order
    /// ([`crate::PathId::ORDERED`]) are hashed all the same.
    Direct,
    /// As a static source route (SRv6 uSID) does it: the entropy names the uplinks one by one, the leaf's in its lowest bits
    /// (modulo their number), without permutations, and nothing ever changes: what leads over a dead link is lost. Packets
    /// that want order are no exception.
    Source,
}

impl Routing {
    /// The names of all, as scenarios write them.
    pub const NAMES: [&str; 3] = ["hashed", "direct", "source"];

    /// Its name, as scenarios write it.
    pub const fn name(self) -> &'static str {
        match self {
            Routing::Hashed => "hashed",
            Routing::Direct => "direct",
            Routing::Source => "source",
        }
    }

    /// The routing of that name.
    pub fn named(name: &str) -> Option<Routing> {
        [Routing::Hashed, Routing::Direct, Routing::Source].into_iter().find(|r| r.name() == name)
    }
}

/// Which bytes represent the packets on a real wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireFormat {
    /// BTH, RETH, AETH and CNP of RoCEv2.
    Rocev2,
    /// Our layout of UEC-like fields.
    Uec,
    /// STrack's fields, in our layout.
    Strack,
    /// MRC's BTH and extension headers.
    Mrc,
}

/// A protocol: what goes next, how much, which way, and in which wire format.
#[derive(Clone, Debug)]
pub struct Profile {
    /// What reports call it.
    pub name: String,
    /// The bytes on a real wire.
    pub wire: WireFormat,
    /// Packet sizes and acknowledgement policy.
    pub transport: TransportConfig,
    /// What goes next.
    pub reliability: ReliabilityConfig,
    /// How much, how fast.
    pub congestion: CongestionConfig,
    /// Which way.
    pub path: PathConfig,
    /// What it wants of the switches.
    pub switch: SwitchConfig,
}

impl Profile {
    /// The presets' names.
    pub const NAMES: [&str; 7] = ["rocev2", "rocev2_sr", "uec", "strack", "strack_fast", "prime", "mrc"];

    /// What a preset is, in one line.
    pub fn summary(name: &str) -> Option<&'static str> {
        Some(match name {
            "rocev2" => "RoCEv2: go-back-N, DCQCN, PFC, one ECMP path per connection",
            "rocev2_sr" => "RoCEv2 with selective repeat (IRN-style), DCQCN and one ECMP path, without PFC",
            "strack" => "STrack: spraying around marked paths, delay-driven window, recovery without trimming",
            "strack_fast" => {
                "STrack with losses found by lateness and paths that lose packets left alone for longer (ours)"
            }
            "prime" => "PRIME spraying over switches that index their uplinks, with NSCC window, SACK and trimming",
            "mrc" => {
                "MRC: a set of static paths per connection with probes and backups, NSCC window, SACK and trimming"
            }
            "uec" => "Ultra Ethernet: NSCC window, SACK, trimming with NACKs, packet spraying",
            _ => return None,
        })
    }

    /// The preset of that name.
    pub fn preset(name: &str) -> Option<Profile> {
        let dcqcn_switch = SwitchConfig {
            queue_bdp: 5.0,
            trimming: false,
            ecn_low_bdp: 0.2,
            ecn_high_bdp: 0.8,
            ecn_probability: 0.01,
            ecn_at_dequeue: false,
            ..SwitchConfig::default()
        };
        let roce_transport =
            TransportConfig { cnp_interval: Span::from_us(50), ack_marked: false, ..TransportConfig::default() };
        Some(match name {
            "rocev2" => Profile {
                name: name.into(),
                wire: WireFormat::Rocev2,
                transport: roce_transport,
                reliability: ReliabilityConfig::GoBackN(GoBackNConfig::default()),
                congestion: CongestionConfig::Dcqcn(DcqcnConfig::default()),
                path: PathConfig::Single(SingleConfig::default()),
                switch: SwitchConfig { pfc: true, ..dcqcn_switch },
            },
            "rocev2_sr" => Profile {
                name: name.into(),
                wire: WireFormat::Rocev2,
                transport: roce_transport,
                reliability: ReliabilityConfig::SelectiveRepeat(SelectiveRepeatConfig::irn()),
                congestion: CongestionConfig::Dcqcn(DcqcnConfig::default()),
                path: PathConfig::Single(SingleConfig::default()),
                switch: dcqcn_switch,
            },
            "uec" => Profile {
                name: name.into(),
                wire: WireFormat::Uec,
                transport: TransportConfig::default(),
                reliability: ReliabilityConfig::SelectiveRepeat(SelectiveRepeatConfig::default()),
                congestion: CongestionConfig::Nscc(NsccConfig::default()),
                path: PathConfig::Bitmap(BitmapConfig::default()),
                switch: SwitchConfig::default(),
            },
            "strack" => Profile {
                name: name.into(),
                wire: WireFormat::Strack,
                transport: TransportConfig::default(),
                reliability: ReliabilityConfig::SelectiveRepeat(SelectiveRepeatConfig::default()),
                congestion: CongestionConfig::Strack(StrackConfig::default()),
                path: PathConfig::Bitmap(BitmapConfig { original: true, ..BitmapConfig::default() }),
                switch: SwitchConfig {
                    queue_bdp: 5.0,
                    trimming: false,
                    ecn_low_bdp: 0.25,
                    ecn_high_bdp: 0.75,
                    ..SwitchConfig::default()
                },
            },
            "strack_fast" => {
                let strack = Profile::preset("strack")?;
                Profile {
                    name: name.into(),
                    congestion: CongestionConfig::Strack(StrackConfig { loss_share: 0.25, ..StrackConfig::default() }),
                    reliability: ReliabilityConfig::SelectiveRepeat(SelectiveRepeatConfig {
                        late: 1.5,
                        sack_rotates: true,
                        ..SelectiveRepeatConfig::default()
                    }),
                    path: PathConfig::Bitmap(BitmapConfig { penalty_lost: 8, ..BitmapConfig::default() }),
                    ..strack
                }
            }
            "prime" => Profile {
                name: name.into(),
                wire: WireFormat::Uec,
                transport: TransportConfig::default(),
                reliability: ReliabilityConfig::SelectiveRepeat(SelectiveRepeatConfig::default()),
                congestion: CongestionConfig::Nscc(NsccConfig::default()),
                path: PathConfig::Prime(PrimeConfig::default()),
                switch: SwitchConfig::default(),
            },
            "mrc" => Profile {
                name: name.into(),
                wire: WireFormat::Mrc,
                transport: TransportConfig::default(),
                reliability: ReliabilityConfig::MrcSack(MrcSackConfig::default()),
                congestion: CongestionConfig::Nscc(NsccConfig { per_destination: true, ..NsccConfig::default() }),
                path: PathConfig::Mrc(MrcConfig::default()),
                switch: SwitchConfig { ecn_last_hop: false, ..SwitchConfig::default() },
            },
            _ => return None,
        })
    }

    /// Every group of parameters by the name of its table in a scenario: `transport`, `switch`, and those of the chosen
    /// reliability, congestion control and path selector.
    pub fn groups(&mut self) -> Vec<(&'static str, &mut dyn ParameterSet)> {
        let mut groups: Vec<(&'static str, &mut dyn ParameterSet)> =
            vec![("transport", &mut self.transport), ("switch", &mut self.switch)];
        let reliability = self.reliability.name();
        groups.push((reliability, self.reliability.parameters()));
        let congestion = self.congestion.name();
        if let Some(set) = self.congestion.parameters() {
            groups.push((congestion, set));
        }
        let path = self.path.name();
        if let Some(set) = self.path.parameters() {
            groups.push((path, set));
        }
        groups
    }

    /// How this profile wants switches to choose among equal uplinks: PRIME's entropy is an index, MRC's a source route, and
    /// every other selector expects a hash. A scenario's `[fabric]` may say otherwise.
    pub fn routing(&self) -> Routing {
        match self.path {
            PathConfig::Prime(_) => Routing::Direct,
            PathConfig::Mrc(_) => Routing::Source,
            _ => Routing::Hashed,
        }
    }

    /// Wire bytes of one full packet.
    pub fn packet_bytes(&self) -> Bytes {
        Bytes(u64::from(self.transport.mtu) + u64::from(self.transport.header))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_a_summary_and_a_valid_table() {
        for name in Profile::NAMES {
            assert!(Profile::summary(name).is_some());
            let mut profile = Profile::preset(name).expect("a preset for every name");
            for (group, set) in profile.groups() {
                for row in set.table() {
                    let size = crate::parameter::magnitude(row.default);
                    assert!(
                        (row.range.0..=row.range.1).contains(&size),
                        "{group}.{} default outside its range",
                        row.name
                    );
                    assert!(!row.what.is_empty() && !row.source.is_empty());
                }
            }
        }
    }
}

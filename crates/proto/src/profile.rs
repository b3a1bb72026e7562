//! A protocol is a profile: a wire format and three policies. Reliability decides *which packet is next*, congestion
//! control *how much may be sent*, path selection *which path it takes*. Presets name the combinations of the papers.

use crate::congestion::{CongestionConfig, DcqcnConfig, NsccConfig, PacedConfig, StrackConfig};
use crate::environment::TransportConfig;
use crate::parameter::ParameterSet;
use crate::parameters;
use crate::path::{BitmapConfig, EvProfile, MrcConfig, PathConfig, PrimeConfig, SingleConfig};
use crate::reliability::{GoBackNConfig, MrcSackConfig, ReliabilityConfig, SelectiveRepeatConfig};
use crate::units::{Bytes, Span};

parameters! {
    /// The switch settings of a profile; a scenario's `[fabric]` may override them.
    pub struct SwitchConfig {
        /// Data queue of a port, as a multiple of the BDP of the fabric.
        queue_bdp: f64 = 1.0, 0.01..=1000.0, "UEC simulator: 1 BDP with trimming, 5 without; UEC 1.0 recommends the 5";
        /// Trim packets that do not fit, instead of dropping them.
        trimming: bool = true, 0.0..=1.0, "UEC 1.0: packet trimming";
        /// Pause upstream ports (PFC) instead of dropping packets.
        pfc: bool = false, 0.0..=1.0, "IEEE 802.1Qbb; for RoCEv2 only";
        /// Mark CE at the ports that lead to hosts, too.
        ecn_last_hop: bool = true, 0.0..=1.0, "UEC simulator: at every switch; MRC, arXiv 2605.04333: not at the last hop";
        /// Mark CE above this queue length with rising probability, as a multiple of the BDP.
        ecn_low_bdp: f64 = 0.2, 0.0..=1000.0, "UEC simulator: 0.2 BDP";
        /// Mark CE with certainty above this queue length, as a multiple of the BDP.
        ecn_high_bdp: f64 = 0.8, 0.0..=1000.0, "UEC simulator: 0.8 BDP";
        /// Marking probability just below the high threshold.
        ecn_probability: f64 = 1.0, 0.0..=1.0, "UEC simulator: linear from 0 to 1; Zhu et al., SIGCOMM 2015: P_max 1 %";
        /// Mark a packet when it leaves the queue, instead of when it joins it.
        ecn_at_dequeue: bool = true, 0.0..=1.0, "UEC simulator: as packets leave; DCQCN marks at enqueue";
    }
}

/// How switches choose among equal uplinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// By a hash of flow and entropy, with a salt per switch (ECMP).
    Hashed,
    /// The entropy names the uplinks: its lowest part (modulo the number of the leaf's uplinks) at the leaf, the rest
    /// at the next tier, each through a fixed permutation per switch. Packets that must stay in order
    /// ([`crate::PathId::ORDERED`]) are hashed instead.
    Direct,
    /// As in a static source route (SRv6 uSID): the entropy names each uplink, the leaf's in its lowest bits (modulo
    /// their number), without permutations. Routes never change, so a packet whose route has a dead link is lost. This
    /// also holds for packets that must stay in order.
    Source,
    /// A switch sends each data packet by the least busy of its uplinks: one that is not paused before one that is,
    /// then the one with the shortest queue, in four steps. Packets of one flow overtake each other. Control packets
    /// are hashed. Source: the UEC project's simulator.
    Adaptive,
    /// A switch sends each flowlet by the least busy of its uplinks: a flow stays on its uplink. It moves only after a
    /// gap of 10 us, with probability 1/2, and only to a strictly less busy uplink. Source: the UEC project's
    /// simulator.
    Flowlet,
}

impl Routing {
    /// All of them.
    pub const ALL: [Routing; 5] =
        [Routing::Hashed, Routing::Direct, Routing::Source, Routing::Adaptive, Routing::Flowlet];

    /// All names, as scenarios write them.
    pub const NAMES: [&str; 5] = {
        let [a, b, c, d, e] = Routing::ALL;
        [a.name(), b.name(), c.name(), d.name(), e.name()]
    };

    /// Its name, as scenarios write it.
    pub const fn name(self) -> &'static str {
        match self {
            Routing::Hashed => "hashed",
            Routing::Direct => "direct",
            Routing::Source => "source",
            Routing::Adaptive => "adaptive",
            Routing::Flowlet => "flowlet",
        }
    }

    /// The routing with this name.
    pub fn named(name: &str) -> Option<Routing> {
        Routing::ALL.into_iter().find(|r| r.name() == name)
    }

    /// Do switches look at their queues before they choose an uplink?
    pub const fn is_adaptive(self) -> bool {
        matches!(self, Routing::Adaptive | Routing::Flowlet)
    }
}

/// The byte format of packets on a real wire.
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

/// A protocol: reliability, congestion control, path selection, and wire format.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Its name in reports.
    pub name: String,
    /// The bytes on a real wire.
    pub wire: WireFormat,
    /// Packet sizes and acknowledgement policy.
    pub transport: TransportConfig,
    /// Decides which packet is sent next.
    pub reliability: ReliabilityConfig,
    /// Decides how much may be in flight, and at which rate.
    pub congestion: CongestionConfig,
    /// Decides which path a packet takes.
    pub path: PathConfig,
    /// The paths from which MRC's set is made; other path selectors ignore it.
    pub evs: EvProfile,
    /// Its switch settings.
    pub switch: SwitchConfig,
}

/// An unknown part of a profile's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownName {
    /// The first part is not the name of a preset.
    Preset(String),
    /// A later part is not the name of a reliability, congestion control or path selector.
    Policy(String),
}

impl UnknownName {
    /// The part.
    pub fn part(&self) -> &str {
        let (UnknownName::Preset(part) | UnknownName::Policy(part)) = self;
        part
    }

    /// All names that are possible for this part.
    pub fn known(&self) -> Vec<&'static str> {
        match self {
            UnknownName::Preset(_) => Profile::NAMES.to_vec(),
            UnknownName::Policy(_) => {
                [&PathConfig::NAMES[..], &CongestionConfig::NAMES, &ReliabilityConfig::NAMES].concat()
            }
        }
    }
}

impl std::fmt::Display for UnknownName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = self.known().join(", ");
        match self {
            UnknownName::Preset(name) => write!(f, "there is no profile \"{name}\": take one of {known}"),
            UnknownName::Policy(name) => {
                write!(f, "`{name}` is no path selector, congestion control or reliability: take one of {known}")
            }
        }
    }
}

impl std::error::Error for UnknownName {}

impl Profile {
    /// The profile with this name: a preset, optionally followed by other policies after slashes, such as
    /// `uec/reps/swift`.
    ///
    /// # Errors
    /// With the first unknown part.
    pub fn named(name: &str) -> Result<Profile, UnknownName> {
        let mut parts = name.split('/');
        let preset = parts.next().unwrap_or_default();
        let mut profile = Profile::preset(preset).ok_or_else(|| UnknownName::Preset(preset.to_string()))?;
        for part in parts {
            if let Some(path) = PathConfig::named(part) {
                profile.path = path;
            } else if let Some(congestion) = CongestionConfig::named(part) {
                profile.choose_congestion(congestion);
            } else if let Some(reliability) = ReliabilityConfig::named(part) {
                profile.reliability = reliability;
            } else {
                return Err(UnknownName::Policy(part.to_string()));
            }
        }
        profile.name = name.to_string();
        Ok(profile)
    }

    /// Takes another congestion control, with the packet sizes and acknowledgements that it needs.
    pub fn choose_congestion(&mut self, congestion: CongestionConfig) {
        if let Some(policy) = congestion.policy() {
            policy.shape(&mut self.transport);
        }
        self.congestion = congestion;
    }

    /// The presets' names.
    pub const NAMES: [&str; 12] = [
        "rocev2",
        "rocev2_sr",
        "uec",
        "strack",
        "strack_fast",
        "prime",
        "mrc",
        "sdr_sr",
        "sdr_nack",
        "sdr_xor",
        "sdr_mds",
        "sdr_auto",
    ];

    /// A preset in one line.
    pub fn summary(name: &str) -> Option<&'static str> {
        Some(match name {
            "rocev2" => "RoCEv2: go-back-N, DCQCN, PFC, one ECMP path per connection",
            "rocev2_sr" => "RoCEv2 with selective repeat (IRN-style), DCQCN and one ECMP path, without PFC",
            "strack" => "STrack: spraying around marked paths, delay-driven window, recovery without trimming",
            "strack_fast" => {
                "STrack with losses found by lateness and longer penalties for paths that lose packets (ours)"
            }
            "prime" => "PRIME spraying over switches that index their uplinks, with NSCC window, SACK and trimming",
            "mrc" => {
                "MRC: a set of static paths per connection with probes and backups, NSCC window, SACK and trimming"
            }
            "sdr_sr" => "SDR-RDMA for long lossy links: selective repeat by timeouts, at a fixed rate",
            "sdr_nack" => "SDR-RDMA for long lossy links: selective repeat with NACKs, at a fixed rate",
            "sdr_xor" => "SDR-RDMA for long lossy links: XOR parity, then selective repeat, at a fixed rate",
            "sdr_mds" => "SDR-RDMA for long lossy links: Reed-Solomon parity, then selective repeat, at a fixed rate",
            "sdr_auto" => {
                "SDR-RDMA for long lossy links: for each message, the scheme that a model expects to be fastest (ours)"
            }
            "uec" => "Ultra Ethernet: NSCC window, SACK, trimming with NACKs, packet spraying",
            _ => return None,
        })
    }

    /// The preset with this name.
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
                evs: EvProfile::Auto,
                switch: SwitchConfig { pfc: true, ..dcqcn_switch },
            },
            "rocev2_sr" => Profile {
                name: name.into(),
                reliability: ReliabilityConfig::SelectiveRepeat(SelectiveRepeatConfig::irn()),
                switch: dcqcn_switch,
                ..Profile::preset("rocev2")?
            },
            "uec" => Profile {
                name: name.into(),
                wire: WireFormat::Uec,
                transport: TransportConfig::default(),
                reliability: ReliabilityConfig::SelectiveRepeat(SelectiveRepeatConfig::default()),
                congestion: CongestionConfig::Nscc(NsccConfig::default()),
                path: PathConfig::Bitmap(BitmapConfig::default()),
                evs: EvProfile::Auto,
                switch: SwitchConfig::default(),
            },
            "strack" => Profile {
                name: name.into(),
                wire: WireFormat::Strack,
                congestion: CongestionConfig::Strack(StrackConfig::default()),
                path: PathConfig::Bitmap(BitmapConfig { original: true, ..BitmapConfig::default() }),
                switch: SwitchConfig {
                    queue_bdp: 5.0,
                    trimming: false,
                    ecn_low_bdp: 0.25,
                    ecn_high_bdp: 0.75,
                    ..SwitchConfig::default()
                },
                ..Profile::preset("uec")?
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
                path: PathConfig::Prime(PrimeConfig::default()),
                ..Profile::preset("uec")?
            },
            "mrc" => Profile {
                name: name.into(),
                wire: WireFormat::Mrc,
                transport: TransportConfig::default(),
                reliability: ReliabilityConfig::MrcSack(MrcSackConfig::default()),
                congestion: CongestionConfig::Nscc(NsccConfig {
                    per_destination: true,
                    shrink_on_loss: true,
                    ..NsccConfig::default()
                }),
                path: PathConfig::Mrc(MrcConfig::default()),
                evs: EvProfile::Auto,
                switch: SwitchConfig { ecn_last_hop: false, ..SwitchConfig::default() },
            },
            "sdr_sr" | "sdr_nack" | "sdr_xor" | "sdr_mds" | "sdr_auto" => Profile {
                name: name.into(),
                // Parts and control messages have their own byte formats.
                wire: WireFormat::Uec,
                transport: TransportConfig::default(),
                reliability: ReliabilityConfig::named(name)?,
                congestion: CongestionConfig::Paced(PacedConfig::default()),
                path: PathConfig::Single(SingleConfig::default()),
                evs: EvProfile::Auto,
                switch: SwitchConfig { queue_bdp: 5.0, trimming: false, ..SwitchConfig::default() },
            },
            _ => return None,
        })
    }

    /// Every group of parameters with the name of its table in a scenario: `transport`, `switch`, and the names of the
    /// chosen reliability, congestion control and path selector.
    pub fn groups(&mut self) -> Vec<(&'static str, &mut dyn ParameterSet)> {
        let mut groups: Vec<(&'static str, &mut dyn ParameterSet)> =
            vec![("transport", &mut self.transport), ("switch", &mut self.switch)];
        let names = [self.reliability.name(), self.congestion.name(), self.path.name()];
        let sets = [Some(self.reliability.parameters()), self.congestion.parameters(), self.path.parameters()];
        groups.extend(names.into_iter().zip(sets).filter_map(|(name, set)| Some((name, set?))));
        groups
    }

    /// How switches should choose among equal uplinks with this profile: PRIME's entropy is an index, MRC's a source
    /// route, and every other selector expects a hash. A scenario's `[fabric]` may override it.
    pub fn routing(&self) -> Routing {
        self.path.routing()
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

//! Where a node is and how it sends: what commands over real sockets share.

use clap::Args as ClapArgs;
use std::path::PathBuf;

/// Where a node is and how it sends: what measurements and copies share.
#[derive(Debug, ClapArgs)]
pub(crate) struct WireArgs {
    /// A node file (`strandway fabric up` writes one for each host): addresses, paths, key, profile, rate; flags go before it
    #[arg(long, value_name = "FILE", conflicts_with = "plane")]
    pub(crate) node: Option<PathBuf>,
    /// Local address of a plane, with or without [..]:PORT; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) plane: Vec<String>,
    /// File with the key that both sides share (16 bytes or more); on loopback it may be left out
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Payload bytes of a packet: 1344 fits an MTU of 1500, 4096 one of 4300 and loopback [default: 1344]
    #[arg(long, value_name = "BYTES")]
    pub(crate) payload: Option<u32>,
    /// As much payload as fits packets of so many bytes, IPv6 header included, with this profile and protection
    #[arg(long, value_name = "BYTES", conflicts_with = "payload")]
    pub(crate) mtu: Option<u32>,
    /// What is done to packets: encrypted (and authenticated), authenticated (slower, but captures show payload), or none (for
    /// fabrics that nobody else can reach)
    #[arg(long, value_name = "WHAT", default_value = "encrypted")]
    pub(crate) protection: Protection,
    /// While nothing arrives: spin (lowest latency, a whole core), sleep, or adaptive (spin briefly, then sleep)
    #[arg(long, value_name = "HOW", default_value = "adaptive")]
    pub(crate) waiting: Waiting,
    /// Source ports of each plane, that switches with ECMP spread over their paths; 1 leaves all on one path
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), conflicts_with = "node")]
    pub(crate) source_ports: Option<u16>,
    /// Payload that goes one way before the next path is chosen, in KiB: more costs fewer system calls, and longer queues
    #[arg(long, value_name = "KIB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) burst_kib: u32,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Protection {
    Encrypted,
    Authenticated,
    None,
}

impl Protection {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Protection::Encrypted => "encrypted",
            Protection::Authenticated => "authenticated",
            Protection::None => "none",
        }
    }
}

impl From<Protection> for strandway_udp::Protection {
    fn from(protection: Protection) -> strandway_udp::Protection {
        match protection {
            Protection::Encrypted => strandway_udp::Protection::Encrypted,
            Protection::Authenticated => strandway_udp::Protection::Authenticated,
            Protection::None => strandway_udp::Protection::None,
        }
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Waiting {
    Spin,
    Sleep,
    Adaptive,
}

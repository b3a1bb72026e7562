//! The options of commands with real sockets: address, key and packets of a node.

use clap::Args as ClapArgs;
use std::path::PathBuf;

/// The options that measurements and copies share.
#[derive(Debug, ClapArgs)]
pub(crate) struct WireArgs {
    /// A node file with addresses, paths, key, profile and rate (`strandway fabric up` writes one for each host); flags
    /// take precedence over it
    #[arg(long, value_name = "FILE", conflicts_with = "plane")]
    pub(crate) node: Option<PathBuf>,
    /// Local address of a plane, IPv6 or IPv4, with or without a port; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) plane: Vec<String>,
    /// File with the key that both sides share (16 bytes or more); not needed on loopback
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Payload bytes per packet, the same on both sides. Without this flag and --mtu, `perf`, `copy` and `cast` find the
    /// largest packets that pass by probes, and others take 1344, which fits an MTU of 1500 [default: that of the node
    /// file]
    #[arg(long, value_name = "BYTES")]
    pub(crate) payload: Option<u32>,
    /// Choose the largest payload for packets of this many bytes, IP header included, with this profile and protection;
    /// the same on both sides
    #[arg(long, value_name = "BYTES", conflicts_with = "payload")]
    pub(crate) mtu: Option<u32>,
    /// Protection of packets: encrypted (and authenticated), authenticated (captures show the payload), or
    /// none (only for fabrics that nobody else can reach)
    #[arg(long, value_name = "WHAT", default_value = "encrypted")]
    pub(crate) protection: Protection,
    /// Bytes of datagrams that move data: frame (ours), or mrc (as publicly laid out: IPv6 in IPv6 from raw sockets;
    /// needs profile mrc, --protection none and root), or uet (Ultra Ethernet Transport: `perf server` and `perf client`
    /// with profile uec and one plane) [default: that of the node file, or frame]
    #[arg(long, value_name = "WHICH")]
    pub(crate) layout: Option<Layout>,
    /// While no packet arrives: spin (lowest latency, uses a whole core), sleep, or adaptive (spin briefly, then sleep)
    #[arg(long, value_name = "HOW", default_value = "adaptive")]
    pub(crate) waiting: Waiting,
    /// Source ports per plane; switches with ECMP spread them over their paths; 1 keeps all packets on one path
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), conflicts_with = "node")]
    pub(crate) source_ports: Option<u16>,
    /// Payload per path before the next path is chosen, in KiB: a larger value needs fewer system calls and makes
    /// longer queues
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Layout {
    Frame,
    Mrc,
    Uet,
}

impl From<Layout> for strandway_udp::Layout {
    fn from(layout: Layout) -> strandway_udp::Layout {
        match layout {
            Layout::Frame => strandway_udp::Layout::Frame,
            Layout::Mrc => strandway_udp::Layout::MRC,
            Layout::Uet => strandway_udp::Layout::Uet,
        }
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Waiting {
    Spin,
    Sleep,
    Adaptive,
}

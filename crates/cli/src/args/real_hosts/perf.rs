//! The arguments of `strandway perf`.

use super::{TeamArgs, UseSwitchArgs, WireArgs};
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;
use strandway_proto::Rate;

pub(in crate::args) const PERF_EXAMPLES: &str = "\
A plane is a pair of addresses, a local one and one of the other host. Both sides need the same number of planes, profile, payload and
key. Without --plane, a server listens on loopback.

Examples, on one host:
  strandway perf server &                                     listens on [::1]:47930 and 127.0.0.1:47930
  strandway perf client ::1                                   ten seconds of 1 MiB writes, a line per second
  strandway perf client ::1 --latency --size 64               round trips instead
  strandway perf client ::1 --latency --size 64 --bulk 1      the same beside a connection that fills the wire
  strandway perf client ::1 --all --seconds 1                 small messages: rate and bandwidth by size
Two hosts, two planes:
  head -c 32 /dev/urandom > key                               copy it to both hosts
  strandway perf server --key key --plane fd00:1::2 --plane fd00:2::2
  strandway perf client fd00:1::2 fd00:2::2 --key key --plane fd00:1::1 --plane fd00:2::1
  strandway perf client 10.0.1.2 10.0.2.2 --key key --plane 10.0.1.1 --plane 10.0.2.1     with IPv4
Between two hosts of a fabric of namespaces (see strandway fabric):
  strandway fabric exec h2 -- strandway perf server --node /run/strandway/sw/h2.toml
  strandway fabric exec h0 -- strandway perf client h2 --node /run/strandway/sw/h0.toml
A gigabyte, every byte checked, a line every 10 ms:
  strandway perf client ::1 --size 1G --messages 1 --verify --interval 0.01
Two threads on either side, connections spread over them:
  strandway perf server --threads 2 &
  strandway perf client ::1 --threads 2 --connections 4
Ultra Ethernet Transport in place of our own packets, sealed:
  strandway perf server --layout uet &
  strandway perf client ::1 --layout uet
Beside TCP and TLS 1.3 between the same hosts, in turns:
  strandway perf server --beside &
  strandway perf client ::1 --beside tcp,tls --seconds 2
For scripts:
  strandway perf client ::1 --seconds 3 --json - | jq .goodput_gbps

Once a second, a server prints how many callers it has refused, and why: another key, profile, payload size, ...";

const PERF_COLUMNS: &str = "\
Columns:
  Gb/s       payload; in the last line only of finished messages
  messages   finished since the previous line
  ping       round trip of pings in microseconds, median and 99th percentile, including queues and the time to wake up
             the other side; with --latency, round trip of messages
  again      packets sent again, because they were lost or seemed to be
  per plane  rate on each plane, including packets sent again; (silent): the plane does not answer and is not used
  back       payload from the server (--bidirectional)
  EVs        paths in use on each plane, if the profile keeps a list of them (mrc)";

const COLLECTIVE_EXAMPLES: &str = "\
Start one process per rank, with the same rank file and the same options. A rank file has one line per rank: the addresses of its
node, one per plane, separated by commas; with --node, names of the fabric's hosts are possible, too. # starts a comment.

  [fd00:1::1]:47950,[fd00:2::1]:47950      # rank 0
  [fd00:1::2]:47950,[fd00:2::2]:47950      # rank 1

The rank is --rank, or the variable of torchrun, Open MPI, MPICH or Slurm (RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID).
Rank 0 prints the columns of nccl-tests: size in bytes, elements, time in microseconds, algorithm and bus bandwidth in GB/s, wrong results.
Times are those of rank 0, from its call until it may use its buffer again.

Examples:
  strandway perf collective all-reduce --ranks ranks --key key --rank 0          and the same for the other ranks
  strandway perf collective all-gather --algorithm ring --ranks ranks --key key -b 1K -e 64M -f 4
With a switch that adds (see strandway switch), on one host:
  strandway switch &
  strandway perf collective all-reduce --algorithm in-network --switch ::1 --ranks ranks --rank 0    and the same for the other ranks
Between the hosts of a fabric of namespaces (see strandway fabric), where switches copy multicast:
  seq -f 'h%.0f' 0 15 > ranks
  for i in $(seq 0 15); do
    strandway fabric exec h$i -- strandway perf collective all-gather --node /run/strandway/sw/h$i.toml --ranks ranks --rank $i &
  done; wait";

const TUNE_EXAMPLES: &str = "\
Start one process per rank with a launcher, on the hosts and planes that the program will use (STRANDWAY_PLANES and the other variables of
process groups: docs/python.md). Nothing else should run there. The keys of the table:

  whole   reductions of at most this many bytes go from every rank to all others in one hop
  tree    broadcasts of more bytes are scattered and gathered, shorter ones go down a tree (no difference with two ranks)
  part    bytes of a part of a long reduction; the first parts are added while others are under way
  algorithm  rules for other algorithms than the direct one, where those take at most 0.9 of its time:
          [COLLECTIVE=]direct|ring|halving-doubling|tree|pat|hierarchical|multicast|in-network[>BYTES] with commas between
          them; the last that fits decides; hierarchical counts where ranks share hosts, multicast where a plane carries
          it, in-network where STRANDWAY_SWITCH adds

Examples:
  torchrun --no-python --nproc-per-node 4 strandway perf tune --write tuning
  STRANDWAY_STORE=/shared/run srun strandway perf tune --write tuning
Then, for programs, at rank 0 or everywhere:
  STRANDWAY_TUNING=tuning torchrun ... train.py";

#[derive(Debug, ClapArgs)]
pub(crate) struct PerfCollectiveArgs {
    /// all-reduce, all-gather, reduce-scatter, broadcast or all-to-all
    pub(crate) collective: CollectiveName,
    /// The rank file
    #[arg(long, value_name = "FILE")]
    pub(crate) ranks: PathBuf,
    /// This process's rank: its line in the rank file, counted from 0
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u32>,
    /// all-reduce: ring, halving-doubling, or in-network (by a `strandway switch`); all-gather: multicast, ring,
    /// recursive-doubling or linear; reduce-scatter: ring; broadcast: multicast; all-to-all: windowed [default: the
    /// first one of each]
    #[arg(long, value_name = "NAME")]
    pub(crate) algorithm: Option<String>,
    /// The first size; K, M and G stand for powers of 1024
    #[arg(long, short = 'b', value_name = "BYTES", default_value = "1K", value_parser = size)]
    pub(crate) begin: u64,
    /// The last size
    #[arg(long, short = 'e', value_name = "BYTES", default_value = "16M", value_parser = size)]
    pub(crate) end: u64,
    /// Factor between two sizes
    #[arg(long, short, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=1024))]
    pub(crate) factor: u64,
    /// Measured runs per size
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: u32,
    /// Runs before the measured ones, per size
    #[arg(long, short, value_name = "N", default_value_t = 2)]
    pub(crate) warmup: u32,
    /// Do not check results
    #[arg(long)]
    pub(crate) no_check: bool,
    /// The rank that broadcasts
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub(crate) root: u32,
    #[command(flatten)]
    pub(crate) switch: UseSwitchArgs,
    #[command(flatten)]
    pub(crate) team: TeamArgs,
    #[command(flatten)]
    pub(crate) wire: WireArgs,
    /// The protocol of messages: uec, mrc, ... (see `strandway explain`) [default: uec, or the node file's]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Receive rate of a rank, all planes together, such as 1Gbps: roots of a multicast do not exceed it [default: 40
    /// Gb/s, or the node file's]
    #[arg(long, value_name = "RATE", value_parser = strandway_lab::parse_rate)]
    pub(crate) rate: Option<Rate>,
    /// Write the results as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum CollectiveName {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    AllToAll,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PerfArgs {
    #[command(subcommand)]
    pub(crate) side: PerfSide,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PerfSide {
    /// Serve clients until interrupted
    Server(PerfServerArgs),
    /// Measure against a server
    #[command(after_help = PERF_COLUMNS)]
    Client(PerfClientArgs),
    /// Measure a collective with one process per rank: all-reduce, all-gather, reduce-scatter, broadcast, all-to-all
    #[command(after_help = COLLECTIVE_EXAMPLES)]
    Collective(PerfCollectiveArgs),
    /// Measure from which lengths on process groups (`strandway.Group`, the PyTorch backend) use which algorithm, and
    /// write the table
    #[command(after_help = TUNE_EXAMPLES)]
    Tune(PerfTuneArgs),
}

impl PerfSide {
    /// Does it measure TCP and TLS, too?
    pub(crate) fn is_beside(&self) -> bool {
        match self {
            PerfSide::Server(args) => args.beside,
            PerfSide::Client(args) => !args.beside.is_empty(),
            PerfSide::Collective(_) | PerfSide::Tune(_) => false,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PerfTuneArgs {
    /// Measured runs per length and size
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) iterations: u32,
    /// Write the table to this file; rank 0 does
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
}

/// The settings that both sides of a measurement must share, and their addresses.
#[derive(Debug, ClapArgs)]
pub(crate) struct PerfCommon {
    #[command(flatten)]
    pub(crate) wire: WireArgs,
    /// The protocol: uec, mrc, strack_fast, rocev2, ... (see `strandway explain`) [default: uec]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Line rate of all planes together, in Gb/s; rate times --rtt-us limits the bytes in flight [default: 40]
    #[arg(long, value_name = "GBPS")]
    pub(crate) rate_gbps: Option<f64>,
    /// Round trip without queues, in microseconds, including the time to wake up the other side [default: 100]
    #[arg(long, value_name = "US")]
    pub(crate) rtt_us: Option<u64>,
    /// Number of threads, each with its own sockets and connections. The threads of a server share its ports.
    /// A client needs at least as many connections
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: u16,
}

/// Bytes, optionally with K, M or G.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err("write a number of bytes, such as 64, 4K, 1M or 1G".into()),
    };
    let number: u64 = digits.parse().map_err(|_| "write a number of bytes, such as 64, 4K, 1M or 1G".to_string())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too many bytes; write a smaller number".into())
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PerfServerArgs {
    #[command(flatten)]
    pub(crate) common: PerfCommon,
    /// End when the first client has closed all its connections
    #[arg(long, conflicts_with = "beside")]
    pub(crate) once: bool,
    /// Listen over TCP, too, at the same addresses and ports, for clients with --beside. Everybody who reaches these ports
    /// may measure there; bytes that arrive are discarded, or sent back
    #[arg(long)]
    pub(crate) beside: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PerfClientArgs {
    /// The server's address on each plane, with or without [..]:PORT; with --node its name or number, such as h2
    #[arg(required = true, value_name = "SERVER")]
    pub(crate) server: Vec<String>,
    #[command(flatten)]
    pub(crate) common: PerfCommon,
    /// Bytes of one message, 1 to 1073741824; K, M and G stand for powers of 1024
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = size)]
    pub(crate) size: u64,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) connections: usize,
    /// Duration in seconds
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    pub(crate) seconds: f64,
    /// Simultaneous messages per connection [default: 8, or 128 with --all]
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<usize>,
    /// End after this many messages per connection, or when the time is over
    #[arg(long, value_name = "N")]
    pub(crate) messages: Option<u64>,
    /// Seconds between lines, 0.001 to 3600
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub(crate) interval: f64,
    /// Writes of 8 B, 16 B, ... 64 KiB, each size for --seconds: one line per size, with the messages per second, like
    /// `ib_write_bw -a` of perftest. The server must not have --once
    #[arg(long, group = "mode", conflicts_with_all = ["size", "messages", "interval"])]
    pub(crate) all: bool,
    /// Measure round trips of messages, one at a time, instead of bandwidth
    #[arg(long, group = "mode")]
    pub(crate) latency: bool,
    /// With --latency: this many further connections write messages of 1 MiB meanwhile
    #[arg(long, value_name = "N", default_value_t = 0, requires = "latency")]
    pub(crate) bulk: usize,
    /// Make the server write the same amount back at the same time
    #[arg(long, group = "mode")]
    pub(crate) bidirectional: bool,
    /// Send new contents with every message, one at a time, and compare digests (SHA-256) with the received bytes
    #[arg(long, group = "mode")]
    pub(crate) verify: bool,
    /// Measure TCP, and TLS 1.3 with AES-128-GCM over it, between the same hosts as well. Rounds run ours, TCP and TLS one
    /// after the other, every second round backwards. TCP takes the first plane, up to 64 connections, and with --latency
    /// one connection and messages of at most 16 MiB. The server needs --beside
    #[arg(long, value_name = "tcp,tls", value_delimiter = ',', conflicts_with_all = ["all", "bidirectional", "verify", "bulk", "messages"])]
    pub(crate) beside: Vec<BaselineName>,
    /// With --beside: congestion control of TCP at this side, such as cubic or bbr [default: the host's]
    #[arg(long, value_name = "NAME", requires = "beside")]
    pub(crate) congestion: Option<String>,
    /// With --beside: the number of rounds. In each, ours, TCP and TLS have --seconds each. Medians are shown
    #[arg(long, value_name = "N", default_value_t = 3, requires = "beside", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,
    /// Write the result as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BaselineName {
    /// The kernel's TCP
    Tcp,
    /// TLS 1.3 over it
    Tls,
}

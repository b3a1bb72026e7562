//! What `strandway cast` is asked with.

use super::{TeamArgs, WireArgs};
use clap::Args as ClapArgs;
use std::path::PathBuf;
use std::time::Duration;
use strandway_lab::parse_rate;
use strandway_proto::Rate;

pub(super) const EXAMPLES: &str = "\
Each receiver serves a directory. The sender multicasts files and directories into all of them at once, so its uplink carries every byte
about once, however many receivers there are. Receivers repair each other's losses. Every byte is encrypted. Every chunk is checked
against a hash that the sender told each receiver by itself. Every file is checked against its BLAKE3 hash before it gets its name. Files
that all receivers have already (same size and time of change) are not sent. If a side dies, run the same command again: it goes on where
it stopped.

A receiver that is silent for --patience is left behind; one that comes while others are served has its turn after them. The network
must copy multicast for the team (ff1e::/96, one address for each plane and tree): fabrics of namespaces do, see strandway fabric.

Examples, two receivers and a sender, two planes:
  head -c 32 /dev/urandom > key                               copy it to all hosts
  strandway cast --receive /srv/models --key key --plane fd00:1::2 --plane fd00:2::2        on the first receiver
  strandway cast --receive /srv/models --key key --plane fd00:1::3 --plane fd00:2::3        on the second one
  strandway cast weights/ --to fd00:1::2,fd00:2::2 --to fd00:1::3,fd00:2::3 --key key --plane fd00:1::1 --plane fd00:2::1 --rate 10Gbps
Between the hosts of a fabric of namespaces:
  strandway fabric exec h1 -- strandway cast --receive DIR1 --node /run/strandway/sw/h1.toml &
  strandway fabric exec h2 -- strandway cast --receive DIR2 --node /run/strandway/sw/h2.toml &
  strandway fabric exec h0 -- strandway cast data --to h1 --to h2 --node /run/strandway/sw/h0.toml
Many receivers, from a file with a line for each:
  strandway cast data --to-file receivers --node h0.toml --json - | jq .receivers

Exit status: 0 every receiver has everything, 1 something is missing somewhere (each with its reason), 2 bad usage.";

#[derive(Debug, ClapArgs)]
#[command(
    override_usage = "strandway cast [OPTIONS] SOURCE... --to RECEIVER...\n       strandway cast [OPTIONS] --receive DIR"
)]
pub(crate) struct CastArgs {
    /// Files and directories to cast; of DIR/. the contents
    #[arg(value_name = "SOURCE", required_unless_present = "receive", conflicts_with = "receive")]
    pub(crate) sources: Vec<PathBuf>,
    /// Receive casts, below this directory and nowhere else, until Ctrl-C
    #[arg(long, value_name = "DIR")]
    pub(crate) receive: Option<PathBuf>,
    /// A receiver: its address on each plane, with commas between them, or with --node its name, such as h2; may be repeated
    #[arg(long, value_name = "RECEIVER", conflicts_with = "receive")]
    pub(crate) to: Vec<String>,
    /// A file with a line for each receiver, as --to takes it; behind # is a comment
    #[arg(long, value_name = "FILE", conflicts_with = "receive")]
    pub(crate) to_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) wire: WireArgs,
    #[command(flatten)]
    pub(crate) team: TeamArgs,
    /// Rate at which the slowest receiver takes data, all planes together, such as 1Gbps: no more is sent; without --node 1 Gb/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with = "receive")]
    pub(crate) rate: Option<Rate>,
    /// Time to wait for receivers that do not answer; then the cast begins without them
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = super::team::patience)]
    pub(crate) wait: Duration,
    /// End when a receiver is lost, rather than go on without it
    #[arg(long, conflicts_with = "receive")]
    pub(crate) all_or_nothing: bool,
    /// Who is trusted: only the sender (chunks are checked against its hashes, 0.4 % more bytes), or all members
    #[arg(long, value_name = "WHOM", default_value = "source", conflicts_with = "receive")]
    pub(crate) trust: Trust,
    /// Bytes of a parcel, of which a few are under way: a power of two from 4K to 64M
    #[arg(long, value_name = "BYTES", default_value = "16M", value_parser = super::perf::size, conflicts_with = "receive")]
    pub(crate) block: u64,
    /// With --receive: end when the first cast is over
    #[arg(long, requires = "receive")]
    pub(crate) once: bool,
    /// Write a summary as JSON; - for standard output
    #[arg(long, value_name = "FILE|-", conflicts_with = "receive")]
    pub(crate) json: Option<PathBuf>,
    /// Print neither progress nor summary
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Trust {
    Source,
    Members,
}

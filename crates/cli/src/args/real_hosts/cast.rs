//! The arguments of `strandway cast`.

use super::{ChoiceArgs, TeamArgs, WireArgs};
use clap::Args as ClapArgs;
use std::path::PathBuf;
use std::time::Duration;
use strandway_lab::parse_rate;
use strandway_proto::Rate;

pub(in crate::args) const EXAMPLES: &str = "\
Each receiver has a directory for casts. The sender multicasts files and directories to all receivers at the same time, so its uplink
carries every byte about once, for any number of receivers. Receivers repair each other's losses. Every byte is encrypted. The sender
tells each receiver the hashes of all chunks over their own connection, and receivers check every chunk. Every file is checked against
its BLAKE3 hash before it gets its name. Files that all receivers have already (same size and modification time) are not sent. If a side
dies, run the same command again: it continues where it stopped.

A receiver that is silent for --patience is dropped. A receiver that arrives during a cast is served after it. The network must
copy multicast for the team (ff1e::/96, one address for each plane and tree): fabrics of namespaces do, see strandway fabric.

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

Exit status: 0 every receiver has all files, 1 some file is missing at some receiver (each with its reason), 2 bad usage.";

#[derive(Debug, ClapArgs)]
#[command(
    override_usage = "strandway cast [OPTIONS] SOURCE... --to RECEIVER...\n       strandway cast [OPTIONS] --receive DIR"
)]
pub(crate) struct CastArgs {
    /// Files and directories to cast; DIR/. means the contents of DIR
    #[arg(value_name = "SOURCE", required_unless_present = "receive", conflicts_with = "receive")]
    pub(crate) sources: Vec<PathBuf>,
    /// Receive casts until Ctrl-C; files go into this directory and nowhere else
    #[arg(long, value_name = "DIR")]
    pub(crate) receive: Option<PathBuf>,
    /// A receiver: its addresses, one per plane, separated by commas; with --node its name, such as h2; may be repeated
    #[arg(long, value_name = "RECEIVER", conflicts_with = "receive")]
    pub(crate) to: Vec<String>,
    /// A file with one receiver per line, in the form of --to; # starts a comment
    #[arg(long, value_name = "FILE", conflicts_with = "receive")]
    pub(crate) to_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) wire: WireArgs,
    #[command(flatten)]
    pub(crate) choice: ChoiceArgs,
    #[command(flatten)]
    pub(crate) team: TeamArgs,
    /// Rate of the slowest receiver, all planes together, such as 1Gbps: the sender does not exceed it [default without
    /// --node: 1 Gb/s]
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with = "receive")]
    pub(crate) rate: Option<Rate>,
    /// Time to wait for receivers that do not answer; after it, the cast begins without them
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = super::team::patience)]
    pub(crate) wait: Duration,
    /// End if a receiver is lost, instead of continuing without it
    #[arg(long, conflicts_with = "receive")]
    pub(crate) all_or_nothing: bool,
    /// Trusted members: source (only the sender; chunks are checked against its hashes, which costs 0.4 % more bytes),
    /// or members (all members)
    #[arg(long, value_name = "WHOM", default_value = "source", conflicts_with = "receive")]
    pub(crate) trust: Trust,
    /// Bytes of a block, a power of two from 4K to 64M; a few blocks are sent at the same time
    #[arg(long, value_name = "BYTES", default_value = "16M", value_parser = super::perf::size, conflicts_with = "receive")]
    pub(crate) block: u64,
    /// With --receive: end after the first cast
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

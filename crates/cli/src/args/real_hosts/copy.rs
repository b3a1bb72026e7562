//! The arguments of `strandway copy`.

use super::{ChoiceArgs, WireArgs};
use clap::Args as ClapArgs;
use std::ffi::OsString;
use std::path::PathBuf;
use strandway_files::copy::PROFILE;
use strandway_lab::{parse_rate, parse_span};
use strandway_proto::{Rate, Span};

pub(in crate::args) const EXAMPLES: &str = "\
One side serves a directory; the other side copies files into it. Every byte is encrypted, and every file is checked with a BLAKE3
hash before it gets its name. Files that are there already (same size and modification time) are not sent. If either side dies, run
the same command again: it continues where it stopped.

A directory keeps its name, as with cp -r: data becomes DIR/data, but data/. copies its contents into DIR. Modes (rwx) and times are
kept; holes, hard links, extended attributes and owners if asked for. A symbolic link is copied as a link if it points into the copied directory.

Examples, on one host:
  strandway copy --serve backup &                             listens on [::1]:47931, or 127.0.0.1:47931 without IPv6
  strandway copy data '[::1]:'                                backup/data
Two hosts:
  head -c 32 /dev/urandom > key                               copy it to both hosts
  strandway copy --serve /srv/backup --key key --plane fd00:1::2
  strandway copy data notes.txt '[fd00:1::2]:monday' --key key    /srv/backup/monday/data, /srv/backup/monday/notes.txt
  strandway copy data 10.0.0.2:monday --key key               with IPv4, if the server has --plane 10.0.0.2
A line of 10 Gb/s, 80 ms there and back (both sides):
  strandway copy data '[fd00:1::2]:' --key key --rate 10Gbps --rtt 80ms
As rsync -aHXS --delete --exclude '*.tmp' does; the server lets clients delete and give owners:
  strandway copy --serve /srv/backup --key key --plane fd00:1::2 --allow delete,owner
  strandway copy data/. '[fd00:1::2]:data' --key key -HXS --owner --delete --exclude '*.tmp' --progress
Two planes:
  strandway copy --serve /srv/backup --key key --plane fd00:1::2 --plane fd00:2::2
  strandway copy data '[fd00:1::2],[fd00:2::2]:' --key key --plane fd00:1::1 --plane fd00:2::1
Between two hosts of a fabric of namespaces (see strandway fabric):
  strandway fabric exec h2 -- strandway copy --serve DIR --node /run/strandway/sw/h2.toml
  strandway fabric exec h0 -- strandway copy data h2: --node /run/strandway/sw/h0.toml
For scripts:
  strandway copy data '[::1]:' --limit 200Mbps --json - | jq .goodput_mbps

Exit status: 0 all files are there, 1 some files are missing (each with its reason), 2 bad usage.";

const PATHS: &str = "Files and directories to copy, then the destination: [IPv6]:DIR, [IPv6]:PORT:DIR, IPv4:DIR, NAME:DIR, NAME:PORT:DIR, or one \
                     address per plane, separated by commas, such as [fd00:1::2],[fd00:2::2]:DIR. DIR is inside the served \
                     directory, or empty";

#[derive(Debug, ClapArgs)]
#[command(override_usage = "strandway copy [OPTIONS] SOURCE... HOST:DIR\n       strandway copy [OPTIONS] --serve DIR")]
pub(crate) struct CopyArgs {
    #[arg(value_names = ["SOURCE", "HOST:DIR"], help = PATHS)]
    #[arg(required_unless_present = "serve", num_args = 2.., conflicts_with = "serve")]
    pub(crate) paths: Vec<OsString>,
    /// Receive copies until Ctrl-C; files go into this directory and nowhere else
    #[arg(long, value_name = "DIR")]
    pub(crate) serve: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) wire: WireArgs,
    /// The protocol: sdr_mds repairs losses by parity, sdr_nack by retransmission, sdr_auto chooses between them, ...
    /// (see `strandway explain`); sdr_auto/longhaul shares a line with other traffic [default without --node: sdr_auto]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Rate of the path, such as 1Gbps: the sender does not exceed it [default without --node: 1 Gb/s]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<Rate>,
    /// Round trip of the path, such as 50ms; a value that is too high does little harm if losses are rare [default
    /// without --node: 50 ms]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    rtt: Option<Span>,
    /// Limit the rate of the copy, such as 200Mbps
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with = "serve")]
    pub(crate) limit: Option<Rate>,
    /// Print what would be sent, and send nothing
    #[arg(long, conflicts_with = "serve")]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) choice: ChoiceArgs,
    /// Keep users and groups, by number; the server must --allow owner
    #[arg(long, conflicts_with = "serve")]
    pub(crate) owner: bool,
    /// In the directories that are copied, remove at the server what is not here and not excluded; the server must --allow
    /// delete. Nothing is removed if a file cannot be copied
    #[arg(long, conflicts_with = "serve")]
    pub(crate) delete: bool,
    /// Print a line for each file: what has happened to it, and its bytes
    #[arg(long, conflicts_with_all = ["serve", "quiet"])]
    pub(crate) progress: bool,
    /// With --serve: let clients give owners to files, or list and remove files
    #[arg(long, value_name = "WHAT", value_delimiter = ',', requires = "serve")]
    pub(crate) allow: Vec<Allow>,
    /// With --serve: write large files past the page cache (O_DIRECT), where the file system can: less work for the kernel,
    /// and no burst of writes at the end of a file; programs that read the files next read them from the disk
    #[arg(long, requires = "serve")]
    pub(crate) direct: bool,
    /// With --serve: end when the first client has closed its connection
    #[arg(long, requires = "serve")]
    pub(crate) once: bool,
    /// Write a summary as JSON; - for standard output
    #[arg(long, value_name = "FILE|-", conflicts_with = "serve")]
    pub(crate) json: Option<PathBuf>,
    /// Print neither progress nor summary
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// An action of clients, besides writing files, that a server may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Allow {
    Owner,
    Delete,
}

/// The default rate of a path; ours.
const RATE: Rate = Rate::from_gbps(1);
/// The default round trip of a path; ours: that of a continent.
const RTT: Span = Span::from_ms(50);

impl CopyArgs {
    /// The profile of the flag. Without one: that of the node file (`None`), or the default if there is no node file.
    pub(crate) fn profile(&self) -> Option<&str> {
        self.profile.as_deref().or(self.wire.node.is_none().then_some(PROFILE))
    }

    /// Rate and round trip of the path; `file` holds those of a node file.
    pub(crate) fn path(&self, file: Option<(Rate, Span)>) -> (Rate, Span) {
        let (rate, rtt) = file.unwrap_or((RATE, RTT));
        (self.rate.unwrap_or(rate), self.rtt.unwrap_or(rtt))
    }
}

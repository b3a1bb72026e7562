//! The arguments of `strandway node` and `strandway doctor`.

use clap::Args as ClapArgs;
use std::path::PathBuf;

pub(in crate::args) const NODE_EXAMPLES: &str = "\
Prints a line per interval: connections, payload in and out, retransmitted packets. For each plane it prints the state, megabytes in and
out, and the entropy values in use (if the profile has a list of them). `fabric up` writes a node file for each host;
docs/node-files.md describes its form.

Examples:
  strandway node h2.toml                                       until Ctrl-C
  strandway node h2.toml --seconds 60 --interval 10 --json -   for scripts: one JSON object per line
In a fabric of namespaces (see strandway fabric):
  strandway fabric exec h2 -- strandway node /run/strandway/sw/h2.toml &
  strandway fabric exec h0 -- strandway perf client h2 --node /run/strandway/sw/h0.toml

Exit status: 0 after --seconds or Ctrl-C, 1 if a socket cannot be opened or fails, 2 if the file or the key is wrong.";

pub(in crate::args) const DOCTOR_EXAMPLES: &str = "\
Looks at the kernel, cores, sockets and privileges, and at each Ethernet interface that is up: offloads, receive ring, interrupt
moderation, receive queues, NUMA node (beside the nodes of our cores); and at busy polling where cores are free. Nothing is changed;
advice names the command (`sysctl`, `ethtool`, ...) that changes it. Nodes do without features that the kernel lacks.
STRANDWAY_WITHOUT=gso,gro,... makes them do without on any kernel, for tests: names of docs/howto/hosts.md, or all.

With --to HOST it examines the path to another host instead, on which `strandway doctor --listen` runs. Each way by itself: does UDP pass,
also on other ports; the largest packet, and whether \"packet too big\" comes back for larger ones; what becomes of ECN bits and DSCP;
loss, order, round trip, and rate. It takes about four seconds, and two if nothing comes back; a name with addresses of both families is
examined over both. Only UDP port 47933 is needed, and no key: the listener answers every host, never with more than it was sent.

Examples:
  strandway doctor                      one line per finding, with a remedy if there is a problem
  strandway doctor --json -             the same for scripts
  strandway doctor --listen             on one host, until Ctrl-C; and on the other one:
  strandway doctor --to node7           the path there and back; also node7:PORT, 10.0.0.2, fd00:1::2, [fd00:1::2]:PORT
  strandway doctor --listen '[fd00:1::2]:5000' 10.0.0.2      at these addresses only

Exit status: 0 if everything works, even slowly; 1 if something does not work.";

#[derive(Debug, ClapArgs)]
pub(crate) struct NodeArgs {
    /// Node file (.toml)
    pub(crate) file: PathBuf,
    /// File with the key that all hosts share; replaces the node file's key
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Seconds between lines, 0.01 to 3600
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub(crate) interval: f64,
    /// End after this many seconds; without it, Ctrl-C ends the node
    #[arg(long, value_name = "S")]
    pub(crate) seconds: Option<f64>,
    /// Write one JSON object per line for each interval; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DoctorArgs {
    /// Examine the path to this host, on which `strandway doctor --listen` runs (UDP port 47933 unless it is given)
    #[arg(long, value_name = "HOST")]
    pub(crate) to: Option<String>,
    /// Answer the doctors of other hosts until Ctrl-C, at these addresses [default: all of this host, UDP port 47933]
    #[arg(long, value_name = "ADDRESS", num_args = 0.., conflicts_with_all = ["to", "json"])]
    pub(crate) listen: Option<Vec<String>>,
    /// Write the findings as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

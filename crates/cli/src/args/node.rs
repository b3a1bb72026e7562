//! The arguments of `strandway node` and `strandway doctor`.

use clap::Args as ClapArgs;
use std::path::PathBuf;

pub(super) const NODE_EXAMPLES: &str = "\
Prints a line per interval: connections, payload in and out, retransmitted packets. For each plane it prints the state, megabytes in and
out, and the entropy values in use (if the profile has a list of them). `fabric up` writes a node file for each host;
docs/linux-fabric.md describes its form.

Examples:
  strandway node h2.toml                                       until Ctrl-C
  strandway node h2.toml --seconds 60 --interval 10 --json -   for scripts: one JSON object per line
In a fabric of namespaces (see strandway fabric):
  strandway fabric exec h2 -- strandway node /run/strandway/sw/h2.toml &
  strandway fabric exec h0 -- strandway perf client h2 --node /run/strandway/sw/h0.toml

Exit status: 0 after --seconds or Ctrl-C, 1 if a socket cannot be opened or fails, 2 if the file or the key is wrong.";

pub(super) const DOCTOR_EXAMPLES: &str = "\
Looks at the kernel, cores, sockets and privileges, and at each Ethernet interface that is up: offloads, receive ring, interrupt
moderation, receive queues. Nothing is changed; advice names the command (`sysctl`, `ethtool`) that changes it. Nodes do without
features that the kernel lacks. STRANDWAY_WITHOUT=gso,gro,... makes them do without on any kernel, for tests: names of docs/guide.md,
or all.

Examples:
  strandway doctor              one line per finding, with a remedy if there is a problem
  strandway doctor --json -     the same for scripts

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
    /// Write the findings as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

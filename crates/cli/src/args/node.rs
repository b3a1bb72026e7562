//! What `strandway node` and `strandway doctor` are asked with.

use clap::Args as ClapArgs;
use std::path::PathBuf;

pub(super) const NODE_EXAMPLES: &str = "\
A line per interval: connections, payload in and out, packets sent again, and for each plane whether it is up, megabytes
in and out, and, if the profile keeps them, entropy values in use. `fabric up` writes a node file for each host;
docs/linux-fabric.md has their form.

Examples:
  strandway node h2.toml                                       until Ctrl-C
  strandway node h2.toml --seconds 60 --interval 10 --json -   for scripts: one JSON object per line
In a fabric of namespaces (see strandway fabric):
  strandway fabric exec h2 -- strandway node /run/strandway/sw/h2.toml &
  strandway fabric exec h0 -- strandway perf client h2 --node /run/strandway/sw/h0.toml

Exit status: 0 after --seconds or Ctrl-C, 1 if a socket cannot be had or fails, 2 if the file or the key is wrong.";

pub(super) const DOCTOR_EXAMPLES: &str = "\
Examples:
  strandway doctor              one line per finding, with a remedy where something is amiss
  strandway doctor --json -     the same for scripts

Exit status: 0 even if something is slow, 1 if something does not work at all.";

#[derive(Debug, ClapArgs)]
pub(crate) struct NodeArgs {
    /// Node file (.toml)
    pub(crate) file: PathBuf,
    /// File with the key that all hosts share, instead of the node file's
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Seconds between lines, 0.01 to 3600
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub(crate) interval: f64,
    /// End after so long; without, Ctrl-C ends
    #[arg(long, value_name = "S")]
    pub(crate) seconds: Option<f64>,
    /// Write one JSON object per line and interval; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DoctorArgs {
    /// Write the findings as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

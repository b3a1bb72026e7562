//! The arguments of `what-if`.

use clap::Args as ClapArgs;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Runs the scenario's job or service with the parts in, with all of them out, and with each one alone out: slowest flow,
iteration, missed bounds of [expect], the load of each plane, and the busiest links. A drained part carries nothing, and
all senders know it from the start. Then an order of draining: the parts of a wave are out together and back before the
next wave begins, and no wave is slower than --bound.

Parts: T1-3 (the switch in all planes), p0:t1-3 or spine3.p0, a link p0:t0-2:t1-3 or leaf2.p0-spine3.p0, a host's port
host3.p1 or p1:h3, a plane p1. --from makes the baseline the fabric as it is: failures, denied parts and suspicions of
`fabric status --json` or `fabric localise --json`.

Examples:
  strandway what-if job.toml --drain T1-3
  strandway what-if job.toml --drain T1-3,T1-7 --bound 1.1              waves that cost at most a tenth
  strandway fabric status --json state.json
  strandway what-if scenarios/wire/two_planes.toml --drain T1-1 --from state.json
  strandway what-if job.toml --drain p1 --json - | jq '.runs[].slowdown'

Exit status: 0, 1 if a run fails, 2 if a part or the state is wrong, 3 if a part exceeds the bound alone.";

#[derive(Debug, ClapArgs)]
pub(crate) struct WhatIfArgs {
    /// Scenario (.toml)
    pub(crate) scenario: PathBuf,
    /// Parts to drain, with commas between them
    #[arg(long, value_name = "PARTS", value_delimiter = ',', required = true)]
    pub(crate) drain: Vec<String>,
    /// The fabric as it is: JSON of `strandway fabric status` or `fabric localise`; - for standard input
    #[arg(long, value_name = "STATE")]
    pub(crate) from: Option<PathBuf>,
    /// The largest slowdown of a wave, as a factor
    #[arg(long, value_name = "FACTOR", default_value_t = 1.25)]
    pub(crate) bound: f64,
    /// Change a key of the scenario; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Seed of all random numbers; replaces the scenario's seed
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Runs at a time
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<u16>,
    /// Write the answer as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    /// Print no table
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

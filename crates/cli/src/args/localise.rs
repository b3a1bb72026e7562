//! The arguments of `localise`.

use clap::Args as ClapArgs;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Runs the scenario once per fault: one random cable loses 1 % of its packets, or has a tenth of its rate. The localiser gets
what the senders know, path by path: packets sent and lost, and round trips. The table says how often it names the cable
(recall), and how many of its names are right (precision). Runs without a fault must name nobody.

The scenario needs [fabric] routing = \"source\", so that senders know their paths, and flows of [[workload]]: connections
that open at their first message are not counted. In a real fabric, `strandway fabric localise` finds broken links by
probes.

Examples:
  strandway localise scenarios/gray/all_to_all.toml                       200 faults, 40 runs without
  strandway localise my.toml --faults 50 --healthy 10 --json study.json

Exit status: 0, or 3 if a run without a fault names a cable.";

#[derive(Debug, ClapArgs)]
pub(crate) struct LocaliseArgs {
    /// Scenario (.toml)
    pub(crate) scenario: PathBuf,
    /// Runs with a random fault
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) faults: u32,
    /// Runs without a fault
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(crate) healthy: u32,
    /// Change a key of the scenario; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Write the study as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

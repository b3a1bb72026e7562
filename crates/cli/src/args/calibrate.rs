//! The arguments of `calibrate`.

use clap::Args as ClapArgs;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Fits constants of a scenario by least squares to every other point of FILE, predicts the points between them, and prints
the error of each. A point's time is that of a simulation of the scenario with this collective. FILE is the output of
nccl-tests or of `strandway perf collective` (also --json), the JSON of NCCL Inspector, or a CSV file with a line such as
`size,time_us,collective,ranks`.

Constants: rate (that a NIC reaches), latency (of a link), message_cost (of a host, per message), nvlink (rate of the
links inside a server, per GPU), nvlink_latency. Those that the points do not tell apart keep their values.

Examples:
  strandway calibrate all_reduce.txt --scenario two-servers.toml --out calibrated.toml
  strandway calibrate two.json --scenario wire.toml --predict four.json        fit with 2 ranks, predict 4
  strandway calibrate points.csv --scenario my.toml --fit rate,latency --collective all-gather --ranks 16

A scenario uses the result with: include = \"calibrated.toml\"";

#[derive(Debug, ClapArgs)]
pub(crate) struct CalibrateArgs {
    /// Measured points
    pub(crate) file: PathBuf,
    /// The scenario: fabric, servers, profile and algorithm
    #[arg(long, value_name = "SCENARIO")]
    pub(crate) scenario: PathBuf,
    /// More measured points, all of which are predicted; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) predict: Vec<PathBuf>,
    /// The constants to fit [default: all that the points tell]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) fit: Vec<String>,
    /// The collective of points whose file does not say it
    #[arg(long, value_name = "NAME")]
    pub(crate) collective: Option<String>,
    /// The number of ranks of points whose file does not say it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=131_072))]
    pub(crate) ranks: Option<u32>,
    /// Leave out smaller sizes, such as those of NCCL's protocols for small messages
    #[arg(long, value_name = "SIZE")]
    pub(crate) size_min: Option<String>,
    /// Times of larger sizes are extended in a straight line from half of this size and from this size
    #[arg(long, value_name = "SIZE", default_value = "16 MiB")]
    pub(crate) size_max: String,
    /// Write the constants as TOML, which a scenario includes
    #[arg(long, value_name = "FILE|-")]
    pub(crate) out: Option<PathBuf>,
    /// Write the result as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    /// Change a key of the scenario; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Simultaneous runs [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Print no table
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

//! The arguments of `search`.

use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;
use strandway_lab::parse_span;
use strandway_lab::search::{Effect, Question};
use strandway_report::search_result::Part;

pub(super) const EXAMPLES: &str = "\
Runs the scenario as it is, then once for each part, moment and effect, in parallel, and prints the worst failures
with the slowdown that they cause: of the slowest job's time, or of the time until the last flow finished. Parts that
are alike under the fabric's symmetry are tried once; the table says how many others each stands for. Packets of
rocev2 keep one path that hashes choose, so there every part is tried unless --each says otherwise.

Examples:
  strandway search job.toml                              links between switches, visible and silent, four moments
  strandway search job.toml --what switches,ports        switches and NICs' ports
  strandway search job.toml --at 300us,2ms --for 1ms     two moments; the part comes back after 1 ms
  strandway search job.toml --effect silent -k 2         the worst failure, then the worst one beside it
  strandway search job.toml --value jobs.job.parts.dp.us     what makes ranks wait longest for gradients
  strandway search job.toml --html worst.html            a page, with links coloured by what their failure costs
  strandway search job.toml --results runs               keep every run in the folder `runs`; after Ctrl-C the same
                                                         command goes on where it was stopped
  strandway search job.toml --out worst                  the worst ones as scenarios with their result as a bound:
                                                         strandway run worst/01-leaf0-spine1-silent.toml";

/// Parts by their names.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PartName {
    /// Cables between switches
    Links,
    /// Cables between NICs and leaves
    Ports,
    /// Switches
    Switches,
}

/// Effects by their names.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum EffectName {
    /// NICs and switches at the part see it, and routing avoids it after a while
    Visible,
    /// No NIC, switch or routing learns of it
    Silent,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(times) if times.is_finite() && times > 1.0 => Ok(times),
        _ => Err("write a number above 1, such as 10".into()),
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SearchArgs {
    /// Scenario (.toml) or htsim traffic matrix; - for standard input
    pub(crate) scenario: PathBuf,
    /// Change a key of the scenario; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Seed of all random numbers; replaces the scenario's seed
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Parts that may fail
    #[arg(long, value_name = "PARTS", value_enum, value_delimiter = ',', default_value = "links")]
    pub(crate) what: Vec<PartName>,
    /// Effects of a failure
    #[arg(long, value_name = "EFFECTS", value_enum, value_delimiter = ',', default_value = "visible,silent")]
    pub(crate) effect: Vec<EffectName>,
    /// Moments at which a part fails, such as 300us,2ms
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = parse_span, conflicts_with = "moments")]
    pub(crate) at: Vec<strandway_proto::units::Span>,
    /// Number of moments, spread over the time without a failure from its start on
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) moments: u32,
    /// How long the part stays down [default: for the rest of the run]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_span)]
    pub(crate) lasting: Option<strandway_proto::units::Span>,
    /// How long routing takes to avoid a visible failure [default: 1ms]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub(crate) reconverge: Option<strandway_proto::units::Span>,
    /// Number of failures: each one is the worst beside those before it
    #[arg(short = 'k', long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) failures: u32,
    /// Members of each class of like parts that are tried; 0 for all [default: 1; with single paths all]
    #[arg(long, value_name = "N")]
    pub(crate) each: Option<u32>,
    /// The number of the JSON report that failures make larger, such as fct_us.p99 [default: the time of the jobs, or
    /// the time until the last flow finished]
    #[arg(long, value_name = "KEY")]
    pub(crate) value: Option<String>,
    /// A run ends after this many times the time without a failure
    #[arg(long, value_name = "TIMES", default_value = "10", value_parser = positive)]
    pub(crate) give_up: f64,
    /// Failures to print and to write, the worst ones
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
    /// Write the worst failures to this folder, as scenarios to repeat
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write a page with the failures and a picture of the fabric; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) html: Option<PathBuf>,
    /// Keep every run in this folder as it ends, and do not repeat those that are there
    #[arg(long, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
    /// Write all failures as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    /// Simultaneous runs [default: as many as processors and memory allow]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Run even if the estimate says that memory is not enough
    #[arg(long)]
    pub(crate) force: bool,
    /// Print neither tables nor progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl SearchArgs {
    /// The question of these arguments.
    pub(crate) fn question(&self) -> Question {
        let part = |name: &PartName| match name {
            PartName::Links => Part::Link,
            PartName::Ports => Part::Port,
            PartName::Switches => Part::Switch,
        };
        let effect = |name: &EffectName| match name {
            EffectName::Visible => Effect::Visible,
            EffectName::Silent => Effect::Silent,
        };
        Question {
            parts: self.what.iter().map(part).collect(),
            effects: self.effect.iter().map(effect).collect(),
            at: self.at.clone(),
            moments: self.moments,
            lasting: self.lasting,
            reconverge: self.reconverge,
            failures: self.failures,
            each: self.each,
            give_up: self.give_up,
            value: self.value.clone(),
        }
    }
}

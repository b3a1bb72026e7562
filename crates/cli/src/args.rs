//! The command line. Its help is meant to teach: every command ends with examples.

use clap::{Args as ClapArgs, Parser, Subcommand};
use std::path::PathBuf;

const ABOUT: &str =
    "Simulates AI-training network fabrics, packet by packet and reproducibly; runs the same engines on sockets";

const LONG: &str = "\
Strandway simulates AI-training network fabrics packet by packet: leaf-spine, fat-tree and multi-plane
fabrics; RoCEv2 and Ultra Ethernet style transports; failures; your own traffic matrices. The same
scenario and seed give the same result on any machine and any number of threads.

Without a command it runs a built-in showcase (a few seconds) and writes strandway-showcase.html.";

const EXAMPLES: &str = "\
Examples:
  strandway                                            the showcase: RoCEv2 and Ultra Ethernet on one fabric
  strandway run scenarios/smoke/permutation.toml       run a scenario, print its report
  strandway run my-matrix.cm --html report.html        an htsim traffic matrix on the smallest fat tree for it
  strandway compare my.toml --profiles rocev2,uec      one table, one row per protocol
  strandway explain uec                                a profile's parameters, defaults and sources
  strandway reproduce prime --html prime.html          published results beside ours
  strandway perf client ::1                            the same engines over real sockets (after: perf server &)

Exit status: 0 fine, 1 the run failed or did not finish, 2 bad usage or scenario, 3 an [expect] bound or a
published result was missed.
Scenario reference: docs/scenario.md. Guide: docs/guide.md.";

#[derive(Debug, Parser)]
#[command(name = "strandway", version, about = ABOUT, long_about = LONG, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one scenario and report what happened
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Run one scenario under several profiles: one table, one row per profile
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),
    /// Run every combination of a scenario's sweep: one row per combination
    #[command(after_help = SWEEP_EXAMPLES)]
    Sweep(SweepArgs),
    /// Tell what a profile, policy or fabric consists of: parameters, defaults, units, sources
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Run what papers report and print their numbers beside ours, with a verdict per row
    #[command(after_help = REPRODUCE_EXAMPLES)]
    Reproduce(ReproduceArgs),
    /// Measure bandwidth or latency between two hosts, with the same engines over real UDP/IPv6 sockets
    #[command(after_help = PERF_EXAMPLES)]
    Perf(PerfArgs),
    /// Tell what this machine can do for real sockets, what will be slower, and how to fix it
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
}

const RUN_EXAMPLES: &str = "\
Examples:
  strandway run my.toml                                 print tables
  strandway run my.toml --json - | jq .fct_us.p99       the report as JSON on standard output
  strandway run my.toml --set profile.path=reps         change one key of the scenario
  strandway run my.toml --set 'workload.size=\"4 MB\"'    values are TOML; plain text is taken as text
  strandway run my.toml --html report.html              a page with plots, readable without network
  strandway run my.toml --pcap host0.pcap               packets of the first host (or of [run] capture)
  strandway run matrix.cm                               an htsim traffic matrix, without any scenario file";

const COMPARE_EXAMPLES: &str = "\
Examples:
  strandway compare my.toml --profiles rocev2,rocev2_sr,uec
  strandway compare my.toml --profiles uec/oblivious,uec/reps,uec/bitmap --html selectors.html
  strandway compare my.toml --profiles .,uec/swift      the scenario's own profile against another

A profile is a preset; parts behind a slash replace its path selector, congestion control or
reliability. Parameters that the scenario sets in [profile.GROUP] hold for every profile that has GROUP.";

const SWEEP_EXAMPLES: &str = "\
A scenario to sweep has a section such as
  [sweep]
  \"profile.path\" = [\"oblivious\", \"reps\", \"bitmap\"]
  \"workload.size\" = [\"256 KiB\", \"2 MB\"]

Examples:
  strandway sweep my.toml
  strandway sweep my.toml --set sweep.run.seed='[1, 2, 3]' --json rows.json";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  strandway explain                       list everything that has a name
  strandway explain uec                   a profile with all its groups of parameters
  strandway explain nscc                  a congestion control, path selector or reliability
  strandway explain fabric my.toml        what follows from a scenario's fabric: RTT, BDP, queues, thresholds";

const REPRODUCE_EXAMPLES: &str = "\
Every row is one number: what was published or measured elsewhere, ours (the mean over seeds), their ratio, and
a verdict. met: within the row's tolerance. missed: not; the exit status is then 3. unknown: there is nothing to
judge by. The source says whose the other number is; only \"published\" is the paper's own.
With --json each row carries the runs it was calculated from, seed by seed, and their command lines.

Examples:
  strandway reproduce --list                                   what there is and how long it takes
  strandway reproduce                                          everything but the slow rows
  strandway reproduce prime --html prime.html                  one set, with charts
  strandway reproduce prime --only 'healthy/512/*' --json -    some of its rows, for scripts
  strandway reproduce strack --full                            slow rows as well: 8,192 hosts";

const PERF_EXAMPLES: &str = "\
A plane is a local address and the way from it to an address of the other host. Give both sides the same number of
planes, the same profile, payload and key. Without --plane a server listens on loopback.

Examples, on one host:
  strandway perf server &                                     listens on [::1]:47930
  strandway perf client ::1                                   ten seconds of 1 MiB writes, a line per second
  strandway perf client ::1 --latency --size 64               round trips instead
Two hosts, two planes:
  head -c 32 /dev/urandom > key                               copy it to both hosts
  strandway perf server --key key --plane fd00:1::2 --plane fd00:2::2
  strandway perf client fd00:1::2 fd00:2::2 --key key --plane fd00:1::1 --plane fd00:2::1
For scripts:
  strandway perf client ::1 --seconds 3 --json - | jq .goodput_gbps";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  strandway doctor              one line per finding, with a remedy where something is amiss
  strandway doctor --json -     the same for scripts

Exit status: 0 even if something is slow, 1 if something does not work at all.";

/// What all commands that run something share.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Common {
    /// Scenario (.toml) or htsim traffic matrix (.cm)
    pub(crate) scenario: PathBuf,
    /// Change a key of the scenario; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Seed of all random streams, instead of the scenario's
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Threads of one run; results do not depend on it
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<u64>,
    /// Write the report as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the report as Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// Print neither tables nor progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Record packets as a pcap file: of what the scenario names under `capture`, or of the first host
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Profiles, with commas between
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', default_value = "rocev2,rocev2_sr,uec")]
    pub(crate) profiles: Vec<String>,
    /// Runs at the same time; by default as many as there are processors for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Runs at the same time; by default as many as there are processors for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExplainArgs {
    /// A profile, congestion control, path selector or reliability; or `fabric` with a scenario
    pub(crate) name: Option<String>,
    /// With `fabric`: the scenario
    pub(crate) scenario: Option<PathBuf>,
    /// With `fabric`: change a key of the scenario; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReproduceArgs {
    /// Sets of results; all of them if none is named
    pub(crate) names: Vec<String>,
    /// List the sets and how long each takes
    #[arg(long)]
    pub(crate) list: bool,
    /// Run slow rows as well: fabrics of 8,192 hosts, long messages
    #[arg(long)]
    pub(crate) full: bool,
    /// Run only rows whose id matches; `*` stands for any text, and a part before a slash for all rows below it
    #[arg(long, value_name = "PATTERN")]
    pub(crate) only: Option<String>,
    /// Write the rows as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    /// Write tables and charts as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Runs at the same time; by default as many as there are processors for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Print neither tables nor progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a command line as a shell would part them.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (i, part) in line.split('\'').enumerate() {
            if i % 2 == 1 {
                words.push(part.to_string());
            } else {
                words.extend(part.split_whitespace().map(str::to_string));
            }
        }
        words
    }

    #[test]
    fn every_command_line_that_rows_print_can_be_typed() {
        let names: Vec<String> = strandway_lab::reproduce::list().iter().map(|s| s.name.to_string()).collect();
        let work = strandway_lab::reproduce::choose(&names, None, true).expect("rows");
        for line in work.commands().into_iter().map(|(_, line)| line).chain(work.cell_commands()) {
            assert!(Args::try_parse_from(words(&line)).is_ok(), "{line}");
        }
        for line in work.cell_commands() {
            let Some(Command::Sweep(args)) = Args::try_parse_from(words(&line)).expect("parsed").command else {
                panic!("no sweep: {line}");
            };
            let file = std::path::Path::new("../..").join(&args.common.scenario);
            let mut scenario = strandway_lab::Scenario::load(&file).expect("a scenario of the repository");
            for set in &args.common.set {
                scenario.set(set).unwrap_or_else(|said| panic!("{line}: {said}"));
            }
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PerfArgs {
    #[command(subcommand)]
    pub(crate) side: PerfSide,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PerfSide {
    /// Serve clients until interrupted
    Server(PerfServerArgs),
    /// Measure against a server
    Client(PerfClientArgs),
}

/// What both sides of a measurement must agree on, and where they are.
#[derive(Debug, ClapArgs)]
pub(crate) struct PerfCommon {
    /// Local address of a plane, with or without [..]:PORT; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) plane: Vec<String>,
    /// File with the key that both sides share (16 bytes or more); on loopback it may be left out
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// The protocol: uec, strack_fast, rocev2, ... (see `strandway explain`)
    #[arg(long, value_name = "NAME", default_value = "uec")]
    pub(crate) profile: String,
    /// Payload bytes of a packet: 1344 fits an MTU of 1500, 4096 one of 4224 and loopback
    #[arg(long, value_name = "BYTES", default_value_t = 1344)]
    pub(crate) payload: u32,
    /// What is done to packets: encrypted (and authenticated), authenticated (slower, but captures show payload), or none (for
    /// fabrics that nobody else can reach)
    #[arg(long, value_name = "WHAT", default_value = "encrypted")]
    pub(crate) protection: Protection,
    /// While nothing arrives: spin (lowest latency, a whole core), sleep, or adaptive (spin briefly, then sleep)
    #[arg(long, value_name = "HOW", default_value = "adaptive")]
    pub(crate) waiting: Waiting,
    /// Line rate of all planes together, in Gb/s; with --rtt-us it says how much may be under way
    #[arg(long, value_name = "GBPS", default_value_t = 40)]
    pub(crate) rate_gbps: u64,
    /// Round trip without queueing, in microseconds, waking of the other side included
    #[arg(long, value_name = "US", default_value_t = 100)]
    pub(crate) rtt_us: u64,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Protection {
    Encrypted,
    Authenticated,
    None,
}

impl Protection {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Protection::Encrypted => "encrypted",
            Protection::Authenticated => "authenticated",
            Protection::None => "none",
        }
    }
}

impl From<Protection> for strandway_udp::Protection {
    fn from(protection: Protection) -> strandway_udp::Protection {
        match protection {
            Protection::Encrypted => strandway_udp::Protection::Encrypted,
            Protection::Authenticated => strandway_udp::Protection::Authenticated,
            Protection::None => strandway_udp::Protection::None,
        }
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Waiting {
    Spin,
    Sleep,
    Adaptive,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PerfServerArgs {
    #[command(flatten)]
    pub(crate) common: PerfCommon,
    /// End when the first client has gone
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PerfClientArgs {
    /// The server's address on each plane, with or without [..]:PORT
    #[arg(required = true, value_name = "SERVER")]
    pub(crate) server: Vec<String>,
    #[command(flatten)]
    pub(crate) common: PerfCommon,
    /// Bytes of one message, 1 to 1073741824
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub(crate) size: u64,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) connections: usize,
    /// How long
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    pub(crate) seconds: f64,
    /// Messages under way per connection
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) depth: usize,
    /// Measure round trips of messages, one at a time, instead of bandwidth
    #[arg(long)]
    pub(crate) latency: bool,
    /// Write the result as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DoctorArgs {
    /// Write the findings as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

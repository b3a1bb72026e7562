//! The arguments of `run`, `compare`, `sweep`, `explain` and `reproduce`.

use clap::Args as ClapArgs;
use std::path::PathBuf;
use strandway_lab::Shard;

pub(super) const RUN_EXAMPLES: &str = "\
Examples:
  strandway run my.toml                                 print tables
  strandway run my.toml --json - | jq .fct_us.p99       the report as JSON on standard output
  strandway run my.toml --set profile.path=reps         change one key of the scenario
  strandway run my.toml --set 'workload.size=\"4 MB\"'    values are TOML; anything else is text
  strandway run my.toml --set workload.a.size='\"1 MB\"'   a member of a list by its name or number (faults.0.kind=loss)
  strandway run my.toml --flows flows.csv               a row for every flow
  strandway run my.toml --trace trace.json              events over time, for https://ui.perfetto.dev
  strandway run my.toml --estimate                      packet hops, time and memory, without the run
  strandway run my.toml --html report.html              a page with plots, readable without network
  strandway run my.toml --pcap host0.pcap               packets of the first host (or of [run] capture)
  strandway run matrix.cm                               an htsim traffic matrix, without any scenario file
  strandway run llama7b.txt --gpus 64                   a workload of SimAI or AICB, a trace of Chakra, a GOAL schedule
  strandway run matrix.cm --set workload.start_unit=us  start times in microseconds, not picoseconds
  generate | strandway run -                            a scenario or matrix from a pipe";

pub(super) const COMPARE_EXAMPLES: &str = "\
Examples:
  strandway compare my.toml --profiles rocev2,rocev2_sr,uec
  strandway compare my.toml --profiles uec/oblivious,uec/reps,uec/bitmap --html selectors.html
  strandway compare my.toml --profiles .,uec/swift      the scenario's own profile against another

A profile is a preset. Names after a slash replace its path selector, congestion control or reliability.
The scenario's parameters in [profile.GROUP] are used for every profile that has GROUP.";

pub(super) const SWEEP_EXAMPLES: &str = "\
A scenario to sweep has a section such as
  [sweep]
  \"profile.path\" = [\"oblivious\", \"reps\", \"bitmap\"]
  \"workload.size\" = [\"256 KiB\", \"2 MB\"]

Examples:
  strandway sweep my.toml
  strandway sweep my.toml --set sweep.run.seed='[1, 2, 3]' --json rows.json
  strandway sweep my.toml --results rows                keep every run in the folder `rows` as it ends; the same
                                                        command goes on where it was stopped
  strandway sweep my.toml --results rows --shard 2/16   only runs 2, 18, 34, ...: one of 16 jobs of a cluster
  strandway sweep my.toml --results rows --gather       print what is there, and run nothing

Rows in the folder are found by a digest of the version, the scenario and the files that it names: a changed
scenario is run anew, and several sweeps may share a folder. A run that fails is a row with an error, and the next
command runs it again. examples/sweeps has an array of Slurm jobs and a script for Ray.";

pub(super) const IMPORT_EXAMPLES: &str = "\
Files that are understood, and the key that uses each:
  workload.txt (SimAI, AICB), list.csv (AICB)      [job] file = \"FILE\"
  PREFIX.RANK.et or .json, one per rank (Chakra)   [job] file = \"PREFIX\"; one file alone: and gpus = N
  schedule.goal, schedule.bin (GOAL)               [job] file = \"FILE\"
  infrastructure.yaml, .json, .pb (InfraGraph)     [fabric] kind = \"infragraph\", topo = \"FILE\"
  topology of SimAI or ASTRA-sim                   [fabric] kind = \"simai\", topo = \"FILE\"
  topology.xml (NCCL)                              [servers] topo = \"FILE\"
  graph.xml (NCCL)                                 a description
  tuner.conf (NCCL)                                [job] tuner = \"FILE\"
  algorithm.xml (MSCCL), plan.json (MSCCL++)       [workload] algorithm = \"msccl\", file = \"FILE\"
  matrix.cm (htsim)                                strandway run FILE
  all_reduce.txt (nccl-tests), times.csv           strandway calibrate FILE
Files for [job] file run without a scenario, too: strandway run FILE.

Examples:
  strandway import traces/all_reduce_8npus_1MB     all files all_reduce_8npus_1MB.RANK.et
  strandway import llama7b.bin                     read once, a rank at a time
  strandway import ../SimAI/example                a line for each file of a folder";

pub(super) const EXPLAIN_EXAMPLES: &str = "\
Examples:
  strandway explain                       list all names
  strandway explain uec                   a profile with all its groups of parameters
  strandway explain nscc                  a congestion control, path selector or reliability
  strandway explain job                   the keys of a section of scenarios; job.recompute: one key
  strandway explain fabric my.toml        values computed for a fabric: RTT, BDP, queues, thresholds";

pub(super) const REPRODUCE_EXAMPLES: &str = "\
Every row compares one number: the published or reference value, ours (the mean over seeds), their ratio, and a
verdict. met: the mean's confidence interval of 95 % is within the row's bound. missed: it is outside; the exit status is
then 3. undecided: it crosses an end of the bound. comparison: beside the number of another algorithm or setting.
study: our own numbers. unjudged: the note says why. The source names the origin of the other number; only
\"published\" values come from a paper. With --json each row has its runs, seed by seed, with command lines.

Examples:
  strandway reproduce --list                                   all sets and the time that each takes
  strandway reproduce                                          all rows except slow ones
  strandway reproduce prime --html prime.html                  one set, with charts
  strandway reproduce prime --only 'healthy/512/*' --json -    some of its rows, for scripts
  strandway reproduce strack --full                            slow rows as well: 8,192 hosts
  strandway reproduce mrc --from mrc.json                      judge again; run only what mrc.json lacks";

/// The arguments of all commands that run scenarios.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Common {
    /// Scenario (.toml), htsim traffic matrix (starts with `Nodes`), or a file of another tool that [job] file runs; - for
    /// standard input
    pub(crate) scenario: PathBuf,
    /// Change a key of the scenario; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Number of GPUs, for a file of another tool that does not say it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=131_072))]
    pub(crate) gpus: Option<u32>,
    /// Seed of all random numbers; replaces the scenario's seed
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Threads per run, or `auto` for one per processor; results do not depend on it
    #[arg(long, value_name = "N|auto")]
    pub(crate) threads: Option<String>,
    /// Write the report as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report as one self-contained HTML page; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) html: Option<PathBuf>,
    /// Write the report as Markdown; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) markdown: Option<PathBuf>,
    /// Print neither tables nor progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Record packets as a pcap file, at the place that the scenario's `capture` names, or at the first host. Frames
    /// have real headers and are longer than simulated packets: docs/wireshark/README.md
    #[arg(long, value_name = "FILE|-")]
    pub(crate) pcap: Option<PathBuf>,
    /// Write a row for every flow as CSV: source, destination, class, bytes, start, arrival, completion, slowdown
    #[arg(long, value_name = "FILE|-")]
    pub(crate) flows: Option<PathBuf>,
    /// Write a trace for Perfetto: steps of training jobs, collectives, flows, links and faults over time
    #[arg(long, value_name = "FILE|-")]
    pub(crate) trace: Option<PathBuf>,
    /// Jobs of large clusters: simulate smaller runs that stand for the whole one, and print the error beside each time
    /// (run.approximate)
    #[arg(long, conflicts_with_all = ["pcap", "flows", "trace"])]
    pub(crate) approximate: bool,
    /// Print the packet hops, time and memory that the run would need, and do not run it. With --threads: also how these
    /// threads would share it, from its first seconds; this machine may have fewer
    #[arg(long)]
    pub(crate) estimate: bool,
    /// Run even if the estimate says that memory is not enough
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Profiles, separated by commas
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', default_value = "rocev2,rocev2_sr,uec")]
    pub(crate) profiles: Vec<String>,
    /// Simultaneous runs [default: as many as processors and memory allow]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Run even if the estimate says that memory is not enough
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Keep every run in this folder as it ends, and do not repeat those that are there
    #[arg(long, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
    /// Only part I of N, counted from 0: every N-th run
    #[arg(long, value_name = "I/N")]
    pub(crate) shard: Option<Shard>,
    /// With --results: run nothing, print what is there
    #[arg(long, requires = "results")]
    pub(crate) gather: bool,
    /// Simultaneous runs [default: as many as processors and memory allow]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Run even if the estimate says that memory is not enough
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExplainArgs {
    /// A profile, congestion control, path selector or reliability; a section or key of scenarios; or `fabric` with a
    /// scenario
    pub(crate) name: Option<String>,
    /// With `fabric`: the scenario
    pub(crate) scenario: Option<PathBuf>,
    /// With `fabric`: change a key of the scenario; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ImportArgs {
    /// A file, the prefix or the folder of a Chakra trace, or any folder, whose files are listed; `-` is standard input
    pub(crate) file: PathBuf,
    /// Number of GPUs, for a list of AICB that does not say it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=131_072))]
    pub(crate) gpus: Option<u32>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReproduceArgs {
    /// Sets of results [default: all]
    pub(crate) names: Vec<String>,
    /// List the sets and the time that each takes
    #[arg(long)]
    pub(crate) list: bool,
    /// Also run slow rows: fabrics of 8,192 hosts, long messages
    #[arg(long)]
    pub(crate) full: bool,
    /// Run only rows with a matching id; `*` stands for any text, and a prefix up to a slash for all rows below it
    #[arg(long, value_name = "PATTERN")]
    pub(crate) only: Option<String>,
    /// Write the rows as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    /// Write tables and charts as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the tables as Markdown; - for standard output. In an existing file, they replace the text between the
    /// lines `<!-- begin: strandway reproduce SET -->` and `<!-- end: strandway reproduce SET -->`
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["only", "against"])]
    pub(crate) markdown: Option<PathBuf>,
    /// Compare with the tables of a page that --markdown wrote: changed rows are listed, and the exit status is then 3
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    /// Take the numbers of runs from this file of --json, and run only what it lacks; may be repeated. Numbers of
    /// another build of strandway may be out of date
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Vec<PathBuf>,
    /// Simultaneous runs [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Print neither tables nor progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

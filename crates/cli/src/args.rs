//! The command line. Its help is meant to teach: every command ends with examples.

mod copy;
mod model;

use clap::{Args as ClapArgs, Parser, Subcommand};
use std::path::PathBuf;

pub(crate) use copy::CopyArgs;
pub(crate) use model::{ModelArgs, ModelOf, SdrArgs};

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
  strandway model sdr --loss 1e-4 --rtt 50ms           which reliability for this long link?
  strandway perf client ::1                            the same engines over real sockets (after: perf server &)
  strandway copy data '[fd00::2]:backup' --key key      files to another host (after: copy --serve DIR there)
  strandway fabric up scenarios/wire/two_planes.toml   the scenario's fabric out of Linux namespaces (as root)

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
    /// Calculate what no run is needed for: which reliability suits a long, lossy link
    Model(ModelArgs),
    /// Measure bandwidth or latency between two hosts, with the same engines over real UDP/IPv6 sockets
    #[command(after_help = PERF_EXAMPLES)]
    Perf(PerfArgs),
    /// Copy files and directories to another host, over a long or lossy path, and go on where a copy stopped
    #[command(after_help = copy::EXAMPLES)]
    Copy(Box<CopyArgs>),
    /// Run a node from its node file until Ctrl-C: answers `strandway perf client`, and tells what it carries
    #[command(after_help = NODE_EXAMPLES)]
    Node(NodeArgs),
    /// Tell what this machine can do for real sockets, what will be slower, and how to fix it
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Build a scenario's fabric out of Linux network namespaces; break and mend it; run programs on its hosts
    #[command(after_help = FABRIC_EXAMPLES)]
    Fabric(FabricArgs),
}

const RUN_EXAMPLES: &str = "\
Examples:
  strandway run my.toml                                 print tables
  strandway run my.toml --json - | jq .fct_us.p99       the report as JSON on standard output
  strandway run my.toml --set profile.path=reps         change one key of the scenario
  strandway run my.toml --set 'workload.size=\"4 MB\"'    values are TOML; plain text is taken as text
  strandway run my.toml --set workload.a.size='\"1 MB\"'   a member of a list by its name or number (faults.0.kind=loss)
  strandway run my.toml --flows flows.csv               a row for every flow
  strandway run my.toml --estimate                      packet hops, time and memory, without the run
  strandway run my.toml --html report.html              a page with plots, readable without network
  strandway run my.toml --pcap host0.pcap               packets of the first host (or of [run] capture)
  strandway run matrix.cm                               an htsim traffic matrix, without any scenario file
  strandway run matrix.cm --set workload.start_unit=us  its starts are microseconds rather than picoseconds
  generate | strandway run -                            a scenario or matrix from a pipe";

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
Between two hosts of a fabric of namespaces (see strandway fabric):
  strandway fabric exec h2 -- strandway perf server --node /run/strandway/sw/h2.toml
  strandway fabric exec h0 -- strandway perf client h2 --node /run/strandway/sw/h0.toml
A gigabyte, every byte checked, a line every 10 ms:
  strandway perf client ::1 --size 1G --messages 1 --verify --interval 0.01
Two threads on either side, connections spread over them:
  strandway perf server --threads 2 &
  strandway perf client ::1 --threads 2 --connections 4
For scripts:
  strandway perf client ::1 --seconds 3 --json - | jq .goodput_gbps

A server says once a second how many callers it has refused, and why: another key, profile, payload size, ...";

const PERF_COLUMNS: &str = "\
Columns:
  Gb/s       payload; in the last line that of finished messages
  messages   finished since the line before
  ping       round trip of pings in microseconds, median and 99th percentile: it includes queues and the other side's
             waking up; with --latency that of messages instead
  again      packets sent again, because they were lost or thought to be
  per plane  what each plane carried, packets sent again included; (silent): it does not answer, and carries nothing
  back       payload that came from the server (--bidirectional)
  EVs        paths in use on each plane, if the profile keeps a list of them (mrc)";

const NODE_EXAMPLES: &str = "\
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

const DOCTOR_EXAMPLES: &str = "\
Examples:
  strandway doctor              one line per finding, with a remedy where something is amiss
  strandway doctor --json -     the same for scripts

Exit status: 0 even if something is slow, 1 if something does not work at all.";

const FABRIC_EXAMPLES: &str = "\
Hosts and switches become namespaces called NAME-h0, NAME-t0-p0-0 and so on. Switches forward by static SRv6 micro
segments, so the address that a program sends to is the path: plane, T1, host. docs/linux-fabric.md has the addresses
and says what is not modelled.

Examples, as root:
  strandway fabric check                                     what this machine has and lacks
  strandway fabric up scenarios/wire/two_planes.toml         build it; a fraction of a second
  strandway fabric status --probe                            counters, and a datagram over every path
  strandway fabric exec h0 -- ip -6 route                    run a program on a host
  strandway fabric fail plane:p1                             break something, silently
  strandway fabric heal                                      mend everything
  strandway fabric down                                      remove it all
Node files for programs on the hosts: /run/strandway/NAME/h0.toml and so on.";

const FABRIC_UP_EXAMPLES: &str = "\
At most 64 hosts, 8 planes and 200 namespaces; two tiers, so multi-plane or leaf-spine. Every port is shaped to the
scenario's rate, which may be up to 1 Gb/s per port: software carries no more. Building the same fabric again does
nothing; Ctrl-C or an error removes what had been built.

Examples:
  strandway fabric up scenarios/wire/two_planes.toml
  strandway fabric up my.toml --rate 200Mbps --name slow     every port at 200 Mb/s
  strandway fabric up scenarios/wire/long_link.toml          two sites joined by a delay line
  strandway fabric up scenarios/wire/three_sites.toml        three sites; two to sixteen will do
  strandway fabric up my.toml --unshaped --set fabric.hosts=8";

const FABRIC_RUN_EXAMPLES: &str = "\
A thread per host enters its namespace, opens a node with the scenario's profile, and posts its flows. If no fabric of
that name is up, one is built, and removed afterwards. Times are the machine's own: leave it alone meanwhile.

Examples:
  strandway fabric run scenarios/wire/two_planes.toml             the report of a real run
  strandway fabric run scenarios/wire/two_planes.toml --both      beside the simulated one
  strandway fabric run my.toml --rate 200Mbps --json - | jq .fct_us";

const FABRIC_FAIL_EXAMPLES: &str = "\
Targets:
  link:p0:t0-0:t1-1    a link between two switches, or link:p0:h0:t0-0: silent, both directions
  switch:p0:t1-1       a switch: silent
  plane:p1             all switches of a plane: silent
  port:h0:p1           a host's own port: the host sees it, and sending over that plane is an error at once
  loss:p0:2%           random loss of what comes in at every switch port of a plane; loss:all:1% of all planes
  loss:p0:2%:8         the same in runs of 8 on average (needs clang)
  degrade:p0:25%       every port of a plane sends at a quarter of its rate, with a quarter of its queue
Losses and rates strike a link as well (loss:p0:t0-0:t1-1:2%) or one direction of it (degrade:p0:t0-0:to:h0:25%).
Silent means what it does in a real fabric: packets vanish, and nobody is told. Failures add up; what is failed
already stays failed, and another loss or rate of the same place replaces the one before.

Examples:
  strandway fabric fail spine1.p0                   names as in scenarios: a switch,
  strandway fabric fail host0.p1                    a host's own port,
  strandway fabric fail leaf0.p0-spine1.p0          or a link
  strandway fabric fail link:p0:t0-0:t1-1           the same link by the names of namespaces
  strandway fabric fail loss:p0:2% --name slow
  strandway fabric fail degrade:p0:t0-0:t1-1:10%
  strandway fabric heal loss:p0";

/// What all commands that run something share.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Common {
    /// Scenario (.toml) or htsim traffic matrix (starts with `Nodes`); - for standard input
    pub(crate) scenario: PathBuf,
    /// Change a key of the scenario; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Seed of all random streams, instead of the scenario's
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Threads of one run, or `auto` for one per processor; results do not depend on it
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
    /// Record packets as a pcap file: of what the scenario names under `capture`, or of the first host. Frames have real headers
    /// and are longer than simulated packets: docs/wireshark/README.md
    #[arg(long, value_name = "FILE|-")]
    pub(crate) pcap: Option<PathBuf>,
    /// Write a row for every flow as CSV: ends, class, bytes, start, arrival, completion, slowdown
    #[arg(long, value_name = "FILE|-")]
    pub(crate) flows: Option<PathBuf>,
    /// Tell how many packet hops, how much time and how much memory the run would take, and do not run it
    #[arg(long)]
    pub(crate) estimate: bool,
    /// Run even if the estimate says that memory will not do
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Profiles, with commas between
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', default_value = "rocev2,rocev2_sr,uec")]
    pub(crate) profiles: Vec<String>,
    /// Runs at the same time; by default as many as there are processors and memory for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Run even if the estimate says that memory will not do
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Runs at the same time; by default as many as there are processors and memory for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Run even if the estimate says that memory will not do
    #[arg(long)]
    pub(crate) force: bool,
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
        let rows = work.commands().into_iter().map(|(_, line)| line);
        for line in rows.chain(work.cell_commands()).chain(work.model_commands()) {
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
    #[command(after_help = PERF_COLUMNS)]
    Client(PerfClientArgs),
}

/// Where a node is and how it sends: what measurements and copies share.
#[derive(Debug, ClapArgs)]
pub(crate) struct WireArgs {
    /// A node file (`strandway fabric up` writes one for each host): addresses, paths, key, profile, rate; flags go before it
    #[arg(long, value_name = "FILE", conflicts_with = "plane")]
    pub(crate) node: Option<PathBuf>,
    /// Local address of a plane, with or without [..]:PORT; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) plane: Vec<String>,
    /// File with the key that both sides share (16 bytes or more); on loopback it may be left out
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Payload bytes of a packet: 1344 fits an MTU of 1500, 4096 one of 4300 and loopback [default: 1344]
    #[arg(long, value_name = "BYTES")]
    pub(crate) payload: Option<u32>,
    /// As much payload as fits packets of so many bytes, IPv6 header included, with this profile and protection
    #[arg(long, value_name = "BYTES", conflicts_with = "payload")]
    pub(crate) mtu: Option<u32>,
    /// What is done to packets: encrypted (and authenticated), authenticated (slower, but captures show payload), or none (for
    /// fabrics that nobody else can reach)
    #[arg(long, value_name = "WHAT", default_value = "encrypted")]
    pub(crate) protection: Protection,
    /// While nothing arrives: spin (lowest latency, a whole core), sleep, or adaptive (spin briefly, then sleep)
    #[arg(long, value_name = "HOW", default_value = "adaptive")]
    pub(crate) waiting: Waiting,
    /// Source ports of each plane, that switches with ECMP spread over their paths; 1 leaves all on one path
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), conflicts_with = "node")]
    pub(crate) source_ports: Option<u16>,
    /// Payload that goes one way before the next path is chosen, in KiB: more costs fewer system calls, and longer queues
    #[arg(long, value_name = "KIB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) burst_kib: u32,
}

/// What both sides of a measurement must agree on, and where they are.
#[derive(Debug, ClapArgs)]
pub(crate) struct PerfCommon {
    #[command(flatten)]
    pub(crate) wire: WireArgs,
    /// The protocol: uec, mrc, strack_fast, rocev2, ... (see `strandway explain`) [default: uec]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Line rate of all planes together, in Gb/s; with --rtt-us it says how much may be under way [default: 40]
    #[arg(long, value_name = "GBPS")]
    pub(crate) rate_gbps: Option<f64>,
    /// Round trip without queueing, in microseconds, waking of the other side included [default: 100]
    #[arg(long, value_name = "US")]
    pub(crate) rtt_us: Option<u64>,
    /// Threads, with sockets of their own each: those of thread k are k times the number of planes ports further on. A client
    /// needs as many connections, and a server with as many threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: u16,
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

/// Bytes, with K, M or G behind them or without.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err("write a number of bytes, such as 64, 4K, 1M or 1G".into()),
    };
    let number: u64 = digits.parse().map_err(|_| "write a number of bytes, such as 64, 4K, 1M or 1G".to_string())?;
    number.checked_mul(1 << shift).ok_or_else(|| "more bytes than there are".into())
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PerfServerArgs {
    #[command(flatten)]
    pub(crate) common: PerfCommon,
    /// End when the first client has gone, with all its connections
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PerfClientArgs {
    /// The server's address on each plane, with or without [..]:PORT; with --node its name or number, such as h2
    #[arg(required = true, value_name = "SERVER")]
    pub(crate) server: Vec<String>,
    #[command(flatten)]
    pub(crate) common: PerfCommon,
    /// Bytes of one message, 1 to 1073741824; K, M and G stand for powers of 1024
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = size)]
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
    /// End after so many messages per connection, if the time is not up before
    #[arg(long, value_name = "N")]
    pub(crate) messages: Option<u64>,
    /// Seconds between lines, 0.001 to 3600
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub(crate) interval: f64,
    /// Measure round trips of messages, one at a time, instead of bandwidth
    #[arg(long, group = "mode")]
    pub(crate) latency: bool,
    /// Let the server write back as much at the same time
    #[arg(long, group = "mode")]
    pub(crate) bidirectional: bool,
    /// Send ever new contents, one message at a time, and compare digests (SHA-256) with what arrived
    #[arg(long, group = "mode")]
    pub(crate) verify: bool,
    /// Write the result as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

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

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricArgs {
    #[command(subcommand)]
    pub(crate) command: FabricCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FabricCommand {
    /// Build the fabric of a scenario
    #[command(after_help = FABRIC_UP_EXAMPLES)]
    Up(FabricUpArgs),
    /// Run a scenario's flows between real nodes, faults included, and report as `strandway run` does
    #[command(after_help = FABRIC_RUN_EXAMPLES)]
    Run(FabricRunArgs),
    /// Tell what there is, what is broken, and what ports and T1 switches have carried and dropped
    Status(FabricStatusArgs),
    /// Break something
    #[command(after_help = FABRIC_FAIL_EXAMPLES)]
    Fail(FabricFailArgs),
    /// Mend something, or everything
    Heal(FabricHealArgs),
    /// Run a program on a host; its exit status is passed on
    Exec(FabricExecArgs),
    /// List the fabrics that are up
    List,
    /// Remove a fabric and everything of it
    Down(FabricDownArgs),
    /// Tell what this machine has and lacks
    Check(FabricCheckArgs),
    /// Measure what the delay line of long links carries on this machine
    BenchLine(FabricBenchLineArgs),
    /// Carry the long links of a fabric that is being built; `fabric up` starts it
    #[command(hide = true)]
    CarryLines(FabricName),
}

/// Which fabric.
#[derive(Debug, ClapArgs)]
pub(crate) struct FabricName {
    /// Its name: 1 to 20 letters, digits or underscores
    #[arg(long, value_name = "NAME", default_value = "sw")]
    pub(crate) name: String,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricUpArgs {
    /// Scenario (.toml)
    pub(crate) scenario: PathBuf,
    #[command(flatten)]
    pub(crate) fabric: FabricName,
    /// Rate of every port, such as 500Mbps, instead of the scenario's; queues in BDP follow it
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<String>,
    /// Shape no port: as fast as the machine goes, and queues never fill
    #[arg(long)]
    pub(crate) unshaped: bool,
    /// Deliver a share of a long link's frames late by a time, such as 1%:200us, so that others overtake them
    #[arg(long, value_name = "SHARE:TIME")]
    pub(crate) reorder: Option<String>,
    /// Change a key of the scenario; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print nothing but errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricRunArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) fabric: FabricName,
    /// Rate of every port, such as 500Mbps, if a fabric is built
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<String>,
    /// Shape no port, if a fabric is built
    #[arg(long)]
    pub(crate) unshaped: bool,
    /// Deliver a share of a long link's frames late by a time, such as 1%:200us, so that others overtake them
    #[arg(long, value_name = "SHARE:TIME")]
    pub(crate) reorder: Option<String>,
    /// Simulate the scenario as well, and put both worlds into one table
    #[arg(long)]
    pub(crate) both: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricStatusArgs {
    #[command(flatten)]
    pub(crate) fabric: FabricName,
    /// Send a datagram over every plane and T1, between pairs of hosts, and tell which arrived; 3 as exit status if not all
    #[arg(long)]
    pub(crate) probe: bool,
    /// Write all ports and counters as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricFailArgs {
    /// The target, such as spine1.p0, host0.p1, leaf0.p0-spine1.p0, plane:p1, loss:p0:2% or degrade:p0:25%
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) fabric: FabricName,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricHealArgs {
    /// What is mended, as it was written for `fail`; everything if it is left out
    pub(crate) target: Option<String>,
    #[command(flatten)]
    pub(crate) fabric: FabricName,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricExecArgs {
    /// host0, host1, ... (or h0); or a switch: leaf0.p0, spine0.p0 (or t0-p0-0, t1-p0-0)
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) fabric: FabricName,
    /// The program and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricDownArgs {
    #[command(flatten)]
    pub(crate) fabric: FabricName,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricBenchLineArgs {
    /// How long each row is measured, in seconds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// Latency of the line, one way, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) latency: u64,
    /// Share of frames that the line loses
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub(crate) loss: f64,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricCheckArgs {
    /// Write the findings as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

//! The arguments of `strandway switch`, and those that commands with a switch share.

use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use strandway_proto::units::Span;

pub(in crate::args) const EXAMPLES: &str = "\
Workers send fragments of their gradients. For each place in the buffer, the switch adds the fragments of all workers of a job and
sends the sum to these workers. So each host sends and receives its buffer once. There are few slots for sums. The systems have
different rules for them:
  switchml  each job has slots of its own; half of them are for each of two versions
  atp       the first fragment keeps a slot; fragments without a slot go to the job's parameter server, which this process also runs
  esa       a fragment with a higher priority takes a slot over; the sum of the earlier fragments goes to the parameter server
Workers turn their numbers into 32-bit integers, whose sums are exact. If integers could overflow, a fragment has floats instead.
SwitchML has no floats; its workers can agree on a factor for each half of a fragment (`perf collective --exponents`).

Each job has a key of its own, which its workers know, and a number from 1 to 999. Workers join at the first port plus this number.
Fragments arrive at the first port plus 1,000, and at the ports after it. A job holds at most its share of the slots.

One switch adds up to 32 workers of a job. With two levels there are up to 32 racks of 32 workers: each rack has a switch with
--parent, and their parent has --racks; it may have workers of its own. If any of the switches dies, the workers add by a ring.

Examples, on one host:
  strandway switch                                             ESA on loopback, one job with a public key
  strandway perf collective all-reduce --algorithm in-network --switch ::1 --ranks ranks --rank 0    and the same for the other ranks
The switch on a separate host, with two jobs and 512 slots, at most half of them for each job:
  head -c 32 /dev/urandom > red; head -c 32 /dev/urandom > blue             copy them to the jobs' workers
  strandway switch --listen fd00:1::9 --system atp --slots 512 --share 0.5 --job 1=red --job 2=blue
  strandway perf collective all-reduce --algorithm in-network --switch fd00:1::9 --job 2 --job-key blue ...
Two racks and a switch that adds up their sums, on one host; ranks 0 and 1 use the first rack, 2 and 3 the second one:
  strandway switch --racks --socket top.sock
  strandway switch --listen [::1]:46000 --parent ::1 --socket red.sock
  strandway switch --listen [::1]:44000 --parent ::1 --socket blue.sock
  strandway perf collective all-reduce --algorithm in-network --switch [::1]:46000 --ranks ranks --rank 0
  strandway perf collective all-reduce --algorithm in-network --switch [::1]:44000 --ranks ranks --rank 2
A parameter server in a process of its own, on the same host or on another one; one that is killed may be started again:
  strandway switch --server-apart
  strandway switch server --switch ::1
To see its state:
  strandway switch status
  strandway switch status --json | jq '.jobs[] | {job, slots, merged, evicted}'

Exit status: 0 after --seconds or Ctrl-C, 1 if a socket cannot be opened or fails, 2 bad usage.";

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SwitchArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SwitchCommand>,
    /// Address to listen on, IPv6 or IPv4, with or without a port [default: ::1, or 127.0.0.1 without IPv6]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// A job: its number and the file with its key; may be repeated [default on loopback: job 1, with a public key]
    #[arg(long, value_name = "N=KEYFILE")]
    pub(crate) job: Vec<String>,
    /// The system that the switch runs
    #[arg(long, value_name = "NAME", default_value = "esa")]
    pub(crate) system: SystemName,
    /// Slots for sums, all ports together; SwitchML needs two slots for each sum
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub(crate) slots: u32,
    /// Limit on the numbers in a fragment; a slot has 4 bytes for each
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) lanes: u16,
    /// UDP ports for fragments; each has a thread and an equal part of the slots
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) ports: u16,
    /// ESA and ATP: the share of the slots that a job may hold at the same time [default: 0.75; 1 for a single job]
    #[arg(long, value_name = "SHARE")]
    pub(crate) share: Option<f64>,
    /// ESA: destination of complete sums: direct (to the workers), via-ps (to the parameter server; the slot is kept
    /// until it has answered), or via-ps-free (the slot is free at once)
    #[arg(long, value_name = "PATH", default_value = "direct")]
    pub(crate) results: ResultsName,
    /// Other switches may join as racks (--parent); a session then begins when all workers have joined
    #[arg(long, conflicts_with = "parent")]
    pub(crate) racks: bool,
    /// Add up one rack: the sums of racks go on to the switch at this address, with or without [..]:PORT, which has
    /// --racks and the same --system, --slots, --ports and --job
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) parent: Option<String>,
    /// Parameter servers are processes of their own (`strandway switch server`); a session begins only if its server
    /// has joined
    #[arg(long, conflicts_with = "parent")]
    pub(crate) server_apart: bool,
    /// Round trip between workers and the switch, including the time to wake up; parameter servers handle incomplete
    /// sums after two of them
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = strandway_lab::parse_span)]
    pub(crate) rtt: Span,
    /// Drop this share of the arriving fragments, for experiments
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub(crate) lose: f64,
    /// Socket for `strandway switch status`; several switches on one host need different sockets [default:
    /// strandway-switch.sock in $XDG_RUNTIME_DIR, or in /run]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// End after this many seconds; without it, Ctrl-C ends the switch
    #[arg(long, value_name = "S")]
    pub(crate) seconds: Option<f64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SwitchCommand {
    /// Show the state of a switch on this host: jobs, slots in use, merges, evictions, ports
    Status(SwitchStatusArgs),
    /// Run the parameter server of one job for a switch that was started with --server-apart
    Server(SwitchServerArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SwitchServerArgs {
    /// The switch's address, with or without a port
    #[arg(long, value_name = "ADDRESS", default_value = "::1")]
    pub(crate) switch: String,
    /// The number of the job at the switch
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..1000))]
    pub(crate) job: u16,
    /// The file with the job's key; not needed on loopback
    #[arg(long, value_name = "FILE")]
    pub(crate) job_key: Option<PathBuf>,
    /// Address from which it reaches the switch [default: loopback if the switch is there, otherwise any]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Drop this share of the arriving fragments, for experiments
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub(crate) lose: f64,
    /// End after this many seconds; without it, Ctrl-C ends the server
    #[arg(long, value_name = "S")]
    pub(crate) seconds: Option<f64>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SwitchStatusArgs {
    /// The switch's --socket, if it is not the default
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum SystemName {
    Esa,
    Atp,
    Switchml,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum ResultsName {
    Direct,
    ViaPs,
    ViaPsFree,
}

/// Options of workers that use a switch.
#[derive(Debug, ClapArgs)]
pub(crate) struct UseSwitchArgs {
    /// in-network: the switch's address, with or without [..]:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) switch: Option<String>,
    /// in-network: the number of the job at the switch
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..1000))]
    pub(crate) job: u16,
    /// in-network: the file with the job's key; not needed on loopback
    #[arg(long, value_name = "FILE")]
    pub(crate) job_key: Option<PathBuf>,
    /// in-network: numbers in a fragment, 1 to 2048; more than 256 need an MTU above 1,500 and a switch that allows
    /// them
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=2048))]
    pub(crate) lanes: u16,
    /// in-network: limit on simultaneous fragments; the switch may allow fewer [default: as many as fill 4 ms at the
    /// rate, 32 to 512]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) window: Option<u32>,
    /// in-network: ESA's priority of this job's fragments, 1 to 255; a higher priority may take over slots
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) priority: u8,
    /// in-network, SwitchML: workers agree on factors for the integers of each fragment, so numbers may be of any size
    #[arg(long)]
    pub(crate) exponents: bool,
    /// in-network: drop this share of the arriving fragments, for experiments
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub(crate) lose: f64,
    /// in-network: each rank computes (sleeps) for this time before each run; the figures include it
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = strandway_lab::parse_span)]
    pub(crate) compute: Span,
    /// in-network: a rank computes longer by a random share from 0 to this
    #[arg(long, value_name = "FACTOR", default_value_t = 0.0)]
    pub(crate) straggle: f64,
    /// in-network: time to wait for admission by the switch
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = super::team::patience)]
    pub(crate) join_patience: Duration,
}

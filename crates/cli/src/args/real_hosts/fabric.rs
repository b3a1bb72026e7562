//! The arguments of `strandway fabric`.

use super::export::FabricExportArgs;
use super::wire::Layout;
use crate::args::Common;
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

pub(in crate::args) const FABRIC_EXAMPLES: &str = "\
Hosts and switches become namespaces called NAME-h0, NAME-t0-p0-0 and so on. Switches forward by static SRv6 micro
segments: the destination address of a packet is its path (plane, switches, host). docs/linux-fabric.md lists the addresses
and the differences from the simulator.

Examples, as root:
  strandway fabric check                                     features that this machine has
  strandway fabric up scenarios/wire/two_planes.toml         build it; a fraction of a second
  strandway fabric status --probe                            counters, and a datagram over every path
  strandway fabric exec h0 -- ip -6 route                    run a program on a host
  strandway fabric fail plane:p1                             break a plane, silently
  strandway fabric localise                                  probe every link, and name the broken ones
  strandway fabric heal                                      repair all failures
  strandway fabric group 7 h0,h2,h3                          switches copy multicast for these hosts, too
  strandway fabric down                                      remove it all
  strandway fabric export scenarios/wire/two_planes.toml --to sonic   (not only as root) the same plan for real switches
Node files for programs on the hosts: /run/strandway/NAME/h0.toml and so on.";

const FABRIC_UP_EXAMPLES: &str = "\
At most 64 hosts, 8 planes and 200 namespaces; two tiers (multi-plane or leaf-spine), three (fat-tree), or sites. Every port
is shaped to the scenario's rate, at most 1 Gb/s per port, which is the limit of software. Building the same fabric again does nothing.
After Ctrl-C or an error, nothing remains of an unfinished fabric.

Examples:
  strandway fabric up scenarios/wire/two_planes.toml
  strandway fabric up my.toml --rate 200Mbps --name slow     every port at 200 Mb/s
  strandway fabric up scenarios/wire/long_link.toml          two sites joined by a delay line
  strandway fabric up scenarios/wire/three_tiers.toml        pods and cores: 16 hosts, 36 namespaces
  strandway fabric up scenarios/wire/three_sites.toml        three sites (possible: two to sixteen)
  strandway fabric up my.toml --unshaped --set fabric.hosts=8";

const FABRIC_RUN_EXAMPLES: &str = "\
A thread per host enters its namespace, opens a node with the scenario's profile, and posts its flows. If no fabric with
this name is up, one is built, and removed afterwards. Times are real times: run nothing else on the machine meanwhile.

Examples:
  strandway fabric run scenarios/wire/two_planes.toml             the report of a real run
  strandway fabric run scenarios/wire/two_planes.toml --both      next to the simulated run
  strandway fabric run my.toml --rate 200Mbps --json - | jq .fct_us";

const FABRIC_FAIL_EXAMPLES: &str = "\
Targets:
  link:p0:t0-0:t1-1    a link between two switches, or link:p0:h0:t0-0: silent, both directions
  switch:p0:t1-1       a switch: silent
  plane:p1             all switches of a plane: silent
  port:h0:p1           a host's own port: the host sees that it is down, and sending over that plane fails at once
  loss:p0:2%           random loss of arriving packets at every switch port of a plane; loss:all:1% for all planes
  loss:p0:2%:8         the same in bursts of 8 on average (needs clang)
  degrade:p0:25%       every port of a plane sends at a quarter of its rate, with a quarter of its queue
A loss or a rate may also be for one link (loss:p0:t0-0:t1-1:2%) or one direction of it (degrade:p0:t0-0:to:h0:25%).
A silent failure is as in a real fabric: packets vanish without any report. Failures add up: earlier ones stay, but a
new loss or rate replaces the earlier one of the same place.

Examples:
  strandway fabric fail spine1.p0                   names as in scenarios: a switch,
  strandway fabric fail host0.p1                    a host's own port,
  strandway fabric fail leaf0.p0-spine1.p0          or a link
  strandway fabric fail link:p0:t0-0:t1-1           the same link by the names of namespaces
  strandway fabric fail loss:p0:2% --name slow
  strandway fabric fail degrade:p0:t0-0:t1-1:10%
  strandway fabric heal loss:p0";

const FABRIC_DENY_EXAMPLES: &str = "\
The fabric does not change. The denied parts are written to /run/strandway/NAME/denied, which node files name: nodes that run
read it within a fraction of a second, and nodes that start read it first. Every connection of profile `mrc` denies its entropy
values whose path crosses one of the parts; pings, hellos and acknowledgements take other paths, too. Where no other path is
left (a whole plane, a host's port), pings remain. A program without a node file calls `Node::order`.

Targets are those of `strandway fabric fail`, without losses and rates: link:p0:t0-0:t1-1, switch:p0:t1-1, plane:p1,
port:h0:p1, spine1.p0, leaf0.p0-spine1.p0.

Examples:
  strandway fabric deny spine1.p0                   no connection sends over it
  strandway fabric status                           lists denied parts
  strandway fabric allow spine1.p0
  strandway fabric allow                            everything";

const FABRIC_LOCALISE_EXAMPLES: &str = "\
Every host sends small datagrams to itself: to its T0 and back, to every T1 above and back, and to every T2 above these. The
address of a datagram is its path, so the lost ones show which links are broken. A link is named if all probes over it were
lost and no other link explains that. Links that the probes cannot tell apart are listed together. Links that only broken
links lead to are listed as untested. Exit status: 0 if nothing is broken, 3 otherwise.

Examples:
  strandway fabric fail link:p0:t0-0:t1-1           silent: nothing reports it
  strandway fabric localise                         prints p0:t0-0:t1-1, 100 % lost
  strandway fabric localise --rounds 300            finds losses of one percent, too
  strandway fabric localise --json - | jq .suspicions";

const FABRIC_LOCALISE_NODES: &str = "\
With --nodes nothing is probed: the packets of running nodes are the evidence. Nodes that serve their figures (STRANDWAY_METRICS)
count packets sent and lost, and round trips, path by path. The command reads these counts ten times a second and names the
link, and its direction, on which paths suffer more often than the paths beside them: between the same two hosts, in the same
plane, in the same tenth of a second. So losses of a busy host, which take bursts of any path, name no link.

Examples:
  STRANDWAY_METRICS=/run/strandway/sw/metrics/ strandway fabric run my.toml &
  strandway fabric localise --nodes                 10 s of the nodes that serve in /run/strandway/sw/metrics/
  strandway fabric localise --nodes --watch         a line per change, until Ctrl-C
  strandway fabric localise --nodes 127.0.0.1:9464 --seconds 30 --json findings.json

Exit status: 0 if no link is named, 1 if no node answers, 3 if one is named.";

const FABRIC_GROUP_EXAMPLES: &str = "\
Each switch copies a member's packet to every port that leads to another member. A team has an address per plane and tree. A tree is a
spine; between sites it is one of the parallel long links:

  ff1e::8000:0 + plane * 400:0 + tree * 1:0 + team           all numbers in hex; ff1e::8401:7 means plane 1, tree 1, team 7

`fabric up` makes team 0 of all hosts, and teams from 1 on for the scenario's multicasts. A member joins a group at the port of
its plane (IPV6_JOIN_GROUP on p0, p1, ...), binds its own address to send, and picks the port (IPV6_MULTICAST_IF).
Switches drop packets to the group from hosts that are not members, and packets with a wrong source address.

Examples:
  strandway fabric group                         the teams, and their addresses
  strandway fabric group 7 h0,h2,h3              these hosts are team 7
  strandway fabric group 7 h0,h1                 now only these
  strandway fabric group 7 --remove
  strandway fabric status --probe                tests every tree of every team, too";

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
    /// Run a scenario's flows and faults between real nodes, and print a report like that of `strandway run`
    #[command(after_help = FABRIC_RUN_EXAMPLES)]
    Run(FabricRunArgs),
    /// Write the configurations of real switches and hosts: SONiC, FRR, EOS, containerlab
    #[command(after_help = super::export::EXAMPLES)]
    Export(FabricExportArgs),
    /// Print the hosts, switches and failures of a fabric, and the counters of ports and T1 switches
    Status(FabricStatusArgs),
    /// Break a link, switch, plane or port, or make it slow or lossy
    #[command(after_help = FABRIC_FAIL_EXAMPLES)]
    Fail(FabricFailArgs),
    /// Repair one failure, or all of them
    Heal(FabricHealArgs),
    /// Deny a switch, link, plane or port to nodes, also to those that run (MRC's DENIED)
    #[command(after_help = FABRIC_DENY_EXAMPLES)]
    Deny(FabricFailArgs),
    /// Allow one denied part again, or all of them
    Allow(FabricHealArgs),
    /// Probe every link and name the broken ones
    #[command(after_help = format!("{FABRIC_LOCALISE_EXAMPLES}\n\n{FABRIC_LOCALISE_NODES}"))]
    Localise(FabricLocaliseArgs),
    /// Make switches copy multicast for a team of hosts, or list the teams
    #[command(after_help = FABRIC_GROUP_EXAMPLES)]
    Group(FabricGroupArgs),
    /// Run a program on a host; its exit status becomes the command's
    Exec(FabricExecArgs),
    /// List the fabrics that are up
    List,
    /// Remove a fabric and everything that belongs to it
    Down(FabricDownArgs),
    /// Check which of the needed features this machine has
    Check(FabricCheckArgs),
    /// Measure the rate that the delay line of long links reaches on this machine
    BenchLine(FabricBenchLineArgs),
    /// Carry the long links of a fabric; started by `fabric up`
    #[command(hide = true)]
    CarryLines(FabricName),
}

/// The name of a fabric.
#[derive(Debug, ClapArgs)]
pub(crate) struct FabricName {
    /// Its name: 1 to 20 letters, digits or underscores
    #[arg(long, value_name = "NAME", default_value = "sw")]
    pub(crate) name: String,
}

/// Options for building a fabric.
#[derive(Debug, ClapArgs)]
pub(crate) struct FabricBuildArgs {
    /// Rate of every port, such as 500Mbps; replaces the scenario's rate, and queues in BDP change with it
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<String>,
    /// Do not shape ports: they are as fast as the machine, and queues never fill
    #[arg(long)]
    pub(crate) unshaped: bool,
    /// Deliver this share of a long link's frames late by this time, such as 1%:200us, so that other frames overtake
    /// them
    #[arg(long, value_name = "SHARE:TIME")]
    pub(crate) reorder: Option<String>,
    /// Let routers copy multicast, as in other networks (the kernel's router, with a static `smcrouted` per switch); by
    /// default, filters at ports copy
    #[arg(long)]
    pub(crate) routers: bool,
    /// Bytes of datagrams that move data between hosts: frame (ours), or mrc (as publicly laid out, for profile mrc)
    #[arg(long, value_name = "WHICH", default_value = "frame")]
    pub(crate) layout: Layout,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricUpArgs {
    /// Scenario (.toml)
    pub(crate) scenario: PathBuf,
    #[command(flatten)]
    pub(crate) fabric: FabricName,
    #[command(flatten)]
    pub(crate) build: FabricBuildArgs,
    /// Change a key of the scenario; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print only errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricRunArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) fabric: FabricName,
    #[command(flatten)]
    pub(crate) build: FabricBuildArgs,
    /// Also simulate the scenario, and print both results in one table
    #[arg(long)]
    pub(crate) both: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricLocaliseArgs {
    #[command(flatten)]
    pub(crate) fabric: FabricName,
    /// Datagrams over each path
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rounds: u32,
    /// Send no probes; name links by the packets of running nodes, which serve at these places: Unix sockets, folders of
    /// them, loopback ports [default: /run/strandway/NAME/metrics/]
    #[arg(long, value_name = "PLACE", num_args = 0.., conflicts_with = "rounds")]
    pub(crate) nodes: Option<Vec<String>>,
    /// With --nodes: how long to look, in seconds, 1 to 86,400
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400), requires = "nodes")]
    pub(crate) seconds: u64,
    /// With --nodes: look until Ctrl-C, and print what changes
    #[arg(long, requires = "nodes", conflicts_with_all = ["seconds", "json"])]
    pub(crate) watch: bool,
    /// Write the findings as JSON; - for standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricStatusArgs {
    #[command(flatten)]
    pub(crate) fabric: FabricName,
    /// Send a datagram over every plane and T1 between pairs of hosts, and along every multicast tree, and print which
    /// of them arrived; the exit status is 3 if one did not
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
    /// The failure to repair, written as for `fail`; without it, all failures
    pub(crate) target: Option<String>,
    #[command(flatten)]
    pub(crate) fabric: FabricName,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricGroupArgs {
    /// The number of the team; without it, the command lists all teams
    pub(crate) team: Option<u16>,
    /// The members, two or more, such as h0,h2,h3; they replace the previous members
    #[arg(value_name = "HOST,HOST,...", requires = "team")]
    pub(crate) hosts: Option<String>,
    /// Stop copying for this team
    #[arg(long, requires = "team", conflicts_with = "hosts")]
    pub(crate) remove: bool,
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
    /// Also remove namespaces with such names that no fabric here has made
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricBenchLineArgs {
    /// Seconds of measurement for each row
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// One-way latency of the line in milliseconds
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

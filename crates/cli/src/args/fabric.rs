//! What `strandway fabric` is asked with.

use super::Common;
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

pub(super) const FABRIC_EXAMPLES: &str = "\
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
  strandway fabric group 7 h0,h2,h3                          switches copy multicast for these hosts, too
  strandway fabric down                                      remove it all
Node files for programs on the hosts: /run/strandway/NAME/h0.toml and so on.";

const FABRIC_UP_EXAMPLES: &str = "\
At most 64 hosts, 8 planes and 200 namespaces; two tiers (multi-plane or leaf-spine), or sites. Every port is shaped to the
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

const FABRIC_GROUP_EXAMPLES: &str = "\
Each switch copies a member's packet to every port that leads to another member. A team has an address per plane and tree. A tree is a
spine; between sites it is one of the parallel long links:

  ff1e::8000:0 + plane * 400:0 + tree * 1:0 + team           all numbers in hex; ff1e::8401:7 is plane 1, tree 1, team 7

`fabric up` makes team 0 of all hosts, and teams from 1 on for the scenario's multicasts. A member joins a group at the port of
its plane (IPV6_JOIN_GROUP on p0, p1, ...), binds its own address to send, and picks the port (IPV6_MULTICAST_IF).
Switches drop packets to the group from hosts that are no members, and packets with another host's source address.

Examples:
  strandway fabric group                         the teams, and their addresses
  strandway fabric group 7 h0,h2,h3              these hosts are team 7
  strandway fabric group 7 h0,h1                 these instead
  strandway fabric group 7 --remove
  strandway fabric status --probe                a datagram along every tree of every team, among others";

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
    /// Make switches copy multicast for a team of hosts, or list the teams
    #[command(after_help = FABRIC_GROUP_EXAMPLES)]
    Group(FabricGroupArgs),
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

/// How a fabric is built, beyond its scenario.
#[derive(Debug, ClapArgs)]
pub(crate) struct FabricBuildArgs {
    /// Rate of every port, such as 500Mbps, instead of the scenario's; queues in BDP follow it
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<String>,
    /// Shape no port: as fast as the machine goes, and queues never fill
    #[arg(long)]
    pub(crate) unshaped: bool,
    /// Deliver a share of a long link's frames late by a time, such as 1%:200us, so that others overtake them
    #[arg(long, value_name = "SHARE:TIME")]
    pub(crate) reorder: Option<String>,
    /// Let routers copy multicast (the kernel's, with a static `smcrouted` per switch), as other networks do; by default filters at ports copy
    #[arg(long)]
    pub(crate) routers: bool,
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
    #[command(flatten)]
    pub(crate) build: FabricBuildArgs,
    /// Simulate the scenario as well, and put both worlds into one table
    #[arg(long)]
    pub(crate) both: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricStatusArgs {
    #[command(flatten)]
    pub(crate) fabric: FabricName,
    /// Send a datagram over every plane and T1, between pairs of hosts, and along every multicast tree, and tell which arrived; 3
    /// as exit status if not all
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
pub(crate) struct FabricGroupArgs {
    /// The number of the team; without it, teams are listed
    pub(crate) team: Option<u16>,
    /// Its members, two or more, such as h0,h2,h3; they replace those that it had
    #[arg(value_name = "HOST,HOST,...", requires = "team")]
    pub(crate) hosts: Option<String>,
    /// Copy for this team no more
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

//! The arguments of `strandway fabric export`.

use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;

pub(in crate::args) const EXAMPLES: &str = "\
The plan from which `fabric up` builds namespaces becomes one configuration per switch, and a netplan file and a node file
per host: addresses, uSID locators, static routes, MTU, ECN, PFC, buffers and trimming, as far as the system has words
for them. A report lists what it cannot express, and what the files say instead. The same plan gives the same bytes.

  sonic          SWITCH/config_db.json: tables of CONFIG_DB, as SONiC's YANG models have them
  frr            SWITCH/frr.conf (static-sids, FRR 10.3 or later) and SWITCH/links.ip, for `ip -6 -batch` before FRR
  eos            SWITCH.cfg: Arista EOS 4.34.2F or later
  containerlab   NAME.clab.yml: switches that run FRR, and hosts
  infragraph     NAME.yaml: a document of InfraGraph 3.x, of any fabric; no configuration, and no files for hosts
  every other    HOST/netplan.yaml and HOST/node.toml

Sizes of a switch's tables are checked if they are known: a file of TOML, or a flag per key.
  ports, sids (own segments), routes (static IPv6), buffer (bytes), mtu (bytes)

Examples:
  strandway fabric export scenarios/wire/two_planes.toml --to sonic              what would be written, and the report
  strandway fabric export scenarios/wire/two_planes.toml --to sonic --out sonic
  strandway fabric export my.toml --to frr --out frr && git diff frr              a change of the plan, as a difference
  strandway fabric export my.toml --to eos --limits th5.toml --limit routes=4096";

/// A system whose configuration can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SystemChoice {
    Sonic,
    Frr,
    Eos,
    Containerlab,
    Infragraph,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FabricExportArgs {
    /// Scenario (.toml)
    pub(crate) scenario: PathBuf,
    /// The system of the switches
    #[arg(long, value_name = "SYSTEM")]
    pub(crate) to: SystemChoice,
    /// Folder for the files; without it, nothing is written. Files of an earlier export there are replaced or removed
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Sizes of a switch's tables (.toml): ports, sids, routes, buffer, mtu
    #[arg(long, value_name = "FILE")]
    pub(crate) limits: Option<PathBuf>,
    /// One size of a switch's tables; may be repeated
    #[arg(long, value_name = "KEY=NUMBER")]
    pub(crate) limit: Vec<String>,
    /// Name of the fabric in the files: 1 to 20 letters, digits or underscores
    #[arg(long, value_name = "NAME", default_value = "sw")]
    pub(crate) name: String,
    /// Change a key of the scenario; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Write the report as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
}

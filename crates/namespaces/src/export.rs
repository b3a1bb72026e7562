//! Configurations for other systems, from the description from which namespaces are built: one for each switch, and
//! one network file for each host.
//!
//! [`export`] makes all files as text, and never writes any. The same description gives the same bytes, so a change of
//! the plan is a readable difference of files. A part of the plan that a system cannot express is a [`Gap`].

mod containerlab;
mod eos;
mod frr;
mod host;
mod limits;
mod sonic;
mod switch;

pub use limits::{Limits, Need};

use crate::{LinuxFabric, Node};
use serde::Serialize;
use std::collections::BTreeMap;
use strandway_fabric::plan::{PfcSettings, SharedSettings};
use strandway_fabric::usid::Clos;
use switch::SwitchPlan;

/// A system whose configuration can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// SONiC: `config_db.json` for each switch.
    Sonic,
    /// FRR on Linux: `frr.conf` for each switch, and the lines for `ip` that FRR has no words for.
    Frr,
    /// Arista EOS: the text of a start-up configuration for each switch.
    Eos,
    /// A containerlab topology whose switches run FRR.
    Containerlab,
}

impl System {
    /// Every system with its name on the command line.
    pub const ALL: [(&'static str, System); 4] =
        [("sonic", System::Sonic), ("frr", System::Frr), ("eos", System::Eos), ("containerlab", System::Containerlab)];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, system)| *system == self).map_or("", |(name, _)| name)
    }

    /// Can its switches consume two words at once, which checksum-neutral addresses need? Kernels can
    /// (`nflen 32`). SONiC and EOS remove exactly the bits by which a locator is found.
    pub fn is_neutral(self) -> bool {
        matches!(self, System::Frr | System::Containerlab)
    }
}

/// Settings of switch ports that namespaces do not have, but switches do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Buffers {
    /// Two strict priorities: control before data.
    pub priority: bool,
    /// Bytes of the queue for control packets.
    pub control_queue: u64,
    /// Pauses of the data class; `None`: packets are dropped or trimmed instead.
    pub pfc: Option<PfcSettings>,
    /// A buffer that all ports of a switch share; `None`: every port has its own.
    pub shared: Option<SharedSettings>,
}

/// Part of the plan that a system cannot express.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Gap {
    /// The part of the plan.
    pub what: String,
    /// Why the system cannot express it.
    pub why: String,
    /// The text of the files in its place, or the work that is left.
    pub instead: String,
}

/// All files of an export, by path, and what they do not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The text of each file, by its path below the folder of the export.
    pub files: BTreeMap<String, String>,
    /// The parts of the plan that the system cannot express, in order.
    pub gaps: Vec<Gap>,
    /// The largest needs of any switch, by key of [`Limits`], beside the limits.
    pub needs: Vec<Need>,
}

/// The files of a fabric for a system. `node_file` makes the text of a host's node file from an address plan.
///
/// # Errors
/// All needs above the limits, each with the switch that has it.
pub fn export(
    fabric: &LinuxFabric,
    buffers: &Buffers,
    system: System,
    limits: &Limits,
    node_file: &dyn Fn(u16, Clos) -> String,
) -> Result<Export, Vec<Need>> {
    let switches: Vec<SwitchPlan> = fabric
        .nodes()
        .into_iter()
        .filter(|node| !matches!(node, Node::Host(_)))
        .map(|node| SwitchPlan::of(fabric, node, system.is_neutral()))
        .collect();
    let needs = limits::check(&switches, fabric, buffers, limits)?;
    let clos = Clos { neutral: system.is_neutral(), ..fabric.clos() };
    let (mut files, mut gaps) = (BTreeMap::new(), host::gaps(system));
    for switch in &switches {
        match system {
            System::Sonic => {
                let text = sonic::config(fabric, buffers, switch, &mut gaps);
                files.insert(format!("{}/config_db.json", switch.name), text);
            }
            System::Eos => {
                let text = eos::config(fabric, buffers, switch, &mut gaps);
                files.insert(format!("{}.cfg", switch.name), text);
            }
            System::Frr | System::Containerlab => {
                files.insert(format!("{}/frr.conf", switch.name), frr::config(switch));
                files.insert(format!("{}/links.ip", switch.name), frr::links(fabric, switch));
                frr::gaps(fabric, buffers, &mut gaps);
            }
        }
    }
    for host in 0..fabric.hosts {
        let name = Node::Host(host).to_string();
        files.insert(format!("{name}/netplan.yaml"), host::netplan(fabric, host, system.is_neutral()));
        files.insert(format!("{name}/node.toml"), node_file(host, clos));
        if system == System::Containerlab {
            files.insert(format!("{name}/links.ip"), host::links(fabric, host));
        }
    }
    if system == System::Containerlab {
        files.insert(format!("{}.clab.yml", fabric.name), containerlab::topology(fabric));
    }
    gaps.sort();
    gaps.dedup();
    Ok(Export { files, gaps, needs })
}

/// A gap from three sentences.
fn gap(what: impl Into<String>, why: impl Into<String>, instead: impl Into<String>) -> Gap {
    Gap { what: what.into(), why: why.into(), instead: instead.into() }
}

#[cfg(test)]
mod tests;

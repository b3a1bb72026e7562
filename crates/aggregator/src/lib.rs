//! A switch that adds gradients, as a process.
#![doc = include_str!("../README.md")]

mod admission;
mod config;
#[cfg(test)]
mod hostile;
#[cfg(test)]
#[path = "../../udp/tests/support/leaver.rs"]
mod leaver;
#[cfg(test)]
mod leavers;
mod permissions;
mod port;
mod registers;
mod server;
mod server_shard;
mod status;
mod switch;
mod watching;

pub use config::{JobConfig, SwitchConfig};
pub use port::PortStatus;
pub use server::{ParameterServer, ServerConfig, ServerEvent};
pub use status::{JobStatus, SwitchEvent, SwitchStatus};
pub use strandway_group::aggregation::message::{PORTS_MAX, Refusal};
pub use strandway_switch::{Aging, Esa, ResultPath, System};
pub use switch::Switch;

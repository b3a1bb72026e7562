//! Gradients added by a switch on the wire: the programs of `strandway-switch` in a process with real bytes, and
//! workers that use it.
//!
//! [`Switch`] is the process. [`Team::join_switch`](crate::Team::join_switch) makes a team its workers, and
//! [`Team::all_reduce`](crate::Team::all_reduce) adds up buffers, by the switch or, if the switch is gone, by a ring of
//! messages.

mod admission;
mod elements;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod leavers;
mod message;
mod permissions;
mod port;
mod reduce;
mod server;
mod server_shard;
mod switch;
mod switch_connection;
mod terms;
mod worker;

pub use elements::Scale;
pub use message::{PORTS_MAX, Refusal};
pub use port::PortStatus;
pub use reduce::{By, InNetwork, NetworkOptions, Reduced, Why};
pub use server::{ParameterServer, ServerConfig, ServerEvent};
pub use strandway_switch::{Aging, Esa, ResultPath, System};
pub use switch::{JobConfig, JobStatus, Switch, SwitchConfig, SwitchEvent, SwitchStatus};

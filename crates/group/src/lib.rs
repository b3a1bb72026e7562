//! Ranks over Strandway nodes.
#![doc = include_str!("../README.md")]

pub mod aggregation;
mod agree;
mod ballot;
mod barrier;
pub mod bench;
pub mod driver;
mod error;
mod messages;
mod multicast;
mod node_role;
pub mod process;
mod space;
mod team;
mod trial;

pub use error::GroupError;
pub use messages::Prepared;
pub use multicast::{Done, What};
pub use node_role::NodeRole;
pub use space::RankSpace;
pub use team::{Options, Team};
pub use trial::Trial;

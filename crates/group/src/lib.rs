//! Ranks over Strandway nodes.
#![doc = include_str!("../README.md")]

mod agree;
mod error;
mod multicast;
mod space;
mod team;

pub use error::GroupError;
pub use multicast::{Done, What};
pub use space::RankSpace;
pub use team::{Options, Team};

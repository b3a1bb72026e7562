//! Files over Strandway nodes.
#![doc = include_str!("../README.md")]

pub mod cast;
pub mod copy;
#[cfg(test)]
#[path = "../../udp/tests/support/leaver.rs"]
mod leaver;
mod watching;

#![doc = include_str!("../README.md")]

#[cfg(unix)]
pub mod linux;
pub mod node_file;
pub mod wire;

pub use node_file::NodeFile;

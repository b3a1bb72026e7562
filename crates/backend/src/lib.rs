#![doc = include_str!("../README.md")]

mod calls;
mod raw;
mod registry;
mod structs;

pub use calls::*;
pub use structs::*;

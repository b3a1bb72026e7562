//! The C interface of Strandway's wire. `include/strandway.h` describes each call.
//!
//! Handles are numbers that are never used twice, so a call with a dead one returns a code. Each call catches panics.
//! Pointers are read and written in `raw.rs` alone; the callers' side of the contract is in the header.

mod calls;
mod named;
mod raw;
mod registry;
mod structs;

pub use calls::*;
pub use structs::*;

//! A network plug-in for NCCL: `ncclNet`, versions 8 to 12, over Strandway's wire.
//!
//! NCCL loads the library and finds a table of functions for each version. All tables lead to one module, `plugin`, which is
//! safe code: requests, connections and memory are numbers, which NCCL keeps as pointers. `calls.rs` has the functions
//! with C's types, `abi.rs` the structures.

mod abi;
mod calls;
mod devices;
mod handle;
mod plugin;

pub use abi::*;
pub use calls::*;

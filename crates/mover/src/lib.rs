//! A node for programs in other languages.
//!
//! A [`Mover`] wraps a [`strandway_udp::Node`]. Connections and memory are numbers that are never used twice, calls
//! come from any thread, and every operation ends with one [`Event`], also if its connection ends. Bytes travel in three
//! ways:
//!
//! - **Writes** go into memory that the peer has exposed, at a place that the writer names.
//! - **Messages** have a tag. A receive tells the peer where its memory is, and the send with the same tag writes into
//!   it. Sends and receives of one tag meet in the order of posting. A send waits for its receive; no byte is copied
//!   or buffered in between, so a peer cannot fill this host's memory.
//!
//! - **Reads** come from memory that the peer has exposed for reading. Atomic operations change 64 bits of it.
//!
//! On the wire all are operations of nodes: a receive is announced by a small message, and its payload is a write with
//! an immediate.

mod channel;
mod code;
pub mod environment;
mod event;
mod interests;
mod memory;
mod mover;
mod options;
mod reads;
mod record;
mod state;

pub use code::{Code, MoverError};
pub use event::{Event, EventKind};
pub use mover::Mover;
pub use options::{Level, LogSink, Options, Progress};
pub use reads::Step;

/// The most unfinished sends and writes of one connection, and the most receives, unless [`Options`] has another limit.
pub const OPERATIONS_MAX: u32 = 1_024;

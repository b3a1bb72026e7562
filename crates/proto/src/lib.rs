//! Transport engines and packets of Strandway.
//!
//! An engine is a state machine with inputs (`handle_*`) and outputs (`poll_*`). It owns no socket, clock, thread, file
//! or payload byte; the simulator and the UDP node are two small loops around the same [`Endpoint`].
#![doc = include_str!("../README.md")]

pub mod account;
pub mod aggregate;
pub mod application;
pub mod bitmap;
pub mod cast;
pub mod congestion;
mod connection;
pub mod control_message;
mod counters;
mod credit;
mod endpoint;
pub mod environment;
mod host;
pub mod message;
pub mod packet;
pub mod parameter;
pub mod partial;
pub mod path;
mod policy;
pub mod profile;
pub mod program;
pub mod queue;
pub mod rank_times;
pub mod read;
pub mod reliability;
pub mod repair;
pub mod rng;
pub mod stats;
pub mod telemetry;
pub mod units;

pub use aggregate::Fragment;
pub use application::Application;
pub use cast::Cast;
pub use control_message::ControlMessage;
pub use endpoint::{Blocked, Census, Endpoint, Event, Handled, Observer, OpenConnection, PrefetchStep, SharedWindow};
pub use environment::Environment;
pub use host::HostTraits;
pub use message::Message;
pub use packet::{ConnectionId, HostId, MessageId, Packet, PathId, Ports};
pub use profile::Profile;
pub use program::Program;
pub use rank_times::RankTimes;
pub use stats::ConnectionStats;
pub use units::{Bytes, Rate, Span, Time};

//! The engines of [`strandway_proto`] over UDP sockets, IPv6 or IPv4.
#![doc = include_str!("../README.md")]

pub mod address;
pub mod asynchronous;
mod cipher;
mod clock;
mod config;
mod deadlines;
mod distance;
pub mod doctor;
mod error;
pub mod fragments;
pub mod frame;
mod group;
mod handshake;
pub mod impair;
mod interfaces;
mod links;
mod memory;
mod node;
mod peer_monitor;
pub mod perf;
mod plane;
mod routes;
mod secure;
mod session;
mod shards;
mod socket;
mod windows;

pub use config::{Config, Layout, Protection, Waiting};
pub use distance::Distance;
pub use error::{Error, Reason};
pub use group::{Group, GroupCounters, Incoming, Membership, parity_chunks};
pub use handshake::Secret;
pub use interfaces::{Interface, interfaces};
pub use memory::{KEYS_MAX, Region, RemoteRegion};
pub use node::{Completion, Connection, Node, NodeCounters, Operation, Waker};
pub use plane::PlaneCounters;
pub use routes::{Routes, SOURCE_PORTS_MAX};
pub use secure::random_secret;
pub use session::SessionCounters;
pub use shards::{AcceptingAny, Shards};
pub use strandway_fabric::datagram::{CONTROL_DSCP, PLANES_MAX};
pub use strandway_fabric::kernel::{Feature, Without};

#![doc = include_str!("../README.md")]

pub mod datagram;
pub mod fault;
pub mod frames;
pub mod gray;
pub mod judgement;
pub mod kernel;
pub mod localise;
pub mod loss;
pub mod mapper;
pub mod measure;
pub mod multicast;
pub mod plan;
pub mod quantity;
pub mod requests;
pub mod tally;
pub mod topology;
pub mod usid;

pub use measure::Measurements;
pub use multicast::Members;
pub use plan::Plan;
pub use topology::{LinkId, NodeId, Topology};

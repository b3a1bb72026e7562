#![doc = include_str!("../README.md")]

mod calendar;
mod control;
mod event;
pub mod fault;
pub mod measure;
mod meeting;
pub mod plan;
mod pool;
mod port;
mod queue;
mod road;
mod route;
mod simulation;
mod slice;
pub mod topology;

pub use control::Control;
pub use measure::Measurements;
pub use plan::Plan;
pub use simulation::simulate;
pub use topology::{LinkId, NodeId, Topology};

#![doc = include_str!("../README.md")]

pub mod batch;
pub mod blocks;
mod core;
pub mod formula;
mod front;
pub mod host;
mod lanes;
mod leader;
pub mod model;
pub mod plan;
pub mod requests;
pub mod router;
mod shared;
mod stage;
pub mod timing;

pub use batch::{Batcher, Limits, Role};
pub use host::{ServiceHost, ServiceRun};
pub use model::Model;
pub use plan::{Replica, Service};
pub use requests::{Arrivals, Request};

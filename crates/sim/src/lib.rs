#![doc = include_str!("../README.md")]

mod calendar;
mod control;
mod event;
mod fingerprint;
mod meeting;
mod pool;
mod port;
mod queue;
mod records;
mod road;
mod route;
mod simulation;
mod slice;

pub use control::Control;
pub use simulation::{simulate, simulate_programs};

#![doc = include_str!("../README.md")]

mod backlog;
mod barrier;
mod calendar;
mod control;
mod detour;
mod fingerprint;
mod port;
mod prefetch;
mod queue;
mod records;
mod road;
mod route;
mod simulation;
mod slice;
mod telemetry;

pub use control::Control;
pub use simulation::{simulate, simulate_programs};

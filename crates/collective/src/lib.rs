#![doc = include_str!("../README.md")]

pub mod bandwidth;
mod bound;
pub mod member;
pub mod placement;
pub mod schedule;

pub use bandwidth::{Bandwidth, bandwidth};
pub use member::Member;
pub use placement::{Placement, PlacementError};
pub use schedule::{Algorithm, Collective, Rank, Receive, Schedule, ScheduleError, Send};

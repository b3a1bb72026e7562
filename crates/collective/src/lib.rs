#![doc = include_str!("../README.md")]

pub mod bandwidth;
mod bound;
pub mod flows;
pub mod member;
pub mod placement;
pub mod programs;
pub mod schedule;

pub use bandwidth::{Bandwidth, bandwidth};
pub use flows::{FlowTable, Flows};
pub use member::Member;
pub use placement::{Placement, PlacementError};
pub use programs::{AnyApplication, Programs};
pub use schedule::{Algorithm, Collective, Rank, Receive, Schedule, ScheduleError, Send};

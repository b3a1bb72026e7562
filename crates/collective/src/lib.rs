#![doc = include_str!("../README.md")]

pub mod actor;
pub mod bandwidth;
mod bound;
pub mod broadcast_tree;
pub mod buffer;
pub mod flows;
mod frontier;
pub mod group;
pub mod listed;
pub mod member;
pub mod multicast;
pub mod participant;
pub mod placement;
pub mod programs;
pub mod recipe;
pub mod schedule;
pub mod script;
pub mod server;
pub mod transfer;

pub use actor::{Actor, OperationMaker, Operations};
pub use bandwidth::{Bandwidth, bandwidth};
pub use broadcast_tree::BroadcastTree;
pub use flows::{FlowTable, Flows};
pub use group::Group;
pub use listed::{Follower, Listed};
pub use member::Member;
pub use multicast::{Caster, Multicast};
pub use participant::Participant;
pub use placement::{Placement, PlacementError};
pub use programs::{AnyApplication, Programs};
pub use recipe::{Recipe, RecipeBuilder, RecipeError};
pub use schedule::{Algorithm, Collective, Rank, Receive, Schedule, ScheduleError, Send};
pub use script::{Between, Operation, Script, ScriptedJob, Step, Work};
pub use server::{Inside, Local, Rail, Team};
pub use transfer::{Pipe, Transfer};

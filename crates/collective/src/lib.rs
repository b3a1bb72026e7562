#![doc = include_str!("../README.md")]

pub mod bandwidth;
mod bound;
pub mod broadcast_tree;
pub mod buffer;
pub mod collective_rank;
pub mod flows;
mod frontier;
pub mod group;
mod lists;
pub mod multicast;
pub mod placement;
pub mod plan;
pub mod programs;
pub mod recipe;
pub mod schedule;
pub mod script;
pub mod server;
pub mod training_rank;
pub mod transfer;

pub use bandwidth::{Bandwidth, bandwidth};
pub use broadcast_tree::BroadcastTree;
pub use collective_rank::CollectiveRank;
pub use flows::{FlowTable, Flows};
pub use group::Group;
pub use lists::Lists;
pub use multicast::{Multicast, MulticastRank};
pub use placement::{Placement, PlacementError};
pub use plan::{Executor, PlannedMessage, Plans};
pub use programs::{AnyApplication, Programs};
pub use recipe::{Recipe, RecipeBuilder, RecipeError, RecipeFault};
pub use schedule::{Algorithm, Collective, Rank, Receive, Schedule, ScheduleError, Send};
pub use script::{Operation, Script, ScriptedJob, Step, Work};
pub use server::{IntraServer, Local, Team};
pub use training_rank::{OperationMaker, Operations, TrainingRank};
pub use transfer::{Pipe, Transfer};

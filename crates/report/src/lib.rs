#![doc = include_str!("../README.md")]

mod aggregation;
pub mod answers;
pub mod approximate;
pub mod calibrated;
mod choice;
mod cost;
pub mod csv;
pub mod drain;
mod evs;
mod fault_cost;
mod flows;
pub mod gray;
mod grid;
pub mod html;
mod job;
pub mod lines;
mod links;
mod long_links;
mod map;
pub mod markdown;
pub mod numbers;
pub mod parts;
mod report;
pub mod reproduction;
pub mod rows;
pub mod search_result;
mod series;
mod service;
pub mod spread;
pub mod text;
mod values;
mod why;

pub use aggregation::{AggregationFacts, OccupancyFacts, SwitchFacts};
pub use approximate::{ApproximateFacts, ApproximateFigure};
pub use choice::{ChoiceFacts, ChoiceOption, PlanFacts};
pub use cost::{CostFacts, TableFacts};
pub use evs::{EvEventFacts, EvFacts};
pub use flows::{ClassFacts, CodedPackets, CollectiveFacts, FlowFacts, Goodput, Packets, SlowFlow, Spread};
pub use job::{ExposedFacts, JobFacts, OperationFacts, TimelineFacts};
pub use lines::{Failed, Rows};
pub use links::{GroupFacts, LinkFacts, PathFacts};
pub use long_links::LongLinkFacts;
pub use map::{MapFacts, MapGroup};
pub use parts::{LaneFacts, PartFacts};
pub use report::{
    CurveFacts, Expectation, FabricFacts, FaultCost, FaultFacts, HeadFacts, LoadFacts, NAMESPACES, Origin,
    ParameterFacts, Report, RunFacts, SIMULATED, TimeFacts, to_json,
};
pub use rows::Row;
pub use series::{GroupSeriesFacts, PathSeriesFacts, SeriesFacts, WatchedFacts};
pub use service::{FormulaFacts, MessageFacts, ReplicaFacts, RequestRow, ServiceFacts, ServicePart, SloFacts};
pub use why::{Cause, WhyFacts};

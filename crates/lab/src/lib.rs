#![doc = include_str!("../README.md")]

mod approximate;
mod calibrate;
mod check;
mod estimate;
mod fabric_values;
pub mod facts;
mod gray;
pub mod live;
pub mod output;
pub mod pcap;
pub mod results;
mod run;
pub mod search;
mod sweep;
pub mod trace;
mod what_if;

pub use approximate::Approximation;
pub use calibrate::{CalibrateQuestion, Constant, calibrate};
pub use check::check;
pub use estimate::{Estimate, ThreadModel};
pub use fabric_values::fabric_values;
pub use gray::gray_study;
pub use live::Lab;
pub use results::{Kept, Results, Shard};
pub use run::{Outcome, run, run_all, run_each, simulate};
pub use strandway_fabric::quantity::{parse_rate, parse_span};
pub use strandway_report::{Report, Row};
pub use strandway_scenario::{Experiment, Scenario, Variant};
pub use sweep::{compare, sweep};
pub use what_if::{DrainQuestion, drain_study};

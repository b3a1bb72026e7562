#![doc = include_str!("../README.md")]

pub mod cost;
mod estimate;
mod fabric_values;
pub mod facts;
mod ideal_fct;
pub mod output;
pub mod pcap;
pub mod plan;
pub mod propagation;
pub mod reader;
pub mod results;
mod run;
pub mod scenario;
pub mod search;
pub mod sweep;
pub mod trace;

pub use estimate::Estimate;
pub use fabric_values::fabric_values;
pub use plan::Experiment;
pub use results::{Kept, Results, Shard};
pub use run::{Outcome, run, run_all, run_each, simulate};
pub use scenario::Scenario;
pub use scenario::profile::named as profile_named;
pub use strandway_fabric::quantity::{parse_rate, parse_span};
pub use strandway_report::{Report, Row};
pub use sweep::{Variant, compare, sweep};

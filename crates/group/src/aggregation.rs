//! Gradients added by a switch on the wire: workers that use a switch.
//!
//! [`Team::join_switch`](crate::Team::join_switch) makes a team the workers of a switch, and
//! [`Team::all_reduce`](crate::Team::all_reduce) adds up buffers, by the switch or, if the switch is gone, by a ring of
//! messages. The switch itself is a process of the crate `strandway-aggregator`. It shares [`message`] and [`terms`]
//! with the workers.

mod cut;
mod elements;
pub mod message;
mod options;
mod reduce;
pub mod switch_connection;
pub mod terms;
pub mod worker;

pub use cut::{Numbers, Sums};
pub use elements::{Scale, read_elements};
pub use options::{By, NetworkOptions, Reduced, Why};
pub use reduce::InNetwork;

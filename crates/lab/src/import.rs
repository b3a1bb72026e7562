//! Files of other simulators.

pub mod htsim;

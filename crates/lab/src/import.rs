//! Reads files of other simulators.

pub mod htsim;

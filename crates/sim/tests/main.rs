//! All integration tests of this crate in one program: to link one takes less time than to link many.
//! `cargo test -p strandway-sim --test all NAME::` runs those of the file `NAME.rs`.

mod adaptive;
mod aggregation;
mod arithmetic;
mod arithmetic_faults;
mod controls;
mod credit;
mod in_flight;
mod invariants;
mod link_layer;
mod long_links;
mod multicast;
mod posting;
mod programs;
mod reads;
mod receiving;
mod shared_window;
mod spraying;
mod support;
mod telemetry;
mod watching;

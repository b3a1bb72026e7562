//! All integration tests of this crate in one program: to link one takes less time than to link many.
//! `cargo test -p strandway-proto --test all NAME::` runs those of the file `NAME.rs`.
//! Tests that need a process of their own are programs of their own; `Cargo.toml` says why.

mod book;
mod combinations;
mod congestion;
mod layers;
mod life;
mod model;
mod mrc;
mod one_way;
mod operations;
mod order;
mod pages;
mod pair;
mod pair_support;
mod parameter_tables;
mod path;
mod paused_timers;
mod prime;
mod shared_window;
mod sizes;
mod strack;
mod telemetry;
mod transport;
mod words;

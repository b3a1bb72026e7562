//! All integration tests of this crate in one program: to link one takes less time than to link many.
//! `cargo test -p strandway-group --test all NAME::` runs those of the file `NAME.rs`.
//! Tests that need a process of their own are programs of their own; `Cargo.toml` says why.

mod process;
#[path = "../../udp/tests/support/mod.rs"]
mod support;
mod team;

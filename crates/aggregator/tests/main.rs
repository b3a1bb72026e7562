//! All integration tests of this crate in one program: to link one takes less time than to link many.
//! `cargo test -p strandway-aggregator --test all NAME::` runs those of the file `NAME.rs`.

mod apart;
mod common;
mod ends;
mod exponents;
mod groups;
mod racks;
mod sums;
#[path = "../../udp/tests/support/mod.rs"]
mod support;

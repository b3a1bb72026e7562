//! All integration tests of this crate in one program: to link one takes less time than to link many.
//! `cargo test -p strandway-files --test all NAME::` runs those of the file `NAME.rs`.

mod cast;
mod copy;
mod fuzz_corpus;
mod keeping;
mod operations;
#[path = "../../udp/tests/support/mod.rs"]
mod support;

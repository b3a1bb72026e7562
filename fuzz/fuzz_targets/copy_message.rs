//! Messages and parcels of copies: reading one never panics, and a message that can be read is written as the same
//! bytes.
//!
//! `cargo +nightly fuzz run copy_message` from the repository's root. Put its findings into `corpus/copy_message`,
//! which `crates/files/tests/fuzz_corpus.rs` replays as an ordinary test.
#![no_main]

#[path = "../../crates/files/tests/operations/mod.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::check_copy(bytes));

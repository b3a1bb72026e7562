//! Datagrams of UET: reading one never panics, and what can be read is written to the same bytes.
//!
//! `cargo +nightly fuzz run uet_decode` from the repository's root. Put its findings into `corpus/uet_decode`, which
//! `crates/wire/tests/fuzz_corpus.rs` replays as an ordinary test.
#![no_main]

#[path = "../../crates/wire/tests/operations/mod.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::check_uet(bytes));

//! MRC's datagrams as publicly laid out: reading one never panics, and what can be read can be written with the same
//! meaning.
//!
//! `cargo +nightly fuzz run ocp_decode` from the repository's root. Put its findings into `corpus/ocp_decode`, which
//! `crates/wire/tests/fuzz_corpus.rs` replays as an ordinary test.
#![no_main]

#[path = "../../crates/wire/tests/operations/mod.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::check_ocp(bytes));

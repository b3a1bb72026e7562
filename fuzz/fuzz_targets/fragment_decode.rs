//! Fragments of gradients as sockets give them: reading one never panics, and what is read is written as the same bytes.
//!
//! `cargo +nightly fuzz run fragment_decode` from the repository's root. What it finds belongs into `corpus/fragment_decode`, which
//! `crates/udp/tests/fuzz_corpus.rs` replays as an ordinary test.
#![no_main]

#[path = "../../crates/udp/tests/operations/mod.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::check_fragment(bytes));

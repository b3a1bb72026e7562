//! Bytes from the network: decoding never panics, and a packet that decodes is written as the same bytes.
//!
//! `cargo +nightly fuzz run wire_decode` from the repository's root. Put its findings into `corpus/wire_decode`, which
//! `crates/wire/tests/fuzz_corpus.rs` replays as an ordinary test.
#![no_main]

#[path = "../../crates/wire/tests/operations/mod.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::check_wire(bytes));

//! Fragments of gradients as sockets receive them: reading one never panics, and a fragment that can be read is written
//! as the same bytes.
//!
//! `cargo +nightly fuzz run fragment_decode` from the repository's root. Put its findings into
//! `corpus/fragment_decode`, which `crates/udp/tests/fuzz_corpus.rs` replays as an ordinary test.
#![no_main]

#[path = "../../crates/udp/tests/operations/mod.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::check_fragment(bytes));

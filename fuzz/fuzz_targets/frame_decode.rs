//! Datagrams as a node's sockets receive them: reading one never panics, and a datagram that can be read is written as
//! the same bytes.
//!
//! `cargo +nightly fuzz run frame_decode` from the repository's root. Put its findings into `corpus/frame_decode`,
//! which `crates/udp/tests/fuzz_corpus.rs` replays as an ordinary test.
#![no_main]

#[path = "../../crates/udp/tests/operations/mod.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::check_frame(bytes));

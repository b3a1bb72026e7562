//! Datagrams from a stranger to a node that serves a friend: nothing panics, no memory is written, and the friend is
//! served as before.
//!
//! `cargo +nightly fuzz run live_node` from the repository's root.
#![no_main]

#[path = "../../crates/udp/tests/operations/mod.rs"]
mod operations;

use std::cell::RefCell;

thread_local! {
    static LIVE: RefCell<operations::Live> = RefCell::new(operations::Live::new());
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| LIVE.with_borrow_mut(|live| live.check(bytes)));

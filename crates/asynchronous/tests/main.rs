//! All integration tests of this crate in one program: to link one takes less time than to link many.

mod asynchronous;
mod executor;
mod shards;
#[path = "../../udp/tests/support/mod.rs"]
mod support;

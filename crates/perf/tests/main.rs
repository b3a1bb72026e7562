//! All integration tests of this crate in one program: to link one takes less time than to link many.

mod baseline;
mod long_path;
mod perf;
#[path = "../../udp/tests/support/mod.rs"]
mod support;
mod threads;

//! All integration tests of this crate in one program: to link one takes less time than to link many.
//! `cargo test -p strandway-udp --test all NAME::` runs those of the file `NAME.rs`.
//! Tests that need a process of their own are programs of their own; `Cargo.toml` says why.

mod api;
mod bad_wire;
mod fuzz_corpus;
mod groups;
mod hostile;
mod idle;
mod ipv4;
mod mrc_layout;
mod operations;
mod partial;
mod payloads;
mod peers;
mod planes;
mod reads;
mod shards;
mod shared_window;
mod strangers;
mod support;
mod uet_replay;
mod without;

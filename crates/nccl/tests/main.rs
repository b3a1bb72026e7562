//! All integration tests of this crate in one program.
//! `cargo test -p strandway-nccl --test all NAME::` runs those of the file `NAME.rs`.
#![allow(unsafe_code, reason = "the tests load the library and call it as NCCL does")]

mod layout;
mod net;
mod ranks;
mod rules;

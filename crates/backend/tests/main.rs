//! All integration tests of this crate in one program.
//! `cargo test -p strandway-backend --test all NAME::` runs those of the file `NAME.rs`.
#![allow(unsafe_code, reason = "the tests call the functions as C does")]

mod calls;
mod example;
mod header;

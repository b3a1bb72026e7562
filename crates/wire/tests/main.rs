//! All integration tests of this crate in one program: to link one takes less time than to link many.
//! `cargo test -p strandway-wire --test all NAME::` runs those of the file `NAME.rs`.

mod fuzz_corpus;
mod operations;
mod uet;
mod wire;

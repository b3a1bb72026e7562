//! All integration tests of this crate in one program: to link one takes less time than to link many.
//! `cargo test -p strandway-cli --test all NAME::` runs those of the file `NAME.rs`.

mod cast;
mod cli;
mod copy;
mod done;
mod export;
mod fabric;
mod fabric_lines;
mod fabric_runs;
mod fabric_tiers;
mod glibc;
mod hosts;
mod ipv4;
mod live;
mod namespaces;
mod node;
mod operate;
mod other_files;
mod packets;
mod paths;
mod sweeps;
mod switch;
mod switch_chaos;
mod uet;
mod watch;
mod wire;

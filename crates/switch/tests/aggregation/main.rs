//! Switches, servers and workers in a world with real integers.

mod catalogue;
mod driving;
mod fallback;
mod random;
mod search;
mod world;

#![no_main]
//! A topology file of SimAI or ASTRA-sim.
use strandway_import::simai_topology;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = simai_topology::read("fuzz", text).map(|made| simai_topology::describe(&made.0));
});

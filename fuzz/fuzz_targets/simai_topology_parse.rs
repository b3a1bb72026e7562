#![no_main]
//! A topology file of SimAI or ASTRA-sim.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = strandway_import::simai_topology::parse("fuzz", text).map(|made| made.describe());
});

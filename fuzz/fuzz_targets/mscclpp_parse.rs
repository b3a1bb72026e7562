#![no_main]
//! An execution plan of MSCCL++.
use strandway_collective::Collective;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = strandway_import::mscclpp::parse_as("fuzz.json", text, Collective::AllToAll).map(|made| made.describe());
});

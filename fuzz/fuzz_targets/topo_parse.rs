#![no_main]
//! A topology.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = strandway_lab::import::htsim::parse_topo(text);
});

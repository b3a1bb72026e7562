#![no_main]
//! A topology.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = strandway_import::htsim::parse_topo(text);
});

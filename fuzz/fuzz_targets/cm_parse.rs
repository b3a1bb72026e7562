#![no_main]
//! A traffic matrix.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = strandway_import::htsim::parse_cm(text);
});

#![no_main]
//! A list of AICB. The number of ranks is small, so that a run takes little memory.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = strandway_import::aicb::parse("fuzz.csv", text, Some(16));
});

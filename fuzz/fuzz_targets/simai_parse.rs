#![no_main]
//! A workload of SimAI or AICB.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = strandway_import::simai::parse("fuzz.txt", text).map(|workload| workload.describe());
});

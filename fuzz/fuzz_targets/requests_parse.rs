#![no_main]
//! A trace of requests, in CSV or in Mooncake's JSON lines.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = strandway_import::requests::parse("fuzz", text);
});

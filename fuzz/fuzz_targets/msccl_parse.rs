#![no_main]
//! An algorithm of MSCCL.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = strandway_import::msccl::parse("fuzz.xml", text).map(|made| made.describe());
});

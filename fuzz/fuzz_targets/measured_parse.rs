#![no_main]
//! Measured points: tables of nccl-tests, records of NCCL Inspector, results of perf collective, CSV.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = strandway_import::measured::parse("fuzz.txt", text).map(|measured| measured.describe());
});

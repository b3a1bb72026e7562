#![no_main]
//! A GOAL schedule, as text or in binary form.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = strandway_import::goal::parse("fuzz.goal", bytes);
    let _ = strandway_import::goal::describe("fuzz.goal", bytes);
});

#![no_main]
//! A Chakra execution trace of one rank, as JSON.
use strandway_import::chakra::{Options, Reader};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut reader = Reader::new("fuzz.json", Options { control: true, ..Options::default() });
    if reader.rank_of_json("fuzz.json", text).is_ok() {
        let _ = reader.finish(true).map(|trace| trace.describe());
    }
});

#![no_main]
//! A Chakra execution trace of one rank.
use strandway_import::chakra::{Options, Reader};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut reader = Reader::new("fuzz.et", Options { control: true, ..Options::default() });
    if reader.rank("fuzz.et", bytes).is_ok() {
        let _ = reader.finish(true).map(|trace| trace.describe());
    }
});

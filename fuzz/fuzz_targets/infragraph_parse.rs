#![no_main]
//! A document of InfraGraph, in YAML or JSON, and as protobuf.
use strandway_import::infragraph;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = infragraph::parse_protobuf("fuzz", bytes, None).map(|made| made.describe());
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = infragraph::parse("fuzz", text, None).map(|made| made.describe());
    }
});

#![no_main]
//! NCCL's topologies, graphs and tuner files.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = strandway_import::nccl::parse("fuzz.xml", text).map(|server| server.describe());
    let _ = strandway_import::nccl::describe_graphs("fuzz.xml", text);
    let _ = strandway_import::nccl_tuner::parse("fuzz.conf", text).map(|tuner| tuner.describe());
});

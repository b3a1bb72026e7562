#![no_main]
//! A node file, and the node's configuration if the file is valid.
libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(node) = strandway_testbed::NodeFile::from_text("node.toml", text) {
        let _ = node.config(Some(&[1; 32]));
    }
});

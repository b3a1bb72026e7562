#![no_main]
//! A scenario: parsed, and checked if it is TOML. Checking reads files that the scenario names, but only regular ones.
libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(scenario) = strandway_scenario::parse(text) {
        let _ = strandway_lab::check(&scenario);
    }
});

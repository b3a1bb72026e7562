//! Replays the corpus of a fuzz target: scenarios panic on none of these inputs.

use std::path::Path;

#[test]
fn scenarios_never_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/scenario_parse");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("a corpus") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("readable");
        // Truncated files are the most common damage: cut them at many places.
        for end in (0..bytes.len()).step_by(1 + bytes.len() / 200).chain([bytes.len()]) {
            if let Ok(scenario) = strandway_scenario::parse(&String::from_utf8_lossy(&bytes[..end])) {
                let _ = strandway_lab::check(&scenario);
            }
        }
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", folder.display());
}

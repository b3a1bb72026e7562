//! Replays the corpora of the fuzz targets: no parser panics on any of these inputs.

use std::path::Path;

fn replay(target: &str, parse: impl Fn(&str)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("a corpus") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("readable");
        let text = String::from_utf8_lossy(&bytes);
        parse(&text);
        // Truncated files are the most common damage: cut the text at many places.
        for at in (0..text.len()).filter(|&at| text.is_char_boundary(at)).step_by(1 + text.len() / 200) {
            parse(&text[..at]);
        }
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", folder.display());
}

#[test]
fn scenarios_never_panic() {
    replay("scenario_parse", |text| {
        if let Ok(scenario) = strandway_lab::scenario::parse(text) {
            let _ = scenario.check();
        }
    });
}

#[test]
fn matrices_never_panic() {
    replay("cm_parse", |text| drop(strandway_lab::import::htsim::parse_cm(text)));
}

#[test]
fn topologies_never_panic() {
    replay("topo_parse", |text| drop(strandway_lab::import::htsim::parse_topo(text)));
}

#[test]
fn node_files_never_panic() {
    replay("node_file_parse", |text| {
        if let Ok(node) = strandway_lab::NodeFile::from_text("node.toml", text) {
            let _ = node.config(Some(&[1; 32]));
        }
    });
}

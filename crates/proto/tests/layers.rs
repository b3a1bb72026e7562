//! Dependencies point down only: reads the manifests of all crates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The crates from the bottom up. Crates on one line must not depend on each other.
const LAYERS: [&[&str]; 9] = [
    &["proto", "ffi"],
    &["fabric", "erasure", "wire"],
    &["collective", "switch", "serving", "report"],
    &["sim", "udp", "namespaces", "import"],
    &["group", "scenario", "mover", "perf", "asynchronous"],
    &["lab", "aggregator", "files"],
    &["testbed", "reproduce"],
    &["cli", "c", "backend", "nccl"],
    &["python"],
];

/// Our crates among a manifest's dependencies, and whether there are other crates too.
fn dependencies(manifest: &str) -> (BTreeSet<String>, bool) {
    let (mut ours, mut others) = (BTreeSet::new(), false);
    let mut counts = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            // `dependencies`, `build-dependencies`, `target.….dependencies`, `dependencies.name`; tests may use what
            // they like.
            counts = table.contains("dependencies") && !table.contains("dev-dependencies");
            if let Some((_, name)) = table.split_once("dependencies.").filter(|_| counts) {
                match name.strip_prefix("strandway-") {
                    Some(name) => drop(ours.insert(name.to_string())),
                    None => others = true,
                }
                counts = false;
            }
            continue;
        }
        let key = line.split(['.', '=', ' ']).next().unwrap_or("");
        if !counts || key.is_empty() || key.starts_with('#') {
            continue;
        }
        match key.trim_matches('"').strip_prefix("strandway-") {
            Some(name) => drop(ours.insert(name.to_string())),
            None => others = true,
        }
    }
    (ours, others)
}

fn manifests() -> BTreeMap<String, String> {
    let crates: PathBuf = [env!("CARGO_MANIFEST_DIR"), ".."].iter().collect();
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(crates).expect("the folder of crates") {
        let path = entry.expect("a folder").path();
        if let Ok(text) = std::fs::read_to_string(path.join("Cargo.toml")) {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            assert!(text.contains(&format!("name = \"strandway-{name}\"")), "folder {name} is its package");
            found.insert(name, text);
        }
    }
    found
}

#[test]
fn dependencies_point_down_only() {
    let layer =
        |name: &str| LAYERS.iter().position(|l| l.contains(&name)).unwrap_or_else(|| panic!("{name} has no layer"));
    let manifests = manifests();
    for name in LAYERS.iter().copied().flatten() {
        assert!(manifests.contains_key(*name), "{name} is a crate");
    }
    for (name, text) in &manifests {
        let (ours, _) = dependencies(text);
        for other in ours {
            assert!(
                layer(&other) < layer(name),
                "{name} (layer {}) must not see {other} (layer {})",
                layer(name),
                layer(&other)
            );
        }
    }
}

#[test]
fn the_lower_crates_need_nothing_from_outside() {
    let manifests = manifests();
    assert_eq!(dependencies(&manifests["proto"]), (BTreeSet::new(), false), "proto depends on nothing");
    let proto = BTreeSet::from(["proto".to_string()]);
    let both = BTreeSet::from(["fabric".to_string(), "proto".to_string()]);
    let mut three = both.clone();
    three.insert("collective".to_string());
    for (name, below) in [
        ("fabric", &proto),
        ("erasure", &proto),
        ("wire", &proto),
        ("collective", &both),
        ("switch", &both),
        ("serving", &both),
        ("sim", &three),
    ] {
        assert_eq!(dependencies(&manifests[name]), (below.clone(), false), "{name} depends on these of ours alone");
    }
    assert_eq!(dependencies(&manifests["report"]).0, proto, "of ours, report depends on proto's units alone");
    let udp = ["erasure", "fabric", "proto", "wire"].map(String::from).into();
    assert_eq!(dependencies(&manifests["udp"]).0, udp, "of ours, udp depends on these alone");
    assert_eq!(dependencies(&manifests["namespaces"]).0, both, "of ours, namespaces depends on these alone");
    assert_eq!(dependencies(&manifests["import"]).0, three, "of ours, import depends on these alone");
    let (scenario, _) = dependencies(&manifests["scenario"]);
    assert!(scenario.contains("import") && !scenario.contains("sim"), "a scenario never runs: {scenario:?}");
    let (lab, _) = dependencies(&manifests["lab"]);
    assert!(lab.contains("proto") && lab.contains("sim") && !lab.contains("cli"), "{lab:?}");
    for name in ["udp", "group", "aggregator", "files", "namespaces"] {
        assert!(!scenario.contains(name), "a program that only reads scenarios builds no sockets: {scenario:?}");
        assert!(!lab.contains(name), "a program that only simulates builds no sockets: {lab:?}");
    }
    let (testbed, _) = dependencies(&manifests["testbed"]);
    assert!(testbed.contains("udp") && !testbed.contains("sim"), "{testbed:?}");
    let (aggregator, _) = dependencies(&manifests["aggregator"]);
    assert!(aggregator.contains("switch") && !aggregator.contains("sim"), "{aggregator:?}");
    let own = ["group", "proto", "udp", "wire"].map(String::from).into();
    assert_eq!(dependencies(&manifests["files"]).0, own, "of ours, files depends on these alone");
    assert_eq!(dependencies(&manifests["ffi"]), (BTreeSet::new(), false), "ffi depends on nothing");
    let wire = ["ffi", "proto", "udp"].map(String::from).into();
    assert_eq!(dependencies(&manifests["mover"]).0, wire, "of ours, mover depends on these alone");
    let own = ["proto", "udp"].map(String::from).into();
    assert_eq!(dependencies(&manifests["perf"]).0, own, "of ours, perf depends on these alone");
    let udp = BTreeSet::from(["udp".to_string()]);
    assert_eq!(dependencies(&manifests["asynchronous"]), (udp, false), "asynchronous depends on udp alone");
    let (reproduce, _) = dependencies(&manifests["reproduce"]);
    assert!(reproduce.contains("lab") && !reproduce.contains("udp"), "{reproduce:?}");
    let (cli, _) = dependencies(&manifests["cli"]);
    assert!(cli.contains("lab"), "{cli:?}");
}

/// Files of a folder, and of those in it, that contain a text.
fn files_with(wanted: &str, folder: &std::path::Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files_with(wanted, &path, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if text.contains(wanted) {
            found.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
}

/// Crates that may have `unsafe`, and the files that have it: functions for C, instructions of vectors, memory of callers
/// that is lent, memory that processes of a host share, and prefetches.
const WITH_UNSAFE: [(&str, &[&str]); 8] = [
    ("backend", &["calls.rs", "raw.rs"]),
    ("c", &["calls.rs", "raw.rs"]),
    ("erasure", &["kernel.rs", "x86.rs"]),
    ("ffi", &["pointers.rs"]),
    ("group", &["mapping.rs", "memory.rs"]),
    ("nccl", &["calls.rs"]),
    ("python", &["wire.rs"]),
    ("sim", &["prefetch.rs"]),
];

#[test]
fn unsafe_is_forbidden_but_where_it_is_named() {
    let crates: PathBuf = [env!("CARGO_MANIFEST_DIR"), ".."].iter().collect();
    let workspace = std::fs::read_to_string(crates.join("../Cargo.toml")).expect("the workspace's manifest");
    assert!(workspace.contains("unsafe_code = \"forbid\""));
    for (name, text) in &manifests() {
        let files = WITH_UNSAFE.iter().find(|(of, _)| of == name).map(|(_, files)| *files);
        assert_eq!(text.contains("[lints]\nworkspace = true"), files.is_none(), "{name}: the workspace's lints");
        if let Some(files) = files {
            assert!(text.contains("unsafe_code = \"deny\""), "{name}");
            let mut allowing = Vec::new();
            files_with("allow(unsafe_code", &crates.join(name).join("src"), &mut allowing);
            allowing.sort();
            assert_eq!(allowing, files, "{name}");
        }
    }
}

/// Files of tests that no program has would not run, and nothing would say so.
#[test]
fn every_file_of_integration_tests_is_part_of_a_program() {
    let crates: PathBuf = [env!("CARGO_MANIFEST_DIR"), ".."].iter().collect();
    for (name, text) in manifests().iter().filter(|(_, text)| text.contains("\nautotests = false\n")) {
        let tests = crates.join(name).join("tests");
        let main = std::fs::read_to_string(tests.join("main.rs")).expect("the modules of the program `all`");
        for entry in std::fs::read_dir(&tests).expect("tests") {
            let path = entry.expect("an entry").path();
            let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let has_code = path.extension().is_some_and(|kind| kind == "rs") || path.join("mod.rs").exists();
            let has_program = stem == "main" || text.contains(&format!("\npath = \"tests/{stem}.rs\"\n"));
            let is_module = main.lines().any(|line| line == format!("mod {stem};"));
            assert!(!has_code || has_program || is_module, "crates/{name}/tests/main.rs lacks `mod {stem};`");
        }
    }
}

#[test]
fn a_manifest_is_read_as_cargo_reads_it() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\nstrandway-proto.workspace = true\n# no = 1\n\n\
        [target.'cfg(unix)'.dependencies]\nstrandway-sim = { path = \"..\" }\n[dependencies.strandway-lab]\npath = \"y\"\n\
        [dev-dependencies]\nproptest.workspace = true\n";
    let ours = ["lab", "proto", "sim"].map(String::from).into();
    assert_eq!(dependencies(manifest), (ours, false));
    assert_eq!(dependencies("[build-dependencies]\ncc = \"1\"\n"), (BTreeSet::new(), true));
}

#[test]
fn only_times_of_arrival_and_recordings_read_the_wall_clock() {
    let crates: PathBuf = [env!("CARGO_MANIFEST_DIR"), ".."].iter().collect();
    for name in ["proto", "fabric", "erasure", "collective", "switch", "udp", "group", "aggregator", "files"] {
        let mut found = Vec::new();
        files_with("SystemTime", &crates.join(name).join("src"), &mut found);
        // The kernel stamps datagrams with it. A node takes no time of arrival before its last turn, or after now.
        // A recording says at which time of day it begins, and nothing reads that but the simulator.
        let allowed: &[&str] = match name {
            "udp" => &["socket.rs"],
            "group" => &["recording.rs"],
            _ => &[],
        };
        assert_eq!(found, allowed, "{name}: whoever sets the clock changes nothing else");
    }
}

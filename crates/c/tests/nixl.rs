//! The NIXL backend with NIXL's own library, where a Python has it.

use crate::header::here;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python that has the wheel `nixl-cu12`: the one that `STRANDWAY_NIXL_PYTHON` names, or the usual one.
fn python() -> Option<String> {
    let named = std::env::var("STRANDWAY_NIXL_PYTHON").unwrap_or_else(|_| "python3".into());
    let probe = Command::new(&named).args(["-c", "import nixl_cu12, numpy"]).output();
    probe.is_ok_and(|output| output.status.success()).then_some(named)
}

/// Builds the plug-in into a folder.
fn build(library: &Path, folder: &Path) -> bool {
    let plugin = folder.join("libplugin_STRANDWAY.so");
    let output = Command::new("sh").arg(here("nixl/build.sh")).arg(library).arg(&plugin).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("not found") {
        eprintln!("skipped: no g++");
        return false;
    }
    assert!(output.status.success(), "{said}");
    true
}

/// The static library beside the one that the other tests load.
fn library() -> Option<PathBuf> {
    let library = crate::example::library()?.with_extension("a");
    library.exists().then_some(library)
}

#[test]
fn nixl_moves_bytes_by_the_backend() {
    let Some(library) = library() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    if !build(&library, folder.path()) {
        return;
    }
    let nm =
        Command::new("nm").args(["-D", "--defined-only"]).arg(folder.path().join("libplugin_STRANDWAY.so")).output();
    if let Ok(nm) = nm {
        let symbols = String::from_utf8_lossy(&nm.stdout);
        let names: Vec<&str> = symbols.lines().filter_map(|line| line.rsplit(' ').next()).collect();
        assert_eq!(names, ["nixl_plugin_fini", "nixl_plugin_init"], "only these can clash with other libraries");
    }
    let Some(python) = python() else {
        eprintln!("skipped: no Python with nixl-cu12 and numpy; STRANDWAY_NIXL_PYTHON names one");
        return;
    };
    let test = here("nixl/test.py");
    let output = Command::new(python).arg(test).env("NIXL_PLUGIN_DIR", folder.path()).output().expect("it runs");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && said.contains("all passed"), "{said}");
}

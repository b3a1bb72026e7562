//! Fabrics of namespaces for tests, each with a unique name.
#![allow(dead_code, reason = "each test file uses its part")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/wire/two_planes.toml");
pub(crate) const TRIMMING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/wire/trimming.toml");

/// A fabric with a unique name, removed at the end of its test.
pub(crate) struct Fabric {
    pub(crate) name: String,
    scratch: tempfile::TempDir,
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // Also namespaces that the test has made in the place of others.
        let _ = self.run(&["down", "--force"]);
    }
}

impl Fabric {
    /// A fabric with a unique name that is not built yet. `None` if namespaces are not possible here; the reason is
    /// printed on standard error.
    pub(crate) fn named() -> Option<Fabric> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let check = strandway(&["fabric", "check"]).output().expect("it runs");
        if !check.status.success() {
            eprintln!("skipped: {}", said(&check).trim());
            return None;
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("t{}x{count}", std::process::id());
        Some(Fabric { name, scratch: tempfile::tempdir().expect("a folder") })
    }

    /// The small fabric of the repository, built.
    pub(crate) fn up() -> Option<Fabric> {
        let fabric = Fabric::named()?;
        fabric.good(&["up", SCENARIO]);
        Some(fabric)
    }

    /// The small fabric of the repository, built, for tests whose ports mark, trim or lose in bursts. `None` if that is
    /// not possible here; the reason is printed.
    pub(crate) fn with_programs() -> Option<Fabric> {
        let fabric = Fabric::named()?;
        let check = strandway(&["fabric", "check", "--json", "-"]).output().expect("it runs");
        let check: Value = serde_json::from_slice(&check.stdout).expect("JSON");
        let missing = check["findings"].as_array().expect("findings").iter().find(|f| f["works"] == false);
        match missing {
            Some(finding) => {
                eprintln!("skipped: {}: {}", finding["what"], finding["said"]);
                None
            }
            None => Some(fabric),
        }
    }

    /// `strandway fabric` with this fabric's name.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = strandway(&["fabric", arguments[0], "--name", &self.name]);
        command.args(&arguments[1..]);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it runs")
    }

    /// The output of a command that must succeed.
    pub(crate) fn good(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn status(&self, more: &[&str]) -> Value {
        let output = self.run(&[&["status", "--json", "-"], more].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("no JSON: {e}: {}", said(&output)))
    }

    /// The results of probes: `(plane, T1, wanted, refused, arrived)`. T1 -1 stands for the path under the same T0.
    pub(crate) fn probe(&self) -> Vec<(i64, i64, i64, i64, i64)> {
        let status = self.status(&["--probe"]);
        let rows = status["probed"].as_array().expect("rows").clone();
        let number = |row: &Value, key: &str| row[key].as_i64().unwrap_or(-1);
        let row = |r: &Value| {
            let [a, b, c, d, e] = ["plane", "t1", "wanted", "refused", "arrived"].map(|key| number(r, key));
            (a, b, c, d, e)
        };
        rows.iter().map(row).collect()
    }

    /// The results of datagrams cast along each tree: `(team, plane, tree, refused, copies wanted, copies that
    /// arrived)`.
    pub(crate) fn probe_copies(&self) -> Vec<[i64; 6]> {
        let status = self.status(&["--probe"]);
        let rows = status["copied"].as_array().expect("rows").clone();
        let keys = ["team", "plane", "tree", "refused", "wanted", "arrived"];
        rows.iter().map(|row| keys.map(|key| row[key].as_i64().expect(key))).collect()
    }

    pub(crate) fn namespaces(&self) -> Vec<String> {
        let files = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let names = files.map(|f| f.file_name().to_string_lossy().into_owned());
        names.filter(|n| n.starts_with(&format!("{}-", self.name))).collect()
    }

    pub(crate) fn folder(&self) -> std::path::PathBuf {
        Path::new("/run/strandway").join(&self.name)
    }

    /// A folder for files of the test, removed at its end.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    pub(crate) fn assert_gone(&self) {
        assert_eq!(self.namespaces(), Vec::<String>::new());
        assert!(!self.folder().exists());
    }

    /// Packets that each T1 has received so far, by plane and number.
    pub(crate) fn t1_packets(&self) -> Vec<((u64, u64), u64)> {
        let status = self.status(&[]);
        let number = |row: &Value, key: &str| row[key].as_u64().expect(key);
        let rows = status["t1s"].as_array().expect("rows");
        rows.iter().map(|r| ((number(r, "plane"), number(r, "t1")), number(r, "packets"))).collect()
    }
}

pub(crate) fn strandway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandway"));
    command.args(arguments);
    command
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

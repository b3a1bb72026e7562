//! What other users and other programs have put there is neither loaded nor removed. Needs root; without it every test
//! prints why it does nothing.

#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::process::Command;
use strandway_namespaces::{check, down, netns};

/// Can this process make namespaces?
fn can_make() -> bool {
    let missing = check().into_iter().find(|finding| !finding.works && finding.needed);
    if let Some(finding) = &missing {
        eprintln!("skipped: {}: {}; {}", finding.what, finding.said, finding.remedy);
    }
    missing.is_none()
}

/// Files that are removed at the end.
struct Planted(Vec<PathBuf>);

impl Drop for Planted {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

#[test]
fn a_program_that_another_user_has_planted_is_not_loaded() {
    let name = |count| format!("strandway-check-{}-{count}-1-1-2-1-1-2.o", std::process::id());
    let planted = Planted((0..64).map(|count| std::env::temp_dir().join(name(count))).collect());
    for path in &planted.0 {
        std::fs::write(path, "not ours").expect("a file");
    }
    let findings = check();
    let said: Vec<&str> = findings.iter().map(|finding| finding.said.as_str()).collect();
    assert!(said.iter().all(|said| !said.contains("ELF") && !said.contains("/tmp/")), "{said:?}");
}

/// A namespace that is removed at the end.
struct Space(String);

impl Drop for Space {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

#[test]
fn namespaces_that_no_fabric_has_made_are_named_and_stay_without_force() {
    if !can_make() {
        return;
    }
    let name = format!("st{}", std::process::id());
    let spaces = ["h0", "t0-p0-0"].map(|node| Space(format!("{name}-{node}")));
    for space in &spaces {
        let made = Command::new("ip").args(["netns", "add", &space.0]).status().expect("ip runs");
        assert!(made.success());
    }
    let said = down(&name, false).expect_err("they are not its own").to_string();
    assert!(said.contains(&spaces[0].0) && said.contains("--force"), "{said}");
    assert!(spaces.iter().all(|space| netns(&space.0).exists()));
    assert_eq!(down(&name, true), Ok(2));
    assert!(spaces.iter().all(|space| !netns(&space.0).exists()));
    assert_eq!(down(&name, false), Ok(0));
}

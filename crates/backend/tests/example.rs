//! The example in C: its ring all-reduce takes the time of the lab's own, to the picosecond.

use crate::header::here;
use std::path::{Path, PathBuf};
use std::process::Command;
use strandway_scenario::Scenario;

/// A compiler of this host.
pub(crate) fn compiler() -> Option<&'static str> {
    let is_there = |program: &&str| Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    let found = ["gcc", "clang"].into_iter().find(is_there);
    if found.is_none() {
        eprintln!("skipped: neither gcc nor clang is here");
    }
    found
}

/// The library that cargo has built for these tests.
pub(crate) fn library() -> PathBuf {
    let tests = std::env::current_exe().expect("this program");
    let folder = tests.parent().expect("a folder");
    let names = ["libstrandway_backend.so", "../libstrandway_backend.so"];
    let found = names.iter().map(|name| folder.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("libstrandway_backend.so is not beside {}", tests.display()))
}

/// The time in ps and the digest that the example prints.
fn printed(program: &Path, arguments: &[&str]) -> (u64, String) {
    let output = Command::new(program).args(arguments).output().expect("the example");
    let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{said}");
    let word = |n: usize| out.split_whitespace().nth(n).unwrap_or_else(|| panic!("{out}")).to_string();
    (word(4).parse().unwrap_or_else(|_| panic!("{out}")), word(7))
}

#[test]
fn a_ring_in_c_takes_the_time_of_an_all_reduce_of_the_lab() {
    let Some(compiler) = compiler() else { return };
    let (work, library) = (tempfile::tempdir().expect("a folder"), library());
    let program = work.path().join("ring");
    let output = Command::new(compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-I"])
        .arg(here("include"))
        .arg(here("examples/ring.c"))
        .arg(&library)
        .arg(format!("-Wl,-rpath,{}", library.parent().expect("a folder").display()))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("the compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for profile in ["uec", "rocev2"] {
        let fabric = format!(
            "[fabric]\nhosts = 32\nhosts_per_leaf = 8\nspines = 4\n[profile]\nname = {profile:?}\n[run]\nseed = 1\n"
        );
        let file = work.path().join(format!("{profile}.toml"));
        std::fs::write(&file, &fabric).expect("written");
        let name = file.display().to_string();
        let (time, digest) = printed(&program, &[&name, "32", "1048576"]);
        assert_eq!(printed(&program, &[&name, "32", "1048576", "asked"]), (time, digest));
        let native = format!("{fabric}[workload]\nkind = \"all-reduce\"\nalgorithm = \"ring\"\nsize = \"1 MiB\"\n");
        let scenario = Scenario::from_text("native", &native).expect("TOML");
        let experiment = strandway_lab::check(&scenario).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(strandway_lab::simulate(&experiment, &Default::default()).simulated.0, time, "{profile}");
    }
}

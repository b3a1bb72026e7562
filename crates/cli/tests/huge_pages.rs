//! A command that simulates runs with an allocator that asks for huge pages, unless the user has decided.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const VARIABLE: &str = "GLIBC_TUNABLES";

/// The variable as the running process has it, once it simulates: then it has more than one thread, or has run for a
/// while.
fn variable_of(present: Option<&str>) -> Option<String> {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/bench/perm8192.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandway"));
    command.args(["run", scenario, "--quiet"]).stdout(Stdio::null()).stderr(Stdio::null()).env_remove(VARIABLE);
    if let Some(present) = present {
        command.env(VARIABLE, present);
    }
    let mut child = command.spawn().expect("it runs");
    let until = Instant::now() + Duration::from_secs(60);
    let threads = || fs::read_dir(format!("/proc/{}/task", child.id())).map_or(0, Iterator::count);
    while threads() < 2 {
        assert!(Instant::now() < until, "a run has a thread that watches it");
        std::thread::sleep(Duration::from_millis(5));
    }
    let environment = fs::read(format!("/proc/{}/environ", child.id())).expect("it still runs");
    child.kill().expect("it still runs");
    child.wait().expect("it was killed");
    let text = String::from_utf8_lossy(&environment).into_owned();
    text.split('\0').find_map(|pair| Some(pair.strip_prefix(VARIABLE)?.strip_prefix('=')?.to_string()))
}

#[test]
fn runs_ask_for_huge_pages_once_and_users_can_forbid_it() {
    let kernel = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !cfg!(target_env = "gnu") || !kernel.contains("[madvise]") {
        return eprintln!("skipped: huge pages of this kernel: {kernel:?}");
    }
    assert_eq!(variable_of(None).as_deref(), Some("glibc.malloc.hugetlb=1"));
    assert_eq!(variable_of(Some("glibc.malloc.hugetlb=0")).as_deref(), Some("glibc.malloc.hugetlb=0"));
}

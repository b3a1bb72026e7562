//! Commands start themselves again with settings of glibc, unless the user has decided: those that simulate with an
//! allocator that asks for huge pages, those that measure TLS with copies that are not slow on some processors.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const VARIABLE: &str = "GLIBC_TUNABLES";

/// Starts the command with that value of the variable.
fn start(arguments: &[&str], present: Option<&str>) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandway"));
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).env_remove(VARIABLE);
    if let Some(present) = present {
        command.env(VARIABLE, present);
    }
    command.spawn().expect("it runs")
}

/// The variable as the running process has it, once it works: then it has more than one thread.
fn variable_of(arguments: &[&str], present: Option<&str>) -> Option<String> {
    let mut child = start(arguments, present);
    let until = Instant::now() + Duration::from_secs(60);
    let threads = || fs::read_dir(format!("/proc/{}/task", child.id())).map_or(0, Iterator::count);
    while threads() < 2 {
        assert!(Instant::now() < until, "it has a second thread");
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
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/bench/perm8192.toml");
    let of = |present| variable_of(&["run", scenario, "--quiet"], present);
    assert_eq!(of(None).as_deref(), Some("glibc.malloc.hugetlb=1"));
    assert_eq!(of(Some("glibc.malloc.hugetlb=0")).as_deref(), Some("glibc.malloc.hugetlb=0"));
}

#[test]
fn a_server_beside_tcp_copies_without_rep_movsb_and_users_can_forbid_it() {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_slow = processor.contains("AuthenticAMD") && processor.contains("cpu family\t: 25\n");
    if !cfg!(target_env = "gnu") || !is_slow {
        return eprintln!("skipped: no AMD processor of family 25 with glibc");
    }
    let of = |arguments: &[&str], present| {
        variable_of(&[&["perf", "server", "--plane", "[::1]:0"], arguments].concat(), present)
    };
    let asked = "glibc.cpu.x86_rep_movsb_threshold=0x10000000";
    assert_eq!(of(&["--beside"], None).as_deref(), Some(asked));
    assert_eq!(of(&["--beside", "--threads", "2"], Some("glibc.a=1")), Some(format!("glibc.a=1:{asked}")));
    let own = "glibc.cpu.x86_rep_movsb_threshold=4096";
    assert_eq!(of(&["--beside"], Some(own)).as_deref(), Some(own));
    assert_eq!(of(&["--threads", "2"], None), None);
}

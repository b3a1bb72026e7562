//! A rank that is stopped keeps memory of operations that were given up: not without limit.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use strandway_group::process::{DirectoryStore, Failure, Group, GroupOptions, Process, Reduction};

/// The variable that makes a copy of this test program rank 1: the folder of the store.
const AS_RANK: &str = "STRANDWAY_TEST_STOPPED_RANK";
/// Numbers of one operation: 64 MiB.
const LENGTH: usize = 8 << 20;

fn join(rank: u32, folder: &str) -> (Process, Group) {
    let mut store = DirectoryStore::new(folder).expect("a folder");
    let process = Process::join(&mut store, rank, &super::support::planes(1)).expect("joined");
    let options = GroupOptions { timeout: Duration::from_secs(60), patience: Duration::from_secs(60) };
    let group = Group::form(&process, &mut store, rank, 2, options).expect("met");
    (process, group)
}

/// Not a test by itself: a rank that says that it is there and does nothing more.
#[test]
fn rank_that_is_stopped() {
    let Ok(folder) = std::env::var(AS_RANK) else { return };
    let (_process, group) = join(1, &folder);
    group.barrier().expect("both are here");
    thread::sleep(Duration::from_secs(120));
}

/// A process that is killed when the test ends, and a folder that is removed then.
struct Stopped(Child, PathBuf);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

#[test]
fn a_stopped_rank_that_keeps_memory_of_many_failed_operations_is_disconnected() {
    let folder = std::env::temp_dir().join(format!("strandway-remains-{}", std::process::id()));
    let program = std::env::current_exe().expect("this program");
    let child = Command::new(program)
        .args(["--exact", "process::remains::rank_that_is_stopped", "--nocapture"])
        .env(AS_RANK, &folder)
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let other = Stopped(child, folder);
    let (_process, group) = join(0, other.1.to_str().expect("plain names"));
    group.barrier().expect("both are here");
    let stopped = Command::new("kill").args(["-STOP", &other.0.id().to_string()]).status().expect("it runs");
    assert!(stopped.success());
    group.set_timeout(Duration::from_millis(200));
    let mut numbers = vec![1i64; LENGTH];
    let mut given_up = 0;
    let failure = loop {
        match group.all_reduce(&mut numbers, Reduction::Sum).expect_err("rank 1 is stopped") {
            Failure::TimedOut { .. } => given_up += 1,
            other => break other,
        }
        assert!(given_up < 20, "{given_up} operations of 64 MiB were given up, and their memory is still kept");
    };
    // Below 256 MiB a rank that is late is waited for.
    assert!(given_up >= 4, "{given_up}: {failure}");
    assert!(matches!(failure, Failure::Gone { rank: 1, .. }), "{failure}");
    assert!(failure.to_string().contains("memory of many failed operations waits for it"), "{failure}");
}

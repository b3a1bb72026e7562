//! Casts and collectives as processes, between the hosts of a fabric of namespaces. They need root and iproute2;
//! without these, every test prints why it is skipped.

use super::namespaces::{Fabric, said, strandway};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PLANES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cast/two_planes.toml");

/// A directory for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("strandway-cli-cast-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `strandway` on a host of the fabric, with that host's node file.
fn on(fabric: &Fabric, host: usize, arguments: &[&str]) -> Command {
    let node = fabric.folder().join(format!("h{host}.toml"));
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &format!("{}-h{host}", fabric.name), env!("CARGO_BIN_EXE_strandway")]);
    command.args(arguments).args(["--node", &node.display().to_string()]);
    command
}

fn receiver(fabric: &Fabric, host: usize, folder: &Path) -> Child {
    let folder = folder.display().to_string();
    let mut command = on(fabric, host, &["cast", "--receive", &folder, "--once"]);
    command.stdout(Stdio::null()).spawn().expect("it runs")
}

#[test]
fn a_file_reaches_three_hosts_while_a_plane_dies() {
    let Some(fabric) = Fabric::named() else { return };
    fabric.good(&["up", PLANES]);
    let work = Folder::new("dies");
    let source = work.0.join("weights");
    // Thirty megabytes of pseudo-random data: 1.2 s over two planes.
    let bytes: Vec<u8> = (0..30_000_000u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect();
    std::fs::write(&source, &bytes).expect("written");
    let folders: Vec<PathBuf> = (1..4).map(|host| work.0.join(format!("h{host}"))).collect();
    let mut receivers: Vec<Child> = Vec::new();
    for (host, folder) in (1..).zip(&folders) {
        std::fs::create_dir(folder).expect("a folder");
        receivers.push(receiver(&fabric, host, folder));
    }
    let killer = {
        let fail = fabric.command(&["fail", "plane:p1"]);
        std::thread::spawn(move || {
            let mut fail = fail;
            std::thread::sleep(Duration::from_millis(600));
            fail.output().expect("it runs")
        })
    };
    let source_name = source.display().to_string();
    let to = ["--to", "h1", "--to", "h2", "--to", "h3", "--json", "-", "--quiet"];
    let cast = on(&fabric, 0, &[&["cast", source_name.as_str()], &to[..]].concat()).output().expect("it runs");
    assert!(killer.join().expect("no panic").status.success());
    assert!(cast.status.success(), "{}", said(&cast));
    let summary: Value = serde_json::from_slice(&cast.stdout).expect("JSON");
    assert_eq!((summary["kind"].as_str(), summary["passes"].as_u64()), (Some("cast"), Some(1)));
    assert!(summary["receivers"].as_array().expect("a list").iter().all(|receiver| receiver["done"] == true));
    for (receiver, folder) in receivers.iter_mut().zip(&folders) {
        assert!(receiver.wait().expect("it ends").success());
        assert!(std::fs::read(folder.join("weights")).expect("there") == bytes, "{}", folder.display());
    }
}

#[test]
fn ranks_on_hosts_gather_by_multicast_and_the_first_one_prints_what_nccl_tests_print() {
    let Some(fabric) = Fabric::named() else { return };
    fabric.good(&["up", PLANES]);
    let work = Folder::new("ranks");
    let ranks = work.0.join("ranks");
    std::fs::write(&ranks, "h0\nh1   # the second one\n\nh2\nh3\n").expect("written");
    let ranks = ranks.display().to_string();
    for (algorithm, collective) in [("multicast", "all-gather"), ("ring", "all-reduce")] {
        let options = |rank: &str| -> Vec<String> {
            let words = ["perf", "collective", collective, "--algorithm", algorithm, "--ranks", &ranks, "--rank", rank];
            let sizes = ["-b", "1K", "-e", "64K", "-f", "64", "-n", "3", "-w", "1"];
            words.iter().chain(&sizes).map(|word| word.to_string()).collect()
        };
        let start = |rank: usize| {
            let words = options(&rank.to_string());
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            on(&fabric, rank, &words)
        };
        let others: Vec<Child> =
            (1..4).map(|rank| start(rank).stdout(Stdio::null()).spawn().expect("it runs")).collect();
        let first = start(0).output().expect("it runs");
        assert!(first.status.success(), "{}", said(&first));
        for mut other in others {
            assert!(other.wait().expect("it ends").success());
        }
        let text = String::from_utf8_lossy(&first.stdout);
        let rows: Vec<Vec<&str>> =
            text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.iter().map(|row| row[0]).collect::<Vec<_>>(), ["1024", "65536"], "{text}");
        assert!(
            rows.iter().all(|row| row.len() == 9 && row[8] == "0" && row[5].parse::<f64>().is_ok_and(|us| us > 0.0))
        );
    }
}

#[test]
fn usage_that_cannot_work_is_refused_with_a_remedy() {
    let refused = |arguments: &[&str], remedy: &str| {
        let output = strandway(arguments).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(remedy), "{arguments:?}: {}", said(&output));
    };
    let work = Folder::new("usage");
    let ranks = work.0.join("ranks");
    std::fs::write(&ranks, "[::1]:47950\n[::1]:47951\n").expect("written");
    let ranks = ranks.display().to_string();
    refused(&["cast", "file"], "--to");
    refused(&["cast", "--receive", "/no/such/folder"], "name a directory that exists");
    refused(
        &["perf", "collective", "all-gather", "--ranks", "/no/such/file", "--rank", "0"],
        "write one line per node",
    );
    refused(&["perf", "collective", "all-gather", "--ranks", &ranks, "--rank", "2"], "counted from 0");
    let fast = ["perf", "collective", "all-gather", "--ranks", &ranks, "--rank", "0", "--algorithm", "fast"];
    refused(&fast, "recursive-doubling");
    refused(&["perf", "collective", "broadcast", "--ranks", &ranks, "--rank", "0", "--root", "7"], "--root 7");
    std::fs::write(work.0.join("bad"), "[::1]:47950\nnobody\n").expect("written");
    let bad = work.0.join("bad").display().to_string();
    refused(&["perf", "collective", "all-gather", "--ranks", &bad, "--rank", "0"], "line 2: nobody");
}

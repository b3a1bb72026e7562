//! `perf` and `node` with `layout = "uet"`, as processes over loopback.

use super::wire::kill_under;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

fn strandway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandway"));
    command.args(arguments);
    command
}

/// A program that listens, its first address, and the rest of its output.
fn listening(arguments: &[&str]) -> (Child, String, BufReader<ChildStdout>) {
    let mut child = strandway(arguments).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("it says where it listens");
    assert!(line.contains("layout uet"), "{line}");
    let at = line.split(" on ").nth(1).and_then(|rest| rest.split([',', ' ']).next()).expect("an address");
    (child, at.to_string(), lines)
}

const SERVER: [&str; 6] = ["perf", "server", "--layout", "uet", "--plane", "127.0.0.1:0"];
const CLIENT: [&str; 4] = ["perf", "client", "--layout", "uet"];

fn report(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON and nothing else")
}

#[test]
fn a_client_writes_reads_and_verifies_sealed_and_in_the_clear() {
    for protection in ["encrypted", "none"] {
        let (mut child, at, lines) = listening(&[&SERVER[..], &["--protection", protection]].concat());
        for (mode, kind, size) in [
            (&[][..], "bandwidth", "100000"),
            (&["--latency"], "latency", "5000"),
            (&["--bidirectional"], "bidirectional", "70000"),
            (&["--verify"], "verify", "300000"),
        ] {
            let more = ["--protection", protection, "--size", size, "--messages", "20", "--json", "-"];
            let output = strandway(&[&CLIENT[..], &[&at], &more, mode].concat()).output().expect("it runs");
            let report = report(&output);
            assert_eq!((report["kind"].as_str(), report["messages"].as_u64()), (Some(kind), Some(20)), "{report}");
            assert!(report["goodput_gbps"].as_f64().is_some_and(|rate| rate > 0.0), "{report}");
            let rtt = report["rtt_us"]["p50"].as_f64();
            assert_eq!(rtt.is_some_and(|rtt| rtt > 0.0), kind == "latency", "{report}");
            let back = report["back_gbps"].as_f64();
            assert_eq!(back.is_some_and(|back| back > 0.0), kind == "bidirectional", "{report}");
        }
        let mut said = Vec::new();
        for line in lines.lines().take(8) {
            said.push(line.expect("text"));
        }
        assert_eq!(said.iter().filter(|line| line.contains("a client came from 127.0.0.1:")).count(), 4, "{said:?}");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
}

#[test]
fn once_ends_the_server_with_its_client() {
    let (mut child, at, _lines) = listening(&[&SERVER[..], &["--once"]].concat());
    let output = strandway(&[&CLIENT[..], &[&at, "--messages", "3"]].concat()).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(child.wait().expect("it ends").success());
}

/// Also if the measurement is over soon after.
#[test]
fn a_server_that_is_killed_is_reported_to_its_client() {
    for (mode, seconds) in [(&[][..], "1.5"), (&["--latency", "--size", "64"], "1.5"), (&[], "60")] {
        let (child, at, lines) = listening(&SERVER);
        let mut client = strandway(&[&CLIENT[..], &[&at, "--seconds", seconds], mode].concat());
        let client = kill_under(&mut client, child, lines);
        let output = client.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("stopped answering"), "{mode:?} {seconds}: {said}");
    }
}

#[test]
fn a_client_in_the_clear_gets_no_answer_of_a_sealed_server() {
    let (mut child, at, _lines) = listening(&SERVER);
    let output = strandway(&[&CLIENT[..], &[&at, "--protection", "none", "--seconds", "0.3"]].concat()).output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("same key and --protection"), "{said}");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

/// A folder with a key, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("strandway-uet-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("key"), [7; 32]).expect("a key");
        Folder(folder)
    }

    /// A node file; `more` are additional lines.
    fn node(&self, planes: &[&str], more: &str) -> PathBuf {
        let path = self.0.join("node.toml");
        let head = format!("[node]\nhost = 0\nplanes = {planes:?}\nkey = \"key\"\nlayout = \"uet\"\npayload = 1344\n");
        let more = if more.contains("profile") { more.to_string() } else { format!("profile = \"uec\"\n{more}") };
        std::fs::write(&path, format!("{head}rate = \"10 Gbps\"\n{more}\n")).expect("written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_node_file_makes_a_node_that_a_client_reaches() {
    let folder = Folder::new("node");
    let file = folder.node(&["127.0.0.1:0"], "");
    let (mut child, at, lines) = listening(&["node", text(&file), "--interval", "0.2", "--seconds", "600"]);
    // The same file, without its port in use, is the client's.
    let arguments =
        [&["perf", "client", &at, "--node", text(&file)][..], &["--messages", "50", "--json", "-"]].concat();
    let report = report(&strandway(&arguments).output().expect("it runs"));
    assert_eq!(report["messages"].as_u64(), Some(50));
    let mut gone = false;
    let mut came = false;
    for line in lines.lines().map(|line| line.expect("text")) {
        came |= line.contains("a peer came from 127.0.0.1:");
        gone |= line.contains("a peer has gone");
        if gone {
            break;
        }
    }
    assert!(came && gone);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

/// Runs a program that must fail as misused.
fn refused(arguments: &[&str], words: &[&str]) {
    let output = strandway(arguments).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
}

#[test]
fn settings_that_the_layout_lacks_are_refused_with_a_remedy() {
    let folder = Folder::new("lacks");
    let two = ["--plane", "127.0.0.1:0", "--plane", "127.0.0.1:0"];
    refused(&[&["perf", "server", "--layout", "uet"], &two[..]].concat(), &["layout uet", "2 planes", "one address"]);
    for (flags, words) in [
        (&["--profile", "mrc"][..], &["profile mrc", "uec only"][..]),
        (&["--protection", "authenticated"], &["authenticated", "encrypted or none"]),
        (&["--source-ports", "4"], &["4 source ports", "take one"]),
        (&["--threads", "2", "--connections", "2"], &["--threads 2", "leave it out"]),
        (&["--connections", "2"], &["connections", "take 1"]),
        (&["--latency", "--bulk", "1"], &["bulk", "leave it out"]),
        (&["--latency", "--size", "300M"], &["size", "268435456"]),
        (&["--all"], &["--all", "take --size"]),
    ] {
        refused(&[&CLIENT[..], &["127.0.0.1"], flags].concat(), &[&["layout uet"], words].concat());
    }
    for (planes, more, words) in [
        (&["127.0.0.1:0", "127.0.0.1:0"][..], "", &["2 planes", "one address"][..]),
        (&["127.0.0.1:0"], "trimming = true", &["trimmed packets", "leave it out"]),
        (&["127.0.0.1:0"], "denied = [\"p0:t1-1\"]", &["denied", "leave them out"]),
        (&["127.0.0.1:0"], "profile = \"mrc\"", &["profile mrc", "uec only"]),
        (&["127.0.0.1:0"], "mrc_port = 4791", &["mrc_port", "layout = \"mrc\""]),
        (&["127.0.0.1:0"], "[srv6]\nt1s = 2\nhosts_per_t0 = 2", &["layout", "SRv6"]),
    ] {
        refused(&["node", text(&folder.node(planes, more))], words);
    }
    // Programs with connections of ours do not have it.
    let file = folder.node(&["127.0.0.1:0"], "");
    refused(&["copy", "--serve", text(&folder.0), "--node", text(&file)], &["layout uet", "others take frame"]);
    refused(&["fabric", "up", "any.toml", "--layout", "uet"], &["--layout uet", "SRv6", "take frame or mrc"]);
}

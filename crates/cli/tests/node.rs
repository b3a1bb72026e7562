//! `node`, and `perf` on several threads, as processes over loopback.

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A directory with a key in it, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("strandway-node-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("key"), [7; 32]).expect("a key");
        Folder(folder)
    }

    /// Writes a node file; `more` are additional lines.
    fn node(&self, name: &str, planes: &[&str], more: &str) -> PathBuf {
        let path = self.0.join(format!("{name}.toml"));
        let text = format!(
            "[node]\nname = \"{name}\"\nhost = 0\nplanes = {planes:?}\nprofile = \"uec\"\npayload = 4096\n\
             rate = \"10 Gbps\"\nbase_rtt = \"100 us\"\n{more}\n"
        );
        std::fs::write(&path, text).expect("written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const KEY: &str = "key = \"key\"";

fn strandway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandway"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The addresses on which a node says that it listens.
fn addresses(lines: &mut impl BufRead, before: &str) -> Vec<String> {
    let mut line = String::new();
    lines.read_line(&mut line).expect("it says where it listens");
    let rest = line.split(before).nth(1).unwrap_or_else(|| panic!("no addresses: {line}"));
    rest.split([',', ';']).next().unwrap_or("").split(' ').map(String::from).collect()
}

fn ends(mut child: Child, within: Duration) -> Output {
    let until = Instant::now() + within;
    while child.try_wait().expect("it can be asked").is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().expect("it has ended")
}

fn objects(output: &str) -> Vec<serde_json::Value> {
    output.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect()
}

#[test]
fn a_node_answers_a_client_and_tells_what_it_carried() {
    let folder = Folder::new("serves");
    let node = folder.node("h2", &["[::1]:0", "[::1]:0"], KEY);
    let mut child = strandway(&["node", text(&node), "--seconds", "3", "--interval", "0.25", "--json", "-"]).spawn();
    let child = child.as_mut().expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
    let at = addresses(&mut said, "h2 listens on ");
    let key = folder.0.join("key");
    let flags = ["--plane", "[::1]:0", "--plane", "[::1]:0", "--payload", "4096", "--key", text(&key)];
    let arguments = ["perf", "client", &at[0], &at[1], "--messages", "40", "--json", "-"];
    let measured = strandway(&arguments).args(flags).output().expect("it runs");
    assert!(measured.status.success(), "{}", String::from_utf8_lossy(&measured.stderr));
    let mut out = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut out).expect("text");
    assert!(child.wait().expect("it ends").success());
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert!(
        rest.contains("a peer came from") && rest.contains("a peer has gone"),
        "people read the other stream: {rest}"
    );
    let lines = objects(&out);
    assert!((10..=13).contains(&lines.len()), "four lines a second: {out}");
    let arrived: f64 = lines
        .iter()
        .map(|line| {
            let number = |key: &str| line[key].as_f64().expect("a number");
            number("in_gbps") * (number("to_s") - number("from_s")) * 1e9 / 8.0
        })
        .sum();
    let sent = 40.0 * 1_048_576.0;
    assert!((0.99..1.01).contains(&(arrived / sent)), "{arrived} of {sent} bytes: {out}");
    for plane in 0..2 {
        let bytes: u64 = lines.iter().filter_map(|line| line["planes"][plane]["in_bytes"].as_u64()).sum();
        assert!(bytes > 1_000_000, "both planes carry: {out}");
        assert!(lines.iter().all(|line| line["planes"][plane]["up"] == true), "{out}");
    }
    assert_eq!(lines.last().expect("lines")["connections"], 0);
}

#[test]
fn ctrl_c_ends_a_node_cleanly_with_a_last_line() {
    let folder = Folder::new("interrupted");
    let json = folder.0.join("lines.json");
    let node = folder.node("h1", &["[::1]:0"], KEY);
    let mut child = strandway(&["node", text(&node), "--json", text(&json)]).spawn().expect("it starts");
    let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
    addresses(&mut said, "h1 listens on ");
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
    assert_eq!(ends(child, Duration::from_secs(60)).status.code(), Some(0));
    assert_eq!(objects(&std::fs::read_to_string(&json).expect("written")).len(), 1);
}

/// Runs `strandway node` on a file; it must fail.
fn refused(program: &mut Command, status: i32, words: &[&str]) {
    let output = program.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
}

#[test]
fn mistakes_are_explained_with_a_remedy() {
    let folder = Folder::new("wrong");
    let one = ["[::1]:0"];
    let missing = folder.0.join("missing.toml");
    refused(&mut strandway(&["node", text(&missing)]), 2, &["missing.toml"]);
    let keyless = folder.node("keyless", &one, "key = \"nokey\"");
    refused(&mut strandway(&["node", text(&keyless)]), 2, &["nokey", "head -c 32 /dev/urandom"]);
    let node = folder.node("good", &one, KEY);
    refused(&mut strandway(&["node", text(&node), "--key", "/nowhere"]), 2, &["--key /nowhere"]);
    refused(&mut strandway(&["node", text(&node), "--interval", "0"]), 2, &["--interval", "0.01 to 3600"]);
    refused(&mut strandway(&["node", text(&node), "--json", "/nowhere/x"]), 2, &["--json /nowhere/x"]);

    let socket = UdpSocket::bind("[::1]:0").expect("a port");
    let taken = socket.local_addr().expect("bound").to_string();
    let node = folder.node("taken", &[&taken], KEY);
    refused(&mut strandway(&["node", text(&node)]), 1, &[&taken, "another process has it"]);

    let node = folder.node("elsewhere", &["[2001:db8::1]:0"], KEY);
    refused(&mut strandway(&["node", text(&node)]), 1, &["ip -6 addr"]);
    let node = folder.node("gone", &one, &format!("{KEY}\ndevices = [\"strandway9\"]"));
    refused(&mut strandway(&["node", text(&node)]), 2, &["no interface \"strandway9\"", "ip link"]);
}

#[test]
fn too_few_file_descriptors_are_named() {
    let folder = Folder::new("descriptors");
    let node = folder.node("poor", &["[::1]:0"; 8], KEY);
    let script = format!("ulimit -n 8; exec {} node {}", env!("CARGO_BIN_EXE_strandway"), text(&node));
    refused(Command::new("sh").args(["-c", &script]), 1, &["cannot open a UDP socket", "raise `ulimit -n`"]);
}

#[test]
fn a_measurement_on_two_threads_reports_as_one() {
    let mut server =
        strandway(&["perf", "server", "--once", "--threads", "2", "--plane", "[::1]:0"]).spawn().expect("it starts");
    let mut said = BufReader::new(server.stdout.take().expect("a pipe"));
    let plane = addresses(&mut said, "listening on ").join(" ");
    let arguments = ["--threads", "2", "--connections", "4", "--seconds", "60", "--messages", "20", "--size", "100000"];
    let output = strandway(&["perf", "client", &plane, "--json", "-"]).args(arguments).output().expect("it runs");
    assert!(ends(server, Duration::from_secs(60)).status.success(), "--once ends with the last connection");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!((report["messages"].as_u64(), report["threads"].as_u64()), (Some(80), Some(2)), "{report}");
    refused(&mut strandway(&["perf", "client", &plane, "--threads", "2"]), 2, &["1 connections on 2 threads"]);
}

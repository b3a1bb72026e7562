//! Every command with sockets, between hosts that have IPv4 and no IPv6. They need root and iproute2; without these,
//! every test prints why it is skipped.

use super::hosts::{Family, Hosts};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Every file of 16 bytes or more is a valid key.
const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("strandway-ipv4-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed when the test ends, and what it prints.
struct Process(Child, BufReader<std::process::ChildStdout>);

impl Process {
    fn start(mut command: Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Process(child, lines)
    }

    /// The next line that it prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).expect("it prints text");
        line
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn good(mut command: Command) -> Output {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON and nothing else")
}

/// Contents that differ from place to place.
fn contents(path: &Path) -> Vec<u8> {
    let bytes: Vec<u8> = (0..300_000u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect();
    std::fs::write(path, &bytes).expect("written");
    bytes
}

#[test]
fn servers_without_a_plane_listen_on_127_0_0_1_and_names_lead_there() {
    let Some(hosts) = Hosts::new(Family::V4, 0) else { return };
    let mut server = Process::start(hosts.strandway(0, &["perf", "server"]));
    assert_eq!(server.line(), "listening on 127.0.0.1:47930; Ctrl-C ends\n");
    for to in ["127.0.0.1", "127.0.0.1:47930", "localhost"] {
        let report = json(&good(hosts.strandway(0, &["perf", "client", to, "--seconds", "0.3", "--json", "-"])));
        assert!(report["goodput_gbps"].as_f64() > Some(0.0), "{to}: {report}");
        let came = server.line();
        assert!(came.starts_with("a client came from 127.0.0.1:"), "{came}");
        assert!(server.line().starts_with("a client has gone"));
    }
    let folder = Folder::new("copy");
    let (source, target) = (folder.0.join("source"), folder.path("target"));
    let bytes = contents(&source);
    std::fs::create_dir(&target).expect("a folder");
    let mut server = Process::start(hosts.strandway(0, &["copy", "--serve", &target]));
    assert!(server.line().ends_with(" on 127.0.0.1:47931; Ctrl-C ends\n"));
    good(hosts.strandway(0, &["copy", &folder.path("source"), "127.0.0.1:x"]));
    assert!(std::fs::read(folder.0.join("target/x/source")).expect("it is there") == bytes);
    let findings = json(&good(hosts.strandway(0, &["doctor", "--json", "-"])))["findings"].clone();
    let of = |what: &str| {
        let all = findings.as_array().expect("a list");
        all.iter().find(|one| one["what"] == what).unwrap_or_else(|| panic!("{what}: {findings}")).clone()
    };
    assert_eq!(
        (of("IPv4 sockets")["verdict"].as_str(), of("IPv6 sockets")["verdict"].as_str()),
        (Some("good"), Some("slow"))
    );
    assert_ne!(of("UDP GSO (sending in batches)")["verdict"], "missing");
}

#[test]
fn a_copy_and_a_cast_take_both_subnets_and_multicast_carries_the_cast() {
    let Some(hosts) = Hosts::new(Family::V4, 2) else { return };
    let folder = Folder::new("cast");
    let source = folder.0.join("weights");
    let bytes = contents(&source);
    let at: Vec<String> = (0..4).map(|i| hosts.address(i % 2, i / 2)).collect();
    let planes = |host: usize| ["--key", KEY, "--plane", &at[2 * host], "--plane", &at[2 * host + 1]];
    let both = format!("{},{}", at[2], at[3]);
    for (command, receive, port) in [("copy", "--serve", 47_931), ("cast", "--receive", 47_932)] {
        let target = folder.path(command);
        std::fs::create_dir(&target).expect("a folder");
        let words = [&[command, receive, target.as_str()][..], &planes(1)].concat();
        let mut receiver = Process::start(hosts.strandway(1, &words));
        let listens = receiver.line();
        assert!(listens.ends_with(&format!(" on {}:{port} {}:{port}; Ctrl-C ends\n", at[2], at[3])), "{listens}");
        let to = if command == "copy" { format!("{both}:") } else { both.clone() };
        let source = folder.path("weights");
        let to = if command == "copy" { vec![source.as_str(), &to] } else { vec![&source, "--to", &to] };
        let words = [&[command][..], &to, &planes(0), &["--json", "-", "--quiet"]].concat();
        let summary = json(&good(hosts.strandway(0, &words)));
        assert!(std::fs::read(Path::new(&target).join("weights")).expect("it is there") == bytes, "{summary}");
        if command == "cast" {
            assert_eq!(summary["multicast_planes"].as_u64(), Some(0b11), "{summary}");
        }
    }
}

#[test]
fn ranks_add_up_by_a_switch_and_a_node_file_opens_a_node() {
    let Some(hosts) = Hosts::new(Family::V4, 1) else { return };
    let folder = Folder::new("switch");
    let (ranks, socket, job) = (folder.path("ranks"), folder.path("socket"), format!("1={KEY}"));
    let listen = hosts.address(0, 1);
    let words = ["switch", "--listen", &listen, "--socket", &socket, "--job", &job, "--slots", "256"];
    let mut switch = Process::start(hosts.strandway(1, &words));
    assert!(switch.line().contains(&format!("of {listen};")));
    assert_eq!(switch.line(), format!("job 1: workers join at {listen}:48001\n"));
    std::fs::write(&ranks, [0, 1].map(|host| format!("{}\n", hosts.address(0, host))).concat()).expect("written");
    let rank = |rank: usize| {
        let (number, out) = (rank.to_string(), folder.path(&format!("out{rank}")));
        let mut command = hosts.strandway(rank, &["perf", "collective", "all-reduce", "--algorithm", "in-network"]);
        command.args(["--switch", &listen, "--job-key", KEY, "--key", KEY, "--ranks", &ranks, "--rank", &number]);
        command.args(["-b", "64K", "-e", "64K", "-n", "3", "--json", &out, "--join-patience", "10s"]);
        command.stdout(Stdio::null()).spawn().expect("it starts")
    };
    for mut rank in [rank(0), rank(1)] {
        assert!(rank.wait().expect("it ends").success());
    }
    for rank in 0..2 {
        let text = std::fs::read_to_string(folder.path(&format!("out{rank}"))).expect("it was written");
        let result: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            (&result["sizes"][0]["right"], &result["sizes"][0]["by_ring"]),
            (&true.into(), &0.into()),
            "{result}"
        );
    }
    let file = folder.path("node.toml");
    let planes = format!("host = 0\nplanes = [\"{}:4791\"]\nkey = \"{KEY}\"\nprofile = \"uec\"\n", hosts.address(0, 0));
    std::fs::write(&file, format!("[node]\n{planes}payload = 1344\nrate = \"1 Gbps\"\n")).expect("written");
    let mut node = Process::start(hosts.strandway(0, &["node", &file]));
    assert!(node.line().contains(&format!(" listens on {}:4791,", hosts.address(0, 0))));
    let to = format!("{}:4791", hosts.address(0, 0));
    good(hosts.strandway(1, &["perf", "client", &to, "--key", KEY, "--seconds", "0.3"]));
}

#[test]
fn servers_without_a_plane_serve_both_families_where_the_host_has_both() {
    let Some(hosts) = Hosts::new(Family::V6, 0) else { return };
    let mut server = Process::start(hosts.strandway(0, &["perf", "server"]));
    assert_eq!(server.line(), "listening on [::1]:47930 127.0.0.1:47930; Ctrl-C ends\n");
    for (to, from) in [("127.0.0.1", "127.0.0.1:"), ("::1", "[::1]:")] {
        let report = json(&good(hosts.strandway(0, &["perf", "client", to, "--seconds", "0.3", "--json", "-"])));
        assert!(report["goodput_gbps"].as_f64() > Some(0.0), "{to}: {report}");
        let came = server.line();
        assert!(came.starts_with(&format!("a client came from {from}")), "{came}");
        assert!(server.line().starts_with("a client has gone"));
    }
    let folder = Folder::new("both");
    let bytes = contents(&folder.0.join("source"));
    for (command, serve) in [("copy", "--serve"), ("cast", "--receive")] {
        let target = folder.path(command);
        std::fs::create_dir(&target).expect("a folder");
        let mut server = Process::start(hosts.strandway(0, &[command, serve, &target]));
        let line = server.line();
        assert!(line.contains(" on [::1]:4793") && line.contains(" 127.0.0.1:4793"), "{line}");
        for (to, name) in [("127.0.0.1", "four"), ("[::1]", "six")] {
            let source = folder.path(name);
            std::fs::copy(folder.0.join("source"), &source).expect("a copy");
            let words = match command {
                "copy" => format!("copy {source} {to}:"),
                _ => format!("cast {source} --to {to}"),
            };
            good(hosts.strandway(0, &words.split(' ').collect::<Vec<_>>()));
            assert!(std::fs::read(Path::new(&target).join(name)).expect("it is there") == bytes, "{command} {to}");
        }
    }
}

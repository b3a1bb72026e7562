//! Packets are as large as the path takes, without a flag: between network namespaces with a hop in the middle.

use super::hosts::run;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Every file of 16 bytes or more is a valid key.
const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

/// A plane: the MTUs of the first host, of the two ports of the hop, and of the second host. A bridge drops what is too
/// large for its other port, and tells nobody.
type Plane = [u32; 4];

/// Two hosts with a hop between them; removed when dropped.
struct Line {
    names: [String; 3],
    ipv4: bool,
}

impl Line {
    /// `None`, after a message that says which feature is missing, if namespaces do not work here.
    fn new(planes: &[Plane], ipv4: bool) -> Option<Line> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let line = Line { names: ["a", "m", "b"].map(|host| format!("strandway-mtu-{process}-{number}-{host}")), ipv4 };
        match line.set_up(planes) {
            Ok(()) => Some(line),
            Err(missing) => {
                println!("skipped: network namespaces do not work here: {missing}");
                None
            }
        }
    }

    fn set_up(&self, planes: &[Plane]) -> Result<(), String> {
        let [a, m, b] = &self.names;
        for name in &self.names {
            run("ip", &["netns", "add", name])?;
            run("ip", &["-n", name, "link", "set", "lo", "up"])?;
        }
        for (plane, [mtu_a, mtu_ma, mtu_mb, mtu_b]) in planes.iter().enumerate() {
            let bridge = format!("br{plane}");
            run("ip", &["-n", m, "link", "add", &bridge, "mtu", "9000", "type", "bridge"])?;
            for (host, side, near, far) in [(a, "a", mtu_a, mtu_ma), (b, "b", mtu_b, mtu_mb)] {
                let (port, hop) = (format!("p{plane}"), format!("{side}{plane}"));
                let (near, far) = (near.to_string(), far.to_string());
                let veth = ["type", "veth", "peer", "name", &hop, "mtu", &far, "netns", m];
                run("ip", &[&["-n", host, "link", "add", &port, "mtu", &near][..], &veth].concat())?;
                run("ip", &["-n", m, "link", "set", &hop, "master", &bridge, "up"])?;
                let bits = if self.ipv4 { 24 } else { 64 };
                let address = format!("{}/{bits}", self.address(plane, usize::from(side == "b")));
                let more: &[&str] = if self.ipv4 { &[] } else { &["nodad"] };
                run("ip", &[&["-n", host, "addr", "add", &address, "dev", &port][..], more].concat())?;
                run("ip", &["-n", host, "link", "set", &port, "up"])?;
            }
            run("ip", &["-n", m, "link", "set", &bridge, "up"])?;
        }
        Ok(())
    }

    fn address(&self, plane: usize, host: usize) -> String {
        if self.ipv4 { format!("10.0.{plane}.{}", host + 1) } else { format!("fd00:0:0:{plane}::{}", host + 1) }
    }

    fn strandway(&self, host: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.names[2 * host])).arg(env!("CARGO_BIN_EXE_strandway"));
        command.args(arguments).args(["--key", KEY]);
        command
    }

    /// A server on the second host that listens on all planes.
    fn server(&self, arguments: &[&str], planes: usize) -> Child {
        let mut command = self.strandway(1, arguments);
        for plane in 0..planes {
            command.args(["--plane", &self.address(plane, 1)]);
        }
        let mut server = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(server.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("it listens");
        server
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = run("ip", &["netns", "del", name]);
        }
    }
}

/// The payload of a measurement without a flag, in which every byte is checked, and the line that names it.
fn payload(planes: &[Plane], ipv4: bool) -> Option<(u64, String)> {
    let line = Line::new(planes, ipv4)?;
    let mut server = line.server(&["perf", "server", "--once"], planes.len());
    let mut client = line.strandway(0, &["perf", "client"]);
    for plane in 0..planes.len() {
        client.arg(line.address(plane, 1)).args(["--plane", &line.address(plane, 0)]);
    }
    client.args(["--size", "4M", "--messages", "2", "--verify", "--seconds", "60", "--json", "-"]);
    let output = client.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(server.wait().expect("it ends").success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["messages"], 2, "{report}");
    Some((report["payload"].as_u64().expect("a number"), said))
}

#[test]
fn networks_of_9000_bytes_are_used_without_a_flag() {
    for ipv4 in [false, true] {
        let Some((payload, said)) = payload(&[[9_000; 4]], ipv4) else { return };
        assert!((8_800..9_000).contains(&payload), "{payload}");
        assert!(said.contains("payload as large as passes"), "{said}");
        assert!(said.contains(&format!("full packets had {payload} B of payload")), "{said}");
    }
}

#[test]
fn a_hop_that_drops_large_packets_silently_is_found() {
    for hop in [1_500, 4_000] {
        let Some((payload, _)) = payload(&[[9_000, 9_000, hop, 9_000]], false) else { return };
        assert!((hop - 350..hop).contains(&(payload as u32)), "{hop}: {payload}");
    }
}

#[test]
fn the_narrower_end_and_the_narrower_plane_decide() {
    for planes in [
        &[[9_000, 9_000, 9_000, 1_500]][..],
        &[[1_500, 9_000, 9_000, 9_000]],
        &[[9_000; 4], [9_000, 1_500, 9_000, 9_000]],
    ] {
        let Some((payload, _)) = payload(planes, false) else { return };
        assert!((1_300..1_500).contains(&payload), "{planes:?}: {payload}");
    }
}

#[test]
fn a_copy_passes_a_hop_that_drops_large_packets() {
    let Some(line) = Line::new(&[[9_000, 9_000, 4_000, 9_000]], false) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(path("file"), &bytes).expect("written");
    std::fs::create_dir(path("there")).expect("made");
    let mut server = line.server(&["copy", "--serve", &path("there"), "--once"], 1);
    let place = format!("[{}]:", line.address(0, 1));
    let output = line.strandway(0, &["copy", &path("file"), &place, "--json", "-"]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(server.wait().expect("it ends").success());
    assert!(std::fs::read(Path::new(&path("there")).join("file")).expect("it is there") == bytes);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!((3_650..4_000).contains(&report["payload"].as_u64().expect("a number")), "{report}");
}

#[test]
fn a_cast_passes_a_hop_that_drops_large_packets() {
    for (hop, least) in [(9_000, 8_700), (4_000, 3_650)] {
        let Some(line) = Line::new(&[[9_000, 9_000, hop, 9_000]], false) else { return };
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
        let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(path("file"), &bytes).expect("written");
        std::fs::create_dir(path("there")).expect("made");
        let mut receiver = line.server(&["cast", "--receive", &path("there"), "--once"], 1);
        let to = line.address(0, 1);
        let arguments = ["cast", &path("file"), "--to", &to, "--rate", "1Gbps", "--json", "-"];
        let output = line.strandway(0, &arguments).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(receiver.wait().expect("it ends").success());
        assert!(std::fs::read(Path::new(&path("there")).join("file")).expect("it is there") == bytes);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let payload = report["payload"].as_u64().expect("a number");
        assert!((least..hop.into()).contains(&payload), "{report}");
    }
}

//! Real nodes on a fabric of namespaces: scenarios run while links fail, and no byte is lost. The tests need root;
//! without it, each one prints why it is skipped.

use super::namespaces::{Fabric, SCENARIO, said};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// Ports of 100 Mb/s, a rate that a machine with other tests still reaches.
const SLOW: &str = "fabric.rate=\"200 Mbps\"";

fn report(fabric: &Fabric, arguments: &[&str]) -> Value {
    let output = fabric.run(arguments);
    // The scenario's bound on goodput is for the usual rate.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("no JSON: {e}: {}", said(&output)))
}

#[test]
fn a_scenario_runs_between_real_nodes_and_leaves_nothing() {
    let Some(fabric) = Fabric::named() else { return };
    let report = report(&fabric, &["run", SCENARIO, "--set", SLOW, "--set", "workload.size=\"1 MB\"", "--json", "-"]);
    assert_eq!((report["flows"]["finished"].as_u64(), report["end"].as_str()), (Some(4), Some("finished")));
    let delivered = report["packets"]["delivered"].as_u64().expect("a count");
    assert!(delivered >= 4 * 245, "{delivered} packets of 4 KiB hold no four megabytes");
    // A megabyte at 200 Mb/s takes at least 40 ms.
    assert!(report["fct_us"]["min"].as_f64().expect("a time") > 40_000.0, "{}", report["fct_us"]);
    fabric.assert_gone();
}

/// The scenario of a silent failure of plane 1 that begins early in a transfer of [`LONG`] and ends after it, in a
/// file. Commands of the system break the plane, which takes them some time on a busy machine.
fn plane_1_dies(fabric: &Fabric) -> String {
    let file = fabric.scratch().join("faults.toml");
    let scenario = std::fs::read_to_string(SCENARIO).expect("it is there");
    let fault = "\n[[faults]]\nplane = 1\nkind = \"down\"\nsilent = true\nat = \"20 ms\"\nuntil = \"4 s\"\n";
    std::fs::write(&file, scenario + fault).expect("a file");
    file.display().to_string()
}

/// At least 1.28 s over two planes of 100 Mb/s, 2.56 s over one.
const LONG: [&str; 4] = ["--set", SLOW, "--set", "workload.size=\"32 MB\""];

/// Checks that all messages arrived although plane 1 died on the way.
fn outlived(report: &Value) {
    assert_eq!(report["flows"]["finished"].as_u64(), Some(4));
    // The dead plane took packets, which were sent again over the other one.
    assert!(
        report["packets"]["retransmitted"].as_u64().is_some_and(|again| again > 0),
        "{} {}",
        report["packets"],
        report["notes"]
    );
    let carried = |plane: &str| {
        let links = report["links"].as_array().expect("links").iter();
        links
            .filter(|l| l["name"].as_str().is_some_and(|n| n.contains(plane)))
            .filter_map(|l| l["bytes"].as_u64())
            .sum()
    };
    let [living, dead]: [u64; 2] = [".p0", ".p1"].map(carried);
    assert!(dead > 0 && living > dead, "plane 0 carried {living} bytes, plane 1 {dead}; {}", report["notes"]);
    assert!(report["notes"].to_string().contains("after their times"), "{}", report["notes"]);
}

#[test]
fn a_scenario_runs_in_mrcs_published_bytes_and_loses_nothing_when_a_plane_dies() {
    let Some(fabric) = Fabric::named() else { return };
    fabric.good(&["up", SCENARIO, "--set", SLOW, "--layout", "mrc"]);
    let node = std::fs::read_to_string(fabric.folder().join("h0.toml")).expect("a node file");
    assert!(node.contains("layout = \"mrc\""), "{node}");
    let file = plane_1_dies(&fabric);
    let report = report(&fabric, &[&["run", &file, "--layout", "mrc", "--json", "-"][..], &LONG].concat());
    outlived(&report);
}

#[test]
fn a_plane_that_dies_silently_under_a_scenario_costs_no_byte() {
    let Some(fabric) = Fabric::named() else { return };
    fabric.good(&["up", SCENARIO, "--set", SLOW]);
    let file = plane_1_dies(&fabric);
    let report = report(&fabric, &[&["run", &file, "--json", "-"][..], &LONG].concat());
    outlived(&report);
    assert_eq!(fabric.status(&[])["failures"].as_array().map(Vec::len), Some(0), "it is healed afterwards");
}

/// Starts `strandway perf` between two hosts. Returns the connected server with its output, and the client, whose
/// result is its standard output.
fn transfer(fabric: &Fabric, profile: &str, size: &str) -> ((Child, BufReader<ChildStdout>), Child) {
    let node = |host: &str| fabric.folder().join(format!("{host}.toml")).display().to_string();
    let bin = env!("CARGO_BIN_EXE_strandway");
    let spawn = |host: &str, arguments: &[&str]| {
        let file = node(host);
        let fixed = ["exec", host, "--", bin, "perf"];
        let mut command = fabric.command(&[&fixed[..], arguments, &["--node", &file, "--profile", profile]].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
    };
    let mut server = spawn("h2", &["server", "--once"]);
    let mut says = BufReader::new(server.stdout.take().expect("piped"));
    let mut hear = |word: &str| {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert_ne!(says.read_line(&mut line).expect("text"), 0, "it ended before it said: {word}");
        }
    };
    hear("listening");
    let arguments =
        ["client", "h2", "--size", size, "--messages", "1", "--verify", "--seconds", "60", "--interval", "0.01"];
    let client = spawn("h0", &[&arguments[..], &["--json", "-"]].concat());
    hear("a client came");
    ((server, says), client)
}

#[test]
fn a_break_under_a_transfer_loses_no_byte() {
    let Some(fabric) = Fabric::up() else { return };
    for (target, profile) in
        [("switch:p0:t1-1", "mrc"), ("plane:p1", "mrc"), ("port:h0:p0", "mrc"), ("plane:p0", "uec")]
    {
        let ((mut server, _says), client) = transfer(&fabric, profile, "64M");
        std::thread::sleep(Duration::from_millis(500));
        fabric.good(&["fail", target]);
        std::thread::sleep(Duration::from_millis(500));
        fabric.good(&["heal"]);
        let output = client.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{target} under {profile}: {}", said(&output));
        let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(result["messages"].as_u64(), Some(1), "{target} under {profile}: the digest agrees");
        assert!(server.wait().expect("it ends").success());
    }
}

#[test]
fn a_peer_that_is_killed_is_reported_in_time() {
    let Some(fabric) = Fabric::up() else { return };
    let ((mut server, _says), client) = transfer(&fabric, "mrc", "256M");
    std::thread::sleep(Duration::from_millis(500));
    // The namespace's process is the server itself, because `exec` replaces the shell.
    server.kill().expect("it runs");
    server.wait().expect("it is gone");
    let killed = Instant::now();
    let output = client.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    // Three seconds of silence, plus time for a busy machine.
    assert!(killed.elapsed() < Duration::from_secs(40), "{:?}", killed.elapsed());
    assert!(said(&output).contains("fallen silent"), "{}", said(&output));
}

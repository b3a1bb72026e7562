//! `perf` and `doctor` as processes, over loopback.

use super::hosts::{Family, Hosts, run};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

fn strandway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandway"));
    command.args(arguments);
    command
}

/// A server on free ports, its addresses, and the rest of its output.
fn server(arguments: &[&str]) -> (Child, Vec<String>, BufReader<ChildStdout>) {
    let mut child = strandway(&["perf", "server"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("it says where it listens");
    let list = line.strip_prefix("listening on ").and_then(|rest| rest.split(';').next()).expect("addresses");
    (child, list.split(' ').map(String::from).collect(), lines)
}

/// Starts a client, and kills its server when it has come.
pub(super) fn kill_under(client: &mut Command, mut server: Child, mut lines: BufReader<ChildStdout>) -> Child {
    let client = client.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    lines.read_line(&mut line).expect("it says who came");
    assert!(line.starts_with("a client came from"), "{line}");
    server.kill().expect("it can be killed");
    server.wait().expect("it is dead");
    client
}

#[test]
fn a_client_measures_over_two_planes_and_reports_as_json() {
    let (mut child, at, _lines) = server(&["--once", "--plane", "[::1]:0", "--plane", "[::1]:0"]);
    let arguments = ["perf", "client", &at[0], &at[1], "--seconds", "1.2", "--size", "200000", "--json", "-"];
    let output = strandway(&arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!((report["format"].as_u64(), report["kind"].as_str()), (Some(1), Some("bandwidth")));
    assert!(report["goodput_gbps"].as_f64().is_some_and(|rate| rate > 0.0), "{report}");
    assert_eq!(report["plane_gbps"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["seconds"].as_array().map(Vec::len), Some(1));
    assert!(child.wait().expect("it ends").success(), "--once ends the server with its client");
}

#[test]
fn small_messages_are_counted_by_size_and_round_trips_beside_bulk() {
    let (mut child, at, _lines) = server(&["--plane", "[::1]:0"]);
    let report = |arguments: &[&str]| -> serde_json::Value {
        let output = strandway(&["perf", "client", &at[0], "--json", "-"]).args(arguments).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON and nothing else")
    };
    let all = report(&["--all", "--seconds", "0.05"]);
    let sizes: Vec<u64> =
        all["sizes"].as_array().expect("rows").iter().filter_map(|row| row["size"].as_u64()).collect();
    assert_eq!(sizes, (3..=16).map(|power| 1 << power).collect::<Vec<u64>>());
    assert!(all["sizes"][0]["messages_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{all}");
    let beside = report(&["--latency", "--size", "64", "--bulk", "1", "--seconds", "0.3"]);
    assert!(beside["rtt_us"]["p999"].as_f64() >= beside["rtt_us"]["p99"].as_f64(), "{beside}");
    assert!(beside["goodput_gbps"].as_f64().is_some_and(|rate| rate > 0.01), "the wire was full: {beside}");
    child.kill().expect("it can be killed");
    child.wait().expect("it is dead");
}

#[test]
fn tcp_and_tls_are_measured_in_turns_with_ours() {
    let Some(hosts) = Hosts::new(Family::V6, 0) else { return };
    let mut server =
        hosts.strandway(0, &["perf", "server", "--beside"]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("it says where it listens");
    let measured = |more: &[&str]| -> serde_json::Value {
        let client =
            ["perf", "client", "::1", "--beside", "tcp,tls", "--rounds", "2", "--seconds", "0.1", "--json", "-"];
        let output = hosts.strandway(0, &[&client[..], more].concat()).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON and nothing else")
    };
    for (more, value) in [(&[][..], "goodput_gbps"), (&["--latency", "--size", "64"][..], "rtt_us")] {
        let report = measured(more);
        assert_eq!((report["format"].as_u64(), report["kind"].as_str()), (Some(1), Some("beside")));
        let rows = report["rows"].as_array().expect("rows");
        let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
        assert_eq!(names[0], "strandway, encrypted");
        assert!(names.len() == 3 && names[1].starts_with("TCP") && names[2].starts_with("TLS 1.3"), "{names:?}");
        for row in rows {
            let rounds = row["rounds"].as_array().expect("rounds");
            let good = |one: &serde_json::Value| one["p50"].as_f64().or(one.as_f64()).is_some_and(|value| value > 0.0);
            assert!(rounds.len() == 2 && rounds.iter().all(|round| good(&round[value])), "{report}");
        }
        assert!(rows[1..].iter().all(|row| row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0)), "{report}");
    }
    for (more, said) in [
        (&["--latency", "--connections", "4"][..], "take 1 with --latency"),
        (&["--latency", "--size", "17M"], "at most 16777216 with --latency"),
        (&["--connections", "65"], "take 1 to 64"),
        (&["--beside", "quic"], "possible values: tcp, tls"),
        (&["--all"], "cannot be used with"),
    ] {
        let client = ["perf", "client", "::1", "--beside", "tcp", "--seconds", "0.1"];
        let output = hosts.strandway(0, &[&client[..], more].concat()).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(said), "{more:?}: {text}");
        assert!(output.stdout.is_empty(), "{more:?}: refused before anything is measured");
    }
    server.kill().expect("it can be killed");
    server.wait().expect("it is dead");
    // A server without --beside.
    let mut server = hosts.strandway(0, &["perf", "server"]).stdout(Stdio::piped()).spawn().expect("it starts");
    BufReader::new(server.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("it says where it listens");
    let client = ["perf", "client", "::1", "--beside", "tls", "--seconds", "0.1"];
    let output = hosts.strandway(0, &client).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("start `strandway perf server --beside` there"), "{said}");
    server.kill().expect("it can be killed");
    server.wait().expect("it is dead");
}

#[test]
fn a_server_that_is_killed_is_reported_to_its_client() {
    let (child, at, lines) = server(&["--plane", "[::1]:0"]);
    let client = kill_under(&mut strandway(&["perf", "client", &at[0], "--seconds", "60"]), child, lines);
    let began = Instant::now();
    let output = client.wait_with_output().expect("it ends");
    assert!(began.elapsed() < Duration::from_secs(40), "soon: {:?}", began.elapsed());
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    // Depending on the moment, the client notices at the connection, or because an answer is missing.
    assert!(said.contains("fallen silent") || said.contains("stopped answering"), "{said}");
}

#[test]
fn ranks_measure_a_table_and_programs_take_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, table) = (folder.path().join("store/"), folder.path().join("table"));
    let run = |rank: u32| {
        let mut command = strandway(&["perf", "tune", "-n", "1", "--write"]);
        command.arg(&table).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("SLURM_NTASKS", "2").env("SLURM_PROCID", rank.to_string()).env("STRANDWAY_STORE", &store);
        command
    };
    let children: Vec<Child> = (0..2).map(|rank| run(rank).spawn().expect("it starts")).collect();
    for child in children {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let text = std::fs::read_to_string(&table).expect("rank 0 has written it");
    assert!(text.starts_with("# strandway perf tune, 2 ranks\nwhole="), "{text}");
    // A wrong table ends a program before it waits for anybody.
    std::fs::write(&table, "part=7\n").expect("written");
    let output = run(0).env("STRANDWAY_TUNING", &table).output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("line 1: part is \"7\": give a multiple of 64"), "{said}");
    let output = strandway(&["perf", "tune"]).env_clear().output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("SLURM_PROCID"), "{said}");
}

#[test]
fn unsupported_settings_are_refused_with_a_remedy() {
    // Every file of 16 bytes or more is a valid key.
    let key = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for (arguments, status, word) in [
        (vec!["perf", "client", "fd00::1", "--plane", "::2"], 2, "--key FILE"),
        (vec!["perf", "client", "[::1"], 2, "write it as 10.0.0.2, 10.0.0.2:47930, fd00:1::2"),
        (vec!["perf", "client", "10.0.0.2", "--plane", "::1", "--key", key], 2, "take addresses of one family"),
        (vec!["perf", "server", "--plane", "192.0.2.1", "--key", key], 1, "see `ip addr`"),
        (vec!["perf", "client", "::1", "--profile", "tcp"], 2, "strack_fast"),
        (vec!["perf", "client", "::1", "--size", "0"], 2, "1 byte to 1 GiB"),
        (vec!["perf", "client", "::1", "--bulk", "1"], 2, "--latency"),
        (vec!["perf", "client", "::1", "--plane", "::1", "--plane", "::1"], 2, "one for each plane"),
        (vec!["perf", "client", "[::1]:9", "--seconds", "1"], 1, "is a node running at that address"),
        (vec!["perf", "server", "--plane", "2001:db8::1", "--key", key], 1, "ip -6 addr"),
    ] {
        let output = strandway(&arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}

#[test]
fn the_doctor_examines_and_advises() {
    let output = strandway(&["doctor", "--json", "-"]).output().expect("it runs");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let findings = report["findings"].as_array().expect("a list");
    assert!(findings.len() >= 10, "{report}");
    let missing = findings.iter().any(|finding| finding["verdict"] == "missing");
    assert_eq!(output.status.code(), Some(i32::from(missing)), "{report}");
}

#[test]
fn a_link_that_goes_down_between_two_hosts_stops_neither_transfer_nor_application() {
    a_link_goes_down(Family::V6);
}

#[test]
fn a_link_that_goes_down_between_two_hosts_of_ipv4_stops_neither_transfer_nor_application() {
    a_link_goes_down(Family::V4);
}

fn a_link_goes_down(family: Family) {
    let Some(hosts) = Hosts::new(family, 2) else { return };
    let key = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let arguments = ["perf", "client", &hosts.address(0, 1), "--key", key, "--plane", &hosts.address(0, 0)];
    let large = hosts.strandway(0, &arguments).args(["--payload", "4096"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&large.stderr);
    assert_eq!(large.status.code(), Some(1), "{said}");
    assert!(said.contains("lower the payload size"), "a payload beyond the MTU of 1500 is found out: {said}");
    let at: Vec<String> = (0..4).map(|i| hosts.address(i % 2, i / 2)).collect();
    let mut server = hosts
        .strandway(1, &["perf", "server", "--once", "--key", key, "--plane", &at[2], "--plane", &at[3]])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("it listens");
    let arguments = ["perf", "client", &at[2], &at[3], "--key", key, "--plane", &at[0], "--plane", &at[1]];
    let mut client = hosts
        .strandway(0, &arguments)
        .args(["--seconds", "3.2", "--json", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // Two lines of heading, then the first second.
    let mut lines = BufReader::new(client.stderr.take().expect("a pipe")).lines();
    let first = lines.nth(2).expect("a second passes").expect("text");
    run("ip", &["-n", &hosts.names[0], "link", "set", "p0", "down"]).expect("it was up");
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let output = client.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{first} {rest:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let seconds = report["seconds"].as_array().expect("a list");
    assert_eq!(seconds[0]["planes_up"], serde_json::json!([true, true]), "{report}");
    let last = seconds.last().expect("three seconds");
    assert_eq!(last["planes_up"], serde_json::json!([false, true]), "the dead plane is left alone: {report}");
    assert!(last["goodput_gbps"].as_f64() > Some(0.0), "{report}");
    assert_eq!(last["plane_gbps"][0], 0.0, "{report}");
    assert!(server.wait().expect("it ends").success());
}

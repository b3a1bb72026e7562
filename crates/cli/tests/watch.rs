//! Figures of running programs: served as OpenMetrics text and as a status, read by a client of others, shown by `top`.

mod programs;

use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A program that is ended with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn strandway(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandway"));
    command.args(arguments).env("STRANDWAY_METRICS", place).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ask(place: &Path, what: &str) -> Option<String> {
    let mut stream = UnixStream::connect(place).ok()?;
    stream.write_all(format!("GET {what} HTTP/1.1\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_string())
}

fn until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The value of the first sample that begins so.
fn value(text: &str, begin: &str) -> Option<f64> {
    text.lines().find(|line| line.starts_with(begin))?.rsplit(' ').next()?.parse().ok()
}

/// The judgement of the parser of Prometheus' own Python client on a text; `None` without that client.
fn judged_by_prometheus(text: &str) -> Option<Output> {
    const SCRIPT: &str = "import sys\nfrom prometheus_client.openmetrics import parser\n\
        families = list(parser.text_string_to_metric_families(sys.stdin.read()))\n\
        print(len(families), sum(len(f.samples) for f in families))\n\
        assert all(f.documentation and f.type in ('counter', 'gauge') for f in families)\n";
    let python = std::env::var_os("STRANDWAY_PYTHON").unwrap_or("python3".into());
    let has = Command::new(&python).args(["-c", "import prometheus_client"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no prometheus_client (pip install prometheus_client, STRANDWAY_PYTHON)");
        return None;
    }
    let mut child = Command::new(&python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    child.stdin.take().expect("its input").write_all(text.as_bytes()).expect("it reads");
    Some(child.wait_with_output().expect("it ends"))
}

#[test]
fn a_server_and_its_client_serve_their_figures_and_top_shows_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let (place, sockets) = (folder.path().join("server.sock"), folder.path().join("clients/"));
    let port = std::net::UdpSocket::bind("[::1]:0").expect("a port").local_addr().expect("an address").port();
    let at = format!("[::1]:{port}");
    let server = strandway(&place, &["perf", "server", "--plane", &at]).spawn().expect("it runs");
    let _server = Running(server);
    until("the server serves", || ask(&place, "/metrics"));
    let client = strandway(
        Path::new(&format!("{}/", sockets.display())),
        &["perf", "client", &at, "--size", "64K", "--seconds", "30"],
    );
    let mut client = Running({ client }.spawn().expect("it runs"));
    let text = until("bytes arrive", || {
        ask(&place, "/metrics").filter(|text| {
            value(text, "strandway_peer_delivered_bytes_total").is_some_and(|bytes| bytes > 1e6)
                && text.contains("strandway_peer_rtt_seconds{")
        })
    });
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert!(value(&text, "strandway_plane_port_up{part=\"node1\",plane=\"p0\"}") == Some(1.0), "{text}");
    if let Some(judged) = judged_by_prometheus(&text) {
        assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));
    }
    let socket = until("the client serves", || {
        let own = std::fs::read_dir(&sockets).ok()?.next()?.ok()?.path();
        ask(&own, "/status").map(|_| own)
    });
    assert_eq!(socket.file_name().and_then(|name| name.to_str()), Some(&*format!("{}.sock", client.0.id())));
    let top = strandway(Path::new(""), &["top", &place.display().to_string(), &sockets.display().to_string()])
        .args(["--once", "--json", "-"])
        .output()
        .expect("it runs");
    assert_eq!(top.status.code(), Some(0), "{}", String::from_utf8_lossy(&top.stderr));
    let all: Value = serde_json::from_slice(&top.stdout).expect("JSON");
    assert_eq!(all["processes"].as_array().map(Vec::len), Some(2), "{all}");
    let shown = String::from_utf8_lossy(&top.stderr).into_owned();
    assert!(shown.contains("node1: ") && shown.contains("p0 up"), "{shown}");
    let _ = client.0.kill();
    let _ = client.0.wait();
    let silent = strandway(Path::new(""), &["top", &socket.display().to_string(), "--once"]).output().expect("it runs");
    assert_eq!(silent.status.code(), Some(1), "its socket is left, and nobody answers");
    assert!(String::from_utf8_lossy(&silent.stderr).contains("nobody answers"));
}

#[test]
fn a_place_that_cannot_be_served_stops_a_program_with_the_remedy() {
    for (place, said) in [("10.1.2.3:9464", "no loopback address"), ("nonsense", "neither an address nor a path")] {
        let refused = strandway(Path::new(place), &["perf", "server", "--plane", "[::1]:0"]).output().expect("it runs");
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && text.contains(said) && text.contains("STRANDWAY_METRICS"), "{text}");
    }
}

#[test]
fn the_dashboard_asks_for_families_that_exist_and_every_family_has_a_sentence() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dashboard = std::fs::read_to_string(root.join("docs/grafana/strandway.json")).expect("a dashboard");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let mut known = BTreeSet::new();
    for file in ["udp/src/node/watching.rs", "udp/src/watch.rs", "group/src/process/engine/watching.rs"]
        .into_iter()
        .chain(["files/src/watching.rs", "aggregator/src/watching.rs"])
    {
        let text = std::fs::read_to_string(root.join("crates").join(file)).expect("a source");
        for line in text.lines().map(str::trim) {
            let words: Vec<&str> = line.split('"').collect();
            match words[..] {
                [_, name, kind, help, ..] if [" Counter ", " Gauge "].contains(&kind) => {
                    assert!(help.ends_with('.'), "{name}: {help}");
                    let suffix = if kind == " Counter " { "_total" } else { "" };
                    assert!(known.insert(format!("strandway_{name}{suffix}")), "{name} twice");
                }
                [begin, name, ..] if begin.ends_with("name: ") && name.starts_with("strandway_s") => {
                    known.insert(name.to_string());
                }
                _ => {}
            }
        }
    }
    assert!(known.len() > 50, "{known:?}");
    let mut asked = BTreeSet::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let expression = target["expr"].as_str().expect("an expression");
            let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            asked.extend(words.filter(|word| word.starts_with("strandway_")).map(String::from));
        }
    }
    let unknown: Vec<&String> = asked.difference(&known).collect();
    assert!(unknown.is_empty() && asked.len() >= 15, "{unknown:?} of {asked:?}");
}

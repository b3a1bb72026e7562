//! The figures of `copy`, `cast` and `switch` while they work.

use super::{Running, ask, judged_by_prometheus, strandway, until, value};
use crate::switch::{Folder, ports, start_rank};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Starts a program that says where it listens in its first line, and returns that place.
fn start_listener(place: &Path, arguments: &[&str]) -> (Running, String) {
    let mut child = Running(strandway(place, arguments).spawn().expect("it starts"));
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("it says where it listens");
    let at = line.split(" on ").nth(1).and_then(|rest| rest.trim().split(';').next()).expect("an address");
    (child, at.to_string())
}

/// The OpenMetrics text of a program, once `wanted` is true of it. Prometheus' own parser reads it, too.
fn text_when(place: &Path, what: &str, wanted: impl Fn(&str) -> bool) -> String {
    let text = until(what, || ask(place, "/metrics").filter(|text| wanted(text)));
    assert!(text.ends_with("# EOF\n"), "{text}");
    if let Some(judged) = judged_by_prometheus(&text) {
        assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));
    }
    text
}

/// The status of the part of this kind.
fn part(place: &Path, kind: &str) -> Option<Value> {
    let all: Value = serde_json::from_str(&ask(place, "/status")?).ok()?;
    all["parts"].as_array()?.iter().find(|part| part["kind"] == kind).cloned()
}

/// A file of this number of megabytes, to be sent at 40 Mb/s: five megabytes per second.
fn file(folder: &Path, megabytes: usize) -> String {
    let path = folder.join("file");
    std::fs::write(&path, vec![7; megabytes * 1_000_000]).expect("a file");
    path.display().to_string()
}

fn folder_in(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::create_dir(&path).expect("a folder");
    path
}

#[test]
fn a_copy_tells_its_progress_while_it_sends() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("copy.sock");
    let there = folder_in(folder.path(), "there").display().to_string();
    let (_server, at) = start_listener(Path::new(""), &["copy", "--serve", &there, "--plane", "[::1]:0"]);
    let source = file(folder.path(), 100);
    let copy = ["copy", &source, &format!("{at}:"), "--rate", "40Mbps"];
    let _copy = Running(strandway(&place, &copy).spawn().expect("it starts"));
    let sent = |text: &str| value(text, "strandway_copy_sent_bytes_total{").unwrap_or(0.0);
    let text = text_when(&place, "bytes arrive", |text| sent(text) > 0.0);
    assert_eq!(value(&text, "strandway_copy_all_bytes{"), Some(1e8), "{text}");
    let more = text_when(&place, "more bytes arrive", |more| sent(more) > sent(&text));
    assert!(sent(&more) < 1e8, "{more}");
    let state = part(&place, "copy").expect("its status")["state"].clone();
    assert!(state["done_bytes"].as_f64() >= Some(sent(&more)) && state["files"] == 1, "{state}");
}

#[test]
fn a_cast_renews_its_figures_while_it_sends_a_batch() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("cast.sock");
    let there = folder_in(folder.path(), "there").display().to_string();
    let (_receiver, at) = start_listener(Path::new(""), &["cast", "--receive", &there, "--once", "--plane", "[::1]:0"]);
    let source = file(folder.path(), 100);
    let cast = ["cast", &source, "--to", &at, "--plane", "[::1]:0", "--rate", "40Mbps"];
    let _cast = Running(strandway(&place, &cast).spawn().expect("it starts"));
    let is_sending = |text: &str| {
        value(text, "strandway_plane_sent_bytes_total{").is_some_and(|bytes| bytes > 1e6)
            && value(text, "strandway_cast_receivers{part=\"cast2\",state=\"receives\"}") == Some(1.0)
    };
    text_when(&place, "the first batch is under way", is_sending);
    // A batch of 16 MiB takes seconds; the figures' age falls each time that they are renewed.
    let (mut age, mut renewed, mut batches) = (f64::MAX, 0, None);
    until("figures are renewed three times within one batch", || {
        let part = part(&place, "cast")?;
        let (now, sent) = (part["age_s"].as_f64()?, part["state"]["cast_bytes"].as_u64()?);
        if batches.replace(sent) != Some(sent) {
            (age, renewed) = (f64::MAX, 0);
        }
        renewed += u32::from(now < age);
        age = now;
        (renewed > 3).then_some(())
    });
    let sent = |text: &str| value(text, "strandway_cast_sent_bytes_total{").unwrap_or(0.0);
    let text = text_when(&place, "a batch has been cast", |text| sent(text) > 0.0);
    assert!(value(&text, "strandway_cast_all_bytes{") == Some(1e8) && sent(&text) < 1e8, "{text}");
}

#[test]
fn a_switch_counts_the_sums_of_its_jobs() {
    let (folder, port) = (Folder::new("watched-switch"), ports(3));
    let place = PathBuf::from(folder.path("metrics.sock"));
    let listen = format!("[::1]:{port}");
    let switch = ["switch", "--listen", &listen, "--socket", &folder.path("socket"), "--slots", "256"];
    let _switch = Running(strandway(&place, &switch).spawn().expect("it starts"));
    text_when(&place, "the switch serves", |text| value(text, "strandway_switch_slots{") == Some(256.0));
    let mut ranks: Vec<Running> = (0..2).map(|rank| Running(start_rank(&folder, port, rank, "3"))).collect();
    let sums = |text: &str| value(text, "strandway_switch_job_completed_sums_total{").unwrap_or(0.0);
    let text = text_when(&place, "sums are completed", |text| sums(text) > 0.0);
    // The session may be over by now.
    assert!(value(&text, "strandway_switch_job_sessions_total{") >= Some(1.0), "{text}");
    let state = part(&place, "switch").expect("its status")["state"].clone();
    assert!(state["jobs"][0]["completed"].as_f64() >= Some(sums(&text)), "{state}");
    for rank in &mut ranks {
        assert!(rank.0.wait().expect("it ends").success());
    }
}

//! A rank that is late is named to those who watch: which call waits for it, since when, and by which way.

use std::io::{Read, Write};
use std::net::SocketAddrV6;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use strandway_group::process::{Group, GroupOptions, Process, ProcessOptions, Reduction, Values};

/// How long rank 1 is late: long enough to be seen several times on a busy machine.
const LATE: Duration = Duration::from_secs(6);

/// The watched process: it is started by the test below, with the variable that switches the service on.
#[test]
#[ignore = "a part of the test below"]
fn two_ranks_of_which_one_is_late() {
    let store = Values::default();
    let ranks: Vec<_> = (0..2)
        .map(|rank| {
            let mut store = store.clone();
            std::thread::spawn(move || {
                let plane: SocketAddrV6 = "[::1]:0".parse().expect("an address");
                let options = ProcessOptions { shared_memory: false, ..ProcessOptions::on(vec![plane]) };
                let process = Process::join(&mut store, rank, &options).expect("joined");
                let group = Group::form(&process, &mut store, rank, 2, GroupOptions::default()).expect("a group");
                let mut numbers = [1.0f32; 4];
                group.all_reduce(&mut numbers, Reduction::Sum).expect("a sum");
                if rank == 1 {
                    std::thread::sleep(LATE);
                }
                group.all_reduce(&mut numbers, Reduction::Sum).expect("a sum");
                assert_eq!(numbers, [4.0; 4]);
            })
        })
        .collect();
    ranks.into_iter().for_each(|rank| rank.join().expect("it ends well"));
}

fn ask(place: &std::path::Path, what: &str) -> Option<String> {
    let mut stream = UnixStream::connect(place).ok()?;
    stream.write_all(format!("GET {what} HTTP/1.1\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn a_late_rank_is_named_with_the_call_that_waits_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("ranks.sock");
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program)
        .args(["--ignored", "--exact", "process::watched::two_ranks_of_which_one_is_late"])
        .env("STRANDWAY_METRICS", &place)
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs");
    let (began, mut named) = (Instant::now(), None);
    while child.try_wait().expect("it can be asked").is_none() {
        if named.is_none() {
            named = ask(&place, "/status")
                .filter(|status| status.contains("has not moved for"))
                .map(|status| (status, ask(&place, "/metrics").unwrap_or_default()));
        }
        assert!(began.elapsed() < Duration::from_secs(120), "it does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(child.wait().expect("it has ended").success());
    let (status, metrics) = named.expect("the wait was seen");
    for part in [
        "rank 0: all_reduce 1 has not moved for",
        "it waits for rank 1 at ",
        "plane p0 up",
        "\"waits_for\":[{\"rank\":1",
    ] {
        assert!(status.contains(part), "{part} in {status}");
    }
    for part in ["strandway_group_calls_finished_total{", "strandway_call_idle_seconds{", "awaited=\"1\""] {
        assert!(metrics.contains(part), "{part} in {metrics}");
    }
}

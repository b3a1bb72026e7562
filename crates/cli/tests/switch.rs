//! `strandway switch` as a process, and ranks that use it: exact sums, its status, and what happens when it is killed.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that is killed when the test ends.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn strandway(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandway"));
    command.args(words);
    command
}

/// A directory for one test, removed at its end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("strandway-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("plain names").to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Ports that probably no other process uses. Those from 31,000 on belong to `switch_chaos`.
pub(crate) fn ports(test: u16) -> u16 {
    20_000 + (std::process::id() as u16 % 500) * 20 + test * 10
}

fn start_switch(folder: &Folder, port: u16, system: &str) -> Process {
    start_with(folder, "socket", port, &["--system", system])
}

/// A switch at this port, with its status socket in the folder.
fn start_with(folder: &Folder, socket: &str, port: u16, more: &[&str]) -> Process {
    let (listen, socket) = (format!("[::1]:{port}"), folder.path(socket));
    let words = ["switch", "--listen", &listen, "--socket", &socket, "--slots", "256"];
    let child = strandway(&words).args(more).stdout(Stdio::null()).spawn().expect("it starts");
    let until = Instant::now() + Duration::from_secs(20);
    while !strandway(&["switch", "status", "--socket", &socket]).output().expect("it runs").status.success() {
        assert!(Instant::now() < until, "the switch answers");
        std::thread::sleep(Duration::from_millis(30));
    }
    Process(child)
}

pub(crate) fn start_rank(folder: &Folder, port: u16, rank: u16, runs: &str) -> Child {
    start_rank_at(folder, port, port, rank, runs)
}

/// A rank whose own address is below the port `first`, and whose switch is at the port `at`.
fn start_rank_at(folder: &Folder, first: u16, at: u16, rank: u16, runs: &str) -> Child {
    let ranks = folder.path("ranks");
    let lines: Vec<String> = (0..2).map(|rank| format!("[::1]:{}\n", first - 1 - rank)).collect();
    // Only rank 0 writes the file: rank 0 may read it while the test starts rank 1.
    if rank == 0 {
        std::fs::write(&ranks, lines.concat()).expect("a file");
    }
    let (rank, out, at) = (rank.to_string(), folder.path(&format!("out{rank}")), format!("[::1]:{at}"));
    let words = ["perf", "collective", "all-reduce", "--algorithm", "in-network", "--switch", &at, "--ranks", &ranks];
    let more = ["--rank", &rank, "-b", "256K", "-e", "256K", "-n", runs, "--json", &out, "--join-patience", "10s"];
    strandway(&words).args(more).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// Waits until a switch has sent this many complete sums of job 1.
fn until_completed(folder: &Folder, socket: &str, sums: u64) {
    let socket = folder.path(socket);
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let status = strandway(&["switch", "status", "--json", "--socket", &socket]).output().expect("it runs").stdout;
        let status: serde_json::Value = serde_json::from_slice(&status).expect("JSON");
        if status["jobs"][0]["completed"].as_u64().is_some_and(|completed| completed > sums) {
            return;
        }
        assert!(Instant::now() < until, "the ranks begin: {status}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn result(folder: &Folder, rank: u16) -> serde_json::Value {
    let text = std::fs::read_to_string(folder.path(&format!("out{rank}"))).expect("it was written");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn ranks_add_up_by_a_switch_that_tells_what_it_does() {
    let (folder, port) = (Folder::new("switch"), ports(0));
    for system in ["esa", "atp", "switchml"] {
        let switch = start_switch(&folder, port, system);
        let ranks: Vec<Child> = (0..2).map(|rank| start_rank(&folder, port, rank, "3")).collect();
        for rank in ranks {
            let output = rank.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        for rank in 0..2 {
            let result = result(&folder, rank);
            assert_eq!(result["fragments"]["system"], system);
            assert_eq!((&result["sizes"][0]["right"], &result["sizes"][0]["by_ring"]), (&true.into(), &0.into()));
        }
        let words = ["switch", "status", "--json", "--socket", &folder.path("socket")];
        let status = strandway(&words).output().expect("it runs").stdout;
        let status: serde_json::Value = serde_json::from_slice(&status).expect("JSON");
        // Five runs of 256 fragments from two ranks.
        assert_eq!((&status["system"], &status["jobs"][0]["sessions"]), (&system.into(), &1.into()));
        assert!(status["jobs"][0]["merged"].as_u64().is_some_and(|merged| merged > 2_000), "{status}");
        drop(switch);
    }
}

#[test]
fn ranks_go_on_by_a_ring_when_the_switch_is_killed() {
    let (folder, port) = (Folder::new("switch-killed"), ports(1));
    let switch = start_switch(&folder, port, "esa");
    let ranks: Vec<Child> = (0..2).map(|rank| start_rank(&folder, port, rank, "300")).collect();
    let socket = folder.path("socket");
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let status = strandway(&["switch", "status", "--json", "--socket", &socket]).output().expect("it runs").stdout;
        let status: serde_json::Value = serde_json::from_slice(&status).expect("JSON");
        if status["jobs"][0]["merged"].as_u64().is_some_and(|merged| merged > 1_000) {
            break;
        }
        assert!(Instant::now() < until, "the ranks begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(switch);
    for rank in ranks {
        let output = rank.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for rank in 0..2 {
        let size = &result(&folder, rank)["sizes"][0];
        assert_eq!(size["right"], true, "exact by the ring, too");
        assert!(size["by_ring"].as_u64().is_some_and(|runs| (1..302).contains(&runs)), "{size}");
    }
}

/// Two racks with a rank each, a switch that adds them up, and the parameter server: five processes beside the ranks.
#[test]
fn racks_and_a_server_apart_are_processes_that_may_be_killed() {
    let (folder, port) = (Folder::new("switch-racks"), ports(2));
    let [first, second] = [port + 3, port + 6];
    let parent = format!("[::1]:{port}");
    let _top = start_with(&folder, "top", port, &["--racks", "--server-apart", "--lose", "0.01"]);
    let serve = || {
        let words = ["switch", "server", "--switch", &parent];
        Process(strandway(&words).stdout(Stdio::null()).spawn().expect("it starts"))
    };
    let rack = |at: u16| start_with(&folder, &format!("rack{at}"), at, &["--parent", &parent, "--lose", "0.01"]);
    let (server, _one, other) = (serve(), rack(first), rack(second));
    let ranks = |runs| [(0, first), (1, second)].map(|(rank, at)| start_rank_at(&folder, port, at, rank, runs));
    let right = |ranks: [Child; 2]| {
        for rank in ranks {
            let output = rank.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let sizes = [0, 1].map(|rank| result(&folder, rank)["sizes"][0].clone());
        assert!(sizes.iter().all(|size| size["right"] == true), "{sizes:?}");
        sizes.map(|size| size["by_ring"].as_u64().expect("a number"))
    };
    let running = ranks("60");
    until_completed(&folder, "top", 500);
    drop(server);
    std::thread::sleep(Duration::from_millis(200));
    let _server = serve();
    assert_eq!(right(running), [0, 0], "ESA goes on with the next server");
    let running = ranks("300");
    until_completed(&folder, "top", 20_000);
    drop(other);
    assert!(right(running).iter().all(|&runs| runs > 0), "the ranks go on by a ring");
}

#[test]
fn missing_parts_are_named() {
    let said = |words: &[&str]| {
        let output = strandway(words).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = said(&["switch", "--listen", "fd00::1"]);
    assert!(code == Some(2) && text.contains("each job needs a key: --job 1=KEYFILE"), "{text}");
    let (code, text) = said(&["switch", "--slots", "1"]);
    assert!(code == Some(2) && text.contains("1 slots: take 2"), "{text}");
    let (code, text) = said(&["switch", "--system", "switchml", "--server-apart"]);
    assert!(code == Some(2) && text.contains("SwitchML has none"), "{text}");
    let (code, text) = said(&["switch", "--racks", "--parent", "::1"]);
    assert!(code == Some(2) && text.contains("cannot be used with"), "{text}");
    let (code, text) = said(&["switch", "server", "--switch", "fd00::1"]);
    assert!(code == Some(2) && text.contains("needs --job-key FILE"), "{text}");
    let (code, text) = said(&["switch", "--job", "1"]);
    assert!(code == Some(2) && text.contains("write it as 1=KEYFILE"), "{text}");
    let (code, text) = said(&["switch", "status", "--socket", "nowhere.sock"]);
    assert!(code == Some(1) && text.contains("no switch answers at nowhere.sock"), "{text}");
}

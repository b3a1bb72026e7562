//! Ranks that add up by a switch, or by racks, while fragments are lost and processes are stopped or killed at random
//! moments: a rank ends with right sums or with a sentence, and nothing hangs. `CHAOS=500` runs that many rounds.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use strandway_proto::rng::{Random, StreamKind};

const RANKS: u16 = 3;
/// A rank without an end after this time hangs. The patience with a dead rank is 8 s, and a machine may be busy.
const HANGS: Duration = Duration::from_secs(120);

/// A process that is killed when the test ends.
struct Process(Child);

impl Process {
    fn signal(&self, name: &str) {
        let _ = Command::new("kill").args([name, &self.0.id().to_string()]).stderr(Stdio::null()).status();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("strandway-switch-chaos-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("plain names").to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn strandway(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandway"));
    command.args(words).stdout(Stdio::null());
    command
}

fn start_switch(folder: &Folder, port: u16, more: &[&str]) -> Process {
    let (listen, socket) = (format!("[::1]:{port}"), folder.path(&format!("socket{port}")));
    let words = ["switch", "--listen", &listen, "--socket", &socket, "--slots", "256"];
    let process = Process(strandway(&words).args(more).spawn().expect("it starts"));
    let until = Instant::now() + Duration::from_secs(30);
    let status = ["switch", "status", "--socket", &socket];
    while !strandway(&status).stderr(Stdio::null()).status().expect("it runs").success() {
        assert!(Instant::now() < until, "the switch answers");
        std::thread::sleep(Duration::from_millis(30));
    }
    process
}

/// Waits until numbers have come to the switch at this port: all ranks have joined.
fn until_lanes(folder: &Folder, port: u16) {
    let socket = folder.path(&format!("socket{port}"));
    let until = Instant::now() + HANGS;
    loop {
        let mut status = strandway(&["switch", "status", "--json", "--socket", &socket]);
        let status = status.stdout(Stdio::piped()).output().expect("it runs").stdout;
        let status: serde_json::Value = serde_json::from_slice(&status).expect("JSON");
        if status["ports"][0]["lane_bytes"].as_u64() > Some(0) {
            return;
        }
        assert!(Instant::now() < until, "the ranks begin: {status}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The fault of one process in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    StopRank(u16, u64),
    KillRank(u16),
    StopSwitch(usize, u64),
    KillSwitch(usize),
}

fn round(folder: &Folder, seed: u64) {
    let mut random = Random::new(seed, StreamKind::Workload, 1);
    let mut below = |bound: u32| random.below(bound);
    let system = ["esa", "atp", "switchml"][below(3) as usize];
    let racks = below(2) == 1;
    let lose = ["0", "0.01", "0.03"][below(3) as usize];
    // Apart from each other in successive rounds: a killed switch may leave its ports for a moment.
    let port = 31_000 + (std::process::id() as u16 % 100) * 40 + (seed % 4) as u16 * 10;
    let first = format!("[::1]:{port}");
    let with = ["--system", system, "--lose", lose];
    let mut switches = match racks {
        false => vec![start_switch(folder, port, &with)],
        true => vec![start_switch(folder, port, &[&with[..], &["--racks"]].concat())],
    };
    if racks {
        for at in [port + 3, port + 6] {
            switches.push(start_switch(folder, at, &[&with[..], &["--parent", &first]].concat()));
        }
    }
    let places: Vec<u16> = (0..RANKS).map(|rank| if racks { port + 3 * (1 + rank % 2) } else { port }).collect();
    let ranks = folder.path("ranks");
    let lines: Vec<String> = (0..RANKS).map(|rank| format!("[::1]:{}\n", port - 1 - rank)).collect();
    std::fs::write(&ranks, lines.concat()).expect("a file");
    let started = Instant::now();
    let mut running: Vec<Process> = Vec::new();
    for (rank, place) in (0..RANKS).zip(&places) {
        let (rank, at) = (rank.to_string(), format!("[::1]:{place}"));
        let out = folder.path(&format!("out{rank}"));
        let _ = std::fs::remove_file(&out);
        let words =
            ["perf", "collective", "all-reduce", "--algorithm", "in-network", "--switch", &at, "--ranks", &ranks];
        let more = ["--rank", &rank, "-b", "64K", "-e", "64K", "-n", "150", "--json", &out, "--join-patience", "20s"];
        let more = [&more[..], &["--patience", "8s", "--lose", lose]].concat();
        running.push(Process(strandway(&words).args(more).stderr(Stdio::piped()).spawn().expect("it starts")));
    }
    until_lanes(folder, port);
    std::thread::sleep(Duration::from_millis(u64::from(below(1_500))));
    let stop = [50, 500, 1_500, 3_000][below(4) as usize];
    let rank = below(u32::from(RANKS)) as u16;
    let switch = below(switches.len() as u32) as usize;
    let faults = [
        Fault::None,
        Fault::StopRank(rank, stop),
        Fault::KillRank(rank),
        Fault::StopSwitch(switch, stop),
        Fault::KillSwitch(switch),
    ];
    let fault = faults[below(faults.len() as u32) as usize];
    let what = format!("seed {seed}: {system}, racks {racks}, loss {lose}, {fault:?}");
    let pause = |process: &Process, time: u64| {
        process.signal("-STOP");
        std::thread::sleep(Duration::from_millis(time));
        process.signal("-CONT");
    };
    match fault {
        Fault::None => {}
        Fault::StopRank(rank, time) => pause(&running[usize::from(rank)], time),
        Fault::KillRank(rank) => running[usize::from(rank)].signal("-KILL"),
        Fault::StopSwitch(switch, time) => pause(&switches[switch], time),
        Fault::KillSwitch(switch) => switches[switch].signal("-KILL"),
    }
    let mut ends = Vec::new();
    for (rank, process) in running.iter_mut().enumerate() {
        let status = loop {
            match process.0.try_wait().expect("it is ours") {
                Some(status) => break status,
                None if started.elapsed() > HANGS => panic!("{what}: rank {rank} hangs"),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let mut text = String::new();
        let stderr = process.0.stderr.as_mut().expect("a pipe");
        std::io::Read::read_to_string(stderr, &mut text).expect("text");
        ends.push((status, text));
    }
    for (rank, (status, text)) in (0..).zip(&ends) {
        assert!(!text.contains("wrong") && !text.contains("panicked"), "{what}: rank {rank}: {text}");
        if status.success() {
            let out = std::fs::read_to_string(folder.path(&format!("out{rank}"))).expect("it was written");
            let out: serde_json::Value = serde_json::from_str(&out).expect("JSON");
            assert_eq!(out["sizes"][0]["right"], true, "{what}: rank {rank}: {out}");
            continue;
        }
        // Only a rank that has died keeps the others from their sums, and they say so.
        let excused = matches!(fault, Fault::KillRank(_));
        assert!(excused && (!text.is_empty() || fault == Fault::KillRank(rank)), "{what}: rank {rank}: {text}");
    }
    for (at, switch) in switches.iter_mut().enumerate() {
        let ended = switch.0.try_wait().expect("it is ours");
        assert!(ended.is_none() || fault == Fault::KillSwitch(at), "{what}: switch {at} has ended: {ended:?}");
    }
}

#[test]
fn ranks_of_a_switch_have_right_sums_or_say_why_not_whatever_process_stops() {
    let rounds = std::env::var("CHAOS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let first = std::env::var("CHAOS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let folder = Folder::new();
    for seed in first..first + rounds {
        round(&folder, seed);
    }
}

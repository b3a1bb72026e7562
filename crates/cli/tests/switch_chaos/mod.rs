//! Ranks that add up by a switch, or by racks, while fragments are lost, processes are stopped or killed, paths are cut
//! in one direction or both, and MTUs shrink, at random moments: a rank ends with right sums or with a sentence, and
//! nothing hangs. `CHAOS=500` runs that many rounds, `CHAOS_SEED=7` begins with that seed. Cuts need network
//! namespaces, and so root.

mod hosts;

use super::switch::{Folder, Process};
use hosts::{Hosts, Spread, Way};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use strandway_proto::rng::{Random, StreamKind};

const RANKS: usize = 3;
/// The host of rank 0; switches are at those before it.
const RANK: usize = 3;
/// A rank without an end after this time hangs. The patience with a dead rank is 15 s, and a machine may be busy.
const HANGS: Duration = Duration::from_secs(240);

impl Process {
    fn signal(&self, name: &str) {
        let _ = Command::new("kill").args([name, &self.0.id().to_string()]).stderr(Stdio::null()).status();
    }

    /// Its text on standard error; it has ended.
    fn said(&mut self) -> String {
        let mut text = String::new();
        let stderr = self.0.stderr.as_mut().expect("a pipe");
        std::io::Read::read_to_string(stderr, &mut text).expect("text");
        text
    }
}

fn strandway(words: &[&str]) -> Command {
    Hosts::Loopback.strandway(0, words)
}

/// A switch at a host, with its key if it needs one.
fn start_switch(folder: &Folder, hosts: &Hosts, host: usize, port: u16, more: &[&str]) -> Process {
    let (listen, socket) = (format!("{}:{port}", hosts.address(host)), folder.path(&format!("socket{port}")));
    let words = ["switch", "--listen", &listen, "--socket", &socket, "--slots", "256"];
    let job = format!("1={}", folder.path("key"));
    let key: &[&str] = if matches!(hosts, Hosts::Spread(_)) { &["--job", &job] } else { &[] };
    let process = Process(hosts.strandway(host, &words).args(key).args(more).spawn().expect("it starts"));
    let until = Instant::now() + Duration::from_secs(30);
    let status = ["switch", "status", "--socket", &socket];
    while !strandway(&status).stderr(Stdio::null()).status().expect("it runs").success() {
        assert!(Instant::now() < until, "the switch answers");
        std::thread::sleep(Duration::from_millis(30));
    }
    process
}

/// Waits until numbers have come to the switch at this port: all ranks have joined. Or a rank has ended: why.
fn until_lanes(folder: &Folder, port: u16, running: &mut [Process]) -> Result<(), String> {
    let socket = folder.path(&format!("socket{port}"));
    let until = Instant::now() + HANGS;
    loop {
        let mut status = strandway(&["switch", "status", "--json", "--socket", &socket]);
        let status = status.stdout(Stdio::piped()).output().expect("it runs").stdout;
        let status: serde_json::Value = serde_json::from_slice(&status).expect("JSON");
        if status["ports"][0]["lane_bytes"].as_u64() > Some(0) {
            return Ok(());
        }
        for process in running.iter_mut() {
            if process.0.try_wait().expect("it is ours").is_some() {
                return Err(process.said());
            }
        }
        assert!(Instant::now() < until, "the ranks begin: {status}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The fault of a round. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    StopRank(usize, u64),
    KillRank(usize),
    StopSwitch(usize, u64),
    KillSwitch(usize),
    /// Packets from or to a host are lost without a word, for a while or for good.
    Cut(usize, Way, Option<u64>),
    /// Packets with fragments do not fit a host's interface, for a while or for good.
    Shrink(usize, Option<u64>),
}

impl Fault {
    /// A fault that this seed chooses, if there are this number of switches.
    fn choose(below: &mut impl FnMut(u32) -> u32, switches: usize, cuts: bool) -> Fault {
        let stop = [50, 500, 1_500, 3_000][below(4) as usize];
        let rank = below(RANKS as u32) as usize;
        let switch = below(switches as u32) as usize;
        let faults = [
            Fault::None,
            Fault::StopRank(rank, stop),
            Fault::KillRank(rank),
            Fault::StopSwitch(switch, stop),
            Fault::KillSwitch(switch),
        ];
        if !cuts || below(4) == 0 {
            return faults[below(faults.len() as u32) as usize];
        }
        let host = if below(2) == 0 { RANK + rank } else { switch };
        let time = (below(3) > 0).then_some(stop);
        match below(3) {
            0 => Fault::Shrink(host, time),
            1 => Fault::Cut(host, Way::All, time),
            _ => Fault::Cut(host, if below(2) == 0 { Way::In } else { Way::Out }, time),
        }
    }

    /// May ranks end without sums? Only if one of them has died, or cannot be reached any more.
    fn excuses(self) -> bool {
        match self {
            Fault::KillRank(_) => true,
            Fault::Cut(host, _, None) | Fault::Shrink(host, None) => host >= RANK,
            _ => false,
        }
    }

    fn happen(self, hosts: &Hosts, running: &[Process], switches: &[Process]) {
        let wait = |time: u64| std::thread::sleep(Duration::from_millis(time));
        let pause = |process: &Process, time: u64| {
            process.signal("-STOP");
            wait(time);
            process.signal("-CONT");
        };
        match (self, hosts) {
            (Fault::StopRank(rank, time), _) => pause(&running[rank], time),
            (Fault::KillRank(rank), _) => running[rank].signal("-KILL"),
            (Fault::StopSwitch(switch, time), _) => pause(&switches[switch], time),
            (Fault::KillSwitch(switch), _) => switches[switch].signal("-KILL"),
            (Fault::Cut(host, way, time), Hosts::Spread(spread)) => {
                spread.cut(host, way, true);
                if let Some(time) = time {
                    wait(time);
                    spread.cut(host, way, false);
                }
            }
            (Fault::Shrink(host, time), Hosts::Spread(spread)) => {
                spread.set_mtu(host, 600);
                if let Some(time) = time {
                    wait(time);
                    spread.set_mtu(host, 1_500);
                }
            }
            _ => {}
        }
    }
}

/// A round; false if it did not begin. A switch that a busy machine does not let run for a second counts as gone.
fn round(folder: &Folder, hosts: &Hosts, seed: u64) -> bool {
    let mut random = Random::new(seed, StreamKind::Workload, 1);
    let mut below = |bound: u32| random.below(bound);
    let system = ["esa", "atp", "switchml"][below(3) as usize];
    let racks = below(2) == 1;
    let lose = ["0", "0.01", "0.03"][below(3) as usize];
    let spread = matches!(hosts, Hosts::Spread(_));
    // Apart from each other in successive rounds: a killed switch may leave its ports for a moment. Below 32,768, from
    // where on the kernel gives ports to sockets that ask for any.
    let port = 12_000 + u16::from(spread) * 4_000 + (std::process::id() as u16 % 100) * 40 + (seed % 4) as u16 * 10;
    let (ranks, key) = (folder.path("ranks"), folder.path("key"));
    std::fs::write(&key, [7; 32]).expect("a file");
    let first = format!("{}:{port}", hosts.address(0));
    let with = ["--system", system, "--lose", lose];
    let mut switches = match racks {
        false => vec![start_switch(folder, hosts, 0, port, &with)],
        true => vec![start_switch(folder, hosts, 0, port, &[&with[..], &["--racks"]].concat())],
    };
    if racks {
        for (host, at) in [(1, port + 3), (2, port + 6)] {
            switches.push(start_switch(folder, hosts, host, at, &[&with[..], &["--parent", &first]].concat()));
        }
    }
    let place = |rank: usize| if racks { 1 + rank % 2 } else { 0 };
    let line = |rank: usize| format!("{}:{}\n", hosts.address(RANK + rank), port - 1 - rank as u16);
    std::fs::write(&ranks, (0..RANKS).map(line).collect::<String>()).expect("a file");
    // Some seconds, so that most faults come in the middle.
    let calls = if lose == "0" { "400" } else { "150" };
    let started = Instant::now();
    let mut running: Vec<Process> = Vec::new();
    for rank in 0..RANKS {
        let at = format!("{}:{}", hosts.address(place(rank)), port + 3 * place(rank) as u16);
        let (out, rank_word) = (folder.path(&format!("out{rank}")), rank.to_string());
        let _ = std::fs::remove_file(&out);
        let words =
            ["perf", "collective", "all-reduce", "--algorithm", "in-network", "--switch", &at, "--ranks", &ranks];
        let more =
            ["--rank", &rank_word, "-b", "64K", "-e", "64K", "-n", calls, "--json", &out, "--join-patience", "20s"];
        let keys: &[&str] = if spread { &["--job-key", &key, "--key", &key] } else { &[] };
        let more = [&more[..], &["--patience", "15s", "--lose", lose], keys].concat();
        let mut command = hosts.strandway(RANK + rank, &words);
        running.push(Process(command.args(more).stderr(Stdio::piped()).spawn().expect("it starts")));
    }
    if let Err(said) = until_lanes(folder, port, &mut running) {
        eprintln!("seed {seed}: a rank has ended before it began: {said}");
        return false;
    }
    std::thread::sleep(Duration::from_millis(u64::from(below(1_000))));
    let fault = Fault::choose(&mut below, switches.len(), spread);
    let what = format!("seed {seed}: {system}, racks {racks}, loss {lose}, spread {spread}, {fault:?}");
    fault.happen(hosts, &running, &switches);
    let mut ends = Vec::new();
    for (rank, process) in running.iter_mut().enumerate() {
        let status = loop {
            match process.0.try_wait().expect("it is ours") {
                Some(status) => break status,
                None if started.elapsed() > HANGS => panic!("{what}: rank {rank} hangs"),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        ends.push((status, process.said()));
    }
    for (rank, (status, text)) in (0..).zip(&ends) {
        assert!(!text.contains("wrong") && !text.contains("panicked"), "{what}: rank {rank}: {text}");
        if status.success() {
            let out = std::fs::read_to_string(folder.path(&format!("out{rank}"))).expect("it was written");
            let out: serde_json::Value = serde_json::from_str(&out).expect("JSON");
            assert_eq!(out["sizes"][0]["right"], true, "{what}: rank {rank}: {out}");
            continue;
        }
        // They say why they have no sums.
        let said = !text.is_empty() || fault == Fault::KillRank(rank);
        assert!(fault.excuses() && said, "{what}: rank {rank}: {text}");
    }
    let right = ends.iter().filter(|(status, _)| status.success()).count();
    eprintln!("{what}: {right} of {RANKS} ranks have right sums after {:.1?}", started.elapsed());
    for (at, switch) in switches.iter_mut().enumerate() {
        let ended = switch.0.try_wait().expect("it is ours");
        assert!(ended.is_none() || fault == Fault::KillSwitch(at), "{what}: switch {at} has ended: {ended:?}");
    }
    true
}

/// Rounds with successive seeds: a few, or as the environment says.
fn rounds(few: u64, hosts: &Hosts, name: &str) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (rounds, first) = (number("CHAOS").unwrap_or(few), number("CHAOS_SEED").unwrap_or(1));
    let folder = Folder::new(&format!("switch-chaos-{name}"));
    for seed in first..first + rounds {
        assert!((0..10).any(|_| round(&folder, hosts, seed)), "seed {seed} does not begin");
        if let Hosts::Spread(spread) = hosts {
            spread.heal();
        }
    }
}

#[test]
fn ranks_of_a_switch_have_right_sums_or_say_why_not_whatever_process_stops() {
    rounds(4, &Hosts::Loopback, "loopback");
}

#[test]
fn ranks_of_a_switch_have_right_sums_or_say_why_not_whatever_path_is_cut() {
    let Some(spread) = Spread::new() else { return };
    rounds(6, &Hosts::Spread(spread), "spread");
}

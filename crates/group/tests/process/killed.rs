//! A process that is killed on another host is found in a moment: namespaces with two planes and the kernel's own limit of
//! ICMP messages, which loopback does not have.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use strandway_group::process::{DirectoryStore, Failure, Group, GroupOptions, Process, ProcessOptions, Reduction};

/// The variable that makes a copy of this test program a rank: `RANK FOLDER`.
const AS_RANK: &str = "STRANDWAY_TEST_AS_RANK";
/// Well above the fraction of a second that it takes, and far below the half minute that a lost refusal used to cost.
const MOMENT: Duration = Duration::from_secs(4);

/// Not a test by itself: what a rank does, in a process of its own.
#[test]
fn rank_in_a_namespace() {
    let Ok(text) = std::env::var(AS_RANK) else { return };
    let (rank, folder) = text.split_once(' ').expect("two words");
    let (rank, folder) = (rank.parse::<u32>().expect("a number"), PathBuf::from(folder));
    let planes = (0..2).map(|plane| format!("[fd5a:{plane}::{}]:0", rank + 1).parse().expect("an address")).collect();
    let patience = Duration::from_secs(30);
    let options = ProcessOptions { patience, payload: Some(1_200), ..ProcessOptions::on(planes) };
    let mut store = DirectoryStore::new(folder.join("store")).expect("a folder");
    let process = Process::join(&mut store, rank, &options).expect("joined");
    let group = Group::form(&process, &mut store, rank, 2, GroupOptions { timeout: patience, patience }).expect("met");
    for call in 0.. {
        if call == 50 {
            fs::write(folder.join(format!("busy{rank}")), "").expect("written");
        }
        let began = Instant::now();
        match group.all_reduce(&mut vec![1.0f32; 100_000], Reduction::Sum) {
            Ok(()) => {}
            Err(failure @ Failure::Gone { .. }) => {
                fs::write(folder.join("found"), format!("{:?} {failure}", began.elapsed())).expect("written");
                return;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

struct Fabric([String; 2]);

impl Fabric {
    /// Two hosts with a link for each plane; none where that is not allowed.
    fn new() -> Option<Fabric> {
        let name = |host: u32| format!("strandway-killed-{}-{host}", std::process::id());
        let fabric = Fabric([name(0), name(1)]);
        let [one, other] = &fabric.0;
        let mut steps = vec![format!("netns add {one}"), format!("netns add {other}")];
        for plane in 0..2 {
            steps.push(format!("-n {one} link add p{plane} type veth peer name p{plane} netns {other}"));
            for (host, name) in fabric.0.iter().enumerate() {
                steps.push(format!("-n {name} address add fd5a:{plane}::{}/64 dev p{plane} nodad", host + 1));
                steps.push(format!("-n {name} link set p{plane} up"));
            }
        }
        steps.iter().all(|step| ip(step)).then_some(fabric)
    }

    fn start(&self, rank: usize, folder: &std::path::Path) -> Child {
        let program = std::env::current_exe().expect("this program");
        Command::new("ip")
            .args(["netns", "exec", &self.0[rank]])
            .arg(program)
            .args(["--exact", "killed::rank_in_a_namespace", "--nocapture"])
            .env(AS_RANK, format!("{rank} {}", folder.display()))
            .stdout(Stdio::null())
            .spawn()
            .expect("starts")
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        for name in &self.0 {
            ip(&format!("netns del {name}"));
        }
    }
}

fn ip(arguments: &str) -> bool {
    let outcome = Command::new("ip").args(arguments.split_whitespace()).stderr(Stdio::null()).status();
    outcome.is_ok_and(|status| status.success())
}

#[test]
fn a_process_that_is_killed_on_another_host_is_found_in_a_moment() {
    let Some(fabric) = Fabric::new() else {
        eprintln!("skipped: no network namespaces can be made here");
        return;
    };
    let folder = std::env::temp_dir().join(format!("strandway-killed-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let mut ranks = [fabric.start(0, &folder), fabric.start(1, &folder)];
    let wait_for = |name: &str, longest: Duration| {
        let until = Instant::now() + longest;
        while !folder.join(name).exists() {
            assert!(Instant::now() < until, "no {name} after {longest:?}");
            thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for("busy0", Duration::from_secs(60));
    wait_for("busy1", Duration::from_secs(60));
    ranks[1].kill().expect("killed");
    wait_for("found", MOMENT);
    ranks.iter_mut().for_each(|rank| drop(rank.wait()));
    let found = fs::read_to_string(folder.join("found")).expect("there");
    assert!(found.contains("refuses"), "{found}");
    fs::remove_dir_all(folder).expect("removed");
}

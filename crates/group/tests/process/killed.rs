//! Ranks in namespaces with two planes. A process that is killed on another host is found in a moment: there the kernel
//! limits its ICMP messages, which it does not on loopback. A plane whose MTU shrinks is lost, and the group goes on.

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
    let options = ProcessOptions { patience, payload: Some(1_300), ..ProcessOptions::on(planes) };
    let mut store = DirectoryStore::new(folder.join("store")).expect("a folder");
    let process = Process::join(&mut store, rank, &options).expect("joined");
    let group = Group::form(&process, &mut store, rank, 2, GroupOptions { timeout: patience, patience }).expect("met");
    for call in 0.. {
        if call == 50 {
            fs::write(folder.join(format!("busy{rank}")), "").expect("written");
        }
        let began = Instant::now();
        let mut numbers = vec![f32::from(u8::from(folder.join("stop").exists())); 100_000];
        match group.all_reduce(&mut numbers, Reduction::Sum) {
            Ok(()) if numbers.iter().all(|sum| *sum == 2.0) => {
                fs::write(folder.join(format!("over{rank}")), "").expect("written");
                return;
            }
            Ok(()) => {}
            Err(failure @ Failure::Gone { .. }) => {
                fs::write(folder.join("found"), format!("{:?} {failure}", began.elapsed())).expect("written");
                return;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

pub(super) struct Fabric(pub(super) [String; 2]);

impl Fabric {
    /// Two hosts with a link for each plane; none where that is not allowed.
    pub(super) fn new(name: &str) -> Option<Fabric> {
        let name = |host: u32| format!("strandway-{name}-{}-{host}", std::process::id());
        let fabric = Fabric([name(0), name(1)]);
        let [one, other] = &fabric.0;
        let mut steps = vec![format!("netns add {one}"), format!("netns add {other}")];
        // Ranks of one host reach each other by loopback.
        steps.extend(fabric.0.iter().map(|name| format!("-n {name} link set lo up")));
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
        let text = format!("{rank} {}", folder.display());
        self.run(rank, "process::killed::rank_in_a_namespace", (AS_RANK, &text))
    }

    /// Runs a test of this program at a host, with a variable of its environment.
    pub(super) fn run(&self, rank: usize, test: &str, (name, value): (&str, &str)) -> Child {
        let program = std::env::current_exe().expect("this program");
        Command::new("ip")
            .args(["netns", "exec", &self.0[rank]])
            .arg(program)
            .args(["--exact", test, "--nocapture"])
            .env(name, value)
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

pub(super) fn ip(arguments: &str) -> bool {
    let outcome = Command::new("ip").args(arguments.split_whitespace()).stderr(Stdio::null()).status();
    outcome.is_ok_and(|status| status.success())
}

/// A folder of a test's own.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("strandway-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub(super) fn wait_for(&self, name: &str, longest: Duration) {
        let until = Instant::now() + longest;
        while !self.0.join(name).exists() {
            assert!(Instant::now() < until, "no {name} after {longest:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Two ranks in namespaces that have begun; none where that is not allowed.
fn begin(name: &str) -> Option<(Fabric, Folder, [Child; 2])> {
    let Some(fabric) = Fabric::new(name) else {
        eprintln!("skipped: no network namespaces can be made here");
        return None;
    };
    let folder = Folder::new(name);
    let ranks = [fabric.start(0, &folder.0), fabric.start(1, &folder.0)];
    folder.wait_for("busy0", Duration::from_secs(60));
    folder.wait_for("busy1", Duration::from_secs(60));
    Some((fabric, folder, ranks))
}

#[test]
fn a_process_that_is_killed_on_another_host_is_found_in_a_moment() {
    let Some((_fabric, folder, mut ranks)) = begin("killed") else { return };
    ranks[1].kill().expect("killed");
    folder.wait_for("found", MOMENT);
    ranks.iter_mut().for_each(|rank| drop(rank.wait()));
    let found = fs::read_to_string(folder.0.join("found")).expect("there");
    assert!(found.contains("refuses"), "{found}");
}

#[test]
fn a_plane_whose_mtu_shrinks_is_lost_and_the_group_goes_on() {
    let Some((fabric, folder, mut ranks)) = begin("shrinks") else { return };
    for mtu in [1_280, 1_500, 1_280] {
        fabric.0.iter().for_each(|name| assert!(ip(&format!("-n {name} link set p1 mtu {mtu}"))));
        thread::sleep(Duration::from_millis(300));
    }
    fs::write(folder.0.join("stop"), "").expect("written");
    folder.wait_for("over0", Duration::from_secs(20));
    folder.wait_for("over1", Duration::from_secs(20));
    ranks.iter_mut().for_each(|rank| assert!(rank.wait().expect("ended").success()));
}

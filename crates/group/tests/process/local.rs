//! Ranks of one host that share memory: the same bits as by sockets, also beside ranks that share none; ranks that are
//! killed or stopped; a system that gives no memory to share. Nothing is left behind.
//!
//! The other tests of this folder share memory as well, threads in place of processes, unless they are about sockets.

use super::support::{inout, planes, with};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use strandway_group::process::{
    BufferRange, CollectiveCall, DirectoryStore, Element, Failure, Group, GroupOptions, Process, ProcessOptions,
    Reduction, Values,
};

/// Without shared memory.
fn by_sockets() -> ProcessOptions {
    ProcessOptions { shared_memory: false, ..planes(1) }
}

/// Runs `work` at a rank for each of these options.
fn each<T: Send + 'static>(
    options: Vec<ProcessOptions>,
    work: impl Fn(&Process, &Group) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let (store, ranks) = (Values::default(), options.len() as u32);
    let all: Vec<_> = (0..)
        .zip(options)
        .map(|(rank, options)| {
            let (mut store, work) = (store.clone(), work.clone());
            thread::spawn(move || {
                let process = Process::join(&mut store, rank, &options).expect("a process");
                let options = GroupOptions { timeout: Duration::from_secs(60), ..GroupOptions::default() };
                let group = Group::form(&process, &mut store, rank, ranks, options).expect("a group");
                let result = work(&process, &group);
                group.barrier().expect("to the end");
                result
            })
        })
        .collect();
    all.into_iter().map(|rank| rank.join().expect("no panic")).collect()
}

/// Bits of sums and averages that depend on the order of additions, and of other collectives.
fn bits(group: &Group) -> Vec<u32> {
    let (rank, ranks) = (group.rank() as usize, group.ranks() as usize);
    let of = |place: usize| ((place * 31 + rank * 17) % 101) as f32 * [1e-6, 1.0, 1e6][place % 3] + 0.3;
    let mut all = Vec::new();
    for length in [1, 250, 5_003, 400_007] {
        let numbers: Vec<f32> = (0..length).map(of).collect();
        let mut sum = numbers.clone();
        group.all_reduce(&mut sum, Reduction::Average).expect("averaged");
        let mut gathered = vec![0.0; length * ranks];
        group.all_gather(&numbers, &mut gathered).expect("gathered");
        let mut part = vec![0.0; length];
        group.reduce_scatter(&gathered, &mut part, Reduction::Sum).expect("scattered");
        let mut exchanged = vec![0.0; length * ranks];
        group.all_to_all(&gathered, &mut exchanged).expect("exchanged");
        let mut copy = numbers.clone();
        group.broadcast(&mut copy, 1).expect("copied");
        group.reduce(&mut copy, Reduction::Sum, 0).expect("added");
        all.extend([sum, gathered, part, exchanged, copy].concat().into_iter().map(f32::to_bits));
    }
    all
}

#[test]
fn shared_memory_and_sockets_give_the_same_bits() {
    for ranks in [2, 3, 4] {
        let shared = each(vec![planes(1); ranks], |_, group| bits(group));
        assert!(shared == each(vec![by_sockets(); ranks], |_, group| bits(group)), "{ranks} ranks");
    }
}

#[test]
fn ranks_that_share_memory_and_ranks_that_share_none_are_in_one_group() {
    let mixed = vec![planes(1), by_sockets(), planes(1), planes(1), by_sockets()];
    let bits = |_: &Process, group: &Group| bits(group);
    assert!(each(mixed, bits) == each(vec![by_sockets(); 5], bits));
}

/// The sockets of links come to those of the node.
#[test]
fn a_link_with_each_process_of_the_host_is_made() {
    let count = |options: ProcessOptions| {
        let counts = each(vec![options; 3], |process, group| {
            group.barrier().expect("all are here");
            process.descriptors().len()
        });
        counts[0]
    };
    // A listener, and a socket for each of two peers.
    assert_eq!(count(planes(1)), count(by_sockets()) + 3);
}

/// During the first call a process's thread goes by the lease of sockets, and sleeps for up to a minute once the call has
/// lasted 2 ms; the caller leaves with the lease of shared memory. Then nobody moves what no caller waits for, unless
/// the caller wakes that thread.
#[test]
fn calls_that_no_caller_waits_for_go_on_after_a_first_call_of_some_milliseconds() {
    for round in 0..5 {
        let all_are_here = Arc::new(Barrier::new(2));
        let ended = with(2, &planes(1), move |_, group| {
            all_are_here.wait();
            if group.rank() == 1 {
                thread::sleep(Duration::from_millis(6));
            }
            group.barrier().expect("the first call");
            let (tell, told) = channel();
            let call = CollectiveCall::AllReduce(BufferRange::whole(0, 8));
            let work = group.start(call, vec![inout(vec![5])], Element::I64, Reduction::Sum, None).expect("begun");
            work.notify(&tell, 7);
            // A process's thread that nobody wakes comes back after a minute.
            told.recv_timeout(Duration::from_secs(20)).is_ok_and(|number| number == 7)
        });
        assert_eq!(ended, [true; 2], "round {round}");
    }
}

/// The variable that makes a copy of this test program a rank: `RANK RANKS FOLDER`.
const AS_RANK: &str = "STRANDWAY_TEST_LOCAL_RANK";

/// Not a test by itself: what a rank does, in a process of its own.
#[test]
fn rank_on_this_host() {
    let Ok(text) = std::env::var(AS_RANK) else { return };
    let mut words = text.splitn(3, ' ');
    let mut number = || words.next().expect("a word").parse::<u32>().expect("a number");
    let (rank, ranks) = (number(), number());
    let folder = PathBuf::from(words.next().expect("a folder"));
    let patience = Duration::from_secs(60);
    let mut store = DirectoryStore::new(folder.join("store")).expect("a folder");
    let process = Process::join(&mut store, rank, &planes(1)).expect("joined");
    let options = GroupOptions { timeout: patience, patience };
    let group = Group::form(&process, &mut store, rank, ranks, options).expect("met");
    for call in 0u32.. {
        // The first rank says for all whether this is the last call.
        let last = rank == 0 && folder.join("stop").exists();
        let mut numbers = vec![call as f32; [10, 100_000][call as usize % 2]];
        numbers[0] = f32::from(u8::from(last));
        match group.all_reduce(&mut numbers, Reduction::Sum) {
            Ok(()) => {
                assert!(numbers[1..].iter().all(|sum| *sum == (call * ranks) as f32), "call {call}");
                if call % 50 == 0 {
                    write(&folder, &format!("calls{rank}"), &call.to_string());
                }
                if numbers[0] > 0.0 {
                    write(&folder, &format!("end{rank}"), "right");
                    return;
                }
            }
            Err(failure) => {
                assert!(matches!(failure, Failure::Gone { .. } | Failure::Told { .. }), "{failure}");
                write(&folder, &format!("end{rank}"), &failure.to_string());
                return;
            }
        }
    }
}

/// Writes a file that is there as a whole.
fn write(folder: &Path, name: &str, text: &str) {
    let draft = folder.join(format!("{name}.draft"));
    fs::write(&draft, text).expect("written");
    fs::rename(draft, folder.join(name)).expect("renamed");
}

/// Ranks in processes of their own, which are killed when the test ends.
struct Ranks {
    folder: tempfile::TempDir,
    children: Vec<Child>,
}

impl Ranks {
    /// `shell`: a command before each rank's.
    fn start(ranks: usize, shell: &str) -> Ranks {
        let folder = tempfile::tempdir().expect("a folder");
        let program = std::env::current_exe().expect("this program");
        let start = |rank: usize| {
            Command::new("sh")
                .args(["-c", &format!("{shell} exec \"$0\" \"$@\"")])
                .arg(&program)
                .args(["--exact", "process::local::rank_on_this_host", "--nocapture"])
                .env(AS_RANK, format!("{rank} {ranks} {}", folder.path().display()))
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("starts")
        };
        let children = (0..ranks).map(start).collect();
        Ranks { folder, children }
    }

    fn wait_for(&self, name: &str) -> String {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match fs::read_to_string(self.folder.path().join(name)) {
                Ok(text) => return text,
                Err(_) => assert!(Instant::now() < until, "no {name}"),
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn signal(&self, rank: usize, signal: &str) {
        let number = self.children[rank].id().to_string();
        assert!(Command::new("kill").args([signal, &number]).status().expect("it runs").success());
    }

    fn stop(&self) {
        fs::write(self.folder.path().join("stop"), "").expect("written");
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Names of files for shared memory.
fn shared_files() -> Vec<String> {
    let all = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    all.map(|one| one.file_name().to_string_lossy().into_owned()).filter(|name| name.contains("strandway")).collect()
}

/// Our Unix sockets, by their names.
fn sockets() -> Vec<String> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    text.lines().filter_map(|line| line.split_once("@strandway-")).map(|(_, name)| name.into()).collect()
}

#[test]
fn a_rank_that_is_killed_is_found_by_the_kernels_word_and_nothing_is_left_behind() {
    let mut ranks = Ranks::start(3, "");
    ranks.wait_for("calls0");
    let names = sockets();
    assert!(names.len() >= 3, "{names:?}");
    ranks.children[2].kill().expect("killed");
    let ends = [ranks.wait_for("end0"), ranks.wait_for("end1")];
    // One of them may hear it from the other one first.
    assert!(ends.iter().all(|end| end.contains("rank 2 at ")), "{ends:?}");
    assert!(ends.iter().any(|end| end.contains("its process has ended, as the kernel of this host says")), "{ends:?}");
    ranks.children.iter_mut().for_each(|rank| drop(rank.wait()));
    drop(ranks);
    assert_eq!(shared_files(), Vec::<String>::new());
    let left = sockets();
    // Tests beside this one have sockets of their own.
    assert!(names.iter().filter(|name| left.contains(name)).count() + 3 <= names.len(), "{names:?} {left:?}");
}

#[test]
fn a_rank_that_is_stopped_is_waited_for() {
    let ranks = Ranks::start(3, "");
    ranks.wait_for("calls1");
    ranks.signal(1, "-STOP");
    thread::sleep(Duration::from_millis(1_500));
    let calls = |rank: usize| fs::read_to_string(ranks.folder.path().join(format!("calls{rank}"))).expect("there");
    let before = (calls(0), calls(2));
    thread::sleep(Duration::from_millis(300));
    assert_eq!((calls(0), calls(2)), before, "nothing goes on without it");
    assert!((0..3).all(|rank| !ranks.folder.path().join(format!("end{rank}")).exists()), "and nothing ends");
    ranks.signal(1, "-CONT");
    ranks.stop();
    assert_eq!([0, 1, 2].map(|rank| ranks.wait_for(&format!("end{rank}"))), ["right"; 3]);
}

#[test]
fn without_memory_to_share_ranks_talk_by_sockets_and_say_so_once() {
    // No file may have more than 2 KiB. A process that exceeds the limit is ended by a signal.
    let mut ranks = Ranks::start(3, "ulimit -f 4;");
    ranks.wait_for("calls0");
    ranks.stop();
    assert_eq!([0, 1, 2].map(|rank| ranks.wait_for(&format!("end{rank}"))), ["right"; 3]);
    for child in std::mem::take(&mut ranks.children) {
        let said = String::from_utf8_lossy(&child.wait_with_output().expect("ended").stderr).into_owned();
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("strandway:")).collect();
        assert_eq!(lines.len(), 1, "{said}");
        assert!(lines[0].contains("talks by sockets") && lines[0].contains("STRANDWAY_SHARED_MEMORY=0"), "{said}");
    }
}

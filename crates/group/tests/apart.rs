//! Groups with processes of their own, in a program of its own: its functions look at all processes of the program.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use strandway_group::process::{Failure, Group, GroupOptions, Values, close_all, descriptors, waiting};

/// One rank's group with a process of its own.
fn meet(store: &Values, rank: u32) -> Group {
    let options = GroupOptions { timeout: Duration::from_secs(60), ..GroupOptions::default() };
    Group::meet_apart(&mut store.clone(), rank, 2, None, options).expect("a group")
}

/// Each test looks at all of this program, so one runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The open descriptors of this program, and the places at which it has memory that processes share.
fn held() -> (usize, usize) {
    let places = fs::read_to_string("/proc/self/maps").expect("the kernel lists them");
    let descriptors = fs::read_dir("/proc/self/fd").expect("the kernel lists them");
    (descriptors.count(), places.lines().filter(|line| line.contains("memfd:strandway")).count())
}

#[test]
fn processes_that_have_left_keep_neither_descriptors_nor_shared_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let round = || {
        let store = Values::default();
        let other = thread::spawn({
            let store = store.clone();
            move || meet(&store, 1).barrier().expect("both are here")
        });
        let group = meet(&store, 0);
        group.barrier().expect("both are here");
        let (_, shared) = held();
        other.join().expect("no panic");
        drop(group);
        shared
    };
    assert!(round() > 0, "they share memory");
    let before = held();
    for _ in 0..5 {
        round();
    }
    assert_eq!(held(), before);
    assert_eq!(before.1, 0);
}

#[test]
fn processes_of_groups_are_reported_covered_after_a_fork_and_closed_like_others() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(waiting().is_empty() && descriptors().is_empty());
    let store = Values::default();
    let other = thread::spawn({
        let store = store.clone();
        move || {
            let group = meet(&store, 1);
            group.barrier().expect("both are here");
            let first = group.recv(&mut [0i64; 3], Some(0), 7);
            (first, group.recv(&mut [0i64; 3], Some(0), 7))
        }
    });
    let group = meet(&store, 0);
    group.barrier().expect("both are here");
    let until = Instant::now() + Duration::from_secs(30);
    while waiting().is_empty() {
        assert!(Instant::now() < until, "the receive of rank 1 is under way");
        thread::sleep(Duration::from_millis(5));
    }
    let all = waiting();
    assert!(all.len() == 1 && all[0].what == "recv" && all[0].ranks[0].starts_with("rank 0 at "), "{all:?}");
    let sockets = descriptors();
    assert!(sockets.len() >= 2 && sockets.iter().all(|descriptor| *descriptor > 2), "two processes: {sockets:?}");
    group.send(&[1i64; 3], 1, 7).expect("sent");
    close_all().expect("all has arrived");
    assert!(matches!(group.barrier(), Err(Failure::Node(_))), "the process has left");
    let (first, second) = other.join().expect("no panic");
    assert_eq!(first, Ok(0));
    assert!(second.is_err(), "nothing comes any more");
    drop(group);
    assert!(waiting().is_empty() && descriptors().is_empty());
}

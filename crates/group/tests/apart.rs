//! Groups with processes of their own, in a program of its own: its functions look at all processes of the program.

use std::thread;
use std::time::{Duration, Instant};
use strandway_group::process::{Failure, Group, GroupOptions, Values, close_all, descriptors, waiting};

/// One rank's group with a process of its own.
fn meet(store: &Values, rank: u32) -> Group {
    let options = GroupOptions { timeout: Duration::from_secs(60), ..GroupOptions::default() };
    Group::meet_apart(&mut store.clone(), rank, 2, None, options).expect("a group")
}

#[test]
fn processes_of_groups_are_reported_covered_after_a_fork_and_closed_like_others() {
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

//! The child of a fork, in a program of its own: its threads have nothing to do with those of its parent.
#![allow(unsafe_code, reason = "a fork in a program with threads")]

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use strandway_group::process::{Group, GroupOptions, Values};

/// The threads of a child may get the memory, and so the names, of threads that only its parent has.
#[test]
fn a_child_that_drops_its_parents_group_still_joins_its_own_threads() {
    let group = Group::meet_apart(&mut Values::default(), 0, 1, None, GroupOptions::default()).expect("a group");
    group.barrier().expect("alone");
    // SAFETY: the child allocates, starts threads and joins them, which the C library allows after a fork.
    match unsafe { fork() }.expect("a child") {
        ForkResult::Child => {
            let (go, wait) = channel::<()>();
            let wait = Arc::new(Mutex::new(wait));
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    let wait = wait.clone();
                    thread::spawn(move || wait.lock().expect("no panic").recv().is_err())
                })
                .collect();
            drop(group);
            drop(go);
            let joined =
                catch_unwind(AssertUnwindSafe(|| threads.into_iter().all(|thread| matches!(thread.join(), Ok(true)))));
            std::process::exit(if matches!(joined, Ok(true)) { 0 } else { 1 });
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)), "the child has joined its threads");
            group.barrier().expect("the parent goes on");
        }
    }
}

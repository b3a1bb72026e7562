//! All processes on the wire of this operating system process: those that groups share, and those that a group or a
//! program has for itself.

use super::{Inner, Process};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Each process, and the operating system process that started it. The users of a process keep it alive; this list does
/// not.
static STARTED: Mutex<Vec<(u32, Weak<Inner>)>> = Mutex::new(Vec::new());

/// Notes a process that has started.
pub(super) fn note(process: &Process) {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    started.retain(|(_, process)| process.strong_count() > 0);
    started.push((std::process::id(), Arc::downgrade(&process.0)));
}

/// The processes that this operating system process has started and that are still in use, the oldest first. Processes
/// that its parent started before a fork are left out, because their threads are in the parent.
pub(super) fn living() -> Vec<Process> {
    let started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let ours = started.iter().filter(|(pid, _)| *pid == std::process::id());
    ours.filter_map(|(_, process)| process.upgrade().map(Process)).collect()
}

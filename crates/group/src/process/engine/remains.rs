//! The remains of failed operations: memory that peers may still write to or read from.

use std::collections::BTreeMap;
use strandway_udp::Region;

/// Memory of a task that has failed, which the wire still uses.
pub(super) struct Remains {
    pub(super) regions: Vec<Region>,
    pub(super) uses: usize,
    pub(super) bytes: usize,
}

/// The remains of all failed operations, by the numbers of their tasks: the oldest first.
#[derive(Default)]
pub(super) struct AllRemains {
    by_task: BTreeMap<u64, Remains>,
    bytes: usize,
}

impl AllRemains {
    pub(super) fn insert(&mut self, task: u64, remains: Remains) {
        self.bytes += remains.bytes;
        self.by_task.insert(task, remains);
    }

    /// A use of a task's memory has ended. Returns the memory if that was the last one.
    pub(super) fn end_use(&mut self, task: u64) -> Vec<Region> {
        let Some(remains) = self.by_task.get_mut(&task) else { return Vec::new() };
        remains.uses -= 1;
        if remains.uses > 0 {
            return Vec::new();
        }
        let Some(remains) = self.by_task.remove(&task) else { return Vec::new() };
        self.bytes -= remains.bytes;
        remains.regions
    }

    /// The oldest task with remains, if all have more than this number of bytes.
    pub(super) fn oldest_beyond(&self, bytes: usize) -> Option<u64> {
        if self.bytes > bytes { self.by_task.keys().next().copied() } else { None }
    }
}

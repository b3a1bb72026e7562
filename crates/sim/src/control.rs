//! Watches and stops a run from outside.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strandway_proto::units::Time;

/// Shared between a run and its watcher. Reading it never changes the run.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    simulated: AtomicU64,
    finished: AtomicU64,
    hops: AtomicU64,
}

impl Control {
    /// No progress yet, and no request to stop.
    pub const fn new() -> Control {
        Control {
            stop: AtomicBool::new(false),
            simulated: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            hops: AtomicU64::new(0),
        }
    }

    /// Asks the run to end soon with what it has measured.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Was it asked to stop?
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Simulated time reached.
    pub fn simulated(&self) -> Time {
        Time(self.simulated.load(Ordering::Relaxed))
    }

    /// Flows finished.
    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    /// The number of packet hops so far.
    pub fn packet_hops(&self) -> u64 {
        self.hops.load(Ordering::Relaxed)
    }

    pub(crate) fn reached(&self, now: Time) {
        self.simulated.fetch_max(now.0, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, finished: u64, hops: u64) {
        self.finished.fetch_add(finished, Ordering::Relaxed);
        self.hops.fetch_add(hops, Ordering::Relaxed);
    }
}

//! Waking a node that sleeps on its sockets, from another thread.

use crate::error::Error;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The node is not asleep: it looks before it falls asleep.
const AWAKE: u8 = 0;
/// The node sleeps, or is about to.
const ASLEEP: u8 = 1;
/// Somebody has called, and the node has not seen it yet.
const CALLED: u8 = 2;

/// Ends the [`crate::Node::wait`] of another thread: the one under way, or else the next one.
///
/// A node that is awake costs one atomic operation, a node that sleeps one system call.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Bell>);

#[derive(Debug)]
struct Bell {
    state: AtomicU8,
    event: OwnedFd,
}

impl Waker {
    pub(super) fn new() -> Result<Waker, Error> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(|error| Error::Wait(error.into()))?;
        Ok(Waker(Arc::new(Bell { state: AtomicU8::new(AWAKE), event })))
    }

    /// Wakes the node. What the caller wrote before is seen by the node's thread when its `wait` returns.
    pub fn wake(&self) {
        if self.0.state.swap(CALLED, Ordering::AcqRel) == ASLEEP {
            // It can only fail when the counter is full, and then the node wakes anyway.
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    /// Has anybody called since the last time?
    pub(super) fn answer(&self) -> bool {
        self.0.state.load(Ordering::Relaxed) == CALLED && self.0.state.swap(AWAKE, Ordering::AcqRel) == CALLED
    }

    /// Before falling asleep; false if somebody has called, and sleep must wait.
    pub(super) fn lie_down(&self) -> bool {
        self.0.state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// After sleeping; a call that came stays to be answered.
    pub(super) fn get_up(&self) {
        let _ = self.0.state.compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Acquire);
    }

    /// What was written into the descriptor is forgotten.
    pub(super) fn drain(&self) {
        let _ = rustix::io::read(&self.0.event, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}

//! Waking a node that sleeps on its sockets, from another thread.

use super::Node;
use crate::clock::span;
use crate::config::Waiting;
use crate::error::Error;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use strandway_proto::Span;

/// The node is awake, and checks for calls before it falls asleep.
const AWAKE: u8 = 0;
/// The node sleeps, or is about to.
const ASLEEP: u8 = 1;
/// Another thread has called, and the node has not seen it yet.
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

    /// Wakes the node. When its `wait` returns, the node's thread sees everything that the caller wrote before this
    /// call.
    pub fn wake(&self) {
        if self.0.state.swap(CALLED, Ordering::AcqRel) == ASLEEP {
            // The write fails only when the counter is full, and then the node wakes anyway.
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    /// Has a thread called since the last time?
    pub(super) fn answer(&self) -> bool {
        self.0.state.load(Ordering::Relaxed) == CALLED && self.0.state.swap(AWAKE, Ordering::AcqRel) == CALLED
    }

    /// Call before falling asleep; false if a thread has called, and the node must not sleep.
    pub(super) fn lie_down(&self) -> bool {
        self.0.state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Call after sleeping; a call that came meanwhile still waits for [`Waker::answer`].
    pub(super) fn get_up(&self) {
        let _ = self.0.state.compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Empties the descriptor.
    pub(super) fn drain(&self) {
        let _ = rustix::io::read(&self.0.event, &mut [0; 8]);
    }
}

/// How a node waits.
pub(super) struct Waits {
    /// How long a wait spins at present before it sleeps.
    pub(super) spin: Span,
    /// Other threads wake the node with it; made at the first call of [`Node::waker`].
    pub(super) waker: Option<Waker>,
    /// Descriptors of the program that end a sleep when they can be read.
    pub(super) watched: Vec<Arc<OwnedFd>>,
}

impl Waits {
    pub(super) fn new(waiting: Waiting) -> Waits {
        let spin = match waiting {
            Waiting::Spin => Span(u64::MAX),
            Waiting::Sleep => Span::ZERO,
            Waiting::Adaptive(longest) => span(longest),
        };
        Waits { spin, waker: None, watched: Vec::new() }
    }
}

/// Wake-ups.
impl Node {
    /// A handle with which other threads wake this node while it sleeps in [`Node::wait`].
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn waker(&mut self) -> Result<Waker, Error> {
        let waker = self.waits.waker.take().map_or_else(Waker::new, Ok)?;
        Ok(self.waits.waker.insert(waker).clone())
    }

    /// Has another thread woken the node since the last call, or since [`Node::wait`] reported it? For programs that call
    /// [`Node::poll`].
    pub fn take_call(&mut self) -> bool {
        self.waits.waker.as_ref().is_some_and(Waker::answer)
    }

    /// A sleep of the node also ends when this descriptor can be read: [`Node::wait`] then returns `None`.
    pub fn watch(&mut self, descriptor: Arc<OwnedFd>) {
        self.waits.watched.push(descriptor);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}

//! How a process of this host is woken that sleeps while something comes for it.
//!
//! A process says in memory that it shares whether it sleeps; its peers ring its bell, an event of the kernel, only
//! then. No wake-up is lost: the sleeper says that it sleeps, and looks once more; its peer writes, and then looks
//! whether it sleeps. One of the two sees what the other has done.

use super::mapping::{Ours, Theirs};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Bytes of the memory in which a process says whether it sleeps.
const LENGTH: usize = 4_096;
const STATE: usize = 0;
/// The process sleeps. The bits above count how often it has slept.
const ASLEEP: u32 = 1;
/// It also waits until peers take what it has sent.
const WANTS_ROOM: u32 = 2;
const TIME: u32 = 4;

/// The bell of this process.
pub(super) struct Bell {
    memory: Ours,
    /// The file of the memory, for peers.
    pub(super) file: OwnedFd,
    pub(super) event: Arc<OwnedFd>,
    state: u32,
}

impl Bell {
    pub(super) fn new() -> Result<Bell, Errno> {
        let (file, memory) = Ours::new(LENGTH)?;
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Bell { memory, file, event, state: 0 })
    }

    /// Call before a last look for something to do, and then [`Bell::get_up`].
    pub(super) fn lie_down(&mut self, wants_room: bool) {
        self.state = self.state.wrapping_add(TIME) | ASLEEP | if wants_room { WANTS_ROOM } else { 0 };
        self.memory.publish_short(STATE, self.state);
        fence(Ordering::SeqCst);
    }

    pub(super) fn get_up(&mut self) {
        self.state &= !(ASLEEP | WANTS_ROOM);
        self.memory.publish_short(STATE, self.state);
    }

    /// Empties the event, after a sleep.
    pub(super) fn drain(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

/// The bell of a peer.
pub(super) struct PeerBell {
    memory: Theirs,
    event: OwnedFd,
    /// The state at which it was rung last.
    rung: u32,
}

impl PeerBell {
    /// A peer's bell; `None` if the memory is not what a peer shares, or if ringing it could block.
    pub(super) fn open(file: &OwnedFd, event: OwnedFd) -> Option<PeerBell> {
        if !rustix::fs::fcntl_getfl(&event).ok()?.contains(OFlags::NONBLOCK) {
            return None;
        }
        Some(PeerBell { memory: Theirs::open(file, |length| length == LENGTH)?, event, rung: 0 })
    }

    /// Something was sent to the peer.
    pub(super) fn ring(&mut self) {
        self.ring_if(ASLEEP);
    }

    /// Something of the peer was taken.
    pub(super) fn ring_for_room(&mut self) {
        self.ring_if(WANTS_ROOM);
    }

    fn ring_if(&mut self, asks: u32) {
        fence(Ordering::SeqCst);
        let state = self.memory.short_word(STATE);
        if state & asks != 0 && state != self.rung {
            self.rung = state;
            // The write fails only when the event's counter is full, and then the peer wakes anyway.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

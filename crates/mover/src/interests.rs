//! The sockets of a node in one descriptor, on which any thread can sleep.

use crate::code::{Code, MoverError};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// A descriptor that threads write to wake others.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> Result<Bell, MoverError> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Bell).map_err(refused)
    }

    pub(crate) fn ring(&self) {
        // The write fails only when the counter is full, and then the descriptor can be read anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The descriptor, which may be slept on while the node is in use.
pub(crate) struct Sleeper {
    epoll: OwnedFd,
    /// Ends the sleep of a thread: operations were posted.
    pub(crate) bell: Bell,
}

impl Sleeper {
    pub(crate) fn new() -> Result<Sleeper, MoverError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused)?;
        let bell = Bell::new()?;
        epoll::add(&epoll, &bell.0, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(refused)?;
        Ok(Sleeper { epoll, bell })
    }

    pub(crate) fn sleep(&self, longest: Duration) {
        let timeout =
            Timespec { tv_sec: longest.as_secs().min(3_600) as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
        // An interrupted sleep is a short one.
        let _ = rustix::event::poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&timeout));
        self.bell.silence();
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

/// The sockets that the descriptor has at present.
#[derive(Default)]
pub(crate) struct Interests(HashMap<RawFd, bool>);

impl Interests {
    /// Makes the descriptor report these sockets.
    pub(crate) fn set(&mut self, sleeper: &Sleeper, sockets: &[(BorrowedFd<'_>, bool)]) {
        for &(socket, writes) in sockets {
            if self.0.insert(socket.as_raw_fd(), writes) == Some(writes) {
                continue;
            }
            let wanted =
                epoll::EventFlags::IN | if writes { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            let data = epoll::EventData::new_u64(0);
            // The kernel drops closed sockets by itself, and numbers of descriptors are used again.
            if epoll::modify(&sleeper.epoll, socket.as_fd(), data, wanted).is_err() {
                let _ = epoll::add(&sleeper.epoll, socket.as_fd(), data, wanted);
            }
        }
    }
}

fn refused(error: rustix::io::Errno) -> MoverError {
    MoverError::new(Code::System, format!("the system has no descriptor left: {error}"))
}

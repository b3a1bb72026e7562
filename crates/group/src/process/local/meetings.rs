//! Links that are made and that end: the socket by which processes of this host call, greetings under way, and what
//! shows the end of a peer.

use super::super::message::Id;
use super::bell::Bell;
use super::greeting::{self, Greeter, Greeting, Refused, Step};
use super::link::Link;
use super::ring::{RING_MAX, RING_MIN};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A greeting that takes longer fails, and the connection of the node is used: ours. A process that stands still does not
/// answer by sockets either, and the end of a process ends its greetings at once.
const GREETING: Duration = Duration::from_secs(60);
/// Greetings of strangers at a time: ours. Others wait to be accepted.
const STRANGERS: usize = 256;
/// Links that no connection uses yet: ours, as many as a node has connections at the most.
pub(super) const UNUSED_MAX: usize = 1_024;
/// All rings that one process makes have about this length together: ours, so that they stay in the processor's cache.
const RINGS: usize = 4 << 20;
/// The key of the listener in the list of descriptors that are watched.
const LISTENER: u64 = u64::MAX;
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

const PROCESS_ENDED: &str = "its process has ended, as the kernel of this host says";
pub(super) const LINK_ENDED: &str = "it has let go of the memory that it shares with this process";
const NO_WATCH: Refused = "the kernel watches no more descriptors";

pub(super) struct Meetings {
    greeter: Greeter,
    /// None once no descriptor is left for those who call.
    listener: Option<OwnedFd>,
    name: String,
    /// Watches the listener, greetings and the ends of all links.
    pub(super) watch: Arc<OwnedFd>,
    /// Greetings by number, and the process that we have called; none if it has called us.
    greetings: HashMap<u64, (Greeting, Option<Id>)>,
    next_number: u64,
    /// The length of the rings that are made next.
    ring: usize,
    /// Descriptors of all sockets of the process.
    descriptors: Arc<Mutex<Vec<i32>>>,
}

/// The finding of a look.
pub(super) enum Found {
    /// A link, with its number.
    Link(u64, Box<Link>),
    /// There will be no link with a process that we have called, for this reason.
    Refused(Id, Refused),
    /// The peer of the link with this number has ended.
    End(u64),
}

impl Meetings {
    /// Lets processes of this host make links with this one.
    pub(super) fn open(id: Id, secret: &[u8; 32], descriptors: Arc<Mutex<Vec<i32>>>) -> Result<Meetings, Errno> {
        let (listener, name) = greeting::listen()?;
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watch, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let meetings = Meetings {
            greeter: Greeter::new(id, secret),
            listener: Some(listener),
            name,
            watch: Arc::new(watch),
            greetings: HashMap::new(),
            next_number: 0,
            ring: RING_MAX,
            descriptors,
        };
        meetings.listener.iter().for_each(|listener| meetings.note_descriptor(listener.as_raw_fd()));
        Ok(meetings)
    }

    /// The name by which processes of this host call it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Is no greeting under way?
    pub(super) fn is_idle(&self) -> bool {
        self.greetings.is_empty()
    }

    /// Is a greeting with a process under way that we have called?
    pub(super) fn is_calling(&self, id: Id) -> bool {
        self.greetings.values().any(|(_, called)| *called == Some(id))
    }

    /// Rings that are made from now on are for this number of processes of this host.
    pub(super) fn plan(&mut self, processes: usize) {
        let ring = (RINGS / processes.max(1)).next_power_of_two().clamp(RING_MIN, RING_MAX);
        self.ring = self.ring.min(ring);
    }

    /// Begins to make a link with a process.
    pub(super) fn call(&mut self, id: Id, name: &str) -> Result<(), Refused> {
        let greeting = self.greeter.call(id, name, self.ring)?;
        self.begin(greeting, Some(id))
    }

    /// Waits for what the other side of a greeting says.
    fn begin(&mut self, greeting: Greeting, called: Option<Id>) -> Result<(), Refused> {
        let number = self.next_number;
        self.next_number += 1;
        let socket = &greeting.ends.socket;
        let data = EventData::new_u64(number);
        epoll::add(&self.watch, socket, data, EventFlags::IN | EventFlags::RDHUP).map_err(|_| NO_WATCH)?;
        self.note_descriptor(socket.as_raw_fd());
        self.greetings.insert(number, (greeting, called));
        Ok(())
    }

    /// Looks at the listener, greetings and ends of peers.
    pub(super) fn poll_changes(&mut self, bell: &Bell) -> Vec<Found> {
        let mut events = Vec::with_capacity(16);
        let mut found = Vec::new();
        if epoll::wait(&self.watch, rustix::buffer::spare_capacity(&mut events), Some(&NOW)).is_err() {
            return found;
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => self.accept(),
                number if self.greetings.contains_key(&number) => found.extend(self.go_on(number, bell)),
                number => found.push(Found::End(number)),
            }
        }
        let late = |(_, (greeting, _)): &(&u64, &(Greeting, Option<Id>))| greeting.began.elapsed() > GREETING;
        let late: Vec<u64> = self.greetings.iter().filter(late).map(|(number, _)| *number).collect();
        for (greeting, called) in
            late.into_iter().filter_map(|number| self.greetings.remove(&number)).collect::<Vec<_>>()
        {
            self.forget_descriptor(greeting.ends.socket.as_raw_fd());
            found.extend(called.map(|id| Found::Refused(id, "it does not answer")));
        }
        found
    }

    fn accept(&mut self) {
        while self.greetings.values().filter(|(_, called)| called.is_none()).count() < STRANGERS {
            let Some(listener) = &self.listener else { return };
            match greeting::accept(listener) {
                // If it is not watched, it hears the end of its socket.
                Ok(Ok(greeting)) => drop(self.begin(greeting, None)),
                // A process of another user, or a signal.
                Ok(Err(_)) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    // No descriptor is left. Those who call hear at once that nobody listens.
                    self.forget_descriptor(listener.as_raw_fd());
                    self.listener = None;
                }
            }
        }
    }

    /// Something has come for a greeting.
    fn go_on(&mut self, number: u64, bell: &Bell) -> Option<Found> {
        let (greeting, called) = self.greetings.remove(&number)?;
        let descriptor = greeting.ends.socket.as_raw_fd();
        let why = match greeting.go_on(&self.greeter, bell) {
            Ok(Step::Waits(greeting)) => {
                self.greetings.insert(number, (greeting, called));
                return None;
            }
            Ok(Step::Done(link)) => match self.watch_end(number, &link) {
                Ok(()) => return Some(Found::Link(number, Box::new(link))),
                Err(_) => NO_WATCH,
            },
            Err(why) => why,
        };
        // A closed descriptor is watched no longer.
        self.forget_descriptor(descriptor);
        called.map(|id| Found::Refused(id, why))
    }

    fn watch_end(&self, number: u64, link: &Link) -> Result<(), Errno> {
        let data = EventData::new_u64(number);
        // Nothing else is said by the socket from now on.
        epoll::modify(&self.watch, &link.ends.socket, data, EventFlags::RDHUP)?;
        let process = link.ends.process.as_ref();
        process.map_or(Ok(()), |process| epoll::add(&self.watch, process, data, EventFlags::IN))
    }

    /// The evidence for the end of a peer; `None` if its socket has ended and its process has not, as far as the kernel
    /// says so far. A process that ends loses its sockets first.
    pub(super) fn evidence(&self, link: &Link) -> Option<&'static str> {
        let _ = epoll::delete(&self.watch, &link.ends.socket);
        let Some(process) = &link.ends.process else { return Some(LINK_ENDED) };
        let mut polled = [PollFd::new(process, PollFlags::IN)];
        let ended = rustix::event::poll(&mut polled, Some(&NOW)).is_ok_and(|count| count > 0);
        ended.then(|| {
            self.unwatch(link);
            PROCESS_ENDED
        })
    }

    fn unwatch(&self, link: &Link) {
        // The child of a fork may hold them, so closing them is not enough.
        let _ = epoll::delete(&self.watch, &link.ends.socket);
        if let Some(process) = &link.ends.process {
            let _ = epoll::delete(&self.watch, process);
        }
    }

    /// A link ends.
    pub(super) fn release(&self, link: &Link) {
        self.unwatch(link);
        self.forget_descriptor(link.ends.socket.as_raw_fd());
    }

    fn note_descriptor(&self, descriptor: i32) {
        self.descriptors.lock().unwrap_or_else(PoisonError::into_inner).push(descriptor);
    }

    fn forget_descriptor(&self, descriptor: i32) {
        self.descriptors.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| *one != descriptor);
    }
}

impl Drop for Meetings {
    fn drop(&mut self) {
        self.descriptors.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

//! The mover: its calls, from any thread, and the thread that moves packets.

use crate::channel::Job;
use crate::code::{Code, MoverError};
use crate::event::Event;
use crate::interests::{Bell, Sleeper};
use crate::memory::Lent;
use crate::options::{LogSink, Options, Progress};
use crate::state::{State, fresh};
use std::net::{SocketAddr, SocketAddrV6};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use strandway_udp::{Node, RemoteRegion, Rights};

/// The longest time for which a thread spins before it sleeps; ours, as long as nodes do.
const PATIENCE: Duration = Duration::from_micros(50);
/// The mover's own thread rests for this time if a caller moves packets. Ours: short enough for a peer's timeouts.
const ASIDE: Duration = Duration::from_millis(1);
/// The longest sleep, after which a thread looks whether it shall end; ours.
const SLEEP_MAX: Duration = Duration::from_millis(500);

struct Inner {
    /// `None` after the mover was shut.
    state: Mutex<Option<State>>,
    sleeper: Sleeper,
    /// Can be read while events wait, if there is a thread of ours.
    news: Option<Bell>,
    log: Option<LogSink>,
    began: Instant,
    /// When a caller last moved packets, in microseconds since the beginning.
    driven: AtomicU64,
    /// Callers that wait, and move packets meanwhile.
    drivers: AtomicUsize,
    /// Callers that want the lock.
    callers: AtomicUsize,
    ends: AtomicBool,
}

/// The state of a mover that is not shut.
struct Guard<'a>(MutexGuard<'a, Option<State>>);

impl Deref for Guard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.0.as_ref().expect("there, as `Inner::lock` saw")
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("there, as `Inner::lock` saw")
    }
}

/// A node for programs in other languages. All calls come from any thread; a call waits for the calls of other threads,
/// and only [`Mover::wait`] for anything else. When it is dropped, its connections are closed and its thread ends.
pub struct Mover {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Mover {
    /// Opens the sockets of each plane.
    ///
    /// # Errors
    /// If an option is invalid or an address cannot be bound.
    pub fn open(options: &Options) -> Result<Mover, MoverError> {
        let node = Node::bind(options.config()?)?;
        let state = State::new(node, options.operations_max, options.handshake_timeout, options.log.is_some());
        let threaded = options.progress == Progress::Thread;
        let inner = Arc::new(Inner {
            state: Mutex::new(Some(state)),
            sleeper: Sleeper::new()?,
            news: threaded.then(Bell::new).transpose()?,
            log: options.log.clone(),
            began: Instant::now(),
            driven: AtomicU64::new(0),
            drivers: AtomicUsize::new(0),
            callers: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
        });
        inner.lock()?.arm(&inner.sleeper);
        let thread = match threaded {
            true => {
                let inner = Arc::clone(&inner);
                let spawned = std::thread::Builder::new().name("strandway".into()).spawn(move || run(&inner)).map_err(
                    |error| MoverError::new(Code::System, format!("the system has no thread left: {error}")),
                )?;
                Some(spawned)
            }
            false => None,
        };
        Ok(Mover { inner, thread })
    }

    /// Our address on each plane, with the ports that the system chose.
    ///
    /// # Errors
    /// If the system cannot report them.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, MoverError> {
        Ok(self.inner.lock()?.node.addresses()?)
    }

    /// The descriptors of all sockets. A child of a fork that does not close them hides the end of this process from peers.
    ///
    /// # Errors
    /// [`Code::NoNode`] after [`Mover::shut`].
    pub fn descriptors(&self) -> Result<Vec<i32>, MoverError> {
        Ok(self.inner.lock()?.node.descriptors())
    }

    /// Registers `length` bytes from an address on, for reading and writing. `lend` gives exactly those bytes. It is
    /// called only if they do not lie within memory that is registered; memory that overlaps such memory in part is
    /// refused.
    ///
    /// # Errors
    /// [`Code::Invalid`] without address or length, [`Code::Overlap`].
    pub fn register(
        &self,
        address: usize,
        length: usize,
        lend: impl FnOnce() -> &'static mut [u8],
    ) -> Result<u64, MoverError> {
        self.add(address, length, true, || Lent::Writable(lend()))
    }

    /// Registers memory as [`Mover::register`] does, but for reading only: for sends and writes.
    ///
    /// # Errors
    /// As for [`Mover::register`].
    pub fn show(&self, address: usize, length: usize, lend: impl FnOnce() -> &'static [u8]) -> Result<u64, MoverError> {
        self.add(address, length, false, || Lent::ReadOnly(lend()))
    }

    fn add(
        &self,
        address: usize,
        length: usize,
        writable: bool,
        lend: impl FnOnce() -> Lent,
    ) -> Result<u64, MoverError> {
        let number = fresh();
        let state = &mut *self.inner.lock()?;
        state.memories.register(&mut state.node, number, address, length, writable, lend)?;
        Ok(number)
    }

    /// Gives memory back; nothing touches it after this call. Keys to it are void.
    ///
    /// # Errors
    /// [`Code::InUse`] if unfinished operations use it, [`Code::NoMemory`].
    pub fn release(&self, memory: u64) -> Result<(), MoverError> {
        let state = &mut *self.inner.lock()?;
        state.memories.release(&mut state.node, memory)
    }

    /// The bytes of registered memory.
    ///
    /// # Errors
    /// [`Code::NoMemory`].
    pub fn memory_length(&self, memory: u64) -> Result<u64, MoverError> {
        self.inner.lock()?.memories.length(memory)
    }

    /// Begins a connection to the peer with these addresses, one for each plane; an event tells its beginning or its
    /// end. The peer's program sees the number of the service.
    ///
    /// # Errors
    /// If the addresses are not those of our planes in number and family, or too many connections are open.
    pub fn connect(&self, peer: &[SocketAddrV6], service: u64) -> Result<u64, MoverError> {
        self.call(|state| state.connect(peer, service))
    }

    /// Ends a connection. Its unfinished operations have their events, and then it has its own.
    ///
    /// # Errors
    /// [`Code::NoConnection`].
    pub fn close(&self, connection: u64) -> Result<(), MoverError> {
        self.call(|state| state.close(connection))
    }

    /// Allows the peer of a connection to write into a range of memory, until [`Mover::revoke`], [`Mover::release`] or
    /// the end of the connection. The peer needs the result.
    ///
    /// # Errors
    /// If the connection, memory or range is not there, or the memory is for reading only.
    pub fn expose(&self, connection: u64, memory: u64, offset: u64, length: u64) -> Result<RemoteRegion, MoverError> {
        self.expose_for(connection, memory, offset, length, Rights::WRITE)
    }

    /// Allows the peer of a connection to do these things with a range of memory, until [`Mover::revoke`],
    /// [`Mover::release`] or the end of the connection. Connection 0 stands for all, also later ones. The peer needs the
    /// result.
    ///
    /// # Errors
    /// As for [`Mover::expose`]; memory for reading only can be exposed for [`Rights::READ`] alone.
    pub fn expose_for(
        &self,
        connection: u64,
        memory: u64,
        offset: u64,
        length: u64,
        rights: Rights,
    ) -> Result<RemoteRegion, MoverError> {
        self.call(|state| state.expose(connection, memory, (offset, length), rights))
    }

    /// Takes back what [`Mover::expose`] gave; false if it was not valid. A write under way that names it ends its
    /// connection, a read whose answer has not begun is refused.
    ///
    /// # Errors
    /// [`Code::Internal`] only.
    pub fn revoke(&self, remote: RemoteRegion) -> Result<bool, MoverError> {
        self.call(|state| Ok(state.revoke(remote)))
    }

    /// Writes `bytes` bytes of memory into the peer's memory, `at` bytes from the start of what `remote` opens. With an
    /// immediate, a number below 2^31, the peer gets an event when all bytes are there.
    ///
    /// # Errors
    /// If a handle or range is not valid, the connection is not established, or too many operations are unfinished.
    #[allow(clippy::too_many_arguments, reason = "a place here, a place there, and a number for each side")]
    pub fn write(
        &self,
        connection: u64,
        memory: u64,
        offset: u64,
        bytes: u64,
        remote: RemoteRegion,
        at: u64,
        immediate: Option<u32>,
        context: u64,
    ) -> Result<(), MoverError> {
        let job = Job { context, memory, offset, bytes, tag: None };
        self.call(|state| state.write(connection, job, remote, at, immediate))
    }

    /// Sends a message into the peer's receive with this tag, for which it waits.
    ///
    /// # Errors
    /// As for [`Mover::write`]; [`Code::TooLong`] if the receive is shorter, and then nothing was sent.
    pub fn send(
        &self,
        connection: u64,
        memory: u64,
        offset: u64,
        bytes: u64,
        tag: u64,
        context: u64,
    ) -> Result<(), MoverError> {
        let job = Job { context, memory, offset, bytes, tag: Some(tag) };
        self.call(|state| state.send(connection, tag, job))
    }

    /// Receives a message with this tag into memory, `bytes` bytes at the most.
    ///
    /// # Errors
    /// As for [`Mover::write`].
    pub fn receive(
        &self,
        connection: u64,
        memory: u64,
        offset: u64,
        bytes: u64,
        tag: u64,
        context: u64,
    ) -> Result<(), MoverError> {
        let job = Job { context, memory, offset, bytes, tag: Some(tag) };
        self.call(|state| state.receive(connection, tag, job))
    }

    /// Moves packets once. True if there may be more to do at once.
    ///
    /// # Errors
    /// [`Code::Internal`] only.
    pub fn progress(&self) -> Result<bool, MoverError> {
        let moved = self.inner.turn()?.0;
        self.inner.stamp();
        Ok(moved)
    }

    /// The oldest events, at most `most`. Moves no packets.
    ///
    /// # Errors
    /// [`Code::Internal`] only.
    pub fn poll(&self, most: usize) -> Result<Vec<Event>, MoverError> {
        let mut state = self.inner.lock()?;
        Ok(self.inner.take(&mut state, most))
    }

    /// Waits for events, for `timeout` at the longest, and returns at most `most` of them.
    ///
    /// # Errors
    /// [`Code::Internal`] only.
    pub fn wait(&self, most: usize, timeout: Duration) -> Result<Vec<Event>, MoverError> {
        self.inner.drivers.fetch_add(1, Ordering::Relaxed);
        let outcome = self.wait_driving(most, timeout);
        self.inner.stamp();
        self.inner.drivers.fetch_sub(1, Ordering::Relaxed);
        outcome
    }

    fn wait_driving(&self, most: usize, timeout: Duration) -> Result<Vec<Event>, MoverError> {
        let began = Instant::now();
        let mut idle_since = began;
        loop {
            let events = self.poll(most)?;
            let passed = began.elapsed();
            if !events.is_empty() || passed >= timeout {
                return Ok(events);
            }
            let (moved, has_events) = self.inner.turn()?;
            if moved || has_events {
                idle_since = Instant::now();
            } else if idle_since.elapsed() < PATIENCE {
                std::thread::yield_now();
            } else {
                self.inner.sleep(timeout.saturating_sub(passed))?;
            }
        }
    }

    /// A descriptor that can be read when there is something to do: events, if the mover has a thread, otherwise
    /// packets. Only wait for it; neither read nor close it.
    pub fn descriptor(&self) -> i32 {
        self.inner.news.as_ref().map_or_else(|| self.inner.sleeper.descriptor(), Bell::descriptor)
    }

    /// Prepares a sleep on [`Mover::descriptor`], and says how long it may be. After it call [`Mover::progress`] and
    /// [`Mover::poll`], also if the descriptor cannot be read.
    ///
    /// # Errors
    /// [`Code::Internal`] only.
    pub fn rest(&self) -> Result<Duration, MoverError> {
        let mut state = self.inner.lock()?;
        if !state.events.is_empty() {
            return Ok(Duration::ZERO);
        }
        if self.inner.news.is_some() {
            return Ok(SLEEP_MAX);
        }
        state.arm(&self.inner.sleeper);
        Ok(state.rest().min(SLEEP_MAX))
    }

    /// Open connections, including those that are being established.
    ///
    /// # Errors
    /// [`Code::Internal`] only.
    pub fn connections(&self) -> Result<usize, MoverError> {
        Ok(self.inner.lock()?.node.observe().connections())
    }

    /// Closes all connections and sockets. Memory is released: nothing touches it after this call, and all other calls
    /// fail with [`Code::NoNode`], also those of threads that wait.
    pub fn shut(&self) {
        let inner = &self.inner;
        inner.ends.store(true, Ordering::Release);
        let state = match inner.state.lock() {
            Ok(mut state) => state.take(),
            // A thread has panicked within a call. Nothing works, but the memory has to be let go.
            Err(poisoned) => poisoned.into_inner().take(),
        };
        drop(state);
        inner.sleeper.bell.ring();
        if let Some(news) = &inner.news {
            news.ring();
        }
    }

    /// A call that posts something: threads that sleep have to look.
    pub(crate) fn call<T>(&self, job: impl FnOnce(&mut State) -> Result<T, MoverError>) -> Result<T, MoverError> {
        let inner = &self.inner;
        let mut state = inner.lock()?;
        let had = state.events.is_empty();
        let outcome = job(&mut state);
        state.posted = true;
        inner.notify_news(&state, had);
        let asleep = state.sleepers > 0;
        let logs = std::mem::take(&mut state.logs);
        drop(state);
        inner.send_log(&logs);
        if asleep {
            inner.sleeper.bell.ring();
        }
        outcome
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.shut();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The log may drop the mover on the mover's own thread, which then ends by itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Inner {
    fn lock(&self) -> Result<Guard<'_>, MoverError> {
        self.callers.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock();
        self.callers.fetch_sub(1, Ordering::Relaxed);
        // A thread has panicked with the lock.
        let state = state.map_err(|_| MoverError::of(Code::Internal))?;
        if state.is_some() { Ok(Guard(state)) } else { Err(MoverError::of(Code::NoNode)) }
    }

    /// Events have come, or the last one was taken.
    fn notify_news(&self, state: &State, had_none: bool) {
        if let Some(news) = &self.news
            && had_none != state.events.is_empty()
        {
            if had_none { news.ring() } else { news.silence() }
        }
    }

    fn take(&self, state: &mut State, most: usize) -> Vec<Event> {
        let had_none = state.events.is_empty();
        let count = state.events.len().min(most);
        let events = state.events.drain(..count).collect();
        self.notify_news(state, had_none);
        events
    }

    /// Moves packets once: whether anything moved, and whether events wait.
    fn turn(&self) -> Result<(bool, bool), MoverError> {
        let mut state = self.lock()?;
        let had_none = state.events.is_empty();
        let moved = state.turn();
        self.notify_news(&state, had_none);
        let outcome = (moved, !state.events.is_empty());
        let logs = std::mem::take(&mut state.logs);
        drop(state);
        self.send_log(&logs);
        Ok(outcome)
    }

    fn send_log(&self, logs: &[(crate::Level, String)]) {
        if let Some(LogSink(sink)) = &self.log {
            logs.iter().for_each(|(level, text)| sink(*level, text));
        }
    }

    /// Sleeps until a socket has something, an operation was posted, or a timer of the node expires.
    fn sleep(&self, longest: Duration) -> Result<(), MoverError> {
        let mut state = self.lock()?;
        let rest = state.rest().min(longest).min(SLEEP_MAX);
        if rest.is_zero() {
            return Ok(());
        }
        state.arm(&self.sleeper);
        state.sleepers += 1;
        drop(state);
        self.sleeper.sleep(rest);
        let mut state = self.lock()?;
        state.sleepers -= 1;
        state.node.rise();
        Ok(())
    }

    fn stamp(&self) {
        self.driven.store(self.began.elapsed().as_micros() as u64, Ordering::Relaxed);
    }

    /// Does a caller move packets at present?
    fn is_driven(&self) -> bool {
        let now = self.began.elapsed().as_micros() as u64;
        let driven = self.driven.load(Ordering::Relaxed);
        self.drivers.load(Ordering::Relaxed) > 0
            || (driven > 0 && now.saturating_sub(driven) < ASIDE.as_micros() as u64)
    }
}

/// The mover's thread.
fn run(inner: &Inner) {
    let mut idle_since = Instant::now();
    while !inner.ends.load(Ordering::Acquire) {
        if inner.is_driven() {
            std::thread::park_timeout(ASIDE);
            continue;
        }
        // The mover was shut, or another thread has panicked within a call.
        let Ok((moved, _)) = inner.turn() else { return };
        if moved {
            idle_since = Instant::now();
        }
        if inner.callers.load(Ordering::Relaxed) > 0 || (!moved && idle_since.elapsed() < PATIENCE) {
            std::thread::yield_now();
        } else if !moved && inner.sleep(SLEEP_MAX).is_err() {
            return;
        }
    }
}

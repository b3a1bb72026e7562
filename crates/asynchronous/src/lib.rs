//! A node on a thread of its own, for any executor: calls return futures, and nothing here depends on the executor that
//! polls them.
//!
//! ```
//! use strandway_asynchronous::{AsyncError, AsyncNode};
//! use strandway_udp::Config;
//!
//! async fn copy(config: Config, server: std::net::SocketAddrV6) -> Result<(), AsyncError> {
//!     let node = AsyncNode::spawn(config)?;
//!     let peer = node.connect(&[server]).await?;
//!     // The server says where we may write.
//!     let keys = node.register(vec![0; 16]).await?;
//!     peer.recv(keys, 0..16).await?;
//!     let key = node.read(keys, 0..16).await?.try_into().unwrap_or_default();
//!     let remote = strandway_udp::RemoteRegion::from_bytes(key);
//!     let outbox = node.register(b"all of it".to_vec()).await?;
//!     // Resolves when it is in the server's memory.
//!     peer.write(outbox, 0..9, remote, 0, Some(42)).await
//! }
//! ```
//!
//! **Order.** Nothing happens before a future is polled for the first time; then its call is posted, behind all calls
//! posted before. To have several operations under way, poll several futures.
//!
//! **Dropping.** A future that is dropped after it was polled gives up its answer, not its operation: the operation
//! continues, and its memory is held until it has ended. Only a call that still waits for room (below) is withdrawn. A
//! connection whose future was dropped is closed, and a buffer whose future was dropped is freed; connections and
//! writes of peers are never lost.
//!
//! **Room.** A connection has at most [`strandway_udp::Limits::operations`] unfinished sends and writes, and the same number of
//! receives; further futures wait until there is room, in order. So [`Error::Busy`] never comes.
//!
//! **Ends.** When a connection ends, all its futures return the reason. When the last clone of a [`Peer`] and of its
//! futures is dropped, its connection is closed. When the last handle of a node is dropped, all its connections are
//! closed and its thread ends. So await operations that must complete.
//!
//! **Price.** Each call and each answer passes between two threads. 64 bytes written there and back over loopback, four
//! threads on two cores, median of three runs: 46.6 us instead of 27.9 (nodes spin briefly, then sleep), 97.4 us
//! instead of 82.4 (they sleep at once); `cargo run --release -p strandway-asynchronous --example ping_pong -- 3000 adaptive`,
//! or `sleep`. For the shortest latency call [`Node::wait`].

mod answer;
mod driver;
mod future;
mod peer;
mod queue;
mod shards;

pub use future::{Accepting, Connecting, ImmediateWrite, Pending};
pub use peer::Peer;
pub use shards::{AcceptingAny, Shards};

use answer::promise;
use driver::Driver;
use queue::{Command, Outcome, Queue};
use std::fmt;
use std::net::{SocketAddr, SocketAddrV6};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use strandway_udp::{Config, Error, Limits, Node, NodeCounters, PlaneCounters, Reason, Region};

/// Why a future has no result.
#[derive(Debug)]
pub enum AsyncError {
    /// The call could not be served; [`Error::NoConnection`] if the connection was closed on this side.
    Call(Error),
    /// The connection ended, or never began.
    Closed(Reason),
    /// The node's thread has ended: the system did not let it wait for its sockets, or a closure given to
    /// [`AsyncNode::with_memory`] panicked.
    Stopped,
}

impl fmt::Display for AsyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AsyncError::Call(error) => error.fmt(f),
            AsyncError::Closed(reason) => reason.fmt(f),
            AsyncError::Stopped => f.write_str("the node's thread has ended: no call is served any more"),
        }
    }
}

impl std::error::Error for AsyncError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AsyncError::Call(error) => Some(error),
            AsyncError::Closed(_) | AsyncError::Stopped => None,
        }
    }
}

impl From<Error> for AsyncError {
    fn from(error: Error) -> AsyncError {
        AsyncError::Call(error)
    }
}

/// How a connection ended.
#[derive(Clone, Copy)]
enum Ending {
    /// The peer closed it, or the peer or the path failed.
    Peer(Reason),
    /// We closed it.
    Here,
    /// The node's thread has ended.
    Stopped,
}

impl From<Ending> for AsyncError {
    fn from(ending: Ending) -> AsyncError {
        match ending {
            Ending::Peer(reason) => AsyncError::Closed(reason),
            Ending::Here => AsyncError::Call(Error::NoConnection),
            Ending::Stopped => AsyncError::Stopped,
        }
    }
}

/// A handle of a node with a thread of its own. Clones are handles of the same node. When the last handle, [`Peer`] and
/// future of the node is dropped, the node ends.
#[derive(Clone)]
pub struct AsyncNode {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Arc<Queue>,
    addresses: Vec<SocketAddr>,
    shard: u8,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.queue.stop();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // The last handle may have been in a closure that runs on the node's thread.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl AsyncNode {
    /// Opens the sockets of each plane and starts the thread that drives them.
    ///
    /// # Errors
    /// As for [`Node::bind`], and [`Error::Wait`] if the system gives no descriptor or no thread.
    pub fn spawn(config: Config) -> Result<AsyncNode, Error> {
        AsyncNode::drive(Node::bind(config)?)
    }

    /// Starts a thread that drives a node.
    pub(crate) fn drive(mut node: Node) -> Result<AsyncNode, Error> {
        let Limits { operations, connections, .. } = node.limits();
        let (addresses, shard) = (node.addresses()?, node.shard());
        let queue = Arc::new(Queue::new(node.waker()?, connections));
        let driver = Driver::new(node, queue.clone(), operations);
        let thread = std::thread::Builder::new().name("strandway-node".into()).spawn(|| driver.run());
        let thread = Mutex::new(Some(thread.map_err(Error::Wait)?));
        Ok(AsyncNode { shared: Arc::new(Shared { queue, addresses, shard, thread }) })
    }

    /// Our address on each plane, with the ports that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.shared.addresses
    }

    /// As [`Node::shard`].
    pub fn shard(&self) -> u8 {
        self.shared.shard
    }

    /// Connects to a peer: its address on each plane, in the order of ours. If the future is dropped, the connection is
    /// given up.
    ///
    /// Errors: as for [`Node::connect`], or why the peer could not be reached.
    pub fn connect(&self, peer: &[SocketAddrV6]) -> Connecting {
        self.connect_to(peer, None)
    }

    /// Connects to a peer, and asks for a shard if one is given, as [`Node::connect_to_shard`].
    pub(crate) fn connect_to(&self, peer: &[SocketAddrV6], shard: Option<u8>) -> Connecting {
        let (done, answer) = promise();
        Connecting(Pending::new(&self.shared, None, Command::Connect(peer.to_vec(), shard, done), answer))
    }

    /// The next connection that a peer begins. Any number of futures may wait; each connection goes to one of them. If
    /// a future is dropped, its connection goes to another.
    ///
    /// Errors: [`AsyncError::Stopped`].
    pub fn accept(&self) -> Accepting {
        Accepting::new(&self.shared)
    }

    /// Takes a buffer into the node. Peers can write to no part of it before it is exposed or posted as a receive. If
    /// the future is dropped, the buffer is freed.
    ///
    /// Errors: [`AsyncError::Stopped`].
    pub fn register(&self, buffer: Vec<u8>) -> Pending<Region> {
        let (done, answer) = promise();
        let work = move |node: &mut Node| {
            if let Err(Ok(region)) = done.give(Ok(node.register(buffer))) {
                let _ = node.deregister(region);
            }
        };
        let mut pending = Pending::new(&self.shared, None, Command::Run(Box::new(work)), answer);
        pending.undo = Some(|queue, region| {
            drop(queue.push(Command::Run(Box::new(move |node| drop(node.deregister(region))))));
        });
        pending
    }

    /// Gives a buffer back. Its keys become invalid.
    ///
    /// Errors: as for [`Node::deregister`].
    pub fn deregister(&self, region: Region) -> Pending<Vec<u8>> {
        self.run(move |node| Ok(node.deregister(region)?))
    }

    /// A copy of a range of a region.
    ///
    /// Errors: [`Error::NoRegion`], or [`Error::Range`] if the range is not within it.
    pub fn read(&self, region: Region, range: Range<usize>) -> Pending<Vec<u8>> {
        self.run(move |node| {
            let memory = node.memory(region)?;
            let error = Error::Range { end: range.end.max(range.start) as u64, bytes: memory.len() as u64 };
            Ok(memory.get(range).ok_or(error)?.to_vec())
        })
    }

    /// Runs `work` on a region's bytes, on the node's thread. No packet moves meanwhile, so it should be short.
    /// Concurrent operations of peers and of this node behave as [`Node::memory_mut`] says. `work` must not wait for
    /// futures of this node.
    ///
    /// Errors: [`Error::NoRegion`].
    pub fn with_memory<T: Send + 'static>(
        &self,
        region: Region,
        work: impl FnOnce(&mut [u8]) -> T + Send + 'static,
    ) -> Pending<T> {
        self.run(move |node| Ok(work(node.memory_mut(region)?)))
    }

    /// The counters of each plane.
    ///
    /// Errors: [`AsyncError::Stopped`].
    pub fn plane_counters(&self) -> Pending<Vec<PlaneCounters>> {
        self.run(|node| Ok(node.observe().plane_counters()))
    }

    /// Counters of events that belong to no open connection.
    ///
    /// Errors: [`AsyncError::Stopped`].
    pub fn counters(&self) -> Pending<NodeCounters> {
        self.run(|node| Ok(node.observe().counters()))
    }

    fn run<T: Send + 'static>(&self, work: impl FnOnce(&mut Node) -> Outcome<T> + Send + 'static) -> Pending<T> {
        let (done, answer) = promise();
        let command = Command::Run(Box::new(move |node| drop(done.give(work(node)))));
        Pending::new(&self.shared, None, command, answer)
    }
}

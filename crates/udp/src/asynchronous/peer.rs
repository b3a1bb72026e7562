//! A connection, as tasks see it.

use super::answer::promise;
use super::future::{Pending, Written};
use super::queue::{Command, Link, Outcome, Owner, Posted};
use super::{AsyncError, AsyncNode};
use crate::memory::{Region, RemoteRegion};
use crate::node::Node;
use crate::session::SessionCounters;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

/// An open connection. Clones are the same connection; it is closed with the last of them and of their futures, or by
/// [`Peer::close`].
///
/// Regions are those of its node: [`Peer::node`].
#[derive(Clone)]
pub struct Peer {
    // Dropped before the node's last handle may be.
    owner: Arc<Owner>,
    node: AsyncNode,
}

impl Peer {
    pub(super) fn new(node: AsyncNode, owner: Arc<Owner>) -> Peer {
        Peer { owner, node }
    }

    /// The node that has this connection, and the memory that its operations use.
    pub const fn node(&self) -> &AsyncNode {
        &self.node
    }

    /// Where the first datagram of a connection came from that the peer began; `None` if we did.
    pub fn from(&self) -> Option<SocketAddr> {
        self.owner.link.from
    }

    /// Writes a range of a region of ours into the peer's memory, `at` bytes from the start of what its key opens; resolves
    /// when all of it is there, in the order of posting among sends and writes. With an immediate the peer is told.
    ///
    /// Errors: as for [`Node::write`], but never [`crate::Error::Busy`]; or why the connection ended.
    pub fn write(
        &self,
        region: Region,
        range: Range<usize>,
        remote: RemoteRegion,
        at: u64,
        immediate: Option<u32>,
    ) -> Pending<()> {
        self.post(Posted::Write { remote, at, immediate }, region, range)
    }

    /// Sends a range of a region of ours into the next receive of the peer; resolves when it is there.
    ///
    /// Errors: as for [`Peer::write`].
    pub fn send(&self, region: Region, range: Range<usize>) -> Pending<()> {
        self.post(Posted::Send, region, range)
    }

    /// Makes room for one send of the peer; resolves when it has come, with the number of its bytes. The bytes themselves are
    /// in the region: [`AsyncNode::read`].
    ///
    /// Errors: as for [`Peer::write`].
    pub fn recv(&self, region: Region, range: Range<usize>) -> Pending<u64> {
        let (done, answer) = promise();
        self.pending(Command::Receive { link: self.link(), region, range, done }, answer)
    }

    /// The peer's next write with an immediate, once it is wholly in our memory: its number, and how many bytes it wrote. Any
    /// number of futures may wait; each write goes to one of them, in order, and none is lost with a future. A peer of whom
    /// 262,144 were not asked for is given up ([`crate::Reason::Unheeded`]).
    ///
    /// Errors: why the connection ended, after all that had been written before.
    pub fn written(&self) -> Written {
        Written::new(&self.node.shared, &self.owner)
    }

    /// Allows this peer to write into a range of a region: what it needs to know.
    ///
    /// Errors: as for [`Node::expose`].
    pub fn expose(&self, region: Region, range: Range<usize>) -> Pending<RemoteRegion> {
        self.run(move |node, link| Ok(node.expose(link.connection, region, range)?))
    }

    /// Takes a key back; false if it was void.
    ///
    /// Errors: why the connection ended.
    pub fn revoke(&self, remote: RemoteRegion) -> Pending<bool> {
        self.run(move |node, _| Ok(node.revoke(remote)))
    }

    /// Takes a buffer into this connection's node.
    ///
    /// Errors: as for [`AsyncNode::register`].
    pub fn register(&self, buffer: Vec<u8>) -> Pending<Region> {
        self.node.register(buffer)
    }

    /// What the connection has counted so far.
    ///
    /// Errors: why it ended.
    pub fn counters(&self) -> Pending<SessionCounters> {
        self.run(|node, link| Ok(node.connection_counters(link.connection)?))
    }

    /// Ends the connection and tells the peer, once: it may not hear it. All other futures of the connection resolve with
    /// [`crate::Error::NoConnection`].
    ///
    /// Errors: [`AsyncError::Stopped`]; none if it has ended already.
    pub fn close(&self) -> Pending<()> {
        let (done, answer) = promise();
        Pending::new(&self.node.shared, None, Command::Close(self.link(), Some(done)), answer)
    }

    /// Why the connection has ended, if it has; [`crate::Error::NoConnection`] if we closed it.
    pub fn ended(&self) -> Option<AsyncError> {
        self.owner.link.ended().map(AsyncError::from)
    }

    fn link(&self) -> Arc<Link> {
        self.owner.link.clone()
    }

    fn post(&self, what: Posted, region: Region, range: Range<usize>) -> Pending<()> {
        let (done, answer) = promise();
        self.pending(Command::Post { link: self.link(), what, region, range, done }, answer)
    }

    fn pending<T>(&self, command: Command, answer: super::answer::Answer<Outcome<T>>) -> Pending<T> {
        Pending::new(&self.node.shared, Some(self.owner.clone()), command, answer)
    }

    fn run<T: Send + 'static>(&self, work: impl FnOnce(&mut Node, &Link) -> Outcome<T> + Send + 'static) -> Pending<T> {
        let link = self.link();
        self.node.run(move |node| match link.ended() {
            Some(ending) => Err(ending.into()),
            None => work(node, &link),
        })
    }
}

//! A connection, as tasks see it.

use super::answer::promise;
use super::future::{ImmediateWrite, Pending};
use super::queue::{Command, Link, Outcome, Owner, Posted};
use super::{AsyncError, AsyncNode};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use strandway_udp::{Node, Region, RemoteRegion, SessionCounters};

/// An open connection. Clones stand for the same connection. It is closed by [`Peer::close`], or when the last clone
/// and the last of their futures are dropped.
///
/// Regions are those of its node: [`Peer::node`].
#[derive(Clone)]
pub struct Peer {
    // Declared first, so that it is dropped before the node's last handle may be.
    owner: Arc<Owner>,
    node: AsyncNode,
}

impl Peer {
    pub(super) fn new(node: AsyncNode, owner: Arc<Owner>) -> Peer {
        Peer { owner, node }
    }

    /// The node of this connection; its memory is the one that operations use.
    pub const fn node(&self) -> &AsyncNode {
        &self.node
    }

    /// The source address of the first datagram, if the peer began the connection; `None` if we did.
    pub fn from(&self) -> Option<SocketAddr> {
        self.owner.link.from
    }

    /// Writes a range of a region of ours into the peer's memory, `at` bytes from the start of what its key opens.
    /// Resolves when all of it is there; sends and writes resolve in the order of posting. With an immediate the peer
    /// gets [`Peer::written`].
    ///
    /// Errors: as for [`Node::write`], but never [`strandway_udp::Error::Busy`]; or why the connection ended.
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

    /// Posts a receive for one send of the peer; resolves when it has come, with its number of bytes. Read the bytes
    /// from the region with [`AsyncNode::read`].
    ///
    /// Errors: as for [`Peer::write`].
    pub fn recv(&self, region: Region, range: Range<usize>) -> Pending<u64> {
        let (done, answer) = promise();
        self.pending(Command::Receive { link: self.link(), region, range, done }, answer)
    }

    /// The peer's next write with an immediate, once all its bytes are in our memory: the immediate, and the number of
    /// bytes. Any number of futures may wait; each write goes to one of them, in order. If a future is dropped, its
    /// write goes to another. If 262,144 such writes of a peer wait for a future, its connection is closed
    /// ([`strandway_udp::Reason::Unheeded`]).
    ///
    /// Errors: the reason why the connection ended, after all writes that came before its end.
    pub fn written(&self) -> ImmediateWrite {
        ImmediateWrite::new(&self.node.shared, &self.owner)
    }

    /// Allows this peer to write into a range of a region; the result is for the peer.
    ///
    /// Errors: as for [`Node::expose`].
    pub fn expose(&self, region: Region, range: Range<usize>) -> Pending<RemoteRegion> {
        self.run(move |node, link| Ok(node.expose(link.connection, region, range)?))
    }

    /// Takes a key back; false if it was not valid.
    ///
    /// Errors: the reason why the connection ended.
    pub fn revoke(&self, remote: RemoteRegion) -> Pending<bool> {
        self.run(move |node, _| Ok(node.revoke(remote)))
    }

    /// Takes a buffer into this connection's node.
    ///
    /// Errors: as for [`AsyncNode::register`].
    pub fn register(&self, buffer: Vec<u8>) -> Pending<Region> {
        self.node.register(buffer)
    }

    /// The counters of the connection.
    ///
    /// Errors: the reason why it ended.
    pub fn counters(&self) -> Pending<SessionCounters> {
        self.run(|node, link| Ok(node.observe().connection_counters(link.connection)?))
    }

    /// Ends the connection and tells the peer with one datagram, which may be lost. All other futures of the connection
    /// resolve with [`strandway_udp::Error::NoConnection`].
    ///
    /// Errors: [`AsyncError::Stopped`]; none if it has ended already.
    pub fn close(&self) -> Pending<()> {
        let (done, answer) = promise();
        Pending::new(&self.node.shared, None, Command::Close(self.link(), Some(done)), answer)
    }

    /// The reason why the connection has ended, if it has; [`strandway_udp::Error::NoConnection`] if we closed it.
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

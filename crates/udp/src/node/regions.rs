//! The memory of a node: regions, and the keys that open them to peers.

use super::{Connection, Node, Region, RemoteRegion};
use crate::error::Error;
use std::ops::Range;

/// Memory.
impl Node {
    /// Takes a buffer into the node. Peers can write to no part of it before it is exposed or posted as a receive.
    pub fn register(&mut self, buffer: Vec<u8>) -> Region {
        self.memory.register(buffer)
    }

    /// Takes memory into the node that stays with its owner. Nothing else touches it while it is registered. Nothing is
    /// copied.
    pub fn register_static(&mut self, buffer: &'static mut [u8]) -> Region {
        self.memory.register_static(buffer)
    }

    /// Takes memory into the node that it only reads, for sends and writes. The region takes no receives and has no
    /// keys.
    pub fn show(&mut self, buffer: &'static [u8]) -> Region {
        self.memory.show(buffer)
    }

    /// Copies lent or shown memory into the node, which works on with the copy: operations and keys stay valid, and the
    /// lender has its memory back.
    ///
    /// # Errors
    /// If it is not registered.
    pub fn take_over(&mut self, region: Region) -> Result<(), Error> {
        self.memory.take_over(region)
    }

    /// Gives a buffer back; lent or shown memory gives nothing. Its keys are void.
    ///
    /// # Errors
    /// If it is not registered, or unfinished operations use it: our own, or reads of peers whose answers are under way.
    pub fn deregister(&mut self, region: Region) -> Result<Vec<u8>, Error> {
        self.memory.deregister(region)
    }

    /// The bytes of a region. Peers' bytes appear in it only during calls of [`Node::poll`] and [`Node::wait`].
    ///
    /// # Errors
    /// If it is not registered.
    pub fn memory(&self, region: Region) -> Result<&[u8], Error> {
        self.memory.bytes(region)
    }

    /// The bytes of a region, to change them. If an unfinished send or write reads a byte that changes, the peer may
    /// get the old or the new one.
    ///
    /// # Errors
    /// If it is not registered.
    pub fn memory_mut(&mut self, region: Region) -> Result<&mut [u8], Error> {
        self.memory.bytes_mut(region)
    }

    /// Copies a range of a region to a place in another one, or in the same.
    ///
    /// # Errors
    /// If one is not registered or the ranges do not fit.
    pub fn copy_within(&mut self, from: Region, range: Range<usize>, to: Region, at: usize) -> Result<(), Error> {
        self.memory.copy_within(from, range, to, at)
    }

    /// Allows the peer of one connection to write into a range of a region, until [`Node::revoke`],
    /// [`Node::deregister`] or the end of the connection.
    ///
    /// # Errors
    /// If the range is not within the region, or too many keys are in use.
    pub fn expose(
        &mut self,
        connection: Connection,
        region: Region,
        range: Range<usize>,
    ) -> Result<RemoteRegion, Error> {
        self.session(connection)?;
        self.memory.expose(region, &range, connection)
    }

    /// Takes a key back; false if it was not valid. A write under way that still names the key ends its connection; a
    /// read whose answer has not begun is refused.
    pub fn revoke(&mut self, remote: RemoteRegion) -> bool {
        self.memory.revoke(remote.key)
    }

    /// The bytes that a key opens to the peer of a connection, `length` of them from `at` on; `None` if the key does not
    /// open them. For programs that get a peer's bytes by another way than the node.
    pub fn exposed(&mut self, connection: Connection, key: u64, at: u64, length: usize) -> Option<&mut [u8]> {
        let place = self.memory.open(key, connection, at, length)?;
        Some(self.memory.bytes_at(place))
    }
}

//! The calls of reads and atomic operations.

use super::{Connection, Node, Operation};
use crate::error::Error;
use crate::frame::Change;
use crate::layout::Layout;
use crate::memory::{Place, Region, RemoteRegion, Rights};
use crate::session::Wanted;
use std::ops::Range;

/// Bytes of the word that an atomic operation changes.
const WORD: u64 = 8;

/// Reads of a peer's memory, and atomic operations on it. The peer's program takes no part in them.
///
/// They leave in their turn behind earlier operations of the connection, and see all that these have written. Operations
/// behind a read may be done before its bytes are read. All ends are completions: [`Completion::Read`],
/// [`Completion::Fetched`], or [`Completion::Refused`] with the reason, after which the connection goes on.
///
/// [`Completion::Read`]: crate::Completion::Read
/// [`Completion::Fetched`]: crate::Completion::Fetched
/// [`Completion::Refused`]: crate::Completion::Refused
impl Node {
    /// Allows the peer of one connection to do these things with a range of a region, until [`Node::revoke`],
    /// [`Node::deregister`] or the end of the connection. Shown memory ([`Node::show`]) can be exposed for
    /// [`Rights::READ`] alone.
    ///
    /// # Errors
    /// As for [`Node::expose`].
    pub fn expose_for(
        &mut self,
        connection: Connection,
        region: Region,
        range: Range<usize>,
        rights: Rights,
    ) -> Result<RemoteRegion, Error> {
        self.session(connection)?;
        self.memory.expose_for(region, &range, Some(connection), rights)
    }

    /// Allows all peers, those of later connections included, to do these things with a range of a region, until
    /// [`Node::revoke`] or [`Node::deregister`]. Every node that has the secret, and learns the key, can use it.
    ///
    /// # Errors
    /// If the range is not within the region, or too many keys are in use.
    pub fn expose_to_all(
        &mut self,
        region: Region,
        range: Range<usize>,
        rights: Rights,
    ) -> Result<RemoteRegion, Error> {
        self.memory.expose_for(region, &range, None, rights)
    }

    /// Reads bytes of the peer's memory into a range of a region of ours, as many as the range has, from `at` bytes
    /// behind the start of what the key opens.
    ///
    /// # Errors
    /// As for [`Node::write`]; [`Error::NoRight`] if the peer has not exposed the memory for reading.
    pub fn read(
        &mut self,
        connection: Connection,
        region: Region,
        range: Range<usize>,
        remote: RemoteRegion,
        at: u64,
    ) -> Result<Operation, Error> {
        self.memory.writable(region)?;
        let into = self.memory.place(region, &range)?;
        let wanted = Wanted::Bytes { key: remote.key, start: at, into };
        self.ask(connection, (remote, Rights::READ), (at, into.len() as u64), wanted, Some(into))
    }

    /// Adds to a word of 64 bits in the peer's memory, `at` bytes behind the start of what the key opens, and fetches
    /// the word as it was. The sum wraps. It happens exactly once, and at once as regards atomic operations and writes
    /// of all peers, but not as regards stores of the peer's own program. The word has the byte order of its host.
    ///
    /// # Errors
    /// As for [`Node::write`]; [`Error::NoRight`] if the peer has not exposed the memory for this.
    pub fn fetch_add(
        &mut self,
        connection: Connection,
        remote: RemoteRegion,
        at: u64,
        number: u64,
    ) -> Result<Operation, Error> {
        self.change(connection, remote, at, Change::Add(number))
    }

    /// Replaces a word of 64 bits in the peer's memory by `new` if it is `expected`, and fetches the word as it was; else
    /// as [`Node::fetch_add`].
    ///
    /// # Errors
    /// As for [`Node::fetch_add`].
    pub fn compare_swap(
        &mut self,
        connection: Connection,
        remote: RemoteRegion,
        at: u64,
        expected: u64,
        new: u64,
    ) -> Result<Operation, Error> {
        self.change(connection, remote, at, Change::Swap { expected, new })
    }

    fn change(
        &mut self,
        connection: Connection,
        remote: RemoteRegion,
        at: u64,
        change: Change,
    ) -> Result<Operation, Error> {
        let wanted = Wanted::Change { key: remote.key, start: at, change };
        self.ask(connection, (remote, Rights::ATOMIC), (at, WORD), wanted, None)
    }

    fn ask(
        &mut self,
        connection: Connection,
        (remote, right): (RemoteRegion, Rights),
        (at, bytes): (u64, u64),
        wanted: Wanted,
        place: Option<Place>,
    ) -> Result<Operation, Error> {
        let end = at.saturating_add(bytes);
        if end > remote.bytes {
            return Err(Error::Range { end, bytes: remote.bytes });
        }
        if !remote.rights.has(right) {
            return Err(Error::NoRight);
        }
        if let Layout::Mrc { .. } = self.config.layout {
            return Err(Error::OnlyWrites);
        }
        let (operation, now) = (Operation(self.operations), self.clock.now());
        let alone = self.may_post(connection)?;
        self.session_mut(connection)?.ask_peer(now, operation, wanted);
        if let Some(place) = place {
            self.memory.hold(place);
        }
        self.begin_posted(connection, now, bytes as usize, alone);
        Ok(operation)
    }

    /// May another operation of ours be posted on this connection? If so, says whether it is the only one.
    pub(super) fn may_post(&self, connection: Connection) -> Result<bool, Error> {
        let limit = self.config.limits.operations;
        let session = self.session(connection)?;
        if session.is_partial() {
            return Err(Error::IsPartial);
        }
        if session.posted() >= limit {
            return Err(Error::Busy { limit });
        }
        Ok(session.posted() == 0)
    }
}

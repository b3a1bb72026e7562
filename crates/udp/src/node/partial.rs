//! The calls of partial completion, for programs that repair losses themselves.

use super::{Connection, Node, Operation, State};
use crate::error::Error;
use crate::memory::{Memory, Region};
use crate::session::Session;
use std::ops::Range;
use strandway_proto::Time;
use strandway_proto::partial::Progress;

/// Partial completion (SDR-RDMA, section 3), on connections whose reliability is `partial`. On any other connection
/// these calls fail with [`Error::OnlyPartial`]. On these connections [`Node::send`], [`Node::write`] and
/// [`Node::recv`] fail with [`Error::IsPartial`].
///
/// The i-th message that one side begins lands in the i-th receive that the other side posts. Nothing is acknowledged
/// and nothing is repeated. The receiver's program looks at bitmaps while packets come, tells the sender's program by
/// [`Node::send_control`] which chunks to push again, and ends the receive at any time. The calls, in the order in
/// which a caller makes them:
///
/// | SDR's call | receiver | sender |
/// |---|---|---|
/// | `mr_reg` | [`Node::register`] | [`Node::register`] |
/// | `recv_post` | [`Node::expect`] | |
/// | `send_stream_start`, `send_stream_continue`, `send_stream_end` | | [`Node::begin_stream`], [`Node::push_stream`], [`Node::end_stream`] |
/// | `send_post`, `send_poll` | | [`Node::send_once`], [`Completion::Injected`](crate::Completion::Injected) |
/// | `recv_bitmap_get`, `recv_imm_get` | [`Node::progress`], [`Node::arriving`] | |
/// | `recv_complete` | [`Node::complete`] | |
///
/// `examples/own-repair` is a program of fifty lines that repairs losses itself.
impl Node {
    /// Posts the next receive into a range of a region, and tells the peer that it may send. Returns the receive's
    /// number. Packets are written into the range from now on until [`Node::complete`]. A message may be as long as the
    /// range; no packet of a longer message is written.
    ///
    /// # Errors
    /// [`Error::NoSlot`] if the receive with a number lower by 1,024 is still open. For this call and those below:
    /// [`Error::OnlyPartial`], or if the connection is not established; with a range, if it is not within its region.
    pub fn expect(&mut self, connection: Connection, region: Region, range: Range<usize>) -> Result<u64, Error> {
        self.memory.writable(region)?;
        let place = self.memory.place(region, &range)?;
        self.call_partial(connection, |session, memory, now| session.expect(now, memory, place))
    }

    /// Which packets and chunks of a receive have come, as of the last turn of the node: bytes and bits change only in
    /// [`Node::poll`] and [`Node::wait`]. Each packet carries [`Config::payload`](crate::Config::payload) bytes, the
    /// last one the rest; the profile says how many packets make a chunk. Before the first packet, the totals are those
    /// of the receive's range; after it, those of the message.
    ///
    /// # Errors
    /// [`Error::NotOpen`] if the receive is not open.
    pub fn progress(&self, connection: Connection, receive: u64) -> Result<&Progress, Error> {
        self.session(connection)?.progress(receive)
    }

    /// The message that fills a receive: the sender's number for it (SDR's user immediate) and its bytes. `None` before
    /// its first packet.
    ///
    /// # Errors
    /// [`Error::NotOpen`] if the receive is not open.
    pub fn arriving(&self, connection: Connection, receive: u64) -> Result<Option<(u32, u64)>, Error> {
        self.session(connection)?.arriving(receive)
    }

    /// Ends a receive, with holes or without, and returns which packets had come. From now on nothing is written into
    /// its range, even if packets are still on their way. If there are holes, the peer is told, and its stream ends.
    ///
    /// # Errors
    /// [`Error::NotOpen`] if the receive is not open.
    pub fn complete(&mut self, connection: Connection, receive: u64) -> Result<Progress, Error> {
        self.call_partial(connection, |session, memory, now| session.complete(now, memory, receive))
    }

    /// Opens a stream for a message: a range of a region of ours. Returns the stream's number. Nothing leaves until
    /// [`Node::push_stream`]. `immediate` is for the peer's program.
    ///
    /// # Errors
    /// [`Error::NoSlot`] if the peer has posted no receive for it (the node asks the peer again, since its notice may
    /// be lost), if one-shots wait, or if the stream with a number lower by 1,024 is open: try again later.
    pub fn begin_stream(
        &mut self,
        connection: Connection,
        region: Region,
        range: Range<usize>,
        immediate: u32,
    ) -> Result<u64, Error> {
        let place = self.memory.place(region, &range)?;
        self.call_partial(connection, |session, memory, now| session.begin_stream(now, memory, place, immediate))
    }

    /// Sends these chunks of a stream. Chunks pushed with `again` leave before all others. Chunk numbers that do not
    /// exist are skipped, so `0..u32::MAX` is all chunks. Bytes are read when their packet leaves.
    ///
    /// # Errors
    /// [`Error::NotOpen`] if the stream has ended, here or because the peer has completed its receive.
    pub fn push_stream(
        &mut self,
        connection: Connection,
        stream: u64,
        chunks: Range<u32>,
        again: bool,
    ) -> Result<(), Error> {
        self.call_partial(connection, |session, _, now| session.push_stream(now, stream, chunks, again))
    }

    /// Is a stream open: neither ended here nor completed with holes by the peer?
    ///
    /// # Errors
    /// If the connection is not established.
    pub fn has_stream(&self, connection: Connection, stream: u64) -> Result<bool, Error> {
        self.session(connection)?.has_stream(stream)
    }

    /// Ends a stream: nothing more of it leaves, not even chunks that were pushed. Its region may be given back. Call
    /// it for each stream, even if the peer has ended the stream.
    ///
    /// # Errors
    /// [`Error::NotOpen`] if this side has ended it before.
    pub fn end_stream(&mut self, connection: Connection, stream: u64) -> Result<(), Error> {
        self.call_partial(connection, |session, memory, now| session.end_stream(now, memory, stream))
    }

    /// Sends a range of a region once, into the next receive of the peer; it waits until the peer has posted one.
    /// [`Completion::Injected`] follows when the last packet has left.
    ///
    /// [`Completion::Injected`]: crate::Completion::Injected
    ///
    /// # Errors
    /// [`Error::Busy`] if as many operations as the limit allows are unfinished.
    pub fn send_once(
        &mut self,
        connection: Connection,
        region: Region,
        range: Range<usize>,
        immediate: u32,
    ) -> Result<Operation, Error> {
        let place = self.memory.place(region, &range)?;
        let (operation, limit) = (Operation(self.operations), self.config.limits.operations);
        self.call_partial(connection, |session, memory, now| {
            if session.posted() >= limit {
                return Err(Error::Busy { limit });
            }
            session.post_once(now, memory, operation, place, immediate)
        })?;
        self.operations += 1;
        Ok(operation)
    }

    /// Runs a call on its connection, which then works in the next turn.
    fn call_partial<T>(
        &mut self,
        connection: Connection,
        act: impl FnOnce(&mut Session, &mut Memory, Time) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.session(connection)?;
        let now = self.clock.now();
        let Some(State::Open(session)) = &mut self.table.slots[connection.index as usize].state else {
            return Err(Error::NotConnected);
        };
        self.turns.latest = now;
        let done = act(session, &mut self.memory, now)?;
        self.make_ready(connection.index);
        Ok(done)
    }
}

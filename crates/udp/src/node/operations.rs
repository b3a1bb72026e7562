//! The operations of an application: sends, writes, receives and control messages, and orders for paths.

use super::{Connection, Node, Operation, Region, RemoteRegion, State};
use crate::error::Error;
use crate::frame::Descriptor;
use crate::layout::Layout;
use crate::session::Session;
use std::ops::Range;
use strandway_fabric::usid::Element;
use strandway_proto::{ControlMessage, PathId, Span, Time};

/// Operations.
impl Node {
    /// Writes a range of a region of ours into the peer's memory, `at` bytes from the start of what its key opens. With
    /// an immediate the peer gets [`Completion::Written`](crate::Completion::Written) when all bytes are there; without one it gets no completion.
    ///
    /// # Errors
    /// If the range or `at` does not fit, the connection is not established, or too many operations are unfinished.
    pub fn write(
        &mut self,
        connection: Connection,
        region: Region,
        range: Range<usize>,
        remote: RemoteRegion,
        at: u64,
        immediate: Option<u32>,
    ) -> Result<Operation, Error> {
        let end = at.saturating_add(range.len() as u64);
        if end > remote.bytes {
            return Err(Error::Range { end, bytes: remote.bytes });
        }
        self.post(connection, region, &range, Descriptor::Write { key: remote.key, start: at, immediate })
    }

    /// Sends a range of a region of ours into the next receive that the peer has posted. The send waits for that
    /// receive; later sends and writes of this connection wait behind it.
    ///
    /// # Errors
    /// As for [`Node::write`].
    pub fn send(&mut self, connection: Connection, region: Region, range: Range<usize>) -> Result<Operation, Error> {
        self.post(connection, region, &range, Descriptor::Send { number: 0 })
    }

    /// Sends the peer's program a control message: one packet, which may be lost and is not repeated. It does not wait
    /// behind operations.
    ///
    /// # Errors
    /// If there is no such connection, or it is not established.
    pub fn send_control(&mut self, connection: Connection, control: ControlMessage) -> Result<(), Error> {
        let now = self.clock.now();
        self.session_mut(connection)?.control(now, control);
        self.turns.latest = now;
        self.let_one_work(connection.index as usize, now, Span::ZERO);
        self.flush();
        Ok(())
    }

    /// Posts a receive for one send of the peer; receives are filled in the order of posting. A send that is longer
    /// than its receive ends the connection.
    ///
    /// # Errors
    /// As for [`Node::write`].
    pub fn recv(&mut self, connection: Connection, region: Region, range: Range<usize>) -> Result<Operation, Error> {
        self.memory.writable(region)?;
        let place = self.memory.place(region, &range)?;
        let limit = self.config.limits.operations;
        let operation = Operation(self.operations);
        let session = self.session_mut(connection)?;
        if session.is_partial() {
            return Err(Error::IsPartial);
        }
        if session.receiving() >= limit {
            return Err(Error::Busy { limit });
        }
        session.receive(operation, place);
        self.memory.hold(place);
        self.operations += 1;
        self.make_ready(connection.index);
        Ok(operation)
    }

    fn post(
        &mut self,
        connection: Connection,
        region: Region,
        range: &Range<usize>,
        descriptor: Descriptor,
    ) -> Result<Operation, Error> {
        let place = self.memory.place(region, range)?;
        if let (Layout::Mrc { .. }, Err(_)) = (self.config.layout, u32::try_from(place.len())) {
            // A message's length has 32 bits there.
            return Err(Error::Range { end: place.len() as u64, bytes: u64::from(u32::MAX) });
        }
        let (operation, now) = (Operation(self.operations), self.clock.now());
        let alone = self.may_post(connection)?;
        self.session_mut(connection)?.post(now, operation, place, descriptor);
        self.memory.hold(place);
        self.begin_posted(connection, now, place.len(), alone);
        Ok(operation)
    }

    /// The session has taken over the next operation, of so many bytes. `alone`: it has no other one.
    pub(super) fn begin_posted(&mut self, connection: Connection, now: Time, bytes: usize, alone: bool) {
        self.operations += 1;
        self.handle_answer(now);
        self.urgent.post(now, bytes);
        self.turns.latest = now;
        self.make_ready(connection.index);
        if alone {
            // Nothing is queued before it, so it leaves now; operations posted while it is under way gather into fuller
            // batches.
            self.let_one_work(connection.index as usize, now, Span::ZERO);
            self.flush();
        }
    }

    /// The round trips that pings of a connection measured since the last call, at most 1,024 of them. They include the
    /// time that the other side takes to wake up. Each plane is pinged four times per `plane_timeout` while anything is
    /// under way; the connections with that peer take turns at pinging.
    ///
    /// # Errors
    /// If there is no such connection, or it is not established.
    pub fn take_round_trips(&mut self, connection: Connection) -> Result<Vec<Span>, Error> {
        self.session_mut(connection).map(Session::take_rtts)
    }

    /// Denies a path of a connection (MRC's DENIED): no packet takes it until it is allowed. False if the connection
    /// has no such path.
    ///
    /// # Errors
    /// If there is no such connection, or it is not established.
    pub fn deny_path(&mut self, connection: Connection, path: PathId) -> Result<bool, Error> {
        let now = self.clock.now();
        self.session_mut(connection).map(|session| session.deny_path(now, path))
    }

    /// Declares a path of a connection good, whatever its state was. False if the connection has no such path.
    ///
    /// # Errors
    /// If there is no such connection, or it is not established.
    pub fn allow_path(&mut self, connection: Connection, path: PathId) -> Result<bool, Error> {
        let now = self.clock.now();
        self.session_mut(connection).map(|session| session.allow_path(now, path))
    }

    /// Denies or allows every path of all connections that crosses a part of the fabric, now and for connections that
    /// begin later. Only with [`Routes::Srv6`](crate::Routes::Srv6) and profile `mrc`. Returns the number of paths whose
    /// state changes.
    pub fn order(&mut self, part: Element, denied: bool) -> usize {
        let mut parts = self.config.denied.parts.clone();
        parts.retain(|other| *other != part);
        parts.extend(denied.then_some(part));
        self.set_denied(parts)
    }

    /// Denies the paths across exactly these parts of the fabric, as [`Node::order`] does for one part. Pings, hellos and
    /// acknowledgements avoid the parts, too, where another path of their plane is left. Returns the number of paths
    /// whose state changes.
    pub fn set_denied(&mut self, parts: Vec<Element>) -> usize {
        let before = std::mem::replace(&mut self.config.denied.parts, parts);
        let (now, routes, after) = (self.clock.now(), &self.config.routes, &self.config.denied.parts);
        let open = self.table.slots.iter_mut().filter_map(|slot| match &mut slot.state {
            Some(State::Open(session)) => Some(session),
            _ => None,
        });
        let changed = open.map(|session| session.order(now, routes, &before, after)).sum();
        self.make_all_ready();
        changed
    }
}

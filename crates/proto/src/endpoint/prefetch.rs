//! Names the memory that an endpoint will need soon, for a world that brings it into the cache ahead of time.
//!
//! A packet's state lies behind three or four pointers, one after the other. A world that serves many endpoints takes
//! one step for each of several endpoints, then the next step. So it never waits for a pointer.

use super::Endpoint;
use crate::connection::Connection;
use crate::packet::{Header, Packet};

/// A step on the way from an endpoint to the state of its connections. Each step reads what the one before it has
/// named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchStep {
    /// Names the endpoint's lists.
    Lists,
    /// Names the connections.
    Connections,
    /// Names the parts of connections that have memory of their own.
    Parts,
    /// Names the paths that the next packets will take, where a path selector keeps them in memory of its own.
    Paths,
}

impl Endpoint {
    /// Calls `fetch` with the addresses that [`Endpoint::handle_packet`] will need for this packet. Changes nothing.
    #[inline]
    pub fn prefetch(&self, step: PrefetchStep, packet: &Packet, fetch: impl Fn(*const u8)) {
        let slot = packet.connection.slot() as usize;
        if step == PrefetchStep::Lists {
            return fetch(self.connections.address(slot));
        }
        if let Some(connection) = self.connections.get(slot) {
            let arrives = matches!(packet.header, Header::Data(_));
            name(connection, step, arrives, fetch);
        }
    }

    /// Calls `fetch` with the addresses of the lists that every input and poll needs, and of the connection that is
    /// asked first when a port falls idle. Changes nothing.
    #[inline]
    pub fn prefetch_ready(&self, step: PrefetchStep, fetch: impl Fn(*const u8)) {
        if step == PrefetchStep::Lists {
            fetch(self.ready.address());
            fetch(self.timers.as_slice().as_ptr().cast());
            fetch(self.control.address());
            return;
        }
        let Some(slot) = self.ready.first() else { return };
        if let Some(connection) = self.connections.get(slot as usize) {
            name(connection, step, false, fetch);
        }
    }
}

#[inline]
fn name(connection: &Connection, step: PrefetchStep, arrives: bool, fetch: impl Fn(*const u8)) {
    match step {
        PrefetchStep::Lists => {}
        PrefetchStep::Connections => connection.name_fields(arrives, fetch),
        PrefetchStep::Parts => connection.name_parts(arrives, fetch),
        PrefetchStep::Paths => connection.name_paths(fetch),
    }
}

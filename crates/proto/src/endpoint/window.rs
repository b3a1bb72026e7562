//! A congestion window shared by connections of several endpoints, for worlds with one endpoint per connection.
//!
//! Within one endpoint, [`super::contexts`] does this. Here the world keeps the window and knows which connections lead
//! to one host. It lends the window to a connection before each call that uses it ([`Endpoint::handle_packet`] with an
//! acknowledgement, [`Endpoint::handle_timeout`], [`Endpoint::poll_transmit`]), and takes it back afterwards. The world
//! also decides which connection has the turn.

use super::Endpoint;
use crate::congestion::Nscc;
use crate::packet::ConnectionId;
use crate::units::Time;

/// One window for connections of several endpoints to one host.
#[derive(Clone, Copy, Debug)]
pub struct SharedWindow {
    congestion: Nscc,
    /// Wire bytes in flight, all members together.
    in_flight: u64,
    is_open: bool,
}

impl SharedWindow {
    /// Did it have room for a packet when it was last taken back?
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Wire bytes that its members have in flight together.
    pub const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Adds a connection that has `share` wire bytes in flight.
    pub const fn join(&mut self, share: u64) {
        self.in_flight += share;
    }

    /// Removes a connection. `share`: the value that [`Endpoint::take_window`] returned last.
    pub const fn leave(&mut self, share: u64) {
        self.in_flight -= share;
        self.is_open = true;
    }
}

impl Endpoint {
    /// Does a connection's profile have one window per destination?
    pub fn shares_window(&self, on: ConnectionId) -> bool {
        let slot = self.connections.find(on);
        slot.and_then(|slot| self.connections.get(slot)).is_some_and(|connection| connection.kind().shares_window)
    }

    /// A copy of this connection's window, for others to share, with nothing in flight. `None` if its profile shares no
    /// windows. `ahead`: picoseconds by which the connection's clock is ahead of the window's.
    pub fn window_to_share(&mut self, on: ConnectionId, ahead: i128) -> Option<SharedWindow> {
        let slot = self.connections.find(on)?;
        let connection = self.connections.get_mut(slot).filter(|connection| connection.kind().shares_window)?;
        let congestion = connection.nscc()?.shifted(-ahead);
        Some(SharedWindow { congestion, in_flight: 0, is_open: true })
    }

    /// Gives a connection a window that it shares, until [`Endpoint::take_window`]. `share`: the value that
    /// `take_window` returned last, or that [`SharedWindow::join`] got. `ahead`: picoseconds by which the connection's
    /// clock is ahead of the window's.
    pub fn grant_window(&mut self, now: Time, on: ConnectionId, window: &SharedWindow, share: u64, ahead: i128) {
        let Some(slot) = self.connections.find(on) else { return };
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let sharing = connection.sharing.get_or_insert_default();
        (sharing.beside, sharing.lent) = (window.in_flight - share, true);
        if let Some(nscc) = connection.nscc() {
            *nscc = window.congestion.shifted(ahead);
        }
        connection.read_window();
        // The window may have room now.
        self.settle(now, slot as u32);
    }

    /// Takes back the window that [`Endpoint::grant_window`] gave, as the connection changed it. Returns the wire bytes
    /// that the connection itself has in flight.
    pub fn take_window(&mut self, on: ConnectionId, window: &mut SharedWindow, ahead: i128) -> u64 {
        let connection = self.connections.find(on).and_then(|slot| self.connections.get_mut(slot));
        let Some(connection) = connection else { return 0 };
        window.in_flight = connection.in_flight().0;
        window.is_open = connection.window_open();
        if let Some(nscc) = connection.nscc() {
            window.congestion = nscc.shifted(-ahead);
        }
        if let Some(sharing) = &mut connection.sharing {
            sharing.beside = 0;
        }
        connection.own_in_flight()
    }

    /// Gives the connection its own window again, with the value that [`Endpoint::grant_window`] gave last.
    pub fn keep_window(&mut self, on: ConnectionId) {
        let connection = self.connections.find(on).and_then(|slot| self.connections.get_mut(slot));
        if let Some(sharing) = connection.and_then(|connection| connection.sharing.as_mut()) {
            sharing.lent = false;
        }
    }

    /// Does a connection have something to send, if the window allows it?
    pub fn has_next(&self, on: ConnectionId) -> bool {
        let slot = self.connections.find(on);
        slot.and_then(|slot| self.connections.get(slot)).is_some_and(|connection| connection.has_next())
    }

    /// Does a connection have something to send that needs no free window and no turn?
    pub fn has_urgent(&self, on: ConnectionId) -> bool {
        let slot = self.connections.find(on);
        slot.and_then(|slot| self.connections.get(slot)).is_some_and(|connection| connection.wants_at_once())
    }

    /// Is the connection between two turns? A turn has the number of bytes that the receiver acknowledges together, and
    /// its last packet requests the acknowledgement.
    pub fn is_between_turns(&self, on: ConnectionId) -> bool {
        let slot = self.connections.find(on);
        let sharing = slot.and_then(|slot| self.connections.get(slot)).and_then(|one| one.sharing.as_ref());
        sharing.is_none_or(|sharing| sharing.turn_left == 0)
    }
}

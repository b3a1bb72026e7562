//! What a world may read of an endpoint's connections. All of these panic if there is no such connection.

use super::Endpoint;
use super::table::Seat;
use crate::account::{Spent, Waits};
use crate::packet::{ConnectionId, PathId};
use crate::path::{PathSelector, PathState, PlaneStates};
use crate::profile::Profile;
use crate::reliability::{Receiver, Reliability};
use crate::stats::ConnectionStats;
use crate::units::{Bytes, Time};

/// Nothing was counted.
const NONE: ConnectionStats = ConnectionStats::NONE;

impl Endpoint {
    /// A connection's counters; those of one that is closing are among [`Endpoint::closed_stats`] already.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn stats(&self, connection: ConnectionId) -> &ConnectionStats {
        match self.connections.seat(self.connections.at(connection)) {
            Seat::Awake(connection) => &connection.record.stats,
            Seat::Asleep(husk) => husk.stats(),
            Seat::Closing(_) | Seat::Free => &NONE,
        }
    }

    /// What connections counted that are closed by now.
    pub const fn closed_stats(&self) -> &ConnectionStats {
        &self.closed_stats
    }

    /// What connections counted that are closed by now or whose slot is `first` or a later one.
    pub fn stats_from(&self, first: u32) -> ConnectionStats {
        let mut sum = self.closed_stats;
        for slot in first as usize..self.connections.slots() {
            match self.connections.seat(slot) {
                Seat::Awake(connection) => sum += connection.record.stats,
                Seat::Asleep(husk) => sum += *husk.stats(),
                Seat::Closing(_) | Seat::Free => {}
            }
        }
        sum
    }

    /// Where a connection's time went up to `now`, as a sender. The difference of two readings adds up to the time between
    /// them.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn spent(&mut self, now: Time, connection: ConnectionId) -> Spent {
        let slot = self.connections.at(connection);
        self.wake(now, slot);
        self.connections.get_mut(slot).map_or_else(Spent::default, |connection| connection.spent(now))
    }

    /// Has a connection something to send that it never sent yet, or that it has to send again?
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn has_unsent(&self, connection: ConnectionId) -> bool {
        let connection = self.connections.get(self.connections.at(connection));
        connection.is_some_and(|c| c.reliability.has_next() || c.reliability.is_held())
    }

    /// What the data packets that came to a connection met on their way.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn waits(&self, connection: ConnectionId) -> Waits {
        match self.connections.seat(self.connections.at(connection)) {
            Seat::Awake(connection) => connection.waits(),
            Seat::Asleep(husk) => husk.waits(),
            Seat::Closing(_) | Seat::Free => Waits::default(),
        }
    }

    /// A connection's profile.
    ///
    /// # Panics
    /// If there is no such connection, or it is closing.
    pub fn profile(&self, connection: ConnectionId) -> &Profile {
        match self.connections.seat(self.connections.at(connection)) {
            Seat::Awake(connection) => &connection.kind().profile,
            Seat::Asleep(husk) => &husk.kind.profile,
            Seat::Closing(_) | Seat::Free => panic!("connection {} is closed", connection.0),
        }
    }

    /// A connection's congestion window in wire bytes.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn window(&self, connection: ConnectionId) -> Bytes {
        match self.connections.seat(self.connections.at(connection)) {
            Seat::Awake(c) => self.shared_window(connection.slot()).map_or_else(|| c.window(), Bytes),
            Seat::Asleep(husk) => husk.window(),
            Seat::Closing(_) | Seat::Free => Bytes(0),
        }
    }

    /// What a connection's path selector holds against each path at present, in the selector's own units; empty if it keeps
    /// no such record.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn penalties(&self, connection: ConnectionId) -> Vec<u32> {
        match self.connections.seat(self.connections.at(connection)) {
            Seat::Awake(connection) => connection.penalties(),
            Seat::Asleep(husk) => husk.path().penalties(),
            Seat::Closing(_) | Seat::Free => Vec::new(),
        }
    }

    /// How the paths of each plane (NIC port) of a connection fare: how many are in use, in reserve, assumed bad or denied;
    /// empty if its path selector keeps no such record.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn planes(&self, connection: ConnectionId) -> Vec<PlaneStates> {
        let connection = self.connections.get(self.connections.at(connection));
        connection.map_or_else(Vec::new, |connection| connection.planes())
    }

    /// Every path of a connection's set and its state; empty if its path selector keeps no such record.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn path_states(&self, connection: ConnectionId) -> Vec<PathState> {
        let connection = self.connections.get(self.connections.at(connection));
        connection.map_or_else(Vec::new, |connection| connection.path_states())
    }

    /// Paths that a connection has taken out so far, those that came back, and those it kept because too few were left.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn path_turnover(&self, connection: ConnectionId) -> [u64; 3] {
        let connection = self.connections.get(self.connections.at(connection));
        connection.map_or([0; 3], |connection| connection.path_turnover())
    }

    /// The controller forbids a connection a path until it allows it again. False if the connection does not have it.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn deny_path(&mut self, now: Time, connection: ConnectionId, path: PathId) -> bool {
        let slot = self.connections.at(connection);
        self.connections.get_mut(slot).is_some_and(|connection| connection.deny_path(now, path))
    }

    /// The controller declares a connection's path good, whatever was held against it. False if the connection does not have
    /// it.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn allow_path(&mut self, now: Time, connection: ConnectionId, path: PathId) -> bool {
        let slot = self.connections.at(connection);
        let Some(awake) = self.connections.get_mut(slot) else { return false };
        let known = awake.allow_path(now, path);
        self.settle(now, connection.slot());
        known
    }

    /// A connection's wire bytes in flight.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn in_flight(&self, connection: ConnectionId) -> Bytes {
        let connection = self.connections.get(self.connections.at(connection));
        connection.map_or(Bytes(0), |connection| connection.reliability.in_flight())
    }

    /// The first PSN that a connection has not received.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn received_up_to(&self, connection: ConnectionId) -> u64 {
        match self.connections.seat(self.connections.at(connection)) {
            Seat::Awake(connection) => connection.receiver.cumulative(),
            Seat::Asleep(husk) => husk.received(),
            Seat::Closing(_) | Seat::Free => 0,
        }
    }

    /// How much an endpoint holds of its connections.
    pub fn census(&self) -> Census {
        let mut census = Census {
            named: self.connections.named(),
            remembered: self.connections.remembered(),
            slots: self.connections.slots(),
            timers: self.timers.len(),
            looks: self.waking.len(),
            ..Census::default()
        };
        for slot in 0..self.connections.slots() {
            match self.connections.seat(slot) {
                Seat::Awake(_) => census.awake += 1,
                Seat::Asleep(_) => census.asleep += 1,
                Seat::Closing(_) => census.closing += 1,
                Seat::Free => {}
            }
        }
        census
    }
}

/// How much an endpoint holds of its connections: see [`Endpoint::census`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Connections in use, or unused for a short while.
    pub awake: usize,
    /// Connections that sleep.
    pub asleep: usize,
    /// Connections that we have closed and whose peer has not answered yet.
    pub closing: usize,
    /// Connections that their peers have opened.
    pub named: usize,
    /// Closed connections whose late packets are still known.
    pub remembered: usize,
    /// Slots of the table, free ones included.
    pub slots: usize,
    /// Entries of the timer heap, outdated ones included.
    pub timers: usize,
    /// Connections to look at whether they are still used, outdated entries included.
    pub looks: usize,
}

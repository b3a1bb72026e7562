//! The readable state of an endpoint and its connections. Reading changes nothing.

use super::Endpoint;
use super::table::SlotState;
use crate::account::Waits;
use crate::packet::{ConnectionId, HostId};
use crate::path::{PathCounts, PathSelector, PathState, PlaneStates, Turnover};
use crate::profile::Profile;
use crate::reliability::{Receiver, Reliability};
use crate::stats::ConnectionStats;
use crate::units::Bytes;

/// All counters zero.
const NONE: ConnectionStats = ConnectionStats::NONE;

/// Reads the state of an [`Endpoint`]: see [`Endpoint::observe`].
#[derive(Clone, Copy)]
pub struct Observer<'a>(&'a Endpoint);

impl Endpoint {
    /// Its readable state.
    #[inline]
    pub const fn observe(&self) -> Observer<'_> {
        Observer(self)
    }
}

impl<'a> Observer<'a> {
    /// Is this connection open and not closing?
    pub fn is_open(self, id: ConnectionId) -> bool {
        let slot = self.0.connections.find(id);
        slot.is_some_and(|slot| matches!(self.0.connections.state(slot), SlotState::Awake(_) | SlotState::Asleep(_)))
    }

    /// The other host of a connection.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn peer(self, id: ConnectionId) -> HostId {
        match self.0.connections.state(self.0.connections.at(id)) {
            SlotState::Awake(connection) => connection.peer(),
            SlotState::Asleep(dormant) => dormant.peer,
            SlotState::Closing(closing) => closing.peer,
            SlotState::Free => unreachable!("it was found"),
        }
    }

    /// The number of connections, closing ones included.
    pub fn connections(self) -> usize {
        self.0.connections.len()
    }

    /// Packets for connections that do not exist.
    pub fn strays(self) -> u64 {
        self.0.strays
    }

    /// A connection's counters; those of a closing connection are already in [`Observer::closed_stats`].
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn stats(self, connection: ConnectionId) -> &'a ConnectionStats {
        match self.0.connections.state(self.0.connections.at(connection)) {
            SlotState::Awake(connection) => &connection.record.stats,
            SlotState::Asleep(dormant) => dormant.stats(),
            SlotState::Closing(_) | SlotState::Free => &NONE,
        }
    }

    /// The sum of the counters of closed connections.
    pub fn closed_stats(self) -> &'a ConnectionStats {
        self.0.closed_stats.as_deref().unwrap_or(&NONE)
    }

    /// The sum of the counters of closed connections and of connections in slot `first` or a later one.
    pub fn stats_from(self, first: u32) -> ConnectionStats {
        let mut sum = *self.closed_stats();
        for slot in first as usize..self.0.connections.slots() {
            match self.0.connections.state(slot) {
                SlotState::Awake(connection) => sum += connection.record.stats,
                SlotState::Asleep(dormant) => sum += *dormant.stats(),
                SlotState::Closing(_) | SlotState::Free => {}
            }
        }
        sum
    }

    /// Does a connection have packets to send for the first time, or again?
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn has_unsent(self, connection: ConnectionId) -> bool {
        let connection = self.0.connections.get(self.0.connections.at(connection));
        connection.is_some_and(|c| c.reliability.has_next() || c.reliability.is_held())
    }

    /// Where the data packets that arrived at a connection waited on their way.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn waits(self, connection: ConnectionId) -> Waits {
        match self.0.connections.state(self.0.connections.at(connection)) {
            SlotState::Awake(connection) => connection.waits(),
            SlotState::Asleep(dormant) => dormant.waits(),
            SlotState::Closing(_) | SlotState::Free => Waits::default(),
        }
    }

    /// A connection's profile.
    ///
    /// # Panics
    /// If there is no such connection, or it is closing.
    pub fn profile(self, connection: ConnectionId) -> &'a Profile {
        match self.0.connections.state(self.0.connections.at(connection)) {
            SlotState::Awake(connection) => &connection.kind().profile,
            SlotState::Asleep(dormant) => &dormant.kind.profile,
            SlotState::Closing(_) | SlotState::Free => panic!("connection {} is closed", connection.0),
        }
    }

    /// A connection's congestion window in wire bytes.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn window(self, connection: ConnectionId) -> Bytes {
        match self.0.connections.state(self.0.connections.at(connection)) {
            SlotState::Awake(c) => self.0.shared_window(connection.slot()).map_or_else(|| c.window(), Bytes),
            SlotState::Asleep(dormant) => dormant.window(),
            SlotState::Closing(_) | SlotState::Free => Bytes(0),
        }
    }

    /// The present penalty of each path in a connection's path selector, in the selector's own units; empty if it has
    /// no penalties.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn penalties(self, connection: ConnectionId) -> Vec<u32> {
        match self.0.connections.state(self.0.connections.at(connection)) {
            SlotState::Awake(connection) => connection.penalties(),
            SlotState::Asleep(dormant) => dormant.path().penalties(),
            SlotState::Closing(_) | SlotState::Free => Vec::new(),
        }
    }

    /// For each plane (NIC port) of a connection: the number of paths in use, in reserve, assumed bad and denied; empty
    /// if its path selector has no such states.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn planes(self, connection: ConnectionId) -> Vec<PlaneStates> {
        let connection = self.0.connections.get(self.0.connections.at(connection));
        connection.map_or_else(Vec::new, |connection| connection.planes())
    }

    /// Every path of a connection's set and its state; empty if its path selector has no such states.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn path_states(self, connection: ConnectionId) -> Vec<PathState> {
        let connection = self.0.connections.get(self.0.connections.at(connection));
        connection.map_or_else(Vec::new, |connection| connection.path_states())
    }

    /// The data packets of a connection by path; empty without [`Endpoint::tally_paths`].
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn path_counts(self, connection: ConnectionId) -> &'a [PathCounts] {
        match self.0.connections.state(self.0.connections.at(connection)) {
            SlotState::Awake(connection) => connection.record.paths.as_ref().map_or(&[], |paths| paths.counts()),
            SlotState::Asleep(dormant) => dormant.path_counts(),
            SlotState::Closing(_) | SlotState::Free => &[],
        }
    }

    /// The counters of a connection's set of paths; zeros if its path selector has none.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn path_turnover(self, connection: ConnectionId) -> Turnover {
        let connection = self.0.connections.get(self.0.connections.at(connection));
        connection.map_or(Turnover::default(), |connection| connection.path_turnover())
    }

    /// The numbers of all connections that are awake, each with its peer.
    pub fn awake(self) -> Vec<(ConnectionId, HostId)> {
        let awake = |slot| Some((self.0.connections.id(slot), self.0.connections.get(slot)?.peer()));
        (0..self.0.connections.slots()).filter_map(awake).collect()
    }

    /// A connection's wire bytes in flight.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn in_flight(self, connection: ConnectionId) -> Bytes {
        let connection = self.0.connections.get(self.0.connections.at(connection));
        connection.map_or(Bytes(0), |connection| connection.reliability.in_flight())
    }

    /// The lowest PSN that a connection has not received.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn received_up_to(self, connection: ConnectionId) -> u64 {
        match self.0.connections.state(self.0.connections.at(connection)) {
            SlotState::Awake(connection) => connection.receiver.cumulative(),
            SlotState::Asleep(dormant) => dormant.received(),
            SlotState::Closing(_) | SlotState::Free => 0,
        }
    }

    /// Counts what an endpoint stores for its connections.
    pub fn census(self) -> Census {
        let mut census = Census {
            named: self.0.connections.named(),
            remembered: self.0.connections.remembered(),
            slots: self.0.connections.slots(),
            timers: self.0.timers.len(),
            looks: self.0.waking.len(),
            ..Census::default()
        };
        for slot in 0..self.0.connections.slots() {
            match self.0.connections.state(slot) {
                SlotState::Awake(_) => census.awake += 1,
                SlotState::Asleep(_) => census.asleep += 1,
                SlotState::Closing(_) => census.closing += 1,
                SlotState::Free => {}
            }
        }
        census
    }
}

/// The number of items that an endpoint stores for its connections: see [`Observer::census`].
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
    /// Closed connections that are remembered because of late packets.
    pub remembered: usize,
    /// Slots of the table, free ones included.
    pub slots: usize,
    /// Entries of the timer heap, outdated ones included.
    pub timers: usize,
    /// Entries of the list of connections to check for use, outdated ones included.
    pub looks: usize,
}

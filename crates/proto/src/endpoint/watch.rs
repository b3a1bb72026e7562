//! Calls by which a world reads the state of an endpoint's connections. They panic if there is no such connection.

use super::Endpoint;
use super::table::SlotState;
use crate::account::{Spent, Waits};
use crate::packet::{ConnectionId, HostId, PathId};
use crate::path::{PathCounts, PathEvent, PathSelector, PathState, PathStatus, PlaneStates, Turnover};
use crate::profile::Profile;
use crate::reliability::{Receiver, Reliability};
use crate::stats::ConnectionStats;
use crate::units::{Bytes, Time};

/// All counters zero.
const NONE: ConnectionStats = ConnectionStats::NONE;

impl Endpoint {
    /// A connection's counters; those of a closing connection are already in [`Endpoint::closed_stats`].
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn stats(&self, connection: ConnectionId) -> &ConnectionStats {
        match self.connections.state(self.connections.at(connection)) {
            SlotState::Awake(connection) => &connection.record.stats,
            SlotState::Asleep(dormant) => dormant.stats(),
            SlotState::Closing(_) | SlotState::Free => &NONE,
        }
    }

    /// The sum of the counters of closed connections.
    pub const fn closed_stats(&self) -> &ConnectionStats {
        &self.closed_stats
    }

    /// The sum of the counters of closed connections and of connections in slot `first` or a later one.
    pub fn stats_from(&self, first: u32) -> ConnectionStats {
        let mut sum = self.closed_stats;
        for slot in first as usize..self.connections.slots() {
            match self.connections.state(slot) {
                SlotState::Awake(connection) => sum += connection.record.stats,
                SlotState::Asleep(dormant) => sum += *dormant.stats(),
                SlotState::Closing(_) | SlotState::Free => {}
            }
        }
        sum
    }

    /// How a connection spent its time as a sender, up to `now`. The difference of two readings adds up to the time
    /// between them.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn spent(&mut self, now: Time, connection: ConnectionId) -> Spent {
        let slot = self.connections.at(connection);
        self.wake(now, slot);
        self.connections.get_mut(slot).map_or_else(Spent::default, |connection| connection.spent(now))
    }

    /// Does a connection have packets to send for the first time, or again?
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn has_unsent(&self, connection: ConnectionId) -> bool {
        let connection = self.connections.get(self.connections.at(connection));
        connection.is_some_and(|c| c.reliability.has_next() || c.reliability.is_held())
    }

    /// Where the data packets that arrived at a connection waited on their way.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn waits(&self, connection: ConnectionId) -> Waits {
        match self.connections.state(self.connections.at(connection)) {
            SlotState::Awake(connection) => connection.waits(),
            SlotState::Asleep(dormant) => dormant.waits(),
            SlotState::Closing(_) | SlotState::Free => Waits::default(),
        }
    }

    /// A connection's profile.
    ///
    /// # Panics
    /// If there is no such connection, or it is closing.
    pub fn profile(&self, connection: ConnectionId) -> &Profile {
        match self.connections.state(self.connections.at(connection)) {
            SlotState::Awake(connection) => &connection.kind().profile,
            SlotState::Asleep(dormant) => &dormant.kind.profile,
            SlotState::Closing(_) | SlotState::Free => panic!("connection {} is closed", connection.0),
        }
    }

    /// A connection's congestion window in wire bytes.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn window(&self, connection: ConnectionId) -> Bytes {
        match self.connections.state(self.connections.at(connection)) {
            SlotState::Awake(c) => self.shared_window(connection.slot()).map_or_else(|| c.window(), Bytes),
            SlotState::Asleep(dormant) => dormant.window(),
            SlotState::Closing(_) | SlotState::Free => Bytes(0),
        }
    }

    /// The present penalty of each path in a connection's path selector, in the selector's own units; empty if it has
    /// no penalties.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn penalties(&self, connection: ConnectionId) -> Vec<u32> {
        match self.connections.state(self.connections.at(connection)) {
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
    pub fn planes(&self, connection: ConnectionId) -> Vec<PlaneStates> {
        let connection = self.connections.get(self.connections.at(connection));
        connection.map_or_else(Vec::new, |connection| connection.planes())
    }

    /// Every path of a connection's set and its state; empty if its path selector has no such states.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn path_states(&self, connection: ConnectionId) -> Vec<PathState> {
        let connection = self.connections.get(self.connections.at(connection));
        connection.map_or_else(Vec::new, |connection| connection.path_states())
    }

    /// From now on, counts the data packets of a connection by path ([`Endpoint::path_counts`]). This costs a search in
    /// a short list per packet.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn tally_paths(&mut self, connection: ConnectionId) {
        let at = self.connections.at(connection);
        match self.connections.state_mut(at) {
            SlotState::Awake(connection) => {
                connection.record.paths.get_or_insert_default();
            }
            SlotState::Asleep(dormant) => dormant.tally_paths(),
            SlotState::Closing(_) | SlotState::Free => {}
        }
    }

    /// The data packets of a connection by path; empty without [`Endpoint::tally_paths`].
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn path_counts(&self, connection: ConnectionId) -> &[PathCounts] {
        match self.connections.state(self.connections.at(connection)) {
            SlotState::Awake(connection) => connection.record.paths.as_ref().map_or(&[], |paths| paths.counts()),
            SlotState::Asleep(dormant) => dormant.path_counts(),
            SlotState::Closing(_) | SlotState::Free => &[],
        }
    }

    /// The counters of a connection's set of paths; zeros if its path selector has none.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn path_turnover(&self, connection: ConnectionId) -> Turnover {
        let connection = self.connections.get(self.connections.at(connection));
        connection.map_or(Turnover::default(), |connection| connection.path_turnover())
    }

    /// The oldest change of a connection's paths that was not read yet: one that failed, was probed, came back, or was
    /// denied or allowed. At most [`PATH_EVENTS_MAX`](crate::path::PATH_EVENTS_MAX) wait.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn take_path_event(&mut self, connection: ConnectionId) -> Option<PathEvent> {
        let slot = self.connections.at(connection);
        self.connections.get_mut(slot)?.take_path_event()
    }

    /// Takes the waiting changes of the paths of all connections, each with the connection's peer, slot by slot.
    pub fn take_path_events(&mut self, mut each: impl FnMut(HostId, PathEvent)) {
        for (_, connection) in self.connections.awake() {
            let peer = connection.peer();
            while let Some(event) = connection.take_path_event() {
                each(peer, event);
            }
        }
    }

    /// The numbers of all connections that are awake, each with its peer.
    pub fn awake(&mut self) -> Vec<(ConnectionId, HostId)> {
        let slots: Vec<(usize, HostId)> = self.connections.awake().map(|(slot, c)| (slot, c.peer())).collect();
        slots.into_iter().map(|(slot, peer)| (self.connections.id(slot), peer)).collect()
    }

    /// The controller puts another path of the same plane in the place of one of a connection's set, in this state.
    /// False if the connection has no such path, or has the new one already, or the planes differ.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn substitute_path(
        &mut self,
        now: Time,
        connection: ConnectionId,
        old: PathId,
        new: PathId,
        status: PathStatus,
    ) -> bool {
        let slot = self.connections.at(connection);
        let Some(awake) = self.connections.get_mut(slot) else { return false };
        let known = awake.substitute_path(now, old, new, status);
        self.settle(now, connection.slot());
        known
    }

    /// The controller forbids a path of a connection until it allows it again. False if the connection has no such
    /// path.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn deny_path(&mut self, now: Time, connection: ConnectionId, path: PathId) -> bool {
        let slot = self.connections.at(connection);
        self.connections.get_mut(slot).is_some_and(|connection| connection.deny_path(now, path))
    }

    /// The controller declares a path of a connection good, whatever its state was. False if the connection has no such
    /// path.
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

    /// The lowest PSN that a connection has not received.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn received_up_to(&self, connection: ConnectionId) -> u64 {
        match self.connections.state(self.connections.at(connection)) {
            SlotState::Awake(connection) => connection.receiver.cumulative(),
            SlotState::Asleep(dormant) => dormant.received(),
            SlotState::Closing(_) | SlotState::Free => 0,
        }
    }

    /// Counts what an endpoint stores for its connections.
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
            match self.connections.state(slot) {
                SlotState::Awake(_) => census.awake += 1,
                SlotState::Asleep(_) => census.asleep += 1,
                SlotState::Closing(_) => census.closing += 1,
                SlotState::Free => {}
            }
        }
        census
    }
}

/// The number of items that an endpoint stores for its connections: see [`Endpoint::census`].
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

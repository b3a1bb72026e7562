//! The paths of connections: what a controller orders, and what the application is told.

use super::Endpoint;
use super::table::SlotState;
use crate::account::Spent;
use crate::packet::{ConnectionId, HostId, PathId};
use crate::path::{PathEvent, PathStatus};
use crate::units::Time;

impl Endpoint {
    /// From now on, counts the data packets of a connection by path ([`Observer::path_counts`](super::Observer::path_counts)). This costs a search in
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
}

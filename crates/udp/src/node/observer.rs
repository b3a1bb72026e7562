//! The readable state of a node and its connections. Reading changes nothing.

use super::{Connection, Node};
use crate::address::is_ipv4;
use crate::completion::NodeCounters;
use crate::error::Error;
use crate::group::GroupCounters;
use crate::handles::Group;
use crate::plane::{Plane, PlaneCounters};
use crate::session::{Session, SessionCounters};
use std::time::Duration;
use strandway_proto::path::{PathCounts, PathState};

/// Reads the state of a [`Node`]: see [`Node::observe`].
#[derive(Clone, Copy)]
pub struct NodeObserver<'a>(&'a Node);

impl Node {
    /// Its readable state.
    pub const fn observe(&self) -> NodeObserver<'_> {
        NodeObserver(self)
    }
}

impl<'a> NodeObserver<'a> {
    /// The counters of a connection.
    ///
    /// # Errors
    /// If there is no such connection, or it is not established.
    pub fn connection_counters(self, connection: Connection) -> Result<SessionCounters, Error> {
        self.0.session(connection).map(Session::counters)
    }

    /// Payload bytes of a full packet of a connection.
    ///
    /// # Errors
    /// As for [`NodeObserver::connection_counters`].
    pub fn payload(self, connection: Connection) -> Result<u32, Error> {
        self.0.session(connection).map(Session::payload)
    }

    /// The paths of a connection with profile `mrc`, each with its state; empty with other profiles.
    ///
    /// # Errors
    /// As for [`NodeObserver::connection_counters`].
    pub fn path_states(self, connection: Connection) -> Result<Vec<PathState>, Error> {
        self.0.session(connection).map(Session::path_states)
    }

    /// The data packets of a connection by path; empty without [`PathReports::counts`](crate::PathReports::counts).
    ///
    /// # Errors
    /// As for [`NodeObserver::connection_counters`].
    pub fn path_counts(self, connection: Connection) -> Result<Vec<PathCounts>, Error> {
        self.0.session(connection).map(|session| session.path_counts().to_vec())
    }

    /// How long nothing genuine has come from the node at the other end of a connection, by any connection with it.
    ///
    /// # Errors
    /// As for [`NodeObserver::connection_counters`].
    pub fn silence(self, connection: Connection) -> Result<Duration, Error> {
        let heard = self.0.monitors.heard(self.0.session(connection)?.monitor());
        Ok(Duration::from_nanos(self.0.clock.now().since(heard).0 / 1_000))
    }

    /// The counters of each plane.
    pub fn plane_counters(self) -> Vec<PlaneCounters> {
        self.0.planes.iter().map(|plane| plane.counters).collect()
    }

    /// Bytes that have left by all planes, with UDP and IP headers, and Ethernet frames (38 bytes each, preamble,
    /// checksum and gap included).
    pub fn wire_bytes(self) -> u64 {
        let each = self.0.planes.iter().zip(&self.0.config.planes).map(|(plane, ours)| {
            let headers = if is_ipv4(*ours.ip()) { 28 } else { 48 };
            plane.counters.sent_bytes + plane.counters.sent * (headers + 38)
        });
        each.sum()
    }

    /// Is the port of each plane up, as far as the system tells?
    pub fn ports_up(self) -> &'a [bool] {
        &self.0.ports.up
    }

    /// Connections at present, including those that are being established.
    pub fn connections(self) -> usize {
        self.0.table.open
    }

    /// Number of peer nodes. Connections that are known to lead to one node count as one peer and are watched as one.
    pub fn peers(self) -> usize {
        self.0.monitors.count_peers()
    }

    /// Counters of events that belong to no open connection.
    pub fn counters(self) -> NodeCounters {
        self.0.counters
    }

    /// The most datagrams per sending call; 1 where the kernel has no GSO.
    pub fn segments_per_send(self) -> usize {
        self.0.planes.iter().map(Plane::segments).min().unwrap_or(1)
    }

    /// The time since the node was bound.
    pub fn uptime(self) -> Duration {
        self.0.clock.age()
    }

    /// The counters of a group.
    ///
    /// # Errors
    /// If the node is not in it.
    pub fn group_counters(self, group: Group) -> Result<GroupCounters, Error> {
        self.0.groups.team(group).map(|team| team.counters)
    }

    /// The planes whose ports work, one bit each.
    pub fn planes_up(self) -> u32 {
        self.0.ports.up.iter().zip(0..).fold(0, |up, (&port, bit)| up | u32::from(port) << bit)
    }
}

//! A sleeping connection. It keeps the state on which both ends must agree, and its counters.
//!
//! Congestion control and path selector are made anew when it wakes, as for a new connection. The random stream is the
//! one of its opening, so a connection with a single path keeps that path for life.

use super::record::Record;
use super::{Connection, Idle};
use crate::account::Waits;
use crate::congestion::Congestion;
use crate::connection::Kind;
use crate::packet::{ConnectionId, HostId};
use crate::path::{AnyPath, PathCounts};
use crate::reliability::{Receiver, Reliability};
use crate::rng::Random;
use crate::stats::ConnectionStats;
use crate::units::{Bytes, Time};
use std::sync::Arc;

/// A connection without posted messages, packets in flight or timers.
pub(crate) struct DormantConnection {
    pub(crate) kind: Arc<Kind>,
    random: Random,
    pub(crate) peer: HostId,
    pub(crate) peer_connection: ConnectionId,
    /// The next PSN to send.
    sent: u64,
    received: Received,
    /// The byte count in the newest acknowledgement that the sender got.
    newest: u32,
    /// True if it was awake before. Then the peer may know of it, even if it has sent nothing but control messages,
    /// which are not counted.
    has_woken: bool,
    /// `None` if there is nothing to count.
    record: Option<Box<Record>>,
}

/// The state that a receiver keeps during a sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The next PSN expected.
    pub next: u64,
    /// New payload bytes so far.
    pub bytes: u64,
}

/// The state that a sender keeps during a sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentUpTo {
    /// The next PSN to send.
    pub next: u64,
    /// The newest acknowledgement's count of bytes received; zero for a reliability that does not need the order of
    /// acknowledgements.
    pub newest: u32,
}

const _: () = assert!(size_of::<DormantConnection>() <= 96, "a connection that sleeps");

const UNUSED: ConnectionStats = ConnectionStats::NONE;

impl DormantConnection {
    /// A connection that was never used.
    pub(crate) fn new(kind: Arc<Kind>, peer: (HostId, ConnectionId), random: Random) -> DormantConnection {
        let (peer, peer_connection) = peer;
        let received = Received::default();
        DormantConnection {
            kind,
            random,
            peer,
            peer_connection,
            sent: 0,
            received,
            newest: 0,
            has_woken: false,
            record: None,
        }
    }

    /// Was it never used?
    pub(crate) const fn is_unused(&self) -> bool {
        !self.has_woken
    }

    pub(crate) fn stats(&self) -> &ConnectionStats {
        self.record.as_ref().map_or(&UNUSED, |record| &record.stats)
    }

    /// Counts packets by path from now on.
    pub(crate) fn tally_paths(&mut self) {
        self.record.get_or_insert_with(Record::new).paths.get_or_insert_default();
    }

    /// The counts of packets by path.
    pub(crate) fn path_counts(&self) -> &[PathCounts] {
        self.record.as_ref().and_then(|record| record.paths.as_ref()).map_or(&[], |paths| paths.counts())
    }

    /// Returns the counters and resets them.
    pub(crate) fn take_record(&mut self) -> ConnectionStats {
        self.record.take().map_or(UNUSED, |record| record.stats)
    }

    pub(crate) fn waits(&self) -> Waits {
        self.record.as_ref().map(|record| record.waits).unwrap_or_default()
    }

    pub(crate) const fn received(&self) -> u64 {
        self.received.next
    }

    /// The window that it will wake with.
    pub(crate) fn window(&self) -> Bytes {
        self.kind.profile.congestion.build(&self.kind.environment).window()
    }

    /// The path selector that it will wake with.
    pub(crate) fn path(&self) -> AnyPath {
        self.kind.profile.path.build(&self.kind.environment, self.random)
    }

    /// The connection again, on our `host`.
    pub(crate) fn wake(self, host: HostId) -> Connection {
        let peer = (self.peer, self.peer_connection);
        let mut connection = Connection::new(self.kind, host, peer, self.random);
        if self.sent > 0 || self.newest > 0 {
            connection.reliability.resume(SentUpTo { next: self.sent, newest: self.newest });
            connection.refresh_outlook();
        }
        if self.received.next > 0 {
            connection.receiver.resume(self.received);
        }
        if let Some(record) = self.record {
            connection.record = record;
        }
        connection
    }
}

impl Connection {
    /// When it last sent a packet or received a new one.
    pub(crate) fn active_at(&self) -> Time {
        self.record.clock.heard.max(self.record.waits.last_arrival)
    }

    /// The state to keep while it sleeps; `None` while it has something to do or to wait for.
    pub(crate) fn dormant(&mut self, now: Time) -> Option<DormantConnection> {
        let busy = self.ready || self.is_active() || self.idle != Idle::Silent || self.pace_at > now;
        if busy || self.sharing.is_some() || self.deadline(now) != Time::NEVER || self.path.deadline() != Time::NEVER {
            return None;
        }
        if self.wants() || self.wants_idle_probe() || self.reliability.is_held() {
            return None;
        }
        let sent = self.reliability.rest()?;
        let received = self.receiver.rest()?;
        let used = self.record.stats != UNUSED;
        Some(DormantConnection {
            kind: Arc::clone(&self.kind),
            random: self.random,
            peer: self.peer.0,
            peer_connection: self.peer.1,
            sent: sent.next,
            received,
            newest: sent.newest,
            has_woken: true,
            record: used.then(|| std::mem::replace(&mut self.record, Record::new())),
        })
    }
}

//! The counters of a connection. They are plain fields: reading them changes nothing.

/// Counters of one connection, both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ConnectionStats {
    /// Data packets sent, retransmissions included.
    pub sent: u64,
    /// Data packets sent again.
    pub retransmitted: u64,
    /// Acknowledgements received.
    pub acks: u64,
    /// Acknowledgements that echoed CE.
    pub acks_marked: u64,
    /// NACKs received.
    pub nacks: u64,
    /// CNPs received.
    pub notifications: u64,
    /// Retransmission timeouts that found packets overdue.
    pub timeouts: u64,
    /// Probes sent.
    pub probes: u64,
    /// Whole data packets received for the first time.
    pub delivered: u64,
    /// Payload bytes received for the first time.
    pub delivered_bytes: u64,
    /// Whole data packets received again.
    pub duplicates: u64,
    /// Data packets received with CE.
    pub marked: u64,
    /// Trimmed packets received.
    pub trimmed: u64,
    /// Whole data packets that were new but were dropped: out of order (go-back-N), or beyond the window.
    pub discarded: u64,
    /// Invalid packets that were dropped.
    pub invalid: u64,
}

impl ConnectionStats {
    /// All counters zero.
    pub const NONE: ConnectionStats = ConnectionStats {
        sent: 0,
        retransmitted: 0,
        acks: 0,
        acks_marked: 0,
        nacks: 0,
        notifications: 0,
        timeouts: 0,
        probes: 0,
        delivered: 0,
        delivered_bytes: 0,
        duplicates: 0,
        marked: 0,
        trimmed: 0,
        discarded: 0,
        invalid: 0,
    };
}

/// Adds the counters of another connection, or of the other end.
impl core::ops::AddAssign for ConnectionStats {
    fn add_assign(&mut self, one: ConnectionStats) {
        self.sent += one.sent;
        self.retransmitted += one.retransmitted;
        self.acks += one.acks;
        self.acks_marked += one.acks_marked;
        self.nacks += one.nacks;
        self.notifications += one.notifications;
        self.timeouts += one.timeouts;
        self.probes += one.probes;
        self.delivered += one.delivered;
        self.delivered_bytes += one.delivered_bytes;
        self.duplicates += one.duplicates;
        self.marked += one.marked;
        self.trimmed += one.trimmed;
        self.discarded += one.discarded;
        self.invalid += one.invalid;
    }
}

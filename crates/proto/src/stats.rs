//! The counters of a connection. They are plain fields: reading them changes nothing.

use crate::counters;

counters! {
    /// Counters of one connection, both directions.
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
}

//! In-band telemetry: the records that switches add to a data packet, one for each hop.
//!
//! The receiver sends the records back with its answer to the packet, and the sender's congestion control reads them
//! ([`crate::congestion::Congestion::on_telemetry`]). Only the simulator has such switches. The records travel beside a
//! [`crate::Packet`], not in it, so runs without telemetry do not pay for them.

use crate::units::{Rate, Time};

/// A packet carries the records of at most this many switches. HPCC's artefact (ns-3): `maxHop` = 5, the longest path
/// through three tiers.
pub const HOPS_MAX: usize = 5;

/// Bytes that telemetry adds to a data packet and to its answer. HPCC (SIGCOMM 2019) and its artefact: 8
/// bytes for each of 5 hops, and 2 bytes for their number.
pub const TELEMETRY_BYTES: u32 = 42;

/// The state of a switch port at the moment when a packet begins to leave by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HopRecord {
    /// The number of the port's link.
    pub link: u32,
    /// Bytes that wait in the port, all classes together.
    pub queue: u32,
    /// The present time.
    pub time: Time,
    /// Bytes that the port has sent before this packet.
    pub sent: u64,
    /// The link's present rate.
    pub rate: Rate,
}

/// The records of one packet, in order of hops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Telemetry {
    records: [HopRecord; HOPS_MAX],
    count: u8,
}

impl Telemetry {
    /// No records.
    pub const NONE: Telemetry = Telemetry {
        records: [HopRecord { link: 0, queue: 0, time: Time::ZERO, sent: 0, rate: Rate(0) }; HOPS_MAX],
        count: 0,
    };

    /// Adds the record of the next hop. Hops beyond [`HOPS_MAX`] are not recorded.
    #[inline]
    pub fn push(&mut self, record: HopRecord) {
        if let Some(place) = self.records.get_mut(usize::from(self.count)) {
            *place = record;
            self.count += 1;
        }
    }

    /// The records, in order of hops.
    #[inline]
    pub fn records(&self) -> &[HopRecord] {
        &self.records[..usize::from(self.count)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_keep_the_order_of_hops_and_end_after_five() {
        let mut telemetry = Telemetry::NONE;
        for link in 1..=7 {
            telemetry.push(HopRecord { link, ..HopRecord::default() });
        }
        assert_eq!(telemetry.records().iter().map(|r| r.link).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    }
}

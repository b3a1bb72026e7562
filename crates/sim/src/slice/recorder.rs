//! The records and counters of a slice.

use super::watch::Sampler;
use crate::control::Control;
use crate::records::Records;
use strandway_fabric::measure::{Captured, FlowTime, PATH_SLOTS, PacketCounters, PathCounters};
use strandway_fabric::tally::Tally;
use strandway_proto::units::Time;

/// Everything that a slice measures, apart from the counters of ports and connections.
pub(crate) struct Recorder<'a> {
    /// The rows of all flows; hosts of all slices write into them.
    pub(super) records: &'a Records,
    /// For messages without a row: the results by collective.
    pub(crate) tallies: Vec<Tally>,
    /// The time accounts of the flows that ended.
    pub(crate) times: Vec<(u32, FlowTime)>,
    pub(crate) packets: PacketCounters,
    pub(crate) paths: Vec<PathCounters>,
    pub(crate) captured: Vec<Captured>,
    pub(crate) hops: u64,
    /// The numbers of whole and of trimmed packets that switches made by copying.
    pub(crate) copies: [u64; 2],
    /// The number of finished messages, and when the last one finished.
    pub(crate) finished: u64,
    pub(crate) finished_at: u64,
    /// The finished messages and hops that were reported as progress.
    reported: (u64, u64),
    pub(super) sampler: Sampler,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(
        records: &'a Records,
        collectives: usize,
        rows: bool,
        planes: u8,
        sampler: Sampler,
    ) -> Recorder<'a> {
        Recorder {
            records,
            tallies: vec![Tally::new(rows); collectives],
            times: Vec::new(),
            packets: PacketCounters::default(),
            paths: vec![PathCounters::default(); usize::from(planes) * PATH_SLOTS],
            captured: Vec::new(),
            hops: 0,
            copies: [0; 2],
            finished: 0,
            finished_at: 0,
            reported: (0, 0),
            sampler,
        }
    }

    /// Reports the progress up to `now` to `control`.
    pub(super) fn report(&mut self, now: u64, control: &Control) {
        control.reached(Time(now));
        control.add(self.finished - self.reported.0, self.hops - self.reported.1);
        self.reported = (self.finished, self.hops);
    }
}

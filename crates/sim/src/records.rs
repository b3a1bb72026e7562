//! A row per flow: when it was posted, received and finished. All slices write into the same rows, each its own hosts'
//! part.

use std::sync::atomic::{AtomicU64, Ordering};
use strandway_fabric::measure::FlowRecord;
use strandway_proto::Time;

/// The instants of one flow, in ps plus one; zero stands for "not yet".
#[derive(Default)]
struct Row {
    started: AtomicU64,
    received: AtomicU64,
    finished: AtomicU64,
}

/// The rows of a run. Each time is written by only one host, so the order of the writers does not matter.
pub(crate) struct Records {
    rows: Vec<Row>,
}

impl Records {
    /// Rows for this many flows.
    pub(crate) fn new(flows: usize) -> Records {
        let mut rows = Vec::new();
        rows.resize_with(flows, Row::default);
        Records { rows }
    }

    /// A flow was posted.
    pub(crate) fn start(&self, flow: u32, at: Time) {
        self.stamp(flow, at, |row| &row.started);
    }

    /// The receiver has all of a flow.
    pub(crate) fn receive(&self, flow: u32, at: Time) {
        self.stamp(flow, at, |row| &row.received);
    }

    /// The sender knows that the receiver has all of the flow.
    pub(crate) fn finish(&self, flow: u32, at: Time) {
        self.stamp(flow, at, |row| &row.finished);
    }

    fn stamp(&self, flow: u32, at: Time, which: impl Fn(&Row) -> &AtomicU64) {
        if let Some(row) = self.rows.get(flow as usize) {
            which(row).store(at.0.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// All rows, in the form of the measurements.
    pub(crate) fn into_flows(self) -> Vec<FlowRecord> {
        let read = |slot: AtomicU64| slot.into_inner().checked_sub(1).map(Time);
        let record = |row: Row| FlowRecord {
            started: read(row.started),
            received: read(row.received),
            finished: read(row.finished),
        };
        self.rows.into_iter().map(record).collect()
    }
}

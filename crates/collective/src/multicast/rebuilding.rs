//! Decides which chunks a receiver rebuilds from parity, and which it must fetch.

use super::Multicast;
use std::collections::VecDeque;
use strandway_proto::cast::{Parity, Rebuild};
use strandway_proto::partial::{Inserted, Progress};
use strandway_proto::repair::Pieces;
use strandway_proto::units::{Span, Time};

/// The parity chunks that a rank has, and the groups that it can rebuild.
#[derive(Debug)]
pub(super) struct Rebuilding {
    parity: Parity,
    /// One bit for each parity chunk.
    present: Progress,
    /// By group: how many of its data and parity chunks have arrived.
    counts: Vec<u16>,
    /// Groups with enough chunks to rebuild the rest, and the time to do so. They wait for a while because missing
    /// chunks may only be late: queues of trees differ.
    ready: VecDeque<(Time, u32)>,
}

impl Rebuilding {
    pub(super) fn new(parity: Parity, layout_numbers: u32) -> Rebuilding {
        let present = Progress::new(parity.numbers() - layout_numbers, 1);
        Rebuilding { parity, present, counts: vec![0; parity.groups() as usize], ready: VecDeque::new() }
    }

    /// A parity chunk has arrived. Returns true if it is new.
    pub(super) fn take_parity(&mut self, now: Time, op: &Multicast, number: u32, progress: &Progress) -> bool {
        let group = self.parity.group_of(number);
        let known = self.parity.group(group).parity.contains(&number);
        let new = known && self.present.insert(number - op.layout.numbers()) != Inserted::Duplicate;
        if new {
            self.count(now, op.rtt, group, progress);
        }
        new
    }

    /// A data chunk has arrived for the first time.
    pub(super) fn take_data(&mut self, now: Time, op: &Multicast, number: u32, progress: &Progress) {
        self.count(now, op.rtt, self.parity.group_of(number), progress);
    }

    fn count(&mut self, now: Time, patience: Span, group: u32, progress: &Progress) {
        let count = &mut self.counts[group as usize];
        *count += 1;
        let data = self.parity.group(group).data;
        if usize::from(*count) == data.len() && data.into_iter().any(|chunk| !progress.has_packet(chunk)) {
            self.ready.push_back((now + patience, group));
        }
    }

    /// When the next group is to be rebuilt.
    pub(super) fn next(&self) -> Time {
        self.ready.front().map_or(Time::NEVER, |&(at, _)| at)
    }

    /// The next group to rebuild now. With `hurry`, groups do not wait for late chunks.
    pub(super) fn due(&mut self, now: Time, hurry: bool, op: &Multicast, progress: &Progress) -> Option<Rebuild> {
        while let Some(&(at, group)) = self.ready.front() {
            if !hurry && at > now {
                break;
            }
            self.ready.pop_front();
            let coded = self.parity.group(group);
            let mut present = Pieces::none();
            for (piece, _) in coded.data.clone().enumerate().filter(|(_, chunk)| progress.has_packet(*chunk)) {
                present.insert(piece);
            }
            if present.count_below(coded.data.len()) == coded.data.len() {
                continue;
            }
            let parity = coded.parity.clone().map(|chunk| chunk - op.layout.numbers());
            for (piece, _) in parity.enumerate().filter(|(_, chunk)| self.present.has_packet(*chunk)) {
                present.insert(coded.data.len() + piece);
            }
            let code = coded.code(self.parity.code());
            return Some(Rebuild { task: op.task, data: coded.data.start, parity: coded.parity.start, code, present });
        }
        None
    }

    /// True if this missing chunk must be fetched. From each group, only the first missing chunks are fetched: as many
    /// as parity cannot replace.
    pub(super) fn is_wanted(&self, chunk: u32, progress: &Progress) -> bool {
        let group = self.parity.group_of(chunk);
        let data = self.parity.group(group).data;
        let lacking = data.len().saturating_sub(usize::from(self.counts[group as usize]));
        let before = (data.start..chunk).filter(|&other| !progress.has_packet(other)).count();
        before < lacking
    }
}

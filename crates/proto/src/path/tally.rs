//! Counts of a connection's data packets by path, for those who look for broken parts of the fabric.

use crate::packet::PathId;
use crate::units::Span;

/// The most paths of a connection that are counted: ours, more than any profile's set has. Packets of others are not.
pub const TALLY_MAX: usize = 4_096;

/// The data packets of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// The path.
    pub path: PathId,
    /// Data packets that left by it, retransmissions included.
    pub sent: u64,
    /// Those that were found lost, or were not acknowledged in time; trimmed ones do not count.
    pub lost: u64,
    /// Those that a switch trimmed, at the last hop or before.
    pub trimmed: u64,
    /// Acknowledgements that measured a round trip by it.
    pub measured: u64,
    /// The sum of these round trips.
    pub rtts: Span,
    /// Whole data packets of the peer that arrived by its path of this name, copies included. Packets that the peer
    /// sent by it and that did not arrive are lost for certain; a sender only infers losses.
    pub arrived: u64,
}

impl PathCounts {
    /// Adds the counts of another path.
    pub fn add(&mut self, other: &PathCounts) {
        self.sent += other.sent;
        self.lost += other.lost;
        self.trimmed += other.trimmed;
        self.measured += other.measured;
        self.rtts = Span(self.rtts.0.saturating_add(other.rtts.0));
        self.arrived += other.arrived;
    }
}

/// The counts of all paths of a connection, in the order of paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathTally(Vec<PathCounts>);

impl PathTally {
    fn of(&mut self, path: PathId) -> Option<&mut PathCounts> {
        let at = match self.0.binary_search_by_key(&path, |counts| counts.path) {
            Ok(at) => at,
            Err(_) if self.0.len() >= TALLY_MAX => return None,
            Err(at) => {
                self.0.insert(at, PathCounts { path, ..PathCounts::default() });
                at
            }
        };
        self.0.get_mut(at)
    }

    pub(crate) fn sent(&mut self, path: PathId) {
        if let Some(counts) = self.of(path) {
            counts.sent += 1;
        }
    }

    pub(crate) fn lost(&mut self, path: PathId) {
        if let Some(counts) = self.of(path) {
            counts.lost += 1;
        }
    }

    pub(crate) fn trimmed(&mut self, path: PathId) {
        if let Some(counts) = self.of(path) {
            counts.trimmed += 1;
        }
    }

    pub(crate) fn measured(&mut self, path: PathId, rtt: Span) {
        if let Some(counts) = self.of(path) {
            counts.measured += 1;
            counts.rtts = Span(counts.rtts.0.saturating_add(rtt.0));
        }
    }

    pub(crate) fn arrived(&mut self, path: PathId) {
        if let Some(counts) = self.of(path) {
            counts.arrived += 1;
        }
    }

    pub(crate) fn counts(&self) -> &[PathCounts] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_counted_in_order_and_within_a_bound() {
        let mut tally = PathTally::default();
        for number in (0..2 * TALLY_MAX as u32).rev() {
            tally.sent(PathId(number));
            tally.sent(PathId(number));
            tally.lost(PathId(number));
            tally.measured(PathId(number), Span(u64::MAX));
        }
        assert_eq!(tally.counts().len(), TALLY_MAX);
        assert!(tally.counts().is_sorted_by_key(|counts| counts.path));
        assert!(tally.counts().iter().all(|counts| (counts.sent, counts.lost, counts.measured) == (2, 1, 1)));
    }
}

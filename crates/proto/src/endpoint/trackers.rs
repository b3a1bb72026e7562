//! Trackers: a receiving host's memory for packets that arrive ahead of missing ones, shared by its connections.
//!
//! Acknowledgements announce to each connection half of what is free, one word of 128 packets at least (MRC: dynamic
//! MPR). The host takes packets beyond that, too, since those under way were sent by an earlier word. Ours: the
//! specification does not say when a receiver changes the range.

use crate::reliability::SACK_WORD;

/// The trackers of one host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trackers {
    /// How many there are; 0: without limit.
    limit: u32,
    /// The largest range that a connection may have, in words.
    most: u32,
    /// Those in use.
    used: u32,
}

impl Trackers {
    /// A connection opens whose profile has this many trackers and this range in packets.
    pub(super) fn open(&mut self, limit: u32, range: u32) {
        self.limit = self.limit.max(limit);
        self.most = self.most.max(range / SACK_WORD);
    }

    /// Is their number limited?
    #[inline]
    pub(super) const fn are_limited(&self) -> bool {
        self.limit > 0
    }

    /// A connection that held `before` packets holds `after`.
    #[inline]
    pub(super) fn change(&mut self, before: u32, after: u32) {
        self.used = (self.used + after).saturating_sub(before);
    }

    /// The range to announce, in words; 0 if their number is not limited.
    pub(super) fn range(&self) -> u8 {
        if self.limit == 0 {
            return 0;
        }
        let free = self.limit.saturating_sub(self.used) / 2 / SACK_WORD;
        free.clamp(1, self.most.clamp(1, u32::from(u8::MAX))) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_may_take_half_of_what_is_free_and_a_word_at_least() {
        let mut trackers = Trackers::default();
        assert_eq!(trackers.range(), 0, "no limit");
        trackers.open(2048, 1024);
        assert_eq!(trackers.range(), 8, "the largest range");
        trackers.change(0, 1024);
        assert_eq!(trackers.range(), 4);
        trackers.change(0, 2000);
        assert_eq!(trackers.range(), 1, "more than there are");
        trackers.change(2000, 0);
        trackers.change(1024, 0);
        assert_eq!(trackers.range(), 8);
    }
}

//! The range of PSNs: how far a sender may be ahead of the oldest packet that is not acknowledged (MRC: MPR).
//!
//! With a dynamic range the receiver announces the range that it takes at present. If it shrinks, the sender sends
//! nothing beyond it, neither new packets nor retransmissions, until the oldest packet or the range has moved.

use super::SelectiveRepeat;
use crate::reliability::SACK_WORD;
use crate::reliability::scoreboard::State;

/// The range of one connection, in packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    /// The largest range.
    pub(super) most: u32,
    /// The range at present.
    pub(super) now: u32,
    /// The receiver announces its range.
    dynamic: bool,
}

impl Range {
    /// A range that never changes.
    pub(super) const fn fixed(most: u32) -> Range {
        Range { most, now: most, dynamic: false }
    }

    /// An acknowledgement carries this range in units of 128 packets; 0: the receiver has no limit of its own.
    #[inline]
    pub(super) fn on_range(&mut self, units: u8) {
        if self.dynamic {
            self.now = if units == 0 { self.most } else { self.most.min(u32::from(units) * SACK_WORD) };
        }
    }
}

impl SelectiveRepeat {
    /// Lets the receiver change the range of PSNs.
    pub(in crate::reliability) fn with_dynamic_range(mut self, dynamic: bool) -> SelectiveRepeat {
        self.range.dynamic = dynamic;
        self
    }

    /// The place in `repairs` of the next packet to send again: the first one within the range. While packets wait, the
    /// oldest packet is one of them, in flight, or left to a timer, so a range never stops a connection for ever.
    #[inline]
    pub(super) fn repair_place(&self) -> Option<usize> {
        if self.range.now == self.range.most {
            return if self.repairs.is_empty() { None } else { Some(0) };
        }
        let end = self.board.una() + u64::from(self.range.now);
        let lost = |psn: u64| self.board.get(psn).is_some_and(|sent| sent.state == State::Lost);
        self.repairs.iter().position(|&psn| psn < end && lost(psn))
    }

    /// Takes the next packet to send again.
    #[inline]
    pub(super) fn take_repair(&mut self) -> Option<u64> {
        self.repair_place().and_then(|place| self.repairs.remove(place))
    }
}

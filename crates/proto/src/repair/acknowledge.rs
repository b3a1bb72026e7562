//! A receiver's acknowledgements of the chunks of one stretch: the first missing chunk, and for each changed page a
//! bitmap of its 64 chunks.

use crate::control_message::{ControlMessage, Have};
use crate::packet::SackBits;
use crate::partial::{Progress, truncated};
use crate::units::Time;

/// Chunks of a page.
const PAGE: u32 = 64;

/// The pages of one stretch that have changed since the last acknowledgement.
#[derive(Clone, Debug)]
pub(super) struct Acknowledger {
    /// The changed pages, in any order, each once; `is_changed` holds the same set as flags.
    changed: Vec<u32>,
    is_changed: Vec<bool>,
    /// The chunk that was completed last, and when.
    newest: u32,
    since: Time,
    /// When to acknowledge; [`Time::NEVER`] if no page has changed.
    pub(super) at: Time,
}

impl Acknowledger {
    pub(super) fn new(chunks: u32) -> Acknowledger {
        Acknowledger {
            changed: Vec::new(),
            is_changed: vec![false; chunks.div_ceil(PAGE) as usize],
            newest: u32::MAX,
            since: Time::ZERO,
            at: Time::NEVER,
        }
    }

    /// A chunk must be acknowledged at `at` or earlier: it is complete (`complete`), or a duplicate shows that its
    /// sender does not know that it is.
    pub(super) fn note(&mut self, now: Time, chunk: u32, complete: bool, at: Time) {
        let page = chunk / PAGE;
        if !std::mem::replace(&mut self.is_changed[page as usize], true) {
            self.changed.push(page);
        }
        if complete {
            (self.newest, self.since) = (chunk, now);
        }
        self.at = self.at.min(at);
    }

    /// Writes the acknowledgements of this stretch.
    pub(super) fn acknowledge(
        &mut self,
        now: Time,
        sequence: u64,
        progress: &Progress,
        controls: &mut impl FnMut(ControlMessage),
    ) {
        let cumulative = progress.first_missing(0);
        let held = (now.since(self.since).0 / 1_000_000).min(u64::from(u16::MAX)) as u16;
        let mut have = Have {
            sequence: truncated(sequence),
            cumulative,
            base: cumulative,
            bits: SackBits::new(0),
            newest: self.newest,
            held,
        };
        let mut told = false;
        self.changed.sort_unstable();
        for page in self.changed.drain(..) {
            self.is_changed[page as usize] = false;
            let bits = progress.bitmap()[page as usize];
            // Chunks below the cumulative one need no bits.
            if page * PAGE + (u64::BITS - bits.leading_zeros()) <= cumulative || bits == 0 {
                continue;
            }
            (have.base, have.bits) = (page * PAGE, SackBits::new(bits));
            controls(ControlMessage::Have(have));
            // Only the first control message names the newest chunk.
            have.newest = u32::MAX;
            told = true;
        }
        if !told {
            controls(ControlMessage::Have(have));
        }
        (self.newest, self.at) = (u32::MAX, Time::NEVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_reader_of_every_control_message_knows_every_chunk(
            chunks in 1u32..500,
            rounds in prop::collection::vec(prop::collection::vec(0u32..500, 0..80), 1..12),
        ) {
            let mut progress = Progress::new(chunks, 1);
            let mut acknowledger = Acknowledger::new(chunks);
            let mut known = vec![false; chunks as usize];
            for round in rounds {
                for chunk in round.into_iter().filter(|&c| c < chunks) {
                    progress.insert(chunk);
                    acknowledger.note(Time(1), chunk, true, Time(5));
                }
                acknowledger.acknowledge(Time(2), 7, &progress, &mut |control| {
                    let ControlMessage::Have(have) = control else { panic!("an acknowledgement") };
                    known[..have.cumulative as usize].fill(true);
                    let bits = { have.bits }.get();
                    for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
                        known[(have.base + bit) as usize] = true;
                    }
                });
                let there: Vec<bool> = (0..chunks).map(|c| progress.has_chunk(c)).collect();
                prop_assert_eq!(&known, &there);
            }
        }
    }
}

//! Visits paths in rounds and skips those with penalties: STrack's bitmap and its successor in Ultra Ethernet.
//!
//! A mark costs a path some turns: each time the path is skipped, its penalty falls by one. Good paths have no state;
//! each is visited once per round.

use super::spread::{Cycle, Spread};
use super::{AnyPath, PathFeedback, PathPolicy, PathSelector};
use crate::environment::Environment;
use crate::packet::{PathId, Ports};
use crate::parameters;
use crate::rng::Random;
use crate::units::Time;

parameters! {
    /// Spraying over paths without penalties.
    pub struct BitmapConfig {
        /// Number of entropy values; rounded up to a power of two and to at least one per port.
        entropies: u32 = 64, 1.0..=256.0, "UEC simulator: 64; STrack does not say";
        /// Penalty of a marked packet, in turns.
        penalty_marked: u32 = 1, 0.0..=15.0, "UEC simulator: 1";
        /// Penalty of a packet trimmed before its last hop, in turns.
        penalty_trimmed: u32 = 4, 0.0..=15.0, "UEC simulator: 4";
        /// Penalty of a packet that timed out, in turns; zero ignores such packets.
        penalty_timed_out: u32 = 15, 0.0..=15.0, "ours: the UEC simulator's value, but it cannot tell the path; our sender can";
        /// Penalty of a packet found lost by later packets or by a probe, in turns.
        penalty_lost: u32 = 0, 0.0..=15.0, "ours: neither STrack nor the UEC simulator charges it; strack_fast does";
        /// One bit per path, and every path with a penalty that the search passes loses its penalty at once.
        original: bool = false, 0.0..=1.0, "STrack as first published; false is the UEC simulator's form";
    }
}

impl PathPolicy for BitmapConfig {
    fn build(&self, environment: &Environment, random: Random) -> AnyPath {
        AnyPath::Bitmap(BitmapSpray::new(self, environment, random))
    }
}

/// The largest number of paths; there are no penalty counters for more.
const ENTROPIES_MAX: u32 = 256;
/// Penalties saturate here: they have four bits. UEC simulator: 15.
const PENALTY_MAX: u32 = 15;

/// The number of words that a spray stores itself: for 64 paths, the default. Sixteen counters in each word.
const WORDS: usize = 4;
/// The number of further words, for the largest number of paths.
const WORDS_MORE: usize = ENTROPIES_MAX as usize / 16 - WORDS;

/// Paths in rounds, with a penalty each.
#[derive(Clone, Debug)]
pub struct BitmapSpray {
    pub(super) spread: Spread,
    cycle: Cycle,
    /// Sixteen four-bit counters in each word; `more` if there are more paths.
    penalties: [u64; WORDS],
    more: Option<Box<[u64; WORDS_MORE]>>,
    /// Penalties of a mark, a trim, a timeout and a loss, four bits each.
    weights: u16,
    original: bool,
}

const _: () = assert!(size_of::<BitmapSpray>() <= 136, "the state of a spray");

impl BitmapSpray {
    /// A connection that has sent nothing: no path has a penalty.
    pub fn new(config: &BitmapConfig, environment: &Environment, mut random: Random) -> BitmapSpray {
        let spread = Spread::new(config.entropies, ENTROPIES_MAX, environment, &mut random);
        let cycle = Cycle::new(spread, &mut random);
        let limit = if config.original { 1 } else { PENALTY_MAX };
        let weight = |turns: u32, place: u16| (turns.min(limit) as u16) << (4 * place);
        BitmapSpray {
            spread,
            cycle,
            penalties: [0; WORDS],
            more: (spread.count() > 16 * WORDS as u32).then(|| Box::new([0; WORDS_MORE])),
            weights: weight(config.penalty_marked, 0)
                | weight(config.penalty_trimmed, 1)
                | weight(config.penalty_timed_out, 2)
                | weight(config.penalty_lost, 3),
            original: config.original,
        }
    }

    #[inline]
    fn penalty(&self, index: u16) -> u32 {
        let word = usize::from(index >> 4);
        let word = match &self.more {
            Some(more) if word >= WORDS => more[word - WORDS],
            _ => self.penalties[word],
        };
        (word >> (4 * (index & 15))) as u32 & 15
    }

    #[inline]
    fn set_penalty(&mut self, index: u16, penalty: u32) {
        let word = usize::from(index >> 4);
        let word = match &mut self.more {
            Some(more) if word >= WORDS => &mut more[word - WORDS],
            _ => &mut self.penalties[word],
        };
        let shift = 4 * (index & 15);
        *word = *word & !(15 << shift) | u64::from(penalty) << shift;
    }

    /// The next path that leaves by a free port. `free` must not be zero.
    #[inline(always)]
    pub(super) fn next_index(&mut self, free: u32) -> u16 {
        let index = self.cycle.next(self.spread, free);
        if self.penalty(index) == 0 { index } else { self.pay(index, free) }
    }

    /// Path `index` has a penalty: finds the next path without one.
    #[inline(never)]
    fn pay(&mut self, mut index: u16, free: u32) -> u16 {
        for passed in 0..=self.spread.count() {
            let penalty = self.penalty(index);
            if penalty == 0 {
                return index;
            }
            if self.original {
                self.set_penalty(index, 0);
            } else if passed == 0 {
                // Each packet lowers at most one penalty.
                self.set_penalty(index, penalty - 1);
            }
            if passed == self.spread.count() {
                break;
            }
            index = self.cycle.next(self.spread, free);
        }
        // All paths have penalties: use the present one.
        index
    }

    #[inline]
    pub(super) fn charge(&mut self, path: PathId, feedback: PathFeedback) {
        let place = match feedback {
            PathFeedback::Good => return,
            PathFeedback::Marked => 0,
            PathFeedback::Trimmed => 1,
            PathFeedback::TimedOut => 2,
            PathFeedback::Lost | PathFeedback::Shunned => 3,
        };
        let limit = if self.original { 1 } else { PENALTY_MAX };
        let index = self.spread.index(path);
        let weight = u32::from(self.weights >> (4 * place) & 15);
        self.set_penalty(index, (self.penalty(index) + weight).min(limit));
    }
}

impl PathSelector for BitmapSpray {
    #[inline]
    fn next(&mut self, _: Time, free: Ports) -> Option<PathId> {
        let free = self.spread.free(free);
        if free == 0 {
            return None;
        }
        let index = self.next_index(free);
        Some(self.spread.path(index))
    }

    #[inline]
    fn on_feedback(&mut self, _: Time, path: PathId, feedback: PathFeedback) {
        self.charge(path, feedback);
    }

    fn penalties(&self) -> Vec<u32> {
        (0..self.spread.count()).map(|index| self.penalty(index as u16)).collect()
    }
}

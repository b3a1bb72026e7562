//! A bitmap over a sliding range of sequence numbers.

/// A set of sequence numbers in `[base, base + capacity)`. It grows by doubling up to a fixed limit, and takes no
/// memory while the set is empty.
#[derive(Clone, Debug)]
pub struct SlidingBitmap {
    base: u64,
    words: Vec<u64>,
    count: u32,
    limit: u32,
}

impl SlidingBitmap {
    /// An empty set from sequence number 0 on, of at most `limit` bits (rounded up to a power of two of at least 64).
    pub fn new(limit: u32) -> SlidingBitmap {
        SlidingBitmap::starting_at(0, limit)
    }

    /// An empty set from sequence number `base` on.
    pub fn starting_at(base: u64, limit: u32) -> SlidingBitmap {
        SlidingBitmap { base, words: Vec::new(), count: 0, limit: limit.next_power_of_two().max(64) }
    }

    /// The first sequence number of the range; everything below counts as present.
    #[inline]
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// The number of present sequence numbers at or above the base.
    #[inline]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The highest present sequence number at or above the base. It searches the whole range in the worst case.
    pub fn highest(&self) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        (self.base..self.base + self.words.len() as u64 * 64).rev().find(|&seq| self.contains(seq))
    }

    /// The length of the range above the base.
    #[inline]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    #[inline]
    fn slot(&self, seq: u64) -> (usize, u64) {
        let bit = seq & (self.words.len() as u64 * 64 - 1);
        ((bit >> 6) as usize, 1 << (bit & 63))
    }

    /// Is `seq` present?
    #[inline]
    pub fn contains(&self, seq: u64) -> bool {
        if seq < self.base {
            return true;
        }
        if seq - self.base >= self.words.len() as u64 * 64 {
            return false;
        }
        let (word, bit) = self.slot(seq);
        self.words[word] & bit != 0
    }

    /// The address of the word of the first missing number.
    #[inline]
    pub(crate) fn address(&self) -> *const u8 {
        let words = self.words.len();
        self.words.as_ptr().wrapping_add((self.base >> 6) as usize & words.saturating_sub(1)).cast()
    }

    fn grow(&mut self, needed: u64) {
        let bits = needed.next_power_of_two().max(256).min(u64::from(self.limit));
        let old = core::mem::replace(&mut self.words, vec![0; (bits / 64) as usize]);
        if self.count > 0 {
            let old_bits = old.len() as u64 * 64;
            for seq in self.base..self.base + old_bits {
                let at = seq & (old_bits - 1);
                if old[(at >> 6) as usize] >> (at & 63) & 1 != 0 {
                    let (word, bit) = self.slot(seq);
                    self.words[word] |= bit;
                }
            }
        }
    }

    /// Adds `seq`; false if it was present, or if it lies beyond the limit. The base moves up to the first missing
    /// number.
    #[inline]
    pub fn insert(&mut self, seq: u64) -> bool {
        if seq == self.base && self.count == 0 {
            self.base += 1;
            return true;
        }
        if seq < self.base || seq - self.base >= u64::from(self.limit) {
            return false;
        }
        if seq - self.base >= self.words.len() as u64 * 64 {
            self.grow(seq - self.base + 1);
        }
        let (word, bit) = self.slot(seq);
        if self.words[word] & bit != 0 {
            return false;
        }
        self.words[word] |= bit;
        self.count += 1;
        if seq == self.base {
            self.advance();
        }
        true
    }

    fn advance(&mut self) {
        loop {
            let (word, bit) = self.slot(self.base);
            let shift = bit.trailing_zeros();
            // The run of present numbers from the base on, within this word.
            let run = (!(self.words[word] >> shift)).trailing_zeros().min(64 - shift);
            if run == 0 {
                return;
            }
            self.words[word] &= !(u64::MAX >> (64 - run) << shift);
            self.base += u64::from(run);
            self.count -= run;
            if run < 64 - shift || self.count == 0 {
                return;
            }
        }
    }

    /// Presence of the 64 sequence numbers from `from` on, lowest in bit 0.
    #[inline]
    pub fn window(&self, from: u64) -> u64 {
        if from < self.base {
            let below = (self.base - from).min(64);
            if below == 64 {
                return u64::MAX;
            }
            return ((1u64 << below) - 1) | (self.window(self.base) << below);
        }
        let bits = self.words.len() as u64 * 64;
        let distance = from - self.base;
        if self.count == 0 || distance >= bits {
            return 0;
        }
        let at = from & (bits - 1);
        let (index, shift) = ((at >> 6) as usize, at & 63);
        let mut found = self.words[index] >> shift;
        if shift != 0 {
            let next = if index + 1 == self.words.len() { 0 } else { index + 1 };
            found |= self.words[next] << (64 - shift);
        }
        // Bits beyond the range belong to the start of the ring, so they are cleared.
        let valid = bits - distance;
        if valid < 64 { found & ((1 << valid) - 1) } else { found }
    }

    /// Frees the memory if no number above the base is present.
    pub fn release(&mut self) {
        if self.count == 0 {
            self.words = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(steps in prop::collection::vec((0u64..700, any::<bool>()), 1..400)) {
            let mut bitmap = SlidingBitmap::new(512);
            let mut set = BTreeSet::new();
            let mut base = 0u64;
            for (ahead, low) in steps {
                let seq = if low { base.saturating_sub(3) + ahead % 8 } else { base + ahead };
                let fresh = seq >= base && seq - base < 512 && set.insert(seq);
                while set.remove(&base) { base += 1; }
                prop_assert_eq!(bitmap.insert(seq), fresh);
                prop_assert_eq!(bitmap.base(), base);
                prop_assert_eq!(bitmap.count() as usize, set.len());
                for from in [base.saturating_sub(70), base.saturating_sub(10), base, base + 1, base + 63, base + 300, base + 490] {
                    let mut expected = 0u64;
                    for i in 0..64 {
                        expected |= u64::from(from + i < base || set.contains(&(from + i))) << i;
                    }
                    prop_assert_eq!(bitmap.window(from), expected, "window from {} at base {}", from, base);
                }
                prop_assert_eq!(bitmap.contains(seq), seq < base || set.contains(&seq));
            }
        }
    }
}

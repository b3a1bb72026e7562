//! A ring of the eight paths with the most recent unmarked acknowledgements.

use super::spread::Spread;

/// Entries of the ring. Bonato et al., "REPS": 8.
const ENTRIES: usize = 8;

/// Paths of unmarked acknowledgements, oldest first, each good for a number of uses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ring {
    index: [u16; ENTRIES],
    /// The remaining uses of each entry; an entry with zero is known but not valid.
    uses: [u8; ENTRIES],
    /// The entry written next, which is the oldest once the ring is full.
    head: u8,
    /// The number of entries written so far, at most `ENTRIES`.
    count: u8,
    /// The entry that a frozen selector reuses next.
    reuse: u8,
}

impl Ring {
    /// Stores a good path in place of the oldest entry.
    #[inline]
    pub(super) fn store(&mut self, index: u16, uses: u8) {
        let head = usize::from(self.head);
        self.index[head] = index;
        self.uses[head] = uses;
        self.head = (self.head + 1) % ENTRIES as u8;
        self.count = (self.count + 1).min(ENTRIES as u8);
    }

    /// Takes one use of the oldest valid entry that starts at a free port.
    #[inline]
    pub(super) fn take(&mut self, spread: Spread, free: u32) -> Option<u16> {
        for i in 0..ENTRIES {
            let entry = (usize::from(self.head) + i) % ENTRIES;
            if self.uses[entry] > 0 && free & (1 << spread.port(self.index[entry])) != 0 {
                self.uses[entry] -= 1;
                return Some(self.index[entry]);
            }
        }
        None
    }

    /// The next known entry, valid or not, that starts at a free port. An entry that is taken has no uses left.
    pub(super) fn reuse(&mut self, spread: Spread, free: u32) -> Option<u16> {
        for _ in 0..self.count {
            let entry = usize::from(self.reuse % self.count);
            self.reuse = (self.reuse + 1) % self.count;
            if free & (1 << spread.port(self.index[entry])) != 0 {
                self.uses[entry] = 0;
                return Some(self.index[entry]);
            }
        }
        None
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Ring::default();
    }
}

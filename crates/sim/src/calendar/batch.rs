//! The entries of one group in one window, and memory for them.

use super::GROUP;
use crate::prefetch::{prefetch, prefetch_all};
use crate::road::Transit;

/// Entries in a block: 1 KiB.
const BLOCK: usize = 32;

/// The entries of one group in one window. Entries are in blocks, which are never moved and are reused while they are
/// in the cache; all blocks except the last are full.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    blocks: Vec<Vec<Transit>>,
    /// The block that is being filled.
    open: Vec<Transit>,
    /// Stops that are visited even without an entry.
    pub(super) visits: Visits,
}

/// A set of stops of one group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Visits(pub(super) [u64; GROUP / 64]);

impl Visits {
    /// Adds a stop.
    #[inline]
    pub(super) fn add(&mut self, place: usize) {
        self.0[place % GROUP / 64] |= 1 << (place % 64);
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == [0; GROUP / 64]
    }

    fn count(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }
}

/// The numbers of the bits that are set, in order.
#[inline]
pub(super) fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

impl Batch {
    /// Number of entries and visits.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries() + self.visits.count()
    }

    /// Brings its first entries into the cache.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch_all(&self.blocks.first().unwrap_or(&self.open)[..]);
    }

    #[inline]
    pub(super) fn entries(&self) -> usize {
        self.blocks.len() * BLOCK + self.open.len()
    }

    /// Adds an entry, and to `due` one if it is the first.
    #[inline(always)]
    pub(super) fn add(&mut self, entry: Transit, spare: &mut Spare, due: &mut u32) {
        if self.open.len() == self.open.capacity() {
            *due += u32::from(self.renew(spare));
        }
        self.open.push(entry);
    }

    /// Adds a visit to a stop, and to `due` one if it is the first.
    #[inline]
    pub(super) fn visit(&mut self, stop: u32, due: &mut u32) {
        *due += u32::from(self.visits.is_empty());
        self.visits.add(stop as usize);
    }

    /// The value by which its entries and visits have raised `due`.
    pub(super) fn due(&self) -> u32 {
        u32::from(self.open.capacity() > 0) + u32::from(!self.visits.is_empty())
    }

    /// Opens a new block. True if it is the batch's first one.
    #[cold]
    fn renew(&mut self, spare: &mut Spare) -> bool {
        let is_first = self.open.capacity() == 0;
        let block = spare.blocks.pop().unwrap_or_else(|| Vec::with_capacity(BLOCK));
        let full = std::mem::replace(&mut self.open, block);
        if !full.is_empty() {
            if self.blocks.capacity() == 0
                && let Some(list) = spare.lists.pop()
            {
                self.blocks = list;
            }
            self.blocks.push(full);
        }
        is_first
    }

    /// As [`Batch::each`], for the first time: the block after the present one is brought into the cache meanwhile.
    #[inline]
    pub(super) fn each_at_first(&self, mut tell: impl FnMut(&Transit)) {
        for (n, block) in self.blocks.iter().chain(std::iter::once(&self.open)).enumerate() {
            let next = self.blocks.get(n + 1).unwrap_or(&self.open);
            for (at, two) in block.chunks(2).enumerate() {
                prefetch(next.as_ptr().wrapping_add(2 * at).cast());
                two.iter().for_each(&mut tell);
            }
        }
    }

    /// Calls `tell` with every entry, in the order of insertion.
    #[inline]
    pub(super) fn each(&self, mut tell: impl FnMut(&Transit)) {
        for block in self.blocks.iter().chain(std::iter::once(&self.open)) {
            for entry in block {
                tell(entry);
            }
        }
    }
}

/// Memory of processed batches, for reuse.
#[derive(Debug, Default)]
pub(super) struct Spare {
    blocks: Vec<Vec<Transit>>,
    lists: Vec<Vec<Vec<Transit>>>,
}

impl Spare {
    /// Keeps the memory of a processed batch.
    pub(super) fn keep(&mut self, mut batch: Batch) {
        if batch.open.capacity() > 0 {
            batch.open.clear();
            self.blocks.push(batch.open);
        }
        if batch.blocks.capacity() > 0 {
            for mut block in batch.blocks.drain(..) {
                block.clear();
                self.blocks.push(block);
            }
            self.lists.push(batch.blocks);
        }
    }
}

//! The prefix cache of a replica: blocks of KV cache, named by hashes, the least recently used ones evicted first.

use std::collections::BTreeMap;

/// A cached block.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Requests that use it now.
    pins: u32,
    /// When it was last used.
    used: u64,
}

/// Blocks by their hashes. A block that a request uses is pinned, and stays.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    all: BTreeMap<u64, Block>,
    /// The blocks without pins, by their last use.
    idle: BTreeMap<u64, u64>,
    clock: u64,
}

impl Blocks {
    /// Blocks in the cache.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True without blocks.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Blocks that can be evicted now.
    pub fn idle(&self) -> usize {
        self.idle.len()
    }

    /// The number of leading hashes whose blocks are here.
    pub fn matching(&self, hashes: &[u64]) -> usize {
        hashes.iter().take_while(|hash| self.all.contains_key(hash)).count()
    }

    /// Of the leading `count` blocks of a request, those that nobody has pinned.
    pub fn idle_among(&self, hashes: &[u64]) -> usize {
        hashes.iter().filter(|hash| self.all.get(hash).is_some_and(|block| block.pins == 0)).count()
    }

    /// Pins blocks; those that are not here are added.
    pub fn pin(&mut self, hashes: &[u64]) {
        for hash in hashes {
            self.clock += 1;
            let block = self.all.entry(*hash).or_insert(Block { pins: 0, used: self.clock });
            if block.pins == 0 {
                self.idle.remove(&block.used);
            }
            block.pins += 1;
            block.used = self.clock;
        }
    }

    /// Ends a request's use of blocks that it has pinned. The last block of a prefix becomes the first to be evicted.
    ///
    /// # Panics
    /// If a block is not pinned.
    pub fn unpin(&mut self, hashes: &[u64]) {
        for hash in hashes.iter().rev() {
            self.clock += 1;
            let block = self.all.get_mut(hash).expect("a pinned block stays");
            assert!(block.pins > 0, "block {hash} is pinned");
            block.pins -= 1;
            block.used = self.clock;
            if block.pins == 0 {
                self.idle.insert(block.used, *hash);
            }
        }
    }

    /// Evicts the block whose last use is longest ago. False if all are pinned.
    pub fn evict(&mut self) -> bool {
        let Some((_, hash)) = self.idle.pop_first() else { return false };
        self.all.remove(&hash);
        true
    }

    /// Notes the use of blocks without pinning them, and keeps at most `most` blocks: for a router, which guesses what
    /// replicas hold.
    pub fn note(&mut self, hashes: &[u64], most: usize) {
        self.pin(hashes);
        self.unpin(hashes);
        while self.len() > most && self.evict() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_the_oldest_prefix_goes_first() {
        let mut blocks = Blocks::default();
        blocks.pin(&[1, 2, 3]);
        assert!(!blocks.evict(), "all are pinned");
        blocks.pin(&[1, 9]);
        blocks.unpin(&[1, 2, 3]);
        assert_eq!((blocks.len(), blocks.idle(), blocks.matching(&[1, 2, 4])), (4, 2, 2));
        assert!(blocks.evict());
        assert_eq!(blocks.matching(&[1, 2, 3]), 2, "3 is gone");
        blocks.unpin(&[1, 9]);
        let order: Vec<usize> = std::iter::from_fn(|| blocks.evict().then(|| blocks.matching(&[1, 9]))).collect();
        assert_eq!(order, [2, 1, 0], "2 before 9, and 1 is used by both");
        blocks.note(&[5, 6, 7], 2);
        assert_eq!(blocks.matching(&[5, 6, 7]), 2);
    }
}

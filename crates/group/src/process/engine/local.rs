//! Maps whose keys this process chooses itself. Their hash is one multiplication. The standard hash takes a noticeable
//! part of a short collective; it is needed only for keys that a peer, and so an attacker, can choose.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub(super) type LocalMap<K, V> = HashMap<K, V, BuildHasherDefault<Local>>;
pub(super) type LocalSet<K> = HashSet<K, BuildHasherDefault<Local>>;

/// The golden ratio as a fraction of 2^64, odd: multiples of it are far apart.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Default)]
pub(super) struct Local(u64);

impl Hasher for Local {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = self.0.rotate_left(5).wrapping_add(word).wrapping_mul(GOLDEN);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        // A map takes its place from the low bits, and a product's high bits depend on all bits of the key.
        self.0.rotate_left(32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hash;

    fn places<K: Hash>(keys: impl Iterator<Item = K>) -> usize {
        let places: HashSet<u64> = keys
            .map(|key| {
                let mut hasher = Local::default();
                key.hash(&mut hasher);
                hasher.finish() % 4_096
            })
            .collect();
        places.len()
    }

    #[test]
    fn keys_that_follow_each_other_have_places_of_their_own() {
        assert!(places(0..1_024u64) > 850);
        assert!(places((0..1_024u64).map(|key| key << 32)) > 850);
        assert!(places((0..1_024u32).map(|key| (key % 32, key / 32))) > 850);
    }
}

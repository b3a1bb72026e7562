//! The hash of a file: plain BLAKE3, made from the digests of its blocks, which may be computed in any order.

use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use blake3::{Hash, Hasher};

/// The number of blocks of a file of `size` bytes; zero if it is empty.
pub(super) const fn blocks(size: u64, block: u64) -> u64 {
    size.div_ceil(block)
}

/// The digest of block `index` of a file of `size` bytes, where blocks have `block` bytes, a power of two above 1,024.
/// It is a node of the file's hash tree; if the file has one block, its digest is the file's hash.
pub(super) fn of_block(bytes: &[u8], index: u64, size: u64, block: u64) -> [u8; 32] {
    if size <= block {
        return *blake3::hash(bytes).as_bytes();
    }
    Hasher::new().set_input_offset(index * block).update(bytes).finalize_non_root()
}

/// The BLAKE3 hash of a file from the digests of its blocks, in order; `None` if a digest is missing.
pub(super) fn of_file(count: u64, digest: impl Fn(u64) -> Option<[u8; 32]>) -> Option<[u8; 32]> {
    match count {
        0 => Some(*blake3::hash(&[]).as_bytes()),
        1 => digest(0),
        _ => {
            let split = left_blocks(count);
            let (left, right) = (node(0, split, &digest)?, node(split, count, &digest)?);
            let root: Hash = merge_subtrees_root(&left, &right, Mode::Hash);
            Some(*root.as_bytes())
        }
    }
}

/// The number of blocks in the left of the two subtrees of `count` blocks: the largest power of two below `count`.
const fn left_blocks(count: u64) -> u64 {
    count.div_ceil(2).next_power_of_two()
}

fn node(from: u64, to: u64, digest: &impl Fn(u64) -> Option<[u8; 32]>) -> Option<ChainingValue> {
    if to - from == 1 {
        return digest(from);
    }
    let split = from + left_blocks(to - from);
    Some(merge_subtrees_non_root(&node(from, split, digest)?, &node(split, to, digest)?, Mode::Hash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_in_any_order_make_the_plain_hash_of_the_file(size in 0usize..40_000, shift in 11u32..14, flip: prop::sample::Index) {
            let bytes: Vec<u8> = (0..size).map(|i| ((i * i) >> 3) as u8).collect();
            let block = 1 << shift;
            let count = blocks(size as u64, block);
            let all: Vec<[u8; 32]> = bytes
                .chunks(block as usize)
                .enumerate()
                .rev()
                .map(|(i, bytes)| of_block(bytes, i as u64, size as u64, block))
                .collect();
            prop_assert_eq!(all.len() as u64, count);
            let digest = |i: u64| all.get((count - 1 - i) as usize).copied();
            prop_assert_eq!(of_file(count, digest), Some(*blake3::hash(&bytes).as_bytes()));
            if count > 0 {
                let missing = flip.index(count as usize) as u64;
                prop_assert_eq!(of_file(count, |i| digest(i).filter(|_| i != missing)), None);
            }
        }
    }
}

//! The journal of an unfinished copy: the list of blocks that are there. It lies beside the partial file. A block
//! counts only if it has the digest in the journal.

use super::message::Modified;

/// Bytes of the journal's head: magic 8, size 8, seconds 8, nanoseconds 4, block 4, check 8.
pub(super) const HEAD: usize = 40;
/// Bytes of a record: block 4, digest 32, check 4.
pub(super) const RECORD: usize = 40;
const MAGIC: &[u8; 8] = b"SWCOPY\0\x01";

/// The source of a partial file; a file of the same name with another source starts anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) size: u64,
    pub(super) modified: Modified,
    /// Bytes of a block.
    pub(super) block: u32,
}

impl Source {
    pub(super) fn head(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(MAGIC);
        head[8..16].copy_from_slice(&self.size.to_be_bytes());
        head[16..24].copy_from_slice(&self.modified.seconds.to_be_bytes());
        head[24..28].copy_from_slice(&self.modified.nanoseconds.to_be_bytes());
        head[28..32].copy_from_slice(&self.block.to_be_bytes());
        let check = check::<8>(&head[..32]);
        head[32..].copy_from_slice(&check);
        head
    }
}

/// The record of a block that is in the partial file.
pub(super) fn record(block: u32, digest: &[u8; 32]) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..4].copy_from_slice(&block.to_be_bytes());
    record[4..36].copy_from_slice(digest);
    let check = check::<4>(&record[..36]);
    record[36..].copy_from_slice(&check);
    record
}

/// The blocks, with their digests, in a journal of a copy of `source`. The list is empty if the journal belongs to
/// another source, and it stops at the first record that was not written completely.
pub(super) fn read(journal: &[u8], source: &Source) -> Vec<(u32, [u8; 32])> {
    let Some(records) = journal.strip_prefix(&source.head()) else { return Vec::new() };
    let blocks = source.size.div_ceil(u64::from(source.block.max(1)));
    let record = |bytes: &[u8; RECORD]| {
        let block = u32::from_be_bytes(*bytes.first_chunk()?);
        let whole = bytes[36..] == check::<4>(&bytes[..36]) && u64::from(block) < blocks;
        whole.then(|| (block, *bytes[4..].first_chunk().unwrap_or(&[0; 32])))
    };
    records.as_chunks().0.iter().map_while(record).collect()
}

fn check<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|i| blake3::hash(bytes).as_bytes()[i])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SOURCE: Source =
        Source { size: 100 << 20, modified: Modified { seconds: 5, nanoseconds: 6 }, block: 4 << 20 };

    proptest! {
        #[test]
        fn a_journal_that_was_cut_or_changed_names_only_what_it_was_told(
            blocks in prop::collection::vec((0u32..25, any::<[u8; 32]>()), 0..8), at: prop::sample::Index, bit in 0u32..8
        ) {
            let mut journal = SOURCE.head().to_vec();
            blocks.iter().for_each(|(block, digest)| journal.extend_from_slice(&record(*block, digest)));
            prop_assert_eq!(&read(&journal, &SOURCE), &blocks);
            let at = at.index(journal.len());
            let cut = read(&journal[..at], &SOURCE);
            prop_assert_eq!(&cut[..], &blocks[..at.saturating_sub(HEAD) / RECORD]);
            journal[at] ^= 1 << bit;
            let changed = read(&journal, &SOURCE);
            prop_assert!(blocks.starts_with(&changed) && changed.len() == at.saturating_sub(HEAD) / RECORD || at < HEAD);
            prop_assert!(at >= HEAD || changed.is_empty());
        }
    }

    #[test]
    fn a_journal_of_another_source_says_nothing() {
        let journal = [&SOURCE.head()[..], &record(3, &[1; 32])].concat();
        assert_eq!(read(&journal, &SOURCE).len(), 1);
        assert!(read(&journal, &Source { size: SOURCE.size + 1, ..SOURCE }).is_empty());
        assert!(read(&journal, &Source { block: 1 << 20, ..SOURCE }).is_empty());
        let beyond = [&SOURCE.head()[..], &record(25, &[1; 32])].concat();
        assert!(read(&beyond, &SOURCE).is_empty(), "a block that the file does not have");
    }
}

//! Parity of cast chunks: the groups of chunks, and the numbers of their parity. Arithmetic only.

use super::Layout;
use crate::repair::{Code, Pieces};
use core::ops::Range;

/// The parity of a buffer's chunks.
///
/// The chunks of each share form *groups* of `k`, in the order of their numbers. A group has `m` chunks of parity, and
/// any `k` of its `k + m` chunks suffice to rebuild its data (an MDS code: SDR-RDMA, section 4); a shorter last group
/// has fewer ([`Code::shortened`]). A chunk of parity has the length of a whole chunk; a short last chunk of data is
/// padded with zeros. The numbers of parity come after those of all data: `m` for each group, group by group, share by
/// share, used or not. Ours: the multicast sheet (section 14) requires parity and gives no layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parity {
    layout: Layout,
    code: Code,
    /// Groups of the longest share.
    groups: u32,
}

/// Chunks of one group, by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coded {
    /// Its chunks of data.
    pub data: Range<u32>,
    /// Its chunks of parity.
    pub parity: Range<u32>,
}

/// Chunks to rebuild from others of their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// Their operation.
    pub task: u32,
    /// The first chunk of data of the group.
    pub data: u32,
    /// The first chunk of parity.
    pub parity: u32,
    /// The code, which gives the numbers of data and parity chunks of the group.
    pub code: Code,
    /// The present chunks, data first: they suffice. All other data chunks are to be rebuilt.
    pub present: Pieces,
}

impl Rebuild {
    /// The numbers of the chunks to rebuild.
    pub fn missing(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.code.data()).filter(|&piece| !self.present.contains(piece)).map(|piece| self.data + piece as u32)
    }
}

impl Parity {
    /// Parity with `code` for a buffer with `layout`; `None` if the chunk numbers need more than 32 bits.
    ///
    /// # Panics
    /// If it is not an MDS code.
    pub fn new(layout: Layout, code: Code) -> Option<Parity> {
        assert_eq!(code.kind(), crate::repair::CodeKind::Mds, "parity of chunks is of an MDS code");
        let groups = layout.stride().div_ceil(code.data() as u32);
        let parity = groups.checked_mul(layout.shares())?.checked_mul(code.parity() as u32)?;
        layout.numbers().checked_add(parity).filter(|&all| all < u32::MAX)?;
        Some(Parity { layout, code, groups })
    }

    /// Reads a code such as `32+4`: 4 chunks of parity for each 32 of data.
    ///
    /// # Errors
    /// A text that says what is wrong.
    pub fn read(text: &str) -> Result<Code, String> {
        let numbers = text.split_once('+').and_then(|(k, m)| Some((k.trim().parse().ok()?, m.trim().parse().ok()?)));
        let (k, m) = numbers.ok_or("is no code")?;
        Code::mds(k, m).map_err(|error| error.to_string())
    }

    /// The code of a group that is not the last one of its share.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The number of chunk numbers of data and parity, unused ones included.
    pub const fn numbers(&self) -> u32 {
        self.layout.numbers() + self.groups() * self.code.parity() as u32
    }

    /// The number of groups, unused ones included.
    pub const fn groups(&self) -> u32 {
        self.groups * self.layout.shares()
    }

    /// The group of a chunk of data or of parity.
    pub const fn group_of(&self, number: u32) -> u32 {
        match number.checked_sub(self.layout.numbers()) {
            Some(parity) => parity / self.code.parity() as u32,
            None => {
                let share = self.layout.share_of(number);
                share * self.groups + (number - self.layout.first(share)) / self.code.data() as u32
            }
        }
    }

    /// The share of a chunk of data or of parity.
    pub const fn share_of(&self, number: u32) -> u32 {
        self.group_of(number) / self.groups
    }

    /// The chunks of a group; empty ranges if it is not used.
    pub fn group(&self, group: u32) -> Coded {
        let (share, within) = (group / self.groups, group % self.groups);
        let (first, chunks) = (self.layout.first(share), self.layout.chunks(share));
        let k = self.code.data() as u32;
        let (begin, end) = ((within * k).min(chunks), ((within + 1) * k).min(chunks));
        let parity = self.layout.numbers() + group * self.code.parity() as u32;
        let count = if end > begin { self.code.shortened((end - begin) as usize).parity() as u32 } else { 0 };
        Coded { data: first + begin..first + end, parity: parity..parity + count }
    }

    /// The numbers of the parity of `count` chunks of a share from `first` on. The chunks must begin with a group, and
    /// end with a group or with the share; then the numbers have no gaps.
    pub fn of_run(&self, first: u32, count: u32) -> Range<u32> {
        let (from, to) = (self.group(self.group_of(first)), self.group(self.group_of(first + count.max(1) - 1)));
        from.parity.start..to.parity.end
    }

    /// The number of chunks of parity of a share.
    pub fn chunks(&self, share: u32) -> u32 {
        match self.layout.chunks(share) {
            0 => 0,
            chunks => self.of_run(self.layout.first(share), chunks).len() as u32,
        }
    }
}

impl Coded {
    /// Its code: that of the share's groups, or a shorter one at the share's end.
    pub fn code(&self, whole: Code) -> Code {
        whole.shortened(self.data.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_chunk_is_in_one_group_and_parity_has_numbers_of_its_own(
            bytes in 0u64..5_000, shares in 1u32..9, chunk in 1u16..200, k in 1usize..40, m in 1usize..9,
        ) {
            let layout = Layout::new(bytes, shares, chunk).expect("few chunks");
            let code = Code::mds(k, m).expect("few pieces");
            let parity = Parity::new(layout, code).expect("few chunks");
            let (mut data, mut last) = (Vec::new(), layout.numbers());
            for number in 0..parity.groups() {
                let group = parity.group(number);
                prop_assert!(group.data.clone().chain(group.parity.clone()).all(|chunk| parity.group_of(chunk) == number));
                data.extend(group.data.clone());
                if group.data.is_empty() {
                    prop_assert!(group.parity.is_empty());
                    continue;
                }
                prop_assert!(group.parity.start >= last && group.parity.end <= parity.numbers());
                last = group.parity.end;
                let code = group.code(code);
                prop_assert_eq!((code.data(), code.parity()), (group.data.len(), group.parity.len()));
                prop_assert_eq!(parity.share_of(group.parity.start), layout.share_of(group.data.start));
            }
            let used: Vec<u32> = (0..layout.numbers()).filter(|&chunk| layout.place(chunk).is_some()).collect();
            prop_assert_eq!(data, used);
        }
    }

    #[test]
    fn runs_of_whole_groups_have_runs_of_parity() {
        // Two shares of 70 chunks: groups of 32, 32 and 6, with 4, 4 and 2 chunks of parity.
        let layout = Layout::new(1_400, 2, 10).expect("few chunks");
        let parity = Parity::new(layout, Code::mds(32, 4).expect("36 pieces")).expect("few chunks");
        assert_eq!((parity.groups(), parity.numbers(), parity.chunks(0)), (6, 140 + 24, 10));
        assert_eq!(parity.of_run(0, 64), 140..148);
        assert_eq!(parity.of_run(64, 6), 148..150);
        assert_eq!(parity.of_run(70, 32), 152..156);
        assert_eq!(parity.group(5), Coded { data: 134..140, parity: 160..162 });
        let many = Layout::new(1 << 31, 1, 1).expect("32 bits count them");
        assert_eq!(Parity::new(many, Code::mds(1, 1).expect("2 pieces")), None);
    }

    #[test]
    fn the_rebuilt_data_is_the_data_that_is_missing() {
        let code = Code::mds(4, 2).expect("6 pieces");
        let present = Pieces::all(6).without(1).without(3);
        let rebuild = Rebuild { task: 0, data: 8, parity: 100, code, present };
        assert_eq!(rebuild.missing().collect::<Vec<_>>(), [9, 11]);
        assert!(code.decodable(&present));
    }
}

//! How the numbers of an operation are cut into fragments: which numbers belong to a key, and which worker gets its
//! sum.

use super::elements::Scale;
use std::ops::Range;

/// The numbers that a worker contributes.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    /// They become integers by a factor.
    Floats(&'a [f32]),
    /// They are integers, and their sums are exact.
    Integers(&'a [i32]),
}

impl Numbers<'_> {
    /// The number of numbers.
    pub const fn len(&self) -> usize {
        match self {
            Numbers::Floats(numbers) => numbers.len(),
            Numbers::Integers(numbers) => numbers.len(),
        }
    }

    /// Are there none?
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes a range as the integers that a fragment carries; false if one of them is so large that a sum could
    /// overflow.
    pub(super) fn write(&self, range: Range<usize>, scale: Scale, to: &mut [i32]) -> bool {
        match self {
            Numbers::Floats(numbers) => scale.quantise(&numbers[range], to),
            Numbers::Integers(numbers) => {
                let from = &numbers[range];
                to[..from.len()].copy_from_slice(from);
                scale.has_room(from)
            }
        }
    }
}

/// Sums, of the kind of the numbers.
#[derive(Debug)]
pub enum Sums<'a> {
    /// Of floats.
    Floats(&'a mut [f32]),
    /// Of integers.
    Integers(&'a mut [i32]),
}

/// The cut of an operation's numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Numbers of a full fragment.
    pub(super) elements: usize,
    /// Numbers of a share.
    length: usize,
    /// One share if all workers get all sums; otherwise one for each worker, which alone gets its sum.
    shares: usize,
    /// The share of this worker.
    own: usize,
}

impl Cut {
    /// All workers get all sums.
    pub(super) fn whole(length: usize, elements: usize) -> Cut {
        Cut { elements, length, shares: 1, own: 0 }
    }

    /// Worker `own` of `workers` gets the sums of its share. Key by key, workers are owners in turn, as in
    /// [`Terms`](super::terms::Terms).
    pub(super) fn shares(length: usize, elements: usize, own: usize, workers: usize) -> Cut {
        Cut { elements, length: length / workers.max(1), shares: workers, own }
    }

    /// Does each share have one owner?
    pub(super) const fn is_shared(&self) -> bool {
        self.shares > 1
    }

    /// The number of keys.
    pub(super) const fn keys(&self) -> u64 {
        (self.length.div_ceil(self.elements) * self.shares) as u64
    }

    /// The number of keys of which this worker gets the sums.
    pub(super) const fn owned(&self) -> u64 {
        self.length.div_ceil(self.elements) as u64
    }

    /// Does this worker get the sum of the key at this place?
    pub(super) const fn owns(&self, at: u64) -> bool {
        self.shares == 1 || at as usize % self.shares == self.own
    }

    /// The numbers of the key at this place.
    pub(super) fn range(&self, at: u64) -> Range<usize> {
        let (share, part) = (at as usize % self.shares, at as usize / self.shares);
        let (first, from) = (share * self.length, part * self.elements);
        first + from..first + (from + self.elements).min(self.length)
    }

    /// The place of its sums in the result of this worker.
    pub(super) fn result(&self, at: u64) -> Range<usize> {
        let range = self.range(at);
        let first = if self.is_shared() { self.own * self.length } else { 0 };
        range.start - first..range.end - first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_belongs_to_one_key_and_every_share_to_its_owner() {
        for (length, elements, workers) in [(100, 7, 1), (96, 7, 4), (64, 16, 4), (4, 256, 4), (1, 4, 1)] {
            let mut seen = vec![0; length];
            for own in 0..workers {
                let cut = if workers == 1 {
                    Cut::whole(length, elements)
                } else {
                    Cut::shares(length, elements, own, workers)
                };
                let mut result = vec![0; length / workers];
                for at in 0..cut.keys() {
                    if own == 0 {
                        cut.range(at).for_each(|place| seen[place] += 1);
                    }
                    if cut.owns(at) {
                        cut.result(at).for_each(|place| result[place] += 1);
                    }
                }
                assert!(result.iter().all(|count| *count == 1), "{length} {elements} {workers}");
                assert_eq!((0..cut.keys()).filter(|at| cut.owns(*at)).count() as u64, cut.owned());
            }
            assert!(seen.iter().all(|count| *count == 1), "{length} {elements} {workers}");
        }
    }
}

//! Chooses parts without common workers.

use super::entry::Part;
use crate::who::Who;
use std::cmp::Reverse;

/// Goes through the parts from the largest to the smallest, and takes each part that has no worker in common with those
/// taken before. Returns the covered workers and the chosen parts. ESA sheet, section 6.2. The server can ask for the
/// missing workers one by one, so in the end all are covered.
pub(super) fn cover(parts: &[Part], racks: usize) -> (Who, Vec<usize>) {
    let mut covered = Who::nobody(racks);
    if let [only] = parts {
        return (only.who.clone(), vec![0]);
    }
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&at| (Reverse(parts[at].who.count()), at));
    order.retain(|&at| {
        let fits = parts[at].who.is_apart_from(&covered);
        if fits {
            covered.join(&parts[at].who);
        }
        fits
    });
    (covered, order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(bits: u32) -> Part {
        let mut who = Who::nobody(1);
        who.insert(0, bits);
        Part { who, register: bits }
    }

    #[test]
    fn the_largest_parts_are_taken_and_none_that_overlaps() {
        let parts = [0b1, 0b110, 0b111_000, 0b11_100, 0b10].map(part);
        let (covered, chosen) = cover(&parts, 1);
        assert_eq!((covered.rack(0), chosen), (0b111_111, vec![2, 1, 0]));
        let (covered, chosen) = cover(&[0b11, 0b110, 0b100].map(part), 1);
        assert_eq!((covered.rack(0), chosen), (0b111, vec![0, 2]));
        assert_eq!(cover(&[], 1).1, Vec::<usize>::new());
    }
}

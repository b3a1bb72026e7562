//! Detects trees that deliver nothing any more, from the chunks that are missing.
//!
//! Multicast sheet, section 16: if a receiver gets less than half of a tree's share of 256 expected chunks, it tells
//! the root, which leaves that tree out. Chunks take all trees in turn, so each tree has the same share of every
//! stretch of chunks. With many trees, a stretch has 32 chunks per tree instead of 256 in total (ours): with fewer,
//! random losses could take half of a tree's chunks.

use std::collections::BTreeMap;

/// Minimum length of a stretch in chunks. The sheet's.
const EXPECTED: u32 = 256;

/// Minimum number of chunks per tree in a stretch. Ours: at 20 % random loss, a tree loses half of them once in 10^4
/// stretches.
const PER_TREE: u32 = 32;

/// Arrivals of one stretch of a share, by tree.
type Heard = Vec<u32>;

/// Counts the arrivals along each tree, for all shares that are being cast.
#[derive(Debug)]
pub(super) struct Silence {
    trees: u32,
    planes: u32,
    /// By share: the number of the stretch that is judged next, its arrivals and those of the next stretch. `None`
    /// after the end of the share.
    shares: BTreeMap<u32, Option<(u32, [Heard; 2])>>,
}

/// A plane or a tree that delivered less than half of its expected chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silent {
    Plane(u8),
    Tree(u8, u32),
}

impl Silence {
    /// Watches `trees` trees of each of these planes, one bit per plane.
    pub(super) fn new(trees: u32, planes: u32) -> Silence {
        Silence { trees, planes, shares: BTreeMap::new() }
    }

    /// The length of a stretch in chunks.
    fn stretch(&self) -> u32 {
        (PER_TREE * self.trees * self.planes.count_ones()).max(EXPECTED)
    }

    /// Chunk `within` of a share has arrived along a tree. Returns the planes and trees that are now known to be
    /// silent. Chunks may be late by one stretch.
    pub(super) fn handle_chunk(&mut self, share: u32, within: u32, (plane, tree): (u8, u32)) -> Vec<Silent> {
        let (stretch, slots) = (self.stretch(), (u32::BITS - self.planes.leading_zeros()) * self.trees);
        let fresh = || (within / stretch, [vec![0; slots as usize], vec![0; slots as usize]]);
        let Some((first, heard)) = self.shares.entry(share).or_insert_with(|| Some(fresh())) else { return Vec::new() };
        let at = within / stretch;
        let mut silent = Vec::new();
        if at >= *first + 2 {
            let holes = stretch.saturating_sub(heard[0].iter().sum());
            let trees = self.trees;
            let expected = stretch / (trees * self.planes.count_ones());
            let quiet = |count: u32, expected: u32| count < expected / 2 && holes >= expected / 2;
            for plane in (0..u32::BITS as u8).filter(|plane| self.planes >> plane & 1 == 1) {
                let of_plane = &heard[0][usize::from(plane) * trees as usize..][..trees as usize];
                if quiet(of_plane.iter().sum(), expected * trees) {
                    silent.push(Silent::Plane(plane));
                } else {
                    let quiet = of_plane.iter().zip(0..).filter(|&(&count, _)| quiet(count, expected));
                    silent.extend(quiet.map(|(_, tree)| Silent::Tree(plane, tree)));
                }
            }
            heard.swap(0, 1);
            if at > *first + 2 {
                // A whole stretch is missing: begin anew.
                heard[0].fill(0);
                *first = at - 2;
                silent.clear();
            }
            heard[1].fill(0);
            *first += 1;
        }
        if let Some(place) = at.checked_sub(*first)
            && self.planes >> plane & 1 == 1
            && tree < self.trees
        {
            heard[place as usize][usize::from(plane) * self.trees as usize + tree as usize] += 1;
        }
        silent
    }

    /// The share has ended. Later arrivals are repetitions.
    pub(super) fn end(&mut self, share: u32) {
        self.shares.insert(share, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results for `count` chunks that take two planes and their trees in turn, without the chunks that are `lost`.
    fn found(trees: u32, count: u32, lost: impl Fn(u32, (u8, u32)) -> bool) -> BTreeMap<u32, Vec<Silent>> {
        let mut silence = Silence::new(trees, 0b11);
        let way = |n: u32| ((n % 2) as u8, n / 2 % trees);
        let heard = (0..count).filter(|&n| !lost(n, way(n)));
        heard.map(|n| (n, silence.handle_chunk(0, n, way(n)))).filter(|(_, silent)| !silent.is_empty()).collect()
    }

    #[test]
    fn a_silent_tree_is_found_within_three_stretches_and_nothing_else_is() {
        // Two planes of four trees: stretches of 256.
        assert!(found(4, 5_000, |_, _| false).is_empty());
        let found_at = found(4, 1_400, |n, way| n >= 300 && way == (1, 2));
        // The stretch from 256 on lost 28 of the tree's 32 chunks. It is judged when the stretch from 768 on begins.
        assert_eq!(
            found_at.into_iter().collect::<Vec<_>>(),
            [768, 1024, 1280].map(|at| (at, vec![Silent::Tree(1, 2)]))
        );
        let plane = found(4, 800, |n, way| n >= 256 && way.0 == 0);
        assert_eq!(plane.into_iter().next(), Some((769, vec![Silent::Plane(0)])));
        // One chunk in five is lost; and a tree that its root leaves out, so that the chunk numbers have no holes.
        assert!(found(4, 20_000, |n, _| n.wrapping_mul(2_654_435_761) >> 16 & 0xff < 51).is_empty());
        let mut silence = Silence::new(4, 0b1);
        assert!(
            (0..5_000).all(|n| silence.handle_chunk(0, n, (0, n % 3)).is_empty()),
            "three of four trees are in use"
        );
    }

    #[test]
    fn more_trees_have_longer_stretches() {
        let found_at = found(64, 20_000, |n, way| n >= 4_096 && way == (0, 63));
        assert_eq!(found_at.keys().next(), Some(&12_288), "stretches are 64 x 2 x 32 chunks");
    }
}

//! Trees by which nothing comes any more, found by the holes that they leave.
//!
//! Multicast sheet, section 16: a receiver that sees a tree's share fall by half over 256 expected chunks tells the root, which leaves
//! that tree out. Chunks take all trees in turn, so each tree has the same share of any stretch of chunks. That stretches are 32 chunks per
//! tree where these are more is ours: of fewer, random losses could take half.

use std::collections::BTreeMap;

/// Chunks of a stretch at least. The sheet's.
const EXPECTED: u32 = 256;

/// Chunks of a stretch for each tree at least. Ours: half of them are lost at random once in 10^4 stretches at 20 % loss.
const PER_TREE: u32 = 32;

/// What came of one stretch of a share, tree by tree.
type Heard = Vec<u32>;

/// What a rank hears along each tree of those who cast now.
#[derive(Debug)]
pub(super) struct Silence {
    trees: u32,
    planes: u32,
    /// By share: the stretch that is judged next, what came of it and of the one behind it; `None` once it has been heard to the end.
    shares: BTreeMap<u32, Option<(u32, [Heard; 2])>>,
}

/// Something by which less than half of what should has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silent {
    Plane(u8),
    Tree(u8, u32),
}

impl Silence {
    /// All of so many trees of these planes, one bit each.
    pub(super) fn new(trees: u32, planes: u32) -> Silence {
        Silence { trees, planes, shares: BTreeMap::new() }
    }

    /// Chunks of a stretch.
    fn stretch(&self) -> u32 {
        (PER_TREE * self.trees * self.planes.count_ones()).max(EXPECTED)
    }

    /// Chunk `within` of a share has come along a tree. What turns out to be silent with that; chunks may be late by a stretch.
    pub(super) fn hear(&mut self, share: u32, within: u32, (plane, tree): (u8, u32)) -> Vec<Silent> {
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
                // Nothing at all has come of a whole stretch: begin anew.
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

    /// A share has been heard to the end. What still comes of it was cast again.
    pub(super) fn end(&mut self, share: u32) {
        self.shares.insert(share, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in `count` chunks that take two planes and their trees in turn, but for those that are `lost`.
    fn found(trees: u32, count: u32, lost: impl Fn(u32, (u8, u32)) -> bool) -> BTreeMap<u32, Vec<Silent>> {
        let mut silence = Silence::new(trees, 0b11);
        let way = |n: u32| ((n % 2) as u8, n / 2 % trees);
        let heard = (0..count).filter(|&n| !lost(n, way(n)));
        heard.map(|n| (n, silence.hear(0, n, way(n)))).filter(|(_, silent)| !silent.is_empty()).collect()
    }

    #[test]
    fn a_silent_tree_is_found_within_three_stretches_and_nothing_else_is() {
        // Two planes of four trees: stretches of 256.
        assert!(found(4, 5_000, |_, _| false).is_empty());
        let found_at = found(4, 1_400, |n, way| n >= 300 && way == (1, 2));
        // The stretch from 256 on lost 28 of its 32; it is judged when that from 768 on begins.
        assert_eq!(
            found_at.into_iter().collect::<Vec<_>>(),
            [768, 1024, 1280].map(|at| (at, vec![Silent::Tree(1, 2)]))
        );
        let plane = found(4, 800, |n, way| n >= 256 && way.0 == 0);
        assert_eq!(plane.into_iter().next(), Some((769, vec![Silent::Plane(0)])));
        // One lost chunk in five, and a tree that its root leaves out: numbers go on without holes.
        assert!(found(4, 20_000, |n, _| n.wrapping_mul(2_654_435_761) >> 16 & 0xff < 51).is_empty());
        let mut silence = Silence::new(4, 0b1);
        assert!((0..5_000).all(|n| silence.hear(0, n, (0, n % 3)).is_empty()), "three of four trees are in use");
    }

    #[test]
    fn more_trees_have_longer_stretches() {
        let found_at = found(64, 20_000, |n, way| n >= 4_096 && way == (0, 63));
        assert_eq!(found_at.keys().next(), Some(&12_288), "stretches are 64 x 2 x 32 chunks");
    }
}

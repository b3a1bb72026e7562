//! Trees that a sender does not use.

/// Trees that a sender leaves out because some member gets no packets along them: up to eight, among the same number of
/// trees in each plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The number of trees of a plane; zero if it is not known, and then no tree is left out.
    of: u16,
    trees: [u16; LeftOut::MOST],
}

/// No tree: planes take 5 bits and trees 10.
const FREE: u16 = u16::MAX;

impl LeftOut {
    /// The largest number of trees that can be left out. Ours: if more trees are silent, the cause is not the trees;
    /// the others stay in use.
    pub const MOST: usize = 8;

    /// No tree, and none can be added.
    pub const NONE: LeftOut = LeftOut::of(0);

    /// No tree yet, with `trees` trees in each plane.
    pub const fn of(trees: u32) -> LeftOut {
        LeftOut { of: if trees <= 1024 { trees as u16 } else { 0 }, trees: [FREE; LeftOut::MOST] }
    }

    fn name(&self, plane: u8, entropy: u32) -> Option<u16> {
        let tree = entropy.checked_rem(u32::from(self.of))?;
        (plane < 32).then_some(u16::from(plane) << 10 | tree as u16)
    }

    /// Leaves out the tree of `plane` that `entropy` names. False if it was left out already, or if eight others are.
    pub fn insert(&mut self, plane: u8, entropy: u32) -> bool {
        let Some(name) = self.name(plane, entropy).filter(|name| !self.trees.contains(name)) else { return false };
        let free = self.trees.iter_mut().find(|entry| **entry == FREE);
        free.map(|entry| *entry = name).is_some()
    }

    /// Is the tree that `entropy` names left out? False if all trees of its plane are.
    pub fn contains(&self, plane: u8, entropy: u32) -> bool {
        let named = |name: u16| self.trees.contains(&name) && self.count(plane) < u32::from(self.of);
        self.name(plane, entropy).is_some_and(named)
    }

    /// The number of this plane's trees that are left out.
    fn count(&self, plane: u8) -> u32 {
        self.trees.iter().filter(|&&entry| entry != FREE && entry >> 10 == u16::from(plane)).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_trees_can_be_left_out_each_once() {
        let mut out = LeftOut::of(1024);
        assert!(!out.contains(31, 1023) && !out.contains(63, 1023));
        assert!(out.insert(31, 1022) && !out.insert(31, 1022 + 1024) && !out.insert(32, 0));
        assert!((0..7).all(|tree| out.insert(2, tree)) && !out.insert(2, 7));
        assert!(out.contains(31, 1022 + 2048) && out.contains(2, 6) && !out.contains(2, 7) && !out.contains(1, 6));
        // If all trees of a plane are left out, or their number is not known, none counts as left out.
        let mut two = LeftOut::of(2);
        assert!(two.insert(0, 1) && two.contains(0, 3) && two.insert(0, 2) && !two.contains(0, 1));
        let mut none = LeftOut::NONE;
        assert!(!none.insert(0, 0) && !none.contains(0, 0));
    }
}

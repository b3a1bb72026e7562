//! Trees that a sender does not use.

/// Trees that a sender leaves out, since somebody hears nothing along them: up to eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut([u16; LeftOut::MOST]);

/// No tree: planes take 5 bits and trees 10.
const FREE: u16 = u16::MAX;

impl LeftOut {
    /// How many trees can be left out. Ours: if more are silent, it is not for trees; the others stay in use.
    pub const MOST: usize = 8;

    /// No tree.
    pub const NONE: LeftOut = LeftOut([FREE; LeftOut::MOST]);

    const fn name(plane: u8, tree: u32) -> Option<u16> {
        if plane < 32 && tree < 1024 { Some((plane as u16) << 10 | tree as u16) } else { None }
    }

    /// Leaves a tree of a plane out, too. False if it was left out already, or eight others are.
    pub fn insert(&mut self, plane: u8, tree: u32) -> bool {
        let Some(name) = LeftOut::name(plane, tree).filter(|name| !self.0.contains(name)) else { return false };
        let free = self.0.iter_mut().find(|entry| **entry == FREE);
        free.map(|entry| *entry = name).is_some()
    }

    /// Is this tree left out?
    pub fn contains(&self, plane: u8, tree: u32) -> bool {
        LeftOut::name(plane, tree).is_some_and(|name| self.0.contains(&name))
    }

    /// How many of this plane's are.
    pub fn count(&self, plane: u8) -> u32 {
        self.0.iter().filter(|&&entry| entry != FREE && entry >> 10 == u16::from(plane)).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_trees_can_be_left_out_each_once() {
        let mut out = LeftOut::NONE;
        assert!(!out.contains(31, 1023) && !out.contains(63, 1023));
        assert!(out.insert(31, 1022) && !out.insert(31, 1022) && !out.insert(0, 1024) && !out.insert(32, 0));
        assert!((0..7).all(|tree| out.insert(2, tree)) && !out.insert(2, 7));
        assert!(out.contains(31, 1022) && out.contains(2, 6) && !out.contains(2, 7) && !out.contains(1, 6));
        assert_eq!([2, 31, 0].map(|plane| out.count(plane)), [7, 1, 0]);
    }
}

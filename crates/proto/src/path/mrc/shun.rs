//! Finds the paths that a receiver considers persistently bad.
//!
//! The specification lets a receiver report such a path ("always skip") and leaves the criterion to it. Ours:
//! `shun_marks` packets in a row arrived marked by one path, while the other paths of its plane are clean. If the other
//! paths are marked too, the whole plane is busy, and no single path is bad.

use crate::packet::PathId;

/// The largest number of paths in the table; when it is full, the table is cleared. Ours: twice a sender's set, in use
/// and in reserve.
const SEEN_MAX: usize = 512;

/// A plane is clean if at most one in this many of its other paths marked its latest packet. Ours.
const CLEAN: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct Shun {
    /// The number of marks in a row after which a path is reported, and reported again.
    row: u32,
    /// For each path, the number of marked packets in a row, up to the latest packet.
    seen: Vec<(PathId, u32)>,
}

impl Shun {
    /// For a receiver that reports a path after `row` marks in a row; `None` if `row` is zero.
    pub(super) fn new(row: u32) -> Option<Shun> {
        (row > 0).then(|| Shun { row, seen: Vec::new() })
    }

    /// A packet arrived by `path`: is that path persistently bad?
    pub(super) fn is_bad(&mut self, path: PathId, marked: bool) -> bool {
        let at = match self.seen.binary_search_by_key(&path, |&(seen, _)| seen) {
            Ok(at) => at,
            Err(at) => {
                let full = self.seen.len() >= SEEN_MAX;
                if full {
                    self.seen.clear();
                }
                let at = if full { 0 } else { at };
                self.seen.insert(at, (path, 0));
                at
            }
        };
        let row = &mut self.seen[at].1;
        *row = if marked { row.saturating_add(1) } else { 0 };
        if *row == 0 || !row.is_multiple_of(self.row) {
            return false;
        }
        let others = || self.seen.iter().filter(|&&(other, _)| other.port() == path.port() && other != path);
        let marking = others().filter(|&&(_, row)| row > 0).count();
        let all = others().count();
        all > 0 && marking * CLEAN <= all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(number: u32) -> PathId {
        PathId::new((number % 2) as u8, number)
    }

    /// Packets by paths `0..paths` in turn, those below `marking` marked, until one is said to be bad.
    fn first_bad(shun: &mut Shun, paths: u32, marking: u32) -> Option<(u32, u32)> {
        let packets = (1..=20).flat_map(|round| (0..paths).map(move |number| (round, number)));
        packets.into_iter().find(|&(_, number)| shun.is_bad(path(number), number < marking))
    }

    #[test]
    fn a_path_that_alone_marks_eight_packets_in_a_row_is_bad_and_again_after_eight_more() {
        let mut shun = Shun::new(8).expect("on");
        assert_eq!(first_bad(&mut shun, 16, 1), Some((8, 0)));
        assert_eq!(first_bad(&mut shun, 16, 1), Some((8, 0)));
        // A packet that is not marked ends the row.
        for _ in 0..100 {
            assert!((0..7).all(|_| !shun.is_bad(path(0), true)));
            assert!(!shun.is_bad(path(0), false));
        }
        assert!(Shun::new(0).is_none());
    }

    #[test]
    fn no_path_of_a_busy_plane_is_bad() {
        // Eight paths a plane: besides one of them one other may mark, not two.
        assert_eq!(first_bad(&mut Shun::new(8).expect("on"), 16, 4), Some((8, 0)));
        assert_eq!(first_bad(&mut Shun::new(8).expect("on"), 16, 6), None);
        // A path alone on its plane is not bad either, because there is nothing to compare it with.
        assert_eq!(first_bad(&mut Shun::new(8).expect("on"), 2, 1), None);
    }

    #[test]
    fn memory_is_bounded_for_any_paths_that_a_peer_makes_up() {
        let mut shun = Shun::new(1).expect("on");
        for number in 0..10_000u32 {
            shun.is_bad(PathId(number.wrapping_mul(2_654_435_761)), number % 3 == 0);
            assert!(shun.seen.len() <= SEEN_MAX && shun.seen.is_sorted());
        }
    }
}

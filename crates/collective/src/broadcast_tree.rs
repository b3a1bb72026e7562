//! Trees for broadcasts by unicast: each rank's parent and children.

/// The shape of a broadcast's tree. Ranks are counted around the ring from the root, which is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BroadcastTree {
    /// In each round, every rank that has the message sends it to `radix - 1` more ranks. The parent of rank `v` is `v`
    /// with its lowest nonzero digit, in base `radix`, set to zero. Radix 2 gives the binomial tree of MPICH (Thakur,
    /// Rabenseifner, Gropp, 2005); a larger radix gives the k-nomial tree of UCC.
    Nomial {
        /// At least 2.
        radix: u32,
    },
    /// The parent of rank `v` is `(v - 1) / 2`.
    Binary,
    /// The parent of rank `v` is `v - 1`.
    Chain,
    /// The root sends to all other ranks.
    Linear,
}

impl BroadcastTree {
    /// `binomial`, `k-nomial`, `binary`, `chain` or `linear`.
    pub const fn name(self) -> &'static str {
        match self {
            BroadcastTree::Nomial { radix: 2 } => "binomial",
            BroadcastTree::Nomial { .. } => "k-nomial",
            BroadcastTree::Binary => "binary",
            BroadcastTree::Chain => "chain",
            BroadcastTree::Linear => "linear",
        }
    }

    /// The rank that sends to rank `v`, which is not the root.
    pub const fn parent(self, v: u32) -> u32 {
        match self {
            BroadcastTree::Nomial { radix } => {
                let mut place = 1;
                while (v / place).is_multiple_of(radix) {
                    place *= radix;
                }
                v - v / place % radix * place
            }
            BroadcastTree::Binary => (v - 1) / 2,
            BroadcastTree::Chain => v - 1,
            BroadcastTree::Linear => 0,
        }
    }

    /// The ranks that `v` sends to, in this order: the child with the largest subtree first.
    pub fn children(self, v: u32, ranks: u32) -> Vec<u32> {
        let below = |child: &u64| *child < u64::from(ranks);
        let children: Vec<u64> = match self {
            BroadcastTree::Nomial { radix } => {
                let (v, radix) = (u64::from(v), u64::from(radix));
                let places = std::iter::successors(Some(1u64), |place| Some(place * radix)).take_while(|place| {
                    *place < u64::from(ranks) && (v == 0 || v / place % radix == 0 && v.is_multiple_of(*place))
                });
                let mut places: Vec<u64> = places.collect();
                places.reverse();
                places.into_iter().flat_map(|place| (1..radix).map(move |digit| v + digit * place)).collect()
            }
            BroadcastTree::Binary => vec![2 * u64::from(v) + 1, 2 * u64::from(v) + 2],
            BroadcastTree::Chain => vec![u64::from(v) + 1],
            BroadcastTree::Linear if v == 0 => (1..u64::from(ranks)).collect(),
            BroadcastTree::Linear => Vec::new(),
        };
        children.into_iter().filter(below).map(|child| child as u32).collect()
    }

    /// The number of messages one after the other from the root to the rank that is farthest from it.
    pub fn depth(self, ranks: u32) -> u32 {
        let depth = |v: u32| std::iter::successors(Some(v), |&v| (v > 0).then(|| self.parent(v))).count() as u32 - 1;
        match self {
            BroadcastTree::Chain => ranks.saturating_sub(1),
            _ => (0..ranks).map(depth).max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_but_the_root_is_a_child_of_its_parent_and_of_nobody_else() {
        let trees = [
            BroadcastTree::Nomial { radix: 2 },
            BroadcastTree::Nomial { radix: 4 },
            BroadcastTree::Nomial { radix: 7 },
        ];
        for tree in trees.into_iter().chain([BroadcastTree::Binary, BroadcastTree::Chain, BroadcastTree::Linear]) {
            for ranks in 1..70 {
                let mut parents = vec![None; ranks as usize];
                for v in 0..ranks {
                    for child in tree.children(v, ranks) {
                        assert_eq!(parents[child as usize].replace(v), None, "{tree:?} {ranks}: {child}");
                    }
                }
                let right: Vec<_> = (0..ranks).map(|v| (v > 0).then(|| tree.parent(v))).collect();
                assert_eq!(parents, right, "{tree:?} of {ranks}");
            }
        }
    }

    #[test]
    fn trees_are_those_that_one_draws_on_a_board() {
        assert_eq!(BroadcastTree::Nomial { radix: 2 }.children(0, 8), [4, 2, 1]);
        assert_eq!(BroadcastTree::Nomial { radix: 2 }.children(4, 8), [6, 5]);
        assert_eq!(BroadcastTree::Nomial { radix: 4 }.children(0, 16), [4, 8, 12, 1, 2, 3]);
        let depths = [
            BroadcastTree::Nomial { radix: 2 },
            BroadcastTree::Nomial { radix: 4 },
            BroadcastTree::Binary,
            BroadcastTree::Chain,
            BroadcastTree::Linear,
        ];
        assert_eq!(depths.map(|tree| tree.depth(16)), [4, 2, 4, 15, 1]);
    }
}

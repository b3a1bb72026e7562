//! Chains of roots: the order in which ranks multicast, their rates, and the total time.

use strandway_proto::units::{Rate, Span};

/// The ranks of an all-gather in chains. In each chain the ranks multicast their shares one after the other.
///
/// Khalilov et al., arXiv 2408.13356, artifact: `R` chains of equal length, or one chain if `R` does not divide the
/// number of ranks. Chains of unequal length, the first ones longer by one rank, are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chains {
    ranks: u32,
    chains: u32,
}

/// The position of a rank in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The number of its chain.
    pub chain: u32,
    /// How many ranks of its chain come before it.
    pub step: u32,
    /// True for the last rank of its chain.
    pub last: bool,
}

impl Chains {
    /// `chains` chains for `ranks` ranks; at least one of each, and at most one chain per rank.
    pub fn new(ranks: u32, chains: u32) -> Chains {
        let ranks = ranks.max(1);
        Chains { ranks, chains: chains.clamp(1, ranks) }
    }

    /// The length of the longest chain.
    pub const fn steps(&self) -> u32 {
        self.ranks.div_ceil(self.chains)
    }

    /// The number of chains.
    pub const fn count(&self) -> u32 {
        self.chains
    }

    /// The number of chains with a rank at this step.
    pub const fn active(&self, step: u32) -> u32 {
        let (each, longer) = (self.ranks / self.chains, self.ranks % self.chains);
        if step < each {
            self.chains
        } else if step == each {
            longer
        } else {
            0
        }
    }

    /// The first rank of a chain, and its length.
    const fn chain(&self, chain: u32) -> (u32, u32) {
        let (each, longer) = (self.ranks / self.chains, self.ranks % self.chains);
        let before = if chain < longer { chain } else { longer };
        (chain * each + before, each + (chain < longer) as u32)
    }

    /// The position of a rank.
    pub const fn link(&self, rank: u32) -> Link {
        let (each, longer) = (self.ranks / self.chains, self.ranks % self.chains);
        let long = longer * (each + 1);
        if rank < long {
            let step = rank % (each + 1);
            return Link { chain: rank / (each + 1), step, last: step == each };
        }
        let step = (rank - long) % each;
        Link { chain: longer + (rank - long) / each, step, last: step + 1 == each }
    }

    /// The last rank of each chain.
    pub fn ends(&self) -> impl Iterator<Item = u32> + use<> {
        let chains = *self;
        (0..self.chains).map(move |chain| {
            let (first, length) = chains.chain(chain);
            first + length - 1
        })
    }

    /// The divisor of a root's rate in this step. With it, the arrivals at a rank do not exceed the rate of its link.
    /// It is the number of roots of the step, or of all other ranks if those are fewer (multicast sheet, section 6.1).
    pub fn sharing(&self, step: u32) -> u32 {
        self.active(step).min(self.ranks.saturating_sub(1)).max(1)
    }

    /// The total time if each root multicasts `share` wire bytes and each rank receives at `rate`: the sum over steps
    /// of `share * sharing / rate` (multicast sheet, section 6.3).
    pub fn schedule(&self, share: u64, rate: Rate) -> Span {
        let times: u64 = (0..self.steps()).map(|step| u64::from(self.sharing(step))).sum();
        let bits = u128::from(share) * u128::from(times) * 8_000_000_000_000;
        Span(u64::try_from(bits / u128::from(rate.0.max(1))).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_a_place_and_chains_differ_by_one_at_most() {
        for ranks in 1..40 {
            for count in 1..=ranks {
                let chains = Chains::new(ranks, count);
                let mut by_step = vec![0; chains.steps() as usize];
                let mut ends = Vec::new();
                for rank in 0..ranks {
                    let link = chains.link(rank);
                    assert_eq!(link.step == 0, rank == 0 || chains.link(rank - 1).last, "{ranks} in {count}: {rank}");
                    by_step[link.step as usize] += 1;
                    assert_eq!(link.chain as usize, ends.len(), "{ranks} in {count}: {rank}");
                    ends.extend(link.last.then_some(rank));
                }
                assert_eq!(ends, chains.ends().collect::<Vec<_>>());
                let active: Vec<u32> = (0..chains.steps()).map(|step| chains.active(step)).collect();
                assert_eq!(by_step, active, "{ranks} in {count}");
                assert_eq!(chains.active(chains.steps()), 0);
            }
        }
    }

    #[test]
    fn schedules_are_those_of_the_sheet() {
        // P = 9, R = 8: with B / R for every root it would take the time of 16 shares; the sheet says 9.
        let rate = Rate(8_000_000_000_000);
        assert_eq!(Chains::new(9, 8).schedule(1_000, rate), Span(9_000));
        // P chains of one rank: every rank sends at B / (P - 1).
        assert_eq!(Chains::new(8, 8).schedule(1_000, rate), Span(7_000));
        assert_eq!(Chains::new(8, 2).schedule(1_000, rate), Span(8_000));
        assert_eq!(Chains::new(2, 1).schedule(1_000, rate), Span(2_000));
    }
}

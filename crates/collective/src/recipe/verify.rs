//! Does a recipe compute its collective? Checked with sets of contributions in place of numbers.

use super::{Does, Recipe};
use crate::schedule::Collective;
use std::collections::HashMap;
use std::fmt;
use strandway_proto::units::Span;

/// The most ranks of a recipe that is checked: ours. The check takes time in proportion to messages times ranks.
const RANKS_MAX: u32 = 4_096;

/// How a recipe fails to compute its collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecipeFault {
    /// A rank adds the numbers of `of` to its own a second time.
    Twice {
        /// The rank that adds.
        rank: u32,
        /// The block.
        block: u32,
        /// The rank whose numbers it has already.
        of: u32,
    },
    /// A rank sends or adds to a block that it does not have.
    Absent {
        /// The rank.
        rank: u32,
        /// The block.
        block: u32,
    },
    /// At the end a rank does not have what the collective gives it.
    Result {
        /// The rank.
        rank: u32,
        /// The block.
        block: u32,
        /// A rank whose numbers are missing there, or should not be there.
        of: u32,
    },
    /// Blocks of this collective belong to ranks, and their number is not a multiple of the number of ranks.
    Blocks(u32),
    /// This collective, or as many ranks, cannot be checked.
    Unchecked,
}

impl fmt::Display for RecipeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecipeFault::Twice { rank, block, of } => {
                write!(f, "rank {rank} adds the numbers of rank {of} to block {block} twice")
            }
            RecipeFault::Absent { rank, block } => write!(f, "rank {rank} does not have block {block} when it uses it"),
            RecipeFault::Result { rank, block, of } => {
                write!(f, "at the end block {block} of rank {rank} is wrong as to the numbers of rank {of}")
            }
            RecipeFault::Blocks(blocks) => write!(f, "{blocks} blocks cannot be dealt to the ranks"),
            RecipeFault::Unchecked => write!(
                f,
                "only all-reduce, all-gather, reduce-scatter, broadcast and reduce of at most {RANKS_MAX} ranks can be \
                 checked"
            ),
        }
    }
}

impl std::error::Error for RecipeFault {}

/// A set of ranks: those whose numbers are in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ranks(Vec<u64>);

impl Ranks {
    fn none(ranks: u32) -> Ranks {
        Ranks(vec![0; ranks.div_ceil(64) as usize])
    }

    fn one(ranks: u32, rank: u32) -> Ranks {
        let mut set = Ranks::none(ranks);
        set.0[rank as usize / 64] |= 1 << (rank % 64);
        set
    }

    fn all(ranks: u32) -> Ranks {
        let word = |at: u32| u64::MAX >> (64 - (ranks - 64 * at).min(64));
        Ranks((0..ranks.div_ceil(64)).map(word).collect())
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The first rank that is in `words`.
    fn first(words: impl Iterator<Item = u64>) -> Option<u32> {
        (0..).zip(words).find(|(_, word)| *word != 0).map(|(at, word)| 64 * at + word.trailing_zeros())
    }

    fn shared(&self, other: &Ranks) -> Option<u32> {
        Ranks::first(self.0.iter().zip(&other.0).map(|(a, b)| a & b))
    }

    fn differing(&self, other: &Ranks) -> Option<u32> {
        Ranks::first(self.0.iter().zip(&other.0).map(|(a, b)| a ^ b))
    }

    fn add(&mut self, other: &Ranks) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }
}

impl Recipe {
    /// Checks that the recipe computes its collective, of root 0 where it has a root: that each rank's numbers are added
    /// once, and that each rank ends with what it is to have. The fate of a block follows the order of nodes in
    /// which [`OrderedRecipe`](crate::plan::OrderedRecipe) performs it.
    ///
    /// # Errors
    /// The first fault.
    pub fn verify(&self) -> Result<(), RecipeFault> {
        use Collective::{AllGather, AllReduce, Broadcast, Reduce, ReduceScatter};
        let (ranks, blocks) = (self.ranks, self.blocks);
        if ranks > RANKS_MAX || !matches!(self.collective, AllReduce | AllGather | ReduceScatter | Broadcast | Reduce) {
            return Err(RecipeFault::Unchecked);
        }
        let of_ranks = matches!(self.collective, AllGather | ReduceScatter);
        if of_ranks && !blocks.is_multiple_of(ranks) {
            return Err(RecipeFault::Blocks(blocks));
        }
        let owner = |block: u32| if of_ranks { block / (blocks / ranks) } else { 0 };
        for (block, ends) in (0..).zip(self.by_block()) {
            let has_own = |rank: u32| match self.collective {
                AllGather | Broadcast => rank == owner(block),
                _ => true,
            };
            let own = |rank: u32| if has_own(rank) { Ranks::one(ranks, rank) } else { Ranks::none(ranks) };
            let mut has: Vec<Ranks> = (0..ranks).map(own).collect();
            self.perform(block, &ends, &mut has)?;
            for (rank, has) in (0..).zip(&has) {
                let wanted = match self.collective {
                    AllReduce => Ranks::all(ranks),
                    ReduceScatter | Reduce if rank == owner(block) => Ranks::all(ranks),
                    ReduceScatter | Reduce => continue,
                    _ => Ranks::one(ranks, owner(block)),
                };
                if let Some(of) = has.differing(&wanted) {
                    return Err(RecipeFault::Result { rank, block, of });
                }
            }
        }
        Ok(())
    }

    /// For each block the messages that have it, sent and received, in the order of their nodes.
    fn by_block(&self) -> Vec<Vec<Does>> {
        let mut all = vec![Vec::new(); self.blocks as usize];
        let visit = |node: u32| {
            let does = self.nodes[node as usize].does;
            if let Does::Send(message) | Does::Receive(message) = does {
                self.blocks_of(message).iter().for_each(|&block| all[block as usize].push(does));
            }
        };
        self.walk(|_, _| Span::ZERO, visit);
        all
    }

    fn perform(&self, block: u32, ends: &[Does], has: &mut [Ranks]) -> Result<(), RecipeFault> {
        let mut under_way: HashMap<u32, Ranks> = HashMap::new();
        for does in ends {
            match *does {
                Does::Send(message) => {
                    let rank = self.messages[message as usize].from;
                    let sent = &has[rank as usize];
                    if sent.is_empty() {
                        return Err(RecipeFault::Absent { rank, block });
                    }
                    under_way.insert(message, sent.clone());
                }
                Does::Receive(message) => {
                    let entry = self.messages[message as usize];
                    let Some(data) = under_way.remove(&message) else { continue };
                    let (rank, mine) = (entry.to, &mut has[entry.to as usize]);
                    if !entry.reduces {
                        *mine = data;
                        continue;
                    }
                    if mine.is_empty() {
                        return Err(RecipeFault::Absent { rank, block });
                    }
                    if let Some(of) = mine.shared(&data) {
                        return Err(RecipeFault::Twice { rank, block, of });
                    }
                    mine.add(&data);
                }
                Does::Nothing => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::RecipeBuilder;

    #[test]
    fn our_own_recipes_compute_their_collectives() {
        for ranks in [2, 3, 8, 63, 64, 65] {
            let made = [
                Recipe::tree(ranks, 2),
                Recipe::pat_all_gather(ranks, 3),
                Recipe::pat_reduce_scatter(ranks, 2),
                Recipe::chain(ranks, 3, 0),
                Recipe::chain_reduce(ranks, 3, 0),
            ];
            for recipe in made {
                let recipe = recipe.expect("a recipe");
                assert_eq!(recipe.verify(), Ok(()), "{} of {ranks} ranks", recipe.name());
            }
        }
    }

    fn two(collective: Collective, messages: &[(u32, u32, bool)]) -> Result<(), RecipeFault> {
        let mut made = RecipeBuilder::new(2, 2);
        let mut last = [Vec::new(), Vec::new()];
        for &(from, to, reduces) in messages {
            let message = made.message((from, to, 0), &[0, 1], reduces);
            for (rank, does) in [(from, Does::Send(message)), (to, Does::Receive(message))] {
                last[rank as usize] = vec![made.node(rank, does, &last[rank as usize])];
            }
        }
        made.finish("two", collective).expect("ends").verify()
    }

    #[test]
    fn faults_are_found() {
        let there_and_back = [(0, 1, true), (1, 0, false)];
        assert_eq!(two(Collective::AllReduce, &there_and_back), Ok(()));
        assert_eq!(two(Collective::Reduce, &[(1, 0, true)]), Ok(()));
        assert_eq!(
            two(Collective::AllReduce, &there_and_back[..1]),
            Err(RecipeFault::Result { rank: 0, block: 0, of: 1 })
        );
        assert_eq!(
            two(Collective::AllReduce, &[(0, 1, true), (0, 1, true), (1, 0, false)]),
            Err(RecipeFault::Twice { rank: 1, block: 0, of: 0 })
        );
        assert_eq!(two(Collective::Broadcast, &[(1, 0, false)]), Err(RecipeFault::Absent { rank: 1, block: 0 }));
        assert_eq!(two(Collective::Broadcast, &[(0, 1, true)]), Err(RecipeFault::Absent { rank: 1, block: 0 }));
        assert_eq!(two(Collective::AllToAll, &there_and_back), Err(RecipeFault::Unchecked));
        let odd = RecipeBuilder::new(2, 3).finish("odd", Collective::AllGather).expect("empty");
        assert_eq!(odd.verify(), Err(RecipeFault::Blocks(3)));
    }
}

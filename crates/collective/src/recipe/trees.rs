//! Recipes of NCCL's algorithms other than the ring, and of collectives with a root.

use super::{Does, Recipe, RecipeBuilder, RecipeError};
use crate::schedule::Collective;

/// The parent of a rank in NCCL's binary tree (`src/graph/trees.cc`, `ncclGetBtree`): the lowest bit of the rank moves
/// up by one place; where no such rank exists, the bit is cleared. Rank 0 is the root, and every odd rank a leaf.
fn parent(rank: u32, ranks: u32) -> Option<u32> {
    let bit = 1u32.checked_shl(rank.trailing_zeros())?;
    let up = (rank ^ bit) | bit << 1;
    Some(if up < ranks { up } else { rank ^ bit })
}

impl Recipe {
    /// All-reduce by NCCL's two binary trees: each reduces half of the buffer to its root and sends the sum back. The
    /// leaves of one tree are inner ranks of the other: the second tree numbers the ranks from the end (if their
    /// number is even) or one later. (Sanders, Speck, Träff: "Two-tree algorithms for full bandwidth broadcast,
    /// reduction and scan", 2009.) Each half is cut into `parts` parts.
    ///
    /// # Errors
    /// If there are fewer than two ranks, or too many messages.
    pub fn tree(ranks: u32, parts: u32) -> Result<Recipe, RecipeError> {
        let parts = parts.max(1);
        too_long(u64::from(ranks) * u64::from(parts) * 4)?;
        let mut made = RecipeBuilder::new(ranks, 2 * parts);
        // The last node of each rank in each tree, for the order of parts; and a rank's nodes that received from
        // children.
        for tree in 0..2u32 {
            // The rank at a place of the tree.
            let of = |place: u32| match tree {
                0 => place,
                _ if ranks.is_multiple_of(2) => ranks - 1 - place,
                _ => (place + 1) % ranks,
            };
            let lane = tree;
            for part in 0..parts {
                let block = [tree * parts + part];
                let up: Vec<Option<(u32, u32)>> = (0..ranks)
                    .map(|place| {
                        let to = parent(place, ranks)?;
                        Some((of(to), made.message((of(place), of(to), lane), &block, true)))
                    })
                    .collect();
                let down: Vec<Option<(u32, u32)>> = (0..ranks)
                    .map(|place| {
                        let from = parent(place, ranks)?;
                        Some((of(from), made.message((of(from), of(place), lane), &block, false)))
                    })
                    .collect();
                let mut received: Vec<Vec<u32>> = vec![Vec::new(); ranks as usize];
                for (to, message) in up.iter().flatten() {
                    let node = made.node(*to, Does::Receive(*message), &[]);
                    received[*to as usize].push(node);
                }
                let mut whole: Vec<Vec<u32>> = received.clone();
                for place in 0..ranks {
                    let rank = of(place);
                    if let (Some((_, sum)), Some((_, result))) = (up[place as usize], down[place as usize]) {
                        made.node(rank, Does::Send(sum), &received[rank as usize]);
                        whole[rank as usize] = vec![made.node(rank, Does::Receive(result), &[])];
                    }
                }
                for (from, message) in down.iter().flatten() {
                    made.node(*from, Does::Send(*message), &whole[*from as usize]);
                }
            }
        }
        made.finish("tree", Collective::AllReduce)
    }

    /// All-gather by PAT, parallel aggregated trees, with all blocks of a step in one message: the step with distance
    /// `d` sends all blocks that a rank has to the rank `d` later, for `d` = ..., 4, 2, 1. (Jeaugey: "PAT: a new
    /// algorithm for all-gather and reduce-scatter operations at scale", arXiv 2506.20252, section 3.) The number of
    /// ranks need not be a power of two.
    ///
    /// # Errors
    /// If there are fewer than two ranks, or too many messages.
    pub fn pat_all_gather(ranks: u32, parts: u32) -> Result<Recipe, RecipeError> {
        pat(ranks, parts.max(1), false)
    }

    /// Reduce-scatter by PAT: the steps of the all-gather backwards, with the nearest ranks first.
    ///
    /// # Errors
    /// If there are fewer than two ranks, or too many messages.
    pub fn pat_reduce_scatter(ranks: u32, parts: u32) -> Result<Recipe, RecipeError> {
        pat(ranks, parts.max(1), true)
    }

    /// Broadcast from rank `root` along the ring, in `parts` parts, as NCCL does it.
    ///
    /// # Errors
    /// If there are fewer than two ranks, no such root, or too many messages.
    pub fn chain(ranks: u32, parts: u32, root: u32) -> Result<Recipe, RecipeError> {
        let places: Vec<u32> = (0..ranks).map(|place| (root + place) % ranks.max(1)).collect();
        line(&places, root, parts.max(1), false)?.finish("chain", Collective::Broadcast)
    }

    /// Reduction to rank `root` along the ring, in `parts` parts, as NCCL does it.
    ///
    /// # Errors
    /// Those of [`Recipe::chain`].
    pub fn chain_reduce(ranks: u32, parts: u32, root: u32) -> Result<Recipe, RecipeError> {
        let places: Vec<u32> = (1..=ranks).map(|place| (root + place) % ranks.max(1)).collect();
        line(&places, root, parts.max(1), true)?.finish("chain", Collective::Reduce)
    }

    /// Gather to rank `root`: all ranks send their blocks at once.
    ///
    /// # Errors
    /// Those of [`Recipe::chain`].
    pub fn gather(ranks: u32, root: u32) -> Result<Recipe, RecipeError> {
        star(ranks, root, false)
    }

    /// Scatter from rank `root`: it sends each rank its block.
    ///
    /// # Errors
    /// Those of [`Recipe::chain`].
    pub fn scatter(ranks: u32, root: u32) -> Result<Recipe, RecipeError> {
        star(ranks, root, true)
    }
}

pub(super) fn too_long(messages: u64) -> Result<(), RecipeError> {
    if messages > super::MESSAGES_MAX as u64 { Err(RecipeError::TooLong) } else { Ok(()) }
}

fn pat(ranks: u32, parts: u32, reduces: bool) -> Result<Recipe, RecipeError> {
    if ranks < 2 {
        return Err(RecipeError::TooFewRanks);
    }
    let steps = 32 - (ranks - 1).leading_zeros();
    too_long(u64::from(ranks) * u64::from(ranks) * u64::from(parts))?;
    let mut made = RecipeBuilder::new(ranks, ranks * parts);
    // For each step of the all-gather: the distance, and how far away the owners of a sender's blocks are.
    let mut held = vec![0u32];
    let mut gathers: Vec<(u32, Vec<u32>)> = Vec::new();
    for distance in (0..steps).rev().map(|step| 1u32 << step) {
        let sent: Vec<u32> = held.iter().copied().filter(|away| away + distance < ranks).collect();
        held.extend(sent.iter().map(|away| away + distance).collect::<Vec<u32>>());
        gathers.push((distance, sent));
    }
    if reduces {
        gathers.reverse();
    }
    for part in 0..parts {
        let mut received: Vec<Vec<u32>> = vec![Vec::new(); ranks as usize];
        for (distance, away) in &gathers {
            let messages: Vec<(u32, u32, u32)> = (0..ranks)
                .map(|rank| {
                    let next = (rank + distance) % ranks;
                    let blocks: Vec<u32> =
                        away.iter().map(|away| (rank + ranks - away) % ranks * parts + part).collect();
                    let (from, to) = if reduces { (next, rank) } else { (rank, next) };
                    (from, to, made.message((from, to, 0), &blocks, reduces))
                })
                .collect();
            for &(from, _, message) in &messages {
                made.node(from, Does::Send(message), &received[from as usize]);
            }
            for &(_, to, message) in &messages {
                let node = made.node(to, Does::Receive(message), &[]);
                received[to as usize].push(node);
            }
        }
    }
    made.finish("pat", if reduces { Collective::ReduceScatter } else { Collective::AllGather })
}

fn line(places: &[u32], root: u32, parts: u32, reduces: bool) -> Result<RecipeBuilder, RecipeError> {
    let ranks = places.len() as u32;
    if ranks < 2 {
        return Err(RecipeError::TooFewRanks);
    }
    if root >= ranks {
        return Err(RecipeError::Unknown(root));
    }
    too_long(u64::from(ranks) * u64::from(parts))?;
    let mut made = RecipeBuilder::new(ranks, parts);
    for part in 0..parts {
        let mut before: Vec<u32> = Vec::new();
        for pair in places.windows(2) {
            let message = made.message((pair[0], pair[1], 0), &[part], reduces);
            made.node(pair[0], Does::Send(message), &before);
            before = vec![made.node(pair[1], Does::Receive(message), &[])];
        }
    }
    Ok(made)
}

fn star(ranks: u32, root: u32, leaves: bool) -> Result<Recipe, RecipeError> {
    if root >= ranks.max(1) {
        return Err(RecipeError::Unknown(root));
    }
    let mut made = RecipeBuilder::new(ranks, ranks.max(1));
    for rank in (0..ranks).filter(|rank| *rank != root) {
        let (from, to) = if leaves { (root, rank) } else { (rank, root) };
        let message = made.message((from, to, 0), &[rank], false);
        made.node(from, Does::Send(message), &[]);
        made.node(to, Does::Receive(message), &[]);
    }
    made.finish("direct", if leaves { Collective::Scatter } else { Collective::Gather })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use strandway_proto::units::Span;

    /// Performs a recipe with sets of contributions in place of sums. `start[rank][block]` are the contributions that a
    /// rank has at first. Nodes run in an order that `seed` chooses among those that can run.
    fn perform(recipe: &Recipe, start: Vec<Vec<BTreeSet<u32>>>, seed: u64) -> Vec<Vec<BTreeSet<u32>>> {
        let mut has = start;
        let mut done: Vec<Vec<bool>> =
            (0..recipe.ranks()).map(|rank| vec![false; recipe.nodes_of(rank) as usize]).collect();
        let mut under_way: std::collections::BTreeMap<u32, Vec<BTreeSet<u32>>> = Default::default();
        let mut state = seed;
        loop {
            let mut can = Vec::new();
            for rank in 0..recipe.ranks() {
                for node in 0..recipe.nodes_of(rank) {
                    let (does, after) = recipe.node(rank, node);
                    let arrived = !matches!(does, Does::Receive(message) if !under_way.contains_key(&message));
                    let free = after.iter().all(|before| done[rank as usize][*before as usize]);
                    if !done[rank as usize][node as usize] && free && arrived {
                        can.push((rank, node, does));
                    }
                }
            }
            if can.is_empty() {
                break;
            }
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (rank, node, does) = can[(state >> 33) as usize % can.len()];
            done[rank as usize][node as usize] = true;
            match does {
                Does::Send(message) => {
                    let blocks = recipe.blocks_of(message).iter();
                    under_way.insert(message, blocks.map(|&b| has[rank as usize][b as usize].clone()).collect());
                }
                Does::Receive(message) => {
                    let data = under_way.remove(&message).expect("it is under way");
                    for (&block, data) in recipe.blocks_of(message).iter().zip(data) {
                        let mine = &mut has[rank as usize][block as usize];
                        if recipe.messages()[message as usize].reduces {
                            assert!(mine.is_disjoint(&data), "rank {rank} adds block {block} of a rank twice");
                            mine.extend(data);
                        } else {
                            *mine = data;
                        }
                    }
                }
                Does::Nothing => {}
            }
        }
        assert!(done.iter().flatten().all(|done| *done), "some node never runs");
        has
    }

    fn own(ranks: u32, blocks: u32) -> Vec<Vec<BTreeSet<u32>>> {
        (0..ranks).map(|rank| vec![BTreeSet::from([rank]); blocks as usize]).collect()
    }

    #[test]
    fn trees_add_everything_everywhere() {
        for ranks in 2..=17 {
            let recipe = Recipe::tree(ranks, 2).expect("a tree");
            let all: BTreeSet<u32> = (0..ranks).collect();
            for seed in 0..3 {
                let end = perform(&recipe, own(ranks, 4), seed);
                assert!(end.iter().flatten().all(|block| *block == all), "{ranks} ranks");
            }
            assert_eq!(recipe.volume(4000), u64::from(ranks - 1) * 2 * 4000);
        }
    }

    #[test]
    fn leaves_of_one_tree_are_inner_ranks_of_the_other() {
        let recipe = Recipe::tree(8, 1).expect("a tree");
        // An inner rank sends to two children and a parent, the root to one child.
        let sends = |rank: u32, tree: u32| {
            let mine = recipe.messages().iter().enumerate().filter(|(_, message)| message.from == rank);
            mine.filter(|(message, _)| recipe.blocks_of(*message as u32) == [tree]).count()
        };
        for rank in 0..8 {
            assert_eq!(sends(rank, 0) == 1, rank % 2 == 1 || rank == 0, "rank {rank}");
            assert!(sends(rank, 0) + sends(rank, 1) <= 4 && sends(rank, 0) != sends(rank, 1) || rank == 0 || rank == 7);
        }
    }

    #[test]
    fn pat_gathers_and_scatters_for_any_number_of_ranks() {
        for ranks in 2..=17u32 {
            for parts in [1, 3] {
                let gather = Recipe::pat_all_gather(ranks, parts).expect("a gather");
                let start = (0..ranks)
                    .map(|rank| {
                        let of =
                            |block: u32| if block / parts == rank { BTreeSet::from([rank]) } else { BTreeSet::new() };
                        (0..ranks * parts).map(of).collect()
                    })
                    .collect();
                let end = perform(&gather, start, 5);
                for blocks in &end {
                    let right = |(block, set): (usize, &BTreeSet<u32>)| *set == BTreeSet::from([block as u32 / parts]);
                    assert!(blocks.iter().enumerate().all(right), "{ranks} ranks");
                }
                let scatter = Recipe::pat_reduce_scatter(ranks, parts).expect("a scatter");
                let end = perform(&scatter, own(ranks, ranks * parts), 7);
                let all: BTreeSet<u32> = (0..ranks).collect();
                for (rank, blocks) in end.iter().enumerate() {
                    let mine = &blocks[rank * parts as usize..(rank + 1) * parts as usize];
                    assert!(mine.iter().all(|block| *block == all), "{ranks} ranks");
                }
                let bytes = u64::from(ranks * parts) * 100;
                assert_eq!(gather.volume(bytes), u64::from(ranks - 1) * bytes);
                assert_eq!(scatter.volume(bytes), u64::from(ranks - 1) * bytes);
            }
        }
        // Eight ranks need three steps: 1, 2 and 4 blocks at 20 ps per byte, and 1 us each.
        let gather = Recipe::pat_all_gather(8, 1).expect("a gather");
        let bound = gather.bound(8_000, |b| Span(b * 20), |_, _, b| Span(b * 20 + 1_000_000));
        assert_eq!(bound, Span(7_000 * 20 + 3_000_000));
    }

    #[test]
    fn collectives_with_a_root_reach_all_ranks() {
        for (ranks, root) in [(2, 1), (5, 3), (8, 0)] {
            let end = perform(&Recipe::chain(ranks, 3, root).expect("a chain"), own(ranks, 3), 1);
            assert!(end.iter().flatten().all(|block| *block == BTreeSet::from([root])));
            let end = perform(&Recipe::chain_reduce(ranks, 3, root).expect("a chain"), own(ranks, 3), 1);
            let all: BTreeSet<u32> = (0..ranks).collect();
            assert!(end[root as usize].iter().all(|block| *block == all));
            let end = perform(&Recipe::gather(ranks, root).expect("a gather"), own(ranks, ranks), 1);
            assert!((0..ranks).all(|rank| end[root as usize][rank as usize] == BTreeSet::from([rank])));
            let end = perform(&Recipe::scatter(ranks, root).expect("a scatter"), own(ranks, ranks), 1);
            assert!((0..ranks).all(|rank| end[rank as usize][rank as usize] == BTreeSet::from([root])));
        }
        assert_eq!(Recipe::chain(4, 1, 4).err(), Some(RecipeError::Unknown(4)));
        assert_eq!(Recipe::tree(1, 1).err(), Some(RecipeError::TooFewRanks));
    }

    #[test]
    fn circles_and_lost_messages_are_refused() {
        let mut made = RecipeBuilder::new(2, 1);
        let (there, back) = (made.message((0, 1, 0), &[0], false), made.message((1, 0, 0), &[0], false));
        made.node(0, Does::Send(there), &[1]);
        made.node(0, Does::Receive(back), &[]);
        made.node(1, Does::Receive(there), &[]);
        let mut lost = made.clone();
        made.node(1, Does::Send(back), &[0]);
        assert!(matches!(made.finish("x", Collective::AllReduce).err(), Some(RecipeError::Circle(..))));
        assert_eq!(lost.clone().finish("x", Collective::AllReduce).err(), Some(RecipeError::Unmatched(1)));
        lost.node(0, Does::Send(there), &[]);
        assert_eq!(lost.finish("x", Collective::AllReduce).err(), Some(RecipeError::Unmatched(0)));
    }
}

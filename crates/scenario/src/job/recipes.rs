//! The recipes of collectives of jobs.

use strandway_collective::{Recipe, RecipeError};
use strandway_import::trace::Kind;

/// The recipe of a collective among `ranks` ranks, with blocks of `parts` parts; the first rank is the root.
pub(super) fn recipe_of(collective: Kind, ranks: u32, parts: u32) -> Result<Recipe, RecipeError> {
    match collective {
        Kind::AllReduce | Kind::Barrier => Recipe::tree(ranks, parts),
        Kind::AllGather => Recipe::pat_all_gather(ranks, parts),
        Kind::ReduceScatter => Recipe::pat_reduce_scatter(ranks, parts),
        Kind::Reduce => Recipe::chain_reduce(ranks, parts, 0),
        Kind::Gather => Recipe::gather(ranks, 0),
        Kind::Scatter => Recipe::scatter(ranks, 0),
        Kind::Broadcast | Kind::AllToAll => Recipe::chain(ranks, parts, 0),
    }
}

/// Parts of a block in a recipe: at least `wanted`. Along chains and trees NCCL sends slices of 512 KiB at the least
/// (`NCCL_BUFFSIZE` over eight steps).
pub(super) fn slices(collective: Kind, bytes: u64, wanted: u32) -> u32 {
    match collective {
        Kind::Broadcast | Kind::Reduce => wanted.max((bytes >> 19).min(64) as u32),
        Kind::AllReduce | Kind::Barrier => wanted.max((bytes >> 20).min(64) as u32),
        _ => wanted,
    }
}

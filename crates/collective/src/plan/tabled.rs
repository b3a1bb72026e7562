//! Rank plans of recipes: trees, PAT, chains, and algorithms from files.

use super::operand::Operand;
use super::{CollectiveCall, Condition, PlannedReceive, PlannedSend, RankPlan, Target};
use crate::recipe::{Does, Recipe};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// For each block the messages that have it: their positions in the order of nodes, and their places in the plan.
type Users = BTreeMap<u32, Vec<(u32, Range<usize>)>>;

/// The meaning of a node of a recipe in a plan.
type Meaning = BTreeSet<Condition>;

impl RankPlan {
    /// The part of `rank` in a call, by a recipe for this number of ranks. A message whose blocks do not lie side by
    /// side leaves as several. `None` if the recipe computes another collective, or if blocks of several lengths were
    /// given.
    pub fn tabled(
        call: &CollectiveCall,
        recipe: &OrderedRecipe,
        rank: u32,
        element: usize,
        buffers: usize,
    ) -> Option<RankPlan> {
        let OrderedRecipe { recipe, positions, orders_sends } = recipe;
        if call.collective() != Some(recipe.collective()) {
            return None;
        }
        let mut plan = RankPlan::default();
        let operand = Operand::new(&mut plan, call, (rank, recipe.ranks()), element, buffers)?;
        let ranges = BlockRanges::new(recipe);
        let maker = Maker { recipe, positions, orders_sends: *orders_sends, rank, element, operand, ranges };
        maker.fill(&mut plan);
        if call.reduces() {
            maker.operand.describe(&mut plan, call, rank);
        }
        Some(plan)
    }
}

/// A recipe, and an order of all its nodes in which each comes behind those that it waits for.
#[derive(Clone, Debug)]
pub struct OrderedRecipe {
    recipe: Arc<Recipe>,
    positions: Vec<u32>,
    /// A message also waits for messages that changed its blocks before, whether or not the recipe says so.
    orders_sends: bool,
}

impl OrderedRecipe {
    /// Finds an order of the nodes of a recipe.
    pub fn new(recipe: Arc<Recipe>) -> OrderedRecipe {
        let positions = recipe.positions();
        OrderedRecipe { recipe, positions, orders_sends: false }
    }

    /// The same for a recipe of somebody else: a message leaves after all that its rank received before it in the
    /// order, so that plans do what [`Recipe::verify`] has checked.
    pub fn of_file(recipe: Arc<Recipe>) -> OrderedRecipe {
        OrderedRecipe { orders_sends: true, ..OrderedRecipe::new(recipe) }
    }

    /// The recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }
}

/// Where the blocks of a recipe begin in a buffer.
struct BlockRanges {
    blocks: u32,
    ranks: u32,
    per_rank: bool,
}

impl BlockRanges {
    /// Blocks of all-gather and reduce-scatter belong to ranks, so each rank's block is cut on its own, because the
    /// blocks of ranks differ by an element.
    fn new(recipe: &Recipe) -> BlockRanges {
        use crate::schedule::Collective::{AllGather, ReduceScatter};
        let (blocks, ranks) = (recipe.blocks(), recipe.ranks());
        let per_rank = matches!(recipe.collective(), AllGather | ReduceScatter) && blocks.is_multiple_of(ranks);
        BlockRanges { blocks, ranks, per_rank }
    }

    /// The elements of a block, of a buffer of `count` elements.
    fn of(&self, block: u32, count: usize) -> Range<usize> {
        let cut = |count: usize, pieces: u32, at: u32| super::direct::cut(count, 1, pieces, at);
        if !self.per_rank {
            return cut(count, self.blocks, block)..cut(count, self.blocks, block + 1);
        }
        let pieces = self.blocks / self.ranks;
        let (rank, piece) = (block / pieces, block % pieces);
        let first = cut(count, self.ranks, rank);
        let length = cut(count, self.ranks, rank + 1) - first;
        first + cut(length, pieces, piece)..first + cut(length, pieces, piece + 1)
    }
}

struct Maker<'a> {
    recipe: &'a Recipe,
    positions: &'a [u32],
    orders_sends: bool,
    rank: u32,
    element: usize,
    operand: Operand,
    ranges: BlockRanges,
}

impl Maker<'_> {
    /// The runs of bytes of a message: neighbouring blocks are one run.
    fn runs(&self, message: u32) -> Vec<Range<usize>> {
        let mut blocks: Vec<u32> = self.recipe.blocks_of(message).to_vec();
        blocks.sort_unstable();
        let mut runs: Vec<Range<usize>> = Vec::new();
        for block in blocks {
            let range = self.ranges.of(block, self.operand.length / self.element);
            match runs.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => runs.push(range),
            }
        }
        runs.retain(|run| !run.is_empty());
        runs
    }

    fn fill(&self, plan: &mut RankPlan) {
        // Nodes may wait for later ones, so what nodes stand for is found first.
        let count = self.recipe.nodes_of(self.rank);
        let (mut sends, mut receives) = (0, 0);
        let runs: Vec<Vec<Range<usize>>> = (0..count)
            .map(|node| match self.recipe.node(self.rank, node).0 {
                Does::Send(message) | Does::Receive(message) => self.runs(message),
                Does::Nothing => Vec::new(),
            })
            .collect();
        let take = |runs: &Vec<Range<usize>>, next: &mut usize, condition: fn(usize) -> Condition| {
            let first = *next;
            *next += runs.len();
            (first..*next).map(condition).collect()
        };
        let own: Vec<Vec<Condition>> = (0..)
            .zip(&runs)
            .map(|(node, runs)| match self.recipe.node(self.rank, node).0 {
                Does::Send(_) => take(runs, &mut sends, Condition::Posted),
                Does::Receive(_) => take(runs, &mut receives, Condition::Received),
                Does::Nothing => Vec::new(),
            })
            .collect();
        let mut known: Vec<Option<Meaning>> = vec![None; count as usize];
        let (mut sent, mut received) = (Users::new(), Users::new());
        for (node, runs) in (0..).zip(runs) {
            let after: Vec<Condition> = self.before(node, &own, &mut known).into_iter().collect();
            let (does, _) = self.recipe.node(self.rank, node);
            let (Does::Send(message) | Does::Receive(message)) = does else { continue };
            let entry = self.recipe.messages()[message as usize];
            let position = self.positions[(self.recipe.first_node(self.rank) + node) as usize];
            let (users, next) = match does {
                Does::Send(_) => (&mut sent, plan.sends.len()),
                _ => (&mut received, plan.receives.len()),
            };
            for &block in self.recipe.blocks_of(message) {
                users.entry(block).or_insert_with(Vec::new).push((position, next..next + runs.len()));
            }
            for (run, bytes) in runs.into_iter().enumerate() {
                let at = self.operand.range(bytes.start * self.element..bytes.end * self.element);
                let (tag, after) = (self.tag(message, run), after.clone());
                if matches!(does, Does::Send(_)) {
                    plan.sends.push(PlannedSend { to: entry.to, tag, from: at, after });
                } else {
                    let length = at.len();
                    let into = if entry.reduces { Target::Combine(at) } else { Target::Place(at) };
                    plan.receives.push(PlannedReceive { from: entry.from, tag, length, into, after });
                }
            }
        }
        self.order(plan, &sent, &received);
    }

    /// Orders what happens to the same block, in the order of the recipe's nodes: a message is combined or placed after
    /// those that were before it, so that every run adds in one order, and after the sends of the bytes that it
    /// changes.
    fn order(&self, plan: &mut RankPlan, sent: &Users, received: &Users) {
        for (block, receives) in received {
            let mut receives = receives.clone();
            receives.sort_unstable_by_key(|(position, _)| *position);
            let sends = sent.get(block).map_or(&[][..], Vec::as_slice);
            for (at, (position, places)) in receives.iter().enumerate() {
                let before = at.checked_sub(1).map(|before| receives[before].1.clone());
                let before = before.into_iter().flatten().map(Condition::Received);
                let left = sends.iter().filter(|(of, _)| of < position).flat_map(|(_, sends)| sends.clone());
                let all: Vec<Condition> = before.chain(left.map(Condition::Posted)).collect();
                for place in places.clone() {
                    plan.receives[place].after.extend(&all);
                }
            }
        }
        if self.orders_sends {
            for (block, sends) in sent {
                let receives = received.get(block).map_or(&[][..], Vec::as_slice);
                for (position, places) in sends {
                    let before = receives.iter().filter(|(of, _)| of < position);
                    let last = before.max_by_key(|(of, _)| *of).map(|(_, places)| places.clone());
                    for place in places.clone() {
                        plan.sends[place].after.extend(last.clone().into_iter().flatten().map(Condition::Received));
                    }
                }
            }
        }
        let receives = plan.receives.iter_mut().map(|receive| &mut receive.after);
        let sends = plan.sends.iter_mut().map(|send| &mut send.after).filter(|_| self.orders_sends);
        for after in receives.chain(sends) {
            after.sort_unstable();
            after.dedup();
        }
    }

    /// The number of a run of a message; a message has fewer runs than blocks.
    fn tag(&self, message: u32, run: usize) -> u32 {
        self.recipe.messages()[message as usize].first_block() + run as u32
    }

    /// The conditions of a node: nodes that do nothing stand for those that they wait for.
    fn before(&self, node: u32, own: &[Vec<Condition>], known: &mut [Option<Meaning>]) -> Meaning {
        let mut stack = vec![node];
        while let Some(&at) = stack.last() {
            if known[at as usize].is_some() {
                stack.pop();
                continue;
            }
            let (_, after) = self.recipe.node(self.rank, at);
            // A recipe has no circles, so this ends.
            let empty = |before: &&u32| own[**before as usize].is_empty();
            let missing: Vec<u32> =
                after.iter().filter(empty).copied().filter(|before| known[*before as usize].is_none()).collect();
            if missing.is_empty() {
                let mut all = Meaning::new();
                for before in after {
                    match own[*before as usize].as_slice() {
                        [] => all.extend(known[*before as usize].iter().flatten()),
                        conditions => all.extend(conditions),
                    }
                }
                known[at as usize] = Some(all);
                stack.pop();
            }
            stack.extend(missing);
        }
        known[node as usize].clone().unwrap_or_default()
    }
}

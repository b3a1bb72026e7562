//! Recipes of rank plans: the messages that process groups exchange, for the simulator.

use super::{Does, Recipe, RecipeBuilder, RecipeError};
use crate::plan::{CollectiveCall, Condition, Hosts, PlanAlgorithm, PlanMaker, PlannedReceive, RankPlan, Target};
use crate::schedule::Collective;
use std::collections::BTreeMap;

/// How process groups carry the messages of plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanCarriage {
    /// A message of at most this many bytes is sent at once. For a longer one its sender waits until the receiver has
    /// opened memory.
    pub eager: usize,
    /// Bytes before those of a message that is sent at once.
    pub head: usize,
    /// Bytes of the message that says that memory is open.
    pub open: usize,
    /// Memory is open for this many sums ahead of the first one that is not complete.
    pub sums_ahead: usize,
}

impl PlanCarriage {
    /// The numbers of process groups (ours).
    pub const GROUPS: PlanCarriage =
        PlanCarriage { eager: crate::plan::direct::EAGER, head: 32, open: 52, sums_ahead: 4 };
}

/// Nodes of one send or receive: what it waits for, the message that memory is open, and its own message; or the
/// message that memory is open, the arrival, and the bytes in their place.
const NODES: usize = 3;

/// The nodes of one rank, in their final order, with the nodes that each one waits for.
#[derive(Default)]
struct Nodes(Vec<(Option<Does>, Vec<u32>)>);

impl Recipe {
    /// The messages that process groups exchange in a call of a collective of `bytes` bytes, counted as in
    /// [`CollectiveCall::of_size`].
    ///
    /// # Errors
    /// If there are fewer than two ranks, no such root, or more messages than a recipe may have.
    pub fn planned(
        maker: &mut PlanMaker,
        collective: Collective,
        (ranks, bytes): (u32, u64),
        root: u32,
    ) -> Result<Recipe, RecipeError> {
        if ranks < 2 {
            return Err(RecipeError::TooFewRanks);
        }
        if root >= ranks {
            return Err(RecipeError::Unknown(root));
        }
        super::trees::too_long(u64::from(ranks) * u64::from(ranks - 1))?;
        let bytes = usize::try_from(bytes).map_err(|_| RecipeError::TooLong)?;
        let element = if bytes.is_multiple_of(4) { 4 } else { 1 };
        let mut name = "direct";
        // Ranks of the simulator are NICs.
        let hosts = &Hosts::default();
        let plan = |rank| {
            let call = CollectiveCall::of_size(collective, bytes, element, (rank, ranks), root)?;
            name = maker.algorithm(&call, ranks, hosts).name();
            Some(maker.plan(&call, (rank, ranks), hosts, element, 2))
        };
        let plans: Option<Vec<RankPlan>> = (0..ranks).map(plan).collect();
        Recipe::of_plans(name, collective, &plans.ok_or(RecipeError::Unknown(root))?, PlanCarriage::GROUPS)
    }

    /// The messages of the plans of all ranks, with their lengths on the wire.
    ///
    /// # Errors
    /// If a message has no receiver, or the plans wait for each other, or have more messages than a recipe may have.
    pub fn of_plans(
        name: &str,
        collective: Collective,
        plans: &[RankPlan],
        carriage: PlanCarriage,
    ) -> Result<Recipe, RecipeError> {
        let mut made = RecipeBuilder::new(plans.len() as u32, 1);
        if name == PlanAlgorithm::Direct.name() {
            // Processes have one connection per pair. With the same channels in all recipes, their collectives can
            // share them.
            let ranks = plans.len() as u32;
            for from in 0..ranks {
                for to in (0..ranks).filter(|to| *to != from) {
                    made.channel((from, to, 0));
                }
            }
        }
        let mut nodes: Vec<Nodes> = plans.iter().map(Nodes::new).collect();
        let mut lengths = Vec::new();
        let receives = (0u32..).zip(plans).flat_map(|(rank, plan)| {
            (0..).zip(&plan.receives).map(move |(at, receive)| ((receive.from, rank, receive.tag), (at, receive)))
        });
        let mut receives: BTreeMap<(u32, u32, u32), (usize, &PlannedReceive)> = receives.collect();
        for (from, plan) in (0u32..).zip(plans) {
            for (at, send) in plan.sends.iter().enumerate() {
                let to = send.to;
                let Some((of, receive)) = receives.remove(&(from, to, send.tag)) else {
                    return Err(RecipeError::Unmatched(lengths.len() as u32));
                };
                let bytes = receive.length.max(send.from.len());
                let is_long = bytes > carriage.eager;
                if is_long {
                    let open = made.message((to, from, 0), &[0], false);
                    lengths.push(carriage.open as u64);
                    nodes[from as usize].0[plan.send_node(at) + 1].0 = Some(Does::Receive(open));
                    let first = NODES * of;
                    let may = plans[to as usize].opens_after(receive, carriage.sums_ahead);
                    let may = may.into_iter().map(|condition| plans[to as usize].node(condition)).collect();
                    nodes[to as usize].0[first] = (Some(Does::Send(open)), may);
                }
                let message = made.message((from, to, 0), &[0], matches!(receive.into, Target::Combine(_)));
                lengths.push(if is_long { bytes } else { bytes + carriage.head } as u64);
                nodes[from as usize].0[plan.send_node(at) + 2].0 = Some(Does::Send(message));
                nodes[to as usize].0[NODES * of + 1].0 = Some(Does::Receive(message));
            }
        }
        if !receives.is_empty() {
            return Err(RecipeError::Unmatched(lengths.len() as u32));
        }
        for (rank, nodes) in (0u32..).zip(nodes) {
            for (does, after) in nodes.0 {
                made.node(rank, does.unwrap_or(Does::Nothing), &after);
            }
        }
        Ok(Recipe { lengths: Some(lengths), ..made.finish(name, collective)? })
    }
}

impl Nodes {
    /// The nodes of a plan, before its messages have numbers.
    fn new(plan: &RankPlan) -> Nodes {
        let mut nodes = Vec::new();
        let all = |conditions: &[Condition]| conditions.iter().map(|condition| plan.node(*condition)).collect();
        // Memory is opened before this rank's own messages leave, as in process groups.
        for (at, receive) in plan.receives.iter().enumerate() {
            let first = (NODES * at) as u32;
            let mut placed: Vec<u32> = all(&receive.after);
            placed.push(first + 1);
            nodes.extend([(None, Vec::new()), (None, Vec::new()), (None, placed)]);
        }
        for (at, send) in plan.sends.iter().enumerate() {
            let first = plan.send_node(at) as u32;
            nodes.extend([(None, all(&send.after)), (None, Vec::new()), (None, vec![first, first + 1])]);
        }
        for (sum, _) in plan.sums.iter().enumerate() {
            let operands = (0..).zip(&plan.receives).filter(|(_, receive)| receive.into == Target::Sum(sum));
            nodes.push((None, operands.map(|(at, _)| plan.node(Condition::Received(at))).collect()));
        }
        Nodes(nodes)
    }
}

impl RankPlan {
    /// The first node of a send.
    fn send_node(&self, send: usize) -> usize {
        NODES * (self.receives.len() + send)
    }

    /// The node that stands for a condition.
    fn node(&self, condition: Condition) -> u32 {
        let (sends, receives) = (self.sends.len(), self.receives.len());
        let node = match condition {
            Condition::Posted(send) => self.send_node(send),
            Condition::Received(receive) => NODES * receive + 2,
            Condition::Added(sum) => NODES * (sends + receives) + sum,
        };
        node as u32
    }

    /// The conditions of opening memory for a receive.
    fn opens_after(&self, receive: &PlannedReceive, sums_ahead: usize) -> Vec<Condition> {
        match receive.into {
            Target::Sum(sum) => sum.checked_sub(sums_ahead).map(Condition::Added).into_iter().collect(),
            Target::Place(_) | Target::Combine(_) => receive.after.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::DirectLengths;
    use strandway_proto::units::Span;

    fn planned(rules: &str, collective: Collective, ranks: u32, bytes: u64) -> Recipe {
        let mut maker = PlanMaker::new(rules.parse().expect("rules"), DirectLengths::default());
        Recipe::planned(&mut maker, collective, (ranks, bytes), 0).expect("a recipe")
    }

    #[test]
    fn short_messages_leave_at_once_and_long_ones_when_memory_is_open() {
        let short = planned("auto", Collective::AllReduce, 4, 4_000);
        let lengths: Vec<u64> = (0..short.messages().len() as u32).map(|at| short.length(at, 4_000)).collect();
        assert_eq!(lengths, [4_032; 12]);
        // Blocks of 250,000 B: three to the rank that adds, three sums back, and as many messages before them.
        let long = planned("auto", Collective::AllReduce, 4, 1_000_000);
        assert_eq!(long.messages().len(), 2 * 24);
        assert_eq!(long.volume(1_000_000), 24 * (250_000 + 52));
    }

    /// Otherwise a rank that comes late would first send all its bytes, and the others could not send to it meanwhile.
    #[test]
    fn a_rank_opens_its_memory_before_its_own_messages_leave() {
        let gather = planned("auto", Collective::AllGather, 4, 1_000_000);
        for rank in 0..4 {
            let sends = (0..gather.nodes_of(rank)).filter_map(|node| match gather.node(rank, node).0 {
                Does::Send(message) => Some(gather.length(message, 0)),
                _ => None,
            });
            assert_eq!(sends.collect::<Vec<u64>>(), [52, 52, 52, 250_000, 250_000, 250_000]);
        }
    }

    #[test]
    fn times_follow_from_the_plan() {
        let us = Span::from_us;
        let bound = |rules: &str, collective, bytes| {
            planned(rules, collective, 4, bytes).bound(bytes, |_| Span::ZERO, |_, _, _| us(1))
        };
        // One hop; with an answer before it for long messages, twice for a scatter and a gather. Around a ring six
        // hops, with an answer before each: memory is open for all blocks from the start.
        assert_eq!(bound("auto", Collective::AllReduce, 400), us(1));
        assert_eq!(bound("auto", Collective::AllGather, 400_000), us(2));
        assert_eq!(bound("auto", Collective::AllReduce, 400_000), us(3));
        assert_eq!(bound("ring", Collective::AllReduce, 400), us(6));
        assert_eq!(bound("ring", Collective::AllReduce, 400_000), us(7));
        assert_eq!(bound("auto", Collective::Broadcast, 400), us(2));
    }

    #[test]
    fn plans_that_do_not_fit_each_other_are_refused() {
        let mut maker = PlanMaker::default();
        let call = CollectiveCall::of_size(Collective::AllReduce, 400, 4, (0, 2), 0).expect("a call");
        let plan = maker.plan(&call, (0, 2), &Hosts::default(), 4, 1);
        let refused = Recipe::of_plans("x", Collective::AllReduce, &[plan.clone(), plan], PlanCarriage::GROUPS);
        assert!(matches!(refused.err(), Some(RecipeError::Unmatched(_) | RecipeError::Unknown(_))));
        assert!(matches!(
            Recipe::planned(&mut maker, Collective::Broadcast, (2, 1), 2).err(),
            Some(RecipeError::Unknown(2))
        ));
    }
}

//! Rank plans of the algorithms that [`Schedule`] computes: ring, halving and doubling. Each rank computes its own
//! part.

use super::operand::Operand;
use super::{CollectiveCall, Condition, PlannedReceive, PlannedSend, RankPlan, Target};
use crate::schedule::{Algorithm, Rank, Schedule};

impl RankPlan {
    /// The part of `rank` of `ranks` in a call, by an algorithm that every rank follows alike. Blocks are cut into
    /// parts of about `part` bytes where the algorithm can. `None` if the algorithm does not compute this collective,
    /// or not with this number of ranks, or if blocks of several lengths were given.
    pub fn scheduled(
        call: &CollectiveCall,
        algorithm: Algorithm,
        (rank, ranks): (u32, u32),
        element: usize,
        buffers: usize,
        part: usize,
    ) -> Option<RankPlan> {
        if call.collective() != Some(algorithm.collective()) {
            return None;
        }
        let mut plan = RankPlan::default();
        let operand = Operand::new(&mut plan, call, (rank, ranks), element, buffers)?;
        let count = (operand.length / element) as u64;
        let block = operand.length / ranks as usize;
        let parts = if algorithm == Algorithm::RecursiveDoubling { 1 } else { block.div_ceil(part).max(1) as u32 };
        let schedule = Schedule::new(algorithm, ranks, count, parts).ok()?;
        let halves = algorithm == Algorithm::HalvingDoubling;
        let place =
            |first: u64, length: u64| operand.range(first as usize * element..(first + length) as usize * element);
        // Empty messages are left out, so places in the lists differ from numbers of messages.
        let (mut sent, mut received) =
            (vec![None; schedule.messages() as usize], vec![None; schedule.messages() as usize]);
        for (index, receive) in schedule.receives(Rank(rank)).enumerate() {
            let at = place(receive.first_byte, receive.bytes);
            if at.is_empty() {
                continue;
            }
            received[index] = Some(plan.receives.len());
            let length = at.len();
            // Halves shrink: the message of the step before is combined with the same numbers first, so that the order
            // of additions, and with it each bit of the result, is that of every run.
            let before = (index as u32).checked_sub(parts).filter(|_| receive.reduces && halves);
            let after = before.and_then(|before| received[before as usize]).map(Condition::Received);
            let into = if receive.reduces { Target::Combine(at) } else { Target::Place(at) };
            plan.receives.push(PlannedReceive {
                from: receive.from.0,
                tag: index as u32,
                length,
                into,
                after: after.into_iter().collect(),
            });
        }
        for (index, send) in schedule.sends(Rank(rank)).enumerate() {
            let from = place(send.first_byte, send.bytes);
            if from.is_empty() {
                continue;
            }
            let after_receipt = send.after.received.and_then(|(_, index)| received[index as usize]);
            let after_post = send.after.posted.or(send.after.sent).and_then(|index| sent[index as usize]);
            let after =
                after_receipt.map(Condition::Received).into_iter().chain(after_post.map(Condition::Posted)).collect();
            sent[index] = Some(plan.sends.len());
            plan.sends.push(PlannedSend { to: send.to.0, tag: index as u32, from, after });
        }
        if call.reduces() {
            operand.describe(&mut plan, call, rank);
        }
        Some(plan)
    }
}

//! The buffer that an algorithm works in: all blocks of a collective one behind the other.

use super::{BufferRange, CollectiveCall, RankPlan};

/// The working buffer of a rank: the caller's, where its blocks lie one behind the other and may be changed, or else a
/// buffer of the plan's own.
pub(super) struct Operand {
    buffer: usize,
    first: usize,
    pub(super) length: usize,
}

/// Do these ranges follow each other in one buffer?
fn follow_each_other(ranges: &[BufferRange]) -> bool {
    ranges.windows(2).all(|pair| pair[0].buffer == pair[1].buffer && pair[0].bytes.end == pair[1].bytes.start)
}

/// The first byte of each of these ranges, if they lay one behind the other.
fn starts(ranges: &[BufferRange]) -> impl Iterator<Item = usize> {
    ranges.iter().scan(0, |sum, range| {
        *sum += range.len();
        Some(*sum - range.len())
    })
}

impl Operand {
    /// Lays out the buffers of a call, and plans the copies into and out of the working buffer. `None` if the blocks of
    /// the ranks differ by more than one element, as those of a cut buffer do not: then only the direct algorithm
    /// works.
    pub(super) fn new(
        plan: &mut RankPlan,
        call: &CollectiveCall,
        (rank, ranks): (u32, u32),
        element: usize,
        buffers: usize,
    ) -> Option<Operand> {
        let own = |range: &BufferRange| Operand { buffer: range.buffer, first: range.bytes.start, length: range.len() };
        let is_cut = |blocks: &[BufferRange]| {
            let all = blocks.iter().map(BufferRange::len).sum();
            blocks.len() == ranks as usize
                && (0..).zip(blocks).all(|(rank, block)| {
                    let cut = |rank: u32| super::direct::cut(all, element, ranks, rank);
                    block.len() == cut(rank + 1) - cut(rank)
                })
        };
        let mut scratch = |length: usize| {
            plan.scratch.push(length);
            Operand { buffer: buffers + plan.scratch.len() - 1, first: 0, length }
        };
        Some(match call {
            CollectiveCall::AllReduce(at) | CollectiveCall::Broadcast { at, .. } => own(at),
            CollectiveCall::Reduce { at, root } if *root == rank => own(at),
            CollectiveCall::Reduce { at, .. } => {
                let made = scratch(at.len());
                plan.copies.push((at.clone(), made.whole()));
                made
            }
            CollectiveCall::AllGather { input, outputs } if is_cut(outputs) => {
                let all = outputs.iter().map(BufferRange::len).sum();
                let mine = &outputs[rank as usize];
                if follow_each_other(outputs) {
                    plan.copies.extend(input.clone().map(|input| (input, mine.clone())));
                    Operand { length: all, ..own(&outputs[0]) }
                } else {
                    let made = scratch(all);
                    let places: Vec<BufferRange> = starts(outputs)
                        .zip(outputs)
                        .map(|(start, output)| made.range(start..start + output.len()))
                        .collect();
                    plan.copies.push((input.clone().unwrap_or_else(|| mine.clone()), places[rank as usize].clone()));
                    plan.last_copies.extend(places.into_iter().zip(outputs.iter().cloned()));
                    made
                }
            }
            CollectiveCall::ReduceScatter { inputs, output } if is_cut(inputs) => {
                let made = scratch(inputs.iter().map(BufferRange::len).sum());
                for (start, input) in starts(inputs).zip(inputs) {
                    plan.copies.push((input.clone(), made.range(start..start + input.len())));
                }
                let start = starts(inputs).nth(rank as usize).unwrap_or(0);
                plan.last_copies.push((made.range(start..start + output.len()), output.clone()));
                made
            }
            _ => return None,
        })
    }

    fn whole(&self) -> BufferRange {
        self.range(0..self.length)
    }

    /// A range of it.
    pub(super) fn range(&self, bytes: std::ops::Range<usize>) -> BufferRange {
        BufferRange { buffer: self.buffer, bytes: self.first + bytes.start..self.first + bytes.end }
    }

    /// Says where a reducing plan's numbers and results are.
    pub(super) fn describe(&self, plan: &mut RankPlan, call: &CollectiveCall, rank: u32) {
        plan.operands = vec![self.whole()];
        plan.results = match call {
            CollectiveCall::AllReduce(_) => vec![self.whole()],
            CollectiveCall::Reduce { root, .. } if *root == rank => vec![self.whole()],
            CollectiveCall::ReduceScatter { .. } => plan.last_copies.iter().map(|(from, _)| from.clone()).collect(),
            _ => Vec::new(),
        };
    }
}

//! The direct algorithm: ranks send to each other at once; nothing goes around a ring.
//!
//! Short messages take one hop. Long reductions are cut: rank `b` adds up block `b` of all ranks, part by part, in the
//! order of ranks, so that every run gives the same bits. If all ranks want the sum, they gather the blocks afterwards.
//! Each rank sends `2 (n - 1) / n` of the buffer, as with a ring. Ours.

use super::{BufferRange, CollectiveCall, Condition, PlannedReceive, PlannedSend, PlannedSum, RankPlan, Target};
use std::ops::Range;

/// Messages of at most this many bytes are sent at once; longer ones wait until the receiver has opened its memory.
/// Ours.
pub const EAGER: usize = 16_000;
/// The first tag of a gather that follows a scatter.
const GATHER: u32 = 1 << 31;

/// Lengths, in bytes, at which the direct algorithm of a collective changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectLengths {
    /// For reductions of at most this many bytes, every rank sends its whole buffer to all others, in one hop; at most
    /// [`EAGER`]. Default 16,000: longer buffers take longer on the wire than a hop. Ours.
    pub whole: usize,
    /// Broadcasts longer than this are scattered and gathered, shorter ones go down a tree. Default 256 KiB. Ours.
    pub tree: usize,
    /// Bytes of a part of a block that is reduced. A part is added while others are under way, and is then still in the
    /// cache. A multiple of 64, from 4 KiB to 64 MiB. Default 512 KiB. Ours.
    pub part: usize,
}

impl Default for DirectLengths {
    fn default() -> DirectLengths {
        DirectLengths { whole: EAGER, tree: 256 * 1024, part: 512 * 1024 }
    }
}

/// The first byte of block `block`, if `length` bytes are cut into one block of whole elements for each of `ranks`.
pub(super) fn cut(length: usize, element: usize, ranks: u32, block: u32) -> usize {
    crate::schedule::cut((length / element) as u64, ranks, block) as usize * element
}

/// A block of `length` bytes, cut into parts of `part` bytes.
pub(super) fn parts(length: usize, part: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length.div_ceil(part)).map(move |i| i * part..((i + 1) * part).min(length))
}

impl RankPlan {
    /// The part of `rank` of `ranks` in a call whose caller has `buffers` buffers of elements of `element` bytes.
    pub fn direct(
        call: &CollectiveCall,
        (rank, ranks): (u32, u32),
        element: usize,
        buffers: usize,
        lengths: &DirectLengths,
    ) -> RankPlan {
        let mut plan = RankPlan::default();
        // Each rank begins with the next rank, so that they do not all send to the same one.
        let others = || (1..ranks).map(move |step| (rank + step) % ranks);
        let me = rank as usize;
        match call {
            CollectiveCall::AllReduce(at) if at.len() <= lengths.whole => plan.exchange(at, rank, ranks),
            CollectiveCall::AllReduce(at) => {
                let block = |b: u32| at.part(cut(at.len(), element, ranks, b)..cut(at.len(), element, ranks, b + 1));
                let inputs: Vec<BufferRange> = (0..ranks).map(block).collect();
                plan.reduce_scatter(&inputs, &inputs[me], (rank, ranks), lengths.part);
                for other in others() {
                    plan.gather_sums(other, &inputs[me], lengths.part);
                    plan.receive_parts(other, &inputs[other as usize], lengths.part);
                }
            }
            CollectiveCall::Reduce { at, root } if at.len() <= lengths.whole => {
                if rank == *root {
                    plan.add_all(at.clone(), at.clone(), 0, rank, ranks);
                } else {
                    plan.send(*root, 0, at.clone(), Vec::new());
                }
            }
            CollectiveCall::Reduce { at, root } => {
                let cut = |b: u32| cut(at.len(), element, ranks, b);
                let inputs: Vec<BufferRange> = (0..ranks).map(|b| at.part(cut(b)..cut(b + 1))).collect();
                let mut out = inputs[me].clone();
                if rank != *root {
                    plan.scratch.push(out.len());
                    out = BufferRange::whole(buffers, out.len());
                }
                plan.reduce_scatter(&inputs, &out, (rank, ranks), lengths.part);
                if rank == *root {
                    others().for_each(|other| plan.receive_parts(other, &inputs[other as usize], lengths.part));
                } else {
                    plan.gather_sums(*root, &out, lengths.part);
                }
            }
            CollectiveCall::Broadcast { at, root } if ranks == 2 || at.len() <= lengths.tree => {
                plan.tree(at, rank, ranks, *root)
            }
            CollectiveCall::Broadcast { at, root } => plan.broadcast(at, (rank, ranks), *root, lengths.part),
            CollectiveCall::AllGather { input, outputs } => {
                let own = input.as_ref().unwrap_or(&outputs[me]);
                for other in others() {
                    plan.send(other, 0, own.clone(), Vec::new());
                    plan.receive(other, 0, outputs[other as usize].clone());
                }
                if let Some(input) = input {
                    plan.copies.push((input.clone(), outputs[me].clone()));
                }
            }
            CollectiveCall::ReduceScatter { inputs, output } => {
                plan.reduce_scatter(inputs, output, (rank, ranks), lengths.part)
            }
            CollectiveCall::AllToAll { inputs, outputs } => {
                for other in others() {
                    plan.send(other, 0, inputs[other as usize].clone(), Vec::new());
                    plan.receive(other, 0, outputs[other as usize].clone());
                }
                plan.copies.push((inputs[me].clone(), outputs[me].clone()));
            }
            CollectiveCall::Gather { input, outputs, root } => {
                if rank == *root {
                    others().for_each(|other| plan.receive(other, 0, outputs[other as usize].clone()));
                    plan.copies.push((input.clone(), outputs[me].clone()));
                } else {
                    plan.send(*root, 0, input.clone(), Vec::new());
                }
            }
            CollectiveCall::Scatter { inputs, output, root } => {
                if rank == *root {
                    others().for_each(|other| plan.send(other, 0, inputs[other as usize].clone(), Vec::new()));
                    plan.copies.push((inputs[me].clone(), output.clone()));
                } else {
                    plan.receive(*root, 0, output.clone());
                }
            }
            CollectiveCall::Barrier => plan.barrier(rank, ranks),
        }
        plan
    }

    /// The root scatters blocks, and their receivers gather them.
    fn broadcast(&mut self, at: &BufferRange, (rank, ranks): (u32, u32), root: u32, part_length: usize) {
        let parts = |length: usize| parts(length, part_length);
        // Each rank begins with the next rank, so that they do not all send to the same one.
        let others = || (1..ranks).map(move |step| (rank + step) % ranks);
        let me = rank as usize;
        let cut = |b: u32| cut(at.len(), 1, ranks, b);
        let blocks: Vec<BufferRange> = (0..ranks).map(|b| at.part(cut(b)..cut(b + 1))).collect();
        if rank == root {
            for part in 0..blocks.iter().map(|block| parts(block.len()).count()).max().unwrap_or(0) {
                for other in others() {
                    let block = &blocks[other as usize];
                    if let Some(range) = parts(block.len()).nth(part) {
                        self.send(other, part as u32, block.part(range), Vec::new());
                    }
                }
            }
            // The root's own block goes to all ranks.
            for other in others() {
                for (part, range) in (0..).zip(parts(blocks[me].len())) {
                    self.send(other, GATHER | part, blocks[me].part(range), Vec::new());
                }
            }
        } else {
            for (part, range) in (0..).zip(parts(blocks[me].len())) {
                let received = self.receives.len();
                self.receive(root, part, blocks[me].part(range.clone()));
                for other in others().filter(|&other| other != root) {
                    self.send(
                        other,
                        GATHER | part,
                        blocks[me].part(range.clone()),
                        vec![Condition::Received(received)],
                    );
                }
            }
            others().for_each(|other| self.receive_parts(other, &blocks[other as usize], part_length));
        }
    }

    /// Each rank learns that all others are here.
    fn barrier(&mut self, rank: u32, ranks: u32) {
        // Dissemination barrier: in step k each rank sends to the rank that is 2^k places further.
        let mut after = Vec::new();
        for step in (0..32).take_while(|step| 1u64 << step < u64::from(ranks)) {
            let far = ((1u64 << step) % u64::from(ranks)) as u32;
            let nothing = BufferRange { buffer: usize::MAX, bytes: 0..0 };
            self.sends.push(PlannedSend { to: (rank + far) % ranks, tag: step, from: nothing.clone(), after });
            after = vec![Condition::Received(self.receives.len())];
            let from = (rank + ranks - far) % ranks;
            self.receives.push(PlannedReceive {
                from,
                tag: step,
                length: 0,
                into: Target::Place(nothing),
                after: Vec::new(),
            });
        }
    }

    /// Each rank sends its whole buffer to each other rank.
    fn exchange(&mut self, at: &BufferRange, rank: u32, ranks: u32) {
        for step in 1..ranks {
            self.send((rank + step) % ranks, 0, at.clone(), Vec::new());
        }
        self.add_all(at.clone(), at.clone(), 0, rank, ranks);
    }

    /// Adds up what all ranks send with a tag.
    fn add_all(&mut self, own: BufferRange, out: BufferRange, tag: u32, rank: u32, ranks: u32) {
        if out.is_empty() {
            return;
        }
        let sum = PlannedSum { own, out, order: None, is_part: false };
        self.add(sum, tag, (0..ranks).filter(|from| *from != rank));
    }

    /// Each rank adds up its block, part by part, so that the first parts are added while others are under way.
    fn reduce_scatter(
        &mut self,
        inputs: &[BufferRange],
        output: &BufferRange,
        (rank, ranks): (u32, u32),
        bytes: usize,
    ) {
        let most = inputs.iter().map(|input| parts(input.len(), bytes).count()).max().unwrap_or(0);
        for part in 0..most {
            for step in 1..ranks {
                let other = (rank + step) % ranks;
                let input = &inputs[other as usize];
                if let Some(range) = parts(input.len(), bytes).nth(part) {
                    self.send(other, part as u32, input.part(range), Vec::new());
                }
            }
            if let Some(range) = parts(output.len(), bytes).nth(part) {
                let own = inputs[rank as usize].part(range.clone());
                self.add_all(own, output.part(range), part as u32, rank, ranks);
            }
        }
    }

    /// Sends the parts of the block that this rank adds up, each part when it is complete.
    fn gather_sums(&mut self, to: u32, block: &BufferRange, bytes: usize) {
        for (part, range) in (0..).zip(parts(block.len(), bytes)) {
            self.send(to, GATHER | part, block.part(range), vec![Condition::Added(part as usize)]);
        }
    }

    /// Receives the parts of a block that another rank has added up.
    fn receive_parts(&mut self, from: u32, block: &BufferRange, bytes: usize) {
        for (part, range) in (0..).zip(parts(block.len(), bytes)) {
            self.receive(from, GATHER | part, block.part(range));
        }
    }

    /// Sends the root's bytes down a binomial tree.
    fn tree(&mut self, at: &BufferRange, rank: u32, ranks: u32, root: u32) {
        let place = (rank + ranks - root) % ranks;
        let real = |place: u32| (place + root) % ranks;
        let mut after = Vec::new();
        // The parent is the place without its lowest bit; the children are the place with one more, lower bit.
        let lowest = if place == 0 { ranks.next_power_of_two() } else { place & place.wrapping_neg() };
        if place != 0 && !at.is_empty() {
            after = vec![Condition::Received(0)];
            self.receive(real(place - lowest), 0, at.clone());
        }
        let mut bit = lowest >> 1;
        while bit > 0 {
            if place + bit < ranks {
                self.send(real(place + bit), 0, at.clone(), after.clone());
            }
            bit >>= 1;
        }
    }
}

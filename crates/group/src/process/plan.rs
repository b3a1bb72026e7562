//! A rank's part in a collective: its copies, sends, receives and sums, and the order among them.
//!
//! Ranks send to each other directly; nothing goes around a ring. Short messages take one hop. Long reductions are cut:
//! rank `b` adds up block `b` of all ranks, part by part, in the order of ranks, so that every run gives the same bits.
//! If all ranks want the sum, they gather the blocks afterwards. Each rank sends `2 (n - 1) / n` of the buffer, as with
//! a ring.

use super::element::{Element, Reduction};
use super::message::Signature;
use super::tuning::Tuning;
use std::ops::Range;

/// The first tag of a gather that follows a scatter.
const GATHER: u32 = 1 << 31;

/// Bytes of one of the buffers of a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The number of the buffer.
    pub buffer: usize,
    /// The range of its bytes.
    pub bytes: Range<usize>,
}

impl Span {
    /// A whole buffer of that length.
    pub const fn whole(buffer: usize, length: usize) -> Span {
        Span { buffer, bytes: 0..length }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn part(&self, range: Range<usize>) -> Span {
        Span { buffer: self.buffer, bytes: self.bytes.start + range.start..self.bytes.start + range.end }
    }
}

/// The kind of a collective; all ranks give the same kind. Spans name the caller's buffers.
#[derive(Clone, Debug)]
pub enum Job {
    /// The numbers of all ranks are replaced by their reduction.
    AllReduce(Span),
    /// The root's numbers are replaced by the reduction; those of other ranks stay.
    Reduce {
        /// The numbers, at the root also the result.
        at: Span,
        /// The root's rank.
        root: u32,
    },
    /// All ranks get the root's bytes.
    Broadcast {
        /// The bytes.
        at: Span,
        /// The root's rank.
        root: u32,
    },
    /// All ranks get the bytes of all ranks.
    AllGather {
        /// Our bytes; `None` if they are in their place already.
        input: Option<Span>,
        /// The places for the bytes of each rank; lengths may differ between ranks.
        outputs: Vec<Span>,
    },
    /// Rank `r` gets the reduction of all ranks' inputs `r`.
    ReduceScatter {
        /// Our inputs, one for each rank; lengths may differ between ranks.
        inputs: Vec<Span>,
        /// The result.
        output: Span,
    },
    /// Rank `r` gets the inputs `r` of all ranks.
    AllToAll {
        /// Our inputs, one for each rank.
        inputs: Vec<Span>,
        /// The places for the input of each rank.
        outputs: Vec<Span>,
    },
    /// The root gets the bytes of all ranks.
    Gather {
        /// Our bytes.
        input: Span,
        /// At the root, the places for the bytes of each rank.
        outputs: Vec<Span>,
        /// The root's rank.
        root: u32,
    },
    /// Rank `r` gets the root's input `r`.
    Scatter {
        /// At the root, the inputs for each rank.
        inputs: Vec<Span>,
        /// The place for our input.
        output: Span,
        /// The root's rank.
        root: u32,
    },
    /// A rank goes on when all ranks are here.
    Barrier,
}

impl Job {
    /// Its name in messages, which is that of PyTorch.
    pub const fn name(&self) -> &'static str {
        match self {
            Job::AllReduce(_) => "all_reduce",
            Job::Reduce { .. } => "reduce",
            Job::Broadcast { .. } => "broadcast",
            Job::AllGather { .. } => "all_gather",
            Job::ReduceScatter { .. } => "reduce_scatter",
            Job::AllToAll { .. } => "all_to_all",
            Job::Gather { .. } => "gather",
            Job::Scatter { .. } => "scatter",
            Job::Barrier => "barrier",
        }
    }

    const NAMES: [&'static str; 9] = [
        "all_reduce",
        "reduce",
        "broadcast",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "gather",
        "scatter",
        "barrier",
    ];

    /// Its number in messages.
    pub(super) fn code(&self) -> u8 {
        Job::NAMES.iter().position(|name| *name == self.name()).unwrap_or_default() as u8 + 1
    }

    /// The name of the job with this number in messages.
    pub(super) fn name_of(code: u8) -> &'static str {
        usize::from(code).checked_sub(1).and_then(|at| Job::NAMES.get(at)).copied().unwrap_or("an unknown call")
    }

    /// The description of the call that each message of the job carries.
    pub(super) fn signature(&self, element: Element, reduction: Reduction) -> Signature {
        let reduces = matches!(self, Job::AllReduce(_) | Job::Reduce { .. } | Job::ReduceScatter { .. });
        let root = match self {
            Job::Reduce { root, .. }
            | Job::Broadcast { root, .. }
            | Job::Gather { root, .. }
            | Job::Scatter { root, .. } => *root,
            _ => 0,
        };
        let element = if matches!(self, Job::Barrier) { 0 } else { element.code() };
        Signature { job: self.code(), element, reduction: if reduces { reduction.code() } else { 0 }, root }
    }
}

/// The condition for a message to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Open,
    /// The message that is received at this place of the plan.
    Received(usize),
    /// The sum at this place of the plan.
    Added(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) to: u32,
    pub(super) tag: u32,
    pub(super) from: Span,
    pub(super) gate: Gate,
}

/// The target of a message.
#[derive(Clone, Debug)]
pub(super) enum Into {
    Place(Span),
    /// The message is added to this sum.
    Sum(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Arriving {
    pub(super) from: u32,
    pub(super) tag: u32,
    pub(super) length: usize,
    pub(super) into: Into,
}

/// The numbers of all ranks at one place, in the order of ranks.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    /// Our numbers, and the place of the sum; the two may be the same.
    pub(super) own: Span,
    pub(super) out: Span,
}

/// A rank's whole part in a collective.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// Bytes of a part of a block that is cut.
    pub(super) part: usize,
    /// Lengths of buffers that it needs besides those of the caller.
    pub(super) scratch: Vec<usize>,
    pub(super) copies: Vec<(Span, Span)>,
    pub(super) sends: Vec<Outgoing>,
    pub(super) receives: Vec<Arriving>,
    pub(super) sums: Vec<Sum>,
}

/// The first byte of block `block`, if `length` bytes are cut into one block of whole elements for each of `ranks`.
fn cut(length: usize, element: usize, ranks: u32, block: u32) -> usize {
    let (count, ranks, block) = (length / element, ranks as usize, block as usize);
    (count / ranks * block + block.min(count % ranks)) * element
}

/// A block of `length` bytes, cut into parts of `part` bytes.
fn parts(length: usize, part: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length.div_ceil(part)).map(move |i| i * part..((i + 1) * part).min(length))
}

impl Plan {
    /// The part of `rank` of `ranks` in a job whose caller has `buffers` buffers.
    pub(super) fn new(job: &Job, (rank, ranks): (u32, u32), element: Element, buffers: usize, tuning: &Tuning) -> Plan {
        let mut plan = Plan { part: tuning.part, ..Plan::default() };
        let parts = |length: usize| parts(length, tuning.part);
        // Each rank begins with the next rank, so that they do not all send to the same one.
        let others = || (1..ranks).map(move |step| (rank + step) % ranks);
        let me = rank as usize;
        match job {
            Job::AllReduce(at) if at.len() <= tuning.whole => plan.exchange(at, rank, ranks),
            Job::AllReduce(at) => {
                let block = |b: u32| {
                    at.part(cut(at.len(), element.bytes(), ranks, b)..cut(at.len(), element.bytes(), ranks, b + 1))
                };
                let inputs: Vec<Span> = (0..ranks).map(block).collect();
                plan.reduce_scatter(&inputs, &inputs[me], rank, ranks);
                for other in others() {
                    plan.gather_sums(other, &inputs[me]);
                    plan.receive_parts(other, &inputs[other as usize]);
                }
            }
            Job::Reduce { at, root } if at.len() <= tuning.whole => {
                if rank == *root {
                    plan.add_all(at.clone(), at.clone(), 0, rank, ranks);
                } else {
                    plan.send(*root, 0, at.clone(), Gate::Open);
                }
            }
            Job::Reduce { at, root } => {
                let cut = |b: u32| cut(at.len(), element.bytes(), ranks, b);
                let inputs: Vec<Span> = (0..ranks).map(|b| at.part(cut(b)..cut(b + 1))).collect();
                let mut out = inputs[me].clone();
                if rank != *root {
                    plan.scratch.push(out.len());
                    out = Span::whole(buffers, out.len());
                }
                plan.reduce_scatter(&inputs, &out, rank, ranks);
                if rank == *root {
                    others().for_each(|other| plan.receive_parts(other, &inputs[other as usize]));
                } else {
                    plan.gather_sums(*root, &out);
                }
            }
            Job::Broadcast { at, root } if ranks == 2 || at.len() <= tuning.tree => plan.tree(at, rank, ranks, *root),
            Job::Broadcast { at, root } => {
                let cut = |b: u32| cut(at.len(), 1, ranks, b);
                let blocks: Vec<Span> = (0..ranks).map(|b| at.part(cut(b)..cut(b + 1))).collect();
                if rank == *root {
                    for part in 0..blocks.iter().map(|block| parts(block.len()).count()).max().unwrap_or(0) {
                        for other in others() {
                            let block = &blocks[other as usize];
                            if let Some(range) = parts(block.len()).nth(part) {
                                plan.send(other, part as u32, block.part(range), Gate::Open);
                            }
                        }
                    }
                    // The root's own block goes to all ranks.
                    for other in others() {
                        for (part, range) in (0..).zip(parts(blocks[me].len())) {
                            plan.send(other, GATHER | part, blocks[me].part(range), Gate::Open);
                        }
                    }
                } else {
                    for (part, range) in (0..).zip(parts(blocks[me].len())) {
                        let received = plan.receives.len();
                        plan.receive(*root, part, blocks[me].part(range.clone()));
                        for other in others().filter(|other| other != root) {
                            plan.send(other, GATHER | part, blocks[me].part(range.clone()), Gate::Received(received));
                        }
                    }
                    others().for_each(|other| plan.receive_parts(other, &blocks[other as usize]));
                }
            }
            Job::AllGather { input, outputs } => {
                let own = input.as_ref().unwrap_or(&outputs[me]);
                for other in others() {
                    plan.send(other, 0, own.clone(), Gate::Open);
                    plan.receive(other, 0, outputs[other as usize].clone());
                }
                if let Some(input) = input {
                    plan.copies.push((input.clone(), outputs[me].clone()));
                }
            }
            Job::ReduceScatter { inputs, output } => plan.reduce_scatter(inputs, output, rank, ranks),
            Job::AllToAll { inputs, outputs } => {
                for other in others() {
                    plan.send(other, 0, inputs[other as usize].clone(), Gate::Open);
                    plan.receive(other, 0, outputs[other as usize].clone());
                }
                plan.copies.push((inputs[me].clone(), outputs[me].clone()));
            }
            Job::Gather { input, outputs, root } => {
                if rank == *root {
                    others().for_each(|other| plan.receive(other, 0, outputs[other as usize].clone()));
                    plan.copies.push((input.clone(), outputs[me].clone()));
                } else {
                    plan.send(*root, 0, input.clone(), Gate::Open);
                }
            }
            Job::Scatter { inputs, output, root } => {
                if rank == *root {
                    others().for_each(|other| plan.send(other, 0, inputs[other as usize].clone(), Gate::Open));
                    plan.copies.push((inputs[me].clone(), output.clone()));
                } else {
                    plan.receive(*root, 0, output.clone());
                }
            }
            Job::Barrier => {
                // Dissemination barrier: in step k each rank sends to the rank that is 2^k places further.
                let mut gate = Gate::Open;
                for step in (0..32).take_while(|step| 1u64 << step < u64::from(ranks)) {
                    let far = ((1u64 << step) % u64::from(ranks)) as u32;
                    let nothing = Span { buffer: usize::MAX, bytes: 0..0 };
                    plan.sends.push(Outgoing { to: (rank + far) % ranks, tag: step, from: nothing.clone(), gate });
                    gate = Gate::Received(plan.receives.len());
                    let from = (rank + ranks - far) % ranks;
                    plan.receives.push(Arriving { from, tag: step, length: 0, into: Into::Place(nothing) });
                }
            }
        }
        plan
    }

    /// Plans a send; empty spans need no message.
    fn send(&mut self, to: u32, tag: u32, from: Span, gate: Gate) {
        if !from.is_empty() {
            self.sends.push(Outgoing { to, tag, from, gate });
        }
    }

    fn receive(&mut self, from: u32, tag: u32, into: Span) {
        if !into.is_empty() {
            self.receives.push(Arriving { from, tag, length: into.len(), into: Into::Place(into) });
        }
    }

    /// Each rank sends its whole buffer to each other rank.
    fn exchange(&mut self, at: &Span, rank: u32, ranks: u32) {
        for step in 1..ranks {
            self.send((rank + step) % ranks, 0, at.clone(), Gate::Open);
        }
        self.add_all(at.clone(), at.clone(), 0, rank, ranks);
    }

    /// Adds up what all ranks send with a tag.
    fn add_all(&mut self, own: Span, out: Span, tag: u32, rank: u32, ranks: u32) {
        if out.is_empty() {
            return;
        }
        let sum = self.sums.len();
        for from in (0..ranks).filter(|from| *from != rank) {
            self.receives.push(Arriving { from, tag, length: out.len(), into: Into::Sum(sum) });
        }
        self.sums.push(Sum { own, out });
    }

    /// Each rank adds up its block, part by part, so that the first parts are added while others are under way.
    fn reduce_scatter(&mut self, inputs: &[Span], output: &Span, rank: u32, ranks: u32) {
        let part_bytes = self.part;
        let parts = |length: usize| parts(length, part_bytes);
        let most = inputs.iter().map(|input| parts(input.len()).count()).max().unwrap_or(0);
        for part in 0..most {
            for step in 1..ranks {
                let other = (rank + step) % ranks;
                let input = &inputs[other as usize];
                if let Some(range) = parts(input.len()).nth(part) {
                    self.send(other, part as u32, input.part(range), Gate::Open);
                }
            }
            if let Some(range) = parts(output.len()).nth(part) {
                let own = inputs[rank as usize].part(range.clone());
                self.add_all(own, output.part(range), part as u32, rank, ranks);
            }
        }
    }

    /// Sends the parts of the block that this rank adds up, each part when it is complete.
    fn gather_sums(&mut self, to: u32, block: &Span) {
        let part_bytes = self.part;
        let parts = |length: usize| parts(length, part_bytes);
        for (part, range) in (0..).zip(parts(block.len())) {
            self.send(to, GATHER | part, block.part(range), Gate::Added(part as usize));
        }
    }

    /// Receives the parts of a block that another rank has added up.
    fn receive_parts(&mut self, from: u32, block: &Span) {
        let part_bytes = self.part;
        let parts = |length: usize| parts(length, part_bytes);
        for (part, range) in (0..).zip(parts(block.len())) {
            self.receive(from, GATHER | part, block.part(range));
        }
    }

    /// Sends the root's bytes down a binomial tree.
    fn tree(&mut self, at: &Span, rank: u32, ranks: u32, root: u32) {
        let place = (rank + ranks - root) % ranks;
        let real = |place: u32| (place + root) % ranks;
        let mut gate = Gate::Open;
        // The parent is the place without its lowest bit; the children are the place with one more, lower bit.
        let lowest = if place == 0 { ranks.next_power_of_two() } else { place & place.wrapping_neg() };
        if place != 0 && !at.is_empty() {
            gate = Gate::Received(0);
            self.receive(real(place - lowest), 0, at.clone());
        }
        let mut bit = lowest >> 1;
        while bit > 0 {
            if place + bit < ranks {
                self.send(real(place + bit), 0, at.clone(), gate);
            }
            bit >>= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Checks all plans of a job: for each message that a rank sends, its receiver expects one with this tag and
    /// length.
    fn check(job: impl Fn(u32) -> Job, ranks: u32) {
        let plans: Vec<Plan> =
            (0..ranks).map(|rank| Plan::new(&job(rank), (rank, ranks), Element::F32, 2, &Tuning::default())).collect();
        let (mut sent, mut expected) = (BTreeMap::new(), BTreeMap::new());
        for (rank, plan) in (0..).zip(&plans) {
            for send in &plan.sends {
                assert_eq!(sent.insert((rank, send.to, send.tag), send.from.len()), None, "said once");
            }
            for receive in &plan.receives {
                assert_eq!(expected.insert((receive.from, rank, receive.tag), receive.length), None);
            }
        }
        assert_eq!(sent, expected, "{} of {ranks} ranks", job(0).name());
    }

    #[test]
    fn every_message_is_expected_with_its_length() {
        for ranks in [2, 3, 4, 5, 8] {
            for length in [0, 4, 1_000, 20_000, 3_000_000] {
                let whole = || Span::whole(0, length);
                let blocks = |buffer: usize| -> Vec<Span> {
                    (0..ranks as usize).map(|b| Span { buffer, bytes: b * length..(b + 1) * length }).collect()
                };
                check(|_| Job::AllReduce(whole()), ranks);
                check(|_| Job::Reduce { at: whole(), root: 1 }, ranks);
                check(|_| Job::Broadcast { at: whole(), root: ranks - 1 }, ranks);
                check(|_| Job::AllGather { input: Some(whole()), outputs: blocks(1) }, ranks);
                check(|_| Job::ReduceScatter { inputs: blocks(0), output: Span::whole(1, length) }, ranks);
                check(|_| Job::AllToAll { inputs: blocks(0), outputs: blocks(1) }, ranks);
                check(|_| Job::Gather { input: whole(), outputs: blocks(1), root: 0 }, ranks);
                check(|_| Job::Scatter { inputs: blocks(1), output: whole(), root: 1 }, ranks);
            }
            check(|_| Job::Barrier, ranks);
        }
    }
}

//! Rank plans: what one rank copies, sends, receives and adds up in a collective, and after what.
//!
//! A plan names ranges of buffers and no numbers, so it serves any kind of element. Four makers exist: [`direct`] for
//! messages between all ranks at once, [`hierarchical`] for ranks that share hosts, [`scheduled`] for the algorithms of
//! [`Schedule`](crate::Schedule), and [`tabled`] for those of [`Recipe`](crate::Recipe). Process groups perform plans
//! over real nodes; [`Recipe::of_plans`](crate::Recipe::of_plans) gives the same messages to the simulator.
//! [`Executor`] knows in both worlds which message may leave next; [`Plans`] has the messages of all ranks without a
//! plan for each.

pub mod algorithms;
mod call;
pub mod direct;
mod executor;
mod file;
pub mod hierarchical;
mod hosts;
mod operand;
mod plans;
pub mod scheduled;
pub mod tabled;
mod tuning;

#[cfg(test)]
mod tests;

pub use algorithms::{Algorithms, PlanAlgorithm, PlanMaker};
pub use call::CollectiveCall;
pub use direct::DirectLengths;
pub use executor::Executor;
pub use file::AlgorithmFile;
pub use hosts::Hosts;
pub use plans::{PlannedMessage, Plans};
pub use tabled::OrderedRecipe;
pub use tuning::Tuning;

use std::ops::Range;

/// Bytes of one of the buffers of a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferRange {
    /// The number of the buffer.
    pub buffer: usize,
    /// The range of its bytes.
    pub bytes: Range<usize>,
}

impl BufferRange {
    /// A whole buffer of that length.
    pub const fn whole(buffer: usize, length: usize) -> BufferRange {
        BufferRange { buffer, bytes: 0..length }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Does it share a byte with another one?
    pub fn overlaps(&self, other: &BufferRange) -> bool {
        self.buffer == other.buffer && self.bytes.start < other.bytes.end && other.bytes.start < self.bytes.end
    }

    /// A part of it; `range` counts from its first byte.
    pub(crate) fn part(&self, range: Range<usize>) -> BufferRange {
        BufferRange { buffer: self.buffer, bytes: self.bytes.start + range.start..self.bytes.start + range.end }
    }
}

/// Something at this rank that a message waits for; the number is a place in the lists of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// A send may leave. Its bytes are those of that moment, whatever is written in their place later.
    Posted(usize),
    /// A message is received, and its bytes are in their place.
    Received(usize),
    /// A sum is complete.
    Added(usize),
}

/// A message to another rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSend {
    /// The receiver.
    pub to: u32,
    /// Its number among the messages from this rank to that one.
    pub tag: u32,
    /// Its bytes.
    pub from: BufferRange,
    /// It leaves when all of these hold. Without a condition, its bytes are those of the beginning.
    pub after: Vec<Condition>,
}

/// The use of the bytes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// They are written here.
    Place(BufferRange),
    /// They are combined with the numbers here, in the order of arrival.
    Combine(BufferRange),
    /// They are one operand of this sum.
    Sum(usize),
}

/// A message from another rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedReceive {
    /// The sender.
    pub from: u32,
    /// Its number among the messages from that rank to this one.
    pub tag: u32,
    /// Its bytes.
    pub length: usize,
    /// Where they go.
    pub into: Target,
    /// They go there when all of these hold.
    pub after: Vec<Condition>,
}

/// The numbers of ranks at one place, combined in a fixed order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSum {
    /// Our numbers.
    pub own: BufferRange,
    /// The place of the sum; the two may be the same.
    pub out: BufferRange,
    /// The senders of its operands and this rank, in the order in which they are combined; `None`: all ranks, in their
    /// order.
    pub order: Option<Vec<u32>>,
    /// Other ranks add their numbers to it, so an average does not divide it here.
    pub is_part: bool,
}

impl PlannedSum {
    /// The number of its operands, of a call among `ranks` ranks.
    pub fn operands(&self, ranks: u32) -> u32 {
        self.order.as_ref().map_or(ranks, |order| order.len() as u32)
    }

    /// The rank whose numbers are the operand at a place of the order.
    pub fn operand(&self, at: u32) -> u32 {
        self.order.as_ref().map_or(at, |order| order[at as usize])
    }

    /// The place of a rank in the order; behind all operands if it has none.
    pub fn place(&self, rank: u32) -> u32 {
        match &self.order {
            None => rank,
            Some(order) => order.iter().position(|of| *of == rank).unwrap_or(order.len()) as u32,
        }
    }
}

/// A rank's whole part in a collective.
///
/// The caller's buffers have the numbers from 0 on; buffers that only the plan needs follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankPlan {
    /// Lengths of buffers that it needs besides those of the caller.
    pub scratch: Vec<usize>,
    /// Copies before anything else, from and to.
    pub copies: Vec<(BufferRange, BufferRange)>,
    /// Messages to other ranks.
    pub sends: Vec<PlannedSend>,
    /// Messages from other ranks.
    pub receives: Vec<PlannedReceive>,
    /// Sums in a fixed order.
    pub sums: Vec<PlannedSum>,
    /// Where [`Target::Combine`] combines: the numbers of this rank once `copies` are done, which a scaled sum scales.
    pub operands: Vec<BufferRange>,
    /// Where results of [`Target::Combine`] are when everything has arrived, which an average divides.
    pub results: Vec<BufferRange>,
    /// Copies at the end, from and to.
    pub last_copies: Vec<(BufferRange, BufferRange)>,
}

impl RankPlan {
    /// Plans a send; empty ranges need no message.
    fn send(&mut self, to: u32, tag: u32, from: BufferRange, after: Vec<Condition>) {
        if !from.is_empty() {
            self.sends.push(PlannedSend { to, tag, from, after });
        }
    }

    /// Plans a receive; empty ranges need no message.
    fn receive(&mut self, from: u32, tag: u32, into: BufferRange) {
        if !into.is_empty() {
            let (length, into) = (into.len(), Target::Place(into));
            self.receives.push(PlannedReceive { from, tag, length, into, after: Vec::new() });
        }
    }

    /// Plans a sum, and the receives of its operands from `others`. Returns its number.
    fn add(&mut self, sum: PlannedSum, tag: u32, others: impl Iterator<Item = u32>) -> usize {
        let (number, length) = (self.sums.len(), sum.out.len());
        for from in others {
            let into = Target::Sum(number);
            self.receives.push(PlannedReceive { from, tag, length, into, after: Vec::new() });
        }
        self.sums.push(sum);
        number
    }
}

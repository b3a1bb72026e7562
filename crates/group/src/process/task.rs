//! A collective under way at one rank: its plan, and the state of each of its messages and sums.

use super::element::{Element, Reduction, combine, divide, scale};
use super::engine::Delegated;
use super::failure::Failure;
use super::message::{Landing, Signature};
use super::work::Work;
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use strandway_collective::plan::direct::EAGER;
use strandway_collective::plan::{BufferRange, Condition, Executor, PlannedSum, RankPlan, Target};
use strandway_collective::recipe::PlanCarriage;
use strandway_udp::{Error, Node, Region};

/// The number of parts that are received ahead of the one that is added. Each takes memory of its own.
const AHEAD: usize = PlanCarriage::GROUPS.sums_ahead;
/// The number of staging areas that are kept for later: ours.
const KEPT: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing has happened.
    Waiting,
    /// It waits for credit of its receiver.
    Starved,
    /// The receiver knows that the message is ready, and will ask for it.
    Announced,
    /// Memory is open for it, or it is on its way.
    Begun,
    Done,
}

/// A sum in the order of its operands.
struct Summing {
    came: HashMap<u32, Vec<u8>>,
    /// The number of operands, and the place of this rank's.
    operands: u32,
    ours: u32,
    /// The place of the operand that is added next.
    next: u32,
    /// The sum of the operands before ours.
    before: Option<Vec<u8>>,
}

impl Summing {
    fn new(sum: &PlannedSum, rank: u32, ranks: u32) -> Summing {
        let (operands, ours) = (sum.operands(ranks), sum.place(rank));
        Summing { came: HashMap::new(), operands, ours, next: 0, before: None }
    }

    fn is_complete(&self) -> bool {
        self.next == self.operands
    }
}

/// Staging areas that were used and are free.
#[derive(Default)]
pub(super) struct Pool(Vec<Vec<u8>>);

impl Pool {
    pub(super) fn take(&mut self, length: usize) -> Vec<u8> {
        // The one that was used last may still be in the processor's cache.
        match self.0.iter().rposition(|buffer| buffer.len() == length) {
            Some(at) => self.0.remove(at),
            None => vec![0; length],
        }
    }

    pub(super) fn keep(&mut self, buffer: Vec<u8>) {
        if buffer.len() > EAGER && self.0.len() < KEPT {
            self.0.push(buffer);
        }
    }
}

/// The call that a task performs.
pub(super) struct Call {
    pub(super) group: u64,
    /// The description of the call that each message of a collective carries.
    pub(super) signature: Signature,
    /// The collective's number in its group; `None` for a send or receive.
    pub(super) number: Option<u64>,
    pub(super) what: &'static str,
    pub(super) work: Work,
    pub(super) timeout: Duration,
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) element: Element,
    pub(super) reduction: Reduction,
    pub(super) plan: RankPlan,
    /// The regions of the caller's buffers, and in a task also of its scratch buffers.
    pub(super) regions: Vec<Region>,
    pub(super) owners: Vec<Box<dyn Any + Send>>,
}

pub(super) struct Task {
    pub(super) call: Call,
    pub(super) began: Instant,
    pub(super) sent: Vec<Stage>,
    pub(super) received: Vec<Stage>,
    sums: Vec<Summing>,
    /// Which sends may leave, and which receives are due.
    executor: Executor<'static>,
    /// Sums before this one are done.
    first_sum: usize,
    /// Sends before this one have left, and receives before the next one have been opened.
    pub(super) first_send: usize,
    pub(super) first_receive: usize,
    /// The targets of long messages, by rank and tag, until the messages may leave.
    pub(super) opened: HashMap<(u32, u32), Landing>,
    /// Sends, receives and sums that are not done.
    pub(super) left: usize,
    /// The rank that has filled a receive from any rank.
    pub(super) source: Option<u32>,
    /// The rank that a receive asks for; `None` for any rank.
    pub(super) asked: Option<u32>,
    /// The offer that a receive has taken: the peer and the offer's number.
    pub(super) offer: Option<(usize, u64)>,
    /// The bytes of short sends that wait. They are copied, because others may take their place before they leave.
    pub(super) kept: HashMap<usize, Vec<u8>>,
    /// The bytes of receives that wait for what the plan does first.
    held: BTreeMap<usize, Vec<u8>>,
    /// The number of open keys and of writes under way.
    pub(super) uses: usize,
    /// The delegate's part, if one performs the call. `left` counts it, too.
    pub(super) delegated: Option<Delegated>,
}

impl Task {
    pub(super) fn new(node: &mut Node, pool: &mut Pool, call: Call) -> Result<Task, Error> {
        let mut task = Task {
            began: Instant::now(),
            sent: Vec::new(),
            received: Vec::new(),
            sums: Vec::new(),
            executor: Executor::of_plan(&RankPlan::default()),
            first_sum: 0,
            first_send: 0,
            first_receive: 0,
            opened: HashMap::new(),
            left: 0,
            source: None,
            asked: None,
            offer: None,
            kept: HashMap::new(),
            held: BTreeMap::new(),
            uses: 0,
            delegated: None,
            call,
        };
        task.restart(node, pool)?;
        Ok(task)
    }

    /// Begins the plan of its call; another plan that it had is over.
    pub(super) fn restart(&mut self, node: &mut Node, pool: &mut Pool) -> Result<(), Error> {
        let RankPlan { sends, receives, sums, scratch, .. } = &self.call.plan;
        self.call.regions.extend(scratch.iter().map(|length| node.register(vec![0; *length])));
        self.sent = vec![Stage::Waiting; sends.len()];
        self.received = vec![Stage::Waiting; receives.len()];
        let (rank, ranks) = (self.call.rank, self.call.ranks);
        self.sums = sums.iter().map(|sum| Summing::new(sum, rank, ranks)).collect();
        self.executor = Executor::of_plan(&self.call.plan);
        self.executor.begin();
        (self.first_sum, self.first_send, self.first_receive) = (0, 0, 0);
        self.left = sends.len() + receives.len() + sums.len();
        self.prepare(node)?;
        for sum in 0..self.sums.len() {
            // The rank whose numbers come first begins with them.
            self.add(node, pool, sum)?;
        }
        Ok(())
    }

    /// Scales the numbers that this rank contributes, and copies those that stay at this rank.
    fn prepare(&self, node: &mut Node) -> Result<(), Error> {
        if let Some(factor) = self.factor().filter(|_| self.call.plan.operands.is_empty()) {
            let results = self.call.plan.sums.iter().map(|sum| sum.out.buffer);
            let mut inputs: Vec<usize> = self.call.plan.sums.iter().map(|sum| sum.own.buffer).collect();
            inputs.extend(self.call.plan.sends.iter().map(|send| send.from.buffer));
            inputs.sort_unstable();
            inputs.dedup();
            // The caller's input must not change, so a copy of it is scaled.
            let results: Vec<usize> = results.collect();
            for input in
                inputs.into_iter().filter(|input| *input < self.call.regions.len() - self.call.plan.scratch.len())
            {
                let region = self.call.regions[input];
                if !results.contains(&input) {
                    node.take_over(region)?;
                }
                scale(self.call.element, node.memory_mut(region)?, factor);
            }
        }
        for (from, to) in &self.call.plan.copies {
            self.copy(node, from, to)?;
        }
        if let Some(factor) = self.factor() {
            for range in &self.call.plan.operands {
                let memory = node.memory_mut(self.call.regions[range.buffer])?;
                scale(self.call.element, &mut memory[range.bytes.clone()], factor);
            }
        }
        Ok(())
    }

    /// Everything has arrived: divides averages, and copies results to where the caller wants them.
    pub(super) fn finish(&self, node: &mut Node) -> Result<(), Error> {
        if self.call.reduction == Reduction::Average && self.factor().is_none() {
            for range in &self.call.plan.results {
                let memory = node.memory_mut(self.call.regions[range.buffer])?;
                divide(self.call.element, &mut memory[range.bytes.clone()], self.call.ranks);
            }
        }
        self.call.plan.last_copies.iter().try_for_each(|(from, to)| self.copy(node, from, to))
    }

    /// The factor of each rank's numbers before they are added. Averages of `F16` are divided before the sum, because
    /// the sum may exceed 65,504.
    fn factor(&self) -> Option<f64> {
        match self.call.reduction {
            Reduction::ScaledSum(factor) => Some(factor),
            Reduction::Average if self.call.element == Element::F16 => Some(1.0 / f64::from(self.call.ranks)),
            _ => None,
        }
    }

    fn copy(&self, node: &mut Node, from: &BufferRange, to: &BufferRange) -> Result<(), Error> {
        if from == to || from.is_empty() {
            return Ok(());
        }
        let (source, target) = (self.call.regions[from.buffer], self.call.regions[to.buffer]);
        node.copy_within(source, from.bytes.clone(), target, to.bytes.start)
    }

    /// May a send leave?
    pub(super) fn is_open(&self, send: usize) -> bool {
        self.executor.holds(Condition::Posted(send))
    }

    /// May memory be opened for a receive?
    pub(super) fn may_receive(&self, receive: usize) -> bool {
        match self.call.plan.receives[receive].into {
            Target::Sum(sum) => sum < self.first_sum + AHEAD,
            Target::Place(_) | Target::Combine(_) => self.executor.is_due(receive),
        }
    }

    /// Where the sender of a receive may write at once; `None` if its bytes need a staging area, since they are added
    /// to others, or since bytes that leave here are still in their place.
    pub(super) fn open_place(&self, receive: usize) -> Option<&BufferRange> {
        match &self.call.plan.receives[receive].into {
            Target::Place(range) if self.leaving(receive, range).next().is_none() => Some(range),
            _ => None,
        }
    }

    /// The sends that left before a receive in the order of the plan, and whose bytes in its place are still needed.
    fn leaving<'a>(&'a self, receive: usize, range: &'a BufferRange) -> impl Iterator<Item = usize> + 'a {
        let sends = self.call.plan.receives[receive].after.iter().filter_map(|condition| match *condition {
            Condition::Posted(send) => Some(send),
            _ => None,
        });
        sends.filter(|send| {
            self.sent[*send] != Stage::Done
                && !self.kept.contains_key(send)
                && self.call.plan.sends[*send].from.overlaps(range)
        })
    }

    /// Copies the bytes of a send, because others will take their place before it leaves.
    pub(super) fn keep(&mut self, node: &mut Node, send: usize) -> Result<(), Error> {
        let from = &self.call.plan.sends[send].from;
        let bytes = node.memory(self.call.regions[from.buffer])?[from.bytes.clone()].to_vec();
        if bytes.len() <= EAGER {
            self.kept.insert(send, bytes);
        } else {
            self.call.plan.sends[send].from = BufferRange::whole(self.call.regions.len(), bytes.len());
            self.call.regions.push(node.register(bytes));
        }
        Ok(())
    }

    /// A receive from this rank with this tag that is not done.
    pub(super) fn receive_of(&self, from: u32, tag: u32) -> Option<usize> {
        let receives = self.call.plan.receives.iter().zip(&self.received);
        receives.enumerate().find_map(|(at, (receive, stage))| {
            let waits = *stage != Stage::Done && !self.held.contains_key(&at);
            (receive.from == from && receive.tag == tag && waits).then_some(at)
        })
    }

    /// Takes the bytes of a receive that are not in their place yet.
    pub(super) fn take(
        &mut self,
        node: &mut Node,
        pool: &mut Pool,
        receive: usize,
        bytes: Vec<u8>,
    ) -> Result<(), Error> {
        let range = match self.call.plan.receives[receive].into.clone() {
            Target::Sum(sum) => {
                let from = self.call.plan.receives[receive].from;
                self.sums[sum].came.insert(from, bytes);
                self.add(node, pool, sum)?;
                self.done(receive);
                return Ok(());
            }
            Target::Place(range) | Target::Combine(range) => range,
        };
        let leaving: Vec<usize> = self.leaving(receive, &range).collect();
        // The wire reads the memory of a send that has begun until it ends.
        if !self.executor.is_due(receive) || leaving.iter().any(|send| self.sent[*send] == Stage::Begun) {
            self.held.insert(receive, bytes);
            return Ok(());
        }
        for send in leaving {
            self.keep(node, send)?;
        }
        if !range.is_empty() {
            let memory = &mut node.memory_mut(self.call.regions[range.buffer])?[range.bytes];
            match self.call.plan.receives[receive].into {
                Target::Combine(_) => combine(self.call.element, self.call.reduction, memory, &bytes),
                _ => memory.copy_from_slice(&bytes),
            }
        }
        pool.keep(bytes);
        self.done(receive);
        Ok(())
    }

    /// Takes the bytes of receives that had to wait and need not any more.
    pub(super) fn take_held(&mut self, node: &mut Node, pool: &mut Pool) -> Result<(), Error> {
        loop {
            let before = self.held.len();
            for (receive, bytes) in std::mem::take(&mut self.held) {
                self.take(node, pool, receive, bytes)?;
            }
            if self.held.is_empty() || self.held.len() == before {
                return Ok(());
            }
        }
    }

    /// Notes that a receive is done.
    pub(super) fn done(&mut self, receive: usize) {
        if self.received[receive] != Stage::Done {
            self.received[receive] = Stage::Done;
            self.executor.complete(Condition::Received(receive));
            self.left -= 1;
        }
    }

    /// Adds the numbers that have come, in the order of the sum.
    fn add(&mut self, node: &mut Node, pool: &mut Pool, at: usize) -> Result<(), Error> {
        let PlannedSum { ref own, ref out, is_part, .. } = self.call.plan.sums[at];
        let (own, out, ours) = (own.clone(), out.clone(), self.sums[at].ours);
        let region = self.call.regions[out.buffer];
        let (element, reduction) = (self.call.element, self.call.reduction);
        while !self.sums[at].is_complete() {
            let next = self.sums[at].next;
            if next == ours {
                self.copy(node, &own, &out)?;
                if let Some(before) = self.sums[at].before.take() {
                    combine(element, reduction, &mut node.memory_mut(region)?[out.bytes.clone()], &before);
                    pool.keep(before);
                }
            } else {
                let from = self.call.plan.sums[at].operand(next);
                let summing = &mut self.sums[at];
                let Some(bytes) = summing.came.remove(&from) else { return Ok(()) };
                if next < ours {
                    match &mut summing.before {
                        Some(before) => {
                            combine(element, reduction, before, &bytes);
                            pool.keep(bytes);
                        }
                        none => *none = Some(bytes),
                    }
                } else {
                    combine(element, reduction, &mut node.memory_mut(region)?[out.bytes.clone()], &bytes);
                    pool.keep(bytes);
                }
            }
            self.sums[at].next += 1;
        }
        if reduction == Reduction::Average && self.factor().is_none() && !is_part {
            divide(element, &mut node.memory_mut(region)?[out.bytes], self.call.ranks);
        }
        self.executor.complete(Condition::Added(at));
        self.left -= 1;
        while self.sums.get(self.first_sum).is_some_and(Summing::is_complete) {
            self.first_sum += 1;
        }
        Ok(())
    }

    /// The ranks that it waits for; some more than once. A delegate may wait for any other rank.
    pub(super) fn awaited(&self) -> impl Iterator<Item = u32> {
        let ranks = if self.delegated.as_ref().is_some_and(Delegated::is_pending) { self.call.ranks } else { 0 };
        self.messages_of().chain((0..ranks).filter(|rank| *rank != self.call.rank))
    }

    /// The ranks whose messages it waits for, or which have not taken its own; some more than once.
    fn messages_of(&self) -> impl Iterator<Item = u32> {
        let receives = self.call.plan.receives.iter().zip(&self.received);
        let sends = self.call.plan.sends.iter().zip(&self.sent);
        receives
            .filter(|(_, stage)| **stage != Stage::Done)
            .map(|(receive, _)| receive.from)
            .chain(sends.filter(|(_, stage)| **stage != Stage::Done).map(|(send, _)| send.to))
    }

    /// The ranks that it waits for, once each.
    pub(super) fn waits_for(&self) -> Vec<u32> {
        once_each(self.awaited())
    }

    /// The ranks that it waits for without its delegate, once each.
    pub(super) fn waits_for_messages(&self) -> Vec<u32> {
        once_each(self.messages_of())
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.began.checked_add(self.call.timeout)
    }
}

fn once_each(ranks: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut ranks: Vec<u32> = ranks.collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

impl Drop for Task {
    /// Ends the work of a task, so that no caller waits for it for ever. If the work has ended already, this changes
    /// nothing.
    fn drop(&mut self) {
        let failure = Failure::Node("its thread has ended".into());
        match &self.delegated {
            Some(delegated) => delegated.order.stop(&failure),
            None => self.call.work.end(Err(failure)),
        }
    }
}

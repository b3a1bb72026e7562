//! The frontier of a rank whose script is a graph: the steps that can begin, and the messages under way.

use crate::script::{Graph, RankOperation, Script, Work};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use strandway_proto::units::Time;

/// No step.
const NONE: u32 = u32::MAX;

/// A message that a rank sends or receives.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// The step that sends or receives it.
    step: u32,
    /// Its pieces that have arrived, or were acknowledged.
    pieces: u32,
    begun: bool,
}

/// The steps that a rank may begin next.
#[derive(Debug)]
pub(crate) struct Frontier<'a> {
    graph: &'a Graph,
    /// Events for which each step still waits.
    waits: Vec<u32>,
    /// The step whose end or begin allowed each step to begin.
    cause: Vec<u32>,
    /// When each step was allowed to begin; for the first ones the start of the run.
    released: Vec<Time>,
    /// For each stream the steps that can begin, the first in the script on top.
    ready: Vec<BinaryHeap<Reverse<u32>>>,
    /// For each operation of the rank.
    counted: Vec<Counted>,
    /// By step: its index among the kept times.
    pub(crate) kept: Vec<u32>,
}

impl<'a> Frontier<'a> {
    /// The frontier before the first step; `None` if the script is no graph.
    pub(crate) fn new(script: &'a Script, operations: &[RankOperation], keeps: bool) -> Option<Frontier<'a>> {
        let graph = script.as_graph()?;
        let count = script.steps().len();
        let mut counted = vec![Counted { step: NONE, pieces: 0, begun: false }; operations.len()];
        let mut ready = vec![BinaryHeap::new(); script.streams().len()];
        for (place, step) in (0u32..).zip(script.steps()) {
            if let Work::Operation(operation) = step.work {
                counted[operation as usize].step = place;
            }
            if graph.waits[place as usize] == 0 {
                ready[usize::from(step.stream)].push(Reverse(place));
            }
        }
        let kept = if keeps { vec![NONE; count] } else { Vec::new() };
        Some(Frontier {
            graph,
            waits: graph.waits.clone(),
            cause: vec![NONE; count],
            released: vec![Time::ZERO; count],
            ready,
            counted,
            kept,
        })
    }

    /// Takes the next step of a stream that can begin.
    pub(crate) fn take(&mut self, stream: usize) -> Option<u32> {
        self.ready[stream].pop().map(|Reverse(step)| step)
    }

    /// The step that allowed this one to begin; `None` if it never waited.
    pub(crate) fn cause(&self, step: u32) -> Option<u32> {
        Some(self.cause[step as usize]).filter(|cause| *cause != NONE)
    }

    /// When a step was allowed to begin.
    pub(crate) fn released(&self, step: u32) -> Time {
        self.released[step as usize]
    }

    /// A step has begun: others may have waited for that.
    pub(crate) fn begun(&mut self, now: Time, script: &Script, step: u32) {
        let graph = self.graph;
        graph.after_begin(step).iter().for_each(|&next| self.release(now, script, next, step));
    }

    /// A step has ended.
    pub(crate) fn ended(&mut self, now: Time, script: &Script, step: u32) {
        let graph = self.graph;
        graph.after_end(step).iter().for_each(|&next| self.release(now, script, next, step));
    }

    fn release(&mut self, now: Time, script: &Script, next: u32, cause: u32) {
        let left = &mut self.waits[next as usize];
        *left -= 1;
        if *left == 0 {
            self.cause[next as usize] = cause;
            self.released[next as usize] = now;
            self.ready[usize::from(script.steps()[next as usize].stream)].push(Reverse(next));
        }
    }

    /// The message of an operation has begun here. Returns its step if all `pieces` of it have arrived already.
    pub(crate) fn begin_message(&mut self, operation: u32, pieces: u32) -> Option<u32> {
        let counted = &mut self.counted[operation as usize];
        counted.begun = true;
        (counted.pieces >= pieces).then_some(counted.step)
    }

    /// One more piece of the message of an operation has arrived. Returns its step if it ends with that.
    pub(crate) fn count(&mut self, operation: u32, pieces: u32) -> Option<u32> {
        let counted = &mut self.counted[operation as usize];
        counted.pieces += 1;
        (counted.begun && counted.pieces == pieces).then_some(counted.step)
    }
}

//! The steps of one role, and the groups and operations that they name.

use super::kinds::KINDS;
use crate::reduction::Reduction;
use strandway_collective::{Script, Step, Work};
use strandway_import::trace::Kind;

/// A sort of group: ranks that take part in the same operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sort {
    Tensor,
    Context,
    Expert,
    /// All ranks that hold the same share of a layer.
    Data,
    /// All ranks that hold the same experts.
    ExpertData,
    /// A group of a trace.
    Listed,
}

/// An operation, the same for all ranks of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Collective {
        sort: Sort,
        collective: Kind,
        /// Counted as in nccl-tests.
        bytes: u64,
        /// The operation stands for this number of equal ones, one after the other.
        times: u32,
    },
    /// A message to the next stage, or to the previous one. `from` is a virtual stage: each chunk counts as one.
    Send {
        from: u32,
        backward: bool,
        micro: u32,
    },
    Receive {
        from: u32,
        backward: bool,
        micro: u32,
    },
}

/// The steps of a role, and its operations. Steps name operations by their index.
#[derive(Debug, Default)]
pub(super) struct Role {
    pub(super) steps: Vec<Step>,
    pub(super) operations: Vec<(Operation, u8)>,
}

impl Role {
    /// Adds a step, and returns its number.
    pub(super) fn step(&mut self, stream: u8, kind: u8, layer: u32, work: Work, after: &[Option<u32>]) -> u32 {
        let mut after: Vec<u32> = after.iter().flatten().copied().collect();
        after.sort_unstable();
        after.dedup();
        self.steps.push(Step { stream, work, after, kind, layer, ends_iteration: false });
        self.steps.len() as u32 - 1
    }

    /// Adds a step that begins an operation, and returns its number.
    pub(super) fn operate(
        &mut self,
        stream: u8,
        kind: u8,
        layer: u32,
        operation: Operation,
        after: &[Option<u32>],
    ) -> u32 {
        self.operations.push((operation, kind));
        self.step(stream, kind, layer, Work::Operation(self.operations.len() as u32 - 1), after)
    }

    /// Divides the times of computation, in a run of smaller jobs.
    pub(super) fn divide(&mut self, reduction: Reduction) {
        for step in &mut self.steps {
            if let Work::Compute(span) = &mut step.work {
                *span = reduction.span(*span);
            }
        }
    }

    pub(super) fn script(self) -> Script {
        match Script::new(KINDS.iter().map(ToString::to_string).collect(), self.steps) {
            Ok(script) => script,
            Err(error) => unreachable!("{error}"),
        }
    }
}

//! Stages of a list, their groups, and the operations of all their ranks.

use super::{Action, Group, Line, Sizes};
use crate::problem::Problems;
use crate::trace::{Does, Kind, Operation, RankTrace, Trace, problem};
use std::collections::BTreeMap;

/// A stage: its ranks, its lines, and the sizes of its groups with the lines that say them.
pub(super) struct Stage {
    pub(super) number: usize,
    pub(super) ranks: Vec<u32>,
    pub(super) lines: Vec<Line>,
    pub(super) sizes: Sizes,
}

/// The groups within a stage, by the places of its ranks.
pub(super) struct Shape {
    pub(super) width: usize,
    pub(super) tp: usize,
    pub(super) ep: usize,
}

impl Shape {
    pub(super) fn described(&self) -> String {
        format!("tensor groups of {}, data groups of {}", self.tp, self.width / self.tp)
    }

    fn size(&self, group: Group, stages: usize, all: usize) -> usize {
        let copies = self.width / self.tp;
        match group {
            Group::Tensor => self.tp,
            Group::Expert => self.ep,
            Group::ExpertData => copies / self.ep,
            Group::Data => copies,
            Group::All => all,
            Group::Pipeline => stages,
            Group::Embedding => stages.min(2),
        }
    }

    /// The ranks of the group that the rank at this place of this stage is in.
    fn members(&self, group: Group, place: usize, at: usize, stages: &[Stage]) -> Vec<u32> {
        let ranks = &stages[at].ranks;
        let (tensor, copy, copies) = (place % self.tp, place / self.tp, self.width / self.tp);
        let of = |copies: &mut dyn Iterator<Item = usize>| copies.map(|copy| ranks[copy * self.tp + tensor]).collect();
        match group {
            Group::Tensor => (0..self.tp).map(|tensor| ranks[copy * self.tp + tensor]).collect(),
            Group::Expert => of(&mut (copy / self.ep * self.ep..(copy / self.ep + 1) * self.ep)),
            Group::ExpertData => of(&mut (copy % self.ep..copies).step_by(self.ep)),
            Group::Data => of(&mut (0..copies)),
            Group::All => stages.iter().flat_map(|stage| stage.ranks.iter().copied()).collect(),
            Group::Pipeline => stages.iter().map(|stage| stage.ranks[place]).collect(),
            Group::Embedding => {
                let mut ends = vec![stages[0].ranks[place], stages[stages.len() - 1].ranks[place]];
                ends.dedup();
                ends
            }
        }
    }
}

/// Adds the operations of all ranks to a trace: a rank does what the list of its stage says, in its own groups.
pub(super) fn assemble(file: &str, stages: &[Stage], shapes: &[Shape], mut trace: Trace) -> Result<Trace, Problems> {
    let count = stages.iter().map(|stage| stage.ranks.len()).sum();
    trace.ranks = vec![RankTrace::default(); count];
    let mut groups: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
    for (at, (stage, shape)) in stages.iter().zip(shapes).enumerate() {
        for (place, &rank) in stage.ranks.iter().enumerate() {
            let mut made = RankTrace::default();
            let mut mine: BTreeMap<Group, u32> = BTreeMap::new();
            // The operation that the next one waits for: messages that are sent do not count.
            let mut before: Option<u32> = None;
            for (operation, line) in (0u32..).zip(&stage.lines) {
                let peer = |next: bool| {
                    let stage = if next { stages.get(at + 1) } else { at.checked_sub(1).map(|before| &stages[before]) };
                    stage.map(|stage| stage.ranks[place]).ok_or_else(|| {
                        let way = if next { "next" } else { "previous" };
                        problem(
                            file,
                            Some(line.number),
                            "",
                            format!("is a message of the {way} stage, which there is not"),
                            "correct `additional`",
                        )
                    })
                };
                let does = match line.does {
                    Action::Compute => Does::Compute { span: line.span, lane: 0 },
                    // Of the two directions each has a tag.
                    Action::Send { next } => Does::Send { to: peer(next)?, bytes: line.bytes, tag: u32::from(next) },
                    Action::Receive { next } => Does::Receive { from: peer(next)?, tag: u32::from(!next) },
                    Action::Collective(kind, group) => {
                        let members = || shape.members(group, place, at, stages);
                        let number = *mine.entry(group).or_insert_with(|| {
                            let next = groups.len() as u32;
                            *groups.entry(members()).or_insert(next)
                        });
                        let ranks = shape.size(group, stages.len(), count);
                        let bytes =
                            if kind == Kind::AllGather { line.bytes.div_ceil(ranks.max(1) as u64) } else { line.bytes };
                        Does::Collective { group: number, kind, bytes }
                    }
                };
                made.add(Operation { id: line.number as u64, does }, before);
                if !matches!(does, Does::Send { .. }) {
                    before = Some(operation);
                }
            }
            trace.ranks[rank as usize] = made;
        }
    }
    let mut groups: Vec<(Vec<u32>, u32)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, number)| *number);
    trace.groups = groups.into_iter().map(|(members, _)| members).collect();
    Ok(trace)
}

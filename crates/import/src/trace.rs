//! Traces: what each rank does, as a graph. Chakra traces and GOAL schedules become a [`Trace`], and the scenario's
//! `[job]` runs it.

use crate::problem::{Problem, Problems};
use crate::recording::Recorded;
use std::collections::{BTreeMap, BinaryHeap};
use strandway_proto::units::Span;

/// Any sender, or any tag.
pub const ANY: u32 = u32::MAX;

/// Limit on the operations of all ranks of a trace that runs: ours. One takes about 150 bytes during a run.
pub const OPERATIONS_MAX: usize = 1 << 25;

/// Limit on the ranks of a trace: ours, that of jobs.
pub const RANKS_MAX: u32 = 1 << 17;

/// Limit on the lanes of computation of a rank: those of a byte without the two that scripts use for other steps.
pub const LANES_MAX: u8 = strandway_collective::script::INSIDE;

/// Limit on the bytes of a message or a collective: ours, 256 TiB.
pub const BYTES_MAX: u64 = 1 << 48;

/// Limit on the length of one computation: ours, 13 days.
pub const SPAN_MAX_NS: u64 = 1 << 50;

/// The kind of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Every rank ends with the sum.
    AllReduce,
    /// Every rank ends with the blocks of all.
    AllGather,
    /// Each rank ends with its block of the sum.
    ReduceScatter,
    /// Each rank sends a block to every other.
    AllToAll,
    /// The first rank of the group sends to all.
    Broadcast,
    /// The first rank of the group gets the sum.
    Reduce,
    /// The first rank of the group gets all blocks.
    Gather,
    /// The first rank of the group sends each rank its block.
    Scatter,
    /// No bytes: all ranks wait for each other.
    Barrier,
}

impl Kind {
    /// Its name in texts.
    pub fn name(self) -> &'static str {
        match self {
            Kind::AllReduce => "all-reduce",
            Kind::AllGather => "all-gather",
            Kind::ReduceScatter => "reduce-scatter",
            Kind::AllToAll => "all-to-all",
            Kind::Broadcast => "broadcast",
            Kind::Reduce => "reduce",
            Kind::Gather => "gather",
            Kind::Scatter => "scatter",
            Kind::Barrier => "barrier",
        }
    }
}

/// The action of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Computes on a lane of the rank: 0 is the GPU.
    Compute {
        /// How long.
        span: Span,
        /// A lane below [`LANES_MAX`] does one thing at a time.
        lane: u8,
    },
    /// Sends a message.
    Send {
        /// The receiver.
        to: u32,
        /// Its length.
        bytes: u64,
        /// Its tag.
        tag: u32,
    },
    /// Waits for a message.
    Receive {
        /// The sender, or [`ANY`].
        from: u32,
        /// Its tag, or [`ANY`].
        tag: u32,
    },
    /// Takes part in a collective. The ranks of a group take part in its collectives in the same order.
    Collective {
        /// An index into [`Trace::groups`].
        group: u32,
        /// The kind of collective.
        kind: Kind,
        /// The bytes that a rank gives: for an all-gather and a gather, its own block; for all others, the whole buffer.
        bytes: u64,
    },
}

/// An operation of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The name of the operation in its file: a node's number, or a line.
    pub id: u64,
    /// Its action.
    pub does: Does,
}

/// The operations of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankTrace {
    /// The operations. Each one waits only for operations before it, once the trace is sorted.
    pub operations: Vec<Operation>,
    /// The end of each operation's part of `needs`.
    pub bounds: Vec<u32>,
    /// The operations that must have ended, one list behind the other.
    pub needs: Vec<u32>,
    /// Pairs of an operation, and one that must have begun before it.
    pub begins: Vec<(u32, u32)>,
}

/// Operations of a rank that wait for each other in a circle, by their ids: each one before the next, from the lowest
/// on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle(pub Vec<u64>);

impl RankTrace {
    /// Adds an operation that waits for these to end.
    pub fn add(&mut self, operation: Operation, needs: impl IntoIterator<Item = u32>) {
        self.operations.push(operation);
        self.needs.extend(needs);
        self.bounds.push(self.needs.len() as u32);
    }

    /// The operations that must have ended before this one begins.
    pub fn needs_of(&self, operation: usize) -> &[u32] {
        let from = operation.checked_sub(1).map_or(0, |before| self.bounds[before]);
        &self.needs[from as usize..self.bounds[operation] as usize]
    }

    fn is_sorted(&self) -> bool {
        let earlier = |place: usize| self.needs_of(place).iter().all(|need| (*need as usize) < place);
        (0..self.operations.len()).all(earlier) && self.begins.iter().all(|(later, before)| before < later)
    }

    /// Sorts the operations so that each one comes behind those that it waits for. Of the operations that need not wait
    /// any more, the first in the file comes first.
    ///
    /// # Errors
    /// If some wait for each other in a circle.
    pub fn sorted(self) -> Result<RankTrace, Circle> {
        if self.is_sorted() {
            return Ok(self);
        }
        let count = self.operations.len();
        let mut waits = vec![0u32; count];
        let mut next: Vec<Vec<u32>> = vec![Vec::new(); count];
        for (place, waits) in waits.iter_mut().enumerate() {
            let needs = self.needs_of(place);
            *waits = needs.len() as u32;
            needs.iter().for_each(|&need| next[need as usize].push(place as u32));
        }
        for &(later, before) in &self.begins {
            next[before as usize].push(later);
            waits[later as usize] += 1;
        }
        let first = (0..count as u32).filter(|place| waits[*place as usize] == 0).map(std::cmp::Reverse);
        let mut free: BinaryHeap<_> = first.collect();
        let (mut order, mut place_of) = (Vec::with_capacity(count), vec![u32::MAX; count]);
        while let Some(std::cmp::Reverse(place)) = free.pop() {
            place_of[place as usize] = order.len() as u32;
            order.push(place);
            for &later in &next[place as usize] {
                waits[later as usize] -= 1;
                if waits[later as usize] == 0 {
                    free.push(std::cmp::Reverse(later));
                }
            }
        }
        if order.len() < count {
            return Err(self.circle(&place_of));
        }
        let mut made = RankTrace::default();
        for &place in &order {
            let needs = self.needs_of(place as usize).iter().map(|need| place_of[*need as usize]);
            made.add(self.operations[place as usize], needs);
        }
        let moved = |&(later, before): &(u32, u32)| (place_of[later as usize], place_of[before as usize]);
        made.begins = self.begins.iter().map(moved).collect();
        Ok(made)
    }

    /// A circle among the operations without a place.
    fn circle(&self, place_of: &[u32]) -> Circle {
        let stuck = |place: &u32| place_of[*place as usize] == u32::MAX;
        let mut begins: BTreeMap<u32, u32> = BTreeMap::new();
        for &(later, before) in self.begins.iter().filter(|(_, before)| stuck(before)) {
            begins.entry(later).or_insert(before);
        }
        let mut way: Vec<u32> = Vec::new();
        let mut on_way = vec![false; place_of.len()];
        let mut at = (0..place_of.len() as u32).find(stuck).unwrap_or(0);
        while !on_way[at as usize] {
            on_way[at as usize] = true;
            way.push(at);
            let before = self.needs_of(at as usize).iter().find(|need| stuck(need)).or(begins.get(&at));
            at = before.copied().unwrap_or(at);
        }
        let first = way.iter().position(|place| *place == at).unwrap_or(0);
        let mut ids: Vec<u64> = way[first..].iter().rev().map(|place| self.operations[*place as usize].id).collect();
        let least = ids.iter().enumerate().min_by_key(|(_, id)| **id).map_or(0, |(at, _)| at);
        ids.rotate_left(least);
        Circle(ids)
    }
}

/// The operations of all ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The file, or the first of them, in messages.
    pub file: String,
    /// `a Chakra execution trace`, and so on.
    pub format: &'static str,
    /// The word for an operation in messages: `node` or `line`.
    pub noun: &'static str,
    /// The ranks. If `alike` is true there is one, and all ranks do what it does.
    pub ranks: Vec<RankTrace>,
    /// True: the trace is of one rank, and all do the same.
    pub alike: bool,
    /// The groups of collectives, by their members; an empty list stands for all ranks.
    pub groups: Vec<Vec<u32>>,
    /// The assumptions of the import, in sentences.
    pub assumed: Vec<String>,
    /// The times of the collectives of the run that the trace was recorded from, if it was.
    pub recorded: Vec<Recorded>,
    /// The time of that run, from the first call to the last end, in us.
    pub recorded_us: Option<f64>,
}

/// The contents of a trace, counted while it is read: this needs no memory per operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Computations with a time, and all their time together.
    pub computations: u64,
    /// In picoseconds.
    pub computed_ps: u128,
    /// Messages sent, and their bytes.
    pub sends: u64,
    /// Bytes of all messages.
    pub sent_bytes: u128,
    /// Messages waited for.
    pub receives: u64,
    /// Of those: messages from any sender, or with any tag.
    pub any: u64,
    /// Collectives that ranks take part in: their number and bytes.
    pub collectives: BTreeMap<Kind, (u64, u128)>,
    /// Operations that do nothing that takes time.
    pub idle: u64,
}

impl Contents {
    /// Counts one operation. `ranks` are those of its group; 1 if they are not known. All collectives count with their
    /// whole buffer: an all-gather is given what one rank contributes.
    pub fn count(&mut self, does: &Does, ranks: usize) {
        match *does {
            Does::Compute { span: Span::ZERO, .. } => self.idle += 1,
            Does::Compute { span, .. } => {
                self.computations += 1;
                self.computed_ps += u128::from(span.0);
            }
            Does::Send { bytes, .. } => {
                self.sends += 1;
                self.sent_bytes += u128::from(bytes);
            }
            Does::Receive { from, tag } => {
                self.receives += 1;
                self.any += u64::from(from == ANY || tag == ANY);
            }
            Does::Collective { kind, bytes, .. } => {
                let entry = self.collectives.entry(kind).or_default();
                entry.0 += 1;
                let shares = if matches!(kind, Kind::AllGather | Kind::Gather) { ranks as u128 } else { 1 };
                entry.1 += u128::from(bytes) * shares;
            }
        }
    }

    /// The contents as lines of text.
    pub fn summary(&self) -> String {
        let mb = |bytes: u128| bytes as f64 / 1e6;
        let mut out = String::new();
        if self.computations > 0 {
            let ms = self.computed_ps as f64 / 1e9;
            out.push_str(&format!("  {} computations, {ms:.3} ms in all\n", self.computations));
        }
        if self.sends > 0 {
            out.push_str(&format!("  {} messages sent, {:.3} MB in all\n", self.sends, mb(self.sent_bytes)));
        }
        if self.receives > 0 {
            let any = if self.any > 0 {
                format!(", {} of them from any rank or with any tag", self.any)
            } else {
                String::new()
            };
            out.push_str(&format!("  {} messages received{any}\n", self.receives));
        }
        for (kind, (count, bytes)) in &self.collectives {
            out.push_str(&format!("  {count} x {}, {:.3} MB in all\n", kind.name(), mb(*bytes)));
        }
        if self.idle > 0 {
            out.push_str(&format!("  {} operations that take no time\n", self.idle));
        }
        out
    }
}

impl Trace {
    /// Multiplies the time of every computation, for another GPU than the recorded one.
    pub fn scale_compute(&mut self, factor: f64) {
        for operation in self.ranks.iter_mut().flat_map(|rank| &mut rank.operations) {
            if let Does::Compute { span, .. } = &mut operation.does {
                *span = span.scaled(factor);
            }
        }
        self.assumed.push(format!("computations take {factor} times as long as in the trace"));
    }

    /// All operations, counted.
    pub fn contents(&self) -> Contents {
        let mut contents = Contents::default();
        let all = self.ranks.iter().flat_map(|rank| &rank.operations);
        let ranks = |does: &Does| match *does {
            Does::Collective { group, .. } => match self.groups.get(group as usize) {
                Some(members) if !members.is_empty() => members.len(),
                _ if self.alike => 1,
                _ => self.ranks.len(),
            },
            _ => 1,
        };
        all.for_each(|operation| contents.count(&operation.does, ranks(&operation.does)));
        contents
    }

    /// The contents of the trace, and the assumptions about it, as lines of text.
    pub fn describe(&self) -> String {
        let of = match (self.alike, self.ranks.len()) {
            (true, _) => "one rank".to_string(),
            (false, ranks) => format!("{ranks} ranks"),
        };
        let groups = self.groups.iter().filter(|group| !group.is_empty()).count();
        let groups = if groups > 0 { format!(", {groups} groups of ranks") } else { String::new() };
        let mut out = format!("{}: {of}{groups}\n{}", self.format, self.contents().summary());
        out.push_str(&format!("assumed: {}\n", self.assumed.join("; ")));
        let gpus = if self.alike { "\n         gpus = 8            # ranks; all do what this one does" } else { "" };
        out.push_str(&format!("to run it: [job]\n         file = \"FILE\"{gpus}\n"));
        out
    }

    /// Sorts the operations of all ranks.
    ///
    /// # Errors
    /// If operations of a rank wait for each other in a circle; with their ids.
    pub fn sort(&mut self) -> Result<(), Problems> {
        for (number, rank) in self.ranks.iter_mut().enumerate() {
            match std::mem::take(rank).sorted() {
                Ok(sorted) => *rank = sorted,
                Err(Circle(ids)) => {
                    let shown: Vec<String> = ids.iter().take(12).chain(ids.first()).map(u64::to_string).collect();
                    let more = if ids.len() > 12 { format!(" ({} in all)", ids.len()) } else { String::new() };
                    let noun = self.noun;
                    let what = format!(
                        "{noun}s of rank {number} wait for each other in a circle: {}{more}",
                        shown.join(" before ")
                    );
                    return Err(problem(&self.file, None, "", what, "remove one of these dependencies"));
                }
            }
        }
        Ok(())
    }
}

/// A problem with a place of a file: its line, from 1, the value found there, why it is wrong, and a remedy.
pub fn problem(file: &str, line: Option<usize>, value: &str, what: impl Into<String>, remedy: &str) -> Problems {
    Problems(vec![Problem {
        file: file.to_string(),
        line,
        key: String::new(),
        value: match value.is_empty() {
            true => String::new(),
            false => format!("`{}`", value.chars().take(40).collect::<String>()),
        },
        what: what.into(),
        remedy: remedy.to_string(),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(id: u64) -> Operation {
        Operation { id, does: Does::Compute { span: Span::ZERO, lane: 0 } }
    }

    #[test]
    fn operations_are_sorted_with_as_little_change_as_possible() {
        let mut rank = RankTrace::default();
        for (id, needs) in [(10, vec![2]), (11, vec![]), (12, vec![]), (13, vec![0, 1])] {
            rank.add(idle(id), needs);
        }
        rank.begins.push((1, 2));
        let sorted = rank.sorted().expect("no circle");
        let ids: Vec<u64> = sorted.operations.iter().map(|operation| operation.id).collect();
        assert_eq!(ids, [12, 10, 11, 13]);
        assert_eq!((sorted.needs_of(1), sorted.needs_of(3)), (&[0][..], &[1, 2][..]));
        assert_eq!(sorted.begins, [(2, 0)]);
    }

    #[test]
    fn a_circle_is_named() {
        let mut rank = RankTrace::default();
        for (id, needs) in [(10, vec![]), (11, vec![0, 3]), (12, vec![1]), (13, vec![2]), (14, vec![3])] {
            rank.add(idle(id), needs);
        }
        assert_eq!(rank.clone().sorted(), Err(Circle(vec![11, 12, 13])));
        let mut trace = Trace { file: "a.et".into(), noun: "node", ranks: vec![rank], ..Trace::default() };
        let said = trace.sort().expect_err("a circle").to_string();
        assert!(
            said.contains("nodes of rank 0 wait for each other in a circle: 11 before 12 before 13 before 11"),
            "{said}"
        );
        let mut selfish = RankTrace::default();
        selfish.add(idle(7), [0]);
        assert_eq!(selfish.sorted(), Err(Circle(vec![7])));
    }
}

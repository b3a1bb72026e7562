//! The parts of an iteration: all time of every rank, from the start of its job to the end, belongs to one part.
//!
//! A rank computes, or its compute stream waits for an operation of some group. As long as some rank is not ready for
//! this operation, the waiting time is a *bubble* if the operation is a message between stages of a pipeline, and
//! *waiting* otherwise. After that it is exposed communication of the group, that of earlier operations of the same
//! stream included. A rank is ready when all steps have ended that the operation waits for, apart from those of its own
//! stream; the time until then belongs to the last of these steps, in the same way. All parts are computed from the
//! start and end times of steps, which ranks keep.

use std::collections::BTreeMap;
use strandway_collective::script::COMPUTE;
use strandway_collective::{RankOperation, Script, ScriptedJob, Work};
use strandway_proto::RankTimes;
use strandway_proto::units::Time;
use strandway_report::parts::{NAMES, place_of};
use strandway_report::{LaneFacts, PartFacts};

/// Places in [`NAMES`].
const BUBBLE: usize = 8;
const WAITING: usize = 9;

fn place_of_step(script: &Script, kind: u8) -> usize {
    place_of(&script.kinds()[usize::from(kind)], script.is_graph())
}

/// For each operation the time at which its last rank was ready for it.
#[derive(Default)]
struct Begins {
    members: BTreeMap<u32, Time>,
    locals: BTreeMap<u32, Time>,
    /// By pipe and message: the time at which the sender began.
    sent: BTreeMap<(u32, u32), Time>,
}

/// When each step of a rank ended; [`Time::NEVER`] if it did not.
fn ends(script: &Script, rank: &RankTimes) -> Vec<Time> {
    let mut ended = vec![Time::NEVER; script.steps().len()];
    for kept in &rank.steps {
        ended[kept.step as usize] = kept.ended;
    }
    ended
}

fn later<K: Ord>(of: &mut BTreeMap<K, Time>, key: K, at: Time) {
    let last = of.entry(key).or_default();
    *last = (*last).max(at);
}

impl Begins {
    fn new(job: &ScriptedJob, ranks: &[&RankTimes]) -> Begins {
        let mut all = Begins::default();
        let begun = || {
            ranks.iter().flat_map(|rank| {
                let (script, mine) = (job.script(rank.rank), &job.operations[rank.rank as usize]);
                let ended = ends(script, rank);
                let begun = rank.begun.unwrap_or_default();
                rank.steps.iter().filter_map(move |kept| {
                    let step = &script.steps()[kept.step as usize];
                    let Work::Operation(place) = step.work else { return None };
                    let ready = step.after.iter().map(|&before| ended[before as usize]).fold(begun, Time::max);
                    Some((mine[place as usize], ready))
                })
            })
        };
        for (operation, at) in begun() {
            match operation {
                RankOperation::Send { pipe, index } => later(&mut all.sent, (pipe, index), at),
                RankOperation::Hand { local, gives: true } => later(&mut all.locals, local, at),
                RankOperation::Receive { .. } | RankOperation::Hand { .. } => {}
                RankOperation::Member { .. } | RankOperation::Inside { .. } => {
                    if let Some((member, _)) = operation.member() {
                        later(&mut all.members, member, at);
                    }
                }
            }
        }
        // A rank has everything only when all ranks of its server have ended their collectives of messages.
        for (operation, at) in begun() {
            if let RankOperation::Inside { local, messages } = operation {
                let rail = messages.and_then(|(rail, _)| all.members.get(&rail).copied()).unwrap_or_default();
                later(&mut all.locals, local, at.max(rail));
            }
        }
        all
    }

    fn of(&self, operation: &RankOperation) -> Time {
        let found = match operation {
            RankOperation::Member { operation, .. } => self.members.get(operation),
            RankOperation::Inside { local, .. } => self.locals.get(local),
            RankOperation::Hand { local, gives: false } => self.locals.get(local),
            RankOperation::Receive { pipe, index } => self.sent.get(&(*pipe, *index)),
            RankOperation::Send { .. } | RankOperation::Hand { .. } => None,
        };
        found.copied().unwrap_or_default()
    }
}

/// For each operation of several ranks, by its index in the run, when its last rank was ready for it; empty if steps'
/// times were not kept.
pub(super) fn ready(job: &ScriptedJob, ranks: &[&RankTimes]) -> BTreeMap<u32, Time> {
    if job.keeps_steps { Begins::new(job, ranks).members } else { BTreeMap::new() }
}

/// The parts of a job's iterations.
pub(super) fn facts(job: &ScriptedJob, ranks: &[&RankTimes], iterations: u32) -> Vec<PartFacts> {
    let begun = ranks.iter().filter_map(|rank| rank.begun).min();
    let end = ranks.iter().filter_map(|rank| rank.iterations.last()).max().copied();
    let mut there = [false; NAMES.len()];
    there[WAITING] = true;
    for script in &job.scripts {
        let mut kinds: Vec<u8> = script.steps().iter().map(|step| step.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds.into_iter().for_each(|kind| there[place_of_step(script, kind)] = true);
    }
    there[BUBBLE] = there[4];
    let told =
        || NAMES.iter().zip(there).enumerate().filter(|(_, (_, there))| *there).map(|(at, (name, _))| (at, name));
    let (Some(begun), Some(end), true, true) = (begun, end, iterations > 0, job.keeps_steps) else {
        return told().map(|(_, name)| PartFacts { name: (*name).to_string(), us: None, share: None }).collect();
    };
    let begins = Begins::new(job, ranks);
    let rest = if there[BUBBLE] { BUBBLE } else { WAITING };
    let mut sums = [0u128; NAMES.len()];
    for rank in ranks {
        let until = add(job, rank, &begins, begun, &mut sums);
        // Other ranks of the job have not ended yet.
        sums[rest] += u128::from(end.since(until.min(end)).0);
    }
    let all = u128::from(end.since(begun).0) * ranks.len() as u128;
    let per = f64::from(iterations) * ranks.len() as f64 * 1e6;
    told()
        .map(|(at, name)| PartFacts {
            name: (*name).to_string(),
            us: Some(sums[at] as f64 / per),
            share: Some(sums[at] as f64 / all.max(1) as f64),
        })
        .collect()
}

/// Adds the time of one rank, and returns the time until which it was added.
fn add(job: &ScriptedJob, rank: &RankTimes, begins: &Begins, begun: Time, sums: &mut [u128; NAMES.len()]) -> Time {
    walk(job, rank, begins, begun, |part, from, until| sums[part] += u128::from(until.since(from).0))
}

/// Calls `piece` for each piece of a rank's time: its part, its begin and its end. Pieces follow each other without a
/// gap. Returns the end of the last one.
fn walk(
    job: &ScriptedJob,
    rank: &RankTimes,
    begins: &Begins,
    begun: Time,
    mut piece: impl FnMut(usize, Time, Time),
) -> Time {
    let (script, mine) = (job.script(rank.rank), &job.operations[rank.rank as usize]);
    let ended = ends(script, rank);
    let waits = Waits { script, mine, ended: &ended, begins };
    let mut free = begun;
    for kept in &rank.steps {
        let step = &script.steps()[kept.step as usize];
        if step.stream != COMPUTE {
            continue;
        }
        let mut causes: Vec<u32> = step.after.clone();
        causes.retain(|&before| script.steps()[before as usize].stream != COMPUTE && ended[before as usize] > free);
        causes.sort_by_key(|&before| (ended[before as usize], before));
        for before in causes {
            let until = ended[before as usize].min(kept.begun);
            for (part, from, until) in waits.pieces(before, free, until) {
                piece(part, from, until);
            }
            free = until;
        }
        piece(WAITING, free.min(kept.begun), kept.begun);
        if kept.ended == Time::NEVER {
            return kept.begun;
        }
        piece(0, kept.begun, kept.ended);
        free = kept.ended;
    }
    free
}

/// The causes of a rank's waiting, step by step.
struct Waits<'a> {
    script: &'a Script,
    mine: &'a [RankOperation],
    ended: &'a [Time],
    begins: &'a Begins,
}

impl Waits<'_> {
    /// The parts of the time from `free` to `until`, in which the compute stream waited for this step of another
    /// stream. The time before the rank was ready for the step belongs to the step that it was not ready because of,
    /// and so on.
    fn pieces(&self, step: u32, free: Time, until: Time) -> Vec<(usize, Time, Time)> {
        let mut found = Vec::new();
        let (mut at, mut until) = (step, until);
        while until > free {
            let step = &self.script.steps()[at as usize];
            let last = step.after.iter().copied().max_by_key(|&before| (self.ended[before as usize], before));
            let ready = last.map_or(free, |before| self.ended[before as usize]).clamp(free, until);
            match step.work {
                Work::Operation(place) => {
                    let all_there = self.begins.of(&self.mine[place as usize]).clamp(ready, until);
                    let part = place_of_step(self.script, step.kind);
                    let early = if NAMES[part] == "pp" { BUBBLE } else { WAITING };
                    found.push((part, all_there, until));
                    found.push((early, ready, all_there));
                }
                // Computation on another lane, such as a CPU; it may have waited for its lane.
                Work::Compute(_) => found.push((0, ready, until)),
            }
            until = ready;
            let Some(before) = last else { break };
            at = before;
        }
        found.reverse();
        found
    }
}

/// Limit on the ranks with a lane of their own: ours.
const LANES_MAX: usize = 16;

/// Lanes with more pieces are told in this number of equal times, each by its largest part: ours.
const TIMES: u64 = 800;

/// The lanes of some ranks of a job, from `begin` on: all ranks, or evenly many of them and `slowest`.
pub(super) fn lanes(job: &ScriptedJob, ranks: &[&RankTimes], begin: Time, slowest: u32) -> Vec<LaneFacts> {
    let Some(begun) = ranks.iter().filter_map(|rank| rank.begun).min().filter(|_| job.keeps_steps) else {
        return Vec::new();
    };
    let count = ranks.len().min(LANES_MAX);
    let mut chosen: Vec<usize> = (0..count).map(|n| n * ranks.len() / count).collect();
    let slowest = ranks.iter().position(|rank| rank.rank == slowest).unwrap_or(0);
    if !chosen.contains(&slowest) {
        chosen[count - 1] = slowest;
        chosen.sort_unstable();
    }
    let end = ranks.iter().filter_map(|rank| rank.iterations.last()).max().copied();
    let begins = Begins::new(job, ranks);
    let rest = if job.scripts[0].kinds().iter().any(|kind| kind == "send") { BUBBLE } else { WAITING };
    let lane = |place: usize| {
        let rank = ranks[place];
        let mut pieces: Vec<(usize, Time, Time)> = Vec::new();
        let mut piece = |part: usize, from: Time, until: Time| {
            let from = from.max(begin);
            match pieces.last_mut() {
                _ if until <= from => {}
                Some(last) if last.0 == part => last.2 = until,
                _ => pieces.push((part, from, until)),
            }
        };
        let until = walk(job, rank, &begins, begun, &mut piece);
        if let Some(end) = end {
            piece(rest, until, end);
        }
        let told = |(part, from, until): (usize, Time, Time)| {
            (NAMES[part].to_string(), from.since(begin).as_us(), until.since(begin).as_us())
        };
        LaneFacts {
            rank: rank.rank,
            host: format!("host{}", job.hosts[rank.rank as usize].0),
            role: job.roles[rank.rank as usize],
            pieces: coarse(pieces).into_iter().map(told).collect(),
        }
    };
    chosen.into_iter().map(lane).collect()
}

/// At most about [`TIMES`] pieces: each of as many equal times has its largest part.
fn coarse(pieces: Vec<(usize, Time, Time)>) -> Vec<(usize, Time, Time)> {
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return pieces };
    if pieces.len() as u64 <= TIMES {
        return pieces;
    }
    let (begin, each) = (first.1, (last.2.since(first.1).0 / TIMES).max(1));
    let edge = |n: u64| if n == TIMES { last.2 } else { Time(begin.0 + n * each) };
    let mut out: Vec<(usize, Time, Time)> = Vec::new();
    let mut next = 0;
    for n in 0..TIMES {
        let (from, until) = (edge(n), edge(n + 1));
        let mut shares = [0u64; NAMES.len()];
        while let Some((part, a, b)) = pieces.get(next) {
            shares[*part] += (*b).min(until).since((*a).max(from).min(until)).0;
            if *b > until {
                break;
            }
            next += 1;
        }
        let part = (0..NAMES.len()).rev().max_by_key(|part| shares[*part]).unwrap_or(0);
        match out.last_mut() {
            Some(last) if last.0 == part => last.2 = until,
            _ => out.push((part, from, until)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_pieces_are_told_by_the_largest_of_each_time() {
        // Nine of ten computing, one of ten waiting; and a long wait at the end.
        let mut pieces: Vec<(usize, Time, Time)> = Vec::new();
        for n in 0..1000 {
            pieces.push((0, Time(n * 100), Time(n * 100 + 90)));
            pieces.push((WAITING, Time(n * 100 + 90), Time(n * 100 + 100)));
        }
        pieces.push((WAITING, Time(100_000), Time(160_000)));
        let few = coarse(pieces.clone());
        assert_eq!(few, [(0, Time(0), Time(100_000)), (WAITING, Time(100_000), Time(160_000))]);
        assert_eq!(coarse(pieces[..10].to_vec()), pieces[..10]);
    }
}

//! Goes through a trace once on a network without queues: finds the sender of each message that a rank waits for, and
//! the operations that would wait for ever.
//!
//! Messages match as in MPI: by sender and tag, in the order in which they were sent and waited for. Which message a
//! rank gets that waits for any sender depends on times; it is the one that was sent first in this rehearsal. The run
//! keeps that choice, so it ends, too: its order of events is one that the rehearsal has shown to be possible.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use strandway_collective::Lists;
use strandway_import::trace::{ANY, Does, RankTrace, Trace};
use strandway_proto::units::{Span, Time};

/// A collective of a trace.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The number of its group.
    pub(super) group: u32,
    /// The operation of its first member: kind and bytes.
    pub(super) does: Does,
    /// Rank and operation of that member.
    pub(super) first: (u32, u32),
}

/// The findings of a rehearsal.
#[derive(Debug, Default)]
pub(super) struct Rehearsal {
    /// For each rank the sender of each message that it waits for, by operation: rank and operation.
    pub(super) senders: Vec<BTreeMap<u32, (u32, u32)>>,
    /// Messages that no rank waits for.
    pub(super) unheard: u64,
    /// When the last operation ended: a lower bound, since a rank computes on all lanes at once, and collectives end
    /// when their last member begins.
    pub(super) end: Span,
    /// Of an operation that never ends: its rank and its place.
    pub(super) stuck: Option<(u32, u32)>,
}

/// A message that was sent, or that a rank waits for, with the number of its turn.
type Sent = (u64, (u32, u32), Time);
type Wanted = (u64, u32);

/// One rank.
struct Player<'a> {
    trace: &'a RankTrace,
    waits: Vec<u32>,
    /// The operations that wait for the end of each one, and for its begin.
    ended: Lists,
    begun: Lists,
    /// Messages that have arrived and that no rank waits for yet, by sender and tag.
    sent: BTreeMap<(u32, u32), VecDeque<Sent>>,
    /// Operations that wait for a message, by sender and tag (either may be [`ANY`]).
    wanted: BTreeMap<(u32, u32), VecDeque<Wanted>>,
    left: usize,
}

impl<'a> Player<'a> {
    fn new(trace: &'a RankTrace) -> Player<'a> {
        let count = trace.operations.len();
        let mut waits: Vec<u32> = (0..count).map(|place| trace.needs_of(place).len() as u32).collect();
        trace.begins.iter().for_each(|(later, _)| waits[*later as usize] += 1);
        let needs = (0..count).flat_map(|place| trace.needs_of(place).iter().map(move |&need| (need, place as u32)));
        let begins = trace.begins.iter().map(|&(later, before)| (before, later));
        let (ended, begun) = (Lists::new(count, needs), Lists::new(count, begins));
        Player { trace, waits, ended, begun, sent: BTreeMap::new(), wanted: BTreeMap::new(), left: count }
    }

    /// Takes the operation that has waited longest for a message from `from` with `tag`.
    fn take_wanted(&mut self, from: u32, tag: u32) -> Option<u32> {
        let keys = [(from, tag), (from, ANY), (ANY, tag), (ANY, ANY)];
        let first = |key: &(u32, u32)| Some((self.wanted.get(key)?.front()?.0, *key));
        let (_, key) = keys.iter().filter_map(first).min()?;
        let queue = self.wanted.get_mut(&key)?;
        let taken = queue.pop_front().map(|(_, place)| place);
        if queue.is_empty() {
            self.wanted.remove(&key);
        }
        taken
    }

    /// Takes the first message that was sent of those that match.
    fn take_sent(&mut self, from: u32, tag: u32) -> Option<Sent> {
        let key = if from != ANY && tag != ANY {
            self.sent.contains_key(&(from, tag)).then_some((from, tag))?
        } else {
            let fits = |(key, queue): (&(u32, u32), &VecDeque<Sent>)| {
                let fits = (from == ANY || key.0 == from) && (tag == ANY || key.1 == tag);
                queue.front().filter(|_| fits).map(|sent| (sent.0, *key))
            };
            self.sent.iter().filter_map(fits).min()?.1
        };
        let queue = self.sent.get_mut(&key)?;
        let taken = queue.pop_front();
        if queue.is_empty() {
            self.sent.remove(&key);
        }
        taken
    }
}

/// The whole stage.
struct Stage<'a, T> {
    players: Vec<Player<'a>>,
    calls: &'a [Call],
    /// The call of each collective, by rank and operation.
    call_of: &'a BTreeMap<(u32, u32), u32>,
    /// Members that have not begun each call, and those that have.
    missing: Vec<(u32, Vec<(u32, u32)>)>,
    transfer: T,
    /// Ends of operations.
    ends: BinaryHeap<Reverse<(Time, u32, u32)>>,
    turn: u64,
    found: Rehearsal,
}

/// Rehearses a trace. `members` has the size of each call's group; `transfer(from, to, bytes)` is the time of a message
/// between two ranks without queues.
pub(super) fn rehearse(
    trace: &Trace,
    calls: &[Call],
    call_of: &BTreeMap<(u32, u32), u32>,
    members: impl Fn(u32) -> u32,
    transfer: impl Fn(u32, u32, u64) -> Span,
) -> Rehearsal {
    let players: Vec<Player<'_>> = trace.ranks.iter().map(Player::new).collect();
    // If one rank stands for all, a collective begins everywhere at the same time.
    let size = |call: &Call| if trace.alike { 1 } else { members(call.group) };
    let missing = calls.iter().map(|call| (size(call), Vec::new())).collect();
    let found = Rehearsal { senders: vec![BTreeMap::new(); players.len()], ..Rehearsal::default() };
    let mut stage = Stage { players, calls, call_of, missing, transfer, ends: BinaryHeap::new(), turn: 0, found };
    for rank in 0..stage.players.len() as u32 {
        let free = stage.players[rank as usize].waits.iter().zip(0u32..).filter(|(waits, _)| **waits == 0);
        let free: Vec<u32> = free.map(|(_, place)| place).collect();
        free.into_iter().for_each(|place| stage.begin(Time::ZERO, rank, place));
    }
    while let Some(Reverse((now, rank, place))) = stage.ends.pop() {
        stage.found.end = Span(stage.found.end.0.max(now.0));
        stage.players[rank as usize].left -= 1;
        for at in 0..stage.players[rank as usize].ended.of(place).len() {
            let next = stage.players[rank as usize].ended.of(place)[at];
            stage.release(now, rank, next);
        }
    }
    stage.close()
}

impl<T: Fn(u32, u32, u64) -> Span> Stage<'_, T> {
    fn release(&mut self, now: Time, rank: u32, place: u32) {
        let left = &mut self.players[rank as usize].waits[place as usize];
        *left -= 1;
        if *left == 0 {
            self.begin(now, rank, place);
        }
    }

    fn begin(&mut self, now: Time, rank: u32, place: u32) {
        let mut begun = vec![place];
        while let Some(place) = begun.pop() {
            self.perform(now, rank, place);
            let player = &mut self.players[rank as usize];
            for &next in player.begun.of(place) {
                player.waits[next as usize] -= 1;
                if player.waits[next as usize] == 0 {
                    begun.push(next);
                }
            }
        }
    }

    fn perform(&mut self, now: Time, rank: u32, place: u32) {
        self.turn += 1;
        let turn = self.turn;
        match self.players[rank as usize].trace.operations[place as usize].does {
            Does::Compute { span, .. } => self.ends.push(Reverse((now + span, rank, place))),
            Does::Send { to, bytes, tag } => {
                let at = now + (self.transfer)(rank, to, bytes);
                self.ends.push(Reverse((at, rank, place)));
                let receiver = &mut self.players[to as usize];
                match receiver.take_wanted(rank, tag) {
                    Some(wanted) => {
                        self.ends.push(Reverse((at, to, wanted)));
                        self.found.senders[to as usize].insert(wanted, (rank, place));
                    }
                    None => receiver.sent.entry((rank, tag)).or_default().push_back((turn, (rank, place), at)),
                }
            }
            Does::Receive { from, tag } => {
                let player = &mut self.players[rank as usize];
                match player.take_sent(from, tag) {
                    Some((_, sender, at)) => {
                        self.ends.push(Reverse((at.max(now), rank, place)));
                        self.found.senders[rank as usize].insert(place, sender);
                    }
                    None => player.wanted.entry((from, tag)).or_default().push_back((turn, place)),
                }
            }
            Does::Collective { .. } => {
                let Some(&call) = self.call_of.get(&(rank, place)) else {
                    return self.ends.push(Reverse((now, rank, place)));
                };
                let (missing, there) = &mut self.missing[call as usize];
                there.push((rank, place));
                *missing = missing.saturating_sub(1);
                if *missing == 0 {
                    let there = std::mem::take(there);
                    self.ends.extend(there.into_iter().map(|(rank, place)| Reverse((now, rank, place))));
                }
            }
        }
    }

    fn close(mut self) -> Rehearsal {
        self.found.unheard =
            self.players.iter().flat_map(|player| player.sent.values()).map(|queue| queue.len() as u64).sum();
        // Operations that have begun and never ended: those for which others wait in vain.
        let wanted = (0u32..).zip(&self.players).find_map(|(rank, player)| {
            let places = player.wanted.values().flatten().map(|(_, place)| *place);
            places.min().map(|place| (rank, place))
        });
        let called = self.missing.iter().zip(self.calls).find_map(|((_, there), _)| there.first().copied());
        let left = self.players.iter().any(|player| player.left > 0);
        self.found.stuck = wanted.or(called).filter(|_| left);
        self.found
    }
}

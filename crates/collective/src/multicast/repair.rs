//! Fetches missing chunks: which chunks to ask for, which rank to ask, and the chunks that an asked rank sends.

use super::messages::Run;
use super::rebuilding::Rebuilding;
use super::{Multicast, Order};
use std::collections::{BTreeMap, BTreeSet};
use strandway_proto::partial::Progress;
use strandway_proto::units::{Span, Time};

/// A spared root casts a chunk again this many times; then it sends the chunk to each rank that asks. Ours.
const CASTS_AGAIN: u32 = 2;
/// Limit on the fetches of a rank that are not answered. Ours: 128 chunks of 4 KiB at 400 Gb/s keep the neighbour busy
/// for 10 us.
const WINDOW: u32 = 128;

/// Limit on the chunks of one fetch. Ours.
const RUN_MAX: u32 = 64;

/// Limit on the requests that a rank remembers. Ours: a neighbour has fewer under way.
const WAITING_MAX: usize = 256;

/// A fetch that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct Ask {
    first: u32,
    count: u32,
    /// The rank that was asked.
    of: u32,
    /// When it was asked last.
    at: Time,
    /// How often in a row it was asked without an answer.
    silent: u32,
}

/// The client's side: the fetches of one rank.
#[derive(Debug)]
pub(super) struct Fetching {
    rank: u32,
    /// How many shares have been searched, in order; and the next chunk of the present share.
    shares: u32,
    within: u32,
    asks: Vec<Ask>,
    /// Shares of which the neighbour lacks chunks too: their root is asked.
    lacking: BTreeSet<u32>,
    /// True if the multicast is over as far as this rank knows. Then it fetches all missing chunks; before, only those
    /// known to be lost.
    pub(super) begun: bool,
    /// The only rank that may be asked, if ranks form a chain.
    pub(super) upstream: Option<u32>,
}

/// The chunks that a rank has, and its parity.
#[derive(Clone, Copy)]
pub(super) struct Lacks<'a> {
    pub(super) progress: &'a Progress,
    pub(super) rebuilding: Option<&'a Rebuilding>,
}

impl Lacks<'_> {
    /// True if this chunk is missing and parity cannot replace it.
    fn needs(&self, chunk: u32) -> bool {
        !self.progress.has_packet(chunk) && self.rebuilding.is_none_or(|r| r.is_wanted(chunk, self.progress))
    }
}

/// The result of a check of all fetches.
pub(super) enum Look {
    /// Send these control messages: the receiver and its two runs.
    Send(Vec<(u32, [Run; 2])>),
    /// This rank has been asked too often without an answer.
    Silent(u32),
}

impl Fetching {
    pub(super) fn new(rank: u32) -> Fetching {
        Fetching {
            rank,
            shares: 0,
            within: 0,
            asks: Vec::new(),
            lacking: BTreeSet::new(),
            begun: false,
            upstream: None,
        }
    }

    /// How long an answer may take: four round trips, and twice the time of the chunks that may leave before it.
    fn answer_timeout(op: &Multicast) -> Span {
        let chunk = u64::from(op.layout.chunk_bytes()) + u64::from(op.header);
        let batch = u64::from(WINDOW + op.batch()) * chunk;
        op.rtt * 2 + op.rate.time_for(strandway_proto::Bytes(batch)) * 2
    }

    /// When the oldest fetch has waited long enough.
    pub(super) fn next(&self, op: &Multicast) -> Time {
        self.asks.iter().map(|ask| ask.at).min().map_or(Time::NEVER, |at| at + Fetching::answer_timeout(op))
    }

    /// The share at a position of the fetch order; `None` after the last one.
    fn share(&self, op: &Multicast, place: u32) -> Option<u32> {
        let shares = op.layout.shares();
        if op.root.is_some() {
            return (place == 0).then_some(0);
        }
        if place + 1 >= shares {
            return None;
        }
        Some(match op.recovery.order {
            Order::Ascending => place + u32::from(place >= self.rank),
            Order::NearestFirst => (self.rank + 1 + place) % shares,
            Order::FarthestFirst => (self.rank + shares - 1 - place) % shares,
        })
    }

    /// The next run of missing chunks that has not been asked for, in the present share or a later one.
    fn find(&mut self, op: &Multicast, lacks: &Lacks<'_>) -> Option<(u32, u32)> {
        while let Some(share) = self.share(op, self.shares) {
            let (base, chunks) = (op.layout.first(share), op.layout.chunks(share));
            if !lacks.progress.has_chunk(share) {
                while self.within < chunks && !lacks.needs(base + self.within) {
                    self.within += 1;
                }
                let first = self.within;
                while self.within < chunks && self.within - first < RUN_MAX && lacks.needs(base + self.within) {
                    self.within += 1;
                }
                if self.within > first {
                    return Some((base + first, self.within - first));
                }
            }
            // With blocking fetches, a later share waits until this one is complete.
            (self.shares, self.within) = (self.shares + 1, 0);
        }
        None
    }

    /// True if a chunk of this run is still missing.
    fn is_open(ask: &Ask, progress: &Progress) -> bool {
        (ask.first..ask.first + ask.count).any(|chunk| !progress.has_packet(chunk))
    }

    /// The missing parts of a run.
    fn holes(ask: &Ask, progress: &Progress) -> Vec<(u32, u32)> {
        let mut holes: Vec<(u32, u32)> = Vec::new();
        for chunk in (ask.first..ask.first + ask.count).filter(|chunk| !progress.has_packet(*chunk)) {
            match holes.last_mut() {
                Some((first, count)) if *first + *count == chunk => *count += 1,
                _ => holes.push((chunk, 1)),
            }
        }
        holes
    }

    /// Sends new fetches as far as limits allow, and repeats fetches that were not answered in time.
    pub(super) fn find_missing(
        &mut self,
        now: Time,
        op: &Multicast,
        lacks: &Lacks<'_>,
        heard: impl Fn(u32) -> Time,
    ) -> Look {
        let progress = lacks.progress;
        self.asks.retain(|ask| Fetching::is_open(ask, progress));
        let patience = Fetching::answer_timeout(op);
        let neighbour = self.upstream.unwrap_or(op.neighbour(self.rank));
        let mut fresh: Vec<Ask> = Vec::new();
        let (late, mut waiting): (Vec<Ask>, Vec<Ask>) = self.asks.drain(..).partition(|ask| ask.at + patience <= now);
        for ask in late {
            let mut silent = if heard(ask.of) >= ask.at { 0 } else { ask.silent + 1 };
            if silent >= op.silent_max {
                return Look::Silent(ask.of);
            }
            let mut of = ask.of;
            let next = op.after(self.rank, of, op.layout.share_of(ask.first));
            if op.recovery.direct && self.upstream.is_none() && of != next {
                (of, silent) = (next, 0);
            }
            let again = Fetching::holes(&ask, progress).into_iter();
            fresh.extend(again.map(|(first, count)| Ask { first, count, of, at: now, silent }));
        }
        while self.begun {
            let open = |asks: &[Ask]| asks.iter().map(|ask| ask.count).sum::<u32>();
            if open(&waiting) + open(&fresh) >= WINDOW {
                break;
            }
            let mut shares: Vec<u32> = waiting.iter().chain(&fresh).map(|ask| op.layout.share_of(ask.first)).collect();
            shares.sort_unstable();
            shares.dedup();
            let (shares_before, within_before) = (self.shares, self.within);
            let Some((first, count)) = self.find(op, lacks) else { break };
            let share = op.layout.share_of(first);
            if !shares.contains(&share) && shares.len() >= op.recovery.under_way as usize {
                (self.shares, self.within) = (shares_before, within_before);
                break;
            }
            let lacking = self.lacking.contains(&share) && !op.spare_root;
            let of = if lacking { op.root_of(share) } else { neighbour };
            fresh.push(Ask { first, count, of, at: now, silent: 0 });
        }
        // Two runs for the same rank share a control message.
        let mut controls: Vec<(u32, [Run; 2])> = Vec::new();
        for ask in &fresh {
            let run = (ask.first, ask.count as u16);
            match controls.last_mut() {
                Some((of, runs)) if *of == ask.of && runs[1].1 == 0 => runs[1] = run,
                _ => controls.push((ask.of, [run, (0, 0)])),
            }
        }
        waiting.append(&mut fresh);
        self.asks = waiting;
        Look::Send(controls)
    }

    /// The neighbour lacks the chunks of these runs too. If the root may be asked, ask it at once for these chunks, and
    /// from now on for all missing chunks of their shares.
    pub(super) fn deny(&mut self, now: Time, op: &Multicast, from: u32, runs: [Run; 2]) {
        if !op.recovery.direct || self.upstream.is_some() {
            return;
        }
        let patience = Fetching::answer_timeout(op);
        for (first, count) in runs.into_iter().filter(|run| run.1 > 0 && run.0 < op.layout.numbers()) {
            self.lacking.insert(op.layout.share_of(first));
            let meets = |ask: &Ask| ask.first < first.saturating_add(u32::from(count)) && first < ask.first + ask.count;
            for ask in self.asks.iter_mut().filter(|ask| ask.of == from && meets(ask)) {
                // Treat the fetch as if its time had expired.
                ask.at = ask.at.min(Time(now.0.saturating_sub(patience.0)));
            }
        }
    }

    /// Asks at once for a chunk whose payload a switch trimmed.
    pub(super) fn ask_for(&mut self, now: Time, op: &Multicast, chunk: u32) -> Option<(u32, [Run; 2])> {
        // Chunks beyond this limit are fetched when the multicast is over.
        if self.asks.len() as u32 >= WINDOW {
            return None;
        }
        if self.asks.iter().any(|ask| (ask.first..ask.first + ask.count).contains(&chunk)) {
            return None;
        }
        let of = self.upstream.unwrap_or(op.neighbour(self.rank));
        self.asks.push(Ask { first: chunk, count: 1, of, at: now, silent: 0 });
        Some((of, [(chunk, 1), (0, 0)]))
    }
}

/// The server's side: the requests of other ranks for chunks of this rank's own share.
#[derive(Debug, Default)]
pub(super) struct Serving {
    /// By chunk: the rank that asked last (if the root is spared: how often the chunk was cast again); when the answer
    /// left or will leave; and when the chunk was cast to all again.
    asked: BTreeMap<u32, (u32, Time, Option<Time>)>,
    /// When all answers will have left, at their pace.
    busy_until: Time,
    /// With blocking fetches: requests for a share that is not complete here, which are answered when it is. The
    /// artifact's server remembers them, too.
    waiting: Vec<(u32, Run)>,
    /// True if only one rank can ask (in a chain), so that no chunk is cast to all again.
    pub(super) one_asks: bool,
}

/// The answer to a part of a request: first chunk and count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// Send these chunks to the rank that asked.
    One(u32, u32),
    /// Cast these chunks to all.
    All(u32, u32),
    /// This rank does not have these chunks.
    NotYet(u32, u32),
}

impl Serving {
    /// Remembers a request until its share is complete here.
    pub(super) fn remember(&mut self, op: &Multicast, from: u32, run: Run) {
        if op.recovery.blocking && self.waiting.len() < WAITING_MAX && !self.waiting.contains(&(from, run)) {
            self.waiting.push((from, run));
        }
    }

    /// Takes a remembered request whose share is complete.
    pub(super) fn take_complete(&mut self, op: &Multicast, progress: &Progress) -> Option<(u32, Run)> {
        let complete = |(_, run): &(u32, Run)| progress.has_chunk(op.layout.share_of(run.0));
        self.waiting.iter().position(complete).map(|at| self.waiting.swap_remove(at))
    }

    /// Answers a request for `count` chunks from `first` on. Chunks beyond the share of `first` are ignored.
    pub(super) fn answer(
        &mut self,
        now: Time,
        op: &Multicast,
        progress: &Progress,
        rank: u32,
        from: u32,
        (first, count): (u32, u32),
    ) -> Vec<Given> {
        let share = op.layout.share_of(first);
        let end = op.layout.first(share) + op.layout.chunks(share);
        let end = first.saturating_add(count).min(end);
        if op.recovery.blocking && !progress.has_chunk(share) {
            return vec![Given::NotYet(first, end.saturating_sub(first))];
        }
        let own = op.root_of(share) == rank && op.recovery.direct && !self.one_asks;
        let mut given: Vec<Given> = Vec::new();
        for chunk in first..end {
            let one = if !progress.has_packet(chunk) {
                Given::NotYet(chunk, 1)
            } else if own {
                match self.again(now, op, chunk, from) {
                    Some(given) => given,
                    None => continue,
                }
            } else {
                Given::One(chunk, 1)
            };
            // Consecutive chunks with the same answer form one run.
            match (given.last_mut(), one) {
                (Some(Given::One(first, count)), Given::One(chunk, _))
                | (Some(Given::All(first, count)), Given::All(chunk, _))
                | (Some(Given::NotYet(first, count)), Given::NotYet(chunk, _))
                    if *first + *count == chunk =>
                {
                    *count += 1;
                }
                _ => given.push(one),
            }
        }
        given
    }

    /// A rank asks for a chunk of this rank's own share. If a second rank asks within a round trip, the chunk is cast
    /// to all, once (multicast sheet, section 6.2, rule 4). A chunk whose answer is on its way or waits to leave is not
    /// sent a second time.
    fn again(&mut self, now: Time, op: &Multicast, chunk: u32, from: u32) -> Option<Given> {
        let left = self.busy_until.max(now) + op.chunk_time();
        let known = self.asked.get(&chunk).copied();
        if op.spare_root {
            // If one receiver asks the root, several receivers lack the chunk. The root casts it to all, once for all
            // requests that arrive before the cast does. After two casts it sends the chunk to each rank that asks,
            // because every cast may fall on the same silent tree. Here the first entry counts casts.
            let casts = known.map_or(0, |(casts, ..)| casts);
            self.busy_until = left;
            if casts >= CASTS_AGAIN {
                return Some(Given::One(chunk, 1));
            }
            if known.is_some_and(|(_, at, _)| at + Fetching::answer_timeout(op) > now) {
                return None;
            }
            self.asked.insert(chunk, (casts + 1, left, Some(left)));
            return Some(Given::All(chunk, 1));
        }
        let (entry, given) = match known {
            Some((_, _, Some(cast))) if cast + op.rtt > now => return None,
            Some((before, at, _)) if at + op.rtt > now => {
                if before == from {
                    return None;
                }
                ((from, left, Some(left)), Given::All(chunk, 1))
            }
            _ => ((from, left, None), Given::One(chunk, 1)),
        };
        self.asked.insert(chunk, entry);
        self.busy_until = left;
        Some(given)
    }
}

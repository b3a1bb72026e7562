//! Counts of messages without an entry of their own: their number, and a histogram of their times.

use std::collections::BTreeMap;
use strandway_proto::HostId;
use strandway_proto::account::{Spent, Wait, Waits};
use strandway_proto::application::Stage;
use strandway_proto::units::{Span, Time};

/// How many of the slowest messages a tally lists.
const SLOWEST: usize = 10;

/// Base-2 logarithm of the number of buckets per factor of two.
const FINE: u32 = 7;

/// A histogram of times. Buckets grow with the time: each is at most 1/128 of its value wide, so the middle of a bucket
/// is at most 0.4 % off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The index of the first bucket in `counts`.
    first: usize,
    counts: Vec<u64>,
    all: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// The bucket of a value: its power of two, and the seven bits after the highest one.
fn bucket(value: u64) -> usize {
    let bits = 64 - value.leading_zeros();
    if bits <= FINE + 1 {
        return value as usize;
    }
    let shift = bits - FINE - 1;
    ((shift as usize) << FINE) + (value >> shift) as usize
}

/// The value in the middle of a bucket.
fn middle(bucket: usize) -> u64 {
    if bucket < 1 << (FINE + 1) {
        return bucket as u64;
    }
    let shift = (bucket >> FINE) - 1;
    let low = ((bucket - (shift << FINE)) as u64) << shift;
    low + (1u64 << shift) / 2
}

impl Histogram {
    /// Adds one time.
    pub fn add(&mut self, time: Span) {
        self.count(bucket(time.0), 1);
        self.min = if self.all == 0 { time.0 } else { self.min.min(time.0) };
        self.max = self.max.max(time.0);
        self.all += 1;
        self.sum += u128::from(time.0);
    }

    fn count(&mut self, bucket: usize, more: u64) {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let missing = self.first - bucket;
            self.counts.splice(0..0, std::iter::repeat_n(0, missing));
            self.first = bucket;
        }
        let at = bucket - self.first;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += more;
    }

    /// Adds all times of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        if other.all == 0 {
            return;
        }
        for (at, &more) in other.counts.iter().enumerate() {
            if more > 0 {
                self.count(other.first + at, more);
            }
        }
        self.min = if self.all == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.all += other.all;
        self.sum += other.sum;
    }

    /// How many times (values) it holds.
    pub fn len(&self) -> u64 {
        self.all
    }

    /// True if it holds none.
    pub fn is_empty(&self) -> bool {
        self.all == 0
    }

    /// The shortest time, exact.
    pub fn min(&self) -> Option<Span> {
        (self.all > 0).then_some(Span(self.min))
    }

    /// The longest time, exact.
    pub fn max(&self) -> Option<Span> {
        (self.all > 0).then_some(Span(self.max))
    }

    /// The mean in ps, exact.
    pub fn mean(&self) -> Option<f64> {
        (self.all > 0).then(|| self.sum as f64 / self.all as f64)
    }

    /// The `n`-th shortest time, counted from 1, at most 0.4 % off. `None` if it holds fewer.
    pub fn nth(&self, n: u64) -> Option<Span> {
        if n == 0 || n > self.all {
            return None;
        }
        let mut behind = 0;
        for (at, &count) in self.counts.iter().enumerate() {
            behind += count;
            if behind >= n {
                return Some(Span(middle(self.first + at).clamp(self.min, self.max)));
            }
        }
        None
    }

    /// The middle and the count of every bucket that is not empty, shortest time first.
    pub fn buckets(&self) -> impl Iterator<Item = (Span, u64)> + '_ {
        let all = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        all.map(|(at, &count)| (Span(middle(self.first + at).clamp(self.min, self.max)), count))
    }
}

/// One of the slowest messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slow {
    /// Time from posting to the sender's completion.
    pub took: Span,
    /// The number of the message.
    pub message: u32,
    /// When it was posted.
    pub started: Time,
}

/// A stage of a message without an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It was posted.
    Started,
    /// Its receiver had all of it.
    Received,
    /// Its sender knew that.
    Finished,
}

/// When a message reached a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// When.
    pub at: Time,
    /// The number of the message.
    pub message: u32,
    /// The stage.
    pub reached: Reached,
}

/// Counts and times of the messages of one collective.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages posted.
    pub started: u64,
    /// Messages that arrived.
    pub received: u64,
    /// Messages whose sender knows that they arrived.
    pub finished: u64,
    /// When the first message was posted; `None` if there is none.
    pub first: Option<Time>,
    /// When the last message arrived; `None` if none has.
    pub last: Option<Time>,
    /// Hosts whose part was given up, counted by the silent host that was the reason.
    pub aborted: BTreeMap<HostId, u64>,
    /// Hosts whose part was done in a chain from host to host, because no plane was common to all.
    pub chained: u64,
    /// Completion times.
    pub completion: Histogram,
    /// The ten slowest messages, slowest first. Among equal times, the lowest numbers.
    pub slowest: Vec<Slow>,
    /// Time of the senders' connections by activity, from the posting of each message to its end, summed over finished
    /// messages; zero unless the plan asks for accounts.
    pub spent: Spent,
    /// Where the messages' packets waited; likewise.
    pub waited: Waited,
    /// The stages of every message, in no particular order; `None` unless the plan asks for rows.
    pub log: Option<Vec<Noted>>,
}

/// Where packets waited longest on their way, summed over packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// Packets.
    pub packets: u64,
    /// Waits of those that waited longest at the link to the receiver.
    pub last_hop: Span,
    /// Waits of all others.
    pub elsewhere: Span,
    /// The part of `elsewhere` by the link at which most packets of their connection waited.
    pub links: BTreeMap<u32, Span>,
}

impl Waited {
    /// Adds the waits of a connection since an earlier reading of it.
    pub fn add(&mut self, now: &Waits, before: &Waits) {
        // A connection that was closed and opened again counts from zero.
        let before = if before.packets > now.packets { &Waits::default() } else { before };
        let elsewhere = Span(now.elsewhere.0.saturating_sub(before.elsewhere.0));
        self.packets += now.packets - before.packets;
        self.last_hop += Span(now.last_hop.0.saturating_sub(before.last_hop.0));
        self.elsewhere += elsewhere;
        if elsewhere > Span::ZERO {
            *self.links.entry(now.link & !Wait::LAST_HOP).or_default() += elsewhere;
        }
    }

    /// Adds the waits of other packets.
    pub fn merge(&mut self, other: &Waited) {
        self.packets += other.packets;
        self.last_hop += other.last_hop;
        self.elsewhere += other.elsewhere;
        for (&link, &wait) in &other.links {
            *self.links.entry(link).or_default() += wait;
        }
    }
}

impl Tally {
    /// An empty tally; with `rows`, it keeps the stages of every message.
    pub fn new(rows: bool) -> Tally {
        Tally { log: rows.then(Vec::new), ..Tally::default() }
    }

    /// A message is posted.
    pub fn start(&mut self, message: u32, at: Time) {
        self.started += 1;
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        self.log(message, Reached::Started, at);
    }

    /// A message has arrived.
    pub fn receive(&mut self, message: u32, at: Time) {
        self.received += 1;
        self.last = self.last.max(Some(at));
        self.log(message, Reached::Received, at);
    }

    fn log(&mut self, message: u32, reached: Reached, at: Time) {
        if let Some(log) = &mut self.log {
            log.push(Noted { at, message, reached });
        }
    }

    /// The sender of a message knows that it has arrived.
    pub fn finish(&mut self, message: u32, started: Time, at: Time) {
        self.finished += 1;
        let took = at.since(started);
        self.completion.add(took);
        self.log(message, Reached::Finished, at);
        self.note_slow(Slow { took, message, started });
    }

    /// Counts a stage of a host's part in a collective that has no messages of its own. The part began at `started` and
    /// counts like a message.
    pub fn note(&mut self, message: u32, stage: Stage, started: Time, at: Time) {
        match stage {
            Stage::Begun => self.start(message, at),
            Stage::Complete => self.receive(message, at),
            Stage::Closed => self.finish(message, started, at),
            Stage::Aborted { dead } => self.abort(dead),
            Stage::Chained => self.chained += 1,
        }
    }

    /// A host's part was given up because host `dead` was silent.
    pub fn abort(&mut self, dead: HostId) {
        *self.aborted.entry(dead).or_default() += 1;
    }

    fn note_slow(&mut self, slow: Slow) {
        let rank = |s: &Slow| (std::cmp::Reverse(s.took), s.message);
        if self.slowest.len() == SLOWEST && self.slowest.last().is_some_and(|last| rank(last) < rank(&slow)) {
            return;
        }
        let at = self.slowest.partition_point(|s| rank(s) < rank(&slow));
        self.slowest.insert(at, slow);
        self.slowest.truncate(SLOWEST);
    }

    /// Adds the counts of another part of the fabric for the same collective.
    pub fn merge(&mut self, other: &Tally) {
        self.started += other.started;
        self.received += other.received;
        self.finished += other.finished;
        self.first = match (self.first, other.first) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.last = self.last.max(other.last);
        for (&dead, count) in &other.aborted {
            *self.aborted.entry(dead).or_default() += count;
        }
        self.chained += other.chained;
        self.completion.merge(&other.completion);
        other.slowest.iter().for_each(|slow| self.note_slow(*slow));
        self.spent += other.spent;
        self.waited.merge(&other.waited);
        if let Some(log) = &other.log {
            self.log.get_or_insert_default().extend(log);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_within_their_error(
            mut times in prop::collection::vec((0u32..50, any::<u64>()), 1..300), cut in 0usize..300
        ) {
            let times: Vec<u64> = times.drain(..).map(|(shift, t)| t >> (shift + 8)).collect();
            let mut sorted = times.clone();
            sorted.sort_unstable();
            // In two halves, and merged.
            let (mut left, mut right) = (Histogram::default(), Histogram::default());
            for (i, &t) in times.iter().enumerate() {
                if i < cut { left.add(Span(t)) } else { right.add(Span(t)) }
            }
            left.merge(&right);
            prop_assert_eq!(left.len(), times.len() as u64);
            prop_assert_eq!((left.min(), left.max()), (sorted.first().map(|t| Span(*t)), sorted.last().map(|t| Span(*t))));
            for (i, &right) in sorted.iter().enumerate() {
                let found = left.nth(i as u64 + 1).expect("that many").0 as f64;
                prop_assert!((found - right as f64).abs() <= right as f64 * 0.004, "{} for {}", found, right);
            }
            prop_assert_eq!(left.nth(times.len() as u64 + 1), None);
            prop_assert_eq!(left.buckets().map(|b| b.1).sum::<u64>(), times.len() as u64);
        }

        #[test]
        fn tallies_of_parts_add_up_to_that_of_the_whole(times in prop::collection::vec((0u64..50, 0u64..50), 0..60), cut in 0usize..60) {
            let (mut whole, mut left, mut right) = (Tally::default(), Tally::default(), Tally::default());
            for (i, &(from, took)) in times.iter().enumerate() {
                let part = if i < cut { &mut left } else { &mut right };
                for tally in [&mut whole, part] {
                    tally.start(i as u32, Time(from));
                    tally.receive(i as u32, Time(from + took));
                    tally.finish(i as u32, Time(from), Time(from + took));
                }
            }
            right.merge(&left);
            prop_assert_eq!(&right, &whole);
            prop_assert!(whole.slowest.len() == times.len().min(10));
        }
    }
}

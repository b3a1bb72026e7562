//! The entries of a batch in the order in which their stops handle them.

use super::GROUP;
use super::batch::{Batch, ones};
use crate::road::Transit;

/// The entries of each stop are first put into at most `1 << BUCKET_BITS` buckets of time, then sorted.
const BUCKET_BITS: u32 = 4;
/// The entries of a group with one stop are first put into at most `1 << ONE_BITS` buckets of time, then sorted.
const ONE_BITS: u32 = 12;
/// The target number of entries per bucket.
const BUCKET: usize = 1;

/// The entries of a batch in order of (stop, time, source).
#[derive(Default)]
pub(crate) struct Order {
    entries: Vec<Transit>,
    /// The index of each bucket's first entry.
    starts: Vec<u32>,
    /// The bucket of each entry of the batch.
    buckets: Vec<u16>,
    /// The binary logarithm of the number of buckets per stop.
    bits: u32,
    /// Entries of a group of one stop.
    count: usize,
    /// Stops that have entries, or that are visited without one, in order.
    stops: Vec<u8>,
}

impl Order {
    /// Sorts a batch; windows have `span` ps.
    pub(crate) fn arrange(&mut self, batch: &Batch, span: u64) {
        let count = batch.entries();
        let bits = (count / (GROUP * BUCKET)).checked_ilog2().map_or(0, |b| b + 1).min(BUCKET_BITS);
        let scale = (1u64 << (32 + bits)) / span;
        let buckets = GROUP << bits;
        self.bits = bits;
        self.starts.clear();
        self.starts.resize(buckets + 2, 0);
        let starts = &mut self.starts[..];
        if self.entries.len() < count {
            self.entries.resize(count, Transit::note(0, 0));
        }
        if self.buckets.len() < count {
            self.buckets.resize(count, 0);
        }
        let entries = &mut self.entries[..count];
        let mut places = self.buckets.iter_mut();
        batch.each_at_first(|e| {
            let bucket = (usize::from(e.place()) << bits) + ((e.offset() * scale) >> 32) as usize;
            let bucket = bucket & (buckets - 1);
            starts[bucket + 2] += 1;
            if let Some(place) = places.next() {
                *place = bucket as u16;
            }
        });
        let mut sum = 0;
        for start in &mut starts[2..] {
            sum += *start;
            *start = sum;
        }
        // Until its entries are in place, a bucket's start stands one place further to the right.
        self.stops.clear();
        let mut touched = batch.visits;
        // A few entries are read faster than the starts of all stops.
        if count < GROUP {
            self.buckets[..count].iter().for_each(|bucket| touched.add(usize::from(*bucket) >> bits));
        } else {
            for (word, set) in touched.0.iter_mut().enumerate() {
                let first_of = |stop: usize| starts[((word * 64 + stop) << bits) + 1];
                *set = (0..64).fold(*set, |set, n| set | u64::from(first_of(n) != first_of(n + 1)) << n);
            }
        }
        for (word, set) in touched.0.into_iter().enumerate() {
            self.stops.extend(ones(set).map(|bit| (word * 64 + bit) as u8));
        }
        let mut places = self.buckets.iter();
        batch.each(|e| {
            let bucket = places.next().map_or(0, |place| usize::from(*place));
            let start = &mut starts[bucket + 1];
            entries[*start as usize] = *e;
            *start += 1;
        });
        for &stop in &self.stops {
            let stop = usize::from(stop);
            let (from, to) = (self.starts[stop << bits] as usize, self.starts[(stop + 1) << bits] as usize);
            sort(&mut self.entries[from..to], bits);
        }
    }

    /// Sorts the entries of a group with a single stop.
    pub(crate) fn arrange_one(&mut self, batch: &Batch, span: u64) {
        let count = batch.entries();
        self.bits = count.max(1).ilog2().min(ONE_BITS);
        let scale = (1u64 << (32 + self.bits)) / span;
        let bucket = |e: &Transit| ((e.offset() * scale) >> 32) as usize & ((1 << ONE_BITS) - 1);
        self.starts.clear();
        self.starts.resize((1 << self.bits) + 1, 0);
        let starts = &mut self.starts[..];
        batch.each(|e| starts[bucket(e) + 1] += 1);
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        if self.entries.len() < count {
            self.entries.resize(count, Transit::note(0, 0));
        }
        let entries = &mut self.entries[..];
        batch.each(|e| {
            let start = &mut starts[bucket(e)];
            entries[*start as usize] = *e;
            *start += 1;
        });
        self.count = count;
        sort(&mut self.entries[..count], ONE_BITS);
    }

    /// The entries of a group with a single stop.
    pub(crate) fn all(&self) -> &[Transit] {
        &self.entries[..self.count]
    }

    /// The entries of the `n`-th stop of the group.
    #[inline]
    pub(crate) fn of(&self, n: usize) -> &[Transit] {
        &self.entries[self.starts[n << self.bits] as usize..self.starts[(n + 1) << self.bits] as usize]
    }

    /// The stops of the group to visit, in order.
    #[inline]
    pub(crate) fn stops(&self) -> &[u8] {
        &self.stops
    }
}

/// Sorts one stop's entries by (time, source). They are nearly in order already.
#[inline]
fn sort(entries: &mut [Transit], bits: u32) {
    if entries.len() > 32 << bits {
        return entries.sort_by_key(Transit::key);
    }
    for i in 1..entries.len() {
        let key = entries[i].key();
        if key >= entries[i - 1].key() {
            continue;
        }
        let entry = entries[i];
        let mut at = i;
        while at > 0 && key < entries[at - 1].key() {
            entries[at] = entries[at - 1];
            at -= 1;
        }
        entries[at] = entry;
    }
}

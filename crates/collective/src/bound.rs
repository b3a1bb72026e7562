//! The shortest time that a collective can take on a fabric without queues caused by other traffic.

use crate::schedule::{Algorithm, Rank, Schedule};
use strandway_proto::units::Span;

impl Schedule {
    /// The time from a common start until the last rank has received all its messages, by arithmetic. It is the longer
    /// of two times: the longest chain of messages that wait for each other, and the time in which a NIC sends all
    /// messages of one rank.
    ///
    /// `busy(bytes)` is the time for which a message occupies a NIC. `transfer(from, to, bytes)` is the time from the
    /// first bit leaving `from` until the last bit arrives at `to`, without queues. A transfer of 0 bytes stands for an
    /// acknowledgement.
    ///
    /// With one part, rings and halving reach this time exactly (nearly, if acknowledgements share the NIC's rate).
    /// With several parts, and for an all-to-all, it is a lower bound, because it ignores queues where messages meet.
    pub fn bound(&self, busy: impl Fn(u64) -> Span, transfer: impl Fn(Rank, Rank, u64) -> Span) -> Span {
        let chain = match self.algorithm() {
            Algorithm::RingAllReduce | Algorithm::RingReduceScatter | Algorithm::RingAllGather => {
                let chain = u128::from(self.ring_chain(&transfer).0);
                // If it is shortened, it does some of its steps.
                Span((chain * u128::from(self.steps()) / u128::from(self.whole_steps())) as u64)
            }
            Algorithm::HalvingDoubling | Algorithm::RecursiveDoubling => self.halving_chain(&transfer),
            Algorithm::LinearAllGather => self.window_chain(self.steps(), &transfer),
            Algorithm::AllToAll { window } => self.window_chain(window, &transfer),
        };
        if self.parts() == 1 && !matches!(self.algorithm(), Algorithm::AllToAll { .. } | Algorithm::LinearAllGather) {
            return chain;
        }
        let mut sent = Span::ZERO;
        let mut way = Span(u64::MAX);
        for send in self.sends(Rank(0)) {
            let alone = busy(send.bytes);
            sent = Span(sent.0.saturating_add(alone.0));
            way = Span(way.0.min(transfer(Rank(0), send.to, send.bytes).0.saturating_sub(alone.0)));
        }
        Span(chain.0.max(sent.0.saturating_add(way.0)))
    }

    /// The time of the slowest block. A block travels once around the ring, in an all-reduce nearly twice. In a
    /// reduce-scatter it skips the leg behind its owner, in an all-gather the leg before its owner.
    fn ring_chain(&self, transfer: &impl Fn(Rank, Rank, u64) -> Span) -> Span {
        let n = self.ranks();
        let gathers = self.algorithm() != Algorithm::RingReduceScatter;
        let scatters = self.algorithm() != Algorithm::RingAllGather;
        // Blocks have at most two lengths. The longer blocks come first.
        let lengths: Vec<u64> = (0..n).map(|r| self.block_bytes(r)).collect();
        let mut longest = 0;
        let mut known: Option<(u64, Vec<u64>, u64)> = None;
        for block in 0..n as usize {
            if known.as_ref().is_none_or(|(length, ..)| *length != lengths[block]) {
                let legs: Vec<u64> = (0..n).map(|r| transfer(Rank(r), Rank((r + 1) % n), lengths[block]).0).collect();
                let all = legs.iter().sum();
                known = Some((lengths[block], legs, all));
            }
            let Some((_, legs, all)) = &known else { continue };
            let before = (block + n as usize - 1) % n as usize;
            let mut time = 0;
            if scatters {
                time += all - legs[block];
            }
            if gathers {
                time += all - legs[before];
            }
            longest = longest.max(time);
        }
        Span(longest)
    }

    /// The bytes of the first part of a block.
    fn block_bytes(&self, block: u32) -> u64 {
        // In a reduce-scatter, rank `block + 1` sends block `block` first; in an all-gather, rank `block` does.
        match self.algorithm() {
            Algorithm::RingAllGather => self.send(Rank(block), 0).bytes,
            _ => self.send(Rank((block + 1) % self.ranks()), 0).bytes,
        }
    }

    /// The longest chain of the first rank's transfers that wait for each other. Such a chain has every `window`-th
    /// transfer.
    fn window_chain(&self, window: u32, transfer: &impl Fn(Rank, Rank, u64) -> Span) -> Span {
        let rank = Rank(0);
        let chain = |first: u32| {
            let mut time = 0u64;
            let mut back = 0;
            for step in (first..self.steps()).step_by(window as usize) {
                let send = self.send(rank, step * self.parts());
                time = time.saturating_add(back).saturating_add(transfer(rank, send.to, send.bytes).0);
                back = transfer(send.to, rank, 0).0;
            }
            time
        };
        Span((0..window.min(self.steps())).map(chain).max().unwrap_or(0))
    }

    /// Computes, step by step, when each rank has the data that its next step needs.
    fn halving_chain(&self, transfer: &impl Fn(Rank, Rank, u64) -> Span) -> Span {
        let mut ready = vec![0u64; self.ranks() as usize];
        for step in 0..self.steps() {
            let mut next = ready.clone();
            for (rank, at) in ready.iter().enumerate() {
                let send = self.send(Rank(rank as u32), step * self.parts());
                let arrival = at + transfer(Rank(rank as u32), send.to, send.bytes).0;
                let there = &mut next[send.to.0 as usize];
                *there = (*there).max(arrival);
            }
            ready = next;
        }
        Span(ready.into_iter().max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 ps a byte and 1 us of latency.
    fn bound(algorithm: Algorithm, ranks: u32, bytes: u64, parts: u32) -> u64 {
        let schedule = Schedule::new(algorithm, ranks, bytes, parts).expect("a schedule");
        schedule.bound(|b| Span(b * 20), |_, _, b| Span(b * 20 + 1_000_000)).0
    }

    #[test]
    fn the_bound_is_steps_of_serialisation_and_latency() {
        assert_eq!(bound(Algorithm::RingAllReduce, 8, 8_000, 1), 14 * (20_000 + 1_000_000));
        assert_eq!(bound(Algorithm::RingReduceScatter, 8, 8_000, 1), 7 * (20_000 + 1_000_000));
        assert_eq!(bound(Algorithm::RingAllGather, 8, 8_000, 1), 7 * (20_000 + 1_000_000));
        assert_eq!(bound(Algorithm::HalvingDoubling, 8, 8_000, 1), 2 * 7_000 * 20 + 6 * 1_000_000);
        assert_eq!(bound(Algorithm::AllToAll { window: 7 }, 8, 8_000, 1), 7_000 * 20 + 1_000_000);
        assert_eq!(bound(Algorithm::RecursiveDoubling, 8, 8_000, 1), 7_000 * 20 + 3 * 1_000_000);
        assert_eq!(bound(Algorithm::LinearAllGather, 8, 8_000, 1), 7_000 * 20 + 1_000_000);
        // Two transfers with one acknowledgement between them.
        assert_eq!(bound(Algorithm::AllToAll { window: 4 }, 8, 8_000, 1), 2 * 1_000 * 20 + 3 * 1_000_000);
    }

    #[test]
    fn the_longest_block_counts() {
        assert_eq!(bound(Algorithm::RingAllReduce, 8, 8_001, 1), 14 * (1_001 * 20 + 1_000_000));
    }

    #[test]
    fn parts_hide_latency_until_the_nic_is_full() {
        let mega = 8_000_000_000;
        assert_eq!(bound(Algorithm::RingAllReduce, 8, mega, 4), 14 * 20_000_000_000 + 1_000_000);
        assert_eq!(bound(Algorithm::RingAllReduce, 8, 8_000, 4), 14 * (5_000 + 1_000_000));
    }

    #[test]
    fn a_slow_leg_of_the_ring_counts_as_often_as_it_is_crossed() {
        let ring = Schedule::new(Algorithm::RingAllReduce, 4, 4_000, 1).expect("a ring");
        let slow = |from: Rank, _: Rank, _: u64| Span(if from == Rank(2) { 10 } else { 1 });
        // A block skips two of the fast legs: 2 * 13 - 2.
        assert_eq!(ring.bound(Span, slow), Span(24));
    }
}

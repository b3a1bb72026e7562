//! Random streams: one for every host, connection, port and fault, derived from (seed, kind, id).
//!
//! So a further host does not change the numbers of the others. The generator is SplitMix64 (Steele, Lea, Flood: "Fast
//! splittable pseudorandom number generators", OOPSLA 2014): its state has only eight bytes, because every port has
//! one.

/// SplitMix64's step from one state to the next.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of pseudo-random numbers.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    state: u64,
}

/// The kind of the stream's owner; the stream derives from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum StreamKind {
    /// A connection's own draws (entropy values, round orders).
    Connection = 1,
    /// A switch port's draws (marking, trimming coin, loss).
    Port = 2,
    /// A switch's hash salt and port permutation.
    Switch = 3,
    /// A workload generator.
    Workload = 4,
    /// A fault schedule.
    Fault = 5,
}

/// A 64-bit finaliser: every input bit changes every output bit with probability one half.
#[inline]
pub const fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The stream of `kind` and `id` in the run with this `seed`.
    pub const fn new(seed: u64, kind: StreamKind, id: u64) -> Random {
        let state = mix64(seed ^ mix64((kind as u64) << 56 ^ id.wrapping_add(0x9e37_79b9_7f4a_7c15)));
        Random { state }
    }

    /// The next 64 bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix64(self.state)
    }

    /// Leaves out the next `count` numbers of 64 bits.
    #[inline]
    pub const fn skip(&mut self, count: u64) {
        self.state = self.state.wrapping_add(count.wrapping_mul(GAMMA));
    }

    /// A number below `bound`, by multiply and shift; zero for a bound of zero.
    #[inline]
    pub const fn below(&mut self, bound: u32) -> u32 {
        (((self.next_u64() >> 32) * bound as u64) >> 32) as u32
    }

    /// A number with mean 0 and variance 1, nearly normally distributed: the sum of twelve uniform numbers minus 6,
    /// which is the same on every machine. It lies between -6 and 6.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// A number in [0, 1) with 53 random bits.
    #[inline]
    pub const fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// True with this probability.
    #[inline]
    pub const fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Puts `items` into random order (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u32 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_neighbours_do_not_resemble_each_other() {
        let mut seen = std::collections::BTreeSet::new();
        for id in 0..1000 {
            for kind in [StreamKind::Connection, StreamKind::Port] {
                assert!(seen.insert(Random::new(1, kind, id).next_u64()));
            }
        }
    }

    #[test]
    fn a_stream_that_skips_numbers_goes_on_as_if_they_had_been_drawn() {
        let mut drawn = Random::new(1, StreamKind::Port, 5);
        let mut skipped = drawn;
        for _ in 0..300 {
            drawn.next_u64();
        }
        skipped.skip(300);
        assert_eq!(skipped.next_u64(), drawn.next_u64());
    }

    #[test]
    fn draws_below_a_bound_are_even() {
        let mut random = Random::new(7, StreamKind::Workload, 0);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|&c| (9_500..10_500).contains(&c)), "{counts:?}");
    }

    #[test]
    fn shuffling_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(3, StreamKind::Workload, 1).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}

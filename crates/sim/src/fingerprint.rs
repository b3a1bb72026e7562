//! Fingerprints: hashes of events in their order.

use strandway_proto::rng::mix64;

/// A running hash. Equal hashes mean equal values in equal order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) const fn new() -> Fingerprint {
        Fingerprint(0x5354_5241_4e44_5741)
    }

    /// Adds values in their order.
    #[inline]
    pub(crate) fn add<const N: usize>(&mut self, values: [u64; N]) {
        for value in values {
            self.0 = mix64(self.0 ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
    }

    /// The hash of everything so far.
    pub(crate) const fn value(self) -> u64 {
        self.0
    }
}

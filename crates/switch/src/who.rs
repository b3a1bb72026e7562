//! The workers in a sum, as a set with one bitmap per rack.

/// The largest number of workers of a rack, and of racks of a job: a header has one bit for each.
pub const RACK_MAX: usize = 32;

/// A set of workers of one job: a bitmap for each rack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Who(Vec<u32>);

impl Who {
    /// The empty set, for a job with this many racks.
    pub fn nobody(racks: usize) -> Who {
        Who(vec![0; racks])
    }

    /// The set with these workers by rack.
    pub(crate) fn of(bits: Vec<u32>) -> Who {
        Who(bits)
    }

    /// The workers of one rack.
    pub fn rack(&self, rack: usize) -> u32 {
        self.0[rack]
    }

    /// Adds workers of one rack.
    pub fn insert(&mut self, rack: usize, workers: u32) {
        self.0[rack] |= workers;
    }

    /// Is this worker in it?
    pub fn has(&self, (rack, bit): (u8, u8)) -> bool {
        self.0[usize::from(rack)] >> bit & 1 == 1
    }

    /// True if it has no worker in common with `other`.
    pub fn is_apart_from(&self, other: &Who) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a & b == 0)
    }

    /// Adds all workers of `other`.
    pub fn join(&mut self, other: &Who) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    /// The number of workers.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|bits| bits.count_ones()).sum()
    }
}

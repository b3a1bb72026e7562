//! Memory of parcels that is used again. Fresh memory would cost a page fault per 4 KiB, and the kernel zeroes it.

use std::sync::{Mutex, PoisonError};

/// The most buffers that wait: ours; a parcel is freed about as often as one is needed.
const SPARE_MAX: usize = 8;

/// Buffers that nobody uses.
#[derive(Debug, Default)]
pub(super) struct Spare(Mutex<Vec<Vec<u8>>>);

impl Spare {
    /// An empty buffer with room for `bytes` bytes.
    pub(super) fn take(&self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        buffer.clear();
        buffer.reserve_exact(bytes);
        buffer
    }

    /// Keeps a buffer for the next [`Spare::take`].
    pub(super) fn give(&self, buffer: Vec<u8>) {
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buffers.len() < SPARE_MAX {
            buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty_and_at_most_a_few_wait() {
        let spare = Spare::default();
        spare.give(vec![7; 100]);
        let buffer = spare.take(50);
        assert!(buffer.is_empty() && buffer.capacity() >= 100);
        assert!(spare.take(200).capacity() >= 200);
        (0..100).for_each(|_| spare.give(vec![1]));
        assert_eq!(spare.0.lock().expect("no panic").len(), SPARE_MAX);
    }
}

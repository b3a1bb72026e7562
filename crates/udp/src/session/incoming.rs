//! The peer's messages that have begun to arrive: the place of each, and how many bytes of it are placed.

use crate::error::Reason;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

struct Begun<D> {
    descriptor: D,
    /// Bytes placed so far.
    bytes: u64,
}

/// At most `most` messages (`Limits::incoming`). `D` is what all packets of a message say about its place.
pub(super) struct Incoming<D> {
    begun: BTreeMap<u32, Begun<D>>,
    most: usize,
}

impl<D: Copy + PartialEq> Incoming<D> {
    pub(super) const fn new(most: usize) -> Incoming<D> {
        Incoming { begun: BTreeMap::new(), most }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.begun.len()
    }

    /// A packet of a message has arrived for the first time, with `bytes` bytes.
    ///
    /// # Errors
    /// If an earlier packet of the message named another place, or too many messages have begun.
    pub(super) fn add(&mut self, message: u32, descriptor: D, bytes: usize) -> Result<(), Reason> {
        let full = self.begun.len() >= self.most;
        match self.begun.entry(message) {
            Entry::Occupied(mut begun) if begun.get().descriptor == descriptor => {
                begun.get_mut().bytes += bytes as u64;
                Ok(())
            }
            Entry::Vacant(place) if !full => {
                place.insert(Begun { descriptor, bytes: bytes as u64 });
                Ok(())
            }
            Entry::Occupied(_) | Entry::Vacant(_) => Err(Reason::Violation),
        }
    }

    /// The place of a message that has begun to arrive.
    pub(super) fn descriptor(&self, message: u32) -> Option<D> {
        self.begun.get(&message).map(|begun| begun.descriptor)
    }

    /// A message is complete, and its last packet says that it has `bytes` bytes. Returns its place.
    ///
    /// # Errors
    /// If another number of bytes was placed.
    pub(super) fn finish(&mut self, message: u32, bytes: u64) -> Result<D, Reason> {
        let begun = self.begun.remove(&message).filter(|begun| begun.bytes == bytes);
        begun.map(|begun| begun.descriptor).ok_or(Reason::Violation)
    }
}

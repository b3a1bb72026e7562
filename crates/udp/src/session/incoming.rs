//! The peer's messages that have begun to arrive: the place of each, and how many bytes of it are placed.

use crate::error::Reason;
use crate::frame::Descriptor;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

struct Begun {
    descriptor: Descriptor,
    /// Bytes placed so far.
    bytes: u64,
}

/// At most `most` messages (`Config::incoming_max`).
pub(super) struct Incoming {
    begun: BTreeMap<u32, Begun>,
    most: usize,
}

impl Incoming {
    pub(super) const fn new(most: usize) -> Incoming {
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
    pub(super) fn add(&mut self, message: u32, descriptor: Descriptor, bytes: usize) -> Result<(), Reason> {
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
    pub(super) fn descriptor(&self, message: u32) -> Option<Descriptor> {
        self.begun.get(&message).map(|begun| begun.descriptor)
    }

    /// A message is complete, and its last packet says that it has `bytes` bytes. Returns its place.
    ///
    /// # Errors
    /// If another number of bytes was placed.
    pub(super) fn finish(&mut self, message: u32, bytes: u64) -> Result<Descriptor, Reason> {
        let begun = self.begun.remove(&message).filter(|begun| begun.bytes == bytes);
        begun.map(|begun| begun.descriptor).ok_or(Reason::Violation)
    }
}

//! Memory of callers: handles of ranges, which may lie in one another.

use crate::code::{Code, MoverError};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use strandway_udp::{Node, Region, RemoteRegion};

/// Memory that is registered with the node once, however many handles lie in it.
struct Extent {
    end: usize,
    region: Region,
    writable: bool,
    handles: usize,
}

/// A registered range.
struct Handle {
    /// The first address of its extent.
    extent: usize,
    /// Where it begins in its extent.
    offset: usize,
    length: usize,
    writable: bool,
    /// Unfinished operations that use it.
    users: usize,
    /// Keys to it, with the connection that each was made for.
    keys: HashSet<(u64, u64)>,
}

/// Memory that a caller lends.
pub(crate) enum Lent {
    Writable(&'static mut [u8]),
    ReadOnly(&'static [u8]),
}

#[derive(Default)]
pub(crate) struct Memories {
    extents: BTreeMap<usize, Extent>,
    handles: HashMap<u64, Handle>,
}

impl Memories {
    /// Registers `length` bytes from an address on. `lend` gives them; it is not called if they lie within memory that
    /// was lent before, so no byte is lent twice.
    pub(crate) fn register(
        &mut self,
        node: &mut Node,
        number: u64,
        address: usize,
        length: usize,
        writable: bool,
        lend: impl FnOnce() -> Lent,
    ) -> Result<(), MoverError> {
        let end = address.checked_add(length).filter(|_| address > 0 && length > 0 && length <= isize::MAX as usize);
        let end =
            end.ok_or_else(|| MoverError::new(Code::Invalid, format!("memory of {length} bytes at {address:#x}")))?;
        let before = self.extents.range_mut(..end).next_back().filter(|(_, extent)| extent.end > address);
        let start = match before {
            Some((&start, extent)) if start <= address && end <= extent.end && (extent.writable || !writable) => {
                extent.handles += 1;
                start
            }
            Some(_) => return Err(MoverError::of(Code::Overlap)),
            None => {
                let region = match lend() {
                    Lent::Writable(bytes) => node.register_static(bytes),
                    Lent::ReadOnly(bytes) => node.show(bytes),
                };
                self.extents.insert(address, Extent { end, region, writable, handles: 1 });
                address
            }
        };
        let handle =
            Handle { extent: start, offset: address - start, length, writable, users: 0, keys: HashSet::new() };
        self.handles.insert(number, handle);
        Ok(())
    }

    /// Gives memory back: nothing touches it any more.
    pub(crate) fn release(&mut self, node: &mut Node, number: u64) -> Result<(), MoverError> {
        let handle = self.handles.get(&number).ok_or_else(|| MoverError::of(Code::NoMemory))?;
        if handle.users > 0 {
            return Err(MoverError::of(Code::InUse));
        }
        let start = handle.extent;
        let Some(extent) = self.extents.get_mut(&start) else { return Err(MoverError::of(Code::Internal)) };
        if extent.handles == 1 {
            node.deregister(extent.region)?;
            self.extents.remove(&start);
        } else {
            extent.handles -= 1;
        }
        for (key, _) in self.handles.remove(&number).into_iter().flat_map(|handle| handle.keys) {
            node.revoke(RemoteRegion::to_write(key, 0));
        }
        Ok(())
    }

    /// The bytes of a handle as a range of the node's region.
    pub(crate) fn place(
        &self,
        number: u64,
        offset: u64,
        length: u64,
        writes: bool,
    ) -> Result<(Region, Range<usize>), MoverError> {
        let handle = self.handles.get(&number).ok_or_else(|| MoverError::of(Code::NoMemory))?;
        if writes && !handle.writable {
            return Err(MoverError::of(Code::ReadOnly));
        }
        let end = offset.checked_add(length).filter(|&end| end <= handle.length as u64);
        let Some(end) = end else {
            let text = format!("{length} bytes from {offset} on, but the memory has {}", handle.length);
            return Err(MoverError::new(Code::Range, text));
        };
        let extent = self.extents.get(&handle.extent).ok_or_else(|| MoverError::of(Code::Internal))?;
        Ok((extent.region, handle.offset + offset as usize..handle.offset + end as usize))
    }

    /// The bytes of a handle.
    pub(crate) fn length(&self, number: u64) -> Result<u64, MoverError> {
        self.handles.get(&number).map(|handle| handle.length as u64).ok_or_else(|| MoverError::of(Code::NoMemory))
    }

    /// An operation begins to use a handle.
    pub(crate) fn hold(&mut self, number: u64) {
        if let Some(handle) = self.handles.get_mut(&number) {
            handle.users += 1;
        }
    }

    /// An operation has ended its use.
    pub(crate) fn let_go(&mut self, number: u64) {
        if let Some(handle) = self.handles.get_mut(&number) {
            handle.users = handle.users.saturating_sub(1);
        }
    }

    /// A key to a handle was made.
    pub(crate) fn add_key(&mut self, number: u64, key: u64, connection: u64) {
        if let Some(handle) = self.handles.get_mut(&number) {
            handle.keys.insert((key, connection));
        }
    }

    /// Forgets a key; false if it was made for no handle.
    pub(crate) fn remove_key(&mut self, key: u64) -> bool {
        let mut found = false;
        for handle in self.handles.values_mut().filter(|handle| !handle.keys.is_empty()) {
            handle.keys.retain(|(one, _)| *one != key || !std::mem::replace(&mut found, true));
        }
        found
    }

    /// Forgets the keys that were made for a connection; the node has made them void.
    pub(crate) fn remove_keys_of(&mut self, connection: u64) {
        for handle in self.handles.values_mut().filter(|handle| !handle.keys.is_empty()) {
            handle.keys.retain(|(_, of)| *of != connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_udp::Config;

    fn node() -> Node {
        let plane = strandway_udp::address::kept((strandway_udp::address::loopback(), 0));
        Node::bind(Config::new(&[1; 16]).expect("long enough").plane(plane)).expect("a socket")
    }

    fn add(memories: &mut Memories, node: &mut Node, number: u64, range: Range<usize>, writable: bool) -> Option<Code> {
        // The tests' addresses are those of no memory: what is lent is another buffer of the same length.
        let lend = || match writable {
            true => Lent::Writable(Box::leak(vec![0; range.len()].into_boxed_slice())),
            false => Lent::ReadOnly(Box::leak(vec![0; range.len()].into_boxed_slice())),
        };
        memories.register(node, number, range.start, range.len(), writable, lend).err().map(|error| error.code)
    }

    #[test]
    fn ranges_within_one_another_share_memory_and_others_do_not_overlap() {
        let (mut memories, mut node) = (Memories::default(), node());
        assert_eq!(add(&mut memories, &mut node, 1, 1_000..2_000, true), None);
        assert_eq!(add(&mut memories, &mut node, 2, 1_500..2_000, true), None);
        assert_eq!(add(&mut memories, &mut node, 3, 1_000..2_000, false), None);
        for other in [999..1_001, 1_999..2_001, 500..3_000, 999..2_000] {
            assert_eq!(add(&mut memories, &mut node, 9, other, true), Some(Code::Overlap));
        }
        assert_eq!(add(&mut memories, &mut node, 4, 2_000..2_001, false), None);
        assert_eq!(add(&mut memories, &mut node, 9, 2_000..2_001, true), Some(Code::Overlap), "lent for reading only");
        assert_eq!(add(&mut memories, &mut node, 9, 5_000..5_000, true), Some(Code::Invalid));
        let (region, range) = memories.place(2, 10, 490, true).expect("within");
        assert_eq!((region, range), (memories.place(1, 0, 1, true).expect("within").0, 510..1_000));
        assert_eq!(memories.place(2, 10, 491, true).expect_err("beyond").code, Code::Range);
        assert_eq!(memories.place(2, u64::MAX, 2, true).expect_err("beyond").code, Code::Range);
        assert_eq!(memories.place(3, 0, 1, true).expect_err("to read").code, Code::ReadOnly);
        memories.hold(1);
        assert_eq!(memories.release(&mut node, 1).expect_err("used").code, Code::InUse);
        memories.let_go(1);
        for number in [1, 3, 2] {
            memories.release(&mut node, number).expect("unused");
        }
        assert_eq!(memories.release(&mut node, 1).expect_err("gone").code, Code::NoMemory);
        assert_eq!(add(&mut memories, &mut node, 5, 999..1_001, true), None, "free again");
    }
}

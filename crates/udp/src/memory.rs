//! Registered memory: buffers that a node owns or was lent, and keys that open them to a peer.

mod rights;

use crate::error::{Error, Refusal};
use crate::handles::Connection;
use crate::secure::random;
use std::collections::HashMap;
use std::ops::Range;

pub use rights::{RemoteRegion, Rights};

/// The most keys that are valid at a time: ours, some 3 MB of table.
pub const KEYS_MAX: usize = 65_536;

/// A registered buffer. The node owns the bytes; [`crate::Node::memory`] returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    index: u32,
    generation: u32,
}

/// The place of a region's bytes.
enum Buffer {
    /// The node owns them.
    Owned(Vec<u8>),
    /// Another owner lets the node read and write them.
    Lent(&'static mut [u8]),
    /// Another owner lets the node read them.
    Shown(&'static [u8]),
}

impl Buffer {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Buffer::Owned(bytes) => bytes,
            Buffer::Lent(bytes) => bytes,
            Buffer::Shown(bytes) => bytes,
        }
    }

    /// Nothing if they may only be read: places in such a region are refused where something would be written.
    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Owned(bytes) => bytes,
            Buffer::Lent(bytes) => bytes,
            Buffer::Shown(_) => &mut [],
        }
    }
}

struct Slot {
    generation: u32,
    buffer: Option<Buffer>,
    /// Unfinished operations that read from it or wait to fill it.
    users: u32,
}

/// The range that a key opens.
#[derive(Clone, Copy)]
struct Window {
    region: Region,
    /// Within the region.
    start: u64,
    bytes: u64,
    /// The connection that it opens the range to; `None`: all.
    owner: Option<Connection>,
    rights: Rights,
}

/// A range of registered memory that was checked to lie within its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    index: u32,
    start: usize,
    end: usize,
}

#[derive(Default)]
pub(crate) struct Memory {
    slots: Vec<Slot>,
    free: Vec<u32>,
    windows: HashMap<u64, Window>,
    /// The key opened last, with its range; the next packet is likely to name it again.
    recent: Option<(u64, Window)>,
    /// Keys have 32 bits, and none is zero.
    short_keys: bool,
}

impl Memory {
    /// Memory whose keys have 32 bits if `short_keys`: MRC's layout has no room for more.
    pub(crate) fn new(short_keys: bool) -> Memory {
        Memory { short_keys, ..Memory::default() }
    }

    pub(crate) fn register(&mut self, buffer: Vec<u8>) -> Region {
        self.add(Buffer::Owned(buffer))
    }

    pub(crate) fn register_static(&mut self, buffer: &'static mut [u8]) -> Region {
        self.add(Buffer::Lent(buffer))
    }

    pub(crate) fn show(&mut self, buffer: &'static [u8]) -> Region {
        self.add(Buffer::Shown(buffer))
    }

    /// Copies what somebody has lent, and works on with the copy.
    pub(crate) fn take_over(&mut self, region: Region) -> Result<(), Error> {
        self.slot(region)?;
        let slot = &mut self.slots[region.index as usize];
        if let Some(buffer @ (Buffer::Lent(_) | Buffer::Shown(_))) = &mut slot.buffer {
            *buffer = Buffer::Owned(buffer.bytes().to_vec());
        }
        Ok(())
    }

    pub(crate) fn copy_within(
        &mut self,
        from: Region,
        range: Range<usize>,
        to: Region,
        at: usize,
    ) -> Result<(), Error> {
        let source = self.place(from, &range)?;
        self.writable(to)?;
        let target = self.place(to, &(at..at.saturating_add(range.len())))?;
        if source.index == target.index {
            let buffer = self.slots[source.index as usize].buffer.as_mut().map_or(&mut [][..], Buffer::bytes_mut);
            buffer.copy_within(range, at);
        } else {
            let [source_slot, target_slot] = self
                .slots
                .get_disjoint_mut([source.index as usize, target.index as usize])
                .expect("two slots that are there");
            let bytes = source_slot.buffer.as_ref().map_or(&[][..], Buffer::bytes);
            let room = target_slot.buffer.as_mut().map_or(&mut [][..], Buffer::bytes_mut);
            room[target.start..target.end].copy_from_slice(&bytes[source.start..source.end]);
        }
        Ok(())
    }

    fn add(&mut self, buffer: Buffer) -> Region {
        match self.free.pop() {
            Some(index) => {
                let slot = &mut self.slots[index as usize];
                slot.buffer = Some(buffer);
                Region { index, generation: slot.generation }
            }
            None => {
                self.slots.push(Slot { generation: 0, buffer: Some(buffer), users: 0 });
                Region { index: self.slots.len() as u32 - 1, generation: 0 }
            }
        }
    }

    fn slot(&self, region: Region) -> Result<&Slot, Error> {
        let slot = self.slots.get(region.index as usize).ok_or(Error::NoRegion)?;
        if slot.generation == region.generation && slot.buffer.is_some() { Ok(slot) } else { Err(Error::NoRegion) }
    }

    pub(crate) fn bytes(&self, region: Region) -> Result<&[u8], Error> {
        self.slot(region).map(|slot| slot.buffer.as_ref().map_or(&[][..], Buffer::bytes))
    }

    pub(crate) fn bytes_mut(&mut self, region: Region) -> Result<&mut [u8], Error> {
        self.writable(region)?;
        Ok(self.slots[region.index as usize].buffer.as_mut().map_or(&mut [][..], Buffer::bytes_mut))
    }

    /// May its bytes change?
    pub(crate) fn writable(&self, region: Region) -> Result<(), Error> {
        match self.slot(region)?.buffer {
            Some(Buffer::Shown(_)) => Err(Error::ReadOnly),
            _ => Ok(()),
        }
    }

    pub(crate) fn deregister(&mut self, region: Region) -> Result<Vec<u8>, Error> {
        if self.slot(region)?.users > 0 {
            return Err(Error::RegionInUse);
        }
        self.recent = None;
        self.windows.retain(|_, window| window.region != region);
        let slot = &mut self.slots[region.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(region.index);
        match slot.buffer.take().ok_or(Error::NoRegion)? {
            Buffer::Owned(bytes) => Ok(bytes),
            Buffer::Lent(_) | Buffer::Shown(_) => Ok(Vec::new()),
        }
    }

    /// A range of a region, checked.
    pub(crate) fn place(&self, region: Region, range: &Range<usize>) -> Result<Place, Error> {
        let bytes = self.bytes(region)?.len();
        if range.start > range.end || range.end > bytes {
            return Err(Error::Range { end: range.end.max(range.start) as u64, bytes: bytes as u64 });
        }
        Ok(Place { index: region.index, start: range.start, end: range.end })
    }

    /// An operation begins to use a place, which keeps its region registered.
    pub(crate) fn hold(&mut self, place: Place) {
        self.slots[place.index as usize].users += 1;
    }

    /// An operation has ended its use of a place.
    pub(crate) fn release(&mut self, place: Place) {
        self.slots[place.index as usize].users -= 1;
    }

    /// Opens a range to a connection for writing.
    pub(crate) fn expose(
        &mut self,
        region: Region,
        range: &Range<usize>,
        owner: Connection,
    ) -> Result<RemoteRegion, Error> {
        self.expose_for(region, range, Some(owner), Rights::WRITE)
    }

    pub(crate) fn expose_for(
        &mut self,
        region: Region,
        range: &Range<usize>,
        owner: Option<Connection>,
        rights: Rights,
    ) -> Result<RemoteRegion, Error> {
        if rights != Rights::READ {
            self.writable(region)?;
        }
        let place = self.place(region, range)?;
        if self.windows.len() >= KEYS_MAX {
            return Err(Error::TooManyKeys { limit: KEYS_MAX });
        }
        let (start, bytes) = (place.start as u64, (place.end - place.start) as u64);
        loop {
            let key = u64::from_be_bytes(random()?);
            let key = if self.short_keys { key >> 32 } else { key };
            if self.short_keys && key == 0 {
                continue;
            }
            if let std::collections::hash_map::Entry::Vacant(entry) = self.windows.entry(key) {
                entry.insert(Window { region, start, bytes, owner, rights });
                return Ok(RemoteRegion { key, bytes, rights });
            }
        }
    }

    pub(crate) fn revoke(&mut self, key: u64) -> bool {
        self.recent = None;
        self.windows.remove(&key).is_some()
    }

    pub(crate) fn revoke_all(&mut self, owner: Connection) {
        self.recent = None;
        self.windows.retain(|_, window| window.owner != Some(owner));
    }

    /// The place of `length` bytes from `start` on in the range that `key` opens to `owner` for writing; `None` if the
    /// key does not open them.
    #[inline]
    pub(crate) fn open(&mut self, key: u64, owner: Connection, start: u64, length: usize) -> Option<Place> {
        self.window(key, owner).filter(|window| window.rights.has(Rights::WRITE)).and_then(|window| {
            self.recent = Some((key, window));
            self.within(&window, start, length)
        })
    }

    /// The place of `length` bytes from `start` on in the range that `key` opens to `owner` with this right.
    pub(crate) fn open_for(
        &self,
        right: Rights,
        key: u64,
        owner: Connection,
        start: u64,
        length: u64,
    ) -> Result<Place, Refusal> {
        let window = self.window(key, owner).ok_or(Refusal::NoKey)?;
        if !window.rights.has(right) {
            return Err(Refusal::NoRight);
        }
        let length = usize::try_from(length).map_err(|_| Refusal::Range)?;
        self.within(&window, start, length).ok_or(Refusal::Range)
    }

    #[inline]
    fn window(&self, key: u64, owner: Connection) -> Option<Window> {
        let window = match self.recent {
            Some((recent, window)) if recent == key => window,
            _ => *self.windows.get(&key)?,
        };
        window.owner.is_none_or(|only| only == owner).then_some(window)
    }

    #[inline]
    fn within(&self, window: &Window, start: u64, length: usize) -> Option<Place> {
        let end = start.checked_add(length as u64).filter(|&end| end <= window.bytes)?;
        let slot = self.slots.get(window.region.index as usize)?;
        let whole = slot.buffer.as_ref().filter(|_| slot.generation == window.region.generation)?.bytes().len() as u64;
        let (start, end) = (window.start.checked_add(start)?, window.start.checked_add(end)?);
        if end > whole {
            return None;
        }
        Some(Place { index: window.region.index, start: start as usize, end: end as usize })
    }

    /// The bytes at a place, from `offset` on, `length` of them; empty if they do not lie within it.
    #[inline]
    pub(crate) fn read(&self, place: Place, offset: u64, length: usize) -> &[u8] {
        let buffer = self.slots[place.index as usize].buffer.as_ref().map_or(&[][..], Buffer::bytes);
        let start = place.start + offset as usize;
        buffer[place.start..place.end].get(start - place.start..start - place.start + length).unwrap_or_default()
    }

    /// All bytes at a place.
    pub(crate) fn read_all(&self, place: Place) -> &[u8] {
        self.read(place, 0, place.len())
    }

    /// All bytes at a place, to change them.
    #[inline]
    pub(crate) fn bytes_at(&mut self, place: Place) -> &mut [u8] {
        let buffer = self.slots[place.index as usize].buffer.as_mut().map_or(&mut [][..], Buffer::bytes_mut);
        &mut buffer[place.start..place.end]
    }

    /// Changes the word of 64 bits at a place of that length, and returns the word as it was.
    pub(crate) fn change(&mut self, place: Place, change: impl FnOnce(u64) -> u64) -> u64 {
        let Some(bytes) = self.bytes_at(place).first_chunk_mut() else { unreachable!("the place of a word") };
        let word = u64::from_ne_bytes(*bytes);
        *bytes = change(word).to_ne_bytes();
        word
    }

    /// Fills a place.
    ///
    /// # Panics
    /// If the lengths differ; the place was made for this payload.
    #[inline]
    pub(crate) fn write(&mut self, place: Place, payload: &[u8]) {
        self.bytes_at(place).copy_from_slice(payload);
    }
}

impl Place {
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// `length` bytes from `offset` on, if they lie within.
    pub(crate) fn part(&self, offset: u64, length: usize) -> Option<Place> {
        let start = self.start.checked_add(usize::try_from(offset).ok()?)?;
        let end = start.checked_add(length).filter(|&end| end <= self.end)?;
        Some(Place { index: self.index, start, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OURS: Connection = Connection::test(1);
    const ANOTHER: Connection = Connection::test(2);

    #[test]
    fn a_key_opens_its_range_to_its_connection_and_nothing_else() {
        let mut memory = Memory::default();
        let region = memory.register(vec![0; 100]);
        let remote = memory.expose(region, &(10..60), OURS).expect("a key");
        assert_eq!(remote.bytes, 50);
        let place = memory.open(remote.key, OURS, 20, 30).expect("within");
        memory.write(place, &[1; 30]);
        let touched: Vec<usize> =
            memory.bytes(region).expect("there").iter().enumerate().filter(|(_, b)| **b == 1).map(|(i, _)| i).collect();
        assert_eq!(touched, (30..60).collect::<Vec<_>>());
        assert_eq!(memory.open(remote.key, OURS, 20, 31), None, "beyond the range, though within the buffer");
        assert_eq!(memory.open(remote.key, OURS, u64::MAX, 2), None);
        assert_eq!(memory.open(remote.key, ANOTHER, 0, 1), None);
        assert_eq!(memory.open(remote.key ^ 1, OURS, 0, 1), None);
        assert!(memory.revoke(remote.key));
        assert_eq!(memory.open(remote.key, OURS, 0, 1), None);
    }

    #[test]
    fn each_right_is_separate_and_a_refusal_names_what_is_wrong() {
        let mut memory = Memory::default();
        let region = memory.register(vec![0; 100]);
        let shown = memory.show(&[7; 100]);
        let mut key = |region, rights| memory.expose_for(region, &(10..60), Some(OURS), rights);
        let write = key(region, Rights::WRITE).expect("a key").key;
        let read = key(shown, Rights::READ).expect("only read").key;
        let atomic = key(region, Rights::ATOMIC).expect("a key").key;
        let both = key(region, Rights::WRITE | Rights::READ).expect("a key").key;
        for rights in [Rights::WRITE, Rights::ATOMIC, Rights::READ | Rights::ATOMIC] {
            assert!(matches!(key(shown, rights), Err(Error::ReadOnly)));
        }
        for (key, writes, reads, adds) in [
            (write, true, false, false),
            (read, false, true, false),
            (atomic, false, false, true),
            (both, true, true, false),
        ] {
            assert_eq!(memory.open(key, OURS, 0, 8).is_some(), writes);
            for (right, has) in [(Rights::READ, reads), (Rights::ATOMIC, adds)] {
                let refusal = (!has).then_some(Refusal::NoRight);
                assert_eq!(memory.open_for(right, key, OURS, 0, 8).err(), refusal);
            }
        }
        let refusal = |key, owner, start, length| memory.open_for(Rights::READ, key, owner, start, length).err();
        for (start, length) in [(0, 51), (50, 1), (u64::MAX, 2), (2, u64::MAX), (u64::MAX, u64::MAX)] {
            assert_eq!(refusal(read, OURS, start, length), Some(Refusal::Range), "{start} {length}");
        }
        assert_eq!(refusal(read, OURS, 50, 0), None);
        assert_eq!(refusal(read, ANOTHER, 0, 1), Some(Refusal::NoKey));
        assert_eq!(refusal(read ^ 1, OURS, 0, 1), Some(Refusal::NoKey));
        let all = memory.expose_for(region, &(0..8), None, Rights::READ).expect("a key").key;
        for owner in [OURS, ANOTHER] {
            assert!(memory.open_for(Rights::READ, all, owner, 0, 8).is_ok(), "it opens the range to all");
            memory.revoke_all(owner);
        }
        let read = memory.expose_for(shown, &(10..60), Some(OURS), Rights::READ).expect("a key").key;
        assert!(memory.revoke(read));
        assert_eq!(memory.open_for(Rights::READ, read, OURS, 0, 1), Err(Refusal::NoKey));
    }

    #[test]
    fn a_region_that_was_given_back_is_gone_with_its_keys() {
        let mut memory = Memory::default();
        let region = memory.register(vec![7; 8]);
        let remote = memory.expose(region, &(0..8), OURS).expect("a key");
        let place = memory.place(region, &(0..8)).expect("within");
        memory.hold(place);
        assert!(matches!(memory.deregister(region), Err(Error::RegionInUse)));
        memory.release(place);
        assert_eq!(memory.deregister(region).expect("free"), vec![7; 8]);
        let next = memory.register(vec![0; 8]);
        assert_eq!(memory.open(remote.key, OURS, 0, 1), None);
        assert!(matches!(memory.bytes(region), Err(Error::NoRegion)));
        assert_ne!(next, region);
    }

    #[test]
    fn lent_memory_is_written_and_shown_memory_is_not() {
        let mut memory = Memory::default();
        let lent = memory.register_static(Box::leak(vec![0; 8].into_boxed_slice()));
        let remote = memory.expose(lent, &(0..8), OURS).expect("a key");
        let place = memory.open(remote.key, OURS, 0, 8).expect("within");
        memory.write(place, &[3; 8]);
        assert_eq!(memory.bytes(lent).expect("there"), [3; 8]);
        memory.take_over(lent).expect("there");
        memory.write(place, &[4; 8]);
        memory.copy_within(lent, 0..2, lent, 6).expect("within");
        let other = memory.register(vec![9; 4]);
        memory.copy_within(other, 1..3, lent, 0).expect("within");
        assert!(memory.copy_within(other, 1..3, lent, 7).is_err());
        assert_eq!(memory.bytes(lent).expect("there"), [9, 9, 4, 4, 4, 4, 4, 4]);
        memory.write(place, &[4; 8]);
        assert_eq!(memory.deregister(lent).expect("free"), vec![4; 8], "a copy of ours, behind the same key");
        let shown = memory.show(&[7; 8]);
        assert_eq!(memory.bytes(shown).expect("there"), [7; 8]);
        assert!(matches!(memory.expose(shown, &(0..8), OURS), Err(Error::ReadOnly)));
        assert!(matches!(memory.bytes_mut(shown), Err(Error::ReadOnly)));
        assert_eq!(memory.deregister(shown).expect("free"), Vec::new());
    }

    proptest! {
        #[test]
        fn no_claim_reaches_beyond_its_window(start: u64, length in 0usize..70_000, near in 0u64..200) {
            let mut memory = Memory::default();
            let region = memory.register(vec![0; 128]);
            let remote = memory.expose(region, &(32..96), OURS).expect("a key");
            for start in [start, near] {
                if let Some(place) = memory.open(remote.key, OURS, start, length) {
                    prop_assert!(place.start >= 32 && place.end <= 96 && place.len() == length);
                } else {
                    prop_assert!(start.checked_add(length as u64).is_none_or(|end| end > 64));
                }
            }
        }
    }
}

//! A packet in the fabric: the 32 bytes that switches read. The whole packet is stored in [`Cargo`] and is read only at
//! the two hosts.

use crate::prefetch::prefetch;
use crate::queue::NIL;
use strandway_proto::packet::{Flags, Header, Wait};
use strandway_proto::{HostId, Packet};

/// A packet between two hosts. In the calendar, an entry of this type may also be another event: see [`Transit::note`].
/// It has four words, so that it is copied and changed in registers.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Transit {
    /// In the calendar: the offset in the window (upper half) and the source, which give the order at one stop. In a
    /// queue: the time at which it joined (upper half) and the ingress port.
    key: u64,
    /// Its longest wait so far: the length (upper half) and the link.
    wait: u64,
    /// Its destination (upper half) and its uplinks: see [`crate::route::Router::uplinks`].
    way: u64,
    /// The packet's index in [`Cargo`] (upper half), its wire bytes (16 bits), flags ([`bit`]), and in the calendar the
    /// stop's number within its group (8 bits).
    rest: u64,
}

const _: () = assert!(size_of::<Transit>() == 32, "two packets to a cache line");

/// Flags of a packet that switches read or set.
mod bit {
    /// It travels in the control class.
    pub(super) const CONTROL: u64 = 1 << 8;
    /// It has a data header.
    pub(super) const DATA: u64 = 2 << 8;
    /// A switch marked it.
    pub(super) const CE: u64 = 4 << 8;
    /// A switch cut its payload off.
    pub(super) const TRIMMED: u64 = 8 << 8;
    /// The switch that trimmed it was the last one before the receiver.
    pub(super) const TRIMMED_AT_LAST_HOP: u64 = 16 << 8;
    /// It is a fragment of a gradient or of a sum, or a notice about one.
    pub(super) const FRAGMENT: u64 = 32 << 8;
    /// Switches drop it instead of trimming it (MRC: NO_TRIM).
    pub(super) const NO_TRIM: u64 = 64 << 8;
    /// All flags that switches set.
    pub(super) const BY_SWITCHES: u64 = CE | TRIMMED | TRIMMED_AT_LAST_HOP;
}

/// The flags that switches set.
const SET_BY_SWITCHES: [(Flags, u64); 3] =
    [(Flags::CE, bit::CE), (Flags::TRIMMED, bit::TRIMMED), (Flags::TRIMMED_AT_LAST_HOP, bit::TRIMMED_AT_LAST_HOP)];

#[inline]
fn word(upper: u32, lower: u32) -> u64 {
    u64::from(upper) << 32 | u64::from(lower)
}

impl Transit {
    /// A packet that is stored at index `cargo` and takes these uplinks.
    #[inline]
    pub(crate) fn new(packet: &Packet, cargo: u32, uplinks: u32) -> Transit {
        let mut rest = word(cargo, u32::from(packet.size) << 16);
        let trimmed = if packet.flags.has(Flags::TRIMMED) { bit::CONTROL } else { 0 };
        let data = |waited: Wait| (word(waited.length, waited.link), bit::DATA | trimmed);
        let (wait, bits) = match &packet.header {
            Header::Data(header) => data(header.wait),
            Header::Part(header) => data(header.wait),
            Header::Chunk(header) => data(header.wait),
            Header::Fragment(fragment) if fragment.kind.has_elements() => (0, bit::FRAGMENT | bit::DATA | trimmed),
            Header::Fragment(_) => (0, bit::FRAGMENT | bit::CONTROL),
            _ => (0, if packet.is_control() { bit::CONTROL } else { 0 }),
        };
        debug_assert_eq!(bits & bit::CONTROL != 0, packet.is_control(), "{packet:?}");
        rest |= bits;
        // A host's own packets have none of these flags.
        if SET_BY_SWITCHES.iter().any(|&(flag, _)| packet.flags.has(flag)) {
            for (flag, bit) in SET_BY_SWITCHES {
                rest |= if packet.flags.has(flag) { bit } else { 0 };
            }
        }
        Transit { key: 0, wait, way: word(packet.destination.0, uplinks), rest }
    }

    /// An event at a stop that is not a packet: `source` gives its kind, `data` a value for this kind.
    #[inline]
    pub(crate) fn note(source: u32, data: u32) -> Transit {
        Transit { key: u64::from(source), wait: 0, way: 0, rest: word(data, 0) }
    }

    /// This entry in the calendar, at this offset in a window and this place in a group.
    #[inline]
    pub(crate) fn at(&self, offset: u32, source: u32, place: u8) -> Transit {
        Transit { key: word(offset, source), rest: self.rest & !0xff | u64::from(place), ..*self }
    }

    /// This packet in a queue.
    #[inline]
    pub(crate) fn waiting(&self, since: u32, ingress: u32) -> Transit {
        Transit { key: word(since, ingress), ..*self }
    }

    /// The sort key of entries of one stop in one window: the offset, then the source.
    #[inline]
    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    /// In the calendar: the time from the start of the window, in ps.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.key >> 32
    }

    /// In the calendar: the link by which it comes, or the kind of event: see [`crate::slice::Sources`].
    #[inline]
    pub(crate) fn source(&self) -> u32 {
        self.key as u32
    }

    /// In a queue: the time at which it joined, in units of 1,024 ps, wrapping.
    #[inline]
    pub(crate) fn since(&self) -> u32 {
        (self.key >> 32) as u32
    }

    /// In a queue: its ingress port, if ingress is counted.
    #[inline]
    pub(crate) fn ingress(&self) -> u32 {
        self.key as u32
    }

    /// The host or the group to which it goes.
    #[inline]
    pub(crate) fn destination(&self) -> u32 {
        (self.way >> 32) as u32
    }

    /// The group to which it goes, if it goes to a group.
    #[inline]
    pub(crate) fn group(&self) -> Option<usize> {
        HostId(self.destination()).as_group().map(|group| group as usize)
    }

    /// The uplinks that it takes.
    #[inline]
    pub(crate) fn uplinks(&self) -> u32 {
        self.way as u32
    }

    /// Its four words, for storage without alignment. A function that is rarely called also takes these instead of a
    /// `Transit`: a value that is passed by address stays in memory, and then every copy waits for the stores before
    /// it.
    #[inline]
    pub(crate) fn words(&self) -> [u64; 4] {
        [self.key, self.wait, self.way, self.rest]
    }

    #[inline]
    pub(crate) fn of_words([key, wait, way, rest]: [u64; 4]) -> Transit {
        Transit { key, wait, way, rest }
    }

    /// Changes its uplinks.
    pub(crate) fn reroute(&mut self, uplinks: u32) {
        self.way = word(self.destination(), uplinks);
    }

    /// The packet's index in [`Cargo`]; for a note, its data.
    #[inline]
    pub(crate) fn cargo(&self) -> u32 {
        (self.rest >> 32) as u32
    }

    /// Bytes on the wire.
    #[inline]
    pub(crate) fn size(&self) -> u16 {
        (self.rest >> 16) as u16
    }

    /// In the calendar: the stop's number within its group.
    #[inline]
    pub(crate) fn place(&self) -> u8 {
        self.rest as u8
    }

    /// Does it travel in the control class?
    #[inline]
    pub(crate) fn is_control(&self) -> bool {
        self.rest & bit::CONTROL != 0
    }

    /// Is it a fragment? Then switches that run a program see it.
    #[inline]
    pub(crate) fn is_fragment(&self) -> bool {
        self.rest & bit::FRAGMENT != 0
    }

    /// Has it a data header?
    #[inline]
    pub(crate) fn is_data(&self) -> bool {
        self.rest & bit::DATA != 0
    }

    /// Only whole data packets are marked and trimmed.
    #[inline]
    pub(crate) fn is_whole_data(&self) -> bool {
        self.rest & (bit::DATA | bit::TRIMMED) == bit::DATA
    }

    /// Switches may drop it, but not trim it.
    #[inline]
    pub(crate) fn forbid_trimming(&mut self) {
        self.rest |= bit::NO_TRIM;
    }

    /// May a switch trim it?
    #[inline]
    pub(crate) fn may_be_trimmed(&self) -> bool {
        self.rest & bit::NO_TRIM == 0
    }

    /// Notes a wait at a port; the longest wait is kept.
    #[inline]
    pub(crate) fn waited(&mut self, length: u32, link: u32) {
        let is_longer = self.is_data() && u64::from(length) > self.wait >> 32;
        // Without a branch, because no processor could predict it.
        let mask = u64::from(is_longer).wrapping_neg();
        self.wait = self.wait & !mask | word(length, link) & mask;
    }

    /// Sets CE, because a switch's queue is long.
    #[inline]
    pub(crate) fn mark(&mut self) {
        self.rest |= bit::CE;
    }

    /// Trims the payload off.
    pub(crate) fn trim(&mut self, size: u16, at_last_hop: bool) {
        let size = u64::from(size.min(self.size())) << 16;
        self.rest = self.rest & !(0xffff << 16) | size;
        self.rest |= bit::TRIMMED | bit::CONTROL | if at_last_hop { bit::TRIMMED_AT_LAST_HOP } else { 0 };
    }
}

/// A packet as its sender made it.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot {
    packet: Packet,
}

const _: () = assert!(size_of::<Slot>() == 64, "one cache line per packet");

/// The number of slots that are allocated together. They are never moved.
const SEGMENT: usize = 64;

/// All packets in the fabric that a slice stores. A free slot is reused while it is in the cache.
#[derive(Default)]
pub(crate) struct Cargo {
    segments: Vec<Box<[Slot; SEGMENT]>>,
    /// The number of slots that have ever been used.
    used: usize,
    free: Vec<u32>,
}

impl Cargo {
    /// Stores a packet that a switch's program sends.
    pub(crate) fn put(&mut self, packet: &Packet, uplinks: u32) -> Transit {
        let index = self.open();
        self.slot(index).packet = *packet;
        Transit::new(packet, index, uplinks)
    }

    /// Takes the place of a packet that a host may send. [`Cargo::at`] gives the place. Then [`Cargo::close`] must
    /// follow, or [`Cargo::sent`].
    #[inline]
    pub(crate) fn open(&mut self) -> u32 {
        match self.free.pop() {
            Some(index) => index,
            None => self.grow(),
        }
    }

    /// The packet in a place.
    #[inline]
    pub(crate) fn at(&mut self, index: u32) -> &mut Packet {
        &mut self.slot(index).packet
    }

    /// Gives a place back in which there is no packet.
    #[inline]
    pub(crate) fn close(&mut self, index: u32) {
        self.free.push(index);
    }

    /// The packet in a place is sent by these uplinks.
    #[inline(always)]
    pub(crate) fn sent(&mut self, index: u32, uplinks: u32) -> Transit {
        Transit::new(self.at(index), index, uplinks)
    }

    /// Stores a packet that comes from another slice.
    #[inline]
    pub(crate) fn put_again(&mut self, packet: &Packet, transit: &Transit) -> Transit {
        let index = self.open();
        self.slot(index).packet = *packet;
        Transit { key: 0, rest: word(index, transit.rest as u32), ..*transit }
    }

    /// Makes an independent copy of a packet in its present state.
    pub(crate) fn copy(&mut self, transit: &Transit) -> Transit {
        let packet = *self.packet(transit);
        let copy = self.put_again(&packet, transit);
        Transit { key: transit.key, ..copy }
    }

    /// Adds a slot.
    #[cold]
    fn grow(&mut self) -> u32 {
        if self.used == self.segments.len() * SEGMENT {
            self.segments.push(Box::new([Slot { packet: Packet::BLANK }; SEGMENT]));
        }
        let index = self.used as u32;
        assert!(index != NIL, "fewer packets on the road than numbers for them");
        self.used += 1;
        index
    }

    #[inline]
    fn slot(&mut self, index: u32) -> &mut Slot {
        &mut self.segments[index as usize / SEGMENT][index as usize % SEGMENT]
    }

    /// A packet in its present state, with the changes by switches.
    #[inline]
    pub(crate) fn packet_with_marks(&mut self, transit: &Transit) -> &Packet {
        let packet = &mut self.slot(transit.cargo()).packet;
        if transit.rest & bit::BY_SWITCHES != 0 {
            packet.size = transit.size();
            for (flag, bit) in SET_BY_SWITCHES {
                packet.flags = packet.flags.with_if(transit.rest & bit != 0, flag);
            }
        }
        let wait = Wait { length: (transit.wait >> 32) as u32, link: transit.wait as u32 };
        match &mut packet.header {
            Header::Data(data) => data.wait = wait,
            Header::Part(part) => part.wait = wait,
            Header::Chunk(chunk) => chunk.wait = wait,
            _ => {}
        }
        packet
    }

    /// A packet as its sender made it.
    #[inline]
    pub(crate) fn packet(&self, transit: &Transit) -> &Packet {
        let index = transit.cargo() as usize;
        &self.segments[index / SEGMENT][index % SEGMENT].packet
    }

    /// Brings a stored packet into the cache.
    #[inline]
    pub(crate) fn prefetch(&self, transit: &Transit) {
        prefetch(std::ptr::from_ref(self.packet(transit)).cast());
    }

    /// Frees the slot of a packet that has left the fabric.
    #[inline]
    pub(crate) fn release(&mut self, transit: &Transit) {
        self.free.push(transit.cargo());
    }
}

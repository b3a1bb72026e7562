//! Packets inside the fabric, in one arena.

use strandway_proto::Packet;

/// "No packet": ends every list.
pub(crate) const NIL: u32 = u32::MAX;

/// What happens to a packet when it arrives: decided as it departs, while it is at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop(pub(crate) u32);

impl Stop {
    const HOST: u32 = 1 << 31;
    const LATE: u32 = 1 << 30;
    /// No way leads on from there.
    pub(crate) const NOWHERE: Stop = Stop(u32::MAX);

    /// It joins this port (local number).
    #[inline]
    pub(crate) const fn port(port: usize) -> Stop {
        Stop(port as u32)
    }

    /// It is delivered to this host (local number).
    #[inline]
    pub(crate) const fn host(host: u32) -> Stop {
        Stop(Stop::HOST | host)
    }

    /// It is routed at this node when it arrives: routing may change until then.
    #[inline]
    pub(crate) const fn late(node: u32) -> Stop {
        Stop(Stop::LATE | node)
    }

    /// The port that it joins, if that is decided.
    #[inline]
    pub(crate) const fn as_port(self) -> Option<usize> {
        if self.0 < Stop::LATE { Some(self.0 as usize) } else { None }
    }

    /// The host that it is delivered to, if it is.
    #[inline]
    pub(crate) const fn as_host(self) -> Option<usize> {
        if self.0 & Stop::HOST != 0 && self.0 != u32::MAX { Some((self.0 & !Stop::HOST) as usize) } else { None }
    }

    /// The node that routes it on arrival, if one does.
    pub(crate) const fn as_late(self) -> Option<u32> {
        if self.0 & (Stop::HOST | Stop::LATE) == Stop::LATE { Some(self.0 & !Stop::LATE) } else { None }
    }
}

/// A packet and where it is: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Slot {
    pub(crate) packet: Packet,
    /// The packet behind it in its queue.
    pub(crate) next: u32,
    /// What happens to it at the node that it travels to.
    pub(crate) stop: Stop,
    /// The local number of the port it came in by, where ingress is accounted for.
    pub(crate) ingress: u32,
}

const _: () = assert!(size_of::<Slot>() == 64, "one cache line per packet in the fabric");

/// Slots and which of them are free; the last one freed is taken first, since it is warm.
#[derive(Default)]
pub(crate) struct Pool {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Pool {
    #[inline]
    pub(crate) fn put(&mut self, packet: Packet) -> u32 {
        let slot = Slot { packet, next: NIL, stop: Stop::NOWHERE, ingress: 0 };
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        self.free.push(index);
    }

    /// How many slots are taken.
    pub(crate) fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl std::ops::Index<u32> for Pool {
    type Output = Slot;
    #[inline]
    fn index(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Pool {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }
}

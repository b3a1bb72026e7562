//! Control packets that wait for a port of their endpoint, oldest first.

use crate::packet::{Header, Packet};
use std::collections::VecDeque;

/// At most this many control packets wait for a port. A further one replaces the oldest, because later acknowledgements
/// contain more.
pub(super) const CONTROL_MAX: usize = 65_536;

/// The number of control packets that are searched for one whose port is free. Ours: about the number that arrive
/// during one packet's time.
const LOOKAHEAD: usize = 32;

/// The queue.
#[derive(Default)]
pub(super) struct ControlQueue {
    packets: VecDeque<Packet>,
    /// Ports for which a search has found nothing, and for which no packet was added since.
    barren: u32,
    /// The endpoint's ports that were in use at the last search.
    ports: u32,
    /// The range of PSNs that acknowledgements announce; 0: none.
    range: u8,
}

impl ControlQueue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<&Packet> {
        self.packets.get(at)
    }

    /// The address of the oldest packet's memory.
    #[inline]
    pub(super) fn address(&self) -> *const u8 {
        self.packets.as_slices().0.as_ptr().cast()
    }

    /// Adds a packet, in place of the oldest one if the queue is full.
    #[inline]
    pub(super) fn push(&mut self, mut packet: Packet) {
        if self.range > 0
            && let Header::Ack(ack) = &mut packet.header
        {
            ack.range = self.range;
        }
        if self.packets.len() >= CONTROL_MAX {
            self.pop();
        }
        self.welcome(packet.path.port());
        self.packets.push_back(packet);
    }

    /// Acknowledgements from now on announce this range of PSNs, in words of 128; 0: none.
    pub(super) fn announce(&mut self, range: u8) {
        self.range = range;
    }

    /// Adds a packet if the queue is not full.
    pub(super) fn push_if_room(&mut self, packet: Packet) {
        if self.packets.len() < CONTROL_MAX {
            self.push(packet);
        }
    }

    /// The oldest packet.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Packet> {
        self.barren = 0;
        self.packets.pop_front()
    }

    /// Keeps only the packets for which this holds.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Packet) -> bool) {
        self.barren = 0;
        self.packets.retain(keep);
    }

    /// A packet with this port may now be found.
    #[inline]
    fn welcome(&mut self, port: u8) {
        let bit = 1u32.checked_shl(u32::from(port)).unwrap_or(0) & self.ports;
        // A packet with a port that is not in use may leave by any other.
        self.barren &= if bit == 0 { 0 } else { !bit };
    }

    /// The oldest packet that `may` leave by one of the ports `free`, among the first 32. `ports`: those of the
    /// endpoint that are in use. The answer of `may` depends only on the packet and on both sets of ports, and a packet
    /// with a port in use may leave by no other.
    #[inline]
    pub(super) fn take(&mut self, free: u32, ports: u32, may: impl FnMut(&Packet) -> bool) -> Option<Packet> {
        if self.ports != ports {
            (self.ports, self.barren) = (ports, 0);
        }
        if free & !self.barren == 0 {
            return None;
        }
        let Some(at) = self.packets.iter().take(LOOKAHEAD).position(may) else {
            self.barren |= free;
            return None;
        };
        let packet = self.packets.remove(at);
        // The packet behind the searched ones moves up.
        if let Some(next) = self.packets.get(LOOKAHEAD - 1).map(|next| next.path.port()) {
            self.welcome(next);
        }
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{ConnectionId, Flags, Header, HostId, PathId};
    use proptest::prelude::*;

    fn packet(port: u8, number: u32) -> Packet {
        Packet {
            source: HostId(0),
            destination: HostId(number),
            connection: ConnectionId(0),
            path: PathId::new(port, 0),
            size: 64,
            flags: Flags::NONE,
            header: Header::Cnp,
        }
    }

    proptest! {
        /// The queue remembers where it need not search, and finds what a search of its first 32 packets finds.
        #[test]
        fn it_finds_what_a_search_finds(
            steps in prop::collection::vec((0u8..5, 0u8..6, 0u32..16, prop::sample::select(vec![15u32, 13, 7])), 1..300),
        ) {
            let (mut queue, mut plain) = (ControlQueue::default(), Vec::new());
            for (number, (step, port, free, ports)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        queue.push(packet(port, number as u32));
                        plain.push(packet(port, number as u32));
                    }
                    2 if free == 0 => {
                        queue.retain(|packet| packet.path.port() != port);
                        plain.retain(|packet| packet.path.port() != port);
                    }
                    3 if free == 0 => {
                        let first = (!plain.is_empty()).then(|| plain.remove(0));
                        prop_assert_eq!(queue.pop().map(|packet| packet.destination), first.map(|packet| packet.destination));
                    }
                    _ => {
                        // A packet whose port is not in use leaves by any port that is.
                        let usable = free & ports;
                        let may = |packet: &Packet| {
                            let bit = 1 << packet.path.port();
                            usable & bit != 0 || (usable != 0 && ports & bit == 0)
                        };
                        let at = plain.iter().take(LOOKAHEAD).position(may);
                        let expected = at.map(|at| plain.remove(at).destination);
                        prop_assert_eq!(queue.take(free, ports, may).map(|packet| packet.destination), expected);
                    }
                }
                prop_assert_eq!(queue.len(), plain.len());
            }
        }
    }
}

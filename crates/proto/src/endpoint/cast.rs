//! Chunks and fragments that an endpoint sends without a connection, besides the data of connections.

use super::{CASTS_TIMER, Endpoint};
use crate::cast::{Asked, Cast, Casts, Fragments};
use crate::packet::{Packet, Ports};
use crate::units::Time;
use std::cmp::Reverse;

/// Packets that leave without a connection.
#[derive(Default)]
pub(super) struct Unconnected {
    /// Chunks to send; `None` before the first one.
    casts: Option<Box<Casts>>,
    /// Fragments to send; `None` before the first one.
    fragments: Option<Box<Fragments>>,
    /// There are chunks or fragments to send now.
    pub(super) waiting: bool,
    /// If connections have data too: the next packet is a chunk or a fragment.
    casts_first: bool,
    /// Among chunks and fragments, the next packet is a fragment.
    fragments_first: bool,
}

impl Endpoint {
    /// Casts chunks to a group or to one host. They are sent in order after those of earlier casts, at the cast's rate;
    /// the endpoint keeps no record of them. [`Event::Cast`](crate::Event::Cast) reports that the last one was sent.
    ///
    /// # Panics
    /// If the cast has no chunks.
    pub fn cast(&mut self, cast: Cast) {
        self.unconnected.casts.get_or_insert_default().push(cast);
        self.unconnected.waiting = true;
    }

    /// Lets chunks and the data of connections take turns, one packet each. If the chunks wait for their pace, data
    /// goes.
    pub(super) fn take_chunk_in_turn(&mut self, now: Time, free: Ports, into: &mut Packet) -> bool {
        self.unconnected.casts_first = !self.unconnected.casts_first;
        !self.unconnected.casts_first && self.take_data(now, free, into)
            || self.take_chunk(now, free, into)
            || self.unconnected.casts_first && self.take_data(now, free, into)
    }

    /// Sends a fragment of a gradient or of a sum, by the port in its path. Fragments of one port are sent in order,
    /// those without elements before the others. The endpoint keeps no record of them.
    pub fn send_fragment(&mut self, packet: Packet) {
        self.unconnected.fragments.get_or_insert_default().push(packet);
        self.unconnected.waiting = true;
    }

    /// Fragments and chunks take turns.
    fn take_chunk(&mut self, now: Time, free: Ports, into: &mut Packet) -> bool {
        self.unconnected.fragments_first = !self.unconnected.fragments_first;
        if self.unconnected.fragments_first {
            return self.take_fragment(free, into) || self.take_cast(now, free, into);
        }
        self.take_cast(now, free, into) || self.take_fragment(free, into)
    }

    fn take_fragment(&mut self, free: Ports, into: &mut Packet) -> bool {
        let took = self.unconnected.fragments.as_mut().is_some_and(|fragments| fragments.take(free, into));
        if took {
            self.unconnected.waiting = self.still_casting();
        }
        took
    }

    fn still_casting(&self) -> bool {
        self.unconnected.casts.as_ref().is_some_and(|casts| !casts.is_empty())
            || self.unconnected.fragments.as_ref().is_some_and(|fragments| !fragments.is_empty())
    }

    fn take_cast(&mut self, now: Time, free: Ports, into: &mut Packet) -> bool {
        let Some(casts) = self.unconnected.casts.as_mut() else { return false };
        match casts.take(now, self.host, free.data, self.nic.up) {
            Asked::Chunk(packet, over) => {
                if let Some(end) = over {
                    self.events.push_back(end);
                    self.unconnected.waiting = self.still_casting();
                }
                *into = packet;
                true
            }
            Asked::Paced(at) => {
                if casts.timer.is_none_or(|timer| timer <= now || timer > at) {
                    casts.timer = Some(at);
                    self.timers.push(Reverse((at, CASTS_TIMER)));
                }
                false
            }
            Asked::Nothing => false,
        }
    }
}

//! Chunks and fragments that an endpoint sends without a connection, besides the data of connections.

use super::{CASTS_TIMER, Endpoint};
use crate::cast::{Asked, Cast};
use crate::packet::{Packet, Ports};
use crate::units::Time;
use std::cmp::Reverse;

impl Endpoint {
    /// Casts chunks to a group or to one host. They are sent in order after those of earlier casts, at the cast's rate;
    /// the endpoint keeps no record of them. [`Event::Cast`](crate::Event::Cast) reports that the last one was sent.
    ///
    /// # Panics
    /// If the cast has no chunks.
    pub fn cast(&mut self, cast: Cast) {
        self.casts.get_or_insert_default().push(cast);
        self.casting = true;
    }

    /// Lets chunks and the data of connections take turns, one packet each. If the chunks wait for their pace, data
    /// goes.
    pub(super) fn take_chunk_in_turn(&mut self, now: Time, free: Ports, into: &mut Packet) -> bool {
        self.casts_first = !self.casts_first;
        !self.casts_first && self.take_data(now, free, into)
            || self.take_chunk(now, free, into)
            || self.casts_first && self.take_data(now, free, into)
    }

    /// Sends a fragment of a gradient or of a sum, by the port in its path. Fragments of one port are sent in order,
    /// those without elements before the others. The endpoint keeps no record of them.
    pub fn send_fragment(&mut self, packet: Packet) {
        self.fragments.get_or_insert_default().push(packet);
        self.casting = true;
    }

    /// Fragments and chunks take turns.
    fn take_chunk(&mut self, now: Time, free: Ports, into: &mut Packet) -> bool {
        self.fragments_first = !self.fragments_first;
        if self.fragments_first {
            return self.take_fragment(free, into) || self.take_cast(now, free, into);
        }
        self.take_cast(now, free, into) || self.take_fragment(free, into)
    }

    fn take_fragment(&mut self, free: Ports, into: &mut Packet) -> bool {
        let took = self.fragments.as_mut().is_some_and(|fragments| fragments.take(free, into));
        if took {
            self.casting = self.still_casting();
        }
        took
    }

    fn still_casting(&self) -> bool {
        self.casts.as_ref().is_some_and(|casts| !casts.is_empty())
            || self.fragments.as_ref().is_some_and(|fragments| !fragments.is_empty())
    }

    fn take_cast(&mut self, now: Time, free: Ports, into: &mut Packet) -> bool {
        let Some(casts) = self.casts.as_mut() else { return false };
        match casts.take(now, self.host, free.data, self.up) {
            Asked::Chunk(packet, over) => {
                if let Some(end) = over {
                    self.events.push_back(end);
                    self.casting = self.still_casting();
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

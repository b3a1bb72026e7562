//! Chunks that leave without a connection, beside the data of connections.

use super::{CASTS_TIMER, Endpoint};
use crate::cast::{Asked, Cast};
use crate::packet::{Packet, Ports};
use crate::units::Time;
use std::cmp::Reverse;

impl Endpoint {
    /// The application casts chunks to a group or to one host. They leave in order behind those of earlier casts, at the pace that the
    /// cast says, and nothing of them is kept. [`Event::Cast`](crate::Event::Cast) tells that the last one has left.
    ///
    /// # Panics
    /// If the cast has no chunks.
    pub fn cast(&mut self, cast: Cast) {
        self.casts.get_or_insert_default().push(cast);
        self.casting = true;
    }

    /// Connections have data perhaps, and chunks are to leave: they take turns, packet by packet. Chunks that wait for their pace
    /// let data go.
    pub(super) fn take_chunk_in_turn(&mut self, now: Time, free: Ports) -> Option<Packet> {
        self.casts_first = !self.casts_first;
        if self.casts_first {
            return self.take_chunk(now, free).or_else(|| self.take_data(now, free));
        }
        self.take_data(now, free).or_else(|| self.take_chunk(now, free))
    }

    fn take_chunk(&mut self, now: Time, free: Ports) -> Option<Packet> {
        let casts = self.casts.as_mut()?;
        match casts.take(now, self.host, free.data, self.up) {
            Asked::Chunk(packet, over) => {
                if let Some(end) = over {
                    self.events.push_back(end);
                    self.casting = !casts.is_empty();
                }
                Some(packet)
            }
            Asked::Paced(at) => {
                if casts.timer.is_none_or(|timer| timer <= now || timer > at) {
                    casts.timer = Some(at);
                    self.timers.push(Reverse((at, CASTS_TIMER)));
                }
                None
            }
            Asked::Nothing => None,
        }
    }
}

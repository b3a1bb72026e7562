//! The packets that wait at a port.
//!
//! Most ports have none most of the time: a packet that finds its port idle, or that would leave before the next one
//! comes, never waits here. So a port has a backlog only while it needs one.

use crate::port::{CONTROL, DATA, Port, flag};
use crate::queue::{Arena, Queue};
use crate::road::Transit;

/// The backlog of a port at which no packet waits. It is shared and always empty.
pub(crate) const NO_BACKLOG: u32 = 0;

/// The packets that wait at a port, by class.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Backlog {
    /// Bytes waiting.
    pub(crate) queued: [u64; 2],
    waiting: [Queue; 2],
}

impl Backlog {
    const EMPTY: Backlog = Backlog { queued: [0; 2], waiting: [Queue::EMPTY; 2] };

    /// The class of the next packet; of an empty backlog, the data class.
    #[inline]
    fn first_class(&self) -> usize {
        // The class is computed, because no processor could predict a branch.
        usize::from(self.waiting[CONTROL].is_empty())
    }
}

const _: () = assert!(size_of::<Backlog>() == 64, "a backlog takes one cache line");
const _: () = assert!(CONTROL == 0 && DATA == 1, "see `Backlog::first_class`");

/// The backlogs of a slice's ports. Few ports have one at a time, so they stay in the cache.
pub(crate) struct Backlogs {
    all: Vec<Backlog>,
    free: Vec<u32>,
}

impl Backlogs {
    pub(crate) fn new() -> Backlogs {
        Backlogs { all: vec![Backlog::EMPTY], free: Vec::new() }
    }

    /// The backlog of a port.
    #[inline]
    pub(crate) fn of(&self, port: &Port) -> &Backlog {
        &self.all[port.backlog as usize]
    }

    /// The class of the next packet that a port may send.
    #[inline]
    pub(crate) fn next_class(&self, port: &Port) -> Option<usize> {
        if port.is_empty() {
            return None;
        }
        let class = self.of(port).first_class();
        let held = class == DATA && port.has(flag::PAUSED);
        (!held).then_some(class)
    }

    /// Brings the ends of a port's queues into the cache.
    #[inline]
    pub(crate) fn prefetch_ends(&self, port: &Port, arena: &Arena) {
        self.of(port).waiting.iter().for_each(|queue| queue.prefetch_ends(arena));
    }

    /// Brings the second chunk of a port's data into the cache.
    #[inline]
    pub(crate) fn prefetch_second(&self, port: &Port, arena: &Arena) {
        self.of(port).waiting[DATA].prefetch_second(arena);
    }

    /// Puts a packet at the end of a class's queue.
    #[inline(always)]
    pub(crate) fn push(&mut self, port: &mut Port, class: usize, packet: Transit, arena: &mut Arena) {
        if port.is_empty() {
            port.backlog = self.take();
        }
        let backlog = &mut self.all[port.backlog as usize];
        backlog.queued[class] += u64::from(packet.size());
        backlog.waiting[class].push(arena, packet);
        if class == DATA {
            port.queue_max = port.queue_max.max(backlog.queued[DATA]);
        }
    }

    /// Takes the first packet of a class's queue; there must be one. Returns it, and the bytes behind it.
    #[inline(always)]
    pub(crate) fn pop(&mut self, port: &mut Port, class: usize, arena: &mut Arena) -> (Transit, u64) {
        let backlog = &mut self.all[port.backlog as usize];
        let packet = backlog.waiting[class].pop(arena);
        let left = backlog.queued[class] - u64::from(packet.size());
        backlog.queued[class] = left;
        if backlog.waiting[CONTROL].is_empty() && backlog.waiting[DATA].is_empty() {
            self.free.push(port.backlog);
            port.backlog = NO_BACKLOG;
        }
        (packet, left)
    }

    /// The last data packet that waits at a port, and the bytes of its class.
    pub(crate) fn last_data<'a>(
        &'a mut self,
        port: &Port,
        arena: &'a mut Arena,
    ) -> Option<(&'a mut Transit, &'a mut u64)> {
        let backlog = &mut self.all[port.backlog as usize];
        Some((backlog.waiting[DATA].back_mut(arena)?, &mut backlog.queued[DATA]))
    }

    /// A backlog for a port: an empty one.
    #[inline]
    fn take(&mut self) -> u32 {
        match self.free.pop() {
            Some(number) => number,
            None => self.grow(),
        }
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        self.all.push(Backlog::EMPTY);
        self.all.len() as u32 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use strandway_proto::rng::{Random, StreamKind};
    use strandway_proto::units::Rate;

    proptest! {
        #[test]
        fn ports_that_share_backlogs_keep_their_packets_in_order(
            steps in prop::collection::vec((0usize..5, any::<bool>(), any::<bool>()), 1..400),
        ) {
            let port = Port::new(0, 0, Rate::from_gbps(400), Random::new(1, StreamKind::Port, 0));
            let mut ports = vec![port; 5];
            let (mut backlogs, mut arena) = (Backlogs::new(), Arena::default());
            let mut models: [[VecDeque<u32>; 2]; 5] = Default::default();
            for (number, (which, joins, is_data)) in (0..).zip(steps) {
                let (port, model) = (&mut ports[which], &mut models[which]);
                if joins {
                    let class = usize::from(is_data);
                    backlogs.push(port, class, Transit::note(0, number).waiting(0, number), &mut arena);
                    model[class].push_back(number);
                } else if let Some(class) = backlogs.next_class(port) {
                    let (packet, _) = backlogs.pop(port, class, &mut arena);
                    prop_assert_eq!(Some(packet.ingress()), model[class].pop_front());
                }
                let first = model.iter().position(|queue| !queue.is_empty());
                prop_assert_eq!(backlogs.next_class(port), first);
                prop_assert_eq!(port.is_empty(), first.is_none());
            }
            let waiting = models.iter().filter(|model| model.iter().any(|queue| !queue.is_empty())).count();
            prop_assert_eq!(backlogs.all.len() - 1 - backlogs.free.len(), waiting, "other ports have no backlog");
            prop_assert!(backlogs.all[NO_BACKLOG as usize].queued == [0; 2]);
        }
    }
}

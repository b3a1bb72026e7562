//! Chunks for a group or for one host, which a program sends by its endpoint without a connection.
//!
//! Multicast uses datagrams without acknowledgements (Khalilov et al., arXiv 2408.13356): a root sends its share of a
//! buffer chunk by chunk, switches copy each chunk to all members, and receivers place it by its number. Receivers
//! fetch missing chunks; a fetched chunk is the same datagram, sent to one host. The endpoint paces the chunks and
//! chooses trees; it keeps no record of sent chunks.

mod layout;
mod left_out;
mod parity;

pub use layout::Layout;
pub use left_out::LeftOut;
pub use parity::{Coded, Parity, Rebuild};

use crate::endpoint::Event;
use crate::packet::{Chunk, ConnectionId, Flags, Header, HostId, Packet, PathId, Ports, Wait};
use crate::queue::take_oldest;
use crate::units::{Bytes, Rate, Span, Time};
use std::collections::VecDeque;

/// Chunks to send, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    /// A group's address, or one host's.
    pub to: HostId,
    /// Their operation.
    pub task: u32,
    /// The index of the first chunk.
    pub first: u32,
    /// The number of chunks, at least one.
    pub count: u32,
    /// Payload bytes of a chunk.
    pub bytes: u16,
    /// The index of the last chunk of the sender's share, which may be short.
    pub last: u32,
    /// Payload bytes of that chunk.
    pub tail: u16,
    /// Bytes of all headers of a chunk on the wire.
    pub header: u16,
    /// The rate on each plane, headers included; [`Cast::UNPACED`]: send whenever a port is idle.
    pub rate: Rate,
    /// The planes that may be used, one bit each.
    pub planes: u32,
    /// The number of trees of each plane to use in turn; zero: all trees.
    pub trees: u32,
    /// Trees that are not used.
    pub left_out: LeftOut,
}

impl Cast {
    /// No pace: as fast as the ports accept chunks.
    pub const UNPACED: Rate = Rate(u64::MAX);

    fn packet(&self, source: HostId, chunk: u32, path: PathId) -> Packet {
        let last = chunk == self.last;
        let length = if last { self.tail } else { self.bytes };
        Packet {
            source,
            destination: self.to,
            connection: ConnectionId(0),
            path,
            size: length.saturating_add(self.header),
            flags: Flags::NONE.with_if(last, Flags::LAST),
            header: Header::Chunk(Chunk { task: self.task, chunk, length, wait: Wait::default() }),
        }
    }
}

/// The casts of one host, one after the other.
#[derive(Debug, Default)]
pub struct Casts {
    queue: VecDeque<Cast>,
    /// A late host may send this much of its pace at once.
    catch_up: Span,
    /// When each plane's pace allows the next chunk.
    paced: Vec<Time>,
    /// For each plane, the number of the next chunk's tree.
    turns: Vec<u32>,
    /// The plane of the last chunk.
    plane: usize,
    /// The time of the valid entry in the endpoint's timer heap, if it is in the future.
    pub(crate) timer: Option<Time>,
}

/// Fragments of gradients and sums to send: for each port, those without elements first, then those with elements.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    queues: Vec<[VecDeque<Packet>; 2]>,
    waiting: usize,
}

impl Fragments {
    pub(crate) fn push(&mut self, packet: Packet) {
        let port = usize::from(packet.path.port());
        if port >= self.queues.len() {
            self.queues.resize_with(port + 1, Default::default);
        }
        self.queues[port][usize::from(!packet.is_control())].push_back(packet);
        self.waiting += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Writes the next fragment for one of the free ports to `into`. False if there is none.
    pub(crate) fn take(&mut self, free: Ports, into: &mut Packet) -> bool {
        for ([words, numbers], port) in self.queues.iter_mut().zip(0..) {
            let is_open = |mask: u32| mask >> port & 1 == 1;
            let took = is_open(free.control) && take(words, into) || is_open(free.data) && take(numbers, into);
            if took {
                self.waiting -= 1;
                return true;
            }
        }
        false
    }
}

/// Moves the oldest packet of a queue to `into`.
fn take(queue: &mut VecDeque<Packet>, into: &mut Packet) -> bool {
    // Copied from the queue's memory itself. An optional packet would be copied in odd parts, by way of the stack.
    let Some(oldest) = queue.front() else { return false };
    *into = *oldest;
    take_oldest(queue);
    true
}

/// The result of asking for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The chunk to send now; with the event for the program if it is the last chunk of its cast.
    Chunk(Packet, Option<Event>),
    /// The pace allows no chunk before this time.
    Paced(Time),
    /// No usable port is free, or there is no chunk to send.
    Nothing,
}

impl Casts {
    /// Casts of a host that may be late by up to `catch_up`, as hosts on sockets are: it then sends the chunks that are
    /// due in a row, so that it keeps its average pace. Zero, as in [`Casts::default`], keeps at least the pace's time
    /// between two chunks of a plane.
    pub fn catching_up(catch_up: Span) -> Casts {
        Casts { catch_up, ..Casts::default() }
    }

    /// Adds chunks after those that wait.
    ///
    /// # Panics
    /// If there are no chunks.
    pub fn push(&mut self, cast: Cast) {
        assert!(cast.count > 0, "a cast has chunks");
        self.queue.push_back(cast);
    }

    /// True if no chunk waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Removes all chunks of an operation that were not sent yet.
    pub fn forget(&mut self, task: u32) {
        self.queue.retain(|cast| cast.task != task);
    }

    /// The next chunk for one of the `free` ports; `up`: the ports that are not down.
    ///
    /// Planes take turns, and on each plane trees take turns: the i-th chunk of host `h` takes tree `h + i` (multicast
    /// sheet, section 16: tree = (burst + root) modulo trees).
    pub fn take(&mut self, now: Time, host: HostId, free: u32, up: u32) -> Asked {
        let Some(cast) = self.queue.front_mut() else { return Asked::Nothing };
        let planes = cast.planes & up;
        let count = (u32::BITS - planes.leading_zeros()) as usize;
        if self.paced.len() < count {
            self.paced.resize(count, Time::ZERO);
            self.turns.resize(count, host.0);
        }
        let turn = (1..=count).map(|step| (self.plane + step) % count);
        let mut usable = turn.filter(|plane| planes >> plane & 1 == 1);
        let paced = cast.rate != Cast::UNPACED;
        let open = |plane: &usize| free >> plane & 1 == 1 && (!paced || self.paced[*plane] <= now);
        let Some(plane) = usable.clone().find(open) else {
            let next = usable.clone().filter(|_| paced).map(|plane| self.paced[plane]).filter(|&at| at > now).min();
            return match next {
                // A free port waits only for its pace.
                Some(at) if usable.any(|plane| free >> plane & 1 == 1) => Asked::Paced(at),
                _ => Asked::Nothing,
            };
        };
        let mut turn = self.turns[plane];
        let mut entropy = if cast.trees == 0 { turn } else { turn % cast.trees };
        while cast.left_out.contains(plane as u8, entropy) {
            turn = turn.wrapping_add(1);
            entropy = if cast.trees == 0 { turn } else { turn % cast.trees };
        }
        self.turns[plane] = turn.wrapping_add(1);
        self.plane = plane;
        let packet = cast.packet(host, cast.first, PathId::new(plane as u8, entropy % PathId::ORDERED));
        if paced {
            let since = Time(now.0.saturating_sub(self.catch_up.0));
            self.paced[plane] = self.paced[plane].max(since) + cast.rate.time_for(Bytes(u64::from(packet.size)));
        }
        cast.first += 1;
        cast.count -= 1;
        let over = (cast.count == 0).then_some(Event::Cast { to: cast.to, task: cast.task, end: cast.first });
        if over.is_some() {
            self.queue.pop_front();
        }
        Asked::Chunk(packet, over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cast(first: u32, count: u32, rate: Rate) -> Cast {
        Cast {
            to: HostId::group(0),
            task: 3,
            first,
            count,
            bytes: 4096,
            last: 9,
            tail: 100,
            header: 64,
            rate,
            planes: 0b11,
            trees: 0,
            left_out: LeftOut::NONE,
        }
    }

    fn take(casts: &mut Casts, now: u64, free: u32) -> Option<(u8, u32, u32, u16)> {
        match casts.take(Time(now), HostId(5), free, 0b11) {
            Asked::Chunk(packet, _) => {
                let Header::Chunk(chunk) = packet.header else { panic!("a chunk") };
                Some((packet.path.port(), packet.path.entropy(), chunk.chunk, packet.size))
            }
            Asked::Paced(_) | Asked::Nothing => None,
        }
    }

    #[test]
    fn chunks_take_turns_over_planes_and_trees_and_the_last_is_short() {
        let mut casts = Casts::default();
        casts.push(cast(6, 4, Cast::UNPACED));
        let all: Vec<_> = std::iter::from_fn(|| take(&mut casts, 0, 0b11)).collect();
        assert_eq!(all, [(1, 5, 6, 4160), (0, 5, 7, 4160), (1, 6, 8, 4160), (0, 6, 9, 164)]);
        assert!(casts.is_empty());
    }

    #[test]
    fn trees_that_are_left_out_have_no_turn() {
        let mut casts = Casts::default();
        let mut left_out = LeftOut::of(4);
        assert!(left_out.insert(1, 1) && left_out.insert(1, 2) && left_out.insert(0, 0));
        casts.push(Cast { trees: 4, left_out, ..cast(0, 5, Cast::UNPACED) });
        let on_plane_1: Vec<u32> = std::iter::from_fn(|| take(&mut casts, 0, 0b10)).map(|t| t.1).collect();
        // Host 5 begins with tree 1.
        assert_eq!(on_plane_1, [3, 0, 3, 0, 3]);
        // All trees by number, of which there are four.
        casts.push(Cast { left_out, ..cast(0, 3, Cast::UNPACED) });
        assert_eq!(std::iter::from_fn(|| take(&mut casts, 0, 0b01)).map(|t| t.1).collect::<Vec<_>>(), [5, 6, 7]);
        casts.push(Cast { left_out, ..cast(0, 2, Cast::UNPACED) });
        assert_eq!(std::iter::from_fn(|| take(&mut casts, 0, 0b01)).map(|t| t.1).collect::<Vec<_>>(), [9, 10]);
    }

    #[test]
    fn a_late_host_catches_up_with_its_pace_as_far_as_it_may() {
        // A chunk takes 83,200 ps of its plane.
        let mut casts = Casts::catching_up(Span(200_000));
        casts.push(cast(0, 9, Rate::from_gbps(400)));
        let now = 10_000_000;
        let at_once = std::iter::from_fn(|| take(&mut casts, now, 0b01)).count();
        assert_eq!(at_once, 3, "those of the last 200 ns, and the one that is due");
        let next = now - 200_000 + 3 * 83_200;
        assert!(matches!(casts.take(Time(now), HostId(5), 0b01, 0b11), Asked::Paced(Time(at)) if at == next));
        casts.forget(3);
        assert!(casts.is_empty());
    }

    #[test]
    fn each_plane_keeps_its_pace() {
        let mut casts = Casts::default();
        // 4,160 B at 400 Gb/s: 83,200 ps.
        casts.push(cast(0, 5, Rate::from_gbps(400)));
        assert_eq!(take(&mut casts, 0, 0b11).map(|t| t.0), Some(1));
        assert_eq!(take(&mut casts, 0, 0b10), None, "plane 1 waits for its pace");
        assert_eq!(take(&mut casts, 0, 0b01).map(|t| t.0), Some(0));
        assert!(matches!(casts.take(Time(100), HostId(5), 0b11, 0b11), Asked::Paced(Time(83_200))));
        assert_eq!(take(&mut casts, 83_200, 0b11).map(|t| t.0), Some(1));
        assert!(matches!(casts.take(Time(83_200), HostId(5), 0b11, 0b00), Asked::Nothing), "no port is up");
    }
}
